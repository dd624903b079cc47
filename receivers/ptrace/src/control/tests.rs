use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use proptest::prelude::*;
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::client::{ClientError, ControlClient};
use super::protocol::*;
use super::server::{ControlEvent, ControlServer};
use super::socket::{ControlSocket, SocketError};

/// A server on its own socket.
struct DriverHarness {
    _folder: tempfile::TempDir,
    path: PathBuf,
    events: mpsc::Receiver<ControlEvent>,
    server: JoinHandle<()>,
}

impl DriverHarness {
    fn start(max_connections: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control.sock");
        let (socket, listener) = ControlSocket::listen(&path).unwrap();
        let listener = UnixListener::from_std(listener).unwrap();
        let (sender, events) = mpsc::channel(4);
        let server = tokio::spawn(ControlServer { listener, socket, max_connections, events: sender }.run());
        Self { _folder: folder, path, events, server }
    }

    /// Answers one request. Returns the parsed request and the client's process id.
    async fn answer(&mut self) -> (ControlRequest, Option<u32>) {
        match self.events.recv().await.unwrap() {
            ControlEvent::Request { peer, request, answer, .. } => {
                answer.send(ControlResponse::message("heard")).ok();
                (request, peer)
            }
            ControlEvent::Closed(id) => panic!("{id:?} closed"),
        }
    }
}

/// The response lines that a client gets for `bytes`, until the end or up to `lines` of them.
fn conversation(path: &Path, bytes: Vec<u8>, lines: usize) -> JoinHandle<Vec<String>> {
    let path = path.to_owned();
    tokio::task::spawn_blocking(move || {
        let mut stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        // An error here means that the server closed the connection, which its answers show.
        stream.write_all(&bytes).ok();
        BufReader::new(stream).lines().take(lines).map_while(Result::ok).collect()
    })
}

fn response(line: &str) -> ControlResponse {
    serde_json::from_str(line).unwrap()
}

/// Guarantees: requests that arrive in one piece or in several are answered in order, with the connected process.
#[tokio::test]
async fn requests_in_order() {
    let mut rig = DriverHarness::start(4);
    let lines = b"{\"command\":\"start\",\"target\":\"web\"}\n\n{\"command\":\"status\"}\n".to_vec();
    let answers = conversation(&rig.path, lines, 2);
    let (first, peer) = rig.answer().await;
    assert_eq!(first, ControlRequest::Start(Choice { target: Some("web".to_owned()), pid: None }));
    assert_eq!(peer, Some(std::process::id()));
    assert_eq!(rig.answer().await.0, ControlRequest::Status(Choice::default()));
    let answers = answers.await.unwrap();
    assert!(answers.len() == 2 && answers.iter().all(|line| response(line).ok));
    assert!(matches!(rig.events.recv().await, Some(ControlEvent::Closed(_))), "the end of a connection is told");
}

/// Guarantees: an invalid request is rejected with position and rule, and the connection continues.
#[tokio::test]
async fn malformed_requests() {
    let mut rig = DriverHarness::start(4);
    let bad = [
        ("{", "EOF"),
        ("[]", "missing field `command`"),
        ("7", "invalid type"),
        ("{\"command\":\"fly\"}", "unknown variant `fly`"),
        ("{\"command\":\"start\",\"colour\":1}", "unknown field `colour`"),
        ("{\"command\":\"start\",\"pid\":-1}", "invalid value"),
        ("\u{7f}", "expected value"),
    ];
    let mut lines: String = bad.iter().map(|(line, _)| format!("{line}\n")).collect();
    lines.push_str("{\"command\":\"stop\"}\n");
    let answers = conversation(&rig.path, lines.into_bytes(), bad.len() + 1);
    assert_eq!(rig.answer().await.0, ControlRequest::Stop(Choice::default()));
    let answers = answers.await.unwrap();
    for ((line, rule), answer) in bad.iter().zip(&answers) {
        let response = response(answer);
        let fault = response.error.unwrap();
        assert!(!response.ok && fault.rule.contains(rule) && fault.place.starts_with("request"), "{line}: {fault:?}");
        assert!(!fault.rule.contains("at line"), "{fault:?}");
    }
    assert!(response(answers.last().unwrap()).ok);
}

