//! What a section means: checked once, here.

use std::time::Duration;

use ::http::header::{HeaderMap, HeaderName, HeaderValue};
use ::http::uri::Scheme;
use ::http::{Uri, header};
use profbridge_codec::otlp::{Encoding, Signal};
use profbridge_engine::config::{Problem, Problems, Section};
use profbridge_net::client::{GrpcClientConfig, HttpClientConfig, Proxies, grpc_destination, host_and_port};
use profbridge_net::compression::Compression;

use crate::config::{AttributeReferences, Config, Protocol};

/// The path of profiles that the specification appends to an HTTP endpoint (opentelemetry-proto
/// `docs/specification.md`; the signal is in development, and so is its path).
const PROFILES_PATH: &str = "/v1development/profiles";

/// The path of traces.
const TRACES_PATH: &str = "/v1/traces";

/// Below this a request has no room for a resource and a stack.
const MIN_REQUEST_BYTES: u64 = 1024;

/// Protobuf messages end at 2 GiB, and receivers long before.
const MAX_REQUEST_BYTES: u64 = i32::MAX as u64;

/// The largest answer: the specification's recommendation of 4 MiB (opentelemetry-proto `docs/specification.md`).
pub(crate) const MAX_RESPONSE_BYTES: usize = 4 << 20;

/// Headers that the exporter writes itself, or that would break a connection.
const RESERVED: [HeaderName; 11] = [
    header::CONNECTION,
    header::CONTENT_ENCODING,
    header::CONTENT_LENGTH,
    header::CONTENT_TYPE,
    header::EXPECT,
    header::HOST,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::ACCEPT_ENCODING,
];

/// A checked section.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) target: Target,
    /// Host and port, for messages.
    pub(crate) host: String,
    /// What may be behind a connection that ends before an answer, where it is encrypted: in TLS 1.3 a client learns
    /// nothing else of a certificate that is refused or missing, since its own handshake is over by then (RFC 8446,
    /// sections 2 and 4.4.2.4).
    pub(crate) tls_suspicion: Option<&'static str>,
    pub(crate) encoding: Encoding,
    pub(crate) compression: Compression,
    pub(crate) headers: HeaderMap,
    pub(crate) timeout: Duration,
    pub(crate) max_request_bytes: usize,
    /// Whether `original_payload` is passed on with profiles that nobody changed.
    pub(crate) original_payload: bool,
    /// Whether attributes that came as references leave as references.
    pub(crate) keep_references: bool,
    pub(crate) fill_profile_id: bool,
}

/// Where requests go.
#[derive(Debug)]
pub(crate) enum Target {
    Grpc(GrpcClientConfig),
    /// Each signal has a URL of its own; a signal without one is not sent.
    Http {
        profiles: Option<Uri>,
        traces: Option<Uri>,
        client: Box<HttpClientConfig>,
    },
}

impl Target {
    /// Whether a signal can be sent there.
    pub(crate) fn takes(&self, signal: Signal) -> bool {
        matches!(self, Target::Grpc(_)) || self.url(signal).is_some()
    }

    /// The URL of a signal, over HTTP.
    pub(crate) fn url(&self, signal: Signal) -> Option<&Uri> {
        match (self, signal) {
            (Target::Http { profiles, .. }, Signal::Profiles) => profiles.as_ref(),
            (Target::Http { traces, .. }, Signal::Traces) => traces.as_ref(),
            (Target::Grpc(_), _) => None,
        }
    }

    /// Where it connects to, each as `HOST:PORT`.
    pub(crate) fn addresses(&self) -> Vec<String> {
        match self {
            Target::Grpc(client) => {
                grpc_destination(&client.endpoint, client.tls.insecure).iter().map(host_and_port).collect()
            }
            Target::Http { profiles, traces, .. } => profiles.iter().chain(traces).map(host_and_port).collect(),
        }
    }

    fn is_encrypted(&self) -> bool {
        match self {
            Target::Grpc(client) => grpc_destination(&client.endpoint, client.tls.insecure)
                .is_ok_and(|destination| destination.scheme() == Some(&Scheme::HTTPS)),
            Target::Http { profiles, traces, .. } => {
                profiles.iter().chain(traces).any(|url| url.scheme() == Some(&Scheme::HTTPS))
            }
        }
    }
}

