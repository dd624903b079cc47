//! Paths, methods, and answers to clients.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::*;

/// Guarantees: the answer contains the event's id in Sentry's notation, and none if the event has none.
/// rule: transport#header-event-id, transport#answer-id
#[tokio::test]
async fn ids() {
    let mut rig = SentryRig::start(LOOPBACK).await;
    let (answer, _) = rig.taken(post(SMALL)).await;
    assert_eq!(json(&answer), json!({"id": "9ec79c33ec9942ab8353589fcb2e04dc"}));
    for without in ["{}\n{\"type\":\"session\"}\n{}\n", "{\"event_id\":null}\n{\"type\":\"session\"}\n{}\n"] {
        assert_eq!(json(&rig.taken(post(without)).await.0), json!({}));
    }
    assert_eq!((rig.requests("success", "http"), rig.requests("failure", "http")), (3, 0));
}

/// Guarantees: the event of an old SDK becomes an envelope with one item of unchanged bytes, and its answer contains
/// its id; it may be compressed like any body, or be base64.
/// rule: transport#path-store
#[tokio::test]
async fn store() {
    let mut rig = SentryRig::start(LOOPBACK).await;
    let event = "{\"event_id\":\"9ec79c33ec9942ab8353589fcb2e04dc\", \"message\" : \"x\"}";
    let zipped = post(gzip(event.as_bytes())).header("content-encoding", "gzip");
    for request in [post(event), zipped, post(STANDARD.encode(event))] {
        let (answer, taken) = rig.taken(request.to("/api/42/store/")).await;
        assert_eq!(json(&answer), json!({"id": "9ec79c33ec9942ab8353589fcb2e04dc"}));
        assert_eq!(taken.header, "{\"event_id\":\"9ec79c33ec9942ab8353589fcb2e04dc\"}");
        let payload = taken.items[0].payload.plain().unwrap();
        assert_eq!((&payload[..], taken.items.len()), (event.as_bytes(), 1));
        assert!(taken.received.is_none());
    }
    let (answer, _) = rig.taken(post("{\"message\":\"x\"}").to("/api/42/store/")).await;
    assert_eq!(json(&answer)["id"].as_str().unwrap().len(), 32);
    for no_event in ["", "eJxVj", "[1]", "{\"event_id\":\"x\"}", "{"] {
        assert_eq!(rig.refused(post(no_event).to("/api/42/store/")).await.status, 400, "{no_event}");
    }
    let large = format!("{{\"x\":\"{}\"}}", "y".repeat(1 << 20));
    assert_eq!(rig.refused(post(large).to("/api/42/store/")).await.status, 413);
}

/// Guarantees: slashes may be missing or repeated; a project that is no number, or a path that leads elsewhere, is
/// refused.
/// rule: transport#path-envelope
#[tokio::test]
async fn paths() {
    let mut rig = SentryRig::start(LOOPBACK).await;
    for path in ["/api/42/envelope/", "/api/42/envelope", "//api/42//envelope//", "/api/0042/envelope/?x=y"] {
        let (answer, taken) = rig.taken(post(SMALL).to(path)).await;
        assert_eq!((answer.status, taken.meta.project_id), (200, Some(42)), "{path}");
    }
    for (path, status) in [
        ("/api/../envelope/", 400),
        ("/api/%2e%2e/envelope/", 400),
        ("/api/42%2f..%2f43/envelope/", 400),
        ("/api/-1/envelope/", 400),
        ("/api/18446744073709551616/envelope/", 400),
        ("/api/42/../43/envelope/", 404),
        ("/api/42/envelope/../store/", 404),
        ("/api/42/envelop/", 404),
        ("/", 404),
    ] {
        assert_eq!(rig.refused(post(SMALL).to(path)).await.status, status, "{path}");
    }
}

/// Guarantees: a browser is told that it may send, with which headers, and which headers of the answer it may read;
/// other methods are refused with the list of allowed ones.
/// rule: transport#cors
#[tokio::test]
async fn browsers_and_methods() {
    let mut rig = SentryRig::start(&format!("{{{LOOPBACK}, cors_origins: ['https://shop.example']}}")).await;
    let preflight = bare("")
        .method(Method::OPTIONS)
        .header("origin", "https://shop.example")
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", "x-sentry-auth");
    let answer = preflight.send(rig.http()).await;
    assert_eq!((answer.status, answer.header("access-control-allow-methods")), (200, Some("POST")));
    let allowed = answer.header("access-control-allow-headers").unwrap();
    for header in ["x-sentry-auth", "content-type", "content-encoding", "authorization"] {
        assert!(allowed.split(", ").any(|known| known == header), "{allowed}");
    }
    let foreign = post(SMALL).header("origin", "https://evil.example").exchange(rig.http()).await;
    assert_eq!((foreign.status, foreign.header("access-control-allow-origin")), (403, None));
    let exposed = Some("x-sentry-error,x-sentry-rate-limits,retry-after");
    let (taken, _) = rig.taken(post(SMALL)).await;
    let refused = rig.refused(post("")).await;
    for answer in [&taken, &refused] {
        assert_eq!(answer.header("access-control-expose-headers"), exposed);
    }
    for method in [Method::GET, Method::PUT, Method::DELETE] {
        let answer = rig.refused(post(SMALL).method(method)).await;
        assert_eq!((answer.status, answer.header("allow")), (405, Some("POST, OPTIONS")));
    }
}
