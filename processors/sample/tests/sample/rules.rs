use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::trace::v1::Span;
use profbridge_processor_sample::INVALID_RATES;

use crate::support::{
    REMOTE, SAMPLED, at, batch, bool, double, dropped, ids, int, left, noted, of_process, process, sample, span, text,
};

/// Whether a root span is kept, and its rate.
fn decide(yaml: &str, span: Span, resource: Vec<KeyValue>) -> Option<Option<f64>> {
    let mut sample = sample(yaml);
    let out = process(&mut sample, batch(vec![span], resource), at(0));
    let left = left(&out);
    assert_eq!(left.len() as u64 + dropped(&out), 1);
    left.first().map(|(_, _, rate)| *rate)
}

fn with(attributes: Vec<KeyValue>) -> Span {
    Span { attributes, ..span(1, 1, 0) }
}

const KEPT: Option<Option<f64>> = Some(None);

/// Guarantees: without a rate and rules, every span is sent unchanged, whatever others decided.
/// rule: tracing-sdk#opt-in
#[test]
fn nothing_configured_keeps_all() {
    assert_eq!(decide("", with(vec![bool("sentry.sampled", false)]), vec![]), KEPT);
    let spans = of_process(vec![span(1, 2, 1), span(1, 1, 0)]);
    let out = process(&mut sample(""), spans, at(0));
    let profbridge_model::Telemetry::Spans(spans) = &out.telemetry[0] else { panic!("{out:?}") };
    assert!(spans.received().is_some());
}

/// Guarantees: the order of precedence for a root span is: the program, by an attribute; then the first rule that
/// matches; then the parent, by W3C's sampled flag or the program's attribute, unless the parent left the decision
/// open; then the rate.
/// rule: tracing-sdk#precedence, tracing-sdk#propagation, tracing-sdk#sampler
#[test]
fn precedence() {
    let explicit = |sampled| with(vec![bool("sentry.sampled", sampled)]);
    let refused = || with(vec![bool("sentry.parent_sampled", false)]);
    let named = |name: &str| Span { name: name.to_owned(), ..span(1, 1, 0) };
    let child = |flags, span| Span { parent_span_id: vec![9; 8], flags: REMOTE | flags, ..span };
    let all_no = "traces_sample_rate: 0\ntraces_rules: [{sampled: false}]";
    let all_yes = "traces_sample_rate: 1\ntraces_rules: [{sampled: true}]";
    let two = "traces_rules: [{name: other, sampled: false}, {name: span*, sampled: true}, {sampled: false}]";
    let none = "traces_sample_rate: 0\ntraces_rules: [{name: other, sampled: false}]";
    for (what, yaml, span, kept) in [
        ("the program before all", all_no, child(0, explicit(true)), true),
        ("the program before all", all_yes, child(SAMPLED, explicit(false)), false),
        ("rules before parent and rate", "traces_rules: [{sampled: false}]", child(SAMPLED, span(1, 1, 0)), false),
        (
            "rules before parent and rate",
            "traces_sample_rate: 0\ntraces_rules: [{sampled: true}]",
            child(0, span(1, 1, 0)),
            true,
        ),
        ("the first rule", two, named("span 1"), true),
        ("the first rule", two, named("other"), false),
        ("the first rule", two, named("third"), false),
        ("the parent before the rate", none, child(SAMPLED, span(1, 1, 0)), true),
        ("deferred decisions stay open", none, child(0, span(1, 1, 0)), false),
        ("it has no parent", none, Span { flags: SAMPLED, ..span(1, 1, 0) }, false),
        ("the program knows the parent", "traces_sample_rate: 1", child(SAMPLED, refused()), false),
    ] {
        assert_eq!(decide(yaml, span, vec![]), kept.then_some(None), "{what}: {yaml}");
    }
}

/// Guarantees: conditions on name, op, service, attributes of span or resource, and the parent's decision match as
/// documented, and a rule needs all of its conditions.
/// rule: tracing-sdk#sampler, tracing-sdk#sampling-context
#[test]
fn conditions() {
    let fits = |condition: &str, span: Span| {
        let resource = vec![text("service.name", "shop"), text("deployment.environment.name", "test")];
        decide(&format!("traces_rules: [{{{condition}, sampled: false}}]"), span, resource).is_none()
    };
    let get = || Span {
        name: "GET /cart".to_owned(),
        ..with(vec![text("sentry.op", "http.server"), int("http.response.status_code", 200), bool("a", true)])
    };
    for condition in [
        "name: GET /cart",
        "name: 'GET *'",
        "op: http.*",
        "service: sh?p",
        "attributes: {http.response.status_code: 2??}",
        "attributes: {deployment.environment.name: test}",
        "attributes: {a: true, http.response.status_code: 200}",
        "parent_sampled: none",
        "name: GET*, op: http.server, service: shop, attributes: {a: '*'}, parent_sampled: none",
    ] {
        assert!(fits(condition, get()), "{condition}");
    }
    for condition in [
        "name: /cart",
        "op: http",
        "service: shops",
        "attributes: {http.response.status_code: 404}",
        "attributes: {missing: '*'}",
        "parent_sampled: true",
        "parent_sampled: false",
        "name: GET*, op: db",
    ] {
        assert!(!fits(condition, get()), "{condition}");
    }
    let child = |attributes| Span { parent_span_id: vec![9; 8], flags: REMOTE | SAMPLED, ..with(attributes) };
    assert!(fits("parent_sampled: true", child(vec![])) && !fits("parent_sampled: none", child(vec![])));
    assert!(fits("parent_sampled: false", child(vec![bool("sentry.parent_sampled", false)])));
}

