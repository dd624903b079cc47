//! Makes one attempt to deliver a request, and interprets the answer.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use profbridge_codec::sentry::{ContentEncoding, sent_later};
use profbridge_codec::{Encoded, compress};
use profbridge_engine::component::{Accepted, PartlySettled, Request, Retry, SendError};
use profbridge_engine::http_out::{self, HttpAnswer as Response};
use profbridge_engine::peer_limits::PeerLimits;
use profbridge_model::envelope::EnvelopeBody;
use profbridge_model::{Envelope, Reason, TelemetryKind};
use profbridge_net::compression::{Coding, Compression, decompress};
use profbridge_wire::sentry::Category;
use profbridge_wire::sentry::client_report::Discarded;
use profbridge_wire::sentry::envelope::{self, Ending};
use profbridge_wire::sentry::rate_limit::{LONGEST, LimitResponse, limits_of};
use profbridge_wire::sentry::response::{Verdict, detail};

use crate::config::{self, SpanMode};
use crate::destination::{AUTH, Destination, Zstd};
use crate::exporter::{SentryExporter, report_items};
use crate::message;
use crate::prepare::{BodyCompression, BodyForm, Meta, RequestItem, SentParts, seconds};
use crate::spans;

const RATE_LIMITS: HeaderName = HeaderName::from_static("x-sentry-rate-limits");

/// An envelope that waited longer than this gets a corrected time of sending, or Sentry would take the delay for a
/// wrong clock on the client. Shorter delays need no correction: Sentry ignores differences below 55 minutes.
const LATE: Duration = Duration::from_secs(60);

/// After about this time a server without an OTLP endpoint is tried again: it may have been upgraded, or a proxy may
/// have answered for it.
const OTLP_AGAIN: Duration = Duration::from_secs(3600);

/// The parts of a server's answer that matter.
struct ParsedAnswer {
    status: u16,
    detail: Option<String>,
    retry_after: Option<Duration>,
}

/// Values for a request's headers.
#[derive(Clone, Copy)]
struct RequestHeaders<'a> {
    headers: &'a [(HeaderName, HeaderValue)],
    encoding: Option<&'static str>,
    form: BodyForm,
    /// The client to which rate limits in the answer are passed back.
    peer_key: Option<&'a str>,
}

impl<'a> RequestHeaders<'a> {
    fn of(meta: &'a Meta) -> Self {
        let encoding = meta.body.content_encoding();
        Self { headers: &meta.headers, encoding, form: meta.form, peer_key: meta.peer_key.as_deref() }
    }
}

impl SentryExporter {
    /// Makes one attempt. If the server refuses zstd, repeats the request as gzip at once.
    pub(crate) async fn attempt(&self, request: &Request<Meta>) -> Result<Accepted, SendError> {
        let meta = &request.meta;
        let may_become_transactions = meta.form == BodyForm::Traces && self.settings.spans == SpanMode::Auto;
        let result = if meta.progress.get().is_some() {
            self.send_as_transactions(request).await
        } else {
            match self.try_encodings(request).await {
                Ok(answered) if answered.status == 404 && may_become_transactions => {
                    self.send_as_transactions(request).await
                }
                Ok(answered) => self.conclude(meta, answered),
                Err(error) => Err(error),
            }
        };
        match &result {
            Err(error) if error.retry == Retry::Never => self.report_loss(request, discarded(error.reason)),
            Ok(_) if may_become_transactions && meta.progress.get().is_none() && meta.destination.set_has_otlp() => {
                let to = message::server_and_project(&meta.destination.dsn);
                tracing::info!(exporter = self.settings.id, to, "{}", message::HAS_OTLP);
            }
            _ => {}
        }
        result
    }

