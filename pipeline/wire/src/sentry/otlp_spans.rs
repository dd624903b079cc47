//! Adds to OTLP spans what Sentry's own OTLP endpoint needs to show them like those of its SDKs.
//!
//! | added | from |
//! | --- | --- |
//! | `sentry.profiler_id`, `thread.name` | the profiler and the thread that were found |
//! | `thread.id`, `sentry.thread.id`, both text | the thread that was found, or the span's own number |
//! | `sentry.release`, `sentry.environment` | the resource, as for profiles, unless the span has its own |
//! | `sentry.client_sample_rate` | the rate of the span, unless it has one: see [`client_sample_rate`] |
//! | the flag of a remote parent | a span that is the first of its process by its kind |
//!
//! Sentry joins a span with profiles by `sentry.profiler_id` and a thread id that is text, where OpenTelemetry's
//! conventions have an integer; servers before June 2026 read `sentry.thread.id`. Sentry ignores the release in
//! resource attributes. It treats a span as the first of its process only if the span has no parent or a remote one
//! (getsentry/relay `relay-spans/src/otel_to_sentry_v2.rs`; getsentry/sentry `profiles/flamegraph.py`).
//!
//! Spans that a client sent to Sentry's endpoint itself ([`Spans::client`]) only get the pipeline's changes.

use profbridge_model::{Span, Spans};

use super::ResourceAttributes;
use super::transaction::{Notes, release_and_environment};
use crate::otlp::traces::encode::{
    PROFILER_ID, Rewrite, SAMPLE_RATE, THREAD_ID, THREAD_NAME, encode_within_with, split_with,
};
use crate::otlp::traces::write::any_double;
use crate::otlp::traces::{AnyValue, OtherSpanFields};
use crate::spans::SpanView;

/// The size of a request that Relay accepts, in bytes, less room for what a proxy may count differently
/// (getsentry/relay `relay-config/src/config.rs`, `max_container_size`).
pub const MAX_BYTES: usize = 11 << 20;

/// The attribute with the client's sample rate, by which Sentry extrapolates the number of spans.
pub const CLIENT_SAMPLE_RATE: &str = "sentry.client_sample_rate";

/// The thread id that servers before June 2026 read.
const SENTRY_THREAD_ID: &str = "sentry.thread.id";

const RELEASE: &str = "sentry.release";
const ENVIRONMENT: &str = "sentry.environment";

/// The attributes that decide what is added to a span.
#[derive(Default)]
struct OwnAttributes<'a> {
    thread_id: Option<AnyValue<'a>>,
    has_sentry_thread_id: bool,
    has_release: bool,
    has_environment: bool,
    has_client_sample_rate: bool,
}

impl<'a> OwnAttributes<'a> {
    fn of(spans: &'a Spans, span: &'a Span) -> Self {
        let mut own = Self::default();
        for (key, value) in OtherSpanFields::of(spans, span).attributes() {
            match key {
                THREAD_ID if own.thread_id.is_none() => own.thread_id = Some(value),
                SENTRY_THREAD_ID => own.has_sentry_thread_id = true,
                RELEASE => own.has_release = true,
                ENVIRONMENT => own.has_environment = true,
                CLIENT_SAMPLE_RATE => own.has_client_sample_rate = true,
                _ => {}
            }
        }
        own
    }
}

/// The data about a process that Sentry needs.
#[derive(Debug)]
struct SentryProcess {
    release: Option<String>,
    environment: Option<String>,
}

/// OTLP spans of a batch, for Sentry.
#[derive(Debug)]
pub struct SentrySpans<'a> {
    spans: &'a Spans,
    /// The processes by resource; empty if only changes are added.
    processes: Vec<SentryProcess>,
}

impl<'a> SentrySpans<'a> {
    /// The spans of this batch. `environment` is the default for processes without one.
    pub fn new(spans: &'a Spans, environment: &str) -> Self {
        let process = |resource| {
            let attributes = ResourceAttributes::of_resource(spans, resource);
            let (release, environment) = release_and_environment(&attributes, environment, &mut Notes::default());
            SentryProcess { release, environment }
        };
        let resources = spans.resources().iter().filter(|_| spans.client.is_none());
        Self { spans, processes: resources.map(process).collect() }
    }

