//! Sockets, TLS, HTTP servers and clients, and bounded (de)compression, shared by receivers, exporters and the
//! telemetry server.
//!
//! Everything here is independent of OTLP and Sentry. A receiver supplies an HTTP service to the accept loop of
//! [`server::serve`]; an exporter sends bytes with [`client::HttpClient`] or [`client::grpc_channel`]. Four rules hold
//! in the whole crate:
//!
//! 1. A limit is checked before memory is allocated for the limited data.
//! 2. A peer that is slow, silent or gone affects only its own connection.
//! 3. No global state: the cryptography provider, the proxies and the shutdown are values.
//! 4. No error text contains a URL's user information, path or query, because those may contain secrets.

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

/// The user agent of every client of this crate: `profbridge/VERSION`.
pub const USER_AGENT: &str = concat!("profbridge/", env!("CARGO_PKG_VERSION"));

/// Any error of a service, a body or a transport.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A boxed future, as trait objects return it.
pub type BoxFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Joins the messages of an error and its causes with `: `, without causes that their parents already quote.
///
/// The clients' errors nest five deep ("client error (Connect): tcp connect error: Connection refused"), and only the
/// whole chain explains what happened.
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