impl Settings {
    /// Checks a section of an exporter whose type speaks `protocol` unless the section says otherwise. Touches nothing
    /// but the environment variables of proxies.
    pub(crate) fn check(config: Config, protocol: Protocol, section: &Section) -> Result<Settings, Problems> {
        let mut problems = Vec::new();
        let headers = headers(&config, section, &mut problems);
        let timeout = config.timeout.get();
        if timeout.is_zero() {
            problems.push(section.problem("timeout", "an attempt without time cannot succeed", "write `30s`"));
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
        let (target, host) = match target {
            Ok(target) => target,
            Err(found) => {
                let all = found.clone().into_iter().chain(problems).collect();
                return Err(Problems::new(all).unwrap_or(found));
            }
        };
        Problems::check(problems)?;
        Ok(Settings {
            tls_suspicion: target.is_encrypted().then_some(match &config.tls.cert_file {
                Some(_) => "the peer may have refused the TLS client certificate (`tls.cert_file`); its log says why",
                None => "the peer may want a TLS client certificate (`tls.cert_file`); its log says why",
            }),
            target,
            host,
            encoding: config.encoding,
            compression: config.compression.into(),
            headers,
            timeout,
            max_request_bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
            original_payload: config.original_payload,
            keep_references: config.attribute_references == AttributeReferences::Keep,
            fill_profile_id: config.fill_profile_id,
        })
    }
}

type Checked = Result<(Target, String), Problems>;

fn grpc(config: &Config, section: &Section) -> Checked {
    for (key, written) in
        [("profiles_endpoint", &config.profiles_endpoint), ("traces_endpoint", &config.traces_endpoint)]
    {
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
    let host = destination.authority().map(ToString::to_string).unwrap_or_default();
    let client = GrpcClientConfig { tls: config.tls.clone(), ..GrpcClientConfig::new(config.endpoint.clone()) };
    Ok((Target::Grpc(client), host))
}

fn http(config: &Config, section: &Section, timeout: Duration) -> Checked {
    let paths = [
        ("profiles_endpoint", &config.profiles_endpoint, PROFILES_PATH),
        ("traces_endpoint", &config.traces_endpoint, TRACES_PATH),
    ];
    let urls = paths.map(|(key, whole, path)| url(config, section, key, whole, path));
    let [profiles, traces] = urls;
    let (profiles, traces) = (profiles?, traces?);
    let Some(first) = profiles.as_ref().or(traces.as_ref()) else {
        let hint = "write `endpoint: http://host:4318`";
        return Err(section.problem("endpoint", "the key `endpoint` is missing", hint).into());
    };
    let encrypted = first.scheme_str() == Some("https");
    if traces.as_ref().is_some_and(|traces| traces.scheme() != first.scheme()) {
        let hint = "write two exporters, one for each";
        let message = "profiles and traces cannot go over TLS and without it by one exporter";
        return Err(section.problem("traces_endpoint", message, hint).into());
    }
    let host = first.authority().map(ToString::to_string).unwrap_or_default();
    let client = HttpClientConfig {
        tls: encrypted.then(|| config.tls.clone()),
        proxies: Proxies::from_env(),
        timeout,
        max_idle_connections: config.sending_queue.num_consumers,
        http2_prior_knowledge: config.http2_prior_knowledge,
        max_response_bytes: MAX_RESPONSE_BYTES,
        ..HttpClientConfig::default()
    };
    Ok((Target::Http { profiles, traces, client: Box::new(client) }, host))
}

/// Where one signal goes: the URL that is written for it, or its path behind the endpoint; `None` where neither is
/// written.
fn url(config: &Config, section: &Section, key: &str, whole: &str, path: &str) -> Result<Option<Uri>, Problems> {
    let (key, written, text) = match (whole, &*config.endpoint) {
        ("", "") => return Ok(None),
        ("", base) => ("endpoint", base, format!("{}{path}", base.strip_suffix('/').unwrap_or(base))),
        (whole, _) => (key, whole, whole.to_owned()),
    };
    let refused = |rule: &str| -> Problems {
        section
            .problem(key, format!("the endpoint cannot be used: {rule}"), "write `http://host:4318` or `https://...`")
            .into()
    };
    if !text.starts_with("http://") && !text.starts_with("https://") {
        return Err(refused("the URL does not begin with http:// or https://"));
    }
    if written.split_once("://").is_none_or(|(_, rest)| rest.is_empty() || rest.starts_with('/')) {
        return Err(refused("the host is missing"));
    }
    if key == "endpoint" && written.contains(['?', '#']) {
        return Err(refused("a query belongs into `profiles_endpoint`, which takes the whole URL"));
    }
    let url: Uri = text.parse().map_err(|_| refused("it is not a URL"))?;
    let authority = url.authority().ok_or_else(|| refused("the host is missing"))?;
    if authority.as_str().contains('@') {
        return Err(refused("user information belongs into a header"));
    }
    if authority.host().is_empty() {
        return Err(refused("the host is missing"));
    }
    let after_host = authority.as_str().rsplit(']').next().unwrap_or_default();
    if authority.port_u16().is_none() && after_host.contains(':') {
        return Err(refused("the port is not a number from 0 to 65535"));
    }
    Ok(Some(url))
}

fn headers(config: &Config, section: &Section, problems: &mut Vec<Problem>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in &config.headers {
        let key = format!("headers.\"{name}\"");
        let mut refuse = |message: &str, hint: &str| problems.push(section.problem(&key, message, hint));
        let Ok(header) = HeaderName::try_from(name) else {
            refuse("this is no name of a header", "names have letters, digits and dashes");
            continue;
        };
        let Ok(mut content) = HeaderValue::try_from(value.expose()) else {
            refuse("the value of this header has characters that headers cannot have", "");
            continue;
        };
        if RESERVED.contains(&header) || header.as_str().starts_with("grpc-") {
            refuse("this header is written by the exporter itself", "delete it");
            continue;
        }
        if header.as_str().ends_with("-bin") {
            refuse("binary metadata is not supported", "delete it");
            continue;
        }
        content.set_sensitive(true);
        headers.insert(header, content);
    }
    headers
}
