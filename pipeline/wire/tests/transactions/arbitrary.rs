//! Arbitrary spans.

use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::Link;
use profbridge_model::Quantities;
use proptest::prelude::*;

use crate::transactions::support::{batch, event, list, map, pair, segmented, span, status, value_of, write};

/// Keys of attributes, with and without a meaning for transactions.
const KEYS: &str = "\
    http.request.method http.method http.route http.target http.url http.host url.full url.path url.query url.scheme \
    url.template server.address server.port client.address db.system db.system.name db.query.text db.statement \
    rpc.service rpc.system rpc.grpc.status_code rpc.response.status_code messaging.system faas.trigger \
    gen_ai.operation.name enduser.id user.id user.name user.email thread.id thread.name sentry.profiler_id sentry.op \
    sentry.source sentry.origin sentry.sample_rate sentry.custom_span_name sentry.segment.name.source http.status_code \
    http.response.status_code http.request.body.size http.response.body.size http.request.header.accept \
    http.response.header.server user_agent.original user_agent.name service.name service.version sentry.release \
    sentry.dist deployment.environment.name host.name os.type telemetry.sdk.language cloud.region process.runtime.name \
    otel.kind otel.events otel.scope.name sentry.status.message process.environment_variable.OTEL_RESOURCE_ATTRIBUTES \
    a b";

fn key() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(KEYS.split(' ').chain([""]).collect::<Vec<_>>())
}

/// Values that some of these keys expect, and others that none expects; separated by spaces.
const TEXTS: &str = "GET /a/{id} http://u:p@h:1/a?b#c ://@? h ::1 0.5 -1 200 custom chat latest None python \
    service.name=x,service.version=y 0123456789abcdef0123456789abcdef \n \"\\\u{1}";

fn value() -> impl Strategy<Value = AnyValue> {
    let text = prop_oneof![
        proptest::sample::select(TEXTS.split(' ').collect::<Vec<_>>()).prop_map(str::to_owned),
        "[\\x00-\\x7fé€😀\u{2028}]{0,30}",
        "[a-z]{190,260}",
    ];
    let leaf = prop_oneof![
        4 => text.prop_map(Any::StringValue),
        1 => any::<i64>().prop_map(Any::IntValue),
        1 => (-1000..1000_i64).prop_map(Any::IntValue),
        1 => any::<f64>().prop_map(Any::DoubleValue),
        1 => any::<bool>().prop_map(Any::BoolValue),
        1 => prop::collection::vec(any::<u8>(), 0..8).prop_map(Any::BytesValue),
    ];
    let leaf = prop_oneof![9 => leaf.prop_map(value_of), 1 => Just(AnyValue { value: None })];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(list),
            prop::collection::vec((key(), inner), 0..4)
                .prop_map(|pairs| map(pairs.into_iter().map(|(key, value)| pair(key, value)).collect())),
        ]
    })
}

fn attributes() -> impl Strategy<Value = Vec<KeyValue>> {
    let pair = (key(), value()).prop_map(|(key, value)| pair(key, value));
    prop::collection::vec(pair, 0..24)
}

fn spans() -> impl Strategy<Value = Vec<Span>> {
    let one =
        (attributes(), 0..7_i32, 0..4_i32, "[ -~é]{0,20}", any::<u64>(), any::<u32>(), attributes(), any::<[u8; 3]>());
    let span = one.prop_map(|(attributes, kind, code, name, start, took, more, sizes)| {
        let mut made = span(1, 2, &name, Default::default(), attributes);
        made.kind = kind;
        made.start_time_unix_nano = start;
        made.end_time_unix_nano = start.saturating_add(took.into());
        made.status = status(code, &name);
        made.events = vec![event(&name, more.clone()); usize::from(sizes[0] % 3)];
        let (trace_id, span_id) = (vec![3; usize::from(sizes[1] % 2) * 16], vec![4; 8]);
        made.links = vec![Link { trace_id, span_id, attributes: more, ..Link::default() }; usize::from(sizes[2] % 3)];
        made
    });
    prop::collection::vec(span, 1..6)
}

proptest! {
    /// Guarantees: for arbitrary spans, the transaction follows the schema, is within its limits and on one line, and
    /// each span is either in it or counted as lost.
    /// rule: event-schema#event-type, event-schema#event-spans, event-schema#transaction-sdk, tracing-sdk#event
    #[test]
    fn valid(spans in spans(), resource in attributes(), root in 0..8_usize) {
        let mut spans = spans;
        for (number, span) in spans.iter_mut().enumerate() {
            span.span_id = vec![number as u8 + 10; 8];
        }
        let batch = segmented(&batch(resource, spans), |position| position == root);
        let written = write(&batch);
        let kept = Quantities::spans(written.summary.spans);
        prop_assert_eq!(kept + written.losses.total(), batch.quantities());
        prop_assert_eq!(written.summary.spans as usize, written.event["spans"].as_array().unwrap().len() + 1);
        prop_assert_eq!(write(&batch).json, written.json);
    }
}

/// Guarantees: each key is written once, also if a span has a duplicate among very many keys of all lengths.
/// rule: event-schema#trace-data
#[test]
fn no_key_twice() {
    let keys = (0..300).map(|number| pair(&format!("key.{}", number % 150), value_of(Any::IntValue(number)))).collect();
    let written = write(&batch(vec![], vec![span(1, 0, "n", Default::default(), keys)]));
    let data = written.event["contexts"]["trace"]["data"].as_object().unwrap();
    assert_eq!((data["key.149"].clone(), data.len()), (149.into(), 153));
}
