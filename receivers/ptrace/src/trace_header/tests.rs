use proptest::prelude::*;

use super::*;

const TRACE: &str = "771a43a4192642f0b136d5159a501700";
const SPAN: &str = "a1b2c3d4e5f60718";

/// Guarantees: all three forms of `sentry-trace` are parsed; without a decision it is deferred.
/// rule: tracing-sdk#sentry-trace
#[test]
fn reads_sentry_trace() {
    let key = SpanKey { trace_id: 0x771a43a4192642f0b136d5159a501700, span_id: 0xa1b2c3d4e5f60718 };
    let read = |tail: &str| sentry_trace(&format!("{TRACE}-{SPAN}{tail}"));
    assert_eq!(read("-1"), Ok((key, Decision::Sampled)));
    assert_eq!(read("-0"), Ok((key, Decision::NotSampled)));
    assert_eq!(read(""), Ok((key, Decision::Deferred)));
    assert_eq!(sentry_trace(&format!(" \t{TRACE}-{SPAN}-1 ")), Ok((key, Decision::Sampled)));
    assert_eq!(sentry_trace(&format!("{}-{SPAN}-1", TRACE.to_uppercase())), Ok((key, Decision::Sampled)));
}

/// Guarantees: `traceparent` is parsed by W3C's rules: the lowest bit of its flags is the decision, and later versions
/// may have more fields.
#[test]
fn reads_traceparent() {
    let key = SpanKey { trace_id: 0x771a43a4192642f0b136d5159a501700, span_id: 0xa1b2c3d4e5f60718 };
    assert_eq!(traceparent(&format!("00-{TRACE}-{SPAN}-01")), Ok((key, Decision::Sampled)));
    assert_eq!(traceparent(&format!("00-{TRACE}-{SPAN}-02")), Ok((key, Decision::NotSampled)));
    assert_eq!(traceparent(&format!("cc-{TRACE}-{SPAN}-03-what")), Ok((key, Decision::Sampled)));
}

/// Guarantees: an invalid header is rejected with the position and the rule that it breaks.
/// rule: tracing-sdk#sentry-trace
#[test]
fn refuses() {
    let zeroes = "0".repeat(32);
    let cases = [
        (sentry_trace(""), 0, "32 hexadecimal"),
        (sentry_trace("1"), 1, "32 hexadecimal"),
        (sentry_trace(TRACE), 32, "a dash follows the trace id"),
        (sentry_trace(&format!("{TRACE}{SPAN}-1")), 32, "a dash"),
        (sentry_trace(&format!("{TRACE}-{}", &SPAN[1..])), 48, "16 hexadecimal"),
        (sentry_trace(&format!("{TRACE}-{SPAN}-")), 50, "0, 1 or left out"),
        (sentry_trace(&format!("{TRACE}-{SPAN}-2")), 50, "0, 1 or left out"),
        (sentry_trace(&format!("{TRACE}-{SPAN}-11")), 51, "nothing follows"),
        (sentry_trace(&format!("{zeroes}-{SPAN}-1")), 0, "all zeroes"),
        (sentry_trace(&format!("{TRACE}-0000000000000000-1")), 33, "all zeroes"),
        (sentry_trace(&format!("g{}-{SPAN}-1", &TRACE[1..])), 0, "32 hexadecimal"),
        (traceparent(&format!("ff-{TRACE}-{SPAN}-01")), 0, "version ff"),
        (traceparent(&format!("00-{}-{SPAN}-01", TRACE.to_uppercase())), 6, "lower-case"),
        (traceparent(&format!("00-{TRACE}-{SPAN}")), 52, "a dash follows the span id"),
        (traceparent(&format!("00-{TRACE}-{SPAN}-01-more")), 55, "version 00"),
        (traceparent(&format!("01-{TRACE}-{SPAN}-01x")), 55, "a dash follows the flags"),
        (traceparent(&format!("00-{zeroes}-{SPAN}-01")), 3, "all zeroes"),
    ];
    for (result, at, rule) in cases {
        let malformed = result.unwrap_err();
        assert_eq!(malformed.at, at, "{malformed}");
        assert!(malformed.rule.contains(rule), "{malformed}");
    }
}

proptest! {
    /// Guarantees: no text makes the parsers panic, and an accepted header has the same meaning after it was written
    /// again.
    #[test]
    fn any_text(text in "\\PC{0,80}", hex in "[0-9a-f-]{40,60}") {
        for header in [text, hex] {
            if let Ok((key, decision)) = sentry_trace(&header) {
                let tail = match decision { Decision::Sampled => "-1", Decision::NotSampled => "-0", Decision::Deferred => "" };
                let again = format!("{:032x}-{:016x}{tail}", key.trace_id, key.span_id);
                prop_assert_eq!(sentry_trace(&again), Ok((key, decision)));
            }
            traceparent(&header).ok();
        }
    }
}
