//! One connection from its first byte to its last.

use std::future::Future;
use std::hash::{BuildHasher as _, RandomState};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http_body::Body;
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::service::Service;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use super::activity::{Activity, ObservedBody};
use super::connection_log::{ConnectionLog, WrongProtocol};
use super::socket::{Socket, Stream};
use super::{ConnectionState, Peer, ServerLimits, ServerStats};
use crate::tls::{HttpVersions, offers_other_protocols, speaks_plaintext};
use crate::{BoxError, Shutdown};

/// State that all connections of a server share.
pub(super) struct Connections<S> {
    pub(super) service: S,
    pub(super) tls: Option<TlsAcceptor>,
    pub(super) limits: ServerLimits,
    pub(super) stats: Arc<ServerStats>,
    pub(super) connection_log: ConnectionLog,
    pub(super) shutdown: Shutdown,
}

impl<S> Connections<S> {
    async fn handshake(&self, stream: TcpStream, addr: SocketAddr) -> Option<Stream> {
        let Some(tls) = &self.tls else { return Some(Stream::Plain(stream)) };
        let mut shutdown = self.shutdown.clone();
        let shaken = tokio::select! {
            shaken = tokio::time::timeout(self.limits.handshake_timeout, tls.accept(stream)) => shaken,
            // No request has begun, so nothing has to be drained.
            () = shutdown.wait() => return None,
        };
        match shaken {
            Ok(Ok(stream)) => return Some(Stream::Tls(Box::new(stream))),
            // Load balancers open connections only to check whether the port is open. These need no log line.
            Ok(Err(error)) if error.kind() == ErrorKind::UnexpectedEof => {
                tracing::debug!(peer = %addr, %error, "tls handshake failed");
            }
            Ok(Err(error)) if speaks_plaintext(&error) => self.wrong_protocol(addr, WrongProtocol::Plaintext),
            Ok(Err(error)) if self.only_http2() && offers_other_protocols(&error) => {
                self.wrong_protocol(addr, WrongProtocol::Http1);
            }
            Ok(Err(error)) => self.connection_log.handshake(addr, &error),
            Err(_) => self.connection_log.handshake(addr, &"it took too long"),
        }
        self.stats.count(|stats| stats.handshakes_failed += 1);
        None
    }

    fn only_http2(&self) -> bool {
        self.limits.versions == HttpVersions::Http2
    }

    fn wrong_protocol(&self, addr: SocketAddr, spoken: WrongProtocol) {
        self.stats.wrong_protocol();
        self.connection_log.wrong_protocol(addr, spoken);
    }
}

