//! Turns OTLP spans into requests: for Sentry's OTLP endpoint, or envelopes with transactions or containers.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use profbridge_codec::Encoded;
use profbridge_codec::sentry::{
    EnvelopeEncoder, OtlpSpans, SpanEnvelope, SpanEnvelopeForm, TransactionTarget, grouped,
};
use profbridge_engine::clock::Clock;
use profbridge_engine::component::{Now, Prepared};
use profbridge_engine::peer_limits::SpanLimits;
use profbridge_model::envelope::RequestMeta;
use profbridge_model::{Quantities, Reason, Span, SpanForm, Spans};
use profbridge_net::compression::{Coding, Compression, decompress};
use profbridge_wire::otlp::{Limits, traces};
use profbridge_wire::sentry::otlp_spans::MAX_BYTES;
use profbridge_wire::sentry::{Category, Dsn, ResourceAttributes, chunk};

use crate::Settings;
use crate::config::SpanMode;
use crate::destination::Destination;
use crate::destinations::{Destinations, TooMany};
use crate::prepare::{BodyCompression, BodyForm, Meta, RequestItem, RequestTemplate, compression, lost, report};
use crate::routing;

/// Turns spans into requests, for the client that sent them or for the project of their process. A pending client
/// report is sent first, in an envelope of its own.
pub(crate) fn prepare(encoder: &mut EnvelopeEncoder, settings: &Settings, spans: &Spans, now: Now) -> Prepared<Meta> {
    if spans.form() != SpanForm::Otlp {
        return lost(Reason::Unroutable, spans.quantities());
    }
    if let Some(client) = &spans.client {
        return match routing::of_client(settings, client, []) {
            Ok(Some(route)) => {
                let template = RequestTemplate::of_client(settings, client, route);
                let mut prepared = deliver(encoder, settings, &template, spans, now);
                prepared.requests.splice(..0, report(&template.destination, now));
                prepared
            }
            Ok(None) => lost(Reason::Unroutable, spans.quantities()),
            Err(TooMany) => lost(Reason::LimitExceeded, spans.quantities()),
        };
    }
    let is_finished = |span: &Span| {
        span.is_streamed || span.segment.is_some() && matches!(settings.spans, SpanMode::Auto | SpanMode::Transactions)
    };
    let finished = spans.spans().iter().filter(|span| is_finished(span)).count();
    let mut used = BTreeSet::new();
    let mut prepared = match finished {
        0 => Prepared::default(),
        _ => {
            let part = part(spans, finished, is_finished);
            envelopes(encoder, settings, &part, &mut used)
        }
    };
    if finished < spans.spans().len() {
        let rest = part(spans, spans.spans().len() - finished, |span| !is_finished(span));
        add(&mut prepared, by_destination(encoder, settings, &rest, &mut used, now));
    }
    let reports = used.iter().filter_map(|number| report(settings.destinations.configured(*number), now));
    prepared.requests.splice(..0, reports.collect::<Vec<_>>());
    prepared
}

/// The spans for which `is_of_it` returns true; `count` is their number.
fn part(spans: &Spans, count: usize, is_of_it: impl Fn(&Span) -> bool) -> Spans {
    let mut part = spans.clone();
    if count < spans.spans().len() {
        part.retain(|_, span| is_of_it(span));
    }
    part
}

fn add(prepared: &mut Prepared<Meta>, more: Prepared<Meta>) {
    let Prepared { requests, losses, synthesized, notes } = more;
    prepared.requests.extend(requests);
    prepared.losses.merge(&losses);
    prepared.synthesized += synthesized;
    prepared.notes.extend(notes);
}

/// Turns grouped spans into transactions and streamed ones into containers, for the project of their process.
fn envelopes(
    encoder: &mut EnvelopeEncoder,
    settings: &Settings,
    spans: &Spans,
    used: &mut BTreeSet<usize>,
) -> Prepared<Meta> {
    let route = |attributes: &ResourceAttributes<'_>| {
        let number = routing::of_process(settings, attributes)?;
        let destination = settings.destinations.configured(number);
        let compression = compression(settings.compression, destination);
        Some(TransactionTarget { number, dsn: Some(&destination.dsn), compression })
    };
    encoder.spans(spans, route).prepared(|envelope| {
        used.insert(envelope.target);
        let destination = settings.destinations.configured(envelope.target);
        let template = RequestTemplate::to(destination, compression(settings.compression, destination));
        template.meta(items(&envelope))
    })
}

fn items(envelope: &SpanEnvelope) -> Vec<RequestItem> {
    match envelope.form {
        SpanEnvelopeForm::Container => vec![RequestItem::spans(envelope.spans)],
        SpanEnvelopeForm::Transaction => RequestItem::transaction(envelope.spans).to_vec(),
    }
}

