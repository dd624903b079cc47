use std::time::Duration;

use profbridge_model::{Builder, Mapping, Profile};
use profbridge_sampler::message::{Level, Mode, Status, Stops};

use profbridge_wire::folded::CalledBy;

use super::{Missing, Report};
use crate::sample::processes::{ChildrenTime, process_times};
use crate::views::sums::Sums;

/// A frame: its name, its source file and line. Without a source file it is of a library.
type ReportFrame<'a> = (&'a str, &'a str, i64);

/// Adds stacks of a process, leaf first, each with its milliseconds.
fn add(sums: &mut Sums, process: &str, waiting: bool, stacks: &[(&[ReportFrame<'_>], i64)]) {
    let mut builder = Builder::new();
    builder.resource(&[("process.executable.name", process.into()), ("process.pid", 7.into())]);
    let sample_type = builder.value_type("wall", "nanoseconds");
    builder.profile(Profile { sample_type, ..Profile::default() });
    let state = builder.attributes(&[("profbridge.thread.state", if waiting { "waiting" } else { "running" }.into())]);
    for (frames, milliseconds) in stacks {
        let mut locations = Vec::new();
        for (name, source, line) in *frames {
            let file = if source.is_empty() { "/lib/libcrypto.so.3" } else { "/srv/app" };
            let filename =
                builder.string(if name.starts_with("lib") || !source.is_empty() { file } else { "/lib/libc.so.6" });
            let mapping = builder.mapping(Mapping { filename, memory_limit: 1, ..Mapping::default() });
            let (name, filename) = (builder.string(name), builder.string(source));
            let function = builder.function(profbridge_model::Function { name, filename, ..Default::default() });
            let line = profbridge_model::Line { function, line: *line, column: 0 };
            let location = profbridge_model::Location { mapping, ..Default::default() };
            locations.push(builder.location(location, &[line]));
        }
        let stack = builder.stack(&locations);
        builder.sample(stack, state, None, &[1], &[milliseconds * 1_000_000]);
    }
    sums.add(&builder.finish().unwrap());
}

fn sums() -> Sums {
    Sums::named_by(CalledBy::Executable)
}

fn report(sums: &mut Sums, status: Status) -> Report<'_> {
    Report {
        processes: process_times(sums),
        sums,
        native: false,
        verbose: false,
        followed: false,
        children: ChildrenTime::default(),
        awaited: vec![("socket to 127.0.0.1:5432".to_owned(), 3), ("pipe".to_owned(), 1)],
        hints: Vec::new(),
        node_quality: None,
        missing: None,
        status,
        mode: Mode::Wall,
        stops: Stops::default(),
        lacked: false,
        elapsed: Duration::from_secs(1),
        most_threads: 64,
    }
}

/// Guarantees: with lines told apart, lines of own code are listed, with the time in libraries that they call.
#[test]
fn lines() {
    let mut sums = sums();
    sums.reading.stacks.by_line = true;
    let next = ("login", "/srv/shop.c", 52);
    add(&mut sums, "app", false, &[(&[LIBRARY, LOGIN, MAIN], 600), (&[next, MAIN], 300), (&[MAIN], 100)]);
    let text = report(&mut sums, Status::default()).functions();
    let expected = [
        "   60.0 %     0.60 s  shop.c:51  login",
        "   30.0 %     0.30 s  shop.c:52  login",
        "   10.0 %     0.10 s  app.c:90  main",
    ];
    assert_eq!(text.lines().skip(1).take(3).collect::<Vec<_>>(), expected, "{text}");
}

const MAIN: ReportFrame<'_> = ("main", "/srv/app.c", 90);
const SERVE: ReportFrame<'_> = ("serve", "/srv/serve.c", 7);
const LOGIN: ReportFrame<'_> = ("login", "/srv/shop.c", 51);
const SEARCH: ReportFrame<'_> = ("search", "/srv/shop.c", 70);
const LIBRARY: ReportFrame<'_> = ("lib_hash", "", 0);
const MEMCPY: ReportFrame<'_> = ("memcpy", "", 0);
const POLL: ReportFrame<'_> = ("__GI___poll", "", 0);
const WAIT4: ReportFrame<'_> = ("wait4", "", 0);

/// Guarantees: the tree has the functions of the program with their hottest lines, and behind each function the
/// libraries in which its time was spent; the hottest function is named above the tree. A call that takes all of its
/// caller's time shares its row. The C library's time counts for its caller. Running time comes first, even if sixty
/// times as much time was spent waiting, and waiting is listed by reason.
#[test]
fn own_code_first() {
    let mut sums = sums();
    add(
        &mut sums,
        "app",
        false,
        &[
            (&[LIBRARY, LOGIN, SERVE, MAIN], 600),
            (&[("login", "/srv/shop.c", 53), SERVE, MAIN], 40),
            (&[MEMCPY, SEARCH, SERVE, MAIN], 300),
            (&[LIBRARY], 60),
        ],
    );
    add(&mut sums, "app", true, &[(&[POLL, SERVE, MAIN], 60_000), (&[("recv", "", 0), SEARCH, MAIN], 20_000)]);
    let text = report(&mut sums, Status::default()).functions();
    let expected = "\
running: 1.00 s (1.00 processors), 94 % of it in own code and what that calls
hottest: main > serve > login  64.0 % (shop.c:51)
   94.0 %     0.94 s  main > serve   serve.c:7
   64.0 %     0.64 s    login        shop.c:51  libcrypto 60.0 %
   30.0 %     0.30 s    search       shop.c:70
    6.0 %     0.06 s  [no own code]             libcrypto 6.0 %
waiting: 80.00 s (64 threads)
   75.0 %    60.00 s  events          serve (serve.c:7) 75.0 %
   25.0 %    20.00 s  file or socket  search (shop.c:70) 25.0 %
                                      of it socket to 127.0.0.1:5432 75.0 %, pipe 25.0 %
";
    assert_eq!(text, expected, "\n{text}");
    let native = Report { native: true, ..report(&mut sums, Status::default()) }.functions();
    assert!(
        native.contains("self               total  function\n   66.0 %     0.66 s   66.0 %     0.66 s  lib_hash"),
        "{native}"
    );
}

/// Guarantees: rows beyond the longest list are counted, and CPU time has no list of waits.
#[test]
fn many_functions() {
    let mut sums = sums();
    let names: Vec<String> = (0..20).map(|number| format!("f{number:02}")).collect();
    let stacks: Vec<[ReportFrame<'_>; 1]> = names.iter().map(|name| [(name.as_str(), "/srv/app.c", 1)]).collect();
    let stacks: Vec<(&[ReportFrame<'_>], i64)> = stacks.iter().map(|stack| (stack.as_slice(), 50)).collect();
    add(&mut sums, "app", false, &stacks);
    let text = Report { mode: Mode::Cpu, ..report(&mut sums, Status::default()) }.functions();
    assert_eq!(text.lines().filter(|line| line.ends_with("app.c:1")).count(), 12, "{text}");
    assert!(text.contains("8 more rows not listed") && !text.contains("waiting"), "\n{text}");
}

/// Guarantees: for a program that does its work in child processes, the report says where to look for the work.
#[test]
fn children() {
    let report_of = |milliseconds, followed| {
        let mut sums = sums();
        add(&mut sums, "app", true, &[(&[WAIT4], milliseconds), (&[("read", "", 0)], 900)]);
        Report { followed, ..report(&mut sums, Status::default()) }.functions()
    };
    let text = report_of(800, false);
    assert!(text.contains("children: 0.80 s went by while it waited for processes it started"), "\n{text}");
    assert!(!report_of(200, false).contains("children:"));
    assert!(!report_of(800, true).contains("children:"), "what was waited for is there");
}

/// Guarantees: a process that hardly runs while descendants are busy that are not sampled names them, whether others of
/// them are sampled or not; one that runs as much as they do does not.
#[test]
fn busy_children() {
    let mut sums = sums();
    add(&mut sums, "app", false, &[(&[MAIN], 300)]);
    let workers: Vec<_> = (8..18).map(|pid| (pid, "php-fpm8.2".to_owned())).collect();
    let mut text = |milliseconds, followed| {
        let children = ChildrenTime { time: Duration::from_millis(milliseconds), busy: workers.clone() };
        Report { children, followed, ..report(&mut sums, Status::default()) }.functions()
    };
    let named = text(1_900, false);
    assert_eq!(text(1_900, true), named);
    for part in
        ["children: 1.90 s of processor time", "php-fpm8.2 (pid 8), php-fpm8.2 (pid 9)", "and 4 more", "--subprocesses"]
    {
        assert!(named.contains(part), "{part}\n{named}");
    }
    assert!(!text(290, false).contains("children:") && !text(0, true).contains("children:"));
}

/// Guarantees: with several sampled processes the report shows which did the work, and in which function; a single one
/// is not listed.
#[test]
fn processes() {
    let mut sums = sums();
    add(&mut sums, "work", false, &[(&[LOGIN, MAIN], 1500), (&[SEARCH, MAIN], 500)]);
    add(&mut sums, "timeout", true, &[(&[WAIT4], 2_010)]);
    let text = report(&mut sums, Status::default()).functions();
    let expected = "   running     waiting  process
    2.00 s      0.00 s  work (pid 7)    75.0 % login (shop.c:51)
    0.00 s      2.01 s  timeout (pid 7)
running: 2.00 s";
    assert!(text.starts_with(expected) || text.contains("timeout (pid 7)\n    2.00 s"), "\n{text}");
    let mut many = self::sums();
    (0..10).for_each(|number| add(&mut many, &format!("p{number}"), false, &[(&[MAIN], 1_000)]));
    let text = Report { mode: Mode::Cpu, ..report(&mut many, Status::default()) }.functions();
    assert!(text.contains("    4.00 s              in 4 more\n") && !text.contains("waiting"), "\n{text}");
    let mut one = self::sums();
    add(&mut one, "work", false, &[(&[MAIN], 5)]);
    assert!(report(&mut one, Status::default()).functions().starts_with("running: "));
}

/// Guarantees: the time without a sampler process is reported, with the number of gaps.
#[test]
fn missing() {
    let mut sums = sums();
    assert!(!report(&mut sums, Status::default()).trust().contains("missing"));
    let missing = Some(Missing { nano: 1_230_000_000, count: 2 });
    let text = Report { missing, ..report(&mut sums, Status::default()) }.trust();
    assert!(
        text.contains("missing: 1.23 s of the run, since the sampler process ended by itself 2 times\n"),
        "\n{text}"
    );
}

/// Guarantees: a run without samples is reported as such.
#[test]
fn nothing() {
    let mut sums = sums();
    let mut report = report(&mut sums, Status::default());
    assert!(report.functions().contains("no function was found running"));
    assert!(report.trust().starts_with("stacks: none\n"));
}

/// Guarantees: incomplete stacks are counted and explained, complete ones are not mentioned.
#[test]
fn trust() {
    let mut sums = sums();
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
    assert_eq!(Report { verbose: true, ..report(&mut sums, good) }.trust(), expected);
    assert_eq!(report(&mut sums, good).trust(), "stacks: 1000 samples, 100.0 % complete\n");
    let bad = Status {
        complete: 900,
        truncated: 70,
        guessed: 30,
        lost_samples: 604,
        lost_observations: 5,
        refused_stops: 6,
        lowered_ticks: 500,
        missed_ticks: 40,
        sampler_cpu_nano: 90_000_000,
        ..good
    };
    let text = report(&mut sums, bad).trust();
    for part in [
        "90.0 % complete, 70 truncated (callers are missing), 30 guessed (callers may be wrong)\n",
        "lost: 604 of the kernel's records, samples and switches, so",
        "lost: 5 samples",
        "refused: 6 stops",
        "rate: lowered, 32.5 %",
        "late: 2.6 % of the looks at waiting threads",
        "sampler: 9.0 % of a processor",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let text = report(&mut sums, Status { level: Level::None, ..bad }).trust();
    assert!(text.contains("late: 2.6 % of the samples"), "{text}");
}

/// Guarantees: stacks without some callers are no complete ones, as the line about these says, and each line about
/// waits says what is exact, what is an estimate, and which frames stand for what is not known.
#[test]
fn not_everything_is_known() {
    let mut sums = sums();
    let counts = Status { observations: 1000, complete: 940, recorded_nano: 600, ..Status::default() };
    let status = Status { counted_nano: 400, switches_sampled_nano: 300, not_placed_nano: 200, ..counts };
    let text = report(&mut sums, status).trust();
    for part in [
        "stacks: 1000 samples, 94.0 % complete, 60 without some callers\n",
        "waits: 40.0 % of the threads' time was divided by samples, since not every switch of theirs was recorded: how",
        "waits: for 30.0 % of the threads' time, of a process with many, where and how long they waited is exact",
        "waits: in 20.0 % of the threads' time they waited where no stack was read ([waiting, not seen] and [waiting",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

/// Guarantees: a waiting function has the line at which it waited, whether it also ran, and where, or not.
#[test]
fn lines_of_waits() {
    let mut sums = sums();
    add(&mut sums, "app", true, &[(&[POLL, SERVE, MAIN], 60), (&[("recv", "", 0), SEARCH, MAIN], 20)]);
    add(&mut sums, "app", false, &[(&[("search", "/srv/shop.c", 99), MAIN], 500)]);
    let text = report(&mut sums, Status::default()).functions();
    for part in ["search  100.0 % (shop.c:99)", " serve (serve.c:7) 75.0 %", " search (shop.c:70) 25.0 %"] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

/// Guarantees: unsampled processor time is reported with a way to see it, and so are calls that returned early; random
/// deviations are not.
#[test]
fn what_is_missing() {
    let mut sums = sums();
    let status =
        Status { level: Level::None, ticks: 100, not_sampled_nano: 400_000_000, cut_calls: 3, ..Status::default() };
    for (stops, how) in [(Stops::UserBound, "stay in their own code"), (Stops::Never, "not sampled (stops: never)")] {
        let text = Report { stops, ..report(&mut sums, status) }.trust();
        let (missing, more) =
            text.split_once("not sampled: 0.40 s of processor time").unwrap_or_else(|| panic!("{text}"));
        assert!(missing.starts_with("stacks: none") && more.lines().next().unwrap().contains("CAP_PERFMON"), "{text}");
        assert!(text.contains("cut: 3 system calls came back early") && text.contains(how), "{text}");
    }
    let text = Report { lacked: true, ..report(&mut sums, status) }.trust();
    assert!(text.contains("not sampled for lack of") && !text.contains("CAP_PERFMON"), "{text}");
    let little = Status { not_sampled_nano: 9_000_000, ..Status::default() };
    assert!(!report(&mut sums, little).trust().contains("not sampled"));
    for level in [Level::Kernel, Level::Undecided] {
        let status = Status { not_sampled_nano: 400_000_000, level, ..Status::default() };
        assert!(report(&mut sums, status).trust().contains("only the amount is known\n"), "nothing is advised");
    }
}
