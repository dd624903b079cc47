use proptest::prelude::*;

use super::*;

/// The frame type, function, file, line and column of a name.
fn read(name: &str) -> Option<(&'static str, String, String, u32, u32)> {
    let PerfName { compiler, function, file, line, column } = parse(name)?;
    Some((compiler.frame_type(), function.into_owned(), file.to_owned(), line, column))
}

fn assert_rows(frame_type: &str, rows: &[(&str, &str, &str, u32, u32)]) {
    for &(name, function, file, line, column) in rows {
        let read = read(name).unwrap_or_else(|| panic!("{name} is not read"));
        assert_eq!((read.0, &*read.1, &*read.2, read.3, read.4), (frame_type, function, file, line, column), "{name}");
    }
}

/// Guarantees: names of Node 20's perf map are parsed into function, file, line and column, and all tiers of a function
/// are equal.
#[test]
fn v8() {
    let rows = [
        ("JS:*handle /srv.js:2:16", "handle", "/srv.js", 2, 16),
        ("JS:~handle /srv.js:2:16", "handle", "/srv.js", 2, 16),
        ("JS:^handle /srv.js:2:16", "handle", "/srv.js", 2, 16),
        ("JS:+handle /srv.js:2:16", "handle", "/srv.js", 2, 16),
        ("JS:*'handle /srv.js:2:16", "handle", "/srv.js", 2, 16),
        ("JS:handle /srv.js:2:16", "handle", "/srv.js", 2, 16),
        ("LazyCompile:*handle /srv.js:2:16", "handle", "/srv.js", 2, 16),
        ("Function:~handle /srv.js:2:16", "handle", "/srv.js", 2, 16),
        ("LazyCompile:~get size /srv/a b/c d.js:2:16", "get size", "/srv/a b/c d.js", 2, 16),
        ("JS:*get [Symbol.toStringTag] node:internal/url:9:1", "get [Symbol.toStringTag]", "node:internal/url", 9, 1),
        ("JS:*total file:///srv/m%20o.mjs:1:19", "total", "file:///srv/m%20o.mjs", 1, 19),
        ("JS:* /srv.js:1:1", "<anonymous>", "/srv.js", 1, 1),
        ("Script:~ file:///srv/mod.mjs:1:1", "<anonymous>", "file:///srv/mod.mjs", 1, 1),
        ("Eval:~ node:internal/main/run_main_module:1:1", "<anonymous>", "node:internal/main/run_main_module", 1, 1),
        ("JS:~emit node:events:465:44", "emit", "node:events", 465, 44),
        ("LazyCompile:~forEach native array.js:12:3", "forEach", "native array.js", 12, 3),
        ("LazyCompile:~emit events.js:5", "emit", "events.js", 5, 0),
        ("JS:*handle", "handle", "", 0, 0),
        ("JS:*", "<anonymous>", "", 0, 0),
        ("Builtin:ArrayPrototypePush", "ArrayPrototypePush", "", 0, 0),
        ("BytecodeHandler:LdaZero", "BytecodeHandler:LdaZero", "", 0, 0),
        ("RegExp:a(b+)c", "RegExp:a(b+)c", "", 0, 0),
    ];
    assert_rows("v8js", &rows);
}

/// Guarantees: names of CPython 3.12 and 3.13 are parsed into qualified name and file.
#[test]
fn cpython() {
    let rows = [
        ("py::digest:/x/h.py", "digest", "/x/h.py", 0, 0),
        ("py::Cart.total.<locals>.<genexpr>:/x/h.py", "Cart.total.<locals>.<genexpr>", "/x/h.py", 0, 0),
        ("py::<module>:/x/a:b.py", "<module>", "/x/a:b.py", 0, 0),
        (
            "py::FileLoader.__init__:<frozen importlib._bootstrap>",
            "FileLoader.__init__",
            "<frozen importlib._bootstrap>",
            0,
            0,
        ),
    ];
    assert_rows("cpython", &rows);
}

/// Guarantees: names of `jcmd Compiler.perfmap` (OpenJDK 17), of perf-map-agent and of perf's own agent are parsed into
/// class and method.
#[test]
fn hot_spot() {
    let lambda = "T$$Lambda$1/0x00007f6308000c18.apply";
    let declared_lambda = format!("java.lang.Object {lambda}(int)");
    let rows = [
        ("void com.x.Y.m(java.lang.String[])", "com.x.Y.m", "", 0, 0),
        ("java.lang.Object[] com.x.Y.m()", "com.x.Y.m", "", 0, 0),
        ("long T$In.f(int, long)", "T$In.f", "", 0, 0),
        ("void T.<init>()", "T.<init>", "", 0, 0),
        (&declared_lambda, lambda, "", 0, 0),
        ("Lcom/x/Y;::m", "com.x.Y.m", "", 0, 0),
        ("Lcom/x/Y;::<init>", "com.x.Y.<init>", "", 0, 0),
        ("Lcom/x/Y;.m(I)V", "com.x.Y.m", "", 0, 0),
        ("Lcom/x/Y;m(ILjava/lang/String;)V", "com.x.Y.m", "", 0, 0),
        ("LY;::m(Y.java:12)", "Y.m", "Y.java", 12, 0),
        ("Lcom/x/Y;::m->Lcom/x/Z;::n", "com.x.Z.n", "", 0, 0),
        ("Lcom/x/Y$$Lambda$14/0x00000001;::apply", "com.x.Y$$Lambda$14/0x00000001.apply", "", 0, 0),
        ("com.x.Y.m", "com.x.Y.m", "", 0, 0),
        ("com.x.Y::m", "com.x.Y.m", "", 0, 0),
        ("com.x.Y.m(Y.java:7)", "com.x.Y.m", "Y.java", 7, 0),
        ("Interpreter", "Interpreter", "", 0, 0),
        ("StubRoutines (1)", "StubRoutines (1)", "", 0, 0),
        ("vtable stub", "vtable stub", "", 0, 0),
        ("call_stub", "call_stub", "", 0, 0),
        ("new_instance Runtime1 stub", "new_instance Runtime1 stub", "", 0, 0),
    ];
    assert_rows("jvm", &rows);
}

