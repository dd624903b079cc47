//! How a run ends: which signals end it, and that nothing delays it.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use profbridge_testkit::{RequestBuilder, ms};

use crate::client::{export, request};
use crate::process::Profbridge;

/// A pipeline from OTLP to a file exporter.
fn to_file(exporter: &str, identity: &str, shutdown_timeout: &str) -> String {
    format!(
        "receivers:
  otlp: {{protocols: {{grpc: {{endpoint: '127.0.0.1:0'}}}}}}
processors: {{chunk: }}
exporters:
  file: {exporter}
service:
  identity: {identity}
  shutdown_timeout: {shutdown_timeout}
  pipelines:
    profiles: {{receivers: [otlp], processors: [chunk], exporters: [file]}}
"
    )
}

/// Creates a named pipe, and a read end that is never read.
fn unread_pipe(path: &Path) -> File {
    nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    File::options().read(true).custom_flags(nix::fcntl::OFlag::O_NONBLOCK.bits()).open(path).unwrap()
}

/// A run whose file exporter blocks in a write, or will do so before anything else can happen to the request.
fn blocked(pipe: &Path, shutdown_timeout: &str) -> Profbridge {
    let exporter = format!("{{path: '{}', format: otlp}}", pipe.display());
    let profbridge = Profbridge::start(&to_file(&exporter, "{window: 0s}", shutdown_timeout));
    // More than the capacity of a pipe.
    let large = RequestBuilder::new().process("large", 1).attr("padding", "x".repeat(1 << 20).as_str());
    let large = large.on_cpu(20).sample(&["go!f", "go!main"], 1, &ms([0, 50, 100]));
    export(profbridge.address("otlp/grpc"), large.build()).unwrap();
    profbridge
}

/// Guarantees: a blocked write delays neither the deadline nor the report, which counts what was not written.
#[test]
fn a_write_that_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    let _reader = unread_pipe(&pipe);
    let (status, log) = blocked(&pipe, "1s").stop();
    assert!(status.code().is_some(), "{status}: {log}");
    assert!(log.contains("exporter file: 3 in, 0 sent") && log.contains("dropped 3 shutdown"), "{log}");
    assert!(log.contains("3 observations dropped as shutdown: it was still held"), "{log}");
    assert!(!log.contains("unaccounted"), "{log}");
}

/// Guarantees: a second signal ends the process immediately, whatever it waits for.
#[test]
fn a_second_signal() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    let _reader = unread_pipe(&pipe);
    let mut profbridge = blocked(&pipe, "1h");
    profbridge.signal("TERM");
    profbridge.wait_for_log("SIGTERM: shutting down");
    profbridge.signal("INT");
    let (status, log, ..) = profbridge.ended();
    assert_eq!(status.code(), Some(130), "{log}");
}

/// Guarantees: SIGHUP, which is sent when a terminal closes, does not end the process: it is logged, and requests are
/// served and written as before.
#[test]
fn hangup() {
    let mut profbridge = Profbridge::start(&to_file("{path: envelopes}", "{window: 60s}", "25s"));
    profbridge.signal("HUP");
    profbridge.wait_for_log("SIGHUP: going on");
    export(profbridge.address("otlp/grpc"), request("later")).unwrap();
    let (status, log, path, _folder) = profbridge.stop_and_keep();
    assert!(status.success() && log.contains("SIGTERM: shutting down"), "{status}: {log}");
    assert_eq!(std::fs::read_dir(path.join("envelopes")).unwrap().count(), 1, "{log}");
}
