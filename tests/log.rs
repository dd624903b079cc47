//! The log of the real binary when nobody reads it.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read as _, Write};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Stdio};

use profbridge_testkit::{RequestBuilder, T0};

use crate::client::{export, get, status};
use crate::process::{command, eventually};

const CONFIG: &str = "
receivers:
  otlp: {protocols: {grpc: {endpoint: '127.0.0.1:0'}}}
exporters:
  debug: {verbosity: detailed}
service:
  pipelines:
    profiles: {receivers: [otlp], exporters: [debug]}
";

/// `O_NONBLOCK` of Linux (fcntl.h) on the supported platforms.
const O_NONBLOCK: i32 = 0o4000;

/// Attack: standard error is a full pipe without a reader. Requests are still served, health and metrics respond, and
/// SIGTERM ends the process.
#[test]
fn nobody_reads() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("config.yaml"), CONFIG).unwrap();
    let zero = |server| format!("service.telemetry.{server}.address=127.0.0.1:0");
    let mut child = command(folder.path(), &["run", "--set", &zero("metrics"), "--set", &zero("health")])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap());
    let mut addresses = HashMap::new();
    for line in log.by_ref().lines().map(Result::unwrap).take_while(|line| !line.contains("profbridge is running")) {
        if let Some((name, address)) = line.split_once(" listening on ") {
            let name = name.rsplit(' ').next().unwrap().to_owned();
            addresses.insert(name, address.trim().parse::<SocketAddr>().unwrap());
        }
    }
    // Opened again, so that only this descriptor is non-blocking.
    let path = format!("/proc/self/fd/{}", log.get_ref().as_raw_fd());
    let mut pipe = std::fs::File::options().write(true).custom_flags(O_NONBLOCK).open(path).unwrap();
    [4096, 1].into_iter().for_each(|length| while pipe.write(&vec![b'x'; length]).is_ok() {});

    for _ in 0..20 {
        let request = RequestBuilder::new().process("unread", 1).on_cpu(20).sample(&["go!f"], 1, &[T0, T0 + 1]).build();
        export(addresses["otlp/grpc"], request).unwrap();
    }
    assert_eq!(status(&get(addresses["health/telemetry"], "/")), 200);
    assert!(String::from_utf8_lossy(&get(addresses["metrics/telemetry"], "/metrics")).contains("profbridge_"));
    assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    let status = eventually("the process ends", || child.try_wait().unwrap());
    assert!(status.success(), "{status}");
}
