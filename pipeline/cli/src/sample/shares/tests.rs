use profbridge_model::{Builder, Function, Line, Location, LocationId, Mapping, Profile, Profiles};

use super::Shares;

const MS: i64 = 1_000_000;

/// A batch of wall-time samples.
fn batch(build: impl FnOnce(&mut Builder)) -> Profiles {
    let mut builder = Builder::new();
    let sample_type = builder.value_type("wall", "nanoseconds");
    builder.profile(Profile { sample_type, period: 10 * MS, ..Profile::default() });
    build(&mut builder);
    builder.finish().unwrap()
}

/// A location in a file, with functions from the innermost to the outermost.
fn frame(builder: &mut Builder, file: &str, names: &[&str]) -> Option<LocationId> {
    let filename = builder.string(file);
    let mapping = builder.mapping(Mapping { filename, memory_limit: 1 << 20, ..Mapping::default() });
    let lines: Vec<Line> = names
        .iter()
        .map(|name| {
            let name = builder.string(name);
            Line { function: builder.function(Function { name, ..Function::default() }), line: 1, column: 0 }
        })
        .collect();
    builder.location(Location { mapping, address: names.len() as u64, ..Location::default() }, &lines)
}

fn sample(builder: &mut Builder, stack: &[Option<LocationId>], milliseconds: i64) {
    let stack = builder.stack(stack);
    builder.sample(stack, None, None, &[1], &[milliseconds * MS]);
}

/// The functions with their own and total time in milliseconds, largest first.
fn running(shares: &Shares) -> Vec<(&str, u64, u64)> {
    let ms = |nano: u64| nano / MS as u64;
    let costs = shares.running.by_own();
    costs.iter().map(|c| (&*shares.functions.get(c.function).name, ms(c.own_nano), ms(c.total_nano))).collect()
}

/// Guarantees: own time belongs to the leaf, total time to every function on the stack, and batches add up.
#[test]
fn own_and_total() {
    let mut shares = Shares::default();
    for _ in 0..2 {
        let part = batch(|builder| {
            let [main, hot, cold] = ["main", "hot", "cold"].map(|name| frame(builder, "/srv/app", &[name]));
            sample(builder, &[hot, main], 70);
            sample(builder, &[cold, main], 20);
            sample(builder, &[main], 10);
        });
        shares.add(&part, false);
    }
    assert_eq!(running(&shares), [("hot", 140, 140), ("cold", 40, 40), ("main", 20, 200)]);
    assert_eq!(shares.running.nano(), 200 * MS as u64);
    assert_eq!(shares.running.observations(), 6);
}

/// Guarantees: the time of a recursive function counts once, however deep the recursion.
#[test]
fn recursion() {
    let mut shares = Shares::default();
    shares.add(
        &batch(|builder| {
            let [main, walk] = ["main", "walk"].map(|name| frame(builder, "/srv/app", &[name]));
            sample(builder, &[walk, walk, walk, walk, main], 30);
            sample(builder, &[walk, main], 10);
        }),
        false,
    );
    assert_eq!(running(&shares), [("walk", 40, 40), ("main", 0, 40)]);
}

/// Guarantees: of inlined functions the innermost has the own time, the outer ones have it in their total.
#[test]
fn inlined() {
    let mut shares = Shares::default();
    shares.add(
        &batch(|builder| {
            let main = frame(builder, "/srv/app", &["main"]);
            let hot = frame(builder, "/srv/app", &["inner", "middle", "outer"]);
            sample(builder, &[hot, main], 30);
        }),
        false,
    );
    assert_eq!(running(&shares), [("inner", 30, 30), ("main", 0, 30), ("middle", 0, 30), ("outer", 0, 30)]);
}

/// Guarantees: the time of a library's inlined functions counts as own time of the program's function around them; a
/// library function that was called keeps its own time.
#[test]
fn inlined_from_a_library() {
    let mut shares = Shares::default();
    shares.add(
        &batch(|builder| {
            let main = frame(builder, "/srv/app", &["main"]);
            let hot = frame(builder, "/srv/app", &["core::ops::add", "std::fold", "app::sum", "app::run"]);
            let called = frame(builder, "/srv/app", &["std::sort"]);
            sample(builder, &[hot, main], 30);
            sample(builder, &[called, main], 10);
        }),
        false,
    );
    let leaders: Vec<_> = running(&shares).into_iter().filter(|&(_, own, _)| own > 0).collect();
    assert_eq!(leaders, [("app::sum", 30, 30), ("std::sort", 10, 10)]);
    assert!(running(&shares).contains(&("core::ops::add", 0, 30)));
}

