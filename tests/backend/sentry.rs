//! A fake Sentry in this process: receives envelopes, decompresses them, and answers as configured.

use std::collections::{BTreeMap, VecDeque};
use std::io::Read;
use std::sync::{Arc, Mutex};

use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::Value;

use super::{AwaitedList, Listening};

/// The public key in the DSNs of tests. It must never appear in a log.
pub(crate) const KEY: &str = "0123456789abcdef0123456789abcdef";

/// The backend's reaction to a request.
#[derive(Debug, Clone)]
pub(crate) enum Behaviour {
    /// Answers with a status and headers.
    Answer(u16, Vec<(&'static str, &'static str)>),
    /// Never answers.
    Hang,
}

#[derive(Debug, Clone)]
pub(crate) struct ReceivedEnvelope {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    /// The body as received.
    pub(crate) body: Bytes,
    /// The envelope's header; null if it is no envelope but spans in OTLP.
    pub(crate) header: Value,
    /// Each item's header and payload.
    pub(crate) items: Vec<(Value, Vec<u8>)>,
    /// The status of the answer, or 0 without one.
    pub(crate) status: u16,
}

impl ReceivedEnvelope {
    /// The profile chunks among the items.
    pub(crate) fn chunks(&self) -> Vec<Value> {
        self.items
            .iter()
            .filter(|(header, _)| header["type"] == "profile_chunk")
            .map(|(_, payload)| serde_json::from_slice(payload).unwrap())
            .collect()
    }

    /// The types of the items, in order.
    pub(crate) fn kinds(&self) -> Vec<&str> {
        self.items.iter().map(|(header, _)| header["type"].as_str().unwrap()).collect()
    }

    /// The payloads of the items of a type.
    pub(crate) fn items_of(&self, kind: &str) -> Vec<Vec<u8>> {
        self.items.iter().filter(|(header, _)| header["type"] == kind).map(|(_, payload)| payload.clone()).collect()
    }
}

/// The backend. Stops when dropped.
pub(crate) struct SentryBackend {
    pub(crate) received: AwaitedList<ReceivedEnvelope>,
    script: Arc<Mutex<VecDeque<Behaviour>>>,
    otherwise: Arc<Mutex<Behaviour>>,
    listening: Listening,
}

impl SentryBackend {
    /// Starts a backend that answers 200.
    pub(crate) fn start() -> Self {
        let received = AwaitedList::default();
        let script = Arc::new(Mutex::new(VecDeque::new()));
        let otherwise = Arc::new(Mutex::new(Behaviour::Answer(200, Vec::new())));
        let state = (received.clone(), Arc::clone(&script), Arc::clone(&otherwise));
        let listening = Listening::start(move |stream| {
            let state = state.clone();
            async move {
                let service = service_fn(move |request| answer(request, state.clone()));
                let connection = hyper::server::conn::http1::Builder::new();
                // Errors only come from connections that were closed on purpose.
                connection.serve_connection(TokioIo::new(stream), service).await.ok();
            }
        });
        Self { received, script, otherwise, listening }
    }

    /// Its URL, without a project.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.listening.address)
    }

    /// The DSN of a project of this backend.
    pub(crate) fn dsn(&self, project: u32) -> String {
        format!("http://{KEY}@{}/{project}", self.listening.address)
    }

    /// Sets the reaction to the next request without one.
    pub(crate) fn next(&self, behaviour: Behaviour) {
        self.script.lock().unwrap().push_back(behaviour);
    }

    /// Sets the reaction to every request without one.
    pub(crate) fn always(&self, behaviour: Behaviour) {
        *self.otherwise.lock().unwrap() = behaviour;
    }

    /// Waits for `count` profile chunks that were answered with 200.
    pub(crate) fn wait_for_chunks(&self, count: usize) -> Vec<Value> {
        self.wait_for_chunks_until(|chunks| chunks.len() >= count)
    }

    /// Waits until the profile chunks that were answered with 200 satisfy `enough`.
    pub(crate) fn wait_for_chunks_until(&self, enough: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let accepted = |all: &[ReceivedEnvelope]| -> Vec<Value> {
            all.iter().filter(|received| received.status == 200).flat_map(ReceivedEnvelope::chunks).collect()
        };
        accepted(&self.received.wait_until(|all| enough(&accepted(all))))
    }

    /// The received transactions by name. Each name must occur once.
    pub(crate) fn transactions(&self) -> BTreeMap<String, Value> {
        let mut transactions = BTreeMap::new();
        for item in self.received.all().iter().flat_map(|received| received.items_of("transaction")) {
            let event: Value = serde_json::from_slice(&item).unwrap();
            let before = transactions.insert(event["transaction"].as_str().unwrap().to_owned(), event);
            assert_eq!(before, None, "a transaction twice");
        }
        transactions
    }
}

type BackendState = (AwaitedList<ReceivedEnvelope>, Arc<Mutex<VecDeque<Behaviour>>>, Arc<Mutex<Behaviour>>);

async fn answer(request: Request<Incoming>, state: BackendState) -> hyper::Result<Response<Full<Bytes>>> {
    let (received, script, otherwise) = state;
    let behaviour = script.lock().unwrap().pop_front().unwrap_or_else(|| otherwise.lock().unwrap().clone());
    let (parts, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let is_envelope = !parts.uri.path().contains("/integration/otlp/");
    let split = is_envelope.then(|| split_envelope(&decompress(&parts.headers, &body)));
    let (header, items) = split.unwrap_or_default();
    let status = match &behaviour {
        Behaviour::Answer(status, _) => *status,
        Behaviour::Hang => 0,
    };
    let path = parts.uri.path_and_query().unwrap().to_string();
    received.push(ReceivedEnvelope { path, headers: parts.headers, body, header, items, status });
    match behaviour {
        Behaviour::Answer(status, headers) => {
            let mut response = Response::new(Full::new(Bytes::from_static(b"{}")));
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            for (name, value) in headers {
                response.headers_mut().insert(name, value.parse().unwrap());
            }
            Ok(response)
        }
        Behaviour::Hang => std::future::pending().await,
    }
}

/// Undoes the request's `Content-Encoding`.
pub(crate) fn decompress(headers: &HeaderMap, body: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    match headers.get("content-encoding").map(|value| value.to_str().unwrap()) {
        None | Some("identity") => plain.extend_from_slice(body),
        Some("gzip") => drop(flate2::read::GzDecoder::new(body).read_to_end(&mut plain).unwrap()),
        Some("zstd") => plain = zstd::decode_all(body).unwrap(),
        Some(other) => panic!("unexpected content-encoding {other}"),
    }
    plain
}

/// Splits an envelope as Sentry's documentation describes, independently of the code under test.
pub(crate) fn split_envelope(envelope: &[u8]) -> (Value, Vec<(Value, Vec<u8>)>) {
    let line = |from: usize| -> (usize, usize) {
        let end = envelope[from..].iter().position(|&b| b == b'\n').map_or(envelope.len(), |at| from + at);
        (end, (end + 1).min(envelope.len()))
    };
    let (end, mut at) = line(0);
    let header = serde_json::from_slice(&envelope[..end]).unwrap();
    let mut items = Vec::new();
    while at < envelope.len() {
        let (end, next) = line(at);
        if end == at {
            at = next;
            continue;
        }
        let item: Value = serde_json::from_slice(&envelope[at..end]).unwrap();
        let (end, after) = match item["length"].as_u64() {
            Some(length) => (next + length as usize, (next + length as usize + 1).min(envelope.len())),
            None => line(next),
        };
        items.push((item, envelope[next..end].to_vec()));
        at = after;
    }
    (header, items)
}
