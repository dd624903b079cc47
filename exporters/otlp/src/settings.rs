//! The checked configuration.

use std::time::Duration;

use ::http::Uri;
use profbridge_codec::otlp::{Encoding, Signal};
use profbridge_engine::config::{Problems, Section};
use profbridge_engine::http_out::{Peer, check_headers, check_url};
use profbridge_net::client::{GrpcClientConfig, HttpClientConfig, Proxies, grpc_destination, host_and_port};
use profbridge_net::compression::Compression;

use crate::config::{AttributeReferences, Config, Protocol};

/// A smaller request has no room for a resource and a stack.
const MIN_REQUEST_BYTES: u64 = 1024;

/// Protobuf limits messages to 2 GiB; receivers have lower limits.
const MAX_REQUEST_BYTES: u64 = i32::MAX as u64;

/// The largest answer that is read: 4 MiB, as the specification recommends (opentelemetry-proto
/// `docs/specification.md`).
pub(crate) const MAX_RESPONSE_BYTES: usize = 4 << 20;

/// A checked section.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) target: OtlpDestination,
    /// The signals that are sent.
    pub(crate) signals: Vec<Signal>,
    /// The server, and the headers of each request.
    pub(crate) peer: Peer,
    pub(crate) encoding: Encoding,
    pub(crate) compression: Compression,
    pub(crate) timeout: Duration,
    pub(crate) max_request_bytes: usize,
    /// Whether `original_payload` is kept in unchanged profiles.
    pub(crate) original_payload: bool,
    /// Whether attributes received as references are sent as references.
    pub(crate) keep_references: bool,
    pub(crate) fill_profile_id: bool,
}

/// Destination of requests.
#[derive(Debug)]
pub(crate) enum OtlpDestination {
    Grpc(GrpcClientConfig),
    /// Each signal has its own URL. Signals without one are not sent.
    Http {
        urls: Vec<(Signal, Uri)>,
        client: Box<HttpClientConfig>,
    },
}

impl OtlpDestination {
    /// Whether a signal can be sent.
    pub(crate) fn takes(&self, signal: Signal) -> bool {
        matches!(self, OtlpDestination::Grpc(_)) || self.url(signal).is_some()
    }

    /// The URL of a signal. HTTP only.
    pub(crate) fn url(&self, signal: Signal) -> Option<&Uri> {
        match self {
            OtlpDestination::Http { urls, .. } => urls.iter().find(|(of, _)| *of == signal).map(|(_, url)| url),
            OtlpDestination::Grpc(_) => None,
        }
    }

    /// The servers, as `HOST:PORT` each.
    pub(crate) fn addresses(&self) -> Vec<String> {
        match self {
            OtlpDestination::Grpc(client) => {
                grpc_destination(&client.endpoint, client.tls.insecure).iter().map(host_and_port).collect()
            }
            OtlpDestination::Http { urls, .. } => urls.iter().map(|(_, url)| host_and_port(url)).collect(),
        }
    }
}

impl Settings {
    /// Checks the section of an exporter whose type defaults to `protocol`. Reads only the environment variables of
    /// proxies.
    pub(crate) fn check(config: Config, protocol: Protocol, section: &Section) -> Result<Settings, Problems> {
        let mut problems = Vec::new();
        let headers = check_headers(section, &config.headers, &mut problems);
        let timeout = config.timeout.get();
        if timeout.is_zero() {
            problems.push(section.problem("timeout", "an attempt without time cannot succeed", "write `30s`"));
        }
        if config.signals.is_empty() {
            let hint = "write `[profiles, traces]`, or one of them";
            problems.push(section.problem("signals", "an exporter without a signal sends nothing", hint));
        }
        let bytes = config.max_request_bytes.get();
        if !(MIN_REQUEST_BYTES..=MAX_REQUEST_BYTES).contains(&bytes) {
            let message = format!("a request is limited to {MIN_REQUEST_BYTES} to {MAX_REQUEST_BYTES} bytes");
            problems.push(section.problem("max_request_bytes", message, "write `64MiB`"));
        }
        let target = match config.protocol.unwrap_or(protocol) {
            Protocol::Grpc => grpc(&config, section),
            Protocol::Http => http(&config, section, timeout),
        };
        let (target, url) = match target {
            Ok(target) => target,
            Err(found) => {
                let all = found.clone().into_iter().chain(problems).collect();
                return Err(Problems::new(all).unwrap_or(found));
            }
        };
        Problems::check(problems)?;
        Ok(Settings {
            target,
            signals: config.signals.iter().copied().map(Signal::from).collect(),
            peer: Peer::new(&url, headers, &config.tls),
            encoding: config.encoding,
            compression: config.compression.into(),
            timeout,
            max_request_bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
            original_payload: config.original_payload,
            keep_references: config.attribute_references == AttributeReferences::Keep,
            fill_profile_id: config.fill_profile_id,
        })
    }
}

