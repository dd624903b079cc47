//! The implementation of the engine's `Exporter`.

use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::SystemTime;

use profbridge_engine::component::{
    Accepted, BoxFuture, Exporter, Now, Prepared, Request, Retry, SendError, StartError,
};
use profbridge_engine::config::Duration;
use profbridge_engine::delivery::ExporterContext;
use profbridge_model::{Reason, Telemetry};
use tokio::time::timeout;

use crate::config::{Settings, StorageLimits};
use crate::envelopes::EnvelopeFolder;
use crate::frames::MessageFile;
use crate::prepare::{FileMeta, FormatEncoder};
use crate::worker::Worker;

/// Writes files.
pub(crate) struct FileExporter {
    settings: Settings,
    encoder: Mutex<FormatEncoder>,
    opened: OnceLock<StartedOutput>,
}

/// The open output and the worker thread, which `start` creates.
struct StartedOutput {
    worker: Worker,
    /// The file or folder, whose writes must not overlap. Waiting for this lock blocks no thread, so a hanging disk
    /// blocks only one thread.
    output: Arc<tokio::sync::Mutex<Output>>,
}

/// The destination of requests.
pub(crate) enum Output {
    Folder(EnvelopeFolder),
    Appended(MessageFile),
}

impl FileExporter {
    pub(crate) fn new(settings: Settings) -> Self {
        Self { encoder: Mutex::new(FormatEncoder::new(&settings)), settings, opened: OnceLock::new() }
    }

    async fn open(&self) -> io::Result<StartedOutput> {
        let worker = Worker::start()?;
        let Settings { path, kept, .. } = self.settings.clone();
        let output = worker.run(move || {
            let now = SystemTime::now();
            Ok(match kept {
                StorageLimits::Envelopes { files, bytes } => {
                    Output::Folder(EnvelopeFolder::open(path, files, bytes, now)?)
                }
                StorageLimits::Appended { rotation, framing, .. } => {
                    Output::Appended(MessageFile::open(path, framing, rotation, now)?)
                }
            })
        });
        let output = self.within_time(output).await?;
        Ok(StartedOutput { worker, output: Arc::new(tokio::sync::Mutex::new(output)) })
    }

    /// Waits for disk access, and fails if it takes too long. As in the Collector, a timeout of zero means none.
    async fn within_time<T>(&self, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        let limit = self.settings.timeout;
        if limit.is_zero() {
            return work.await;
        }
        timeout(limit, work).await.unwrap_or_else(|_| {
            let limit = Duration::from(limit);
            let why =
                format!("it has taken longer than {limit}: a file system that hangs, or a pipe that nobody reads");
            Err(io::Error::new(io::ErrorKind::TimedOut, why))
        })
    }
}

fn cannot_be_written(path: &Path, error: &io::Error) -> String {
    format!("{} cannot be written: {error}", path.display())
}

/// Writes a request, unless an earlier attempt that timed out has written it.
fn write(output: &mut Output, request: &Request<FileMeta>) -> io::Result<()> {
    if request.meta.written.load(Ordering::Acquire) {
        return Ok(());
    }
    let now = SystemTime::now();
    match output {
        Output::Folder(folder) => folder.write(&request.meta.name, &request.body, now)?,
        Output::Appended(file) => file.append(&request.body, now)?,
    }
    request.meta.written.store(true, Ordering::Release);
    Ok(())
}

impl Exporter for FileExporter {
    type Meta = FileMeta;

    fn prepare(&self, telemetry: &Telemetry, now: Now) -> Prepared<FileMeta> {
        let mut encoder = self.encoder.lock().unwrap_or_else(PoisonError::into_inner);
        encoder.prepare(telemetry, now)
    }

    fn send<'a>(&'a self, request: &'a Request<FileMeta>) -> BoxFuture<'a, Result<Accepted, SendError>> {
        Box::pin(async move {
            let attempt = async {
                let opened = self.opened.get().ok_or_else(|| io::Error::other("the exporter was not started"))?;
                // A write cannot be cancelled: if this future is dropped, the write continues, and the next attempt
                // waits for it.
                let mut output = Arc::clone(&opened.output).lock_owned().await;
                let request = request.clone();
                opened.worker.run(move || write(&mut output, &request)).await
            };
            self.within_time(attempt).await.map_err(|error| SendError {
                // The cause may go away: somebody frees disk space, changes permissions, or reads the pipe.
                retry: Retry::Later,
                reason: Reason::WriteFailed,
                message: cannot_be_written(&self.settings.path, &error),
            })?;
            Ok(Accepted::default())
        })
    }

    fn start<'a>(&'a self, _: &'a ExporterContext) -> BoxFuture<'a, Result<(), StartError>> {
        Box::pin(async {
            let opened = self.open().await;
            let opened = opened.map_err(|error| StartError(cannot_be_written(&self.settings.path, &error)))?;
            self.opened.get_or_init(|| opened);
            Ok(())
        })
    }
}
