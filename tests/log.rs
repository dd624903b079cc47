//! The log of the real binary when a client tries to flood it.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Stdio};
use std::time::Instant;

use profbridge_testkit::{RequestBuilder, T0};

use crate::client::{export, get, status};
use crate::process::{PATIENCE, Profbridge, command, eventually};

const CONFIG: &str = "
receivers:
  otlp: {protocols: {grpc: {endpoint: '127.0.0.1:0'}}}
exporters:
  debug:
service:
  pipelines:
    profiles: {receivers: [otlp], exporters: [debug]}
";

/// An HTTP/2 frame of stream 0 (RFC 9113 section 4.1).
fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    [&[0, 0, u8::try_from(payload.len()).unwrap(), kind, flags, 0, 0, 0, 0][..], payload].concat()
}

/// Guarantees: if a peer makes a library complain about each of its frames, the log gets a few lines, and one with the
/// total.
#[test]
fn a_flood_is_summed_up() {
    const FLOOD: usize = 20_000;
    const SETTINGS: u8 = 4;
    const PING: u8 = 6;
    const ACK: u8 = 1;
    let began = Instant::now();
    let profbridge = Profbridge::start(CONFIG);
    let mut peer = TcpStream::connect(profbridge.address("otlp/grpc")).unwrap();
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    peer.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    peer.write_all(&frame(SETTINGS, 0, &[])).unwrap();
    // Unrequested ping answers, and finally a ping, whose answer shows that all were read.
    peer.write_all(&frame(PING, ACK, b"nobody's").repeat(FLOOD)).unwrap();
    peer.write_all(&frame(PING, 0, b"the last")).unwrap();
    let answer = frame(PING, ACK, b"the last");
    let mut read: Vec<u8> = Vec::new();
    // Other frames may follow it.
    while !read.windows(answer.len()).any(|frame| frame == answer) {
        let mut piece = [0; 1024];
        let length = peer.read(&mut piece).unwrap();
        assert!(length > 0, "the connection ended: {}", profbridge.log());
        read.extend(&piece[..length]);
    }
    let (status, log) = profbridge.stop();
    assert!(status.success(), "{log}");
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("PING ack")).collect();
    // Five lines and the summary if this takes less than a minute; on a slower machine some more. None is missing in
    // the total.
    let minutes = 1 + usize::try_from(began.elapsed().as_secs() / 60).unwrap();
    assert!((6..=6 * minutes).contains(&lines.len()), "{log}");
    let summed_up = |line: &&str| -> Option<usize> {
        let (_, count) = line.split_once(" WARN ... and ")?;
        count.split_once(" more like this within 60 s: ")?.0.replace(',', "").parse().ok()
    };
    let more: Vec<usize> = lines.iter().filter_map(summed_up).collect();
    assert_eq!(more.iter().sum::<usize>() + lines.len() - more.len(), FLOOD, "{log}");
}

/// `O_NONBLOCK` of Linux (fcntl.h) on the supported platforms.
#[cfg(target_os = "linux")]
const O_NONBLOCK: i32 = 0o4000;

/// Attack: standard error is a full pipe without a reader. Requests are still served, health and metrics respond, and
/// SIGTERM ends the process.
#[cfg(target_os = "linux")]
#[test]
fn nobody_reads() {
    let folder = tempfile::tempdir().unwrap();
    let config = CONFIG.replace("debug:", "debug: {verbosity: detailed}");
    std::fs::write(folder.path().join("config.yaml"), config).unwrap();
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
