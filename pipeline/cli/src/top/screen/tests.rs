use profbridge_model::{Builder, Function as Named, Line, Location, Mapping, Profile, Profiles};

use super::*;
use crate::sample::RunSnapshot;
use crate::top::keys::Key;

/// A stack, leaf first, as (file, name), with its thread and its milliseconds.
type TimedStack<'a> = (&'a [(&'a str, &'a str)], (i64, &'a str), i64);

/// Profiles of these stacks of running threads.
fn batch(stacks: &[TimedStack<'_>]) -> Profiles {
    batch_of("app", "running", stacks)
}

/// Profiles of a process whose threads are in this state.
fn batch_of(process: &str, state: &str, stacks: &[TimedStack<'_>]) -> Profiles {
    let mut builder = Builder::new();
    builder.resource(&[("process.executable.name", process.into()), ("process.pid", 7.into())]);
    let sample_type = builder.value_type("wall", "nanoseconds");
    builder.profile(Profile { sample_type, ..Profile::default() });
    for (frames, (id, name), milliseconds) in stacks {
        let mut locations = Vec::new();
        for (file, name) in *frames {
            let filename = builder.string(file);
            let mapping = builder.mapping(Mapping { filename, memory_limit: 1, ..Mapping::default() });
            let name = builder.string(name);
            let function = builder.function(Named { name, ..Named::default() });
            let line = Line { function, line: 1, column: 0 };
            locations.push(builder.location(Location { mapping, ..Location::default() }, &[line]));
        }
        let stack = builder.stack(&locations);
        let id = profbridge_model::builder::Any::Int(*id);
        let thread = [("thread.id", id), ("thread.name", (*name).into()), ("profbridge.thread.state", state.into())];
        let attributes = builder.attributes(&thread);
        builder.sample(stack, attributes, None, &[1], &[milliseconds * 1_000_000]);
    }
    builder.finish().unwrap()
}

const APP: &str = "/srv/app";
const LIBC: &str = "/lib/libc.so.6";

fn look(seconds: u64) -> RunSnapshot<'static> {
    let status = profbridge_sampler::message::Status { observations: 404, complete: 404, ..Default::default() };
    RunSnapshot {
        title: "app (pid 7)",
        elapsed: Duration::from_secs(seconds),
        duration: None,
        status,
        threads: 2,
        rate_hertz: Some(101.0),
        is_naming: false,
    }
}

/// Two seconds: 1.2 s in `rank`, 0.6 s in `memcpy` that it called, 0.2 s in `parse`, and a waiting thread.
fn state() -> ViewState {
    let mut state = ViewState::default();
    let main = (7, "app");
    let running = batch(&[
        (&[(APP, "rank"), (APP, "main")], main, 1200),
        (&[(LIBC, "memcpy"), (APP, "rank"), (APP, "main")], main, 600),
        (&[(APP, "parse"), (APP, "main")], main, 200),
    ]);
    let waiting =
        batch_of("app", "waiting", &[(&[(LIBC, "futex"), (APP, "next_job"), (APP, "worker")], (8, "pool"), 2000)]);
    state.look(&look(2));
    state.take(&running, Duration::from_secs(2));
    state.take(&waiting, Duration::from_secs(2));
    state
}

fn text(rows: &[ScreenRow]) -> String {
    rows.iter().map(|row| format!("{}\n", row.text.trim_end())).collect()
}

/// Guarantees: at 80 columns the view looks exactly as written here: running beside waiting with what threads wait for,
/// and program code first, with the time of the C library that it calls.
#[test]
fn eighty_columns() {
    let drawn = draw(&mut state(), 80, 18);
    let expected = "\
profbridge top  app (pid 7): 2 s, 404 samples, 2 threads, 101 Hz
last 2 s: running 1.00 processors, waiting 1.00 threads (lock 100 %)

    run    wait  thread
100.0 %   0.0 %  app (7)  rank (app)
  0.0 % 100.0 %  pool (8)  lock: next_job (app)
  >self   total    wait  function, own code first
 90.0 %  90.0 %   0.0 %  rank (app)
 10.0 %  10.0 %   0.0 %  parse (app)
  0.0 % 100.0 %   0.0 %  main (app)
  0.0 %   0.0 % 100.0 %  next_job (app)
  0.0 %   0.0 % 100.0 %  worker (app)
  0.0 %   0.0 % 100.0 %  [waiting for a lock]




q quit  s t w sort  / filter  o own  n native  h threads  a all  6 functions
";
    assert_eq!(text(&drawn), expected, "\n{}", text(&drawn));
}

/// Guarantees: at 120 columns seconds are shown as well, and on demand all functions as they were sampled.
#[test]
fn a_hundred_and_twenty_columns() {
    let mut state = state();
    state.press(Key::Character('n'));
    let drawn = text(&draw(&mut state, 120, 14));
    for line in [
        "profbridge top  app (pid 7): 2 s, 404 samples, 2 threads, 101 Hz, 100.0 % complete",
        "  >self   total    wait  seconds  function, own code first",
        " 60.0 %  90.0 %   0.0 %     1.20  rank (app)",
        " 30.0 %  30.0 %   0.0 %     0.60  memcpy (libc.so.6)",
    ] {
        assert!(drawn.lines().any(|drawn| drawn == line), "no `{line}`:\n{drawn}");
    }
}

/// Guarantees: at any size there are exactly as many lines as the terminal has, none is too wide, however long or wide
/// the names, and nothing panics.
#[test]
fn any_size() {
    let mut state = state();
    let long = format!("shop_{}rank漢字漢字", "very_long_module_name_".repeat(20));
    let wide = "漢".repeat(300);
    let running = batch(&[(&[(APP, &long), (APP, &wide)], (7, "漢字漢字漢字"), 100)]);
    state.take(&running, Duration::from_secs(2));
    for width in (0..40).chain([80, 100, 120, 250, 2000]) {
        for height in (0..30).chain([50, 200]) {
            for typing in [false, true] {
                state.typing = typing;
                let rows = draw(&mut state, width, height);
                assert_eq!(rows.len(), height, "{width}x{height}");
                assert!(rows.iter().all(|row| columns(&row.text) <= width), "{width}x{height}: {rows:?}");
            }
        }
    }
    let drawn = text(&draw(&mut state, 80, 24));
    let line = drawn.lines().find(|line| line.contains("shop_very") && line.contains('…')).unwrap();
    assert!(line.ends_with("rank漢字漢字"), "both ends of a name are there: {line}");
}

/// Guarantees: keys sort, filter, scroll, switch and quit; while the filter is typed, letters belong to it.
#[test]
fn keys() {
    let mut state = state();
    let first = |state: &mut ViewState| {
        let rows = draw(state, 80, 24);
        let at = rows.iter().position(|row| row.text.contains("  function")).unwrap();
        rows[at + 1].text.rsplit("%  ").next().unwrap().to_owned()
    };
    assert_eq!(first(&mut state), "rank (app)");
    let press = |state: &mut ViewState, keys: &str| keys.chars().any(|key| state.press(Key::Character(key)));
    assert!(!press(&mut state, "t"));
    assert_eq!(first(&mut state), "main (app)");
    press(&mut state, "w");
    assert_eq!(first(&mut state), "next_job (app)");
    press(&mut state, "on");
    assert_eq!(first(&mut state), "futex (libc.so.6)");
    press(&mut state, "s/MEMq");
    assert!(state.typing && state.filter == "MEMq", "letters are of the filter");
    assert!(!state.press(Key::Backspace) && !state.press(Key::Enter) && !state.typing);
    assert_eq!(first(&mut state), "memcpy (libc.so.6)");
    assert!(text(&draw(&mut state, 80, 24)).contains("functions with `MEM`"));
    state.press(Key::Escape);
    press(&mut state, "o");
    assert_eq!(first(&mut state), "rank (app)");
    state.press(Key::Down);
    let at = |state: &mut ViewState| {
        draw(state, 80, 9);
        state.scroll
    };
    assert_eq!(at(&mut state), 1);
    state.press(Key::PageDown);
    state.press(Key::PageDown);
    state.press(Key::PageDown);
    assert!(at(&mut state) < 7, "no further than to the end");
    state.press(Key::Home);
    assert_eq!(at(&mut state), 0);
    press(&mut state, "h");
    assert!(!text(&draw(&mut state, 80, 24)).contains("thread\n"));
    assert!(press(&mut state, "q"));
}

/// Guarantees: the last ten seconds are shown, or on demand the whole run; the latest message is shown.
#[test]
fn lately() {
    let mut state = state();
    state.look(&look(30));
    let running = batch(&[(&[(APP, "later"), (APP, "main")], (7, "app"), 500)]);
    state.take(&running, Duration::from_secs(30));
    state.say("note: one");
    state.say("note: two");
    let drawn = text(&draw(&mut state, 80, 24));
    assert!(drawn.contains("100.0 % 100.0 %   0.0 %  later (app)") && !drawn.contains("rank"), "{drawn}");
    assert!(drawn.contains("last 10 s: running 0.05 processors") && drawn.contains("\nnote: two\n"), "{drawn}");
    state.press(Key::Character('a'));
    let drawn = text(&draw(&mut state, 80, 24));
    assert!(drawn.contains(" 72.0 %  72.0 %   0.0 %  rank (app)"), "{drawn}");
    assert!(drawn.contains("all time: running 0.08 processors"), "{drawn}");
}

/// Guarantees: sums are divided by the time they cover, however far the data lags, from the first samples on and after
/// old parts are dropped.
#[test]
fn behind() {
    let mut state = ViewState::default();
    let summary = |state: &mut ViewState| plain(state)[1].clone();
    let busy = |milliseconds| batch(&[(&[(APP, "work")], (7, "app"), milliseconds)]);
    let at = |milliseconds: u64| RunSnapshot { elapsed: Duration::from_millis(milliseconds), ..look(0) };
    // A busy thread is reported each half second, and its names arrive another half second later.
    for part in 1..=60 {
        let until = part * 500;
        state.look(&at(until + 500));
        state.take(&busy(500), Duration::from_millis(until));
        let shown = summary(&mut state);
        assert!(shown.contains("running 1.00 processors") && !shown.contains("last 11 s"), "{until} ms: {shown}");
        let drawn = text(&draw(&mut state, 80, 24));
        assert!(drawn.contains("\n100.0 %   0.0 %  app (7)  work (app)\n"), "{until} ms: {drawn}");
        state.since_start = true;
        assert!(summary(&mut state).contains("running 1.00 processors"), "{until} ms: {}", summary(&mut state));
        state.since_start = false;
    }
    assert!(summary(&mut state).starts_with("last 10 s: "), "{}", summary(&mut state));
    // In cpu mode idle threads are not reported. Then the data counts as known up to two seconds ago.
    state.look(&at(37_000));
    assert!(summary(&mut state).contains("running 0.50 processors"), "{}", summary(&mut state));
    state.look(&at(100_000));
    assert!(summary(&mut state).starts_with("last 10 s: running 0.00 processors"), "{}", summary(&mut state));
    state.take(&busy(500), Duration::from_millis(100_000));
    assert!(summary(&mut state).starts_with("last 10 s: running 0.05 processors"), "{}", summary(&mut state));
}

/// Guarantees: no thread exceeds 100 %, though its samples may cover more than the time between their arrivals, and no
/// more threads wait than there are.
#[test]
fn no_more_than_all() {
    let mut state = ViewState::default();
    let waits = |milliseconds: i64| {
        let stack: &[(&str, &str)] = &[(APP, "wait")];
        batch_of(
            "app",
            "waiting",
            &[(stack, (7, "a"), milliseconds), (stack, (8, "b"), milliseconds), (stack, (9, "c"), milliseconds)],
        )
    };
    for part in 1..=20 {
        state.take(&waits(505), Duration::from_millis(part * 500));
    }
    state.look(&look(10));
    for since_start in [false, true] {
        state.since_start = since_start;
        let summary = plain(&mut state)[1].clone();
        assert!(summary.contains("waiting 3.00 threads"), "{summary}");
        let drawn = text(&draw(&mut state, 80, 24));
        assert!(drawn.contains("0.0 % 100.0 %  a (7)") && !drawn.contains("101.0 %"), "{drawn}");
    }
}

/// Guarantees: kernel functions are not program code, and a thread that waits in one is shown where the program called
/// it.
#[test]
fn the_kernel() {
    let mut builder = Builder::new();
    let sample_type = builder.value_type("wall", "nanoseconds");
    builder.profile(Profile { sample_type, ..Profile::default() });
    let mut frame = |name: &str, kind: &str| {
        let (name, filename) = (builder.string(name), builder.string("/srv/shop.py"));
        let function = builder.function(Named { name, filename, ..Named::default() });
        let line = Line { function, line: 1, column: 0 };
        let attributes = builder.attributes(&[("profile.frame.type", kind.into())]);
        builder.location(Location { attributes, ..Location::default() }, &[line])
    };
    let locations = [frame("do_sys_poll", "kernel"), frame("serve", "cpython")];
    let stack = builder.stack(&locations);
    builder.sample(stack, None, None, &[1], &[900_000_000]);
    let mut state = ViewState::new(true);
    state.look(&look(1));
    state.take(&builder.finish().unwrap(), Duration::from_secs(1));
    let drawn = draw(&mut state, 80, 24);
    let style = |name: &str| drawn.iter().find(|row| row.text.contains(&format!("%  {name}"))).unwrap().style;
    assert_eq!((style("do_sys_poll"), style("serve")), (Style::Other, Style::Own));
    assert!(drawn.iter().any(|row| row.text.contains("  serve (shop.py:1)")), "{drawn:?}");
}

/// Guarantees: threads that do not fit are counted, running ones come first, and with several processes each thread
/// shows its own.
#[test]
fn many_threads() {
    let mut state = ViewState::default();
    let stacks: Vec<TimedStack<'_>> = (1..=40).map(|id| (&[(APP, "work")] as &[_], (id, "pool"), id)).collect();
    state.look(&look(2));
    state.take(&batch(&stacks), Duration::from_secs(2));
    let drawn = text(&draw(&mut state, 80, 24));
    assert!(drawn.contains("pool (40)") && drawn.contains("and 36 more"), "{drawn}");
    // A heading without a thread below it would be useless.
    for height in 0..24 {
        let drawn = text(&draw(&mut state, 80, height));
        assert_eq!(drawn.contains("wait  thread"), drawn.contains("pool ("), "{height}: {drawn}");
    }
    let other = batch_of("job", "running", &[(&[(APP, "work")], (41, "other"), 900)]);
    state.take(&other, Duration::from_secs(2));
    let drawn = text(&draw(&mut state, 80, 24));
    assert!(drawn.contains("job (pid 7) other (41)") && drawn.contains("app (pid 7) pool (40)"), "{drawn}");
}

/// Guarantees: without a terminal the same is written as lines: the ten most expensive functions, with full names.
#[test]
fn lines() {
    let lines = plain(&mut state());
    assert_eq!(lines[0], "app (pid 7): 2 s, 404 samples, 2 threads, 101 Hz, 100.0 % complete");
    assert_eq!(lines[3], " 90.0 %  90.0 %   0.0 %  rank (app)");
    assert_eq!(lines.last().map(String::as_str), Some(""));
}

/// Guarantees: while samples wait for the names of their functions, nothing is said about what runs, and the last ten
/// seconds are those before the samples that wait.
#[test]
fn names_to_come() {
    let mut state = ViewState::default();
    let naming = |seconds| RunSnapshot { is_naming: true, ..look(seconds) };
    state.look(&naming(4));
    let text = plain(&mut state).join("\n");
    assert!(text.contains("\nno figures yet: the samples wait for the names") && !text.contains("running"), "{text}");
    let rows = draw(&mut state, 100, 20);
    assert!(rows.iter().any(|row| row.text == "no functions yet: their names are being read"), "{rows:?}");
    state.take(&batch(&[(&[(APP, "rank")], (7, "app"), 2_000)]), Duration::from_secs(2));
    state.look(&naming(30));
    assert!(plain(&mut state)[1].starts_with("last 2 s: running 1.00 processors"), "{:?}", plain(&mut state));
    state.look(&look(30));
    assert!(plain(&mut state)[1].contains("running 0.00 processors"), "{:?}", plain(&mut state));
}
