use profbridge_engine::component::{Exporter, Now, Observer as _, Retry, SendError};
use profbridge_model::Reason;
use profbridge_testkit::START_UNIX_NANO;
use serde_json::json;

use super::server::{Reply, Server};
use super::{KEY, SECRET, batch, exporter_to, request};

async fn error_of(reply: Reply) -> (SendError, String) {
    let server = Server::always(reply).await;
    let exporter = exporter_to(&server, "").await;
    let error = exporter.send(&request(&exporter)).await.unwrap_err();
    let message = error.message.replace(&server.address().to_string(), "HOST");
    (error, message)
}

/// Guarantees: each status is final or retried by Sentry's rules and counted under its reason. The message names the
/// host, the project and what to do.
/// rule: differences#retry-5xx
#[tokio::test]
async fn every_status() {
    for (status, retry, reason, says) in [
        (400, Retry::Never, Reason::RejectedByPeer, "does not know the key or project"),
        (401, Retry::Never, Reason::RejectedByPeer, "check the key"),
        (403, Retry::Never, Reason::RejectedByPeer, "one of them is disabled"),
        (404, Retry::Never, Reason::RejectedByPeer, "check the host and path"),
        (413, Retry::Never, Reason::TooLarge, "larger than the server takes"),
        (415, Retry::Never, Reason::RejectedByPeer, "does not take the compression"),
        (429, Retry::Never, Reason::RateLimited, "over its quota or rate limit"),
        (500, Retry::Later, Reason::RetriesExhausted, "the server failed"),
        (508, Retry::Never, Reason::RejectedByPeer, "leads in a circle"),
        (502, Retry::Later, Reason::RetriesExhausted, "down or overloaded"),
        (503, Retry::Later, Reason::RetriesExhausted, "down or overloaded"),
        (504, Retry::Later, Reason::RetriesExhausted, "down or overloaded"),
    ] {
        let (error, message) = error_of(Reply::status(status)).await;
        assert_eq!((error.retry, error.reason), (retry, reason), "{status}");
        assert!(message.starts_with(&format!("HOST (project 42) answers {status}: ")), "{message}");
        assert!(message.contains(says), "{message}");
    }
}

/// Guarantees: if an outage announces its end, no attempt is made before, even if the answer's body does not arrive.
#[tokio::test]
async fn retry_after_without_the_body() {
    let server = Server::always(Reply::Trickle { status: 503, headers: vec![("retry-after", "17".to_owned())] }).await;
    // Long enough for a busy machine to read the head.
    let exporter = exporter_to(&server, "timeout: 5s").await;
    let error = exporter.send(&request(&exporter)).await.unwrap_err();
    assert_eq!(error.retry, Retry::After(std::time::Duration::from_secs(17)));
}

/// Guarantees: the server's explanation is shown on one line, without the keys that it repeats.
#[tokio::test]
async fn explanations() {
    let body = json!({"detail": format!("bad key {KEY}\nand"), "causes": [SECRET]}).to_string();
    let (_, message) = error_of(Reply::status(401).saying(body)).await;
    assert!(message.ends_with("(it says: bad key *** and: ***)"), "{message}");
    let (_, message) = error_of(Reply::status(403).saying("<html>no</html>")).await;
    assert!(!message.contains("html"), "{message}");
}

/// Guarantees: a redirect is not followed, and is final.
#[tokio::test]
async fn redirects() {
    let (error, message) =
        error_of(Reply::status(302).with("location", "https://elsewhere.example/login?next=x")).await;
    assert_eq!((error.retry, error.reason), (Retry::Never, Reason::RejectedByPeer));
    assert!(message.contains("https://elsewhere.example"), "{message}");
    assert!(!message.contains("next"), "{message}");
}

