//! Envelopes of Sentry's SDKs, as captured on their way to Sentry, sent through the binary.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::thread;

use serde_json::{Value, json};

use crate::backend::sentry::{Behaviour, KEY, ReceivedEnvelope, SentryBackend};
use crate::process::{PATIENCE, Profbridge, eventually};

/// The captures with their items, and whether one of them is a chunk.
const CAPTURES: [(&str, &[&str]); 9] = [
    ("python-2.75-profile_chunk", &["profile_chunk"]),
    ("python-2.75-transaction", &["transaction"]),
    ("node-10.75-profile_chunk", &["profile_chunk"]),
    ("node-10.75-transaction", &["transaction"]),
    ("node-10.75-v1-transaction+profile", &["transaction", "profile"]),
    ("node-11.1-profile_chunk", &["profile_chunk"]),
    ("node-11.1-span", &["span"]),
    ("node-10.78-span-stream", &["span"]),
    ("node-11.12-span-stream", &["span"]),
];

/// Captures of streamed spans. For SDKs that name the profiler on segments only: its id, and whether a chunk of it is
/// among the captures.
const STREAMS: [(&str, Option<(&str, bool)>); 8] = [
    ("python-2.75-span-stream", None),
    ("python-3.0b2-span-stream", None),
    ("python-3.0b2-span-link", None),
    ("python-3.0b2-span-threads-asyncio-error", None),
    ("python-3.0b2-span-own-posts", None),
    ("node-11.1-span", Some(("29a0028e3c8648e8ba8a369c9a501923", true))),
    ("node-11.12-span-stream", Some(("59004354eeac43a5a8a680f1b1552894", true))),
    ("node-10.78-span-stream", Some(("0578d5bf287748468902cd43b5af2d7a", false))),
];

/// The key of another client.
const OTHER_KEY: &str = "fedcba9876543210fedcba9876543210";

/// Immediate retries, so that tests do not wait for them.
const SOON: &str = "retry_on_failure: {initial_interval: 10ms, max_interval: 10ms, randomization_factor: 0}";

/// A pipeline from the receiver to Sentry, with this exporter.
fn configuration(exporter: &str, more: &str) -> String {
    format!(
        "receivers: {{sentry: {{endpoint: '127.0.0.1:0', cors_origins: ['https://shop.example']}}}}
exporters:
  sentry: {{{exporter}, {SOON}}}
service:
{more}  pipelines: {{envelopes: {{receivers: [sentry], exporters: [sentry]}}}}
"
    )
}

fn to_upstream(sentry: &SentryBackend) -> Profbridge {
    Profbridge::start(&configuration(&format!("upstream: '{}'", sentry.url()), ""))
}

/// Stops profbridge and checks that its log contains neither key.
fn stop(profbridge: Profbridge) -> String {
    let (status, log) = profbridge.stop();
    assert!(status.success(), "{log}");
    assert!(!log.contains(KEY) && !log.contains(OTHER_KEY), "{log}");
    log
}

/// A request of an SDK.
pub(crate) struct Sent {
    /// The request line and headers, without those that only describe this transfer.
    head: Vec<String>,
    chunked: bool,
    pub(crate) body: Vec<u8>,
}

impl Sent {
    /// A file of a capture.
    fn read(name: &str, ending: &str) -> Vec<u8> {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../wire/testdata/sentry");
        std::fs::read(folder.join(format!("{name}.{ending}"))).unwrap()
    }

    /// A capture, with the compression of its SDK.
    pub(crate) fn capture(name: &str) -> Self {
        let head = String::from_utf8(Self::read(name, "headers")).unwrap();
        let lines = head.lines().filter(|line| !line.is_empty()).map(str::to_owned);
        let of_transport = |line: &String| {
            let name = line.split(':').next().unwrap().to_lowercase();
            ["host", "connection", "transfer-encoding", "content-length"].contains(&&*name)
        };
        let mut body = Self::read(name, "envelope");
        if head.to_lowercase().contains("content-encoding: gzip") {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(&body).unwrap();
            body = encoder.finish().unwrap();
        }
        let chunked = head.contains("Transfer-Encoding: chunked");
        Self { head: lines.filter(|line| !of_transport(line)).collect(), chunked, body }
    }

    /// An envelope for a project with a key.
    pub(crate) fn plain(project: u64, key: &str, body: impl Into<Vec<u8>>) -> Self {
        let head = [
            format!("POST /api/{project}/envelope/ HTTP/1.1"),
            format!("X-Sentry-Auth: Sentry sentry_key={key}, sentry_version=7"),
        ];
        Self { head: head.into(), chunked: false, body: body.into() }
    }

