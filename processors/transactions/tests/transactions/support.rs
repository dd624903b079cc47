//! Test helpers: builds batches of spans, and reads transactions from the output.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use profbridge_engine::component::{Now, Outbox, Processor, flush_all};
use profbridge_engine::config::Section;
use profbridge_model::spans::{SpanResource, SpanScope};
use profbridge_model::{ByteRange, Span, SpanForm, SpanId, SpanKind, Spans, Telemetry, TraceId};
use profbridge_processor_transactions::{Config, Transactions};
pub(crate) use profbridge_testkit::{SECOND as S, advance as wait_until, at, note as noted};

/// The encoded content of a span.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Given {
    pub(crate) resource: Arc<str>,
    pub(crate) scope: String,
    pub(crate) text: String,
    pub(crate) trace: u64,
    pub(crate) id: u64,
    pub(crate) parent: Option<u64>,
    pub(crate) is_server: bool,
    pub(crate) is_remote: bool,
    pub(crate) is_streamed: bool,
    pub(crate) start: u64,
}

/// A span of trace 1, with a parent in the same process if there is one.
pub(crate) fn span(id: u64, parent: impl Into<Option<u64>>) -> Given {
    let (resource, scope, text) = ("shop".into(), "http".to_owned(), format!("span {id}"));
    let parent = parent.into();
    let (is_server, is_remote, is_streamed) = (false, false, false);
    Given { resource, scope, text, trace: 1, id, parent, is_server, is_remote, is_streamed, start: id }
}

impl Given {
    pub(crate) fn server(self) -> Self {
        Self { is_server: true, ..self }
    }

    pub(crate) fn streamed(self) -> Self {
        Self { is_streamed: true, ..self }
    }

    pub(crate) fn trace(self, trace: u64) -> Self {
        Self { trace, ..self }
    }

    pub(crate) fn at(self, start: u64) -> Self {
        Self { start, ..self }
    }

    pub(crate) fn of(self, resource: impl Into<Arc<str>>) -> Self {
        Self { resource: resource.into(), ..self }
    }

    pub(crate) fn text(self, text: &str) -> Self {
        Self { text: text.to_owned(), ..self }
    }
}

/// One request with these spans. Adjacent spans share their resource and scope.
pub(crate) fn request(given: &[Given]) -> Spans {
    let (mut bytes, mut resources, mut scopes, mut spans) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut put = |text: &str| {
        bytes.extend_from_slice(text.as_bytes());
        ByteRange { start: (bytes.len() - text.len()) as u32, len: text.len() as u32 }
    };
    let mut last: Option<&Given> = None;
    for one in given {
        if last.is_none_or(|last| last.resource != one.resource) {
            resources.push(SpanResource { parts: vec![put(&one.resource)], added: Vec::new() });
        }
        if last.is_none_or(|last| (&last.resource, &last.scope) != (&one.resource, &one.scope)) {
            scopes.push(SpanScope { resource: (resources.len() - 1) as u32, parts: vec![put(&one.scope)] });
        }
        last = Some(one);
        let mut trace = [0; 16];
        trace[..8].copy_from_slice(&one.trace.to_be_bytes());
        spans.push(Span {
            trace_id: TraceId::new(&trace).unwrap(),
            span_id: SpanId::new(&one.id.to_be_bytes()).unwrap(),
            parent_span_id: one.parent.and_then(|id| SpanId::new(&id.to_be_bytes())),
            start_unix_nano: one.start,
            end_unix_nano: one.start + 1,
            kind: if one.is_server { SpanKind::Server } else { SpanKind::Internal },
            parent_is_remote: one.is_remote.then_some(true),
            sampled: None,
            scope: (scopes.len() - 1) as u32,
            at: put(&one.text),
            is_streamed: one.is_streamed,
            segment: None,
            changes: None,
        });
    }
    Spans::new(SpanForm::Otlp, Bytes::from(bytes), resources, scopes, spans, true).unwrap()
}

/// One transaction: its resource, its local root, and all of its spans in order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GroupedSpans {
    pub(crate) root: Option<u64>,
    pub(crate) spans: Vec<Given>,
}

impl GroupedSpans {
    pub(crate) fn ids(&self) -> Vec<u64> {
        self.spans.iter().map(|span| span.id).collect()
    }
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes[..8].try_into().unwrap())
}

