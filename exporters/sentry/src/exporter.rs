//! The exporter itself.

use std::fmt;
use std::sync::{Arc, Mutex, Once, OnceLock, PoisonError};
use std::time::Duration;

use profbridge_codec::sentry::EnvelopeEncoder;
use profbridge_engine::clock::Clock;
use profbridge_engine::component::{
    Accepted, BoxFuture, Exporter, ExporterContext, Now, Observer, PartlySettled, Prepared, Request, SendError,
    StartError,
};
use profbridge_engine::http_out::HttpOut;
use profbridge_engine::peer_limits::PeerLimits;
use profbridge_model::{Reason, SampledOut, Span, Telemetry};
use profbridge_net::client::{EndpointError, ForwardingClient, HttpClientConfig, Proxies};
use profbridge_wire::sentry::client_report::Discarded;
use tokio::sync::Semaphore;

use crate::Settings;
use crate::config::SpanMode;
use crate::destination::Destination;
use crate::keep::{self, Unsent};
use crate::message;
use crate::onward::ToUpstream;
use crate::prepare::{self, Meta, RequestItem};
use crate::sampled_out;
use crate::spans::{self, ClientSpanLimits};

/// Sends profiles, transactions and envelopes to Sentry.
pub struct SentryExporter {
    pub(crate) settings: Settings,
    pub(crate) clock: Clock,
    /// Set by `start`.
    pub(crate) started: OnceLock<Started>,
    proxies: Proxies,
    encoder: Mutex<EnvelopeEncoder>,
    /// Limits the log line about ungrouped spans to one.
    ungrouped: Once,
    /// Limits how many bodies are recompressed at the same time.
    pub(crate) rewriting: Semaphore,
}

pub(crate) struct Started {
    pub(crate) out: HttpOut,
    /// Stores rate limits for the receivers that pass them back to clients.
    pub(crate) peer_limits: PeerLimits,
}

impl SentryExporter {
    /// An exporter with these settings and the proxies of the environment.
    pub fn new(settings: Settings) -> Self {
        Self::with(settings, Clock::system(), Proxies::from_env())
    }

    /// An exporter with a given clock and given proxies.
    pub fn with(settings: Settings, clock: Clock, proxies: Proxies) -> Self {
        let encoder = Mutex::new(EnvelopeEncoder::new(settings.chunk.clone()));
        Self {
            settings,
            clock,
            started: OnceLock::new(),
            proxies,
            encoder,
            ungrouped: Once::new(),
            rewriting: Semaphore::new(2),
        }
    }

    /// Builds the HTTP client. Reads certificates if any DSN uses TLS.
    fn connect(&self, context: &ExporterContext) -> Result<(), StartError> {
        let encrypted = self.settings.destinations.is_encrypted();
        // The only timeout of a request. If none is configured, it is one hour.
        let timeout = match self.settings.delivery.timeout {
            Duration::ZERO => Duration::from_secs(3600),
            timeout => timeout,
        };
        let config = HttpClientConfig {
            tls: encrypted.then(|| self.settings.tls.clone()),
            proxies: self.proxies.clone(),
            connect_timeout: timeout.min(Duration::from_secs(10)),
            timeout,
            max_idle_connections: self.settings.delivery.queue.num_consumers,
            http2_prior_knowledge: self.settings.http2_prior_knowledge,
            // Forwarded requests keep the client's user agent.
            names_itself: false,
            ..HttpClientConfig::default()
        };
        let ExporterContext { peer_limits, via, .. } = context;
        let Settings { id, destinations, default, spans: mode, .. } = &self.settings;
        let limits = ClientSpanLimits {
            destinations: Arc::clone(destinations),
            default: *default,
            mode: *mode,
            clock: self.clock.clone(),
        };
        peer_limits.offer_span_limits(id, Arc::new(limits));
        let failed = |error: EndpointError| StartError(error.to_string());
        if self.settings.destinations.upstream_of(None).is_some() {
            // Receivers forward requests of unknown types through this.
            let destinations = Arc::clone(&self.settings.destinations);
            let forwarding = ForwardingClient::new(&config).map_err(failed)?;
            let upstream_route = ToUpstream { destinations, forwarding, via: via.clone() };
            peer_limits.offer_forwarder(&self.settings.id, Arc::new(upstream_route));
        }
        let out = HttpOut::new(&config, via.clone()).map_err(failed)?;
        self.started.get_or_init(|| Started { out, peer_limits: peer_limits.clone() });
        Ok(())
    }

