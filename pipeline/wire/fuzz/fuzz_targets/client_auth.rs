//! Uses arbitrary lines as `X-Sentry-Auth`, `Authorization`, a query, a DSN, and the `X-Sentry-Rate-Limits` of an
//! answer.
//!
//! Guarantees: no panic; an accepted key is valid; two forms of authentication are refused; written authentication is
//! read as the same; a limit that is passed on, with its time in front, keeps its meaning.
#![no_main]

use std::fmt::Write as _;

use libfuzzer_sys::fuzz_target;
use profbridge_wire::sentry::client_auth::{self, ClientAuth, Forms};
use profbridge_wire::sentry::rate_limit::{LimitResponse, limits_of};
use profbridge_wire::sentry::{Auth, Category, Dsn, RateLimits};

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut lines = text.split('\n').map(|line| (!line.is_empty()).then_some(line));
    let mut line = || lines.next().flatten();
    let forms = Forms { header: line(), authorization: line(), query: line() };
    let (dsn, limits) = (line(), line());
    if let Ok(Some(auth)) = client_auth::read(forms) {
        check(&auth);
        let again = Forms { header: Some("Sentry sentry_key=0123456789abcdef0123456789abcdef"), ..Forms::default() };
        if forms.header.is_none() {
            client_auth::read(Forms { header: again.header, ..forms }).expect_err("two forms");
        }
    }
    if let Some(Ok((auth, project))) = dsn.map(client_auth::of_dsn) {
        check(&auth);
        let dsn: Dsn = format!("https://{}@sentry.example/{project}", auth.key.0).parse().expect("a DSN");
        let written = Auth::new(&dsn, Some("sentry.fuzz/1.0"));
        let read = client_auth::read(Forms { header: Some(written.header_value()), ..Forms::default() });
        let read = read.expect("one form").expect("a form");
        assert_eq!((&read.key, read.client.as_deref()), (&auth.key, Some("sentry.fuzz/1.0")));
    }
    if let Some(limits) = limits {
        let answer = LimitResponse { status: 200, limits: Some(limits), retry_after: None };
        let mut handed_on = String::new();
        for (time, rest) in limits_of(answer) {
            // Rounding to whole seconds does not change what is limited.
            write!(handed_on, "{}:{rest},", time.as_secs() + 1).expect("a string grows");
        }
        let (mut before, mut after) = (RateLimits::default(), RateLimits::default());
        before.update(answer, 0);
        after.update(LimitResponse { limits: Some(&handed_on), ..answer }, 0);
        for category in Category::ALL {
            let [before, after] = [&before, &after].map(|limits| limits.blocked(&[*category], 0));
            assert!(before <= after, "{category:?}: {before:?}, handed on {after:?}");
        }
    }
});

fn check(auth: &ClientAuth) {
    assert!(auth.key.0.len() == 32 && auth.key.0.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')));
}
