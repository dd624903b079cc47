//! Clients like those of profilers: tonic's generated one, and plain HTTP.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::LazyLock;
use std::time::UNIX_EPOCH;

use opentelemetry_proto::tonic::collector::profiles::v1development::profiles_service_client::ProfilesServiceClient;
use opentelemetry_proto::tonic::collector::profiles::v1development::{
    ExportProfilesServiceRequest, ExportProfilesServiceResponse,
};
use profbridge_testkit::{RequestBuilder, T0, ms};
use tonic::codec::CompressionEncoding;
use tonic::transport::Endpoint;

use crate::process::PATIENCE;

/// An hour, in nanoseconds.
const HOUR: u64 = 3_600_000_000_000;

/// By how much [`recent`] moves times, in nanoseconds: whole hours, so that windows begin where they do at [`T0`].
pub(crate) fn shift() -> u64 {
    static SHIFT: LazyLock<u64> = LazyLock::new(|| {
        let now = UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
        (now - T0) / HOUR * HOUR - 2 * HOUR
    });
    *SHIFT
}

/// Moves the times of a request from [`T0`] to the last three hours, because a receiver replaces times that are more
/// than a day before or after the arrival. Times that were moved already are unchanged.
pub(crate) fn recent(mut request: ExportProfilesServiceRequest) -> ExportProfilesServiceRequest {
    let scopes = request.resource_profiles.iter_mut().flat_map(|resource| &mut resource.scope_profiles);
    for profile in scopes.flat_map(|scope| &mut scope.profiles) {
        let timestamps = profile.samples.iter_mut().flat_map(|sample| &mut sample.timestamps_unix_nano);
        for time in timestamps.chain([&mut profile.time_unix_nano]) {
            *time += if (T0..T0 + 24 * HOUR).contains(time) { shift() } else { 0 };
        }
    }
    request
}

/// A request with three observations of one process of a service.
pub(crate) fn request(service: &str) -> ExportProfilesServiceRequest {
    RequestBuilder::new().process(service, 1).on_cpu(20).sample(&["go!f", "go!main"], 1, &ms([0, 50, 100])).build()
}

/// Sends a request over gRPC, with [`recent`] times.
pub(crate) fn export(
    address: SocketAddr,
    request: ExportProfilesServiceRequest,
) -> Result<ExportProfilesServiceResponse, tonic::Status> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
        let mut client = ProfilesServiceClient::new(channel)
            .send_compressed(CompressionEncoding::Gzip)
            .max_encoding_message_size(64 << 20);
        let call = tokio::time::timeout(PATIENCE, client.export(recent(request))).await.expect("an answer in time");
        call.map(tonic::Response::into_inner)
    })
}

/// Posts a body over HTTP/1.1 and returns the whole response, head and body.
pub(crate) fn post(address: SocketAddr, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
    stream.write_all(head.as_bytes()).unwrap();
    // A server that refuses early closes the connection during the body; its response is what matters.
    stream.write_all(body).ok();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok();
    answer
}

/// Gets a path over HTTP/1.1 and returns the whole response, head and body.
pub(crate) fn get(address: SocketAddr, path: &str) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    answer
}

/// The status of a response.
pub(crate) fn status(answer: &[u8]) -> u16 {
    let head = String::from_utf8_lossy(answer);
    head.split_whitespace().nth(1).and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("no status: {head}"))
}

/// Bytes compressed with gzip.
pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(bytes).unwrap();
    gzip.finish().unwrap()
}