/// The content of a sent span.
fn given(batch: &Spans, span: &Span) -> Given {
    let text = |parts: &[ByteRange]| {
        let bytes: Vec<u8> = parts.iter().flat_map(|part| batch.get(*part)).copied().collect();
        String::from_utf8(bytes).unwrap()
    };
    Given {
        resource: text(&batch.resource_of(span).parts).into(),
        scope: text(&batch.scope_of(span).parts),
        text: text(&[span.at]),
        trace: number(span.trace_id.bytes()),
        id: number(span.span_id.bytes()),
        parent: span.parent_span_id.map(|id| number(id.bytes())),
        is_server: span.kind == SpanKind::Server,
        is_remote: span.parent_is_remote == Some(true),
        is_streamed: span.is_streamed,
        start: span.start_unix_nano,
    }
}

/// The sent streamed spans, in order.
pub(crate) fn streamed(out: &Outbox) -> Vec<Given> {
    let batches = out.telemetry.iter().filter_map(|telemetry| match telemetry {
        Telemetry::Spans(batch) if batch.form() == SpanForm::Otlp => Some(batch),
        _ => None,
    });
    let spans = batches.flat_map(|batch| batch.spans().iter().map(move |span| given(batch, span)));
    spans.filter(|span| span.is_streamed).collect()
}

/// The sent transactions, in order. Checks general rules: the spans of a transaction are adjacent, and share a number
/// that is unique in the batch and one resource. There is at most one root, which comes first.
pub(crate) fn transactions(out: &Outbox) -> Vec<GroupedSpans> {
    let mut all = Vec::new();
    for telemetry in &out.telemetry {
        let Telemetry::Spans(batch) = telemetry else { continue };
        assert_eq!(batch.form(), SpanForm::Otlp);
        let is_streamed = batch.spans().iter().any(|span| span.is_streamed);
        assert!(!is_streamed || batch.spans().iter().all(|span| span.is_streamed && span.segment.is_none()));
        if is_streamed {
            continue;
        }
        let mut numbers = BTreeMap::new();
        for segment in batch.segments() {
            let number_of = segment[0].segment.unwrap().number;
            assert_eq!(numbers.insert(number_of, ()), None, "a transaction stands in one piece");
            assert!(segment.iter().skip(1).all(|span| !span.segment.unwrap().is_root), "one root, and it is the first");
            let spans: Vec<Given> = segment.iter().map(|span| given(batch, span)).collect();
            let one = |given: &Given| (given.resource.clone(), given.trace);
            assert!(spans.iter().all(|span| one(span) == one(&spans[0])), "one process, one trace: {spans:?}");
            let root = segment[0].segment.unwrap().is_root.then_some(spans[0].id);
            all.push(GroupedSpans { root, spans });
        }
    }
    all
}

pub(crate) fn processor(yaml: &str) -> Transactions {
    let section = Section::from_yaml(yaml).unwrap();
    Transactions::new(section.extract::<Config>().unwrap().check(&section).unwrap())
}

/// Passes a request to a processor, and lets it do everything that is due.
pub(crate) fn send(processor: &mut Transactions, given: &[Given], now: Now) -> Outbox {
    profbridge_testkit::process(processor, request(given), now)
}

pub(crate) fn flush(processor: &mut Transactions, now: Now) -> Outbox {
    let mut out = Outbox::default();
    flush_all(processor, now, &mut out);
    assert!(processor.held().quantities.is_none() && processor.due().is_none());
    out
}

/// The ids of the sent transactions, in order.
pub(crate) fn ids(out: &Outbox) -> Vec<Vec<u64>> {
    transactions(out).iter().map(GroupedSpans::ids).collect()
}

/// A batch of another form, with one span.
pub(crate) fn of_sentry(form: SpanForm) -> Spans {
    let otlp = request(&[span(1, None)]);
    let parts = (vec![SpanResource::default()], vec![SpanScope::default()]);
    let spans = otlp.spans().iter().map(|span| Span { scope: 0, ..span.clone() }).collect();
    let mut batch = Spans::new(form, otlp.bytes().clone(), parts.0, parts.1, spans, true).unwrap();
    batch.peer = Some(Arc::from("10.0.0.1"));
    batch
}
