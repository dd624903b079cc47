//! Test peers: an OTLP receiver built from the generated gRPC server, and one whose answers the test defines.

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

pub(super) type ExportResult = Result<ExportProfilesServiceResponse, Status>;
pub(super) type ResponseBody = UnsyncBoxBody<Bytes, Infallible>;

/// Violations of the rules of OTLP in received messages. Panics when dropped with any of them.
#[derive(Clone, Default)]
struct Violations(Arc<Mutex<Vec<String>>>);

impl Violations {
    fn look_at(&self, message: &ExportProfilesServiceRequest) {
        self.0.lock().unwrap().extend(check_request(message).err().unwrap_or_default());
    }
}

impl Drop for Violations {
    fn drop(&mut self) {
        let broken = std::mem::take(&mut *self.0.lock().unwrap());
        assert!(broken.is_empty() || std::thread::panicking(), "profcheck:\n{}", broken.join("\n"));
    }
}

/// A peer that listens until it is dropped. Then it checks every received message against the rules of OTLP.
pub(super) struct TestPeer<T> {
    pub(super) address: SocketAddr,
    /// The received requests.
    pub(super) seen: mpsc::UnboundedReceiver<T>,
    _stop: profbridge_net::Trigger,
    _broken: Violations,
}

/// A request as a collector sees it: headers and message.
pub(super) type ReceivedCall = (HeaderMap, ExportProfilesServiceRequest);

struct CollectorService {
    answer: Box<dyn Fn(&ExportProfilesServiceRequest) -> ExportResult + Send + Sync>,
    sender: mpsc::UnboundedSender<ReceivedCall>,
    broken: Violations,
}

#[tonic::async_trait]
impl ProfilesService for CollectorService {
    async fn export(
        &self,
        request: tonic::Request<ExportProfilesServiceRequest>,
    ) -> Result<tonic::Response<ExportProfilesServiceResponse>, Status> {
        let (metadata, _, message) = request.into_parts();
        let answer = (self.answer)(&message);
        self.broken.look_at(&message);
        drop(self.sender.send((metadata.into_headers(), message)));
        answer.map(tonic::Response::new)
    }
}

/// The generated gRPC server, which supports gzip and zstd.
pub(super) async fn collector(
    tls: Option<TlsServerConfig>,
    answer: impl Fn() -> ExportResult + Send + Sync + 'static,
) -> TestPeer<ReceivedCall> {
    collector_that(tls, move |_| answer()).await
}

/// Like [`collector`], with an answer that depends on the message.
pub(super) async fn collector_that(
    tls: Option<TlsServerConfig>,
    answer: impl Fn(&ExportProfilesServiceRequest) -> ExportResult + Send + Sync + 'static,
) -> TestPeer<ReceivedCall> {
    let (sender, seen) = mpsc::unbounded_channel();
    let broken = Violations::default();
    let collector = CollectorService { answer: Box::new(answer), sender, broken: broken.clone() };
    let server = ProfilesServiceServer::new(collector)
        .accept_compressed(CompressionEncoding::Gzip)
        .accept_compressed(CompressionEncoding::Zstd);
    let service = service_fn(move |request: Request<Incoming>| {
        let mut server = server.clone();
        async move { tonic::codegen::Service::call(&mut server, request).await }
    });
    let (address, stop) = listen(tls, service).await;
    TestPeer { address, seen, _stop: stop, _broken: broken }
}

/// A request as a raw peer sees it: head and body.
pub(super) type Raw = (::http::request::Parts, Bytes);

/// A peer that reads each request and answers as the test defines.
pub(super) async fn raw(
    tls: Option<TlsServerConfig>,
    answer: impl Fn() -> Response<ResponseBody> + Send + Sync + 'static,
) -> TestPeer<Raw> {
    raw_that(tls, move |_| answer()).await
}

/// Like [`raw`], with an answer that depends on the body.
pub(super) async fn raw_that(
    tls: Option<TlsServerConfig>,
    answer: impl Fn(&Bytes) -> Response<ResponseBody> + Send + Sync + 'static,
) -> TestPeer<Raw> {
    let (sender, seen) = mpsc::unbounded_channel();
    let answer = Arc::new(answer);
    let service = service_fn(move |request: Request<Incoming>| {
        let (sender, answer) = (sender.clone(), Arc::clone(&answer));
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let answer = answer(&body);
            drop(sender.send((head, body)));
            Ok::<_, hyper::Error>(answer)
        }
    });
    let (address, stop) = listen(tls, service).await;
    TestPeer { address, seen, _stop: stop, _broken: Violations::default() }
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
pub(super) fn response(
    status: u16,
    headers: &[(&'static str, &str)],
    body: impl Into<Bytes>,
) -> Response<ResponseBody> {
    let mut response = Response::new(Full::new(body.into()).boxed_unsync());
    *response.status_mut() = ::http::StatusCode::from_u16(status).unwrap();
    for (name, value) in headers {
        response.headers_mut().append(*name, value.parse().unwrap());
    }
    response
}

/// A gRPC response with the given bytes as message, and trailers.
pub(super) fn grpc_response(body: impl AsRef<[u8]>, trailers: &[(&'static str, &str)]) -> Response<ResponseBody> {
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