    /// Adds a header.
    pub(crate) fn with(mut self, header: &str) -> Self {
        self.head.push(header.to_owned());
        self
    }

    pub(crate) fn to(&self, address: SocketAddr) -> RawResponse {
        let mut request = self.head.join("\r\n").into_bytes();
        request.extend_from_slice(b"\r\nHost: localhost\r\nConnection: close\r\n");
        if self.chunked {
            request.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
            for part in self.body.chunks(10_000) {
                request.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
                request.extend_from_slice(part);
                request.extend_from_slice(b"\r\n");
            }
            request.extend_from_slice(b"0\r\n\r\n");
        } else {
            request.extend_from_slice(format!("Content-Length: {}\r\n\r\n", self.body.len()).as_bytes());
            request.extend_from_slice(&self.body);
        }
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(&request).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        RawResponse(answer)
    }
}

/// An answer with head and body.
#[derive(Debug)]
pub(crate) struct RawResponse(String);

impl RawResponse {
    pub(crate) fn status(&self) -> u16 {
        crate::client::status(self.0.as_bytes())
    }

    fn header(&self, name: &str) -> Option<&str> {
        let lines = self.0.lines().skip(1).take_while(|line| !line.is_empty());
        let mut headers = lines.filter_map(|line| line.split_once(": "));
        headers.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

/// An event whose id ends in a number.
fn event(number: u64) -> Vec<u8> {
    format!("{{\"event_id\":\"{number:032x}\"}}\n{{\"type\":\"event\"}}\n{{\"message\":\"number {number}\"}}\n").into()
}

/// The ids of the events that were answered with 200.
fn accepted(all: &[ReceivedEnvelope]) -> Vec<u64> {
    let accepted = all.iter().filter(|received| received.status == 200);
    let ids = accepted.filter_map(|received| received.header["event_id"].as_str());
    let mut ids: Vec<u64> = ids.map(|id| u64::from_str_radix(id, 16).unwrap()).collect();
    ids.sort_unstable();
    ids
}

/// Guarantees: SDK requests arrive byte for byte, with the same compression, at their own project and with their own
/// key, with the headers that describe the client and its proxies; each gets the answer that Sentry gives.
/// rule: transport#envelope, transport#header-others, transport#auth-client, transport#chunked, transport#proxy-headers
#[test]
fn captures_arrive_as_they_came() {
    let sentry = SentryBackend::start();
    let profbridge = to_upstream(&sentry);
    for (count, (name, kinds)) in CAPTURES.into_iter().enumerate() {
        let sent = Sent::capture(name)
            .with("Origin: https://shop.example")
            .with("Referer: https://shop.example/cart")
            .with("X-Forwarded-For: 203.0.113.7");
        let answer = sent.to(profbridge.address("sentry/http"));
        assert_eq!(answer.status(), 200, "{name}: {answer:?}");
        let received = sentry.received.wait(count + 1).remove(count);
        assert!(received.body == sent.body, "{name} is not what was sent");
        assert_eq!(received.kinds(), kinds);
        assert_eq!(received.path, "/api/42/envelope/");
        let id = received.header["event_id"].as_str().unwrap_or_default();
        assert!(answer.0.ends_with(&format!("{{\"id\":\"{id}\"}}")) || (id.is_empty() && answer.0.ends_with("{}")));
        let header = |name: &str| received.headers.get(name).map(|value| value.to_str().unwrap());
        assert_eq!(header("origin"), Some("https://shop.example"));
        assert_eq!(header("referer"), Some("https://shop.example/cart"));
        assert_eq!(header("x-forwarded-for"), Some("203.0.113.7"));
        assert_eq!(header("content-type"), Some("application/x-sentry-envelope"));
        let (sdk, version) = (name.split('-').next().unwrap(), name.split('-').nth(1).unwrap());
        let sdk = if sdk == "python" { "sentry.python" } else { "sentry.javascript.node" };
        let client = format!("{sdk}/{version}");
        assert!(header("user-agent").unwrap().starts_with(&client), "{received:?}");
        let auth = header("x-sentry-auth").unwrap();
        assert!(
            auth.starts_with(&format!("Sentry sentry_key={KEY}, sentry_version=7, sentry_client={client}")),
            "{auth}"
        );
    }
    stop(profbridge);
    assert_eq!(sentry.received.all().len(), CAPTURES.len());
}

/// Guarantees: streamed spans of every SDK pass receiver, `link_spans` and exporter with their header. Python's, which
/// name profiler and thread, arrive as they came; each of Node's has the profiler of its segment, and the thread if a
/// chunk of the profiler came; nothing else changes.
/// rule: transport#span-header, profiles-sdk#linking-profiler, profiles-sdk#linking-thread
#[test]
fn streams_are_linked() {
    let sentry = SentryBackend::start();
    let config = configuration(&format!("upstream: '{}'", sentry.url()), "")
        .replace("exporters: [sentry]}", "processors: [link_spans], exporters: [sentry]}");
    let profbridge = Profbridge::start(&format!("processors: {{link_spans: {{span_wait: 1s}}}}\n{config}"));
    let address = profbridge.address("sentry/http");
    let chunks = ["node-11.1-profile_chunk", "node-11.12-profile_chunk-trace"];
    chunks.iter().for_each(|name| assert_eq!(Sent::capture(name).to(address).status(), 200, "{name}"));
    sentry.received.wait(chunks.len());
    STREAMS.iter().for_each(|(name, _)| assert_eq!(Sent::capture(name).to(address).status(), 200, "{name}"));
    let all = sentry.received.wait(chunks.len() + STREAMS.len());
    for (name, profiler) in STREAMS {
        let sent = String::from_utf8(Sent::read(name, "envelope")).unwrap();
        let lines: Vec<Value> = sent.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let [header, item, container] = &lines[..] else { panic!("{name}: {lines:?}") };
        let received = all.iter().find(|received| received.header == *header).expect(name);
        let (of_item, payload) = &received.items[0];
        assert_eq!((received.items.len(), &of_item["item_count"]), (1, &item["item_count"]), "{name}");
        let mut expected = container.clone();
        let text = |text: &str| json!({"value": text, "type": "string"});
        for span in expected["items"].as_array_mut().unwrap() {
            let Some((profiler, has_chunk)) = profiler else { continue };
            span["attributes"]["sentry.profiler_id"] = text(profiler);
            if has_chunk {
                span["attributes"]["thread.id"] = text("0");
                span["attributes"]["thread.name"] = text("main");
            }
        }
        assert_eq!(serde_json::from_slice::<Value>(payload).unwrap(), expected, "{name}");
        if profiler.is_none() {
            assert_eq!(String::from_utf8_lossy(payload), sent.lines().nth(2).unwrap(), "{name}");
        }
    }
    stop(profbridge);
}

/// Guarantees: Sentry's rate limits are returned to the affected client, with 429 if nothing of an envelope would be
/// accepted; other projects and keys are not affected, and data dropped by a limit is reported to Sentry.
/// rule: transport#rate-limits, transport#client-reports
#[test]
fn limits_are_handed_back() {
    let sentry = SentryBackend::start();
    let profbridge = to_upstream(&sentry);
    let address = profbridge.address("sentry/http");
    let limits = vec![("x-sentry-rate-limits", "2700:error:organization:quota")];
    sentry.next(Behaviour::Answer(429, limits));
    assert_eq!(Sent::plain(42, KEY, event(1)).to(address).status(), 200);
    // profbridge may answer a request before it has read Sentry's answer to an earlier one.
    let mut tries = 0;
    let answer = eventually("the limit is told", || {
        let answer = Sent::plain(42, KEY, event(2)).to(address);
        tries += 1;
        (answer.status() == 429).then_some(answer)
    });
    let told = answer.header("x-sentry-rate-limits").unwrap();
    let (seconds, rest) = told.split_once(':').unwrap();
    assert!((2000..=2700).contains(&seconds.parse::<u64>().unwrap()) && rest == "error:organization:quota", "{told}");
    assert!(answer.header("retry-after").is_some());

    let session = "{}\n{\"type\":\"session\"}\n{}\n";
    let answer = Sent::plain(42, KEY, session).to(address);
    assert_eq!((answer.status(), answer.header("x-sentry-rate-limits").is_some()), (200, true));
    for other in [Sent::plain(43, KEY, event(3)), Sent::plain(42, OTHER_KEY, event(4))] {
        let answer = other.to(address);
        assert_eq!((answer.status(), answer.header("x-sentry-rate-limits")), (200, None));
    }
    stop(profbridge);
    let all = sentry.received.all();
    let ids = accepted(&all);
    assert!(ids.ends_with(&[3, 4]), "{ids:?}");
    let discarded = all.iter().flat_map(|received| received.items_of("client_report")).flat_map(|report| {
        let report: serde_json::Value = serde_json::from_slice(&report).unwrap();
        report["discarded_events"].as_array().unwrap().clone()
    });
    // Sentry itself refused and counted one of them: the first, or one sent at the same time.
    let delivered = ids.iter().filter(|id| **id <= 2).count();
    let discarded: Vec<_> = discarded.collect();
    for report in &discarded {
        assert_eq!((&report["reason"], &report["category"]), (&json!("ratelimit_backoff"), &json!("error")));
    }
    let discarded: u64 = discarded.iter().map(|report| report["quantity"].as_u64().unwrap()).sum();
    assert_eq!(discarded as usize, tries - delivered);
}

/// Guarantees: SIGTERM while clients send and Sentry is down loses no acknowledged data: if Sentry returns within the
/// shutdown time, everything is sent exactly once.
/// rule: transport#retry
#[test]
fn a_shutdown_in_the_midst() {
    let sentry = SentryBackend::start();
    sentry.always(Behaviour::Answer(503, vec![]));
    let profbridge = to_upstream(&sentry);
    let address = profbridge.address("sentry/http");
    let clients: Vec<_> = (0..4_u64)
        .map(|client| {
            thread::spawn(move || {
                let mut acknowledged = Vec::new();
                for number in (client * 1_000_000 + 1)..(client + 1) * 1_000_000 {
                    let sent = Sent::plain(42, KEY, event(number));
                    // After profbridge has ended, connections fail.
                    let Ok(answer) = std::panic::catch_unwind(|| sent.to(address).status()) else { break };
                    match answer {
                        200 => acknowledged.push(number),
                        _ => break,
                    }
                }
                acknowledged
            })
        })
        .collect();
    sentry.received.wait(3);
    profbridge.signal("TERM");
    let acknowledged = clients.into_iter().flat_map(|client| client.join().unwrap());
    let mut acknowledged: Vec<u64> = acknowledged.collect();
    acknowledged.sort_unstable();
    sentry.always(Behaviour::Answer(200, vec![]));
    let (status, log, ..) = profbridge.ended();
    assert!(status.success() && !log.contains(KEY), "{log}");
    assert!(!acknowledged.is_empty());
    assert_eq!(accepted(&sentry.received.all()), acknowledged, "{log}");
}

/// Guarantees: a complete request is delivered even if its sender closes the connection, or its half of it, as browsers
/// do when their page is closed.
#[test]
fn senders_that_close() {
    let sentry = SentryBackend::start();
    let profbridge = to_upstream(&sentry);
    let address = profbridge.address("sentry/http");
    for number in 1..=60 {
        let body = event(number);
        let head = format!(
            "POST /api/42/envelope/ HTTP/1.1\r\nHost: localhost\r\nX-Sentry-Auth: Sentry sentry_key={KEY}\r\n\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(&[head.as_bytes(), &body].concat()).unwrap();
        if number % 2 == 0 {
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        }
    }
    let all = sentry.received.wait(60);
    assert_eq!(accepted(&all), (1..=60).collect::<Vec<_>>());
    stop(profbridge);
}

/// Guarantees: a refusal is logged and answered with its reason, without the key, whichever form of the key is wrong;
/// none of the request reaches Sentry.
#[test]
fn keys_are_never_shown() {
    let sentry = SentryBackend::start();
    let config = configuration(&format!("upstream: '{}'", sentry.url()), "")
        .replace("'127.0.0.1:0'", &format!("'127.0.0.1:0', public_keys: ['{KEY}']"));
    let mut profbridge = Profbridge::start(&config);
    let address = profbridge.address("sentry/http");
    let wrong = [
        (Sent::plain(42, OTHER_KEY, event(1)), 403),
        (Sent::plain(42, &format!("{KEY}0"), event(1)), 400),
        (Sent::plain(42, KEY, event(1)).with(&format!("Authorization: Sentry sentry_key={OTHER_KEY}")), 401),
        (Sent::plain(42, KEY, format!("{{\"dsn\":\"http://{OTHER_KEY}@h/42\"}}\n")), 400),
        (Sent::plain(42, KEY, format!("{{\"dsn\":\"http://{OTHER_KEY}@h/42\"\n")), 400),
        (Sent::plain(42, KEY, format!("{{\"dsn\":[\"{OTHER_KEY}\"]}}\n")), 400),
    ];
    for (sent, status) in wrong {
        let answer = sent.to(address);
        assert_eq!(answer.status(), status, "{answer:?}");
        assert!(!answer.0.contains(KEY) && !answer.0.contains(OTHER_KEY), "{answer:?}");
    }
    for reason in ["key_not_allowed", "authentication", "malformed"] {
        profbridge.wait_for_log(reason);
    }
    assert!(stop(profbridge).contains("public_keys"));
    assert!(sentry.received.all().is_empty());
}
