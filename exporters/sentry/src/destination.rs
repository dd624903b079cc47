//! One DSN, and what is remembered of its server.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{HeaderName, HeaderValue, Uri};
use profbridge_wire::sentry::rate_limit::Answer;
use profbridge_wire::sentry::{Auth, Category, ClientReport, Dsn, RateLimits, auth};

/// The header that says as whom a request is sent.
pub(crate) const AUTH: HeaderName = HeaderName::from_static(auth::HEADER);

/// From one report to the next, in nanoseconds.
const REPORT_NANOS: u64 = 60_000_000_000;

/// Whether a server takes zstd. Sentry does; what stands in front of it or claims to be it may not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Zstd {
    /// It was not asked yet.
    Untried = 0,
    /// It accepted it.
    Taken = 1,
    /// It refused it: never again.
    Refused = 2,
}

/// One project of one server, with everything that is shared by all requests to it.
#[derive(Debug)]
pub struct Destination {
    /// The DSN.
    pub dsn: Dsn,
    /// Where envelopes are posted.
    pub url: Uri,
    /// The value of `X-Sentry-Auth`, marked as sensitive.
    pub auth: HeaderValue,
    limits: Mutex<RateLimits>,
    report: Mutex<ClientReport>,
    /// When the next report may leave, in nanoseconds of the exporter's clock.
    next_report: AtomicU64,
    zstd: AtomicU8,
    accepted: AtomicBool,
}

impl Destination {
    /// A destination of which nothing is known yet.
    ///
    /// # Errors
    ///
    /// The DSN leads to something that is no URL.
    pub fn new(dsn: Dsn) -> Result<Self, &'static str> {
        let url = dsn.envelope_url().parse().map_err(|_| "the DSN's host or path makes no valid URL")?;
        let mut destination = Self {
            dsn,
            url,
            auth: HeaderValue::from_static(""),
            limits: Mutex::default(),
            report: Mutex::default(),
            zstd: AtomicU8::new(Zstd::Untried as u8),
            next_report: AtomicU64::new(0),
            accepted: AtomicBool::new(false),
        };
        destination.auth =
            destination.auth_of(Some(profbridge_net::USER_AGENT)).ok_or("the DSN's keys make no valid header")?;
        Ok(destination)
    }

    /// The value of `X-Sentry-Auth` for a client that calls itself so, or nothing, marked as sensitive. `None` where its name fits
    /// into no header.
    pub fn auth_of(&self, client: Option<&str>) -> Option<HeaderValue> {
        let mut auth = HeaderValue::from_str(Auth::new(&self.dsn, client).header_value()).ok()?;
        auth.set_sensitive(true);
        Some(auth)
    }

    /// Takes note of the limits in an answer. Returns for how long profiles and transactions are blocked, those of them
    /// that were not before, each with its name.
    pub fn limit(&self, answer: Answer<'_>, now: u64) -> impl Iterator<Item = (&'static str, Duration)> {
        let kinds = [("profiles", Category::of_chunks("native")), ("transactions", Category::OF_TRANSACTIONS)];
        let mut limits = lock(&self.limits);
        let before = kinds.map(|(_, categories)| limits.blocked(categories, now));
        limits.update(answer, now);
        let after = kinds.map(|(_, categories)| limits.blocked(categories, now));
        let news = kinds.into_iter().zip(after).zip(before).filter(|(_, before)| before.is_none());
        news.filter_map(|(((name, _), time), _)| Some((name, time?)))
    }

    /// Whether nothing of these categories may be sent.
    pub fn blocks(&self, categories: &[Category], now: u64) -> bool {
        lock(&self.limits).blocked(categories, now).is_some()
    }

    /// The losses that the server was not told about yet.
    pub fn report(&self) -> MutexGuard<'_, ClientReport> {
        lock(&self.report)
    }

    /// Takes these losses, to tell the server, unless it was told of others less than a minute before `now`. Whoever
    /// fails to do so merges them back.
    pub fn take_report(&self, now: u64) -> Option<Box<ClientReport>> {
        if self.next_report.load(Ordering::Relaxed) > now {
            return None;
        }
        let report = self.take_last_report()?;
        self.next_report.store(now.saturating_add(REPORT_NANOS), Ordering::Relaxed);
        Some(report)
    }

    /// The same at the end, whenever the one before was.
    pub fn take_last_report(&self) -> Option<Box<ClientReport>> {
        let mut report = self.report();
        (!report.is_empty()).then(|| Box::new(std::mem::take(&mut *report)))
    }

    /// Whether the server takes zstd.
    pub fn zstd(&self) -> Zstd {
        match self.zstd.load(Ordering::Relaxed) {
            0 => Zstd::Untried,
            1 => Zstd::Taken,
            _ => Zstd::Refused,
        }
    }

    /// Takes note of whether the server takes zstd. Returns whether that is news. A refusal stays.
    pub fn set_zstd(&self, zstd: Zstd) -> bool {
        self.zstd.fetch_max(zstd as u8, Ordering::Relaxed) < zstd as u8
    }

    /// Takes note of profiles that were accepted. Returns whether they were the first.
    pub fn first_accepted(&self) -> bool {
        !self.accepted.swap(true, Ordering::Relaxed)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
