//! Turns telemetry into finished requests.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::Uri;
use http::header::{HeaderName, HeaderValue};
use profbridge_codec::sentry::{ContentEncoding, EnvelopeEncoder, Settled, settled};
use profbridge_codec::{Encoded, Message};
use profbridge_engine::component::{Now, PartlySettled, Prepared, Request, SendError};
use profbridge_model::envelope::RequestMeta;
use profbridge_model::{Envelope, Item, Profiles, Quantities, Reason, SpanForm, Spans};
use profbridge_net::compression::Compression;
use profbridge_wire::sentry::chunk::ChunkSummary;
use profbridge_wire::sentry::chunk::limits::MAX_CHUNK_NANOS;
use profbridge_wire::sentry::envelope::{self, Ending, ItemHeader};
use profbridge_wire::sentry::{Category, ClientReport, rate_limit};

use crate::destination::{AUTH, Destination, Zstd};
use crate::destinations::TooMany;
use crate::routing::{self, Route};
use crate::{Settings, config};

/// Metadata of a request.
#[derive(Debug)]
pub struct Meta {
    /// Destination of the request.
    pub(crate) destination: Arc<Destination>,
    /// What the body is.
    pub(crate) form: BodyForm,
    /// How the body is compressed.
    pub(crate) body: BodyCompression,
    /// The items in the body.
    pub(crate) items: Vec<RequestItem>,
    /// The client report that the request carries. Merged back if the request is lost.
    pub(crate) report: Option<Box<ClientReport>>,
    /// The profiled time that Sentry bills.
    pub(crate) billed: Duration,
    /// Headers of the client whose envelope is forwarded.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    /// Header of a forwarded envelope, and when it arrived here, in nanoseconds since the Unix epoch. `None` if the
    /// envelope was changed.
    pub(crate) arrived: Option<(Bytes, u64)>,
    /// The key under which rate limits in the answer are passed back to the client.
    pub(crate) peer_key: Option<String>,
    /// How far the transactions have come that are sent in place of the body.
    pub(crate) progress: Progress,
}

/// What became of the transactions that are sent in place of a body with OTLP, one post each. It outlives an attempt,
/// so the next one goes on behind those that are settled: converting the body again gives the same transactions.
#[derive(Debug, Default)]
pub(crate) struct Progress(Mutex<Option<Box<SentParts>>>);

/// The settled ones of the transactions.
#[derive(Debug, Clone, Default)]
pub(crate) struct SentParts {
    /// How many they are.
    pub(crate) count: usize,
    /// What they held.
    pub(crate) settled: PartlySettled,
    /// Why the first of those failed that failed for good.
    pub(crate) error: Option<SendError>,
}

impl Progress {
    /// `None` if the body was not replaced.
    pub(crate) fn get(&self) -> Option<SentParts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).as_deref().cloned()
    }

    pub(crate) fn set(&self, parts: SentParts) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(parts));
    }
}

impl Meta {
    /// Heap size in bytes. It counts towards the queue's limit, since clients choose the number of items and the length
    /// of headers.
    pub(crate) fn bytes(&self) -> u64 {
        /// Overhead of the allocator and of reference counts per block, in bytes.
        const BLOCK: usize = 48;
        let header = |value: &HeaderValue| value.len() + size_of::<(HeaderName, HeaderValue)>() + BLOCK;
        let headers: usize = self.headers.iter().map(|(_, value)| header(value)).sum();
        let key = self.peer_key.as_ref().map_or(0, |key| key.len() + BLOCK);
        (size_of::<Self>() + headers + self.items.capacity() * size_of::<RequestItem>() + key) as u64
    }
}

/// What a body is, which decides about its URL and the name of its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyForm {
    /// An envelope.
    Envelope,
    /// Spans for Sentry's OTLP endpoint.
    Traces,
}

