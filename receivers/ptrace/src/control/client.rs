//! A client of the control socket that waits for each answer: for the command line, and for programs that announce
//! spans.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::protocol::{ControlRequest, ControlResponse};

/// The longest response that is read, in bytes: a status of ten thousand processes.
const MAX_RESPONSE: u64 = 16 << 20;

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No process listens on the socket.
    #[error("no profbridge listens on {}: is one running with a receiver `ptrace`, and is this its control socket?", .0.display())]
    Absent(PathBuf),
    /// The socket belongs to another user.
    #[error("{} may only be used by the user that runs profbridge, and by root", .0.display())]
    Permission(PathBuf),
    /// The connection broke, or the answer took too long.
    #[error("no answer on the control socket: {0}")]
    Io(#[from] io::Error),
    /// The answer is invalid.
    #[error("the answer on the control socket is malformed: {0}")]
    Malformed(String),
}

/// A connection to the control socket.
#[derive(Debug)]
pub struct ControlClient {
    stream: BufReader<UnixStream>,
}

impl ControlClient {
    /// Connects. `timeout` applies to each request that follows.
    ///
    /// # Errors
    ///
    /// If nobody listens there, or the socket belongs to another user.
    pub fn connect(path: &Path, timeout: Duration) -> Result<Self, ClientError> {
        let stream = UnixStream::connect(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => ClientError::Absent(path.to_owned()),
            io::ErrorKind::PermissionDenied => ClientError::Permission(path.to_owned()),
            _ => ClientError::Io(error),
        })?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Sends a request, and waits for the answer.
    ///
    /// # Errors
    ///
    /// No answer came.
    pub fn request(&mut self, request: &ControlRequest) -> Result<ControlResponse, ClientError> {
        let mut line = serde_json::to_vec(request).map_err(|error| ClientError::Malformed(error.to_string()))?;
        line.push(b'\n');
        let written = self.stream.get_mut().write_all(&line);
        // The server sends a refused client the reason before it reads anything.
        if written.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::BrokenPipe) {
            written?;
        }
        let mut answer = Vec::new();
        self.stream.by_ref().take(MAX_RESPONSE).read_until(b'\n', &mut answer)?;
        if answer.is_empty() {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        serde_json::from_slice(&answer).map_err(|error| ClientError::Malformed(error.to_string()))
    }
}

/// Sends one request over a connection of its own.
///
/// # Errors
///
/// No answer came.
pub fn request(path: &Path, request: &ControlRequest) -> Result<ControlResponse, ClientError> {
    ControlClient::connect(path, Duration::from_secs(10))?.request(request)
}
