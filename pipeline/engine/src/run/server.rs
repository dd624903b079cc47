//! The two small HTTP servers: metrics for Prometheus, and health checks for supervisors.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use profbridge_net::Shutdown;
use profbridge_net::server::{Listener, Peer, ServerLimits, ServerStats, serve};
use profbridge_net::tls::HttpVersions;
use tokio::task::JoinHandle;

use crate::component::StartError;
use crate::health::{Health, Thresholds};
use crate::telemetry::{CONTENT_TYPE as PROMETHEUS, Metrics};
use crate::web_pages::PageRules;

/// Maximum number of connections to one server. A supervisor must get an answer even if others keep connections open,
/// so the connection that has been idle for longest is closed to make room.
const MOST_CONNECTIONS: usize = 32;

/// An answer: status, content type, body.
type StatusAnswer = (StatusCode, &'static str, String);

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    /// The address that the server listens on, with the port that the system chose.
    pub(crate) address: SocketAddr,
    task: JoinHandle<()>,
}

impl Server {
    /// Serves the metrics on `/metrics`.
    ///
    /// # Errors
    ///
    /// The address cannot be bound.
    pub(crate) async fn metrics(
        endpoint: &str,
        metrics: Metrics,
        hosts: Arc<[String]>,
        shutdown: Shutdown,
    ) -> Result<Self, StartError> {
        let answer = move |path: &str| match path {
            "/metrics" => (StatusCode::OK, PROMETHEUS, metrics.encode()),
            _ => (StatusCode::NOT_FOUND, "text/plain", "metrics are under /metrics\n".to_owned()),
        };
        Self::start("service.telemetry.metrics.address", endpoint, answer, hosts, shutdown).await
    }

    /// Serves the health on `/`: 200 while everything runs and no exporter has had problems for longer than its
    /// threshold, 503 otherwise, with the state of each component.
    ///
    /// # Errors
    ///
    /// The address cannot be bound.
    pub(crate) async fn health(
        endpoint: &str,
        (health, metrics, thresholds): (Health, Metrics, Thresholds),
        hosts: Arc<[String]>,
        shutdown: Shutdown,
    ) -> Result<Self, StartError> {
        let answer = move |path: &str| match path {
            "/" => {
                let (is_well, body) = health.answer(&metrics.troubles(&thresholds));
                let status = if is_well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
                (status, "application/json", body)
            }
            _ => (StatusCode::NOT_FOUND, "text/plain", "health is under /\n".to_owned()),
        };
        Self::start("service.telemetry.health.address", endpoint, answer, hosts, shutdown).await
    }

    async fn start(
        key: &str,
        endpoint: &str,
        answer: impl Fn(&str) -> StatusAnswer + Send + Sync + 'static,
        hosts: Arc<[String]>,
        shutdown: Shutdown,
    ) -> Result<Self, StartError> {
        let listener = Listener::bind(endpoint).await.map_err(|error| StartError(format!("{key}: {error}")))?;
        let address = listener.local_addr();
        let answer = Arc::new(answer);
        let service = service_fn(move |request: Request<Incoming>| {
            let response = respond(&request, &*answer, &hosts);
            std::future::ready(Ok::<_, Infallible>(response))
        });
        // There are few clients, and their requests are short.
        let limits = ServerLimits {
            versions: HttpVersions::Http1,
            max_connections: MOST_CONNECTIONS,
            // Usually there is only one peer; a further connection closes its own idle connections too.
            max_connections_per_peer: usize::MAX,
            replace_idle: true,
            header_timeout: Duration::from_secs(5),
            // By default Prometheus asks once a minute, over the same connection.
            idle_timeout: Duration::from_secs(90),
            drain_timeout: Duration::from_secs(1),
            max_head_bytes: 8192,
            ..ServerLimits::default()
        };
        let task = tokio::spawn(async move {
            serve(listener, None, service, limits, Arc::new(ServerStats::default()), shutdown).await;
        });
        Ok(Self { address, task })
    }

    /// Waits until the server has stopped, after its shutdown was triggered.
    pub(crate) async fn stopped(self) {
        if let Err(error) = self.task.await {
            tracing::error!(%error, "a telemetry server failed");
        }
    }
}

fn respond(
    request: &Request<Incoming>,
    answer: &(impl Fn(&str) -> StatusAnswer + ?Sized),
    hosts: &[String],
) -> Response<Full<Bytes>> {
    let own = request.extensions().get::<Peer>().and_then(|peer| peer.own);
    let (status, content_type, body) = if let Err(fault) = (PageRules { hosts, origins: &[] }).check(request, own) {
        (fault.status, "text/plain", format!("{}\n", fault.message))
    } else if matches!(*request.method(), Method::GET | Method::HEAD) {
        answer(request.uri().path())
    } else {
        (StatusCode::METHOD_NOT_ALLOWED, "text/plain", "only GET is answered\n".to_owned())
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
