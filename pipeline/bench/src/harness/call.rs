//! One call of an OTLP service, over gRPC or HTTP, with a body that is ready: nothing is encoded or compressed for it.

use std::{
    net::SocketAddr,
    sync::{Mutex, PoisonError},
};

use bytes::{BufMut, Bytes};
use clap::ValueEnum;
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use super::Error;

/// How a request travels (opentelemetry-proto `docs/specification.md`, "Protocol Details").
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Protocol {
    /// gRPC.
    Grpc,
    /// HTTP/1.1 with a protobuf body.
    Http,
}

/// What a request holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Signal {
    /// `ExportProfilesServiceRequest`.
    Profiles,
    /// `ExportTraceServiceRequest`.
    Traces,
}

/// How a request is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Compression {
    /// Not at all.
    None,
    /// gzip.
    Gzip,
}

impl Compression {
    /// Its name on command lines, in headers and in configurations.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
        }
    }
}

/// What a target made of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It took it.
    Taken,
    /// It refused it for now.
    Later,
    /// It refused it for good, or did not answer.
    Failed,
}

/// How requests are made for one target.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// How they travel.
    pub protocol: Protocol,
    /// What they hold.
    pub signal: Signal,
    /// How the bodies were compressed.
    pub compression: Compression,
}

impl Form {
    /// What is sent of a message, compressed or not: over gRPC there is a flag and its length in front of it.
    pub fn body(self, message: &[u8]) -> Bytes {
        let mut body = Vec::with_capacity(message.len() + 5);
        if self.protocol == Protocol::Grpc {
            body.put_u8(u8::from(self.compression != Compression::None));
            // No request is as large as 4 GiB.
            body.put_u32(message.len() as u32);
        }
        body.extend_from_slice(message);
        body.into()
    }

    fn path(self) -> &'static str {
        match (self.protocol, self.signal) {
            (Protocol::Grpc, Signal::Profiles) => {
                "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export"
            }
            (Protocol::Grpc, Signal::Traces) => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
            (Protocol::Http, Signal::Profiles) => "/v1development/profiles",
            (Protocol::Http, Signal::Traces) => "/v1/traces",
        }
    }
}

/// Connections to one target: one for gRPC, as many as are needed at the same time for HTTP.
pub struct Client {
    form: Form,
    target: SocketAddr,
    connections: Connections,
}

enum Connections {
    Grpc(http2::SendRequest<Full<Bytes>>),
    /// Those that nobody uses.
    Http(Mutex<Vec<http1::SendRequest<Full<Bytes>>>>),
}

impl Client {
    /// Connects to a target.
    ///
    /// # Errors
    /// It cannot be reached.
    pub async fn connect(target: SocketAddr, form: Form) -> Result<Self, Error> {
        let connections = match form.protocol {
            Protocol::Grpc => {
                let io = TokioIo::new(stream(target).await?);
                let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await?;
                tokio::spawn(connection);
                Connections::Grpc(sender)
            }
            Protocol::Http => Connections::Http(Mutex::new(vec![http1_connection(target).await?])),
        };
        Ok(Self { form, target, connections })
    }

    /// Sends a body of [`Form::body`].
    ///
    /// # Errors
    /// There is no answer.
    pub async fn call(&self, body: Bytes) -> Result<Answer, Error> {
        match &self.connections {
            Connections::Grpc(sender) => {
                let mut sender = sender.clone();
                sender.ready().await?;
                let (head, answer) = sender.send_request(self.request(body)?).await?.into_parts();
                let answer = answer.collect().await?;
                // A refusal stands in the head, where there is no message.
                Ok(grpc_answer(&head.headers).or_else(|| grpc_answer(answer.trailers()?)).unwrap_or(Answer::Failed))
            }
            Connections::Http(free) => {
                let kept = free.lock().unwrap_or_else(PoisonError::into_inner).pop();
                let mut sender = match kept {
                    Some(sender) => sender,
                    None => http1_connection(self.target).await?,
                };
                sender.ready().await?;
                let (head, answer) = sender.send_request(self.request(body)?).await?.into_parts();
                answer.collect().await?;
                free.lock().unwrap_or_else(PoisonError::into_inner).push(sender);
                Ok(match head.status {
                    StatusCode::OK => Answer::Taken,
                    StatusCode::TOO_MANY_REQUESTS
                    | StatusCode::BAD_GATEWAY
                    | StatusCode::SERVICE_UNAVAILABLE
                    | StatusCode::GATEWAY_TIMEOUT => Answer::Later,
                    _ => Answer::Failed,
                })
            }
        }
    }

    fn request(&self, body: Bytes) -> Result<Request<Full<Bytes>>, http::Error> {
        let (path, target) = (self.form.path(), self.target);
        let encoding = (self.form.compression != Compression::None).then(|| self.form.compression.name());
        let request = match self.form.protocol {
            Protocol::Grpc => {
                let request = Request::builder()
                    .uri(format!("http://{target}{path}"))
                    .header(header::CONTENT_TYPE, "application/grpc")
                    .header(header::TE, "trailers");
                encoding.into_iter().fold(request, |request, name| request.header("grpc-encoding", name))
            }
            Protocol::Http => {
                let request = Request::builder()
                    .uri(path)
                    .header(header::HOST, target.to_string())
                    .header(header::CONTENT_TYPE, "application/x-protobuf");
                encoding.into_iter().fold(request, |request, name| request.header(header::CONTENT_ENCODING, name))
            }
        };
        request.method(Method::POST).body(Full::new(body))
    }
}

async fn stream(target: SocketAddr) -> Result<TcpStream, Error> {
    let stream = TcpStream::connect(target).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

async fn http1_connection(target: SocketAddr) -> Result<http1::SendRequest<Full<Bytes>>, Error> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream(target).await?)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

/// What `grpc-status` says: UNAVAILABLE and RESOURCE_EXHAUSTED are for now.
fn grpc_answer(headers: &HeaderMap) -> Option<Answer> {
    Some(match headers.get("grpc-status")?.as_bytes() {
        b"0" => Answer::Taken,
        b"8" | b"14" => Answer::Later,
        _ => Answer::Failed,
    })
}
