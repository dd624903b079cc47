//! Serves the control socket: reads requests, passes them to the driver, and writes its answers.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;

use super::protocol::{ControlRequest, ControlResponse, MAX_REQUEST, RequestFault};
use super::socket::ControlSocket;
use crate::spans::ConnectionId;

/// How long a client may take to read a response.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// The pause after a connection could not be accepted, for example for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// An event from the socket for the driver.
#[derive(Debug)]
pub(crate) enum ControlEvent {
    Request {
        connection: ConnectionId,
        /// The connected process, if its id is visible here.
        peer: Option<u32>,
        request: ControlRequest,
        answer: oneshot::Sender<ControlResponse>,
    },
    /// A connection was closed.
    Closed(ConnectionId),
}

/// Serves until the future is dropped.
pub(crate) struct ControlServer {
    pub(crate) listener: UnixListener,
    pub(crate) socket: ControlSocket,
    pub(crate) max_connections: usize,
    pub(crate) events: mpsc::Sender<ControlEvent>,
}

impl ControlServer {
    pub(crate) async fn run(self) {
        // This removes the socket's file when the function ends.
        let Self { listener, socket: _socket, max_connections, events } = self;
        let own = nix::unistd::geteuid().as_raw();
        let places = Arc::new(Semaphore::new(max_connections));
        let mut tasks = JoinSet::new();
        let mut next = 0;
        let mut failing = false;
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                // Remove tasks that have ended.
                Some(_) = tasks.join_next() => continue,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    if !std::mem::replace(&mut failing, true) {
                        tracing::warn!(
                            "the control socket accepts no connections, is the limit of open files reached? {error}"
                        );
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            failing = false;
            let Ok(peer) = stream.peer_cred() else { continue };
            if peer.uid() != own && peer.uid() != 0 {
                let rule = format!("only user {own}, which runs profbridge, and root may use it");
                tasks.spawn(turn_away(stream, RequestFault::new("connection", rule)));
                continue;
            }
            let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                let rule = format!("at most {max_connections} clients may be connected");
                // Connections that are refused are limited in number as well.
                if tasks.len() < 2 * max_connections {
                    tasks.spawn(turn_away(stream, RequestFault::new("connection", rule)));
                }
                continue;
            };
            next += 1;
            let peer = peer.pid().and_then(|pid| u32::try_from(pid).ok()).filter(|&pid| pid > 0);
            tasks.spawn(serve(stream, ConnectionId(next), peer, events.clone(), place));
        }
    }
}

async fn turn_away(mut stream: UnixStream, fault: RequestFault) {
    // A client that does not read does not get the reason.
    write(&mut stream, &fault.into()).await.ok();
}

async fn serve(
    stream: UnixStream,
    connection: ConnectionId,
    peer: Option<u32>,
    events: mpsc::Sender<ControlEvent>,
    _place: OwnedSemaphorePermit,
) {
    // Whatever ended the connection, its spans end with it.
    converse(BufReader::new(stream), connection, peer, &events).await.ok();
    events.send(ControlEvent::Closed(connection)).await.ok();
}

async fn converse(
    mut stream: BufReader<UnixStream>,
    connection: ConnectionId,
    peer: Option<u32>,
    events: &mpsc::Sender<ControlEvent>,
) -> io::Result<()> {
    let mut line = Vec::new();
    loop {
        line.clear();
        (&mut stream).take(MAX_REQUEST as u64 + 1).read_until(b'\n', &mut line).await?;
        if line.pop_if(|byte| *byte == b'\n').is_none() {
            if line.len() <= MAX_REQUEST {
                // An unfinished last line is ignored: its sender may have been cut off in the middle of it.
                return Ok(());
            }
            let rule = format!("a line has at most {MAX_REQUEST} bytes");
            return write(&mut stream, &RequestFault::new("request", rule).into()).await;
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let response = match ControlRequest::parse(&line) {
            Err(fault) => fault.into(),
            Ok(request) => {
                let (answer, answered) = oneshot::channel();
                let asked = ControlEvent::Request { connection, peer, request, answer };
                let gone = |()| io::Error::from(io::ErrorKind::BrokenPipe);
                events.send(asked).await.map_err(|_| gone(()))?;
                answered.await.map_err(|_| gone(()))?
            }
        };
        write(&mut stream, &response).await?;
    }
}

async fn write(stream: &mut (impl AsyncWrite + Unpin), response: &ControlResponse) -> io::Result<()> {
    let mut line = serde_json::to_vec(response)?;
    line.push(b'\n');
    tokio::time::timeout(WRITE_TIMEOUT, stream.write_all(&line)).await.map_err(io::Error::from)?
}
