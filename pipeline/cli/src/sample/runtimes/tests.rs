use profbridge_model::{Builder, Function, Line, Mapping, Profile};

use super::*;

/// A frame: its file (empty for code generated at run time), name and type.
type TypedFrame<'a> = (&'a str, &'a str, &'a str);

/// A stack, leaf first, with its trust and its milliseconds.
type StackWithTrust<'a> = (&'a [TypedFrame<'a>], &'a str, i64);

/// Adds these stacks of running or waiting threads.
fn add(runtimes: &mut Runtimes, label: &str, runtime: Runtime, stacks: &[StackWithTrust<'_>], waiting: bool) {
    let batch = batch(stacks, waiting);
    runtimes.add(label, runtime, &batch, &batch.resources()[0]);
}

fn batch(stacks: &[StackWithTrust<'_>], waiting: bool) -> Profiles {
    let mut builder = Builder::new();
    let sample_type = builder.value_type("wall", "nanoseconds");
    builder.profile(Profile { sample_type, ..Profile::default() });
    for (frames, trust, milliseconds) in stacks {
        let mut locations = Vec::new();
        for (number, (file, name, kind)) in frames.iter().enumerate() {
            let filename = builder.string(file);
            let mapping = builder.mapping(Mapping { filename, memory_limit: 1, ..Mapping::default() });
            let mapping = if file.is_empty() { None } else { mapping };
            let attributes = builder.attributes(&[("profile.frame.type", (*kind).into())]);
            let name = builder.string(name);
            let function = builder.function(Function { name, ..Function::default() });
            let line = Line { function, line: 1, column: 0 };
            let lines: &[Line] = if name.is_some() { &[line] } else { &[] };
            let address = 4096 + number as u64;
            let location = Location { mapping, address, attributes, ..Location::default() };
            locations.push(builder.location(location, lines));
        }
        let stack = builder.stack(&locations);
        let mut attributes = vec![("profbridge.thread.state", if waiting { "waiting" } else { "running" }.into())];
        attributes.extend((!trust.is_empty()).then(|| (TRUST_ATTRIBUTE, (*trust).into())));
        let attributes = builder.attributes(&attributes);
        builder.sample(stack, attributes, None, &[1], &[milliseconds * 1_000_000]);
    }
    builder.finish().unwrap()
}

fn hints(runtime: Runtime, stacks: &[StackWithTrust<'_>]) -> Vec<String> {
    let mut runtimes = Runtimes::default();
    add(&mut runtimes, "app (pid 7)", runtime, stacks, false);
    runtimes.hints(NOTES.into_iter())
}

const NOTES: [&str; 3] = ["process 7: Python 3.7 is not known", "Ruby 2.7 is not known", "PHP 7.2 is not known"];

fn no_notes() -> std::iter::Empty<&'static str> {
    std::iter::empty()
}

const JAVA: TypedFrame<'_> = ("", "", "jvm");
const NAMED_JAVA: TypedFrame<'_> = ("", "void shop.Search.rank()", "jvm");
const VM: TypedFrame<'_> = ("/usr/lib/jvm/lib/server/libjvm.so", "JavaMain", "native");

/// Guarantees: a Java program with guessed and nameless stacks gets advice on names, with the affected share of running
/// time; from a tenth on, and not below.
#[test]
fn java() {
    let all = hints(Runtime::HotSpot, &[(&[JAVA, VM], "guessed", 900), (&[NAMED_JAVA, VM], "", 100)]);
    assert_eq!(all.len(), 1);
    for part in [
        "app (pid 7) runs Java (HotSpot)",
        "90 % of running time is in functions without names",
        "Compiler.perfmap",
        "-XX:+DumpPerfMapAtExit",
        "90 % of running time has guessed callers",
        "-XX:+PreserveFramePointer",
    ] {
        assert!(all[0].contains(part), "no `{part}`: {}", all[0]);
    }
    let guessed = hints(Runtime::HotSpot, &[(&[NAMED_JAVA, VM], "guessed", 900)]);
    assert!(!guessed[0].contains("names") && guessed[0].contains("-XX:+PreserveFramePointer"), "{}", guessed[0]);
    let tenth = |milliseconds| {
        let named = 1000 - milliseconds;
        hints(Runtime::HotSpot, &[(&[JAVA, VM], "", milliseconds), (&[NAMED_JAVA, VM], "truncated", named)]).len()
    };
    assert_eq!((tenth(101), tenth(100), tenth(0)), (1, 0, 0));
}

/// Guarantees: the report splits a Node program's running time into parts whose functions are all known, include
/// inlined ones under one name, or are unknown; the parts sum up to all of it. Waiting time is not included.
#[test]
fn node_quality() {
    let (outer, several) = (("", "main", "v8js"), ("", "hot [with inlined functions]", "v8js"));
    let (unknown, nameless) = (("", "[unknown function]", "v8js"), ("", "", "v8js"));
    let mut runtimes = Runtimes::default();
    assert_eq!(runtimes.node_quality(true), None);
    let stacks: [StackWithTrust<'_>; 4] = [
        (&[outer], "", 600),
        (&[several, outer], "", 250),
        (&[several, unknown, outer], "", 100),
        (&[nameless, outer], "", 50),
    ];
    add(&mut runtimes, "node (pid 7)", Runtime::Node, &stacks, false);
    add(&mut runtimes, "node (pid 7)", Runtime::Node, &[(&[unknown], "", 9000)], true);
    let node_quality = runtimes.node_quality(true).unwrap();
    assert_eq!(
        node_quality,
        "running time of Node: 60.0 % with every function told, 25.0 % in functions that stand for inlined ones as well, \
         15.0 % with a function that is not told"
    );
    let mut others = Runtimes::default();
    add(&mut others, "ruby (pid 7)", Runtime::Ruby, &stacks, false);
    assert_eq!(others.node_quality(true), None);
}

/// Guarantees: the share in the hint covers all unknown functions of Node, including WebAssembly, and equals that of
/// the line above it.
#[test]
fn web_assembly() {
    let (outer, unknown, nameless) = (("", "main", "v8js"), ("", "[unknown function]", "v8js"), ("", "", "native"));
    let stacks: [StackWithTrust<'_>; 3] =
        [(&[unknown, outer], "", 650), (&[nameless, outer], "", 330), (&[outer], "", 20)];
    let mut runtimes = Runtimes::default();
    add(&mut runtimes, "node (pid 7)", Runtime::Node, &stacks, false);
    let hint = runtimes.hints(no_notes()).remove(0);
    assert!(
        hint.contains("98 % of running time is in functions without names") && hint.contains("WebAssembly"),
        "{hint}"
    );
    assert!(runtimes.node_quality(true).unwrap().contains("98.0 % with a function that is not told"));
}

/// Guarantees: idle threads of a runtime do not hide nameless running code, and negligible time gives no hint.
#[test]
fn running_by_itself() {
    let mut runtimes = Runtimes::default();
    add(&mut runtimes, "java (pid 7)", Runtime::HotSpot, &[(&[JAVA, VM], "", 500)], false);
    add(&mut runtimes, "java (pid 7)", Runtime::HotSpot, &[(&[VM], "", 90_000)], true);
    add(&mut runtimes, "java (pid 8)", Runtime::HotSpot, &[(&[JAVA, VM], "", 600)], false);
    let hints = runtimes.hints(no_notes());
    assert!(hints[0].starts_with("java (pid 7) and one more process run Java"), "{hints:?}");
    assert!(hints[0].contains("100 % of running time"), "{hints:?}");
    assert!(super::tests::hints(Runtime::HotSpot, &[(&[JAVA], "guessed", 99)]).is_empty());
}

/// Guarantees: the named functions of an interpreter itself do not count as names of the program: only program
/// functions in the same stack do, wherever their names come from.
#[test]
fn interpreters() {
    let cases: [(Runtime, &str, &str, &str, &str); 6] = [
        (Runtime::Python(Some((2, 7))), "/usr/bin/python2.7", "PyEval_EvalFrameEx", "cpython", "3.8 to 3.14"),
        (Runtime::Ruby, "/usr/lib/libruby-3.3.so.3.3", "vm_exec_core", "ruby", "a note above says why"),
        (Runtime::Php, "/usr/bin/php8.4", "execute_ex", "php", "a note above says why"),
        (
            Runtime::Python(Some((3, 15))),
            "/usr/bin/python3.15",
            "_PyEval_EvalFrameDefault",
            "cpython",
            "PYTHONPERFSUPPORT",
        ),
        (Runtime::Python(Some((3, 7))), "/usr/bin/python3.7", "_PyEval_EvalFrameDefault", "cpython", "3.8 to 3.14"),
        (Runtime::Node, "/usr/bin/node", "Builtins_InterpreterEntryTrampoline", "v8js", "--perf-basic-prof"),
    ];
    for (runtime, file, evaluation, kind, flag) in cases {
        let frame = (file, evaluation, "native");
        let all = hints(runtime, &[(&[("/lib/libc.so.6", "read", "native"), frame], "", 500)]);
        assert!(all[0].contains(flag), "{all:?}");
        let named = ("", "Shop#rank", kind);
        assert!(hints(runtime, &[(&[named, frame], "", 500)]).is_empty(), "{runtime:?}");
        let outside = ("/lib/libc.so.6", "read", "native");
        assert!(hints(runtime, &[(&[outside], "", 500)]).is_empty(), "{runtime:?}: a thread of a library");
    }
}

/// Guarantees: an interpreter that waits without running a function, as at its start or in an idle pool of workers,
/// gives no hint, nor does half a second of running like this. If the reason is unknown there is no advice, and no
/// reference to a note about something else.
#[test]
fn interpreters_that_run_nothing() {
    for (runtime, file, name) in [
        (Runtime::Php, "/usr/sbin/php-fpm8.2", "PHP"),
        (Runtime::Ruby, "/usr/lib/libruby-3.1.so.3.1", "Ruby"),
        (Runtime::Python(Some((3, 11))), "/usr/bin/python3.11", "Python"),
        (Runtime::Python(None), "/opt/bin/python", "Python"),
    ] {
        let said = |running: i64, waiting: i64, notes: &[&'static str]| {
            let mut runtimes = Runtimes::default();
            let accept = [("/lib/libc.so.6", "accept4", "native"), (file, "", "native")];
            add(&mut runtimes, "app (pid 7)", runtime, &[(&accept, "", waiting)], true);
            add(&mut runtimes, "app (pid 7)", runtime, &[(&[(file, "", "native")], "", running)], false);
            runtimes.hints(notes.iter().copied())
        };
        let others: Vec<_> = NOTES.into_iter().filter(|note| !note.contains(name)).collect();
        assert_eq!(said(499, 90_000, &others), [""; 0], "{name}");
        let hint = said(900, 0, &others).remove(0);
        assert!(hint.ends_with("100 % of running time is in functions without names: it is not known why"), "{hint}");
        for (running, waiting, of) in [(900, 0, "running"), (0, 900, "waiting")] {
            let hint = said(running, waiting, &NOTES).remove(0);
            let end = format!("100 % of {of} time is in functions without names: a note above says why");
            assert!(hint.ends_with(&end), "{hint}");
        }
    }
}

/// Guarantees: a JIT is named as the reason only if generated code is on the stack, which may be in named shared
/// memory.
#[test]
fn compilers_of_interpreters() {
    for (runtime, file, evaluation, advice, of_callers) in [
        (Runtime::Ruby, "/usr/lib/libruby-3.3.so.3.3", "vm_exec_core", "--yjit", "--yjit-perf"),
        (Runtime::Php, "/usr/sbin/php-fpm8.2", "execute_ex", "opcache.jit=0", "opcache.jit=0"),
    ] {
        let frame = (file, evaluation, "native");
        for memory in ["", "/dev/zero (deleted)", "/memfd:jit (deleted)"] {
            let compiled = [(memory, "", "native"), frame];
            let all = hints(runtime, &[(&compiled, "guessed", 500)]);
            assert!(all[0].contains(advice) && all[0].contains(of_callers), "{all:?}");
        }
        let all = hints(runtime, &[(&[frame], "guessed", 500)]);
        assert!(!all[0].contains("jit") && all[0].contains("-fno-omit-frame-pointer"), "{all:?}");
    }
    let dot_net = hints(Runtime::DotNet, &[(&[("/memfd:doublemapper (deleted)", "", "native")], "", 500)]);
    assert!(dot_net[0].contains("DOTNET_PerfMapEnabled=1"), "{dot_net:?}");
}

/// Guarantees: functions that PHP's JIT wrote into a perf map have names, other JIT code has none.
#[test]
fn compiled_php() {
    let evaluation = ("/usr/bin/php8.2", "zend_execute", "native");
    for name in ["TRACE-1$Korb::summe$2", "JIT$Korb::summe"] {
        assert!(hints(Runtime::Php, &[(&[("", name, "native"), evaluation], "", 500)]).is_empty(), "{name}");
    }
    for name in ["", "zend_runtime_jit"] {
        let all = hints(Runtime::Php, &[(&[("", name, "native"), evaluation], "", 500)]);
        assert!(all[0].contains("opcache.jit=0"), "{name}: {all:?}");
    }
}

/// Guarantees: programs of machine code get a hint about symbols if their own functions have no names, but not for
/// nameless functions of libraries or the kernel.
#[test]
fn machine_code() {
    let own = ("/srv/app", "", "native");
    assert!(hints(Runtime::Native, &[(&[own], "", 500)])[0].contains("debug symbols"));
    assert!(hints(Runtime::Go, &[(&[own], "", 500)])[0].contains("-ldflags=-s"));
    let library = ("/lib/libssl.so.3", "", "native");
    let kernel = ("", "[kernel, not visible]", "kernel");
    let hidden = ("", "", "kernel");
    assert!(
        hints(Runtime::Native, &[(&[hidden, kernel, library, ("/srv/app", "main", "native")], "", 500)]).is_empty()
    );
    let generated = ("", "", "native");
    let all = hints(Runtime::Native, &[(&[generated, ("/srv/app", "main", "native")], "", 500)]);
    assert!(all[0].contains("perf map") && !all[0].contains("symbols"), "{all:?}");
}

/// Guarantees: each other compiling runtime has its own advice.
#[test]
fn compilers() {
    for (runtime, flag) in [
        (Runtime::DotNet, "DOTNET_PerfMapEnabled=1"),
        (Runtime::Beam, "+JPperf true"),
        (Runtime::OpenJ9, "-XX:+PerfTool"),
        (Runtime::Deno, "--v8-flags="),
    ] {
        let all = hints(runtime, &[(&[("", "", "native")], "", 500)]);
        assert!(all[0].contains(flag), "{all:?}");
    }
}
