//! Telemetry to finished requests.

use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue, ORIGIN, USER_AGENT};
use profbridge_engine::component::{Now, Prepared, Request};
use profbridge_model::{Envelope, Profiles, Quantities, Reason, TimelessTypes};
use profbridge_net::compression::Compression;
use profbridge_wire::sentry::chunk::{ChunkSummary, Converter, Report};
use profbridge_wire::sentry::envelope::{self, Ending, Header, ItemHeader};
use profbridge_wire::sentry::{Category, ClientReport, Dsn, Told};
use serde_json::Value as Json;

use crate::destination::{Destination, Zstd};
use crate::pack::{Envelopes, Packer};
use crate::{Settings, config};

/// What the exporter knows of a request beside its body.
#[derive(Debug)]
pub struct Meta {
    /// The position of the destination in the settings.
    pub(crate) destination: usize,
    /// How the body is compressed.
    pub(crate) compression: Compression,
    /// What is in it.
    pub(crate) items: Vec<Contained>,
    /// What it tells the server about losses; merged back where it is lost itself.
    pub(crate) report: Option<Box<ClientReport>>,
    /// The time that Sentry bills for it.
    pub(crate) billed: Duration,
    /// What the client said whose envelope is forwarded.
    pub(crate) headers: HeaderMap,
}

/// An item of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Contained {
    /// A limit on one of these stops it.
    pub(crate) limited_by: &'static [Category],
    /// What it is counted as, and how many, where it is lost.
    pub(crate) counted: Option<(Category, u64)>,
}

/// What makes requests: one at a time, since it keeps its memory from one to the next.
pub(crate) struct Workshop {
    converter: Converter,
    packer: Packer,
    /// What the log has said once.
    timeless: TimelessTypes,
}

impl Workshop {
    pub(crate) fn new(settings: &Settings) -> Self {
        let converter = Converter::new(settings.chunk.clone());
        Self { converter, packer: Packer::default(), timeless: TimelessTypes::default() }
    }

    pub(crate) fn profiles(&mut self, settings: &Settings, profiles: &Profiles, now: Now) -> Prepared<Meta> {
        let mut prepared = Prepared::default();
        let Some(position) = route(settings, std::slice::from_ref(profiles)) else {
            prepared.losses.add_observations(Reason::Unroutable, profiles.observations());
            return prepared;
        };
        let destination = &settings.destinations[position];
        let compression = compression(settings.compression, destination);
        let mut report = destination.take_report();
        let item = report.as_ref().and_then(|report| report.item(seconds(now)));
        let mut envelopes = Envelopes::new(&mut self.packer, compression, item);
        let outcome = self.converter.convert(profiles, &mut envelopes);
        for timeless in self.timeless.look_at(profiles) {
            tracing::warn!("dropped as no_time_unit: {timeless}");
        }
        let finished = envelopes.finished;

        let mut samples = Shares::new(samples(profiles), &finished);
        for (body, summary) in finished {
            let limited_by = Category::of_chunks(&summary.platform);
            prepared.requests.push(Request {
                body,
                quantities: Quantities::observations(summary.observations + summary.synthesized),
                samples: samples.of(&summary),
                meta: Meta {
                    destination: position,
                    compression,
                    items: vec![Contained { limited_by, counted: limited_by.first().map(|&category| (category, 1)) }],
                    report: report.take(),
                    billed: Duration::from_nanos(summary.billed_nanos),
                    headers: HeaderMap::new(),
                },
            });
        }
        if let Some(report) = report {
            destination.report().merge(&report);
        }
        note(&mut prepared, outcome);
        prepared
    }

    pub(crate) fn envelope(&mut self, settings: &Settings, envelope: &Envelope) -> Prepared<Meta> {
        let mut prepared = Prepared::default();
        let quantities = envelope.quantities();
        let Some(position) = route(settings, &envelope.profiles) else {
            prepared.losses.add(Reason::Unroutable, quantities);
            return prepared;
        };
        let destination = &settings.destinations[position];
        let compression = compression(settings.compression, destination);
        let mut written = Vec::new();
        let bytes = match readdressed(envelope, destination.dsn()) {
            Some(header) => {
                let envelope = Envelope { header, items: envelope.items.clone(), ..Envelope::default() };
                envelope::write(&envelope, Ending::Newline)
            }
            None => envelope::write(envelope, Ending::Newline),
        };
        written.extend(bytes);
        let items = envelope.items.iter().map(|item| Contained {
            limited_by: ItemHeader::read(&item.header).map_or(&[], |header| Category::of_item(&header)),
            counted: Category::count_of(item),
        });
        match self.packer.pack(compression, &written) {
            Ok(body) => prepared.requests.push(Request {
                body,
                quantities,
                samples: envelope.profiles.iter().map(samples).sum(),
                meta: Meta {
                    destination: position,
                    compression,
                    items: items.collect(),
                    report: None,
                    billed: Duration::ZERO,
                    headers: forwarded(envelope),
                },
            }),
            Err(_) => prepared.losses.add(Reason::Internal, quantities),
        }
        prepared
    }
}

