use std::time::Duration;

use profbridge_model::{Builder, Mapping, Profile, Profiles};
use profbridge_sampler::message::{Level, Mode, Status, Stops};

use super::{Missing, Report};
use crate::sample::processes::ProcessShare;
use crate::sample::shares::{Shares, Side};

/// Stacks of the program `/srv/app`, leaf first, each with its milliseconds.
fn batch(stacks: &[(&[&str], i64)]) -> Profiles {
    batch_of("/srv/app", stacks)
}

/// Stacks in a file.
fn batch_of(file: &str, stacks: &[(&[&str], i64)]) -> Profiles {
    let mut builder = Builder::new();
    let sample_type = builder.value_type("wall", "nanoseconds");
    builder.profile(Profile { sample_type, ..Profile::default() });
    let filename = builder.string(file);
    let mapping = builder.mapping(Mapping { filename, memory_limit: 1, ..Mapping::default() });
    for (names, milliseconds) in stacks {
        let mut locations = Vec::new();
        for name in *names {
            let name = builder.string(name);
            let function = builder.function(profbridge_model::Function { name, ..Default::default() });
            let line = profbridge_model::Line { function, line: 1, column: 0 };
            let location = profbridge_model::Location { mapping, ..Default::default() };
            locations.push(builder.location(location, &[line]));
        }
        let stack = builder.stack(&locations);
        builder.sample(stack, None, None, &[1], &[milliseconds * 1_000_000]);
    }
    builder.finish().unwrap()
}

fn report(shares: &Shares, status: Status) -> Report<'_> {
    Report {
        shares,
        processes: Vec::new(),
        followed: false,
        children: (Duration::ZERO, Vec::new()),
        hints: Vec::new(),
        told: None,
        missing: None,
        status,
        mode: Mode::Wall,
        stops: Stops::default(),
        lacked: false,
        elapsed: Duration::from_secs(1),
        most_threads: 64,
    }
}

/// Guarantees: the hottest function is first although sixty times as much time was spent waiting, and shares refer to
/// running time.
#[test]
fn running_before_waiting() {
    let mut shares = Shares::default();
    shares.add(&batch(&[(&["hot", "main"], 700), (&["cold", "main"], 300)]), false);
    shares.add(&batch(&[(&["std::thread::park", "worker"], 60_000), (&["main"], 5)]), true);
    let text = report(&shares, Status::default()).functions();
    let expected = "\
running: 1.00 s (1.00 processors)
                self               total  function
   70.0 %     0.70 s   70.0 %     0.70 s  hot (app)
   30.0 %     0.30 s   30.0 %     0.30 s  cold (app)
    0.0 %     0.00 s  100.0 %     1.00 s  main (app)
waiting: 60.01 s (64 threads)
  100.0 %    60.00 s  std::thread::park (app), called by worker (app)
    0.0 %     0.01 s  main (app)
";
    assert_eq!(text, expected, "\n{text}");
}

/// Guarantees: functions left out of the list are summed up, and CPU time has no list of waits.
#[test]
fn many_functions() {
    let names: Vec<String> = (0..20).map(|number| format!("f{number:02}")).collect();
    let stacks: Vec<[&str; 1]> = names.iter().map(|name| [name.as_str()]).collect();
    let stacks: Vec<(&[&str], i64)> = stacks.iter().map(|stack| (stack.as_slice(), 50)).collect();
    let mut shares = Shares::default();
    shares.add(&batch(&stacks), false);
    let report = Report { mode: Mode::Cpu, ..report(&shares, Status::default()) };
    let text = report.functions();
    assert_eq!(text.lines().filter(|line| line.contains("(app)")).count(), 12, "{text}");
    assert!(text.ends_with("   40.0 %     0.40 s                      in 8 more functions\n"), "\n{text}");
    assert!(!text.contains("waiting"));
}

/// Guarantees: for a program that does its work in child processes, the report says where to look for the work.
#[test]
fn children() {
    let report_of = |milliseconds| {
        let mut shares = Shares::default();
        shares.add(&batch_of("/lib/libc.so.6", &[(&["wait4"], milliseconds), (&["read"], 900)]), true);
        report(&shares, Status::default()).functions()
    };
    let text = report_of(800);
    assert!(text.contains("children: 0.80 s went by while it waited for processes it started"), "\n{text}");
    assert!(!report_of(200).contains("children"));
    let mut shares = Shares::default();
    shares.add(&batch_of("/lib/libc.so.6", &[(&["wait4"], 900)]), true);
    let followed = Report { followed: true, ..report(&shares, Status::default()) };
    assert!(!followed.functions().contains("children"), "what was waited for is there");
}

/// Guarantees: a process that hardly runs while its descendants are busy names them; one that runs as much as they do,
/// or whose descendants are sampled, does not.
#[test]
fn busy_children() {
    let mut shares = Shares::default();
    shares.add(&batch(&[(&["poll"], 300)]), false);
    let workers: Vec<_> = (8..18).map(|pid| (pid, "php-fpm8.2".to_owned())).collect();
    let text = |milliseconds, followed| {
        let children = (Duration::from_millis(milliseconds), workers.clone());
        Report { children, followed, ..report(&shares, Status::default()) }.functions()
    };
    let named = text(1_900, false);
    for part in
        ["children: 1.90 s of processor time", "php-fpm8.2 (pid 8), php-fpm8.2 (pid 9)", "and 2 more", "--subprocesses"]
    {
        assert!(named.contains(part), "{part}\n{named}");
    }
    assert!(!text(290, false).contains("children") && !text(1_900, true).contains("children"));
}