impl BodyForm {
    /// Part of the name of every file with such a body.
    pub const fn ending(self) -> &'static str {
        match self {
            Self::Envelope => ".envelope",
            Self::Traces => ".spans.otlp",
        }
    }

    /// The form of the body in a file with this name. `None` if the name has none of the endings.
    pub fn of_file(name: &str) -> Option<Self> {
        [Self::Traces, Self::Envelope].into_iter().find(|form| name.contains(form.ending()))
    }

    /// Where such a body is posted.
    pub const fn url(self, destination: &Destination) -> &Uri {
        match self {
            Self::Envelope => &destination.url,
            Self::Traces => &destination.otlp_url,
        }
    }

    /// The value of `Content-Type`.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Envelope => envelope::CONTENT_TYPE,
            Self::Traces => "application/x-protobuf",
        }
    }
}

/// How a body is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyCompression {
    /// By this exporter, so it can be recompressed if the server refuses the encoding.
    Ours(Compression),
    /// By the client whose envelope is forwarded.
    AsReceived(ContentEncoding),
}

impl BodyCompression {
    /// The value of `Content-Encoding`; `None` for no header.
    pub(crate) fn content_encoding(self) -> Option<&'static str> {
        match self {
            Self::Ours(compression) => compression.content_encoding(),
            Self::AsReceived(ContentEncoding(encoding)) => encoding,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestItem {
    /// The item is not sent while one of these categories is rate limited.
    pub(crate) limited_by: &'static [Category],
    /// Category and quantity to report if the item is lost.
    pub(crate) counted: Option<(Category, u64)>,
}

impl RequestItem {
    /// Whether this is a profile in any format.
    pub(crate) fn is_profile(&self) -> bool {
        use Category::{Profile, ProfileChunk, ProfileChunkUi};
        self.counted.is_some_and(|(category, _)| matches!(category, Profile | ProfileChunk | ProfileChunkUi))
    }

    /// A profile chunk.
    fn chunk(platform: &str) -> Self {
        let limited_by = Category::of_chunks(platform);
        Self { limited_by, counted: limited_by.first().map(|&category| (category, 1)) }
    }

    /// A transaction with `spans` spans, counting itself. A lost transaction counts as one transaction and as its
    /// spans, but a rate limit on spans alone does not stop it (Sentry developer documentation, "Rate Limiting",
    /// "Client Reports").
    pub(crate) fn transaction(spans: u64) -> [Self; 2] {
        [(Category::Transaction, 1), (Category::Span, spans)]
            .map(|counted| Self { limited_by: Category::OF_TRANSACTIONS, counted: Some(counted) })
    }

    /// A container with `spans` spans.
    pub(crate) fn spans(spans: u64) -> Self {
        Self { limited_by: &[Category::Span], counted: Some((Category::Span, spans)) }
    }

    /// The spans of a transaction in a forwarded envelope; the transaction itself is an item of the envelope. `None`
    /// for a container, whose item is counted in spans already.
    fn spans_of(spans: &Spans) -> Option<Self> {
        let [_, counted] = Self::transaction(spans.spans().len() as u64);
        (spans.form() == SpanForm::SentryTransaction).then_some(counted)
    }
}

/// Turns profiles into requests with one chunk each, for the project of their process. The first request carries the
/// pending client report.
pub(crate) fn profiles(
    encoder: &mut EnvelopeEncoder,
    settings: &Settings,
    profiles: &Profiles,
    now: Now,
) -> Prepared<Meta> {
    let Some(position) = routing::of_profiles(settings, [profiles]) else {
        return lost(Reason::Unroutable, Quantities::observations(profiles.observations()));
    };
    let destination = settings.destinations.configured(position);
    let compression = compression(settings.compression, destination);
    let mut report = destination.take_report(now.monotonic_nano);
    let item = report.as_ref().and_then(|report| report.item(seconds(now)));
    let prepared = encoder.profiles(profiles, compression, item).prepared(|chunk| Meta {
        report: report.take(),
        ..RequestTemplate::to(destination, compression).chunk(&chunk)
    });
    if let Some(report) = report {
        destination.report().merge(&report);
    }
    prepared
}

/// Turns an envelope into a request with the client's headers, for the client's own project or the configured one. A
/// pending client report is sent first, in an envelope of its own: the client's envelope stays unchanged, except for a
/// V1 profile that is to be upgraded.
pub(crate) fn envelope(
    encoder: &mut EnvelopeEncoder,
    settings: &Settings,
    envelope: &Envelope,
    now: Now,
) -> Prepared<Meta> {
    let Settled { envelope, report } = settled(envelope);
    let settled = Encoded { messages: Vec::<Message<Infallible>>::new(), report }.prepared(|never| match never {});
    let Some(envelope) = envelope else { return settled };
    let mut prepared = forward(encoder, settings, &envelope, now);
    prepared.losses.merge(&settled.losses);
    prepared.notes.extend(settled.notes);
    prepared
}

fn forward(encoder: &mut EnvelopeEncoder, settings: &Settings, envelope: &Envelope, now: Now) -> Prepared<Meta> {
    let route = match routing::of_client(settings, &envelope.meta, envelope.profiles()) {
        Ok(Some(route)) => route,
        Ok(None) => return lost(Reason::Unroutable, envelope.quantities()),
        Err(TooMany) => return lost(Reason::LimitExceeded, envelope.quantities()),
    };
    let template = RequestTemplate::of_client(settings, &envelope.meta, route);
    let upgraded = settings.upgrade_v1.then(|| encoder.upgraded(envelope, template.compression)).flatten();
    let mut prepared = match upgraded {
        Some((chunks, rest)) => {
            let mut prepared = chunks.prepared(|chunk| template.chunk(&chunk));
            if let Some(rest) = rest {
                let rest = template.forward(encoder, &rest);
                prepared.requests.extend(rest.requests);
                prepared.losses.merge(&rest.losses);
            }
            prepared
        }
        None => template.forward(encoder, envelope),
    };
    prepared.requests.splice(..0, report(&template.destination, now));
    prepared
}

/// How to forward an envelope.
pub(crate) struct RequestTemplate {
    pub(crate) destination: Arc<Destination>,
    pub(crate) compression: Compression,
    headers: Vec<(HeaderName, HeaderValue)>,
    peer_key: Option<String>,
}

impl RequestTemplate {
    /// For requests that this exporter creates.
    pub(crate) fn to(destination: &Arc<Destination>, compression: Compression) -> Self {
        Self { destination: Arc::clone(destination), compression, headers: Vec::new(), peer_key: None }
    }

    /// For what a client sent.
    pub(crate) fn of_client(settings: &Settings, meta: &RequestMeta, route: Route) -> Self {
        let client = meta.sentry_client.as_deref();
        // With a configured DSN, the request must not claim to be from a client that did not name itself.
        let is_named = client.is_some() || matches!(route, Route::Own(_));
        let destination = route.destination(settings);
        let mut headers = forwarded(meta);
        headers.extend(destination.auth_header(client).filter(|_| is_named).map(|auth| (AUTH, auth)));
        let RequestMeta { project_id, public_key, .. } = meta;
        let peer_key = project_id.zip(public_key.as_ref()).map(|(project, key)| rate_limit::peer_key(project, &key.0));
        Self { compression: compression(settings.compression, &destination), destination, headers, peer_key }
    }

    /// Forwards the envelope, unchanged if possible.
    fn forward(&self, encoder: &mut EnvelopeEncoder, envelope: &Envelope) -> Prepared<Meta> {
        let item = |item: &Item| RequestItem {
            limited_by: ItemHeader::read(&item.header).map_or(&[], |header| Category::of_item(&header)),
            counted: Category::count_of(item),
        };
        let spans = || envelope.spans().filter_map(RequestItem::spans_of);
        let items = || envelope.items.iter().map(item).chain(spans()).collect();
        encoder.forward(envelope, &self.destination.dsn, self.compression).prepared(|encoding| Meta {
            body: encoding.map_or(BodyCompression::Ours(self.compression), BodyCompression::AsReceived),
            billed: billed(envelope),
            arrived: envelope.meta.arrival_unix_nano.map(|arrival| (envelope.header.clone(), arrival)),
            ..self.meta(items())
        })
    }

    /// Metadata of a chunk that was converted from a profile in the envelope.
    fn chunk(&self, chunk: &ChunkSummary) -> Meta {
        Meta {
            billed: Duration::from_nanos(chunk.billed_nanos),
            ..self.meta(vec![RequestItem::chunk(&chunk.platform)])
        }
    }

    pub(crate) fn meta(&self, items: Vec<RequestItem>) -> Meta {
        Meta {
            destination: Arc::clone(&self.destination),
            form: BodyForm::Envelope,
            body: BodyCompression::Ours(self.compression),
            items,
            report: None,
            billed: Duration::ZERO,
            headers: self.headers.clone(),
            arrived: None,
            peer_key: self.peer_key.clone(),
            progress: Progress::default(),
        }
    }
}

/// The pending client report of a destination, as a request of its own.
pub(crate) fn report(destination: &Arc<Destination>, now: Now) -> Option<Request<Meta>> {
    let report = destination.take_report(now.monotonic_nano)?;
    let envelope = Envelope { items: vec![report.item(seconds(now))?], ..Envelope::default() };
    // Too small to compress.
    let body = envelope::write(&envelope, Ending::Newline).ok()?;
    let items = vec![RequestItem { limited_by: &[Category::Internal], counted: None }];
    let meta = Meta { report: Some(report), ..RequestTemplate::to(destination, Compression::None).meta(items) };
    Some(Request { body: body.into(), quantities: Quantities::NONE, samples: 0, meta })
}

/// The time that Sentry bills for the chunks in an envelope: from the first to the last timestamp of each, limited to
/// the longest allowed chunk.
fn billed(envelope: &Envelope) -> Duration {
    let windows = envelope.profiles().filter_map(|profiles| profiles.window.as_ref());
    let nanos = windows.map(|window| window.end_unix_nano.saturating_sub(window.start_unix_nano));
    nanos.map(|nanos| Duration::from_nanos(nanos.min(MAX_CHUNK_NANOS))).sum()
}

/// Counts telemetry that has no destination.
pub(crate) fn lost(reason: Reason, quantities: Quantities) -> Prepared<Meta> {
    let mut prepared = Prepared::default();
    prepared.losses.add(reason, quantities);
    prepared
}

/// The compression of a body for a destination.
pub(crate) fn compression(setting: config::EnvelopeCompression, destination: &Destination) -> Compression {
    match setting {
        config::EnvelopeCompression::Auto if destination.zstd() == Zstd::Refused => Compression::GZIP,
        config::EnvelopeCompression::Auto | config::EnvelopeCompression::Zstd => Compression::ZSTD,
        config::EnvelopeCompression::Gzip => Compression::GZIP,
        config::EnvelopeCompression::None => Compression::None,
    }
}

/// The time as in Sentry's reports: seconds since the Unix epoch.
pub(crate) fn seconds(now: Now) -> f64 {
    now.unix_nano as f64 / 1e9
}

/// The client's own headers, so that Sentry attributes the request to the client and not to this exporter.
fn forwarded(meta: &RequestMeta) -> Vec<(HeaderName, HeaderValue)> {
    const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
    // A vector and not a map: thousands of these wait in a queue, and a map of five entries takes a kilobyte.
    let mut headers = Vec::with_capacity(meta.headers.len() + 2);
    let mut set = |name: HeaderName, value: Option<&str>| {
        if let Some(value) = value.and_then(|value| HeaderValue::from_bytes(value.as_bytes()).ok()) {
            headers.push((name, value));
        }
    };
    // Without the header, Sentry uses the address of this machine, which is right for a local client.
    let elsewhere = meta.client_address.filter(|address| !address.is_loopback());
    let address = elsewhere.map(|address| address.to_string());
    let through = match (&meta.forwarded_for, address) {
        (Some(before), Some(address)) => Some(format!("{before}, {address}")),
        (before, address) => address.or(before.as_deref().map(str::to_owned)),
    };
    set(FORWARDED_FOR, through.as_deref());
    for (name, value) in &meta.headers {
        set(HeaderName::from_static(name), Some(value));
    }
    headers
}
