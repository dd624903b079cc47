//! Telemetry to finished requests.

use std::time::Duration;

use http::header::{HeaderMap, HeaderName, HeaderValue, ORIGIN, USER_AGENT};
use profbridge_codec::sentry::Encoder;
use profbridge_engine::component::{Now, Prepared};
use profbridge_model::{Envelope, Profiles, Quantities, Reason};
use profbridge_net::compression::Compression;
use profbridge_wire::sentry::envelope::ItemHeader;
use profbridge_wire::sentry::{Category, ClientReport, Told};

use crate::destination::{Destination, Zstd};
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

/// Profiles as requests to the project that their process belongs to, a chunk in each. The first takes along what the
/// server was not told about losses yet.
pub(crate) fn profiles(encoder: &mut Encoder, settings: &Settings, profiles: &Profiles, now: Now) -> Prepared<Meta> {
    let Some(position) = route(settings, [profiles]) else {
        return unroutable(Quantities::observations(profiles.observations()));
    };
    let destination = &settings.destinations[position];
    let compression = compression(settings.compression, destination);
    let mut report = destination.take_report();
    let item = report.as_ref().and_then(|report| report.item(seconds(now)));
    let prepared = encoder.profiles(profiles, compression, item).prepared(|chunk| {
        let limited_by = Category::of_chunks(&chunk.platform);
        Meta {
            destination: position,
            compression,
            items: vec![Contained { limited_by, counted: limited_by.first().map(|&category| (category, 1)) }],
            report: report.take(),
            billed: Duration::from_nanos(chunk.billed_nanos),
            headers: HeaderMap::new(),
        }
    });
    if let Some(report) = report {
        destination.report().merge(&report);
    }
    prepared
}

/// An envelope as a request, with the client's own headers.
pub(crate) fn envelope(encoder: &mut Encoder, settings: &Settings, envelope: &Envelope) -> Prepared<Meta> {
    let Some(position) = route(settings, envelope.profiles()) else { return unroutable(envelope.quantities()) };
    let destination = &settings.destinations[position];
    let compression = compression(settings.compression, destination);
    let items = envelope.items.iter().map(|item| Contained {
        limited_by: ItemHeader::read(&item.header).map_or(&[], |header| Category::of_item(&header)),
        counted: Category::count_of(item),
    });
    encoder.envelope(envelope, Some(destination.dsn()), compression).prepared(|_| Meta {
        destination: position,
        compression,
        items: items.clone().collect(),
        report: None,
        billed: Duration::ZERO,
        headers: forwarded(envelope),
    })
}

/// Telemetry that goes nowhere.
fn unroutable(quantities: Quantities) -> Prepared<Meta> {
    let mut prepared = Prepared::default();
    prepared.losses.add(Reason::Unroutable, quantities);
    prepared
}

/// Where profiles go: the first of their resources that has the attribute decides, else what their environment says of
/// it. A service is called in the same way as in the release, see [`Told::service`].
fn route<'a>(settings: &Settings, batches: impl IntoIterator<Item = &'a Profiles>) -> Option<usize> {
    if settings.routes.is_empty() {
        return settings.default;
    }
    let value = batches.into_iter().find_map(|batch| match settings.from_attribute.as_str() {
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
