//! Scrapes programs that serve profiles: one task per program, one profile at a time.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};
use profbridge_engine::body::ReceivedBody;
use profbridge_engine::telemetry::{ItemCounts, TransportTelemetry};
use profbridge_model::skew::StatedTime;
use profbridge_net::Shutdown;
use profbridge_net::client::{EndpointError, HttpClient, HttpClientConfig};
use profbridge_net::compression::Coding;
use profbridge_wire::foreign;
use tokio::time::{Instant, sleep};

use crate::call::{ProfileHandler, ReceivedProfile};
use crate::config::{ScrapeSettings, TargetSettings};
use crate::fault::Fault;
use crate::ingest::ProfileMetadata;
use crate::schedule::Schedule;
use crate::scrape_status::{ScrapeStatus, StatusChange};

/// The maximum number of characters that the log shows of an answer without a profile. Go's servers explain the error
/// there.
const SHOWN: usize = 200;

/// A scraper for one program.
pub(crate) struct Scraper {
    pub(crate) target: TargetSettings,
    client: HttpClient,
    schedule: Schedule,
    duration: Duration,
    max_bytes: usize,
    handler: ProfileHandler,
    telemetry: TransportTelemetry,
    /// The receiver's id, for the log.
    id: String,
}

impl Scraper {
    /// Creates a scraper; does not connect yet.
    ///
    /// # Errors
    ///
    /// The TLS settings cannot be used.
    pub(crate) fn new(
        id: &str,
        settings: &ScrapeSettings,
        target: TargetSettings,
        handler: ProfileHandler,
        telemetry: TransportTelemetry,
    ) -> Result<Self, EndpointError> {
        let &ScrapeSettings { interval, duration, timeout, max_bytes, targets: _ } = settings;
        let client = HttpClient::new(&HttpClientConfig {
            tls: (target.url.scheme_str() == Some("https")).then(|| target.tls.clone()),
            timeout: duration + timeout,
            max_response_bytes: max_bytes,
            max_idle_connections: 1,
            ..HttpClientConfig::default()
        })?;
        let schedule = Schedule::new(&format!("{id}/{}", target.name), interval);
        Ok(Self { target, client, schedule, duration, max_bytes, handler, telemetry, id: id.to_owned() })
    }

    /// Scrapes one profile after the other until the shutdown.
    pub(crate) async fn run(mut self, mut shutdown: Shutdown) {
        let start = Instant::now();
        let mut scrape_status = ScrapeStatus::default();
        loop {
            let wait = self.schedule.wait(start.elapsed());
            tokio::select! {
                () = shutdown.wait() => return,
                () = sleep(wait) => {}
            }
            let outcome = tokio::select! {
                // A shutdown does not wait for a profile that is being recorded.
                () = shutdown.wait() => return,
                outcome = self.fetch() => outcome,
            };
            match &outcome {
                Ok(samples) => self.telemetry.accepted(ItemCounts::samples(*samples)),
                Err(fault) => fault.count(&self.telemetry),
            }
            let (id, name) = (&self.id, &self.target.name);
            match scrape_status.note(outcome.map(drop).map_err(|fault| fault.message)) {
                None => {}
                Some(StatusChange::Failed(why)) => {
                    tracing::warn!("{id}: no profile of {name} ({}): {why}", self.target.host);
                }
                Some(StatusChange::Works(failed)) => {
                    tracing::info!("{id}: {name} can be scraped again, after {failed} failures");
                }
            }
        }
    }

    async fn fetch(&self) -> Result<u64, Fault> {
        let unreachable = |message: String| Fault::new(StatusCode::BAD_GATEWAY, "unreachable", message);
        self.handler.intake.room().await?;
        let begun = self.handler.clock.now().unix_nano;
        let (url, headers) = (&self.target.url, self.target.headers.clone());
        let response = self.client.send(Method::GET, url, headers, Bytes::new()).await;
        let response = response.map_err(|failure| unreachable(failure.to_string()))?;
        if response.status != StatusCode::OK {
            let said: String = String::from_utf8_lossy(&response.body).trim().chars().take(SHOWN).collect();
            return Err(unreachable(format!("it answered {}: {said}", response.status.as_u16())));
        }
        let wrong = match foreign::name(&response.body) {
            _ if response.body.is_empty() => Some("nothing"),
            named => named.map(|(what, _)| what),
        };
        if let Some(what) = wrong {
            let message = format!(
                "it answered 200 with {what} instead of a pprof profile: see `path`, and whether it wants a login"
            );
            return Err(Fault::malformed(message));
        }
        let coding = response.headers.get(http::header::CONTENT_ENCODING).and_then(|coding| coding.to_str().ok());
        let permit = self.handler.intake.admit_waiting(response.body.len() as u64).await?;
        let duration_nano = u64::try_from(self.duration.as_nanos()).unwrap_or(u64::MAX);
        let received = ReceivedProfile {
            received: ReceivedBody { bytes: response.body, permit },
            coding: Coding::parse(coding)?,
            boundary: None,
            metadata: ProfileMetadata {
                attributes: self.target.attributes.clone(),
                stated: StatedTime { time_unix_nano: begun, duration_nano },
            },
            peer: self.target.host.as_str().into(),
            max_bytes: self.max_bytes,
        };
        self.handler.accept_profile(received).await
    }
}