/// Guarantees: with several sampled processes the report shows which did the work; a single one is not listed.
#[test]
fn processes() {
    let shares = Shares::default();
    let of = |label: &str, running_nano, waiting_nano| ProcessShare {
        pid: 0,
        label: label.to_owned(),
        running_nano,
        waiting_nano,
        running: None,
    };
    let (mut work, wrapper) = (of("work (pid 8)", 2_000_000_000, 10_000_000), of("timeout (pid 7)", 0, 2_010_000_000));
    let both = Report { processes: vec![&work, &wrapper], ..report(&shares, Status::default()) };
    let text = both.functions();
    let expected = "   running     waiting  process
    2.00 s      0.01 s  work (pid 8)
    0.00 s      2.01 s  timeout (pid 7)
running: ";
    assert!(text.starts_with(expected), "\n{text}");
    let mut shares = Shares::default();
    work.running = Some(Side::default());
    shares.add_to(&batch(&[(&["hot", "main"], 1500), (&["cold", "main"], 500)]), false, work.running.as_mut());
    shares.add(&batch(&[(&["other", "main"], 9000)]), false);
    let text = Report { processes: vec![&work, &wrapper], ..report(&shares, Status::default()) }.functions();
    let expected = "    2.00 s      0.01 s  work (pid 8)
                           75.0 % hot (app)
                           25.0 % cold (app)
    0.00 s      2.01 s  timeout (pid 7)
running: 11.00 s";
    assert!(text.contains(expected), "of each what it did itself:\n{text}");
    let many: Vec<ProcessShare> = (0..10).map(|number| of(&format!("p{number}"), 1_000_000_000, 0)).collect();
    let cpu = Report { mode: Mode::Cpu, processes: many.iter().collect(), ..report(&shares, Status::default()) };
    let text = cpu.functions();
    assert!(text.contains("    2.00 s              in 2 more\n") && !text.contains("waiting"), "\n{text}");
    let one = Report { processes: vec![&work], ..report(&shares, Status::default()) };
    assert!(one.functions().starts_with("running: "));
}

/// Guarantees: the time without a sampler process is reported, with the number of gaps.
#[test]
fn missing() {
    let shares = Shares::default();
    assert!(!report(&shares, Status::default()).trust().contains("missing"));
    let missing = Some(Missing { nano: 1_230_000_000, count: 2 });
    let text = Report { missing, ..report(&shares, Status::default()) }.trust();
    assert!(
        text.contains("missing: 1.23 s of the run, since the sampler process ended by itself 2 times\n"),
        "\n{text}"
    );
}

/// Guarantees: a run without samples is reported as such.
#[test]
fn nothing() {
    let shares = Shares::default();
    let report = report(&shares, Status::default());
    assert!(report.functions().contains("no function was found running"));
    assert!(report.trust().starts_with("stacks: none\n"));
}

/// Guarantees: incomplete stacks are counted and explained, complete ones are not mentioned.
#[test]
fn trust() {
    let shares = Shares::default();
    let good = Status {
        observations: 1000,
        complete: 1000,
        ticks: 1000,
        missed_ticks: 3,
        stops: 990,
        longest_stop_nano: 84_999,
        sampler_cpu_nano: 13_000_000,
        level: Level::Kernel,
        ..Status::default()
    };
    let expected = "\
stacks: 1000 samples, 100.0 % complete
running threads: sampled by perf events, with their time in the kernel
sampler: 1.3 % of a processor; 990 stops, the longest 84 us
";
    assert_eq!(report(&shares, good).trust(), expected);
    let bad = Status {
        complete: 900,
        truncated: 70,
        guessed: 30,
        lost_observations: 5,
        refused_stops: 6,
        lowered_ticks: 500,
        missed_ticks: 40,
        ..good
    };
    let text = report(&shares, bad).trust();
    for part in [
        "90.0 % complete, 70 truncated (callers are missing), 30 guessed (callers may be wrong)\n",
        "lost: 5 samples",
        "refused: 6 stops",
        "rate: lowered, 32.5 %",
        "late: 2.6 % of the looks at waiting threads",
        "sampled by perf events, with their time in the kernel",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let text = report(&shares, Status { level: Level::None, ..bad }).trust();
    assert!(text.contains("late: 2.6 % of the samples"), "{text}");
}

/// Guarantees: unsampled processor time is reported with a way to see it, and so are calls that returned early; random
/// deviations are not.
#[test]
fn what_is_missing() {
    let shares = Shares::default();
    let status =
        Status { level: Level::None, ticks: 100, not_sampled_nano: 400_000_000, cut_calls: 3, ..Status::default() };
    for (stops, how) in [(Stops::UserBound, "stay in their own code"), (Stops::Never, "not sampled (stops: never)")] {
        let text = Report { stops, ..report(&shares, status) }.trust();
        let (missing, more) =
            text.split_once("not sampled: 0.40 s of processor time").unwrap_or_else(|| panic!("{text}"));
        assert!(missing.starts_with("stacks: none") && more.lines().next().unwrap().contains("CAP_PERFMON"), "{text}");
        assert!(text.contains("cut: 3 system calls came back early") && text.contains(how), "{text}");
    }
    let text = Report { lacked: true, ..report(&shares, status) }.trust();
    assert!(text.contains("not sampled for lack of") && !text.contains("CAP_PERFMON"), "{text}");
    let little = Status { not_sampled_nano: 9_000_000, ..Status::default() };
    assert!(!report(&shares, little).trust().contains("not sampled"));
    for level in [Level::Kernel, Level::Undecided] {
        let status = Status { not_sampled_nano: 400_000_000, level, ..Status::default() };
        assert!(report(&shares, status).trust().contains("only the amount is known\n"), "nothing is advised");
    }
}