/// Guarantees: an endless line costs a bounded amount of memory, and ends the connection.
#[tokio::test]
async fn long_lines() {
    let mut rig = DriverHarness::start(4);
    let answers = conversation(&rig.path, vec![b'x'; 1 << 20], usize::MAX);
    assert!(matches!(rig.events.recv().await, Some(ControlEvent::Closed(_))));
    let answers = answers.await.unwrap();
    // Closing a connection with unread data may discard the answer.
    assert!(answers.len() <= 1 && answers.iter().all(|line| !response(line).ok));
    let fits = format!("{{\"command\":\"stop\",\"target\":\"{}\"}}", "x".repeat(MAX_REQUEST - 30));
    assert!(fits.len() <= MAX_REQUEST);
    let answers = conversation(&rig.path, format!("{fits}\n").into_bytes(), 1);
    rig.answer().await;
    assert!(response(&answers.await.unwrap()[0]).ok);
}

/// Guarantees: the number of clients is limited; when one disconnects, another one can connect.
#[tokio::test]
async fn bounded_connections() {
    let mut rig = DriverHarness::start(1);
    let path = rig.path.clone();
    let first = tokio::task::spawn_blocking(move || ControlClient::connect(&path, Duration::from_secs(60)).unwrap());
    let mut first = first.await.unwrap();
    let asked = tokio::task::spawn_blocking(move || {
        first.request(&ControlRequest::Status(Choice::default())).unwrap();
        first
    });
    rig.answer().await;
    let first = asked.await.unwrap();
    let turned_away = conversation(&rig.path, Vec::new(), 1).await.unwrap();
    let fault = response(&turned_away[0]).error.unwrap();
    assert_eq!((&*fault.place, fault.rule.contains("at most 1")), ("connection", true));
    drop(first);
    assert!(matches!(rig.events.recv().await, Some(ControlEvent::Closed(_))));
    rig.server.abort();
}

/// Guarantees: the socket's file has mode 0600 and is removed with its owner; the file of a dead owner is taken over,
/// the file of a living owner is not, and a file that is not a socket is left alone.
#[tokio::test]
async fn the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deeper").join("control.sock");
    let first = ControlSocket::listen(&path).unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    let second = ControlSocket::listen(&path).unwrap_err();
    assert!(matches!(second, SocketError::InUse(_)) && second.to_string().contains("another profbridge"), "{second}");
    drop(first);
    assert!(!path.exists());

    // As after a crash: the file exists, but nobody listens.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let taken = ControlSocket::listen(&path).unwrap();
    assert!(UnixStream::connect(&path).is_ok());
    // A file that belongs to another owner is not removed.
    std::fs::remove_file(&path).unwrap();
    let stranger = std::os::unix::net::UnixListener::bind(&path).unwrap();
    drop(taken);
    assert!(path.exists());
    assert!(
        matches!(ControlSocket::listen(&path).unwrap_err(), SocketError::InUse(_)),
        "somebody without a lock listens"
    );
    drop(stranger);

    let file = folder.path().join("file");
    std::fs::write(&file, "precious").unwrap();
    assert!(matches!(ControlSocket::listen(&file).unwrap_err(), SocketError::NotASocket(_)));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious");
}

/// Guarantees: a refused client receives the reason, even if the server has closed the connection before any request.
#[test]
fn turned_away() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("control.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let mut client = ControlClient::connect(&path, Duration::from_secs(60)).unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    stream.write_all(b"{\"ok\":false,\"error\":{\"place\":\"connection\",\"rule\":\"full\"}}\n").unwrap();
    drop(stream);
    let answer = client.request(&ControlRequest::Status(Choice::default())).unwrap();
    assert_eq!(answer, RequestFault::new("connection", "full").into());
    assert!(matches!(client.request(&ControlRequest::Status(Choice::default())), Err(ClientError::Io(_))));
}

/// Guarantees: a client reports clearly that nobody listens.
#[test]
fn nobody_listens() {
    let folder = tempfile::tempdir().unwrap();
    let error =
        super::client::request(&folder.path().join("no.sock"), &ControlRequest::Stop(Choice::default())).unwrap_err();
    assert!(matches!(error, ClientError::Absent(_)) && error.to_string().contains("is one running"), "{error}");
}

proptest! {
    /// Guarantees: no line makes the parser panic, and a request that it accepts is parsed to the same value after it
    /// was written again.
    #[test]
    fn any_line(bytes in proptest::collection::vec(any::<u8>(), 0..200), text in "[{}\":,a-z_0-9-]{0,80}") {
        for line in [bytes, text.into_bytes()] {
            if let Ok(request) = ControlRequest::parse(&line) {
                let again = serde_json::to_vec(&request).unwrap();
                prop_assert_eq!(ControlRequest::parse(&again).unwrap(), request);
            }
        }
    }
}