impl<S, B> Connections<S>
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    /// Serves one connection to its end, and records its activity in `activity`.
    pub(super) async fn run(self: Arc<Self>, stream: TcpStream, addr: SocketAddr, activity: Arc<Activity>) {
        let _open = self.stats.opened();
        let own = stream.local_addr().ok();
        let Some(stream) = self.handshake(stream, addr).await else { return };
        let peer = Peer { addr, own, tls: matches!(stream, Stream::Tls(_)) };
        activity.ready(Instant::now());
        self.serve(stream, peer, activity).await;
    }

    async fn serve(&self, stream: Stream, peer: Peer, activity: Arc<Activity>) {
        // Requests of an HTTP/2 connection run in their own tasks, which end with the connection.
        let (_streams_end, streams) = Shutdown::pair();
        let service = Observing {
            service: self.service.clone(),
            peer,
            kept: ConnectionState::default(),
            activity: Arc::clone(&activity),
        };
        let socket = Socket { stream, activity: Arc::clone(&activity) };
        let builder = builder(&self.limits, streams);
        let connection = builder.serve_connection(TokioIo::new(socket), service);
        tokio::pin!(connection);

        let mut shutdown = self.shutdown.clone();
        let timer = tokio::time::sleep(self.limits.header_timeout);
        tokio::pin!(timer);
        let age = tokio::time::sleep(self.limits.max_connection_age.map_or(FOREVER, randomized));
        tokio::pin!(age);
        let mut draining = false;
        // Set when the peer has missed a deadline: the time until which a graceful close may take.
        let mut closing: Option<Instant> = None;
        loop {
            tokio::select! {
                biased;
                ended = connection.as_mut() => {
                    if let Some(spoken) = WrongProtocol::of(&activity.first(), self.only_http2()) {
                        self.wrong_protocol(peer.addr, spoken);
                    }
                    if let Err(error) = ended {
                        tracing::debug!(peer = %peer.addr, %error, "connection ended");
                    }
                    return;
                }
                () = shutdown.wait(), if !draining => {
                    draining = true;
                    connection.as_mut().graceful_shutdown();
                }
                () = age.as_mut(), if !draining => {
                    draining = true;
                    connection.as_mut().graceful_shutdown();
                    if let Some(grace) = self.limits.max_connection_age_grace {
                        let end = Instant::now() + grace;
                        closing = Some(end);
                        timer.as_mut().reset(end);
                    }
                }
                () = timer.as_mut() => {
                    let now = Instant::now();
                    if let Some(end) = closing {
                        if end <= now {
                            return;
                        }
                        timer.as_mut().reset(end);
                        continue;
                    }
                    match activity.deadline(&self.limits) {
                        Some(deadline) if deadline <= now => {
                            tracing::debug!(peer = %peer.addr, "connection timed out");
                            self.stats.count(|stats| stats.timed_out += 1);
                            let end = now + self.limits.close_timeout;
                            closing = Some(end);
                            timer.as_mut().reset(end);
                            connection.as_mut().graceful_shutdown();
                        }
                        // The shorter of the two timeouts limits how late a missed deadline is noticed.
                        deadline => timer.as_mut().reset(self.next_deadline_check(now, deadline)),
                    }
                }
            }
        }
    }

    /// The time at which to check the deadline again. The deadline may become earlier in between (when the first byte
    /// of a request replaces the idle deadline by the header deadline), so this is at most the header timeout from now.
    fn next_deadline_check(&self, now: Instant, deadline: Option<Instant>) -> Instant {
        let latest = now + self.limits.header_timeout;
        deadline.map_or(latest, |deadline| deadline.min(latest))
    }
}

/// A duration longer than any process runs.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// The time, randomly up to a tenth shorter or longer.
fn randomized(time: Duration) -> Duration {
    time.mul_f64(0.9 + 0.2 * f64::from(RandomState::new().hash_one(()) as u32) / f64::from(u32::MAX))
}

fn builder(limits: &ServerLimits, streams: Shutdown) -> auto::Builder<Streams> {
    let mut builder = auto::Builder::new(Streams { end: streams });
    builder
        .http1()
        .timer(TokioTimer::new())
        // The deadlines of `activity` replace hyper's timeout.
        .header_read_timeout(None)
        // A complete request is served although its sender has closed its side: a browser closes the connection
        // together with its page.
        .half_close(true)
        .max_buf_size(limits.max_head_bytes.max(8192));
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.max_concurrent_streams)
        .keep_alive_interval(limits.keepalive_interval)
        .keep_alive_timeout(limits.keepalive_timeout);
    match limits.versions {
        HttpVersions::Http1 => builder.http1_only(),
        HttpVersions::Http2 => builder.http2_only(),
        HttpVersions::Both => builder,
    }
}

/// Runs the streams of an HTTP/2 connection until the connection ends.
#[derive(Clone)]
struct Streams {
    end: Shutdown,
}

impl<F> Executor<F> for Streams
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let end = self.end.clone();
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = stream => {}
                () = end.triggered() => {}
            }
        });
    }
}

/// Wraps the service for one connection: it adds the peer to requests and records their activity.
struct Observing<S> {
    service: S,
    peer: Peer,
    kept: ConnectionState,
    activity: Arc<Activity>,
}

impl<S, B> Service<Request<Incoming>> for Observing<S>
where
    S: Service<Request<Incoming>, Response = Response<B>>,
    S::Future: Send + 'static,
    B: Body,
{
    type Response = Response<ObservedBody<B>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let in_request = self.activity.begin();
        request.extensions_mut().insert(self.peer);
        request.extensions_mut().insert(self.kept.clone());
        let response = self.service.call(request);
        let activity = Arc::clone(&self.activity);
        Box::pin(async move {
            let response = response.await;
            drop(in_request);
            response.map(|response| response.map(|body| ObservedBody::new(body, activity)))
        })
    }
}
