//! The thread that downloads files.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use http::header::{AUTHORIZATION, HeaderMap};
use http::{StatusCode, Uri};
use http_body_util::BodyExt as _;
use profbridge_net::body::{BodyError, BodyLimits};
use profbridge_net::client::{HttpClient, HttpClientConfig};
use tokio::sync::{Semaphore, mpsc};

use crate::cache::Cache;
use crate::server::DebuginfodServer;
use crate::{DownloadLimits, DownloadState, hex};

/// How many files are downloaded at the same time.
const PARALLEL: usize = 4;
/// The number of bytes that have to arrive in each period.
const PROGRESS: usize = 100 << 10;

/// Downloads files.
#[derive(Debug)]
pub(crate) struct Fetcher {
    pub(crate) servers: Vec<DebuginfodServer>,
    pub(crate) limits: DownloadLimits,
    pub(crate) cache: Arc<Cache>,
    pub(crate) known: Arc<DownloadState>,
}

/// Why a server delivered no file.
#[derive(Debug)]
enum FetchError {
    /// The server does not have the file.
    Missing,
    /// The file is unusable, whichever server sends it.
    File(String),
    /// The server is not reachable, or its answer is wrong.
    DebuginfodServer(String),
}

impl Fetcher {
    /// Starts the thread. It ends when the sending end of `jobs` is dropped.
    pub(crate) fn start(self, mut jobs: mpsc::Receiver<Box<[u8]>>) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let run = move || {
            let client = match self.client() {
                Ok(client) => client,
                Err(error) => return tracing::warn!("debuginfod is not used: {error}"),
            };
            let fetcher = Arc::new(self);
            runtime.block_on(async {
                let slots = Arc::new(Semaphore::new(PARALLEL));
                while let Some(build_id) = jobs.recv().await {
                    let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
                    let (fetcher, client) = (Arc::clone(&fetcher), client.clone());
                    tokio::spawn(async move {
                        fetcher.download_from_any(&client, &build_id).await;
                        drop(slot);
                    });
                }
            });
        };
        thread::Builder::new().name("debuginfod".to_owned()).spawn(run).map(drop)
    }

    fn client(&self) -> Result<HttpClient, profbridge_net::client::EndpointError> {
        let encrypted = self.servers.iter().any(DebuginfodServer::is_encrypted);
        let defaults = HttpClientConfig::default();
        let config = HttpClientConfig {
            tls: defaults.tls.filter(|_| encrypted),
            timeout: self.limits.progress,
            connect_timeout: defaults.connect_timeout.min(self.limits.progress),
            ..HttpClientConfig::default()
        };
        HttpClient::new(&config)
    }

    /// Tries the servers in order until one delivers the file.
    async fn download_from_any(&self, client: &HttpClient, build_id: &[u8]) {
        let mut everybody_answered = true;
        for server in &self.servers {
            if server.is_down() {
                everybody_answered = false;
                continue;
            }
            self.known.touch();
            match self.download(client, server, build_id).await {
                Ok(bytes) => {
                    tracing::info!(build_id = hex(build_id), %server, bytes, "a debug file was downloaded");
                    return self.known.settle(build_id, true);
                }
                Err(FetchError::Missing) => continue,
                Err(FetchError::File(why)) => {
                    tracing::warn!(build_id = hex(build_id), %server, "a debug file could not be downloaded: {why}");
                }
                Err(FetchError::DebuginfodServer(why)) => {
                    server.fail();
                    tracing::warn!(%server, "this server is not used for a while: {why}");
                }
            }
            everybody_answered = false;
            self.known.failures.fetch_add(1, Ordering::Relaxed);
        }
        if everybody_answered && let Err(error) = self.cache.note_missing(build_id) {
            tracing::debug!("the cache of debuginfod cannot be written: {error}");
        }
        self.known.settle(build_id, false);
    }

    /// Downloads a file into the cache. Returns its length in bytes.
    async fn download(
        &self,
        client: &HttpClient,
        server: &DebuginfodServer,
        build_id: &[u8],
    ) -> Result<u64, FetchError> {
        let url: Uri =
            server.url(build_id).ok_or_else(|| FetchError::DebuginfodServer("its URL cannot be used".to_owned()))?;
        let mut headers = HeaderMap::new();
        headers.extend(server.authorization.clone().map(|value| (AUTHORIZATION, value)));
        let limits = BodyLimits {
            max_bytes: usize::try_from(self.limits.bytes).unwrap_or(usize::MAX),
            timeout: self.limits.total,
            progress_interval: self.limits.progress,
            min_progress: PROGRESS,
        };
        let response =
            client.get(&url, headers, limits).await.map_err(|error| FetchError::DebuginfodServer(error.to_string()))?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => return Err(FetchError::Missing),
            status => return Err(FetchError::DebuginfodServer(format!("it answers {status}"))),
        }
        let on_disk = |error: io::Error| FetchError::File(format!("the cache cannot be written: {error}"));
        let mut partial = self.cache.create_partial(build_id).map_err(on_disk)?;
        let mut body = response.into_body();
        let mut bytes = 0;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| match error {
                BodyError::TooLarge { .. } => FetchError::File(error.to_string()),
                error => FetchError::DebuginfodServer(error.to_string()),
            })?;
            let Ok(data) = frame.into_data() else { continue };
            partial.file.write_all(&data).map_err(on_disk)?;
            bytes += data.len() as u64;
            self.known.touch();
        }
        if bytes == 0 {
            return Err(FetchError::Missing);
        }
        self.cache.store(build_id, &partial, bytes).map_err(on_disk)?;
        Ok(bytes)
    }
}
