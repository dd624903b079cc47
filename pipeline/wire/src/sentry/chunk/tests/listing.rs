//! What Sentry lists: functions with two samples in a chunk (observed with `vroomrs` 0.1.24).

use super::support::{Batch, MS, START, attributed};
use crate::sentry::chunk::{InApp, Settings};

/// Guarantees: a function that owns the time of one sample of a chunk gets two, which share it; one that owns two
/// samples stays as it is, on whatever threads they are. Billing stays, and what was added is counted.
#[test]
fn seen_once() {
    let batch = Batch::new().on_cpu(20).at(7, &["once", "main"], [0]).at(7, &["often", "main"], [50, 100]);
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

/// Guarantees: what counts is the function that owns the time, the innermost of own code: below a library's frames it
/// may stand in several stacks, each seen once; above its own callee it owns nothing. The root frame is never listed.
#[test]
fn innermost_of_own_code() {
    let settings =
        || Settings { in_app: InApp { exclude: vec!["lib_".to_owned()], ..InApp::default() }, ..Settings::default() };
    let library = Batch::new().on_cpu(20).at(7, &["lib_a", "f", "main"], [0]).at(7, &["lib_b", "f", "main"], [50]);
    assert_eq!(library.convert_with(settings()).text(), "7: lib_a@0 lib_b@50 -@100");
    let callee = Batch::new().on_cpu(20).at(7, &["g", "f", "main"], [0]).at(7, &["f", "main"], [50]);
    assert_eq!(callee.convert_with(settings()).text(), "7: g@0 g@25 f@50 f@75 -@100");
    let root = Batch::new().on_cpu(20).at(7, &["main"], [0]).at(7, &["lib_a", "main"], [50]);
    assert_eq!(root.convert_with(settings()).text(), "7: main@0 lib_a@50 -@100");
}

/// Guarantees: of a profile of values alone every function is listed, though each stands there once.
#[test]
fn values_are_listed() {
    let batch = Batch::new().profile("cpu", "milliseconds", 1_000).value(None, &["a", "main"], 400);
    let converted = batch.value(None, &["b", "main"], 300).value(None, &["c", "main"], 100).convert();
    assert_eq!(converted.text(), "0: a@0 a@200 b@400 b@550 c@700 c@750 -@800");
    assert_eq!((converted.report.observations, converted.report.synthesized), (3, 4));
}

/// Guarantees: what is cut into chunks is listed in each of them.
#[test]
fn each_chunk() {
    let batch = Batch::new().on_cpu(20).at(7, &["f", "main"], [0, 10_000]).at(7, &["g", "main"], [50, 10_050]);
    let text = batch.convert().text();
    assert_eq!(text, "7: f@0 f@25 g@50 g@75 -@100\n/\n7: f@10000 f@10025 g@10050 g@10075 -@10100");
}

/// Guarantees: a sample that owns no time is not halved, and neither is one of a nanosecond.
#[test]
fn nothing_to_halve() {
    let times = [START, START, START + 1, START + 50 * MS];
    let mut batch = Batch::new().on_cpu(20);
    for (at, stack) in times.iter().zip([&["a", "main"], &["b", "main"], &["c", "main"], &["c", "main"]]) {
        batch = batch.nanos(Some(7), stack, &[*at], &[]);
    }
    let converted = batch.convert();
    assert_eq!((converted.report.samples, converted.report.synthesized), (5, 1));
}
