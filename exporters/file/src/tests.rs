//! The exporter on a real file system.

mod config;
mod disk;
mod envelopes;
mod frames;
mod spans;

use std::path::Path;

use profbridge_engine::component::{Exporter as _, Request, SendError};
use profbridge_engine::config::Section;
use profbridge_engine::delivery::ExporterContext;
use profbridge_model::{Builder, IdentityStrength, ProcessWindow, ProfilerId, Profiles, Telemetry};
use profbridge_testkit::{ManualClock, START_UNIX_NANO};

use crate::config::Config;
use crate::exporter::FileExporter;
use crate::prepare::FileMeta;

/// An exporter for `path`, with additional keys of the section.
fn exporter(path: &Path, more: &str) -> FileExporter {
    let section = Section::from_yaml(&format!("{{path: '{}', {more}}}", path.display())).unwrap();
    FileExporter::new(Config::read(&section).unwrap().check(&section).unwrap())
}

fn requests(exporter: &FileExporter, telemetry: impl Into<Telemetry>) -> Vec<Request<FileMeta>> {
    exporter.prepare(&telemetry.into(), ManualClock::default().now()).requests
}

fn context() -> ExporterContext {
    profbridge_testkit::exporter_context("file")
}

/// Writes telemetry with an exporter that was started.
async fn write(exporter: &FileExporter, telemetry: impl Into<Telemetry>) -> Result<(), SendError> {
    for request in requests(exporter, telemetry) {
        exporter.send(&request).await?;
    }
    Ok(())
}

/// A batch of one process and window: twenty observations per second, starting `second` seconds after a fixed time.
fn chunk(process: u128, second: u64) -> Profiles {
    let mut builder = Builder::new();
    builder.resource(&[("service.name", "checkout".into())]);
    builder.scope("test", "1");
    let frame = builder.frame("parse", "main.rs", 7);
    let stack = builder.stack(&[frame]);
    builder.on_cpu(20);
    let start = START_UNIX_NANO + second * 1_000_000_000;
    if let Some(profile) = builder.open_profile() {
        (profile.time_unix_nano, profile.duration_nano) = (start, 1_000_000_000);
    }
    let times: Vec<u64> = (0..20).map(|n| start + n * 50_000_000).collect();
    let thread = builder.attributes(&[("thread.id", 7.into())]);
    builder.sample(stack, thread, None, &times, &[]);
    let mut batch = builder.finish().unwrap();
    batch.window = Some(ProcessWindow {
        profiler_id: ProfilerId::from_hash(process),
        strength: IdentityStrength::Strong,
        start_unix_nano: start,
        end_unix_nano: start + 60_000_000_000,
    });
    batch
}

/// The names in a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}
