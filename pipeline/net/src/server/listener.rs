//! A bound socket, and helpful errors if binding fails.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpStream};

use super::Accept;

/// A TCP socket that listens.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    local_addr: SocketAddr,
    endpoint: String,
}

/// Why an endpoint cannot be bound, for a person: the endpoint, the cause and advice.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BindError(String);

impl Listener {
    /// Listens on `host:port`. An empty host means every address, of both families if the system has IPv6; port 0 means
    /// any free port, see [`Listener::local_addr`].
    ///
    /// # Errors
    ///
    /// The endpoint is malformed, the name is unknown, or the system refuses.
    pub async fn bind(endpoint: &str) -> Result<Listener, BindError> {
        let (host, port) = split(endpoint)?;
        let bound = if host.is_empty() {
            match TcpListener::bind(format!("[::]:{port}")).await {
                // The host has no IPv6.
                Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                    TcpListener::bind(format!("0.0.0.0:{port}")).await
                }
                bound => bound,
            }
        } else {
            TcpListener::bind(endpoint).await
        };
        let refused =
            |error: io::Error| BindError(format!("cannot listen on {endpoint}: {error}{}", hint(error.kind())));
        let socket = bound.map_err(refused)?;
        let local_addr = socket.local_addr().map_err(refused)?;
        // Of a free port its number says more.
        let endpoint = match endpoint.strip_suffix(":0") {
            Some(host) => format!("{host}:{}", local_addr.port()),
            None => endpoint.to_owned(),
        };
        Ok(Listener { socket, local_addr, endpoint })
    }

    /// Checks the syntax that [`Listener::bind`] accepts, without I/O.
    ///
    /// # Errors
    ///
    /// The syntax is wrong.
    pub fn check(endpoint: &str) -> Result<(), BindError> {
        split(endpoint).map(|_| ())
    }

    /// The address with the actual port, if the endpoint had port 0.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }
}

/// Splits an endpoint into host, including any brackets, and port.
fn split(endpoint: &str) -> Result<(&str, &str), BindError> {
    let malformed = |hint| BindError(format!("{endpoint:?} is no endpoint to listen on: {hint}"));
    if endpoint.starts_with("unix:") || endpoint.starts_with('/') {
        return Err(malformed("unix sockets are not supported, use host:port"));
    }
    if endpoint.contains("://") {
        return Err(malformed("leave the scheme out, use host:port and `tls` for encryption"));
    }
    let Some((host, port)) = endpoint.rsplit_once(':') else {
        return Err(malformed("the port is missing, use host:port"));
    };
    if port.parse::<u16>().is_err() {
        return Err(malformed("the port is not a number from 0 to 65535"));
    }
    if host.contains(':') && !(host.starts_with('[') && host.ends_with(']')) {
        return Err(malformed("an IPv6 address stands in brackets, as in [::1]:4317"));
    }
    Ok((host, port))
}

impl Accept for Listener {
    /// The next connection, with TCP_NODELAY. Safe to cancel.
    ///
    /// Without TCP_NODELAY a gRPC call of some hundred kilobytes waits 40 ms for a delayed acknowledgement.
    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (stream, addr) = self.socket.accept().await?;
        // This fails only if the peer is already gone, which the first read will report.
        stream.set_nodelay(true).ok();
        Ok((stream, addr))
    }

    fn endpoint(&self) -> &str {
        &self.endpoint
    }
}

pub(super) fn hint(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::AddrInUse => "; stop the process that listens there or choose another port",
        io::ErrorKind::PermissionDenied => {
            "; a port below 1024 needs the capability CAP_NET_BIND_SERVICE, choose one from 1024"
        }
        io::ErrorKind::AddrNotAvailable => "; no interface of this host has that address, 0.0.0.0 means all of them",
        _ => "",
    }
}
