use std::io;
use std::sync::{Arc, Mutex};

use profbridge_engine::component::Exporter;
use profbridge_engine::testing::ManualClock;
use tracing_subscriber::fmt::MakeWriter;

use super::server::{Reply, Server};
use super::{KEY, SECRET, batch, exporter, exporter_to, prepare, request};

/// Keeps what is logged.
#[derive(Clone, Default)]
struct Captured(Arc<Mutex<Vec<u8>>>);

impl Captured {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl io::Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Captured {
    type Writer = Captured;

    fn make_writer(&'a self) -> Captured {
        self.clone()
    }
}

/// What is logged on this thread, on which a test's runtime lives, at every level.
fn capture() -> (Captured, tracing::subscriber::DefaultGuard) {
    let captured = Captured::default();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(captured.clone())
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .finish();
    (captured, tracing::subscriber::set_default(subscriber))
}

/// Guarantees: the first envelope that is accepted is logged for what it is, with where to look, and no other is.
#[tokio::test]
async fn first_success() {
    let (log, _guard) = capture();
    let server = Server::always(Reply::status(200)).await;
    let exporter = exporter_to(&server, "").await;
    for _ in 0..3 {
        exporter.send(&request(&exporter)).await.unwrap();
    }
    let text = log.text();
    assert_eq!(text.matches("accepted for processing, not confirmed").count(), 1, "{text}");
    for word in ["Stats & Usage", "organizations:continuous-profiling", &server.address().to_string(), "project 42"] {
        assert!(text.contains(word), "{word} is missing in {text}");
    }
}

/// Guarantees: that zstd is given up is logged once, and so is a limit while it holds.
#[tokio::test]
async fn changes_are_logged_once() {
    let (log, _guard) = capture();
    let server = Server::start(|request| match request.header("content-encoding") {
        Some("zstd") => Reply::status(415),
        _ => Reply::status(200).with("x-sentry-rate-limits", "60::organization"),
    })
    .await;
    let exporter = exporter_to(&server, "").await;
    for _ in 0..3 {
        exporter.send(&request(&exporter)).await.unwrap();
    }
    let text = log.text();
    assert_eq!(text.matches("does not take zstd").count(), 1, "{text}");
    assert_eq!(text.matches("sentry limits profiles").count(), 1, "{text}");
}

/// Guarantees: whatever the server does, no key appears in a log line of any level, an error, or a `Debug`.
#[tokio::test]
async fn keys_stay_secret() {
    let (log, _guard) = capture();
    let leaky = format!("{{\"detail\":\"{KEY} {}\",\"causes\":[\"{SECRET}\"]}}", KEY.to_uppercase());
    let mut seen = String::new();
    let statuses = [200, 302, 400, 401, 403, 413, 415, 429, 500, 503];
    let mut replies: Vec<Reply> = statuses.map(|status| Reply::status(status).saying(leaky.clone())).to_vec();
    replies.extend([Reply::Close, Reply::Hang]);
    replies.push(Reply::status(301).with("location", format!("http://{KEY}@h/{KEY}?{SECRET}")));
    for reply in replies {
        let server = Server::always(reply).await;
        let yaml = format!("dsn: {0}\ntimeout: 1s\nrouting: {{attribute_to_dsn: {{shop: '{0}'}}}}", server.dsn(1));
        let exporter = exporter(&yaml, &ManualClock::default()).await;
        let prepared = prepare(&exporter, batch("shop"));
        let result = exporter.send(&prepared.requests[0]).await;
        exporter.lost(&prepared.requests[0], profbridge_model::Reason::QueueFull);
        exporter.close().await;
        seen.push_str(&format!("{result:?} {exporter:?} {prepared:?} {:#?}", exporter.settings));
    }
    seen.push_str(&log.text());
    assert!(seen.contains("accepted for processing") && seen.contains("not delivered"), "{}", log.text());
    let seen = seen.to_lowercase();
    for key in [KEY, SECRET] {
        assert!(!seen.contains(key), "a key is in:\n{seen}");
    }
}
