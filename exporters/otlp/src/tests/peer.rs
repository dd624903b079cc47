//! Peers: an OTLP receiver made of the generated gRPC server, and one that answers whatever a test wants.

use std::convert::Infallible;
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use ::http::{HeaderMap, Request, Response};
use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use opentelemetry_proto::tonic::collector::profiles::v1development::profiles_service_server::{
    ProfilesService, ProfilesServiceServer,
};
use opentelemetry_proto::tonic::collector::profiles::v1development::{
    ExportProfilesPartialSuccess, ExportProfilesServiceRequest, ExportProfilesServiceResponse,
};
use profbridge_net::Shutdown;
use profbridge_net::compression::{Compression, Encoder, EncoderContext};
use profbridge_net::server::{Listener, ServerLimits, ServerStats, serve};
use profbridge_net::tls::{HttpVersions, TlsServerConfig};
use profbridge_testkit::profcheck::check_request;
use prost::Message as _;
use tokio::sync::mpsc;
use tonic::Status;
use tonic::codec::CompressionEncoding;

pub(super) type Answer = Result<ExportProfilesServiceResponse, Status>;
pub(super) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// What messages break of the rules of OTLP. It fails when it is dropped with something in it.
#[derive(Clone, Default)]
struct Broken(Arc<Mutex<Vec<String>>>);

impl Broken {
    fn look_at(&self, message: &ExportProfilesServiceRequest) {
        self.0.lock().unwrap().extend(check_request(message).err().unwrap_or_default());
    }
}

impl Drop for Broken {
    fn drop(&mut self) {
        let broken = std::mem::take(&mut *self.0.lock().unwrap());
        assert!(broken.is_empty() || std::thread::panicking(), "profcheck:\n{}", broken.join("\n"));
    }
}

/// A peer that listens until it is dropped. Then every message that it got must have kept the rules of OTLP.
pub(super) struct Peer<T> {
    pub(super) address: SocketAddr,
    /// What it got.
    pub(super) seen: mpsc::UnboundedReceiver<T>,
    _stop: profbridge_net::Trigger,
    _broken: Broken,
}

/// What a collector saw: the headers and the message.
pub(super) type Call = (HeaderMap, ExportProfilesServiceRequest);

struct Collector {
    answer: Box<dyn Fn(&ExportProfilesServiceRequest) -> Answer + Send + Sync>,
    tell: mpsc::UnboundedSender<Call>,
    broken: Broken,
}

#[tonic::async_trait]
impl ProfilesService for Collector {
    async fn export(
        &self,
        request: tonic::Request<ExportProfilesServiceRequest>,
    ) -> Result<tonic::Response<ExportProfilesServiceResponse>, Status> {
        let (metadata, _, message) = request.into_parts();
        let answer = (self.answer)(&message);
        self.broken.look_at(&message);
        drop(self.tell.send((metadata.into_headers(), message)));
        answer.map(tonic::Response::new)
    }
}

/// The generated gRPC server, which understands gzip and zstd.
pub(super) async fn collector(
    tls: Option<TlsServerConfig>,
    answer: impl Fn() -> Answer + Send + Sync + 'static,
) -> Peer<Call> {
    collector_that(tls, move |_| answer()).await
}

/// The same, with an answer that depends on the message.
pub(super) async fn collector_that(
    tls: Option<TlsServerConfig>,
    answer: impl Fn(&ExportProfilesServiceRequest) -> Answer + Send + Sync + 'static,
) -> Peer<Call> {
    let (tell, seen) = mpsc::unbounded_channel();
    let broken = Broken::default();
    let collector = Collector { answer: Box::new(answer), tell, broken: broken.clone() };
    let server = ProfilesServiceServer::new(collector)
        .accept_compressed(CompressionEncoding::Gzip)
        .accept_compressed(CompressionEncoding::Zstd);
    let service = service_fn(move |request: Request<Incoming>| {
        let mut server = server.clone();
        async move { tonic::codegen::Service::call(&mut server, request).await }
    });
    let (address, stop) = listen(tls, service).await;
    Peer { address, seen, _stop: stop, _broken: broken }
}

/// What a raw peer saw: the request's head and body.
pub(super) type Raw = (::http::request::Parts, Bytes);

/// A peer that reads each request and answers what the test says.
pub(super) async fn raw(
    tls: Option<TlsServerConfig>,
    answer: impl Fn() -> Response<Body> + Send + Sync + 'static,
) -> Peer<Raw> {
    raw_that(tls, move |_| answer()).await
}

/// The same, with an answer that depends on the body.
pub(super) async fn raw_that(
    tls: Option<TlsServerConfig>,
    answer: impl Fn(&Bytes) -> Response<Body> + Send + Sync + 'static,
) -> Peer<Raw> {
    let (tell, seen) = mpsc::unbounded_channel();
    let answer = Arc::new(answer);
    let service = service_fn(move |request: Request<Incoming>| {
        let (tell, answer) = (tell.clone(), Arc::clone(&answer));
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let answer = answer(&body);
            drop(tell.send((head, body)));
            Ok::<_, hyper::Error>(answer)
        }
    });
    let (address, stop) = listen(tls, service).await;
    Peer { address, seen, _stop: stop, _broken: Broken::default() }
}

async fn listen<S, B>(tls: Option<TlsServerConfig>, service: S) -> (SocketAddr, profbridge_net::Trigger)
where
    S: hyper::service::Service<Request<Incoming>, Response = Response<B>> + Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
    S::Error: Into<profbridge_net::BoxError>,
    B: hyper::body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<profbridge_net::BoxError>,
{
    let tls = tls.map(|tls| tls.load(HttpVersions::Both).unwrap());
    let listener = Listener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr();
    let (trigger, shutdown) = Shutdown::pair();
    let stats = Arc::new(ServerStats::default());
    tokio::spawn(serve(listener, tls, service, ServerLimits::default(), stats, shutdown));
    (address, trigger)
}

/// A response with headers and a body.
pub(super) fn response(status: u16, headers: &[(&'static str, &str)], body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Full::new(body.into()).boxed_unsync());
    *response.status_mut() = ::http::StatusCode::from_u16(status).unwrap();
    for (name, value) in headers {
        response.headers_mut().append(*name, value.parse().unwrap());
    }
    response
}

/// A gRPC response with a message's bytes as they are, and trailers.
pub(super) fn grpc_response(body: impl AsRef<[u8]>, trailers: &[(&'static str, &str)]) -> Response<Body> {
    let mut map = HeaderMap::new();
    for (name, value) in trailers {
        map.append(*name, value.parse().unwrap());
    }
    let trailers = (!map.is_empty()).then_some(Ok(map));
    let body =
        Full::new(Bytes::copy_from_slice(body.as_ref())).with_trailers(std::future::ready(trailers)).boxed_unsync();
    let mut response = Response::new(body);
    response.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
    response
}

/// The message of a partial success.
pub(super) fn partial(rejected_profiles: i64, error_message: &str) -> Vec<u8> {
    let partial = ExportProfilesPartialSuccess { rejected_profiles, error_message: error_message.to_owned() };
    ExportProfilesServiceResponse { partial_success: Some(partial) }.encode_to_vec()
}

/// A message, compressed.
pub(super) fn pack(compression: Compression, message: &[u8]) -> Vec<u8> {
    let mut context = EncoderContext::default();
    let mut encoder = Encoder::new(compression, Vec::new(), &mut context).unwrap();
    encoder.write_all(message).unwrap();
    encoder.finish(&mut context).unwrap()
}
