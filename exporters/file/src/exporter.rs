//! The exporter as the engine sees it.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::SystemTime;

use profbridge_engine::component::{
    Accepted, BoxFuture, Exporter, Now, Prepared, Request, Retry, SendError, StartError,
};
use profbridge_model::{Reason, Telemetry};

use crate::config::{Kept, Settings};
use crate::envelopes::Folder;
use crate::frames::Appended;
use crate::prepare::{Meta, Workshop};

/// Writes files.
pub(crate) struct FileExporter {
    settings: Settings,
    workshop: Mutex<Workshop>,
    /// One write at a time: the disk is one, and so is the file.
    output: OnceLock<Arc<Mutex<Output>>>,
}

/// Where requests go.
pub(crate) enum Output {
    Folder(Folder),
    Appended(Appended),
}

impl FileExporter {
    pub(crate) fn new(settings: Settings) -> Self {
        Self { workshop: Mutex::new(Workshop::new(&settings)), settings, output: OnceLock::new() }
    }

    fn open(settings: &Settings) -> io::Result<Output> {
        Ok(match settings.kept {
            Kept::Envelopes { files, bytes } => {
                Output::Folder(Folder::open(settings.path.clone(), files, bytes, SystemTime::now())?)
            }
            Kept::Frames { bytes, backups } => {
                Output::Appended(Appended::open(settings.path.clone(), bytes, backups, SystemTime::now())?)
            }
        })
    }

    fn failed(&self, error: &io::Error) -> SendError {
        let message = format!("{} cannot be written: {error}", self.settings.path.display());
        // A full disk may be emptied, and rights may be given.
        SendError { retry: Retry::Later, reason: Reason::WriteFailed, message }
    }
}

/// Writes a request, unless an attempt that nobody waited for any more has done so.
fn write(output: &Mutex<Output>, request: &Request<Meta>) -> io::Result<()> {
    let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
    if request.meta.written.load(Ordering::Acquire) {
        return Ok(());
    }
    let now = SystemTime::now();
    match &mut *output {
        Output::Folder(folder) => folder.write(&request.meta.name, &request.body, now)?,
        Output::Appended(file) => file.append(&request.body, now)?,
    }
    request.meta.written.store(true, Ordering::Release);
    Ok(())
}

impl Exporter for FileExporter {
    type Meta = Meta;

    fn prepare(&self, telemetry: &Telemetry, now: Now) -> Prepared<Meta> {
        let mut workshop = self.workshop.lock().unwrap_or_else(PoisonError::into_inner);
        workshop.prepare(telemetry, now)
    }

    fn send<'a>(&'a self, request: &'a Request<Meta>) -> BoxFuture<'a, Result<Accepted, SendError>> {
        Box::pin(async move {
            let Some(output) = self.output.get() else {
                return Err(self.failed(&io::Error::other("the exporter was not started")));
            };
            let (output, request) = (Arc::clone(output), request.clone());
            // A write cannot be stopped: where this future is dropped, it goes on, and the next attempt waits for it.
            let written = tokio::task::spawn_blocking(move || write(&output, &request)).await;
            match written {
                Ok(Ok(())) => Ok(Accepted::default()),
                Ok(Err(error)) => Err(self.failed(&error)),
                Err(error) => Err(self.failed(&io::Error::other(error))),
            }
        })
    }

    fn start(&self) -> BoxFuture<'_, Result<(), StartError>> {
        Box::pin(async {
            let settings = self.settings.clone();
            let opened = tokio::task::spawn_blocking(move || Self::open(&settings)).await;
            let output = opened
                .unwrap_or_else(|error| Err(io::Error::other(error)))
                .map_err(|error| StartError(format!("{} cannot be written: {error}", self.settings.path.display())))?;
            self.output.get_or_init(|| Arc::new(Mutex::new(output)));
            Ok(())
        })
    }
}
