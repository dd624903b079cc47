//! A minimal HTTP server that answers as the test defines, or not at all.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use profbridge_model::Envelope;
use profbridge_net::compression::{Coding, decompress};
use profbridge_wire::sentry::envelope;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::{KEY, SECRET};

/// The server's reaction to a request.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// Answers.
    Answer { status: u16, headers: Vec<(&'static str, String)>, body: String },
    /// Never answers, and keeps the connection.
    Hang,
    /// Sends a head that announces a body, then nothing, and keeps the connection open.
    Trickle { status: u16, headers: Vec<(&'static str, String)> },
    /// Closes the connection without an answer.
    Close,
}

impl Reply {
    pub(crate) fn status(status: u16) -> Self {
        Reply::Answer { status, headers: Vec::new(), body: String::new() }
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        if let Reply::Answer { headers, .. } = &mut self {
            headers.push((name, value.into()));
        }
        self
    }

    pub(crate) fn saying(mut self, text: impl Into<String>) -> Self {
        if let Reply::Answer { body, .. } = &mut self {
            *body = text.into();
        }
        self
    }
}

#[derive(Debug, Clone)]
pub(crate) struct ReceivedRequest {
    pub(crate) line: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Bytes,
}

impl ReceivedRequest {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The decompressed body.
    pub(crate) fn plain(&self) -> Bytes {
        let coding = Coding::parse(self.header("content-encoding")).unwrap();
        decompress(coding, self.body.clone(), 64 << 20).unwrap()
    }

    pub(crate) fn envelope(&self) -> Envelope {
        envelope::read(self.plain()).unwrap().envelope
    }

    /// The payload of the only item of a type.
    pub(crate) fn item(&self, kind: &str) -> Value {
        let envelope = self.envelope();
        let mut items = envelope.items.iter().filter(|item| {
            let header = envelope::ItemHeader::read(&item.header).unwrap();
            header.kind == kind
        });
        let item = items.next().unwrap_or_else(|| panic!("no item {kind}"));
        assert!(items.next().is_none());
        serde_json::from_slice(item.payload.plain().unwrap()).unwrap()
    }
}

type ReplyScript = Arc<dyn Fn(&ReceivedRequest) -> Reply + Send + Sync>;

pub(crate) struct Server {
    address: SocketAddr,
    received: Arc<Mutex<Vec<ReceivedRequest>>>,
    count: watch::Receiver<usize>,
}

impl Server {
    pub(crate) async fn start(script: impl Fn(&ReceivedRequest) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let received: Arc<Mutex<Vec<ReceivedRequest>>> = Arc::default();
        let (counter, count) = watch::channel(0);
        let (script, log): (ReplyScript, _) = (Arc::new(script), Arc::clone(&received));
        tokio::spawn(async move {
            let counter = Arc::new(counter);
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&script), Arc::clone(&log), Arc::clone(&counter)));
            }
        });
        Self { address, received, count }
    }

    /// A server that always sends the same answer.
    pub(crate) async fn always(reply: Reply) -> Self {
        Self::start(move |_| reply.clone()).await
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn dsn(&self, project: u64) -> String {
        format!("http://{KEY}:{SECRET}@{}/{project}", self.address)
    }

    pub(crate) fn received(&self) -> Vec<ReceivedRequest> {
        self.received.lock().unwrap().clone()
    }

    /// Waits until this many requests have arrived.
    pub(crate) async fn until(&self, requests: usize) {
        self.count.clone().wait_for(|&count| count >= requests).await.unwrap();
    }
}

async fn serve(
    mut stream: TcpStream,
    script: ReplyScript,
    log: Arc<Mutex<Vec<ReceivedRequest>>>,
    counter: Arc<watch::Sender<usize>>,
) {
    let mut buffer = Vec::new();
    while let Some(request) = read(&mut stream, &mut buffer).await {
        let reply = script(&request);
        log.lock().unwrap().push(request);
        counter.send_modify(|count| *count += 1);
        match reply {
            Reply::Answer { status, headers, body } => {
                let mut text = format!("HTTP/1.1 {status} Whatever\r\ncontent-length: {}\r\n", body.len());
                for (name, value) in headers {
                    text.push_str(&format!("{name}: {value}\r\n"));
                }
                text.push_str("\r\n");
                text.push_str(&body);
                if stream.write_all(text.as_bytes()).await.is_err() {
                    return;
                }
            }
            Reply::Hang => std::future::pending().await,
            Reply::Trickle { status, headers } => {
                let mut text = format!("HTTP/1.1 {status} Whatever\r\ncontent-length: 10\r\n");
                for (name, value) in headers {
                    text.push_str(&format!("{name}: {value}\r\n"));
                }
                text.push_str("\r\n");
                stream.write_all(text.as_bytes()).await.ok();
                std::future::pending().await
            }
            Reply::Close => return,
        }
    }
}

async fn read(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<ReceivedRequest> {
    let head = loop {
        if let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    };
    let text = String::from_utf8(buffer[..head].to_vec()).unwrap();
    let mut lines = text.lines().map(str::to_owned);
    let line = lines.next().unwrap();
    let headers: Vec<_> = lines
        .map(|line| {
            let (name, value) = line.split_once(':').unwrap();
            (name.to_lowercase(), value.trim().to_owned())
        })
        .collect();
    let length =
        headers.iter().find(|(name, _)| name == "content-length").map_or(0, |(_, value)| value.parse().unwrap());
    while buffer.len() < head + 4 + length {
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
    let rest = buffer.split_off(head + 4 + length);
    let body = Bytes::from(std::mem::replace(buffer, rest).split_off(head + 4));
    Some(ReceivedRequest { line, headers, body })
}