    /// Counts a request's items as lost, for the next client report, and merges back the report that it carried. Spans
    /// of transactions that are settled already are not among them.
    pub(crate) fn report_loss(&self, request: &Request<Meta>, discarded: Option<Discarded>) {
        let meta = &request.meta;
        if let Some(carried) = &meta.report {
            meta.destination.report().merge(carried);
        }
        let settled = meta.progress.get().map(|parts| parts.settled).unwrap_or_default();
        let settled = settled.delivered.spans + settled.losses.total().spans;
        report_items(&meta.destination, &meta.items, settled, discarded);
    }
}

/// Records items as lost, but for as many spans.
pub(crate) fn report_items(
    destination: &Destination,
    items: &[RequestItem],
    settled: u64,
    discarded: Option<Discarded>,
) {
    let Some(discarded) = discarded else { return };
    for (category, quantity) in items.iter().filter_map(|item| item.counted) {
        destination.report().record(discarded, category, quantity.saturating_sub(settled));
    }
}

impl fmt::Debug for SentryExporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SentryExporter").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Exporter for SentryExporter {
    type Meta = Meta;

    fn prepare(&self, telemetry: &Telemetry, now: Now) -> Prepared<Meta> {
        let encoder = &mut self.encoder.lock().unwrap_or_else(PoisonError::into_inner);
        match telemetry {
            Telemetry::Profiles(profiles) => prepare::profiles(encoder, &self.settings, profiles, now),
            Telemetry::Spans(spans) => {
                let is_ungrouped = |span: &Span| span.segment.is_none() && !span.is_streamed;
                if self.settings.spans == SpanMode::Transactions && spans.spans().iter().any(is_ungrouped) {
                    self.ungrouped.call_once(|| {
                        tracing::warn!(exporter = self.settings.id, "{}", message::UNGROUPED);
                    });
                }
                spans::prepare(encoder, &self.settings, spans, now)
            }
            Telemetry::Envelope(envelope) => prepare::envelope(encoder, &self.settings, envelope, now),
            other => Prepared::lost(Reason::Unroutable, other.quantities()),
        }
    }

    fn send<'a>(&'a self, request: &'a Request<Meta>) -> BoxFuture<'a, Result<Accepted, SendError>> {
        Box::pin(self.attempt(request))
    }

    fn destinations(&self) -> Vec<String> {
        self.settings.destinations.addresses()
    }

    fn start<'a>(&'a self, context: &'a ExporterContext) -> BoxFuture<'a, Result<(), StartError>> {
        Box::pin(std::future::ready(self.connect(context)))
    }

    fn observer(&self) -> Option<&dyn Observer<Meta>> {
        Some(self)
    }
}

impl Observer<Meta> for SentryExporter {
    fn sampled_out(&self, what: &SampledOut) {
        sampled_out::count(&self.settings, what);
    }

    fn keep<'a>(&'a self, requests: Vec<&'a Request<Meta>>) -> BoxFuture<'a, usize> {
        let Some(folder) = self.settings.on_shutdown.clone() else { return Box::pin(std::future::ready(0)) };
        let unsent: Vec<_> = requests.into_iter().map(|request| Unsent::new(request, self.clock.now())).collect();
        Box::pin(async move {
            let all = unsent.len();
            let shown = folder.display().to_string();
            let Ok((kept, failed)) = tokio::task::spawn_blocking(move || keep::write(&folder, &unsent)).await else {
                return 0;
            };
            let exporter = &self.settings.id;
            if let Some(error) = failed {
                tracing::error!(exporter, folder = shown, "{} of {all} unsent requests are lost: {error}", all - kept);
            }
            tracing::warn!(exporter, "{kept} unsent requests are kept; `profbridge send {shown}` delivers them");
            kept
        })
    }

    fn refuses(&self, request: &Request<Meta>) -> Option<Reason> {
        let meta = &request.meta;
        let destination = &meta.destination;
        let now = self.clock.now().monotonic_nano;
        // Sentry drops only the limited items of an envelope, so one unlimited item makes it worth sending.
        let limited = !meta.items.is_empty() && meta.items.iter().all(|item| destination.blocks(item.limited_by, now));
        limited.then_some(Reason::RateLimited)
    }

    fn settled(&self, request: &Request<Meta>) -> Option<PartlySettled> {
        Some(request.meta.progress.get()?.settled)
    }

    fn meta_bytes(&self, request: &Request<Meta>) -> u64 {
        request.meta.bytes()
    }

    fn lost(&self, request: &Request<Meta>, reason: Reason) {
        self.report_loss(
            request,
            Some(match reason {
                Reason::RateLimited => Discarded::RatelimitBackoff,
                Reason::QueueFull | Reason::MemoryLimit => Discarded::QueueOverflow,
                // A long outage, or a shutdown during one.
                Reason::RetriesExhausted | Reason::Shutdown => Discarded::NetworkError,
                _ => Discarded::InternalSdkError,
            }),
        );
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.send_reports())
    }
}
