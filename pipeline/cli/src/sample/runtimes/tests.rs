use profbridge_model::{Builder, Function, Line, Mapping, Profile};

use super::*;

/// A frame: its file (empty for code that was made at run time), name and type.
type Frame<'a> = (&'a str, &'a str, &'a str);

/// A stack, leaf first, with its trust and its milliseconds.
type Stack<'a> = (&'a [Frame<'a>], &'a str, i64);

/// Such stacks.
fn batch(stacks: &[Stack<'_>]) -> Profiles {
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
        let attributes = (!trust.is_empty()).then(|| builder.attributes(&[(TRUST_ATTRIBUTE, (*trust).into())]));
        builder.sample(stack, attributes.flatten(), None, &[1], &[milliseconds * 1_000_000]);
    }
    builder.finish().unwrap()
}

fn hints(runtime: Runtime, stacks: &[Stack<'_>]) -> Vec<String> {
    let mut runtimes = Runtimes::default();
    runtimes.add("app (pid 7)", runtime, &batch(stacks), false);
    runtimes.hints(true)
}

const JAVA: Frame<'_> = ("", "", "jvm");
const NAMED_JAVA: Frame<'_> = ("", "void shop.Search.rank()", "jvm");
const VM: Frame<'_> = ("/usr/lib/jvm/lib/server/libjvm.so", "JavaMain", "native");

/// Guarantees: a Java program whose stacks are guessed and without names is told what would name them, with the share
/// that it is of running time; from a tenth on, and not below.
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

/// Guarantees: the result says for which parts of a Node program's running time all functions are told, one stands for
/// inlined ones as well, or one is not told, which together are all of it; waiting time is not part of that.
#[test]
fn told() {
    let (outer, several) = (("", "main", "v8js"), ("", "hot [with inlined functions]", "v8js"));
    let (unknown, nameless) = (("", "[unknown function]", "v8js"), ("", "", "v8js"));
    let mut runtimes = Runtimes::default();
    assert_eq!(runtimes.told(), None);
    let stacks: [Stack<'_>; 4] = [
        (&[outer], "", 600),
        (&[several, outer], "", 250),
        (&[several, unknown, outer], "", 100),
        (&[nameless, outer], "", 50),
    ];
    runtimes.add("node (pid 7)", Runtime::Node, &batch(&stacks), false);
    runtimes.add("node (pid 7)", Runtime::Node, &batch(&[(&[unknown], "", 9000)]), true);
    let told = runtimes.told().unwrap();
    assert_eq!(
        told,
        "running time of Node: 60.0 % with every function told, 25.0 % in functions that stand for inlined ones as well, \
         15.0 % with a function that is not told"
    );
    let mut others = Runtimes::default();
    others.add("ruby (pid 7)", Runtime::Ruby, &batch(&stacks), false);
    assert_eq!(others.told(), None);
}

/// Guarantees: idle threads of a runtime do not hide that what runs has no names, and time that is not worth a word
/// brings none.
#[test]
fn running_by_itself() {
    let mut runtimes = Runtimes::default();
    runtimes.add("java (pid 7)", Runtime::HotSpot, &batch(&[(&[JAVA, VM], "", 500)]), false);
    runtimes.add("java (pid 7)", Runtime::HotSpot, &batch(&[(&[VM], "", 90_000)]), true);
    runtimes.add("java (pid 8)", Runtime::HotSpot, &batch(&[(&[JAVA, VM], "", 600)]), false);
    let hints = runtimes.hints(true);
    assert!(hints[0].starts_with("java (pid 7) and one more process run Java"), "{hints:?}");
    assert!(hints[0].contains("100 % of running time"), "{hints:?}");
    assert!(super::tests::hints(Runtime::HotSpot, &[(&[JAVA], "guessed", 99)]).is_empty());
}

/// Guarantees: an interpreter's own functions, named as they are, say nothing of the program: only functions of the
/// program in the same stack do, wherever their names come from.
#[test]
fn interpreters() {
    let cases: [(Runtime, &str, &str, &str, &str); 5] = [
        (Runtime::Ruby, "/usr/lib/libruby-3.3.so.3.3", "vm_exec_core", "ruby", "Ruby 3.0 to 3.4"),
        (Runtime::Php, "/usr/bin/php8.4", "execute_ex", "php", "--stops always"),
        (Runtime::Python(Some(15)), "/usr/bin/python3.15", "_PyEval_EvalFrameDefault", "cpython", "PYTHONPERFSUPPORT"),
        (Runtime::Python(Some(7)), "/usr/bin/python3.7", "_PyEval_EvalFrameDefault", "cpython", "3.8 to 3.14"),
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

/// Guarantees: the time in which an interpreter waits and runs nothing, as at its start, is no reason for a hint where
/// its functions are read, nor is half a second of any; nobody is sent to notes that were not said.
#[test]
fn starting_interpreters() {
    let interpreter = ("/usr/bin/php8.2", "", "native");
    let read = ("", "Shop::rank", "php");
    let said = |running: &[Stack<'_>], waiting: &[Stack<'_>], noted: bool| {
        let mut runtimes = Runtimes::default();
        runtimes.add("php (pid 7)", Runtime::Php, &batch(waiting), true);
        runtimes.add("php (pid 7)", Runtime::Php, &batch(running), false);
        runtimes.hints(noted)
    };
    let named: Stack<'_> = (&[read, interpreter], "", 2000);
    let alone = [interpreter];
    let silent = |milliseconds| -> Stack<'_> { (&alone, "", milliseconds) };
    assert_eq!(said(&[named], &[silent(900)], false), [""; 0]);
    assert_eq!(said(&[named, silent(499)], &[], false), [""; 0]);
    assert_eq!(said(&[silent(499)], &[], true), [""; 0]);
    let hint = said(&[], &[silent(900)], false).remove(0);
    assert!(hint.contains("100 % of waiting time") && !hint.contains("notes"), "{hint}");
    let hint = said(&[silent(900)], &[], true).remove(0);
    assert!(hint.contains("100 % of running time") && hint.contains("could not be here: notes say why"), "{hint}");
}

/// Guarantees: functions that PHP's JIT has written into a perf map have names, other code of a JIT has none, and where
/// callers are guessed, its own advice is given.
#[test]
fn compiled_php() {
    let evaluation = ("/usr/bin/php8.2", "zend_execute", "native");
    for name in ["TRACE-1$Korb::summe$2", "JIT$Korb::summe"] {
        assert!(hints(Runtime::Php, &[(&[("", name, "native"), evaluation], "", 500)]).is_empty(), "{name}");
    }
    for name in ["", "zend_runtime_jit"] {
        assert_eq!(hints(Runtime::Php, &[(&[("", name, "native"), evaluation], "", 500)]).len(), 1, "{name}");
    }
    let guessed = hints(Runtime::Php, &[(&[("", "f", "php"), evaluation], "guessed", 500)]);
    assert!(guessed[0].ends_with("-d opcache.jit=0"), "{guessed:?}");
}

/// Guarantees: programs of machine code are told of symbols where their own functions have none, and not where those of
/// a library have none, nor for the kernel's.
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
    assert_eq!(hints(Runtime::Native, &[(&[generated, ("/srv/app", "main", "native")], "", 500)]).len(), 1);
}

/// Guarantees: each other runtime that compiles has its own advice.
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