/// Guarantees: a function without a name is shown by its file, and the same name in two files is two functions.
#[test]
fn names() {
    let mut shares = Shares::default();
    shares.add(
        &batch(|builder| {
            let unnamed = frame(builder, "/usr/lib/libcrypto.so.3", &[]);
            let vdso = frame(builder, "[vdso]", &[]);
            let jit = frame(builder, "", &[]);
            let here = frame(builder, "/srv/app", &["init"]);
            let there = frame(builder, "/srv/plugin.so", &["init"]);
            for (stack, time) in [(unnamed, 50), (vdso, 40), (jit, 30), (here, 20), (there, 10)] {
                sample(builder, &[stack], time);
            }
        }),
        false,
    );
    let names: Vec<_> = running(&shares).iter().map(|&(name, ..)| name).collect();
    assert_eq!(names, ["[libcrypto.so.3]", "[vdso]", "[unknown]", "init", "init"]);
}

/// Guarantees: interpreted functions of one name are distinguished by their source files, shown by their base names;
/// one calling another is not recursion; a function without a name is shown by its file.
#[test]
fn interpreted() {
    let mut shares = Shares::default();
    shares.add(
        &batch(|builder| {
            let mut frame = |name: &str, source: &str| {
                let (name, filename) = (builder.string(name), builder.string(source));
                let function = builder.function(Function { name, filename, ..Function::default() });
                builder.location(Location::default(), &[Line { function, line: 1, column: 0 }])
            };
            let [here, there] = ["/srv/a.py", "/srv/b.py"].map(|source| frame("run", source));
            let other = frame("run", "/srv/old/a.py");
            let nameless = frame("", "/srv/c.js");
            sample(builder, &[here, there], 30);
            sample(builder, &[there], 20);
            sample(builder, &[other], 10);
            sample(builder, &[nameless], 5);
        }),
        false,
    );
    let function = |number: u32| shares.functions.get(number);
    let ms = |nano: u64| nano / MS as u64;
    let costs = shares.running.by_own();
    let told: Vec<_> = costs
        .iter()
        .map(|cost| {
            (&*function(cost.function).name, &*function(cost.function).module, ms(cost.own_nano), ms(cost.total_nano))
        })
        .collect();
    let expected =
        [("run", "a.py", 30, 30), ("run", "b.py", 20, 50), ("run", "a.py", 10, 10), ("[c.js]", "c.js", 5, 5)];
    assert_eq!(told, expected);
}

/// Guarantees: anonymous functions are distinguished by the line where they begin, which is shown; named functions are
/// one wherever they begin, and the current line never matters.
#[test]
fn anonymous_functions() {
    let mut shares = Shares::default();
    shares.add(
        &batch(|builder| {
            let mut frame = |name: &str, start_line, line| {
                let (name, filename) = (builder.string(name), builder.string("/srv/t.js"));
                let function = builder.function(Function { name, filename, start_line, ..Function::default() });
                builder.location(Location::default(), &[Line { function, line, column: 0 }])
            };
            let (first, again, second) =
                (frame("<anonymous>", 12, 13), frame("<anonymous>", 12, 14), frame("<anonymous>", 20, 21));
            let (unknown, closure) = (frame("<anonymous>", 0, 3), frame("Shop::{closure}", 5, 6));
            let (named, renamed) = (frame("rank", 30, 31), frame("rank", 40, 41));
            for (milliseconds, frame) in (1..).zip([first, again, second, unknown, closure, named, renamed]) {
                sample(builder, &[frame], milliseconds);
            }
        }),
        false,
    );
    let told: Vec<_> = shares
        .running
        .by_own()
        .iter()
        .map(|cost| {
            let function = shares.functions.get(cost.function);
            (format!("{} ({})", function.name, function.place().unwrap()), cost.own_nano / MS as u64)
        })
        .collect();
    let expected = [
        ("rank (t.js)", 13),
        ("Shop::{closure} (t.js:5)", 5),
        ("<anonymous> (t.js)", 4),
        ("<anonymous> (t.js:12)", 3),
        ("<anonymous> (t.js:20)", 3),
    ];
    assert_eq!(told, expected.map(|(name, time)| (name.to_owned(), time)));
}

/// Guarantees: functions of an interpreter and of its bundled extensions do not count as program code, wherever the
/// interpreter's code is; the code that it runs does.
#[test]
fn own_code() {
    let mut shares = Shares::default();
    shares.add(
        &batch(|builder| {
            let interpreters = ["python3.11", "node", "php", "ruby", "java", "libpython3.12.so.1.0"];
            let extension = "/usr/lib/python3.11/lib-dynload/_json.cpython-311-x86_64-linux-gnu.so";
            for file in
                interpreters.map(|name| format!("/usr/bin/{name}")).iter().map(|file| &**file).chain([extension])
            {
                let library = frame(builder, file, &["evaluate"]);
                sample(builder, &[library], 1);
            }
            let program = frame(builder, "/srv/nodeship", &["evaluate"]);
            sample(builder, &[program], 1);
            let (name, filename) = (builder.string("rank"), builder.string("/srv/shop.py"));
            let function = builder.function(Function { name, filename, ..Function::default() });
            let interpreted = builder.location(Location::default(), &[Line { function, line: 1, column: 0 }]);
            sample(builder, &[interpreted], 1);
        }),
        false,
    );
    let costs = shares.running.by_own();
    let own = costs.iter().map(|cost| shares.functions.get(cost.function)).filter(|function| function.own);
    let own: Vec<_> = own.map(|function| &*function.module).collect();
    assert_eq!((costs.len(), own), (9, vec!["nodeship", "shop.py"]));
}

