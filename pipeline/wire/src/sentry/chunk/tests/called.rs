//! Tests of the lines of Node's frames if a producer sends both the executing line and the function's first line.

use serde_json::Value;

use super::frames::chunk;
use super::support::TestLocation;
use crate::sentry::chunk::Settings;

/// Functions with their first line, their executing line, and their frame type, leaf first.
fn lines(rows: &[(&str, i64, i64, &str)]) -> Vec<(String, u64)> {
    let file = |kind| if kind == "v8js" { "/srv/app.js" } else { "" };
    let lines: Vec<_> = rows.iter().map(|&(name, _, line, kind)| [(name, file(kind), line, 0)]).collect();
    let location = |(&(_, start_line, _, kind), lines)| TestLocation { start_line, ..TestLocation::new(kind, lines) };
    let stack: Vec<_> = rows.iter().zip(lines.iter().map(|lines| &lines[..])).map(location).collect();
    let chunk = chunk(&stack, Settings::default());
    let frames = chunk["profile"]["frames"].as_array().unwrap();
    let stacks = chunk["profile"]["stacks"].as_array().unwrap();
    let stack = stacks.iter().find(|stack| stack.as_array().unwrap().len() == rows.len()).unwrap();
    let frame = |index: &Value| {
        let frame = &frames[index.as_u64().unwrap() as usize];
        (frame["function"].as_str().unwrap().to_owned(), frame["lineno"].as_u64().unwrap_or(0))
    };
    stack.as_array().unwrap().iter().map(frame).collect()
}

/// Guarantees: a frame has the line in its caller that called it, also through built-in functions. The outermost frame,
/// and a frame called by other native code, has its function's first line. A recursive function has several frames.
#[test]
fn called_at() {
    let found = lines(&[
        ("leaf", 30, 33, "v8js"),
        ("Builtins_ArrayMap", 0, 0, "native"),
        ("map", 0, 0, "v8js"),
        ("again", 20, 22, "v8js"),
        ("again", 20, 24, "v8js"),
        ("<anonymous>", 10, 12, "v8js"),
        ("v8::internal::Execution::Call", 0, 0, "native"),
        ("main", 1, 5, "v8js"),
    ]);
    let wanted = [("leaf", 22), ("Builtins_ArrayMap", 0), ("map", 0), ("again", 24), ("again", 12), ("", 10)];
    for ((name, line), (function, lineno)) in wanted.into_iter().zip(&found) {
        assert_eq!((name, line), (function.as_str(), *lineno), "{found:?}");
    }
    assert_eq!(found.last().unwrap(), &("main".to_owned(), 1));
}
