//! The receiver over real sockets, with a consumer in place of the pipelines.

mod config;
mod grpc;
mod grpc_raw;
mod http;
mod http_raw;
mod json;
mod layouts;
mod lifecycle;
mod memory;
mod tls;
mod traces;

use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use ::http::Request;
use bytes::Bytes;
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use hyper_util::rt::{TokioExecutor, TokioIo};
use opentelemetry_proto::tonic::collector::profiles::v1development::profiles_service_client::ProfilesServiceClient;
use opentelemetry_proto::tonic::collector::profiles::v1development::{
    ExportProfilesServiceRequest, ExportProfilesServiceResponse,
};
use profbridge_engine::clock::Clock;
use profbridge_engine::component::{Now, StartError};
use profbridge_engine::config::{Carries, Section};
use profbridge_engine::peer_limits::PeerLimits;
use profbridge_model::{Profiles, Telemetry, TelemetryKind};
use profbridge_testkit::{
    PLENTY, ReadAnswer, ReceiverRig, RequestBuilder, T0, gzip, http1, intake_of, ms, patiently, until, zlib,
};
use prost::Message as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tonic::transport::Channel;

use crate::{OtlpReceiver, Settings, ThisHost};

/// A configuration of both protocols on free ports, with default values for all other keys.
const LOOPBACK: &str = "{protocols: {grpc: {endpoint: '127.0.0.1:0'}, http: {endpoint: '127.0.0.1:0'}}}";

/// Like [`LOOPBACK`], with requests of at most 1 MiB.
const SMALL: &str = "{protocols: {grpc: {endpoint: '127.0.0.1:0', max_recv_msg_size_mib: 1}, \
                     http: {endpoint: '127.0.0.1:0', max_request_body_size: 1MiB}}}";

/// The limit of [`SMALL`] in bytes.
const SMALL_LIMIT: usize = 1 << 20;

/// The arrival time of requests, a minute after their profiles began.
pub(crate) const ARRIVAL: u64 = T0 + 60_000_000_000;

/// A clock that always returns [`ARRIVAL`].
pub(crate) fn clock() -> Clock {
    Clock::from_fn(|| Now { monotonic_nano: 0, unix_nano: ARRIVAL })
}

fn settings(yaml: &str) -> Settings {
    Settings::read(&Section::from_yaml(yaml).unwrap()).unwrap()
}

struct OtlpRig(ReceiverRig);

impl std::ops::Deref for OtlpRig {
    type Target = ReceiverRig;

    fn deref(&self) -> &ReceiverRig {
        &self.0
    }
}

impl std::ops::DerefMut for OtlpRig {
    fn deref_mut(&mut self) -> &mut ReceiverRig {
        &mut self.0
    }
}

impl OtlpRig {
    async fn start(yaml: &str) -> Self {
        Self::start_with(settings(yaml), PLENTY).await.unwrap()
    }

    async fn start_with(settings: Settings, memory: u64) -> Result<Self, StartError> {
        Ok(Self(ReceiverRig::start("otlp", OtlpReceiver::on(ThisHost::default(), clock(), settings), memory).await?))
    }

    /// A receiver in front of a pipeline that accepts only profiles.
    async fn start_for_profiles(yaml: &str) -> Self {
        let pipeline = intake_of(Carries::Only(TelemetryKind::Profiles), PLENTY);
        let otlp = OtlpReceiver::on(ThisHost::default(), clock(), settings(yaml));
        Self(ReceiverRig::start_before(pipeline, "otlp", otlp, PLENTY, PeerLimits::default()).await.unwrap())
    }

    fn grpc(&self) -> SocketAddr {
        self.address("grpc")
    }

    fn http(&self) -> SocketAddr {
        self.address("http")
    }

    /// The generated client.
    fn client(&self) -> ProfilesServiceClient<Channel> {
        let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{}", self.grpc())).unwrap();
        ProfilesServiceClient::new(endpoint.connect_lazy())
    }

    /// Exports with the generated client, and returns the data that arrives.
    async fn export(
        &mut self,
        mut client: ProfilesServiceClient<Channel>,
        request: ExportProfilesServiceRequest,
    ) -> (ExportProfilesServiceResponse, Profiles) {
        let (response, taken) = tokio::join!(client.export(request), self.consumer.take());
        (response.unwrap().into_inner(), profiles(taken))
    }

    /// The number of samples counted as `accepted`, `refused` or `failed`.
    fn samples(&self, which: &str, transport: &str) -> u64 {
        self.counter(&format!("otelcol_receiver_{which}_profile_samples"), transport, "")
    }

