use profbridge_model::builder::Any;
use profbridge_model::{Builder, ItemView, Profiles};
use profbridge_wire::sentry::envelope;

use super::*;

fn batch(functions: &[(&str, usize)]) -> Profiles {
    let mut builder = Builder::new();
    builder.resource(&[("service.name", Any::Str("check\nout"))]);
    builder.scope("test", "1");
    builder.on_cpu(20);
    for (function, observations) in functions {
        let frame = builder.frame(function, "main.rs", 1);
        let root = builder.frame("main", "main.rs", 1);
        let stack = builder.stack(&[frame, root]);
        let times: Vec<u64> = (0..*observations as u64).collect();
        builder.sample(stack, None, None, &times, &[]);
    }
    builder.finish().unwrap()
}

/// Guarantees: each verbosity includes the lower ones and adds more.
#[test]
fn verbosities() {
    let telemetry = Telemetry::from(batch(&[("parse", 3), ("handle", 1), ("\u{1b}[31mred\n", 1)]));
    let basic = summarize(&telemetry, Verbosity::Basic);
    assert_eq!(basic, "profiles: 1 resource, 1 profile, 3 samples, 5 observations");
    let normal = summarize(&telemetry, Verbosity::Normal);
    assert_eq!(
        normal,
        "profiles: 1 resource, 1 profile, 3 samples, 5 observations; check out: samples/count, 5 observations, \
         one per 50000000 cpu/nanoseconds"
    );
    let detailed = summarize(&telemetry, Verbosity::Detailed);
    assert_eq!(detailed, format!("{normal}; most observed: parse 3 (60 %),  [31mred  1 (20 %), handle 1 (20 %)"));
}

/// Guarantees: a summary is limited to a few kilobytes, however many functions, profiles and items there are and
/// however long their names are.
#[test]
fn bounded() {
    let long = "x".repeat(1 << 14);
    let names: Vec<String> = (0..100).map(|n| format!("{long}{n}")).collect();
    let functions: Vec<_> = names.iter().map(|name| (name.as_str(), 1)).collect();
    let text = summarize(&batch(&functions).into(), Verbosity::Detailed);
    assert!(text.len() < 4096, "{}", text.len());
    assert!(text.ends_with("and 90 more functions"), "{text}");

    let mut builder = Builder::new();
    builder.resource(&[("service.name", Any::Str(&long))]);
    builder.scope("test", "1");
    for _ in 0..1000 {
        builder.on_cpu(20);
    }
    let text = summarize(&builder.finish().unwrap().into(), Verbosity::Normal);
    assert!(text.len() < 8192, "{}", text.len());
    assert!(text.ends_with("and 980 more profiles"), "{text}");
}

/// Guarantees: an envelope is described by its items and by the profiles parsed from it.
#[test]
fn envelopes() {
    let envelope = Envelope {
        items: vec![
            envelope::item("profile_chunk", None, &b"{}"[..]),
            envelope::item("trans\naction", None, &b"?"[..]),
        ],
        views: vec![ItemView::profiles(0, batch(&[("parse", 2)]))],
        ..Envelope::default()
    };
    let text = summarize(&envelope.clone().into(), Verbosity::Basic);
    assert_eq!(text, "envelope: 2 items; profiles: 1 resource, 1 profile, 1 sample, 2 observations");
    let text = summarize(&envelope.into(), Verbosity::Normal);
    assert!(text.starts_with("envelope: 2 items (profile_chunk of 2 bytes, trans action of 1 byte); "), "{text}");
}

/// Guarantees: stacks without frames and frames without functions have a placeholder name.
#[test]
fn unnamed() {
    let mut builder = Builder::new();
    builder.resource(&[]);
    builder.scope("test", "1");
    builder.on_cpu(20);
    let frame = builder.frame("", "", 0);
    let stack = builder.stack(&[frame]);
    builder.sample(stack, None, None, &[1, 2], &[]);
    builder.sample(None, None, None, &[], &[4]);
    let text = summarize(&builder.finish().unwrap().into(), Verbosity::Detailed);
    assert!(text.ends_with("most observed: [unknown] 2 (67 %), [no frames] 1 (33 %)"), "{text}");
    assert!(text.contains("; unknown service: "), "{text}");
}