    /// Sends spans as transactions to a server without an OTLP endpoint. One that fails for good is lost alone. If one
    /// can be tried again, the next attempt begins with it.
    async fn send_as_transactions(&self, request: &Request<Meta>) -> Result<Accepted, SendError> {
        let meta = &request.meta;
        let (destination, encoding) = (Arc::clone(&meta.destination), meta.body.content_encoding());
        let (body, settings) = (request.body.clone(), self.settings.chunk.clone());
        let work = move || spans::as_transactions(body, encoding, &destination.dsn, |_| settings);
        let Encoded { messages, report } = self.rewritten(work).await?;
        let destination = &meta.destination;
        let form = BodyForm::Envelope;
        let head = RequestHeaders { encoding: Compression::GZIP.content_encoding(), form, ..RequestHeaders::of(meta) };
        let mut parts = meta.progress.get().unwrap_or_else(|| {
            let settled = PartlySettled { losses: report.losses, ..PartlySettled::default() };
            SentParts { settled, ..SentParts::default() }
        });
        for message in messages.into_iter().skip(parts.count) {
            let now = self.clock.now().monotonic_nano;
            let is_limited = destination.blocks(Category::OF_TRANSACTIONS, now);
            let outcome = match is_limited {
                true => Err(SendError {
                    retry: Retry::Never,
                    reason: Reason::RateLimited,
                    message: Reason::RateLimited.explanation().to_owned(),
                }),
                false => self.post(destination, head, message.body).await,
            };
            match outcome.and_then(|answered| self.conclude(meta, answered)) {
                Ok(_) => {
                    parts.settled.delivered += message.quantities;
                    let pause = self.settings.delivery.retry.randomized(OTLP_AGAIN, fastrand::f64());
                    if destination.set_lacks_otlp(now.saturating_add(pause.as_nanos() as u64)) {
                        let to = message::server_and_project(&destination.dsn);
                        tracing::warn!(exporter = self.settings.id, to, "{}", message::LACKS_OTLP);
                    }
                }
                Err(error) if error.retry == Retry::Never => {
                    parts.settled.losses.add(error.reason, message.quantities);
                    let unsent = is_limited.then_some(Discarded::RatelimitBackoff);
                    let items = RequestItem::transaction(message.quantities.spans);
                    report_items(destination, &items, 0, unsent.or_else(|| discarded(error.reason)));
                    parts.error.get_or_insert(error);
                }
                Err(error) => {
                    meta.progress.set(parts);
                    return Err(error);
                }
            }
            parts.count += 1;
            meta.progress.set(parts.clone());
        }
        let SentParts { settled, error, .. } = parts;
        match error {
            Some(error) if settled.delivered.is_none() => Err(error),
            error => {
                let message = error.map(|error| error.message);
                let losses = settled.losses.iter().collect();
                Ok(Accepted { losses, message, notes: report.notes, ..Accepted::default() })
            }
        }
    }

    /// The answer to a request, which is repeated as gzip if the server refuses zstd.
    async fn try_encodings(&self, request: &Request<Meta>) -> Result<ParsedAnswer, SendError> {
        let meta = &request.meta;
        let destination = &meta.destination;
        let unchanged = RequestHeaders::of(meta);
        let gzip = RequestHeaders { encoding: Compression::GZIP.content_encoding(), ..unchanged };
        let may_change = self.settings.compression == config::EnvelopeCompression::Auto
            && matches!(meta.body, BodyCompression::Ours(Compression::Zstd { .. }));
        if !may_change {
            let (head, body) = match self.with_corrected_time(request).await? {
                Some(body) => (gzip, body),
                None => (unchanged, request.body.clone()),
            };
            return self.post(destination, head, body).await;
        }
        // The status by which the server may have refused zstd.
        let mut refused = None;
        if destination.zstd() != Zstd::Refused {
            let answered = self.post(destination, unchanged, request.body.clone()).await?;
            match refuses_zstd(answered.status, destination.zstd()) {
                ZstdRefusal::No => {
                    if Verdict::of(answered.status) == Verdict::Accepted {
                        destination.set_zstd(Zstd::Accepted);
                    }
                    return Ok(answered);
                }
                ZstdRefusal::Certain => self.give_up_zstd(destination, answered.status),
                ZstdRefusal::Possible => refused = Some(answered.status),
            }
        }
        let body = self.gzipped(request.body.clone()).await?;
        let answered = self.post(destination, gzip, body).await?;
        if let Some(status) = refused.filter(|_| Verdict::of(answered.status) == Verdict::Accepted) {
            self.give_up_zstd(destination, status);
        }
        Ok(answered)
    }