    /// The number of spans counted as `accepted`, `refused` or `failed`.
    fn spans(&self, which: &str, transport: &str) -> u64 {
        self.counter(&format!("otelcol_receiver_{which}_spans"), transport, "")
    }

    /// The number of connections with an outcome such as `served` or `handshake_failed`.
    fn connections(&self, outcome: &str, transport: &str) -> u64 {
        self.counter("profbridge_receiver_connections_total", transport, &format!(",outcome=\"{outcome}\""))
    }
}

fn profiles(telemetry: Option<Telemetry>) -> Profiles {
    match telemetry {
        Some(Telemetry::Profiles(profiles)) => profiles,
        other => panic!("{other:?}"),
    }
}

/// A request with one profile, which has two samples with three observations in total.
fn small() -> ExportProfilesServiceRequest {
    RequestBuilder::new()
        .process("checkout", 42)
        .on_cpu(20)
        .sample(&["leaf", "root"], 7, &ms([0, 50]))
        .sample(&["other", "root"], 8, &ms([10]))
        .build()
}

/// A request with one profile that contains this many bytes of payload.
fn heavy(bytes: usize) -> ExportProfilesServiceRequest {
    let builder =
        RequestBuilder::new().process("checkout", 42).on_cpu(20).sample(&["leaf"], 7, &ms([0])).thread_name("main");
    builder.with_profile(|profile| profile.original_payload = vec![0; bytes]).build()
}

/// A request with two profiles, the second of which has one sample that refers to a missing stack.
fn half_bad() -> ExportProfilesServiceRequest {
    let mut request = small();
    let profiles = &mut request.resource_profiles[0].scope_profiles[0].profiles;
    let mut bad = profiles[0].clone();
    bad.samples.truncate(1);
    bad.samples[0].stack_index = 999;
    profiles.push(bad);
    request
}

/// A request that is valid both in the layout of opentelemetry-proto 1.8, where field 8 of a profile is its id, and in
/// that of 1.9, where it is a number.
fn unclear_layout() -> Vec<u8> {
    let nested = |field: u8, inner: &[u8]| [&[field << 3 | 2, inner.len() as u8], inner].concat();
    let profile = nested(2, &[&nested(8, &[7; 16])[..], &[8 << 3, 1]].concat());
    [nested(1, &nested(2, &profile)), nested(2, &[])].concat()
}

fn zstandard(data: &[u8]) -> Vec<u8> {
    zstd::encode_all(data, 1).unwrap()
}

/// A body that the test supplies. It ends when its sender is dropped, and fails if an error is sent.
struct Feed(mpsc::UnboundedReceiver<Result<Bytes, std::io::Error>>);

type Feeder = mpsc::UnboundedSender<Result<Bytes, std::io::Error>>;

impl Body for Feed {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        self.0.poll_recv(cx).map(|data| data.map(|data| data.map(Frame::data)))
    }
}

fn feed() -> (Feeder, Feed) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (sender, Feed(receiver))
}

/// A body of one piece.
fn whole(bytes: impl Into<Bytes>) -> Feed {
    let (sender, body) = feed();
    sender.send(Ok(bytes.into())).unwrap();
    body
}

const PROTOBUF: &str = "application/x-protobuf";

/// A request over HTTP with a body of this type, in this encoding.
fn post_to(path: &str, content_type: &str, encoding: Option<&str>, body: impl Into<Bytes>) -> Request<Feed> {
    let mut request = Request::post(path).header("host", "localhost").header("content-type", content_type);
    if let Some(encoding) = encoding {
        request = request.header("content-encoding", encoding);
    }
    request.body(whole(body)).unwrap()
}

/// An export of profiles in protobuf.
fn post(encoding: Option<&str>, body: impl Into<Bytes>) -> Request<Feed> {
    post_to(crate::http::PATH, PROTOBUF, encoding, body)
}

/// An HTTP/2 connection without gRPC on top.
async fn http2(address: SocketAddr) -> hyper::client::conn::http2::SendRequest<Feed> {
    let io = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    sender
}

/// The body, which must be a `google.rpc.Status`.
fn rpc_status(answer: &ReadAnswer) -> tonic_types::Status {
    assert_eq!(answer.header("content-type"), Some("application/x-protobuf"));
    tonic_types::Status::decode(answer.body.clone()).unwrap()
}

/// The body of a successful answer.
fn response(answer: &ReadAnswer) -> ExportProfilesServiceResponse {
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/x-protobuf")));
    ExportProfilesServiceResponse::decode(answer.body.clone()).unwrap()
}

/// Sends raw bytes, and reads until the peer closes the connection.
async fn exchange(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    // A connection reset counts as an end.
    drop(patiently(stream.read_to_end(&mut answer)).await);
    String::from_utf8_lossy(&answer).into_owned()
}
