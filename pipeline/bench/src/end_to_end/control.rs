//! The control as a server: a simple implementation with tonic, prost, serde and flate2.
//!
//! A single worker decodes a request with the generated code, converts it with [`naive`], compresses it with gzip 6,
//! and puts it into a bounded queue before acknowledging it. Four consumers post from the queue, each over its own
//! connection.

use std::{io::Write, net::SocketAddr, sync::Arc};

use bytes::Bytes;
use clap::Args;
use http::{Method, Request, header};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
    service::TowerToHyperService,
};
use opentelemetry_proto::tonic::collector::profiles::v1development::{
    ExportProfilesServiceResponse,
    profiles_service_server::{ProfilesService, ProfilesServiceServer},
};
use profbridge_testkit::{ExportProfilesServiceRequest, naive};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Mutex, mpsc},
};
use tonic::{Response, Status, codec::CompressionEncoding};

use crate::Error;

/// The maximum number of queued envelopes.
const QUEUE: usize = 16;

/// The number of concurrent posts.
const CONSUMERS: usize = 4;

/// The largest request in bytes: 64 MiB, like profbridge's default.
const LARGEST: usize = 64 << 20;

/// The options of the command `control-server`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ControlOptions {
    /// The sink's address
    #[arg(long)]
    sink: SocketAddr,
}

struct ControlService {
    queue: mpsc::Sender<Bytes>,
}

#[tonic::async_trait]
impl ProfilesService for ControlService {
    async fn export(
        &self,
        request: tonic::Request<ExportProfilesServiceRequest>,
    ) -> Result<Response<ExportProfilesServiceResponse>, Status> {
        for chunk in naive::convert(&request.into_inner(), &naive::NaiveOptions::default()) {
            let json = naive::json(&chunk).map_err(|error| Status::internal(error.to_string()))?;
            let body = naive::gzip(&naive::envelope(&chunk.platform, &json))
                .map_err(|error| Status::internal(error.to_string()))?;
            self.queue.send(body.into()).await.map_err(|_| Status::unavailable("the sink is gone"))?;
        }
        Ok(Response::new(ExportProfilesServiceResponse::default()))
    }
}

/// Serves until the process is killed. Prints `listening on ADDRESS` once the control accepts connections.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn run(options: ControlOptions) -> Result<(), Error> {
    let (queue, waiting) = mpsc::channel(QUEUE);
    let waiting = Arc::new(Mutex::new(waiting));
    for _ in 0..CONSUMERS {
        tokio::spawn(consume(Arc::clone(&waiting), options.sink));
    }
    let service = ProfilesServiceServer::new(ControlService { queue })
        .accept_compressed(CompressionEncoding::Gzip)
        .accept_compressed(CompressionEncoding::Zstd)
        .max_decoding_message_size(LARGEST);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    writeln!(std::io::stdout(), "listening on {}", listener.local_addr()?)?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let service = TowerToHyperService::new(service.clone());
        tokio::spawn(async move {
            let builder = auto::Builder::new(TokioExecutor::new()).http2_only();
            // The control does not care when a sender closes its connection.
            builder.serve_connection(TokioIo::new(stream), service).await.ok();
        });
    }
}

/// A connection to the sink.
async fn connect(sink: SocketAddr) -> Result<http1::SendRequest<Full<Bytes>>, Error> {
    let stream = TcpStream::connect(sink).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

/// Posts queued envelopes one after the other. An envelope that fails on an open connection is lost.
async fn consume(waiting: Arc<Mutex<mpsc::Receiver<Bytes>>>, sink: SocketAddr) -> Result<(), Error> {
    let mut sender = connect(sink).await?;
    loop {
        let Some(body) = waiting.lock().await.recv().await else { return Ok(()) };
        let request = Request::builder()
            .method(Method::POST)
            .uri("/api/1/envelope/")
            .header(header::HOST, sink.to_string())
            .header(header::CONTENT_TYPE, "application/x-sentry-envelope")
            .header(header::CONTENT_ENCODING, "gzip")
            .body(Full::new(body))?;
        if sender.ready().await.is_err() {
            sender = connect(sink).await?;
        }
        match sender.send_request(request).await {
            Ok(response) => drop(response.into_body().collect().await),
            Err(error) => writeln!(std::io::stderr(), "an envelope was lost: {error}")?,
        }
    }
}
