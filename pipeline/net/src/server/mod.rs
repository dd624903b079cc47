//! One accept loop for all listeners: OTLP over gRPC and HTTP, metrics, health.
//!
//! hyper serves the connections. This module adds what a server on an open port needs in addition: a limit on
//! connections with a counter of refused ones, deadlines for peers that are slow or silent at any stage, accept errors
//! that do not end the loop, and a shutdown that lets running requests finish up to a deadline.
//!
//! The service limits its own work; in particular it reads bodies through [`crate::body`].

mod activity;
mod connection;
mod connection_log;
mod limits;
mod listener;
mod peer;
mod slots;
mod socket;
mod stats;

use activity::Activity;
use connection::Connections;
use connection_log::ConnectionLog;
pub use limits::ServerLimits;
pub use listener::{BindError, Listener};
pub use peer::{ConnectionState, Peer};
use slots::Slots;
pub use stats::{ServerStats, StatsSnapshot};

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body::Body;
use hyper::body::Incoming;
use hyper::service::Service;
use hyper::{Request, Response};
use rustls::ServerConfig;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use crate::{BoxError, Shutdown};

/// The first and the longest pause after an accept error that persists, such as EMFILE.
const ACCEPT_PAUSE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));

/// The result of draining a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// The number of connections that were closed because their requests did not finish before the deadline.
    pub cut: usize,
}

/// A source of connections: a listener, or a failing one in a test.
pub trait Accept: Send + Sync {
    /// The next connection. Safe to cancel.
    fn accept(&self) -> impl Future<Output = io::Result<(TcpStream, SocketAddr)>> + Send;
    /// The endpoint as configured.
    fn endpoint(&self) -> &str;
}

/// Serves `service` on every connection of `listener` until `shutdown`, then lets running requests finish for at most
/// [`ServerLimits::drain_timeout`].
///
/// Each connection gets a clone of the service. A request has a [`Peer`] and its connection's [`ConnectionState`] as
/// extensions. A request's future is dropped when its connection ends, so it must be safe to cancel. Dropping the
/// returned future cuts every connection.
pub async fn serve<A, S, B>(
    listener: A,
    tls: Option<Arc<ServerConfig>>,
    service: S,
    limits: ServerLimits,
    stats: Arc<ServerStats>,
    mut shutdown: Shutdown,
) -> Drained
where
    A: Accept,
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    let connection_log = ConnectionLog::new(listener.endpoint());
    let tls = tls.map(TlsAcceptor::from);
    let connections = Arc::new(Connections { service, tls, limits, stats, connection_log, shutdown: shutdown.clone() });
    let Connections { limits, stats, connection_log, .. } = &*connections;
    let mut tasks = JoinSet::new();
    let mut slots = Slots::default();
    let mut pause = ACCEPT_PAUSE.0;
    loop {
        let accepted = tokio::select! {
            biased;
            () = shutdown.wait() => break,
            Some(ended) = tasks.join_next_with_id(), if !tasks.is_empty() => {
                slots.remove(ended.as_ref().map_or_else(tokio::task::JoinError::id, |(id, ())| *id));
                note_panic(ended.map(drop));
                continue;
            }
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, addr)) => {
                pause = ACCEPT_PAUSE.0;
                // The connection is closed instead of left in the backlog: the peer notices at once and can retry here
                // or elsewhere, instead of waiting until its own timeout.
                match slots.room(&stream, addr, limits) {
                    Ok(replaces) => stats.count(|stats| stats.timed_out += u64::from(replaces)),
                    Err(none) => {
                        stats.count(|stats| stats.refused += 1);
                        connection_log.no_room(addr, none, limits);
                        continue;
                    }
                }
                let activity = Arc::new(Activity::new(Instant::now()));
                let task = tasks.spawn(Arc::clone(&connections).run(stream, addr, Arc::clone(&activity)));
                slots.insert(addr, activity, task);
            }
            Err(error) if concerns_one_connection(&error) => {}
            Err(error) => {
                stats.count(|stats| stats.accepts_failed += 1);
                if pause == ACCEPT_PAUSE.0 {
                    tracing::warn!(endpoint = %listener.endpoint(), %error, "cannot accept a connection, trying again");
                }
                tokio::select! {
                    () = shutdown.wait() => break,
                    () = tokio::time::sleep(pause) => {}
                }
                pause = (pause * 2).min(ACCEPT_PAUSE.1);
            }
        }
    }
    // The port is free from now on: another process can bind it while this server drains.
    drop(listener);
    let all = async {
        while let Some(ended) = tasks.join_next().await {
            note_panic(ended);
        }
    };
    if tokio::time::timeout(limits.drain_timeout, all).await.is_ok() {
        return Drained { cut: 0 };
    }
    let cut = tasks.len();
    tasks.shutdown().await;
    Drained { cut }
}

/// Whether an error of `accept` concerns only one connection, which is already gone.
fn concerns_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// Logs a panic in a service, which is a bug. It ends only its own connection.
fn note_panic(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!(%error, "a request handler panicked, its connection is closed");
    }
}

#[cfg(test)]
mod tests;
