//! Code that listening receivers share: checks of configuration keys, and the server itself.

use std::convert::Infallible;
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::{Body, Incoming};
use hyper::service::{Service, service_fn};
use hyper::{Request, Response};
use profbridge_net::BoxError;
use profbridge_net::server::{Drained, Listener, Peer, ServerLimits, serve};
use profbridge_net::tls::TlsServerConfig;

use crate::component::{BoxFuture, StartError};
use crate::config::{Duration, Problem, Section};
use crate::receiver::ReceiverContext;
use crate::web_pages::PageRules;

/// Whether other hosts can reach the address.
pub fn is_exposed(address: SocketAddr) -> bool {
    !address.ip().to_canonical().is_loopback()
}

/// Whether other hosts could reach an endpoint in the written form `HOST:PORT`.
pub fn is_exposed_host(endpoint: &str) -> bool {
    let host = endpoint.rsplit_once(':').map_or(endpoint, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let is_loopback = |address: IpAddr| address.to_canonical().is_loopback();
    !host.eq_ignore_ascii_case("localhost") && !host.parse().is_ok_and(is_loopback)
}

/// Checks that an endpoint to listen on is valid.
pub fn check_endpoint(section: &Section, path: &str, endpoint: &str, hint: &str, problems: &mut Vec<Problem>) {
    if let Err(error) = Listener::check(endpoint) {
        problems.push(section.problem(path, error.to_string(), hint));
    }
}

/// Checks the keys `max_connections` and `max_connections_per_peer`. `path` is their section: empty, or ending in a
/// dot.
pub fn check_connections(section: &Section, path: &str, connections: [usize; 2], problems: &mut Vec<Problem>) {
    for (name, count) in ["max_connections", "max_connections_per_peer"].into_iter().zip(connections) {
        if count == 0 {
            let message = "there must be at least one connection";
            problems.push(section.problem(&format!("{path}{name}"), message, "leave it out for the default"));
        }
    }
}

/// Checks that a duration is not zero.
pub fn check_positive(section: &Section, path: &str, value: Duration, problems: &mut Vec<Problem>) {
    if value.is_zero() {
        problems.push(section.problem(path, "the time must be longer than zero", ""));
    }
}

/// The listener of a receiver for one protocol.
#[derive(Debug)]
pub struct HttpServer {
    /// The transport's name in metrics, such as `grpc` or `http`.
    pub transport: &'static str,
    /// The path of the listener's keys in the receiver's section: empty, or ending in a dot.
    pub keys: &'static str,
    /// The accepted protocol or format, in a word for the log.
    pub takes: &'static str,
    /// The address, `HOST:PORT`.
    pub endpoint: String,
    /// TLS settings; `None` for plaintext.
    pub tls: Option<TlsServerConfig>,
    /// Limits on connections.
    pub limits: ServerLimits,
    /// The origins of other servers' web pages that may access the listener; `None` if no page can, as with gRPC.
    pub cors_origins: Option<Vec<String>>,
}

impl HttpServer {
    /// Binds the address. The returned future serves connections until the shutdown.
    ///
    /// # Errors
    ///
    /// The address cannot be bound, or the TLS files cannot be read; the error names the key.
    pub async fn listen<S, B>(
        self,
        service: S,
        context: &ReceiverContext,
    ) -> Result<(SocketAddr, BoxFuture<'static, ()>), StartError>
    where
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let Self { transport, keys, takes, endpoint, tls, limits, cors_origins } = self;
        let failed = |key: &str, error: &dyn Display| StartError(format!("{keys}{key}: {error}"));
        let tls = tls.map(|tls| tls.load(limits.versions)).transpose().map_err(|error| failed("tls", &error))?;
        let listener = Listener::bind(&endpoint).await.map_err(|error| failed("endpoint", &error))?;
        let address = listener.local_addr();
        let id = context.id.clone();
        if tls.is_none() && is_exposed(address) {
            tracing::warn!(
                "{id}/{transport} takes {takes} from the network without encryption on {address}: set {keys}tls, or listen \
                 on 127.0.0.1"
            );
        }
        let shutdown = context.shutdown.clone();
        let telemetry = context.telemetry.transport(transport);
        let stats = telemetry.connections();
        let hosts = context.allowed_hosts.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let peer = request.extensions().get::<Peer>().copied();
            let pages = cors_origins.as_ref().map(|origins| PageRules { hosts: &hosts, origins });
            // With TLS, the certificate already names the server.
            let own = peer.filter(|peer| !peer.tls).and_then(|peer| peer.own);
            let checked = pages.map_or(Ok(()), |pages| pages.check(&request, own));
            let from = peer.map(|peer| peer.addr.ip());
            let answer =
                checked.map(|()| service.call(request)).inspect_err(|fault| fault.count_and_log(&telemetry, from));
            async move {
                Ok::<_, Infallible>(match answer {
                    Ok(answer) => answer.await?.map(Either::Left),
                    Err(fault) => {
                        let mut refused = Response::new(Either::Right(Full::from(format!("{}\n", fault.message))));
                        *refused.status_mut() = fault.status;
                        refused
                    }
                })
            }
        });
        let running = async move {
            let Drained { cut } = serve(listener, tls, service, limits, stats, shutdown).await;
            if cut > 0 {
                tracing::warn!("{id}/{transport}: {cut} connections were cut, their requests did not end in time");
            }
        };
        Ok((address, Box::pin(running)))
    }
}

#[cfg(test)]
mod tests {
    use super::{is_exposed, is_exposed_host};

    /// Guarantees: only addresses that no other host can reach are accepted without encryption and without a warning.
    #[test]
    fn exposed_addresses_are_known() {
        for (address, exposed) in [
            ("127.0.0.1:4317", false),
            ("127.8.8.8:4317", false),
            ("[::1]:4317", false),
            ("[::ffff:127.0.0.1]:4317", false),
            ("0.0.0.0:4317", true),
            ("[::]:4317", true),
            ("10.1.2.3:4317", true),
        ] {
            assert_eq!(is_exposed(address.parse().unwrap()), exposed, "{address}");
            assert_eq!(is_exposed_host(address), exposed, "{address}");
        }
        for (endpoint, exposed) in [("localhost:9000", false), ("relay.internal:9000", true), (":9000", true)] {
            assert_eq!(is_exposed_host(endpoint), exposed, "{endpoint}");
        }
    }
}