/// Guarantees: a server that closes the connection, hangs, is unreachable or speaks another protocol is an outage.
#[tokio::test]
async fn outages() {
    let (error, message) = error_of(Reply::Close).await;
    assert_eq!((error.retry, error.reason), (Retry::Later, Reason::RetriesExhausted));
    assert!(message.starts_with("HOST (project 42) cannot be reached: "), "{message}");

    let server = Server::always(Reply::Hang).await;
    let exporter = exporter_to(&server, "timeout: 50ms").await;
    let error = exporter.send(&request(&exporter)).await.unwrap_err();
    assert_eq!((error.retry, error.reason), (Retry::Later, Reason::RetriesExhausted));
    assert!(error.message.contains("within 50ms"), "{error}");

    // A port that was free a moment ago.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let yaml = format!("dsn: http://{KEY}@{address}/1");
    let exporter = super::exporter(&yaml, &profbridge_testkit::ManualClock::default()).await;
    let error = exporter.send(&request(&exporter)).await.unwrap_err();
    assert_eq!((error.retry, error.reason), (Retry::Later, Reason::RetriesExhausted));
    assert!(error.message.contains("refused"), "{error}");
}

/// Guarantees: the result of an accepted request includes the time that Sentry will bill.
#[tokio::test]
async fn accepted() {
    let server = Server::always(Reply::status(200).saying("{}")).await;
    let exporter = exporter_to(&server, "").await;
    let accepted = exporter.send(&request(&exporter)).await.unwrap();
    // From 0 to 150 ms, and the 50 ms that the last observation represents.
    assert_eq!(accepted.billed.as_millis(), 200);
    assert_eq!((accepted.lost().total(), accepted.message), (0, None));
}

/// Guarantees: requests refused for good are reported with the next envelope, at most once a minute. Rate-limited ones
/// are not reported, and a report that did not arrive is kept.
#[tokio::test]
async fn client_reports() {
    let statuses = std::sync::Mutex::new(vec![200, 200, 400, 429, 413, 400].into_iter());
    let server = Server::start(move |_| Reply::status(statuses.lock().unwrap().next_back().unwrap_or(200))).await;
    let exporter = exporter_to(&server, "compression: gzip").await;
    let send = async |seconds: u64| {
        let now = Now { monotonic_nano: seconds * 1_000_000_000, unix_nano: START_UNIX_NANO };
        let request = exporter.prepare(&batch("shop").into(), now).requests.remove(0);
        exporter.send(&request).await.is_ok()
    };
    let reported = |n: usize| server.received()[n].item("client_report")["discarded_events"].clone();
    let items = |n: usize| server.received()[n].envelope().items.len();
    let events = |quantity: u64| json!([{"reason": "send_error", "category": "profile_chunk", "quantity": quantity}]);
    // 400, then 413 for the request with its report.
    assert!(!send(0).await && !send(0).await);
    assert_eq!((items(0), reported(1)), (1, events(1)));
    // Within a minute no report is sent: 429. Later, both 400s are reported.
    assert!(!send(59).await && !send(60).await);
    assert_eq!((items(2), reported(3)), (1, events(2)));
    assert!(send(119).await && send(120).await);
    // The 429 is not reported.
    assert_eq!((items(4), reported(5)), (1, events(3)));
    assert_eq!(server.received()[5].item("client_report")["timestamp"], json!(1_767_225_600.0));
    exporter.close().await;
    assert_eq!(server.received().len(), 6, "all was told");
}

/// Guarantees: losses in the engine are reported with Sentry's reason, at the latest when the exporter closes.
#[tokio::test]
async fn last_words() {
    let server = Server::always(Reply::status(200)).await;
    let exporter = exporter_to(&server, "").await;
    let request = request(&exporter);
    for reason in [Reason::QueueFull, Reason::RateLimited, Reason::RetriesExhausted, Reason::Shutdown, Reason::Internal]
    {
        exporter.lost(&request, reason);
    }
    exporter.close().await;
    let received = server.received();
    assert_eq!(received.len(), 1);
    let event =
        |reason: &str, quantity: u64| json!({"reason": reason, "category": "profile_chunk", "quantity": quantity});
    assert_eq!(
        received[0].item("client_report")["discarded_events"],
        json!([
            event("ratelimit_backoff", 1),
            event("queue_overflow", 1),
            event("network_error", 2),
            event("internal_sdk_error", 1),
        ])
    );
    exporter.close().await;
    assert_eq!(server.received().len(), 1, "nothing is told twice");
}