/// Attack: a function name with terminal control sequences.
/// Guarantees: only visible characters are shown.
#[test]
fn attack_terminal_commands() {
    let mut shares = Shares::default();
    shares.add(
        &batch(|builder| {
            let evil = frame(builder, "/srv/\u{1b}]0;x", &["\u{1b}[2Jgone\r\n"]);
            sample(builder, &[evil], 1);
        }),
        false,
    );
    let cost = shares.running.by_own()[0];
    let function = shares.functions.get(cost.function);
    assert!(!function.name.contains(char::is_control) && !function.module.contains(char::is_control));
    assert!(function.name.contains("gone"));
}

/// Guarantees: waiting time is separate from running time, and each wait is attributed to the program's function that
/// led to it, through libraries and the language runtime.
#[test]
fn waiting() {
    let mut shares = Shares::default();
    let part = batch(|builder| {
        let futex = frame(builder, "/usr/lib/libc.so.6", &["syscall"]);
        let park = frame(builder, "/srv/app", &["std::thread::park"]);
        let worker = frame(builder, "/srv/app", &["app::worker"]);
        let main = frame(builder, "/srv/app", &["app::main"]);
        sample(builder, &[futex, park, worker, main], 90);
        sample(builder, &[futex], 5);
        sample(builder, &[main], 3);
    });
    shares.add(&part, true);
    assert_eq!(shares.running.nano(), 0);
    let name = |number: u32| &*shares.functions.get(number).name;
    let hotspots: Vec<_> =
        shares.waiting.hotspots().iter().map(|p| (name(p.leaf), p.within.map(name), p.nano / MS as u64)).collect();
    assert_eq!(hotspots, [("syscall", Some("app::worker"), 90), ("syscall", None, 5), ("app::main", None, 3)]);
}

/// Guarantees: if no function of the program led to a wait, as in an interpreter whose code is a library, the first
/// function of another library is shown; the C library's thread start, and compiled code without a name, are skipped.
#[test]
fn waits_in_libraries() {
    let mut shares = Shares::default();
    shares.add(
        &batch(|builder| {
            let futex = frame(builder, "/lib/libc.so.6", &["futex"]);
            let cond = frame(builder, "/lib/libc.so.6", &["pthread_cond_wait"]);
            let gil = frame(builder, "/lib/libpython3.11.so.1.0", &["take_gil"]);
            let eval = frame(builder, "/lib/libpython3.11.so.1.0", &["eval"]);
            let pool = frame(builder, "/lib/libpool.so", &["pool_wait"]);
            let start = frame(builder, "/lib/libc.so.6", &["start_thread"]);
            sample(builder, &[futex, cond, gil, eval, start], 50);
            sample(builder, &[pool, start], 20);
            sample(builder, &[futex, cond, start], 10);
            let compiled = frame(builder, "", &[]);
            let machine = frame(builder, "/lib/libjvm.so", &["park"]);
            sample(builder, &[futex, compiled, machine], 5);
        }),
        true,
    );
    let name = |number: u32| &*shares.functions.get(number).name;
    let hotspots: Vec<_> = shares.waiting.hotspots().iter().map(|p| (name(p.leaf), p.within.map(name))).collect();
    let expected = [("futex", Some("take_gil")), ("pool_wait", None), ("futex", None), ("futex", Some("park"))];
    assert_eq!(hotspots, expected);
}

/// Guarantees: waiting for children is recognised under each name that glibc has for it, but not a program's own
/// `wait`.
#[test]
fn waits_for_children() {
    let function =
        |name: &str, own| super::Function { name: name.into(), module: "m".into(), source: "".into(), line: 0, own };
    for name in ["wait4", "__wait4", "__GI___wait4", "waitpid", "__waitpid", "__libc_wait4", "__GI___waitid"] {
        assert!(function(name, false).waits_for_a_child(), "{name}");
    }
    for (name, own) in [("wait", true), ("futex_wait", false), ("await", false), ("[unknown]", false)] {
        assert!(!function(name, own).waits_for_a_child(), "{name}");
    }
}

/// Guarantees: counts are multiplied by their period, and values that are not time are left out.
#[test]
fn units() {
    let mut shares = Shares::default();
    let mut builder = Builder::new();
    builder.on_cpu(100);
    let f = builder.frame("f", "f.c", 1);
    let stack = builder.stack(&[f]);
    builder.sample(stack, None, None, &[1, 2, 3], &[]);
    let sample_type = builder.value_type("alloc_space", "bytes");
    builder.profile(Profile { sample_type, ..Profile::default() });
    builder.sample(stack, None, None, &[], &[4096]);
    shares.add(&builder.finish().unwrap(), false);
    assert_eq!(running(&shares), [("f", 30, 30)]);
}
