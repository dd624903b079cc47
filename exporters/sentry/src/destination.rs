//! One DSN, and the state of its server.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{HeaderName, HeaderValue, Uri};
use profbridge_wire::sentry::rate_limit::LimitResponse;
use profbridge_wire::sentry::{Auth, Category, ClientReport, Dsn, RateLimits, auth};

/// The header that identifies the client.
pub(crate) const AUTH: HeaderName = HeaderName::from_static(auth::HEADER);

/// Least time between two client reports, in nanoseconds.
const REPORT_NANOS: u64 = 60_000_000_000;

/// Whether a server accepts zstd. Sentry does; a proxy in front of it, or a compatible server, may not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Zstd {
    /// Not tried yet.
    Untried = 0,
    /// Accepted before.
    Accepted = 1,
    /// Refused. It is never tried again.
    Refused = 2,
}

/// One project of one server, with the state that all requests to it share.
#[derive(Debug)]
pub struct Destination {
    /// The DSN.
    pub dsn: Dsn,
    /// The URL that envelopes are posted to.
    pub url: Uri,
    /// The URL that spans in OTLP are posted to.
    pub otlp_url: Uri,
    /// The value of `X-Sentry-Auth`, marked as sensitive.
    pub auth: HeaderValue,
    limits: Mutex<RateLimits>,
    report: Mutex<ClientReport>,
    /// When the next client report may be sent, in nanoseconds of the exporter's clock.
    next_report: AtomicU64,
    zstd: AtomicU8,
    accepted: AtomicBool,
    /// Until when the server is taken for one without an OTLP endpoint, in nanoseconds of the exporter's clock; 0 if it
    /// never said so.
    no_otlp_until: AtomicU64,
}

impl Destination {
    /// A destination without any state.
    ///
    /// # Errors
    ///
    /// If the DSN's endpoint is not a valid URL.
    pub fn new(dsn: Dsn) -> Result<Self, &'static str> {
        let url = |text: String| text.parse().map_err(|_| "the DSN's host or path makes no valid URL");
        let (url, otlp_url) = (url(dsn.envelope_url())?, url(dsn.otlp_traces_url())?);
        let mut destination = Self {
            dsn,
            url,
            otlp_url,
            auth: HeaderValue::from_static(""),
            limits: Mutex::default(),
            report: Mutex::default(),
            zstd: AtomicU8::new(Zstd::Untried as u8),
            next_report: AtomicU64::new(0),
            accepted: AtomicBool::new(false),
            no_otlp_until: AtomicU64::new(0),
        };
        destination.auth =
            destination.auth_header(Some(profbridge_net::USER_AGENT)).ok_or("the DSN's keys make no valid header")?;
        Ok(destination)
    }

    /// The value of `X-Sentry-Auth` for a client with this name, or without one, marked as sensitive. `None` if the
    /// name is not valid in a header.
    pub fn auth_header(&self, client: Option<&str>) -> Option<HeaderValue> {
        let mut auth = HeaderValue::from_str(Auth::new(&self.dsn, client).header_value()).ok()?;
        auth.set_sensitive(true);
        Some(auth)
    }

    /// Stores the rate limits of an answer. Returns the name of each category, of profiles, transactions and spans,
    /// that was not blocked before, and how long it is blocked.
    pub fn limit(&self, answer: LimitResponse<'_>, now: u64) -> impl Iterator<Item = (&'static str, Duration)> {
        let kinds = [
            ("profiles", Category::of_chunks("native")),
            ("transactions", Category::OF_TRANSACTIONS),
            ("spans", &[Category::Span]),
        ];
        let mut limits = lock(&self.limits);
        let before = kinds.map(|(_, categories)| limits.blocked(categories, now));
        limits.update(answer, now);
        let after = kinds.map(|(_, categories)| limits.blocked(categories, now));
        let news = kinds.into_iter().zip(after).zip(before).filter(|(_, before)| before.is_none());
        news.filter_map(|(((name, _), time), _)| Some((name, time?)))
    }

    /// Whether rate limits forbid all of these categories.
    pub fn blocks(&self, categories: &[Category], now: u64) -> bool {
        self.blocked(categories, now).is_some()
    }

    /// For how long rate limits forbid all of these categories; `None` if they do not.
    pub fn blocked(&self, categories: &[Category], now: u64) -> Option<Duration> {
        lock(&self.limits).blocked(categories, now)
    }

    /// The losses not reported yet.
    pub fn report(&self) -> MutexGuard<'_, ClientReport> {
        lock(&self.report)
    }

    /// Takes the losses not reported yet, unless a report was taken less than a minute before `now`. If sending fails,
    /// the caller merges them back.
    pub fn take_report(&self, now: u64) -> Option<Box<ClientReport>> {
        if self.next_report.load(Ordering::Relaxed) > now {
            return None;
        }
        let report = self.take_last_report()?;
        self.next_report.store(now.saturating_add(REPORT_NANOS), Ordering::Relaxed);
        Some(report)
    }

    /// Takes the losses at shutdown, however recent the previous report was.
    pub fn take_last_report(&self) -> Option<Box<ClientReport>> {
        let mut report = self.report();
        (!report.is_empty()).then(|| Box::new(std::mem::take(&mut *report)))
    }

    /// Whether the server accepts zstd.
    pub fn zstd(&self) -> Zstd {
        match self.zstd.load(Ordering::Relaxed) {
            0 => Zstd::Untried,
            1 => Zstd::Accepted,
            _ => Zstd::Refused,
        }
    }

    /// Stores whether the server accepts zstd. Returns whether that changed anything. A refusal is final.
    pub fn set_zstd(&self, zstd: Zstd) -> bool {
        self.zstd.fetch_max(zstd as u8, Ordering::Relaxed) < zstd as u8
    }

    /// Whether the server is taken for one without an OTLP endpoint.
    pub fn lacks_otlp(&self, now: u64) -> bool {
        self.no_otlp_until.load(Ordering::Relaxed) > now
    }

    /// Records that the server answered as one without an OTLP endpoint, which holds until then. Returns whether that
    /// is news.
    pub fn set_lacks_otlp(&self, until: u64) -> bool {
        self.no_otlp_until.swap(until, Ordering::Relaxed) == 0
    }

    /// Records that the server has an OTLP endpoint. Returns whether it was taken for one without.
    pub fn set_has_otlp(&self) -> bool {
        self.no_otlp_until.swap(0, Ordering::Relaxed) != 0
    }

    /// Records that the server accepted profiles. Returns whether it was the first time.
    pub fn first_accepted(&self) -> bool {
        !self.accepted.swap(true, Ordering::Relaxed)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