/// Guarantees: a rate from an attribute may be a number, text, or a boolean. A span without the attribute does not
/// match the rule. If the attribute has no valid rate, the span is dropped and counted.
/// rule: tracing-sdk#sampler, tracing-sdk#sampling-context
#[test]
fn rates_of_attributes() {
    let yaml = "traces_sample_rate: 1\ntraces_rules: [{rate_from: app.rate}]";
    let decide = |attributes| decide(yaml, with(attributes), vec![]);
    assert_eq!(decide(vec![]), KEPT);
    assert_eq!(decide(vec![double("app.rate", 1.0)]), KEPT);
    assert_eq!(decide(vec![text("app.rate", "1")]), KEPT);
    assert_eq!(decide(vec![bool("app.rate", true)]), KEPT);
    for no in [double("app.rate", 0.0), int("app.rate", 0), text("app.rate", "0.0"), bool("app.rate", false)] {
        assert_eq!(decide(vec![no]), None);
    }
    for invalid in
        [double("app.rate", f64::NAN), double("app.rate", 1.5), int("app.rate", -1), text("app.rate", "most")]
    {
        let out = process(&mut sample(yaml), batch(vec![with(vec![invalid])], vec![]), at(0));
        assert_eq!((left(&out).len(), dropped(&out), noted(&out, INVALID_RATES)), (0, 1, 1));
    }
}

/// Guarantees: a rate keeps about its share of traces, the same in every replica. A higher rate keeps all traces that a
/// lower one keeps.
/// rule: tracing-sdk#sample-rate
#[test]
fn rates_hold_and_replicas_agree() {
    let traces: Vec<Span> = (0..5000).map(|trace| span(trace, trace + 1, 0)).collect();
    let kept = |rate: f64| {
        ids(&process(&mut sample(&format!("traces_sample_rate: {rate}")), of_process(traces.clone()), at(0)))
    };
    let (tenth, half) = (kept(0.1), kept(0.5));
    assert!((400..600).contains(&tenth.len()) && (2350..2650).contains(&half.len()), "{} {}", tenth.len(), half.len());
    assert_eq!(tenth, kept(0.1));
    assert!(tenth.iter().all(|id| half.contains(id)));
    assert_eq!((kept(0.0).len(), kept(1.0).len()), (0, 5000));
}

/// Guarantees: if a program drew a random number for a trace, that number decides, relative to the rate by which the
/// program kept the trace.
#[test]
fn the_number_of_the_program_decides() {
    let drawn = |number: f64, before: Option<f64>| {
        let mut attributes = vec![double("sentry.sample_rand", number)];
        attributes.extend(before.map(|rate| double("sentry.sample_rate", rate)));
        decide("traces_sample_rate: 0.5", with(attributes), vec![])
    };
    assert_eq!(drawn(0.49, None), Some(Some(0.5)));
    assert_eq!(drawn(0.51, None), None);
    assert_eq!(drawn(0.09, Some(0.2)), Some(Some(0.1)));
    assert_eq!(drawn(0.11, Some(0.2)), None);
}

/// Guarantees: the root span of a trace that is kept by chance has the rate, multiplied by the received rate. Traces
/// kept for another reason are unchanged.
#[test]
fn rates_are_multiplied() {
    let traces =
        (0..200).map(|trace| Span { attributes: vec![double("sentry.sample_rate", 0.5)], ..span(trace, trace + 1, 0) });
    let spans = traces.flat_map(|root| [span(u64::from(root.trace_id[15]) - 1, 1000, 1), root]).collect();
    let out = process(&mut sample("traces_sample_rate: 0.25"), of_process(spans), at(0));
    let left = left(&out);
    assert!(!left.is_empty() && left.len() < 200);
    for (_, id, rate) in left {
        assert_eq!(rate, (id != 1000).then_some(0.125));
    }
    assert_eq!(decide("traces_rules: [{sample_rate: 1}]", with(vec![double("sentry.sample_rate", 0.5)]), vec![]), KEPT);
}
