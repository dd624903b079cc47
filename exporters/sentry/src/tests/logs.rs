use std::cell::RefCell;
use std::io;
use std::sync::Once;

use profbridge_engine::component::{Exporter, Observer as _};
use profbridge_testkit::ManualClock;

use super::server::{Reply, Server};
use super::{KEY, SECRET, batch, exporter, exporter_to, prepare, request};

thread_local! {
    /// Log lines of this thread, which also runs the test's runtime.
    static LOG: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Writes to the log of the current thread.
struct ThreadLog;

impl io::Write for ThreadLog {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOG.with_borrow_mut(|log| log.extend_from_slice(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Collects lines of every level. All tests share one subscriber: with one per test, a line first reached on another
/// thread would be disabled for all.
pub(super) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let subscriber = tracing_subscriber::fmt()
            .with_writer(|| ThreadLog)
            .with_max_level(tracing::Level::TRACE)
            .with_ansi(false)
            .finish();
        tracing::subscriber::set_global_default(subscriber).unwrap();
    });
}

pub(super) fn logged() -> String {
    LOG.with_borrow(|log| String::from_utf8(log.clone()).unwrap())
}

/// Guarantees: only the first accepted envelope is logged, with what that means and where to look.
#[tokio::test]
async fn first_success() {
    let server = Server::always(Reply::status(200)).await;
    let exporter = exporter_to(&server, "").await;
    for _ in 0..3 {
        exporter.send(&request(&exporter)).await.unwrap();
    }
    let text = logged();
    assert_eq!(text.matches("accepted for processing, not confirmed").count(), 1, "{text}");
    for word in ["Stats & Usage", "organizations:continuous-profiling", &server.address().to_string(), "project 42"] {
        assert!(text.contains(word), "{word} is missing in {text}");
    }
}

/// Guarantees: giving up zstd is logged once, and so is a rate limit while it lasts.
#[tokio::test]
async fn changes_are_logged_once() {
    let server = Server::start(|request| match request.header("content-encoding") {
        Some("zstd") => Reply::status(415),
        _ => Reply::status(200).with("x-sentry-rate-limits", "60::organization"),
    })
    .await;
    let exporter = exporter_to(&server, "").await;
    for _ in 0..3 {
        exporter.send(&request(&exporter)).await.unwrap();
    }
    let text = logged();
    assert_eq!(text.matches("does not take zstd").count(), 1, "{text}");
    assert_eq!(text.matches("sentry limits profiles").count(), 1, "{text}");
}

/// Guarantees: whatever the server does, no key appears in a log line of any level, an error, or `Debug` output.
#[tokio::test]
async fn keys_stay_secret() {
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
    seen.push_str(&logged());
    assert!(seen.contains("accepted for processing") && seen.contains("not delivered"), "{}", logged());
    let seen = seen.to_lowercase();
    for key in [KEY, SECRET] {
        assert!(!seen.contains(key), "a key is in:\n{seen}");
    }
}
