//! The log of the real binary, when somebody tries to fill it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use crate::process::{PATIENCE, Profbridge};

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

/// Guarantees: a peer that makes a library complain about each of its frames gets some lines into the log, and one that
/// says how many there were.
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
    // Answers to pings that nobody sent, and at last a ping, whose answer says that they were all read.
    peer.write_all(&frame(PING, ACK, b"nobody's").repeat(FLOOD)).unwrap();
    peer.write_all(&frame(PING, 0, b"the last")).unwrap();
    let answer = frame(PING, ACK, b"the last");
    let mut read: Vec<u8> = Vec::new();
    // Other frames may come right behind it.
    while !read.windows(answer.len()).any(|frame| frame == answer) {
        let mut piece = [0; 1024];
        let length = peer.read(&mut piece).unwrap();
        assert!(length > 0, "the connection ended: {}", profbridge.log());
        read.extend(&piece[..length]);
    }
    let (status, log) = profbridge.stop();
    assert!(status.success(), "{log}");
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("PING ack")).collect();
    // Five and the one that sums up, on a machine that needs less than a minute for this; none is forgotten on any.
    let minutes = 1 + usize::try_from(began.elapsed().as_secs() / 60).unwrap();
    assert!((6..=6 * minutes).contains(&lines.len()), "{log}");
    let summed_up = |line: &&str| -> Option<usize> {
        let (_, count) = line.split_once(" WARN ... and ")?;
        count.split_once(" more like this within 60 s: ")?.0.replace(',', "").parse().ok()
    };
    let more: Vec<usize> = lines.iter().filter_map(summed_up).collect();
    assert_eq!(more.iter().sum::<usize>() + lines.len() - more.len(), FLOOD, "{log}");
}