/// Delivers ungrouped spans to the project of their process.
fn by_destination(
    encoder: &mut EnvelopeEncoder,
    settings: &Settings,
    spans: &Spans,
    used: &mut BTreeSet<usize>,
    now: Now,
) -> Prepared<Meta> {
    let route = |resource| routing::of_process(settings, &ResourceAttributes::of_resource(spans, resource));
    let routes: Vec<Option<usize>> = spans.resources().iter().map(route).collect();
    let mut counts: BTreeMap<Option<usize>, usize> = BTreeMap::new();
    let route_of = |span: &Span| routes[spans.scope_of(span).resource as usize];
    spans.spans().iter().for_each(|span| *counts.entry(route_of(span)).or_default() += 1);
    let mut prepared = Prepared::default();
    for (route, count) in counts {
        let Some(number) = route else {
            prepared.losses.add(Reason::Unroutable, Quantities::spans(count as u64));
            continue;
        };
        used.insert(number);
        let destination = settings.destinations.configured(number);
        let template = RequestTemplate::to(destination, compression(settings.compression, destination));
        let part = part(spans, count, |span| route_of(span) == route);
        add(&mut prepared, deliver(encoder, settings, &template, &part, now));
    }
    prepared
}

/// Turns spans for one project into requests.
fn deliver(
    encoder: &mut EnvelopeEncoder,
    settings: &Settings,
    template: &RequestTemplate,
    spans: &Spans,
    now: Now,
) -> Prepared<Meta> {
    let RequestTemplate { destination, compression, .. } = template;
    let target = TransactionTarget { number: 0, dsn: Some(&destination.dsn), compression: *compression };
    let prepared = match mode_for(settings.spans, destination, now.monotonic_nano) {
        SpanMode::Auto | SpanMode::Otlp => {
            return encoder.otlp_spans(spans, *compression).prepared(|OtlpSpans { spans, received }| Meta {
                form: BodyForm::Traces,
                body: received.map_or(BodyCompression::Ours(*compression), BodyCompression::AsReceived),
                ..template.meta(vec![RequestItem::spans(spans)])
            });
        }
        SpanMode::Streamed => encoder.streamed_spans(spans, |_| Some(target)),
        SpanMode::Transactions => encoder.spans(&grouped(spans), |_| Some(target)),
    };
    prepared.prepared(|envelope| template.meta(items(&envelope)))
}

/// The form in which a destination gets ungrouped spans at this time, in nanoseconds of the exporter's clock.
fn mode_for(setting: SpanMode, destination: &Destination, now: u64) -> SpanMode {
    match setting {
        SpanMode::Auto if destination.lacks_otlp(now) => SpanMode::Transactions,
        SpanMode::Auto => SpanMode::Otlp,
        mode => mode,
    }
}

/// Tells receivers whether the spans that a client sends as OTLP would be dropped: the category whose limits count
/// depends on the form in which they leave.
#[derive(Debug)]
pub(crate) struct ClientSpanLimits {
    pub(crate) destinations: Arc<Destinations>,
    pub(crate) default: Option<usize>,
    pub(crate) mode: SpanMode,
    pub(crate) clock: Clock,
}

impl SpanLimits for ClientSpanLimits {
    fn blocked(&self, client: &RequestMeta) -> Option<Duration> {
        let destination = match self.destinations.of_client(client) {
            Some(own) => own.ok()?,
            None => Arc::clone(self.destinations.configured(self.default?)),
        };
        let now = self.clock.now().monotonic_nano;
        let categories: &[Category] = match mode_for(self.mode, &destination, now) {
            SpanMode::Transactions => Category::OF_TRANSACTIONS,
            SpanMode::Auto | SpanMode::Otlp | SpanMode::Streamed => &[Category::Span],
        };
        destination.blocked(categories, now)
    }
}

/// Converts a request for Sentry's OTLP endpoint to transactions for a server without one, as gzip. `settings` returns
/// those for its spans.
///
/// # Errors
///
/// The body cannot be read again, or there is no memory.
pub fn as_transactions(
    body: Bytes,
    content_encoding: Option<&str>,
    dsn: &Dsn,
    settings: impl FnOnce(&Spans) -> chunk::Settings,
) -> io::Result<Encoded<SpanEnvelope>> {
    let coding = Coding::parse(content_encoding).map_err(io::Error::other)?;
    let plain = decompress(coding, body, MAX_BYTES).map_err(io::Error::other)?;
    let spans = traces::decode(plain, &Limits::default()).map_err(io::Error::other)?.spans;
    let target = TransactionTarget { number: 0, dsn: Some(dsn), compression: Compression::GZIP };
    Ok(EnvelopeEncoder::new(settings(&spans)).spans(&grouped(&spans), |_| Some(target)))
}