/// Guarantees: other names are not parsed: those of C and C++, Rust, Go, and of other runtimes.
#[test]
fn others() {
    let names = [
        "",
        "main",
        "std::vector<int>::push_back(int&&)",
        "void shop::total(int)",
        "bool Function::call(int)",
        "Script::run()",
        "JS::Value::toString",
        "py::object::get",
        "py::digest",
        "py::digest:",
        "py:::/x",
        "core::fmt::write",
        "main.work",
        "github.com/acme/shop/cart.(*Cart).Add",
        "runtime.mallocgc",
        "foo.isra.0",
        "foo(int) [clone .part.0]",
        "Lambda;",
        "L;::m",
        "Lcom/x/Y;",
        "Cart.total",
        "app.views.total",
        "$lists:map/2",
        "shop.Cart.",
        ".shop.Cart.m",
        "/srv.js:1:2",
        "a:b:c",
    ];
    for name in names {
        assert_eq!(read(name), None, "{name}");
    }
}

/// Guarantees: code in a file is never taken for code compiled at run time.
#[test]
fn mappings() {
    for name in
        ["", "/tmp/perf-12.map", "perf-12.map", "//anon", "[JIT] tid 12", "[anon:v8]", "[heap]", "/memfd:jit (deleted)"]
    {
        assert!(is_compiled_at_run_time(name), "{name}");
    }
    for name in ["/usr/bin/node", "libjvm.so", "[vdso]", "[kernel.kallsyms]", "/tmp/perf-12.map.so", "/opt/perf/perf"] {
        assert!(!is_compiled_at_run_time(name), "{name}");
    }
}

/// Identifiers that are valid in all three languages.
fn identifier() -> impl Strategy<Value = String> {
    "[a-zA-Z_$é][a-zA-Z0-9_$é]{0,8}"
}

proptest! {
    /// Guarantees: no text causes a panic, and the result only has characters of the text, except dots and the name of
    /// nameless functions.
    #[test]
    fn any_text(name in "[\\PC\n]{0,60}") {
        if let Some(parsed) = parse(&name) {
            prop_assert!(!parsed.function.is_empty());
            prop_assert!(name.contains(parsed.file));
            let said = parsed.function.chars().filter(|&c| c != '.').all(|c| name.contains(c));
            prop_assert!(said || parsed.function == ANONYMOUS);
        }
    }

    /// Guarantees: the same for texts that look like names.
    #[test]
    fn likely_text(
        tag in "(JS|LazyCompile|Function|Eval|Script|Builtin|RegExp|py|py:|L|Lcom/x|void |com\\.X)",
        rest in "[:*~^+'; /.()<>a-zL0-9-]{0,40}"
    ) {
        for name in [format!("{tag}{rest}"), format!("{tag}:{rest}"), format!("{tag};{rest}")] {
            if let Some(parsed) = parse(&name) {
                prop_assert!(!parsed.function.is_empty());
                prop_assert!(name.contains(parsed.file));
            }
        }
    }

    /// Guarantees: any function, file and position in V8's format is parsed, in every tier.
    #[test]
    fn v8_round_trip(
        function in identifier(),
        accessor in "(get |set |)",
        tag in "(JS|LazyCompile|Function|Eval|Script)",
        tier in "([~^+*]|[+*]'|)",
        file in "(/|node:|file:///)[a-z][a-z :/.%0-9-]{0,20}[a-z]",
        (line, column) in (1u32.., 1u32..)
    ) {
        let function = format!("{accessor}{function}");
        let name = format!("{tag}:{tier}{function} {file}:{line}:{column}");
        prop_assert_eq!(read(&name), Some(("v8js", function, file, line, column)));
    }

    /// Guarantees: any name in CPython's format is parsed.
    #[test]
    fn cpython_round_trip(parts in prop::collection::vec(identifier(), 1..4), file in "(/|<)[a-z :/.>-]{1,20}") {
        let function = parts.join(".<locals>.");
        prop_assert_eq!(read(&format!("py::{function}:{file}")), Some(("cpython", function, file, 0, 0)));
    }

    /// Guarantees: a method gives the same function in all spellings.
    #[test]
    fn spellings_of_java(
        package in prop::collection::vec("[a-z][a-z0-9]{0,5}", 1..4),
        class in "[A-Z][a-zA-Z0-9$]{0,8}",
        method in identifier()
    ) {
        let (dots, slashes) = (package.join("."), package.join("/"));
        let function = format!("{dots}.{class}.{method}");
        for name in [
            function.clone(),
            format!("{dots}.{class}::{method}"),
            format!("L{slashes}/{class};::{method}"),
            format!("L{slashes}/{class};.{method}(I)V"),
            format!("L{slashes}/{class};{method}([Ljava/lang/String;)I"),
            format!("void {function}(int, {dots}.{class}[])"),
            format!("{dots}.{class}[][] {function}()"),
        ] {
            prop_assert_eq!(read(&name), Some(("jvm", function.clone(), String::new(), 0, 0)), "{}", name);
        }
    }
}
