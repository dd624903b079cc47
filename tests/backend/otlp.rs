//! A fake OTLP backend in this process: receives profiles over gRPC with tonic's generated server, and answers as
//! configured.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use opentelemetry_proto::tonic::collector::profiles::v1development::profiles_service_server::{
    ProfilesService, ProfilesServiceServer,
};
use opentelemetry_proto::tonic::collector::profiles::v1development::{
    ExportProfilesServiceRequest, ExportProfilesServiceResponse,
};
use profbridge_testkit::profcheck::check_request;
use tonic::codec::CompressionEncoding;
use tonic::{Request, Response, Status};

use super::{AwaitedList, Listening};

/// The backend. Stops when dropped, and then asserts that all received data satisfied the OTLP rules.
pub(crate) struct OtlpBackend {
    pub(crate) received: AwaitedList<ExportProfilesServiceRequest>,
    broken: Arc<Mutex<Vec<String>>>,
    script: Arc<Mutex<VecDeque<Result<ExportProfilesServiceResponse, Status>>>>,
    listening: Listening,
}

impl OtlpBackend {
    /// Starts a backend that accepts everything.
    pub(crate) fn start() -> Self {
        let received = AwaitedList::default();
        let script = Arc::new(Mutex::new(VecDeque::new()));
        let broken = Arc::default();
        let service =
            BackendService { received: received.clone(), broken: Arc::clone(&broken), script: Arc::clone(&script) };
        let server = ProfilesServiceServer::new(service)
            .accept_compressed(CompressionEncoding::Gzip)
            .accept_compressed(CompressionEncoding::Zstd)
            .max_decoding_message_size(64 << 20);
        let listening = Listening::start(move |stream| {
            let service = TowerToHyperService::new(server.clone());
            async move {
                let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                connection.serve_connection(TokioIo::new(stream), service).await.ok();
            }
        });
        Self { received, broken, script, listening }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.listening.address
    }

    /// Sets the answer to the next request without one.
    pub(crate) fn next(&self, answer: Result<ExportProfilesServiceResponse, Status>) {
        self.script.lock().unwrap().push_back(answer);
    }
}

impl Drop for OtlpBackend {
    fn drop(&mut self) {
        let broken = self.broken.lock().unwrap();
        assert!(broken.is_empty() || std::thread::panicking(), "profcheck:\n{}", broken.join("\n"));
    }
}

struct BackendService {
    received: AwaitedList<ExportProfilesServiceRequest>,
    broken: Arc<Mutex<Vec<String>>>,
    script: Arc<Mutex<VecDeque<Result<ExportProfilesServiceResponse, Status>>>>,
}

#[tonic::async_trait]
impl ProfilesService for BackendService {
    async fn export(
        &self,
        request: Request<ExportProfilesServiceRequest>,
    ) -> Result<Response<ExportProfilesServiceResponse>, Status> {
        let answer = self.script.lock().unwrap().pop_front().unwrap_or_else(|| Ok(Default::default()));
        self.broken.lock().unwrap().extend(check_request(request.get_ref()).err().unwrap_or_default());
        self.received.push(request.into_inner());
        answer.map(Response::new)
    }
}