/// Where profiles go: the first of their resources that has the attribute decides, else what their environment says of it.
/// A service is called in the same way as in the release, see [`Told::service`].
fn route(settings: &Settings, batches: &[Profiles]) -> Option<usize> {
    if settings.routes.is_empty() {
        return settings.default;
    }
    let value = batches.iter().find_map(|batch| match settings.from_attribute.as_str() {
        "service.name" => Told::of(batch).service(),
        key => Told::of(batch).text(key),
    });
    value.and_then(|value| settings.routes.get(&value).copied()).or(settings.default)
}

/// How a body for a destination is compressed.
pub(crate) fn compression(setting: config::Compression, destination: &Destination) -> Compression {
    match setting {
        config::Compression::Auto if destination.zstd() == Zstd::Refused => Compression::GZIP,
        config::Compression::Auto | config::Compression::Zstd => Compression::ZSTD,
        config::Compression::Gzip => Compression::GZIP,
        config::Compression::None => Compression::None,
    }
}

/// The time as Sentry's reports have it: seconds since the Unix epoch.
pub(crate) fn seconds(now: Now) -> f64 {
    now.unix_nano as f64 / 1e9
}

fn note(prepared: &mut Prepared<Meta>, report: Report) {
    if let Some(error) = &report.error {
        // Compressing into memory fails only where there is none.
        tracing::error!(%error, "a chunk could not be compressed");
    }
    prepared.losses.merge(&report.losses);
    prepared.synthesized = Quantities::observations(report.synthesized);
    prepared.notes.extend(report.counts());
}

/// The number of `Sample` messages of a batch.
fn samples(profiles: &Profiles) -> u64 {
    profiles.profiles().map(|profile| profile.samples.len() as u64).sum()
}

/// Shares the number of samples in OTLP's sense out to chunks, by their observations: one such sample may be in many.
struct Shares {
    samples: u64,
    observations: u64,
    shared: u64,
    seen: u64,
}

impl Shares {
    fn new(samples: u64, finished: &[(Bytes, ChunkSummary)]) -> Self {
        let observations = finished.iter().map(|(_, summary)| summary.observations).sum();
        Self { samples, observations, shared: 0, seen: 0 }
    }

    fn of(&mut self, summary: &ChunkSummary) -> u64 {
        self.seen += summary.observations;
        let until = u128::from(self.samples) * u128::from(self.seen) / u128::from(self.observations.max(1));
        let until = u64::try_from(until).unwrap_or(u64::MAX);
        let share = until - self.shared;
        self.shared = until;
        share
    }
}

/// The envelope's header without its DSN, where it names another than the one it goes to: Relay refuses the difference
/// (getsentry/relay `relay-server/src/envelope/mod.rs`). `None` where it can stay as it is.
fn readdressed(envelope: &Envelope, to: &Dsn) -> Option<Bytes> {
    let header = Header::read(&envelope.header).ok()?;
    let named = header.dsn?;
    let same = named.parse::<Dsn>().is_ok_and(|named| {
        named.project_id() == to.project_id() && named.public_key().eq_ignore_ascii_case(to.public_key())
    });
    if same {
        return None;
    }
    let mut header: serde_json::Map<String, Json> = serde_json::from_slice(&envelope.header).ok()?;
    header.remove("dsn");
    Some(Json::Object(header).to_string().into())
}

/// What the client said, so that Sentry takes it for the client's and not for ours.
fn forwarded(envelope: &Envelope) -> HeaderMap {
    const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
    let meta = &envelope.meta;
    let mut headers = HeaderMap::new();
    let mut set = |name: HeaderName, value: Option<&str>| {
        if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
            headers.insert(name, value);
        }
    };
    let address = meta.client_address.map(|address| address.to_string());
    set(FORWARDED_FOR, address.as_deref());
    set(USER_AGENT, meta.user_agent.as_deref());
    set(ORIGIN, meta.origin.as_deref());
    headers
}
