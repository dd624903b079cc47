//! Authentication and allowed keys.

use super::*;

fn who(envelope: &Envelope) -> (u64, String, Option<&str>) {
    let meta = &envelope.meta;
    (meta.project_id.unwrap(), meta.public_key.as_ref().unwrap().0.to_string(), meta.sentry_client.as_deref())
}

/// Guarantees: each form of authentication is accepted, and the client's name is kept for Sentry.
/// rule: transport#header-dsn, transport#auth
#[tokio::test]
async fn every_form() {
    let mut rig = SentryRig::start(LOOPBACK).await;
    let python = Some("sentry.python/2.75.0");
    let node = Some("sentry.javascript.node/10.75.3");
    let query =
        format!("/api/42/envelope/?sentry_version=7&sentry_key={KEY}&sentry_client=sentry.javascript.node%2F10.75.3");
    let with_dsn = SMALL.replacen('{', &format!("{{\"dsn\":\"https://{KEY}@sentry.example/42\","), 1);
    for (request, client) in [
        (post(SMALL), python),
        (bare(SMALL).header("authorization", auth(KEY)), python),
        (bare(SMALL).header("x-sentry-auth", auth(&KEY.to_uppercase())), python),
        (bare(SMALL).to(query), node),
        // 0123456789abcdef0123456789abcdef:
        (bare(SMALL).header("authorization", "Basic MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY6"), None),
        (bare(with_dsn.clone()), None),
        (post(with_dsn), python),
        // Authorization of another party, such as a proxy.
        (post(SMALL).header("authorization", "Bearer xyz"), python),
    ] {
        let (answer, taken) = rig.taken(request).await;
        assert_eq!((answer.status, who(&taken)), (200, (42, KEY.to_owned(), client)));
    }
}

/// Guarantees: no or two authentications are 401, an invalid key or version is 400, a DSN in the header with another
/// key or project is 400; no answer contains a key.
/// rule: transport#header-dsn, transport#auth, transport#auth-key
#[tokio::test]
async fn refused() {
    let rig = SentryRig::start(LOOPBACK).await;
    let with_dsn =
        |key, project| SMALL.replacen('{', &format!("{{\"dsn\":\"https://{key}@sentry.example/{project}\","), 1);
    let query = format!("/api/42/envelope/?sentry_key={KEY}");
    for (request, status) in [
        (bare(SMALL), 401),
        (bare(SMALL).to("/api/42/envelope/?sentry_version=7"), 401),
        (post(SMALL).to(&query), 401),
        (post(SMALL).header("authorization", auth(KEY)), 401),
        (bare(SMALL).header("x-sentry-auth", format!("Bearer {KEY}")), 401),
        (bare(SMALL).header("x-sentry-auth", "Sentry sentry_version=7"), 401),
        (bare(SMALL).header("x-sentry-auth", auth(&KEY[1..])), 400),
        (bare(SMALL).header("x-sentry-auth", format!("Sentry sentry_key={KEY}, sentry_version=8")), 400),
        (bare(SMALL).to("/api/42/envelope/?sentry_key=%30x"), 400),
        (post(with_dsn(OTHER_KEY, 42)), 400),
        (post(with_dsn(KEY, 43)), 400),
        (bare(with_dsn(KEY, 43)), 400),
        (bare(with_dsn("abc", 42)), 400),
    ] {
        let place = format!("{} {:?}", request.path, request.headers);
        let answer = rig.refused(request).await;
        assert_eq!(answer.status, status, "{place}: {answer:?}");
        assert!(!format!("{answer:?}").contains("0123456789abcdef"), "{answer:?}");
    }
}

/// Guarantees: if keys are configured, any other key is refused, wherever it stands; one in a header is refused before
/// the body arrives.
/// rule: transport#answer-errors
#[tokio::test]
async fn keys_that_are_not_allowed() {
    let mut rig = SentryRig::start(&format!("{{{LOOPBACK}, public_keys: ['{}']}}", KEY.to_uppercase())).await;
    assert_eq!(rig.taken(post(SMALL)).await.0.status, 200);
    let dsn = SMALL.replacen('{', &format!("{{\"dsn\":\"https://{OTHER_KEY}@sentry.example/42\","), 1);
    for request in [
        bare(SMALL).header("x-sentry-auth", auth(OTHER_KEY)),
        bare(SMALL).to(format!("/api/42/envelope/?sentry_key={OTHER_KEY}")),
        bare(dsn),
    ] {
        let answer = rig.refused(request).await;
        assert_eq!(answer.status, 403);
        assert!(detail(&answer).contains("public_keys") && !detail(&answer).contains(OTHER_KEY));
    }
    // The client waits for permission to send the body.
    let head = format!(
        "POST /api/42/envelope/?sentry_key={OTHER_KEY} HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\n\
         content-length: 1000\r\n\r\n"
    );
    let answer = raw::exchange(rig.http(), head.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
}
