//! The load generator: sends encoded requests, shifting the times of profiles with each send, without encoding again.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bytes::{BufMut, Bytes};
use clap::ValueEnum;
use http::{HeaderMap, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use profbridge_testkit::naive;
use tokio::net::TcpStream;

use super::count::visit;
use crate::Error;

/// How a request travels (opentelemetry-proto `docs/specification.md`, "Protocol Details").
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Protocol {
    /// gRPC.
    Grpc,
    /// HTTP/1.1 with a protobuf body.
    Http,
}

/// How a request is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RequestCompression {
    /// Uncompressed.
    None,
    /// gzip.
    Gzip,
}

impl RequestCompression {
    /// The name of the compression on command lines, in headers and in configurations.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
        }
    }
}

/// The number of concurrent requests.
const CONCURRENCY: usize = 4;

/// Requests that are sent repeatedly in rotation.
pub(crate) struct Load {
    pub(crate) protocol: Protocol,
    compression: RequestCompression,
    paths: [&'static str; 2],
    bodies: Vec<RequestBody>,
    next: AtomicU64,
}

enum RequestBody {
    /// A request whose times are shifted by this many nanoseconds in each round.
    Moving(Template, u64),
    /// A request that stays the same, because spans are not checked for resends.
    Fixed(Bytes),
}

impl Load {
    /// Profiles over gRPC: successive reports of one host, each of which covers `window` nanoseconds.
    pub(crate) fn profiles(requests: Vec<Vec<u8>>, window: u64) -> Result<Arc<Self>, Error> {
        let round = requests.len() as u64 * window;
        let body = |request| Ok(RequestBody::Moving(Template::new(request)?, round));
        Ok(Arc::new(Self {
            protocol: Protocol::Grpc,
            compression: RequestCompression::None,
            paths: ["/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export", ""],
            bodies: requests.into_iter().map(body).collect::<Result<_, Error>>()?,
            next: AtomicU64::new(0),
        }))
    }

    /// Spans.
    pub(crate) fn traces(
        requests: &[Vec<u8>],
        protocol: Protocol,
        compression: RequestCompression,
    ) -> Result<Arc<Self>, Error> {
        let paths = ["/opentelemetry.proto.collector.trace.v1.TraceService/Export", "/v1/traces"];
        let mut load = Self { protocol, compression, paths, bodies: Vec::new(), next: AtomicU64::new(0) };
        for request in requests {
            let body = match compression {
                RequestCompression::None => load.framed(request),
                RequestCompression::Gzip => load.framed(&naive::gzip(request)?),
            };
            load.bodies.push(RequestBody::Fixed(body));
        }
        Ok(Arc::new(load))
    }

    /// The number of different requests.
    pub(crate) fn len(&self) -> u64 {
        self.bodies.len() as u64
    }

