use std::time::Duration;

use profbridge_engine::component::{Exporter, Observer as _};
use profbridge_model::Reason;
use profbridge_testkit::ManualClock;

use super::server::{Reply, Server};
use super::{batch, exporter, prepare, request};

/// Guarantees: a rate limit in an answer of any status blocks chunks until it ends.
#[tokio::test]
async fn limits_on_a_200() {
    let header = "60:profile_duration:organization:quota, 5:error:key";
    let server = Server::always(Reply::status(200).with("x-sentry-rate-limits", header)).await;
    let clock = ManualClock::default();
    let exporter = exporter(&format!("dsn: {}", server.dsn(1)), &clock).await;
    let request = request(&exporter);
    assert_eq!(exporter.refuses(&request), None);
    exporter.send(&request).await.unwrap();
    assert_eq!(exporter.refuses(&request), Some(Reason::RateLimited));
    clock.advance(Duration::from_secs(60) - Duration::from_nanos(1));
    assert_eq!(exporter.refuses(&request), Some(Reason::RateLimited));
    clock.advance(Duration::from_nanos(1));
    assert_eq!(exporter.refuses(&request), None);
}

/// Guarantees: rate limits on other data block nothing; several header lines are one list.
/// rule: tracing-sdk#rate-limits
#[tokio::test]
async fn categories() {
    let reply = Reply::status(200).with("x-sentry-rate-limits", "60:error;transaction;profile_chunk_ui");
    let server = Server::start(move |request| match request.line.contains("/api/1/") {
        true => reply.clone(),
        false => reply.clone().with("x-sentry-rate-limits", "9:profile_chunk"),
    })
    .await;
    let clock = ManualClock::default();
    for (project, expected) in [(1, None), (2, Some(Reason::RateLimited))] {
        let exporter = exporter(&format!("dsn: {}", server.dsn(project)), &clock).await;
        let request = request(&exporter);
        exporter.send(&request).await.unwrap();
        assert_eq!(exporter.refuses(&request), expected, "project {project}");
    }
}

/// Guarantees: a 429 without details blocks everything for a minute, or as long as `Retry-After` says.
#[tokio::test]
async fn too_many_requests() {
    for (reply, seconds) in [(Reply::status(429), 60), (Reply::status(429).with("retry-after", "7"), 7)] {
        let server = Server::always(reply).await;
        let clock = ManualClock::default();
        let exporter = exporter(&format!("dsn: {}", server.dsn(1)), &clock).await;
        let request = request(&exporter);
        exporter.send(&request).await.unwrap_err();
        clock.advance(Duration::from_millis(seconds * 1000 - 1));
        assert_eq!(exporter.refuses(&request), Some(Reason::RateLimited));
        clock.advance(Duration::from_millis(1));
        assert_eq!(exporter.refuses(&request), None);
    }
}

/// Guarantees: rate limits of one project do not apply to another.
#[tokio::test]
async fn per_dsn() {
    let server = Server::start(|request| match request.line.contains("/api/1/") {
        true => Reply::status(429),
        false => Reply::status(200),
    })
    .await;
    let yaml = format!("dsn: {}\nrouting: {{attribute_to_dsn: {{noisy: '{}'}}}}", server.dsn(2), server.dsn(1));
    let exporter = exporter(&yaml, &ManualClock::default()).await;
    let noisy = prepare(&exporter, batch("noisy")).requests.remove(0);
    let quiet = prepare(&exporter, batch("quiet")).requests.remove(0);
    exporter.send(&noisy).await.unwrap_err();
    assert_eq!(exporter.refuses(&noisy), Some(Reason::RateLimited));
    assert_eq!(exporter.refuses(&quiet), None);
    exporter.send(&quiet).await.unwrap();
}
