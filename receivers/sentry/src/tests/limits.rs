//! Sentry's rate limits are returned to the client concerned.

use profbridge_wire::sentry::rate_limit::peer_key;

use super::*;

/// Header values without their leading seconds, which must not exceed `most`; on a busy machine some have passed.
fn without_seconds(told: Option<&str>, most: u64) -> Option<String> {
    told.map(|told| {
        let (seconds, rest) = told.split_once(':').unwrap_or((told, ""));
        assert!((1..=most).contains(&seconds.parse::<u64>().unwrap()), "{told}");
        rest.to_owned()
    })
}

/// Guarantees: a limit on part of an envelope is returned with 200, a limit on the whole envelope with 429, and other
/// clients get no limits. The pipelines get the whole envelope in any case, so that dropped items are reported, and
/// profiles reach other exporters.
/// rule: transport#rate-limits, transport#rate-limits-dsn
#[tokio::test]
async fn limits_in_answers() {
    let mut rig = SentryRig::start(LOOPBACK).await;
    let time = Duration::from_secs(60);
    let (answer, _) = rig.taken(post(SMALL)).await;
    assert_eq!((answer.status, answer.header("x-sentry-rate-limits")), (200, None));

    rig.limits.publish(&peer_key(42, KEY), "transaction;span:organization:quota", time);
    let (answer, _) = rig.taken(post(SMALL)).await;
    let limits = without_seconds(answer.header("x-sentry-rate-limits"), 60);
    assert_eq!((answer.status, limits.as_deref()), (200, Some("transaction;span:organization:quota")));
    assert_eq!(answer.header("retry-after"), None);

    rig.limits.publish(&peer_key(42, KEY), "error:key", Duration::from_secs(7));
    let (answer, taken) = rig.taken(post(SMALL)).await;
    let after = without_seconds(answer.header("retry-after"), 60);
    assert_eq!((answer.status, after.as_deref()), (429, Some("")));
    let (first, second) = answer.header("x-sentry-rate-limits").unwrap().split_once(", ").unwrap();
    assert_eq!(without_seconds(Some(first), 60).as_deref(), Some("transaction;span:organization:quota"));
    assert_eq!(without_seconds(Some(second), 7).as_deref(), Some("error:key"));
    assert_eq!((detail(&answer).as_str(), taken.items.len()), ("Sentry limits everything that is in the request", 1));

    for other in [bare(SMALL).header("x-sentry-auth", auth(OTHER_KEY)), post(SMALL).to("/api/43/envelope/")] {
        let (answer, _) = rig.taken(other).await;
        assert_eq!((answer.status, answer.header("x-sentry-rate-limits")), (200, None));
    }
    assert_eq!((rig.requests("success", "http"), rig.requests("refused", "http")), (5, 0));
}
