//! The sockets, TLS, HTTP shells and capped (de)compression that receivers, exporters and the
//! telemetry server share.
//!
//! Everything here is protocol-free: no OTLP, no Sentry. A receiver brings an HTTP service and
//! [`server::serve`] brings the accept loop; an exporter brings bytes and [`client::HttpClient`] or
//! [`client::grpc_channel`] brings the connection. Four laws hold in the whole crate:
//!
//! 1. A limit is checked before memory is taken for what it limits.
//! 2. A peer that is slow, silent or gone costs its own connection and nothing else.
//! 3. No global state: the cryptography provider, the proxies and the shutdown are values.
//! 4. No error text carries a URL's user information, path or query, since those carry secrets.

pub mod body;
pub mod client;
pub mod compression;
mod log_gate;
pub mod server;
pub mod shutdown;
pub mod tls;

pub use log_gate::LogGate;
pub use shutdown::{Shutdown, Trigger};

#[cfg(test)]
mod testing;

/// What every client of this crate calls itself: `profbridge/VERSION`.
pub const USER_AGENT: &str = concat!("profbridge/", env!("CARGO_PKG_VERSION"));

/// Any error of a service, a body or a transport.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A future that a trait object returns.
pub type BoxFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Joins the messages of an error and its causes with `: `, leaving out a cause that its parent
/// already quotes.
///
/// The clients' errors nest five deep ("client error (Connect): tcp connect error: Connection
/// refused"), and only the whole chain tells what happened.
pub fn error_chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let message = error.to_string();
        if !text.contains(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        cause = error.source();
    }
    text
}