/// The target, and the URL of its server.
type Checked = Result<(OtlpDestination, Uri), Problems>;

fn grpc(config: &Config, section: &Section) -> Checked {
    for (key, written) in Signal::ALL.map(|signal| config.signal_endpoint(signal)) {
        if !written.is_empty() {
            let hint = "write `endpoint: host:4317`, or `protocol: http/protobuf`";
            return Err(section.problem(key, "gRPC has no paths, so there is no such key for it", hint).into());
        }
    }
    if config.encoding == Encoding::Json {
        let hint = "delete it, or write `protocol: http/protobuf` with the URL of an HTTP receiver";
        return Err(section.problem("encoding", "OTLP over gRPC is protobuf", hint).into());
    }
    let hint = "write `endpoint: host:4317`, with `tls: {insecure: true}` where the receiver has no TLS";
    if config.endpoint.is_empty() {
        return Err(section.problem("endpoint", "the key `endpoint` is missing", hint).into());
    }
    let destination = grpc_destination(&config.endpoint, config.tls.insecure)
        .map_err(|error| section.problem("endpoint", error.to_string(), hint))?;
    let client = GrpcClientConfig { tls: config.tls.clone(), ..GrpcClientConfig::new(config.endpoint.clone()) };
    Ok((OtlpDestination::Grpc(client), destination))
}

fn http(config: &Config, section: &Section, timeout: Duration) -> Checked {
    let mut urls = Vec::new();
    for signal in Signal::ALL {
        urls.extend(url(config, section, signal)?.map(|url| (signal, url)));
    }
    let Some((of_first, first)) = urls.first() else {
        let hint = "write `endpoint: http://host:4318`";
        return Err(section.problem("endpoint", "the key `endpoint` is missing", hint).into());
    };
    let encrypted = first.scheme_str() == Some("https");
    if let Some((other, _)) = urls.iter().find(|(_, url)| url.scheme() != first.scheme()) {
        let hint = "write two exporters, one for each";
        let [one, another] = [of_first, other].map(|signal| signal.names().name);
        let message = format!("{one} and {another} cannot go over TLS and without it by one exporter");
        return Err(section.problem(config.signal_endpoint(*other).0, message, hint).into());
    }
    let first = first.clone();
    let client = HttpClientConfig {
        tls: encrypted.then(|| config.tls.clone()),
        proxies: Proxies::from_env(),
        timeout,
        max_idle_connections: config.sending_queue.num_consumers,
        http2_prior_knowledge: config.http2_prior_knowledge,
        max_response_bytes: MAX_RESPONSE_BYTES,
        ..HttpClientConfig::default()
    };
    Ok((OtlpDestination::Http { urls, client: Box::new(client) }, first))
}

/// The URL of one signal: the one configured for it, or its path appended to the endpoint. `None` if neither is
/// configured.
fn url(config: &Config, section: &Section, signal: Signal) -> Result<Option<Uri>, Problems> {
    let (key, whole) = config.signal_endpoint(signal);
    let hint = "write `http://host:4318` or `https://...`";
    let base = &*config.endpoint;
    if !whole.is_empty() {
        return Ok(Some(check_url(section, key, whole, hint)?));
    }
    if base.is_empty() {
        return Ok(None);
    }
    check_url(section, "endpoint", base, hint)?;
    if base.contains(['?', '#']) {
        let rule = "the endpoint cannot be used: a query belongs into `profiles_endpoint`, which takes the whole URL";
        return Err(section.problem("endpoint", rule, hint).into());
    }
    let url = base.strip_suffix('/').unwrap_or(base).to_owned() + signal.names().http_path;
    Ok(Some(check_url(section, "endpoint", &url, hint)?))
}