    /// The body of an envelope that has waited for long, with its time of sending moved by the delay. `None` if the
    /// body can be sent unchanged.
    async fn with_corrected_time(&self, request: &Request<Meta>) -> Result<Option<Bytes>, SendError> {
        let (BodyCompression::AsReceived(ContentEncoding(encoding)), Some((header, arrival))) =
            (request.meta.body, &request.meta.arrived)
        else {
            return Ok(None);
        };
        let waited = Duration::from_nanos(self.clock.now().unix_nano.saturating_sub(*arrival));
        if waited < LATE {
            return Ok(None);
        }
        let received = EnvelopeBody { body: request.body.clone(), content_encoding: encoding, changed: false };
        let header = header.clone();
        let work = move || sent_later(&received, &header, waited, Compression::GZIP.with_level(1));
        self.rewritten(work).await
    }

    /// Transforms a body on a blocking thread, with limited concurrency: the largest takes a tenth of a second, and its
    /// memory is not part of any budget.
    async fn rewritten<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
    ) -> Result<T, SendError> {
        let failed =
            |error: &dyn std::fmt::Display| internal(format!("an envelope could not be written anew: {error}"));
        let _one_of_few = self.rewriting.acquire().await.map_err(|closed| failed(&closed))?;
        match tokio::task::spawn_blocking(work).await {
            Ok(written) => written.map_err(|error| failed(&error)),
            Err(error) => Err(failed(&error)),
        }
    }

    /// Recompresses a zstd body as gzip.
    async fn gzipped(&self, zstd: Bytes) -> Result<Bytes, SendError> {
        let work = move || {
            let plain = decompress(Coding::Zstd, zstd, envelope::MAX_BYTES).map_err(std::io::Error::other)?;
            compress(Compression::GZIP.with_level(1), &plain).map_err(std::io::Error::other)
        };
        self.rewritten(work).await
    }

    fn give_up_zstd(&self, destination: &Destination, status: u16) {
        if destination.set_zstd(Zstd::Refused) {
            let to = message::server_and_project(&destination.dsn);
            tracing::info!(
                exporter = self.settings.id,
                to,
                status,
                "the server does not take zstd, using gzip from here on"
            );
        }
    }

    /// Posts a body and stores the rate limits in the answer.
    async fn post(
        &self,
        destination: &Destination,
        head: RequestHeaders<'_>,
        body: Bytes,
    ) -> Result<ParsedAnswer, SendError> {
        let started = self.started.get().ok_or_else(http_out::not_started)?;
        let mut headers: HeaderMap = head.headers.iter().cloned().collect();
        if head.peer_key.is_none() {
            let ours = HeaderValue::from_static(profbridge_net::USER_AGENT);
            headers.entry(USER_AGENT).or_insert(ours);
        }
        headers.entry(AUTH).or_insert_with(|| destination.auth.clone());
        let kind = match head.form {
            BodyForm::Envelope => TelemetryKind::Envelopes,
            BodyForm::Traces => TelemetryKind::Spans,
        };
        let (url, content_type) = (head.form.url(destination), head.form.content_type());
        let posted = started.out.post(url, kind, headers, content_type, head.encoding, body).await;
        let unanswered = |failure| http_out::unanswered(&failure, message::failed(&destination.dsn, &failure));
        let response = posted.map_err(unanswered)?;
        Ok(self.parse_answer(destination, head.peer_key.map(|key| (key, &started.peer_limits)), &response))
    }

    /// Stores the rate limits in an answer, also for the receiver of the client.
    fn parse_answer(
        &self,
        destination: &Destination,
        client: Option<(&str, &PeerLimits)>,
        response: &Response,
    ) -> ParsedAnswer {
        let status = response.status.as_u16();
        let now = self.clock.now();
        let retry_after = response.retry_after(Duration::from_nanos(now.unix_nano)).map(|pause| pause.min(LONGEST));
        // Several header lines are one list (RFC 9110, 5.3).
        let lines = response.headers.get_all(RATE_LIMITS).iter().filter_map(|value| value.to_str().ok());
        let limits = lines.collect::<Vec<_>>().join(",");
        let limits = Some(limits.as_str()).filter(|limits| !limits.is_empty());
        let answer = LimitResponse { status, limits, retry_after };
        if let Some((key, clients)) = client {
            limits_of(answer).into_iter().for_each(|(time, text)| clients.publish(key, text, time));
        }
        for (what, time) in destination.limit(answer, now.monotonic_nano) {
            let to = message::server_and_project(&destination.dsn);
            let seconds = time.as_secs_f64();
            tracing::warn!(
                exporter = self.settings.id,
                to,
                seconds,
                "sentry limits {what}; they are dropped meanwhile"
            );
        }
        // An unreadable body changes nothing.
        let body = response.body.as_ref().ok().filter(|_| !response.status.is_success());
        let detail = body.and_then(|body| detail(body, &destination.dsn));
        ParsedAnswer { status, detail, retry_after }
    }

    fn conclude(&self, meta: &Meta, answered: ParsedAnswer) -> Result<Accepted, SendError> {
        let destination = &meta.destination;
        let (retry, reason) = match Verdict::of(answered.status) {
            Verdict::Accepted => {
                if meta.items.iter().any(RequestItem::is_profile) && destination.first_accepted() {
                    let to = message::server_and_project(&destination.dsn);
                    tracing::info!(exporter = self.settings.id, to, "{}", message::ACCEPTED);
                }
                return Ok(Accepted { billed: meta.billed, ..Accepted::default() });
            }
            Verdict::Outage => (answered.retry_after.map_or(Retry::Later, Retry::After), Reason::RetriesExhausted),
            Verdict::RateLimited => (Retry::Never, Reason::RateLimited),
            Verdict::TooLarge => (Retry::Never, Reason::TooLarge),
            Verdict::EncodingRefused | Verdict::Refused => (Retry::Never, Reason::RejectedByPeer),
        };
        let message = message::answered(&destination.dsn, answered.status, answered.detail.as_deref());
        Err(SendError { retry, reason, message })
    }

    /// Sends all pending client reports.
    pub(crate) async fn send_reports(&self) {
        for destination in self.settings.destinations.all() {
            let now = self.clock.now();
            if destination.blocks(&[Category::Internal], now.monotonic_nano) {
                continue;
            }
            let Some(report) = destination.take_last_report() else { continue };
            let Some(item) = report.item(seconds(now)) else { continue };
            let envelope = Envelope { items: vec![item], ..Envelope::default() };
            let Ok(body) = envelope::write(&envelope, Ending::Newline) else { continue };
            let body = Bytes::from(body);
            // Small and sent only once at shutdown, so neither compressed nor retried.
            let result = self
                .post(
                    &destination,
                    RequestHeaders { headers: &[], encoding: None, form: BodyForm::Envelope, peer_key: None },
                    body,
                )
                .await;
            let message = match result {
                Ok(answered) if Verdict::of(answered.status) == Verdict::Accepted => continue,
                Ok(answered) => message::answered(&destination.dsn, answered.status, answered.detail.as_deref()),
                Err(error) => error.message,
            };
            tracing::debug!(exporter = self.settings.id, "the last client report was not delivered: {message}");
        }
    }
}

/// What a client report says of a loss. Items rejected with 429 are not reported: the server counts them itself (Sentry
/// developer documentation, "Client Reports").
fn discarded(reason: Reason) -> Option<Discarded> {
    match reason {
        Reason::RateLimited => None,
        Reason::Internal => Some(Discarded::InternalSdkError),
        _ => Some(Discarded::SendError),
    }
}

/// Whether a status means that the server refuses zstd.
enum ZstdRefusal {
    No,
    Possible,
    Certain,
}

fn refuses_zstd(status: u16, known: Zstd) -> ZstdRefusal {
    match Verdict::of(status) {
        Verdict::EncodingRefused => ZstdRefusal::Certain,
        // Servers that do not support the encoding may report a malformed envelope instead.
        Verdict::Refused if status == 400 && known == Zstd::Untried => ZstdRefusal::Possible,
        _ => ZstdRefusal::No,
    }
}

fn internal(message: String) -> SendError {
    SendError { retry: Retry::Never, reason: Reason::Internal, message }
}