    /// Sends as fast as the target accepts, until `until` has passed or `most` requests were sent.
    pub(super) async fn send(self: Arc<Self>, target: SocketAddr, until: Instant, most: u64) -> Result<(), Error> {
        let first = self.next.load(Ordering::Relaxed);
        let mut tasks = tokio::task::JoinSet::new();
        let shared = Connection::open(target, self.protocol).await?;
        for _ in 0..CONCURRENCY {
            let mut connection = match &shared {
                Connection::Grpc(sender) => Connection::Grpc(sender.clone()),
                Connection::Http(_) => Connection::open(target, self.protocol).await?,
            };
            let load = Arc::clone(&self);
            tasks.spawn(async move {
                while Instant::now() < until {
                    let number = load.next.fetch_add(1, Ordering::Relaxed);
                    if number - first >= most {
                        break;
                    }
                    connection.call(load.request(target, load.body(number))?).await?;
                }
                Ok::<_, Error>(())
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        Ok(())
    }

    fn body(&self, number: u64) -> Bytes {
        let count = self.len();
        match &self.bodies[(number % count) as usize] {
            RequestBody::Moving(template, round) => self.framed(&template.later(number / count * round)),
            RequestBody::Fixed(body) => body.clone(),
        }
    }

    /// Returns the HTTP body for a message. gRPC puts a flag (compressed or not) and the length before it.
    fn framed(&self, message: &[u8]) -> Bytes {
        let mut body = Vec::with_capacity(message.len() + 5);
        if self.protocol == Protocol::Grpc {
            body.put_u8(u8::from(self.compression != RequestCompression::None));
            // Requests are smaller than 4 GiB.
            body.put_u32(message.len() as u32);
        }
        body.extend_from_slice(message);
        body.into()
    }

    fn request(&self, target: SocketAddr, body: Bytes) -> Result<Request<Full<Bytes>>, http::Error> {
        let [grpc, http] = self.paths;
        let (request, encoding) = match self.protocol {
            Protocol::Grpc => {
                let request = Request::post(format!("http://{target}{grpc}"))
                    .header(header::CONTENT_TYPE, "application/grpc")
                    .header(header::TE, "trailers");
                (request, "grpc-encoding")
            }
            Protocol::Http => {
                let request = Request::post(http)
                    .header(header::HOST, target.to_string())
                    .header(header::CONTENT_TYPE, "application/x-protobuf");
                (request, "content-encoding")
            }
        };
        let request = match self.compression {
            RequestCompression::None => request,
            compression => request.header(encoding, compression.name()),
        };
        request.body(Full::new(body))
    }
}

/// A connection to the target.
enum Connection {
    Grpc(http2::SendRequest<Full<Bytes>>),
    Http(http1::SendRequest<Full<Bytes>>),
}

impl Connection {
    async fn open(target: SocketAddr, protocol: Protocol) -> Result<Self, Error> {
        let stream = TcpStream::connect(target).await?;
        stream.set_nodelay(true)?;
        let stream = TokioIo::new(stream);
        Ok(match protocol {
            Protocol::Grpc => {
                let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await?;
                tokio::spawn(connection);
                Self::Grpc(sender)
            }
            Protocol::Http => {
                let (sender, connection) = http1::handshake(stream).await?;
                tokio::spawn(connection);
                Self::Http(sender)
            }
        })
    }

    /// Sends a request. Fails if it is refused.
    async fn call(&mut self, request: Request<Full<Bytes>>) -> Result<(), Error> {
        let response = match self {
            Self::Grpc(sender) => {
                sender.ready().await?;
                sender.send_request(request).await?
            }
            Self::Http(sender) => {
                sender.ready().await?;
                sender.send_request(request).await?
            }
        };
        let (head, body) = response.into_parts();
        let body = body.collect().await?;
        // A gRPC server that refuses a call may send the status in the response headers instead of the trailers.
        let status = |headers: &HeaderMap| headers.get("grpc-status").map(|status| status == "0");
        let is_taken = head.status == StatusCode::OK
            && status(&head.headers).or_else(|| status(body.trailers()?)).unwrap_or(matches!(self, Self::Http(_)));
        if is_taken { Ok(()) } else { Err(format!("a request was refused: {head:?}").into()) }
    }
}

/// An encoded `ExportProfilesServiceRequest` whose times can be shifted without encoding it again. Sending the same
/// bytes repeatedly would only measure how fast resends are dropped.
struct Template {
    bytes: Vec<u8>,
    /// The byte offsets of the times in `bytes`.
    times: Vec<usize>,
}

/// The paths of field numbers from a request to `Profile.time_unix_nano` and `Sample.timestamps_unix_nano`
/// (opentelemetry-proto `profiles/v1development/profiles.proto`).
const TIMES: [&[u32]; 2] = [&[1, 2, 2, 3], &[1, 2, 2, 2, 5]];

impl Template {
    fn new(bytes: Vec<u8>) -> Result<Self, Error> {
        let mut times = Vec::new();
        for path in TIMES {
            let found = visit(&bytes, path, &mut |value| {
                let at = value.as_ptr() as usize - bytes.as_ptr() as usize;
                times.extend((at..at + value.len()).step_by(8));
            });
            found.ok_or("the request is no protobuf")?;
        }
        Ok(Self { bytes, times })
    }

    /// Returns the request with all times shifted by `nanos`.
    fn later(&self, nanos: u64) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        for time in &self.times {
            if let Some(place) = bytes[*time..].first_chunk_mut::<8>() {
                *place = u64::from_le_bytes(*place).wrapping_add(nanos).to_le_bytes();
            }
        }
        bytes
    }
}
