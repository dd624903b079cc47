//! Tests of the functions that Sentry lists: those with two samples in a chunk (observed with `vroomrs` 0.1.24).

use super::support::{BatchDraft, MS, START, TestLocation, attributed};
use crate::sentry::chunk::{InApp, Settings};

/// Guarantees: a function to which only one sample in a chunk is attributed gets two samples that share its time; a
/// function with two samples, on any threads, is unchanged. The billed time stays the same, and added samples are
/// counted.
/// rule: differences#listing
#[test]
fn seen_once() {
    let batch = BatchDraft::new().on_cpu(20).at(7, &["once", "main"], [0]).at(7, &["often", "main"], [50, 100]);
    let converted =
        batch.at(8, &["apart", "main"], [0]).at(8, &["x", "main"], [50, 100]).at(9, &["apart", "main"], [0, 50]);
    let converted = converted.convert();
    assert_eq!(
        converted.text(),
        "7: once@0 once@25 often@50 often@100 -@150\n8: apart@0 x@50 x@100 -@150\n9: apart@0 apart@50 -@100"
    );
    assert_eq!((converted.report.samples, converted.report.synthesized), (12, 4));
    assert_eq!(converted.report.billed_nanos, 150 * MS);
    assert_eq!(attributed(&converted.chunks)["once"], 50_000);
}

/// Guarantees: time is attributed to the innermost in-app function. It may be below library frames in several stacks,
/// each sampled once; as the caller of another in-app function it gets no time. The root frame is never listed.
/// rule: differences#listing
#[test]
fn innermost_of_own_code() {
    let settings =
        || Settings { in_app: InApp { exclude: vec!["lib_".to_owned()], ..InApp::default() }, ..Settings::default() };
    let library = BatchDraft::new().on_cpu(20).at(7, &["lib_a", "f", "main"], [0]).at(7, &["lib_b", "f", "main"], [50]);
    assert_eq!(library.convert_with(settings()).text(), "7: lib_a@0 lib_b@50 -@100");
    let callee = BatchDraft::new().on_cpu(20).at(7, &["g", "f", "main"], [0]).at(7, &["f", "main"], [50]);
    assert_eq!(callee.convert_with(settings()).text(), "7: g@0 g@25 f@50 f@75 -@100");
    let root = BatchDraft::new().on_cpu(20).at(7, &["main"], [0]).at(7, &["lib_a", "main"], [50]);
    assert_eq!(root.convert_with(settings()).text(), "7: main@0 lib_a@50 -@100");
}

/// Guarantees: in a profile with only values, every function is listed although each occurs once.
/// rule: differences#listing
#[test]
fn values_are_listed() {
    let batch = BatchDraft::new().profile("cpu", "milliseconds", 1_000).value(None, &["a", "main"], 400);
    let converted = batch.value(None, &["b", "main"], 300).value(None, &["c", "main"], 100).convert();
    assert_eq!(converted.text(), "0: a@0 a@200 b@400 b@550 c@700 c@750 -@800");
    assert_eq!((converted.report.observations, converted.report.synthesized), (3, 4));
}

/// Guarantees: after a split into several chunks, functions are listed in each chunk.
#[test]
fn each_chunk() {
    let batch = BatchDraft::new().on_cpu(20).at(7, &["f", "main"], [0, 10_000]).at(7, &["g", "main"], [50, 10_050]);
    let text = batch.convert().text();
    assert_eq!(text, "7: f@0 f@25 g@50 g@75 -@100\n/\n7: f@10000 f@10025 g@10050 g@10075 -@10100");
}

/// Guarantees: a sample without time is not split, and neither is one of a nanosecond.
#[test]
fn nothing_to_halve() {
    let times = [START, START, START + 1, START + 50 * MS];
    let mut batch = BatchDraft::new().on_cpu(20);
    for (at, stack) in times.iter().zip([&["a", "main"], &["b", "main"], &["c", "main"], &["c", "main"]]) {
        batch = batch.nanos(Some(7), stack, &[*at], &[]);
    }
    let converted = batch.convert();
    assert_eq!((converted.report.samples, converted.report.synthesized), (5, 1));
}

/// Guarantees: Sentry lists own code of all runtimes in a process: it accepts our flag if a frame has no other
/// platform, and for Java if the module contains a dot. A Node function without a name gets no time.
#[test]
fn several_runtimes() {
    let mut batch = BatchDraft::new().on_cpu(20);
    let cart = TestLocation::new("jvm", &[("Cart.add", "Cart.java", 1, 0)]);
    let java = TestLocation::new("jvm", &[("java.lang.Thread.run", "Thread.java", 1, 0)]);
    let node = TestLocation::new("v8js", &[("<anonymous>", "/srv/a.js", 1, 0)]);
    let python = TestLocation::new("cpython", &[("work", "/srv/a.py", 1, 0)]);
    for (stack, at) in [([node, python], 0), ([java, python], 50), ([cart, python], 100), ([python, python], 150)] {
        let stack = batch.stack(&stack);
        let thread = batch.builder.attributes(&[("thread.id", 7.into())]);
        batch.builder.sample(stack, thread, None, &[START + at * MS, START + (at + 1000) * MS], &[]);
    }
    let converted = batch.convert_with(Settings { platform: Some("python".to_owned()), ..Settings::default() });
    let frames: Vec<(&str, Option<&str>, Option<&str>)> = converted
        .frames()
        .iter()
        .map(|frame| (frame["function"].as_str().unwrap(), frame["module"].as_str(), frame["platform"].as_str()))
        .collect();
    let expected = [
        ("", Some("srv:a"), None),
        ("work", Some("/srv/a.py"), None),
        ("run", Some("java.lang.Thread"), Some("java")),
        ("add", Some("(default).Cart"), None),
    ];
    assert_eq!(frames, expected);
}

/// Guarantees: the first thread of a Python or Node process has the name that Sentry's SDKs use; other threads and
/// processes keep their producer's names.
#[test]
fn first_threads() {
    for (kind, file, expected) in
        [("cpython", "/srv/a.py", "MainThread"), ("v8js", "/srv/a.js", "main"), ("ruby", "/srv/a.rb", "prog")]
    {
        let mut batch = BatchDraft::new();
        batch.builder.resource(&[("process.pid", 7.into())]);
        batch.builder.scope("test", "1");
        let lines = [("f", file, 1, 0)];
        let location = TestLocation::new(kind, &lines);
        let named = |thread: i64| [("thread.id", thread.into()), ("thread.name", "prog".into())];
        let converted = batch.on_cpu(20).sampled(&[location], &named(7)).sampled(&[location], &named(8)).convert();
        let threads = &converted.chunk()["profile"]["thread_metadata"];
        assert_eq!((&threads["7"]["name"], &threads["8"]["name"]), (&expected.into(), &"prog".into()), "{kind}");
    }
}