    /// The requests with these spans, each with the number of its spans. A single span above the size limit gets a
    /// request of its own.
    pub fn requests(&self) -> Vec<(Vec<u8>, usize)> {
        let rewrite = |span: &Span| self.rewrite(span);
        match encode_within_with(self.spans, MAX_BYTES, &rewrite) {
            Some(request) => vec![(request, self.spans.spans().len())],
            None => split_with(self.spans, MAX_BYTES, &rewrite).collect(),
        }
    }

    fn rewrite(&self, span: &Span) -> Option<Rewrite> {
        let mut rewrite = Rewrite::default();
        let changes = span.changes.as_deref();
        if self.processes.is_empty() && changes.is_none() {
            return None;
        }
        let link = changes.and_then(|changes| changes.profiler.as_ref());
        let own = OwnAttributes::of(self.spans, span);
        if let Some(link) = link {
            rewrite.text(PROFILER_ID, &link.profiler_id.to_string());
            if let Some(name) = &link.thread_name {
                rewrite.text(THREAD_NAME, name);
            }
        }
        match (link.and_then(|link| link.thread_id.as_deref()), own.thread_id) {
            (Some(id), _) => {
                rewrite.text(THREAD_ID, id);
                rewrite.text(SENTRY_THREAD_ID, id);
            }
            (None, own_id) => {
                if let Some((value, id)) = own_id.and_then(|value| Some((value, value.thread_id()?))) {
                    if value.text().is_none() {
                        rewrite.text(THREAD_ID, &id);
                    }
                    if !own.has_sentry_thread_id {
                        rewrite.text(SENTRY_THREAD_ID, &id);
                    }
                }
            }
        }
        if let Some(rate) = changes.and_then(|changes| changes.sample_rate) {
            rewrite.replaced.push(SAMPLE_RATE);
            rewrite.value(CLIENT_SAMPLE_RATE, &any_double(rate));
        }
        let resource = self.spans.scope_of(span).resource as usize;
        if let Some(process) = self.processes.get(resource) {
            let texts = [(RELEASE, &process.release, own.has_release)];
            let texts = texts.into_iter().chain([(ENVIRONMENT, &process.environment, own.has_environment)]);
            for (key, text, _) in texts.filter(|(.., has_own)| !has_own) {
                text.iter().for_each(|text| rewrite.text(key, text));
            }
            let knows_rate = own.has_client_sample_rate || changes.is_some_and(|changes| changes.sample_rate.is_some());
            if let Some(rate) = client_sample_rate(self.spans, span).filter(|_| !knows_rate) {
                rewrite.value(CLIENT_SAMPLE_RATE, &any_double(rate));
            }
            let is_known = span.parent_span_id.is_none() || span.parent_is_remote == Some(true);
            rewrite.has_remote_parent = span.is_local_root() && !is_known;
        }
        (!rewrite.is_empty()).then_some(rewrite)
    }
}

/// The rate at which a span was kept so far, if known: that of the pipeline or `sentry.sample_rate`, else the threshold
/// that OpenTelemetry's samplers put into `tracestate` (OpenTelemetry specification, "TraceState: Probability
/// Sampling"), which Relay reads since 26.9.0.
pub fn client_sample_rate(spans: &Spans, span: &Span) -> Option<f64> {
    let view = SpanView::of(spans, span);
    view.sample_rate().or_else(|| threshold_rate(OtherSpanFields::of(spans, span).trace_state))
}

/// The rate of `ot=th:HEX` in a `tracestate`: the threshold has at most 14 digits, trailing zeros left out, and is the
/// part of 2^56 below which a trace is dropped.
fn threshold_rate(trace_state: &str) -> Option<f64> {
    let member = trace_state.split(',').find_map(|member| member.trim().strip_prefix("ot="))?;
    let digits = member.split(';').find_map(|pair| pair.strip_prefix("th:"))?;
    let is_threshold = (1..=14).contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let threshold = u64::from_str_radix(digits, 16).ok().filter(|_| is_threshold)? << (4 * (14 - digits.len()));
    const ALL: u64 = 1 << 56;
    Some((ALL - threshold) as f64 / ALL as f64)
}

#[cfg(test)]
mod tests;
