//! What forwarding an envelope costs that nothing is read of: in process, and through the binary beside nginx as a
//! proxy.

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use clap::Args;
use profbridge_codec::sentry::Encoder;
use profbridge_model::envelope::Received;
use profbridge_net::compression::Compression;
use profbridge_wire::sentry::{Dsn, chunk::Settings, envelope, item_limits};

use super::{
    Error, TARGET_CORE, calibrator,
    children::{self, Running, Sink},
    pairs, procfs,
    report::{Goal, Report},
};

/// What to measure.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// The binary of profbridge
    #[arg(long, default_value = "target/dist/profbridge")]
    binary: PathBuf,
    /// The proxy to compare with
    #[arg(long, default_value = "nginx")]
    nginx: PathBuf,
    /// The size of an envelope, in bytes
    #[arg(long, default_value_t = 4096)]
    size: usize,
    /// Connections at the same time
    #[arg(long, default_value_t = 8)]
    connections: usize,
    /// Pairs of blocks
    #[arg(long, default_value_t = 8)]
    pairs: usize,
    /// The length of a block
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Write the figures as JSON
    #[arg(long)]
    json: Option<PathBuf>,
}

const KEY: &str = "0123456789abcdef0123456789abcdef";

/// An error event of about so many bytes, as an SDK frames it.
fn error_envelope(size: usize) -> Vec<u8> {
    let head = "{\"event_id\":\"9ec79c33ec9942ab8353589fcb2e04dc\",\"sent_at\":\"2026-01-01T00:00:00Z\"}\n";
    let text = "x".repeat(size.saturating_sub(head.len() + 80));
    let event = format!("{{\"message\":\"{text}\"}}");
    format!("{head}{{\"type\":\"event\",\"length\":{}}}\n{event}\n", event.len()).into_bytes()
}

/// Payload bytes per second that one core reads, checks and makes a request of, without the network.
fn in_process(size: usize) -> Result<f64, Error> {
    let body = Bytes::from(error_envelope(size));
    let mut encoder = Encoder::new(Settings::default());
    let dsn: Dsn = format!("http://{KEY}@127.0.0.1/42").parse()?;
    let end = Instant::now() + Duration::from_secs(1);
    let (start, mut count) = (Instant::now(), 0u64);
    while Instant::now() < end {
        for _ in 0..100 {
            let mut envelope = envelope::read(body.clone())?.envelope;
            item_limits::check(&envelope, |_| None)?;
            envelope.received = Some(Received { body: body.clone(), content_encoding: None, changed: false });
            let encoded = encoder.forward(&envelope, &dsn, Compression::None);
            count += encoded.messages.len() as u64;
        }
    }
    Ok(count as f64 * body.len() as f64 / start.elapsed().as_secs_f64())
}

/// A proxy in front of the sink.
struct Proxy {
    process: Running,
    address: SocketAddr,
}

fn profbridge(binary: &Path, folder: &Path, sink: SocketAddr) -> Result<Proxy, Error> {
    let config = folder.join("profbridge.yaml");
    fs::write(
        &config,
        format!(
            "receivers: {{sentry: {{endpoint: '127.0.0.1:0'}}}}\n\
             exporters: {{sentry: {{upstream: 'http://{sink}'}}}}\n\
             service: {{telemetry: {{metrics: {{address: '127.0.0.1:0'}}, health: {{address: '127.0.0.1:0'}}}}, \
             pipelines: {{forward: {{receivers: [sentry], exporters: [sentry]}}}}}}\n"
        ),
    )?;
    let mut command = children::pinned(TARGET_CORE, binary.canonicalize()?);
    command.args(["run", "--config"]).arg(&config).current_dir(folder);
    let mut process = children::start(command)?;
    let address = process.address("sentry/http")?;
    Ok(Proxy { process, address })
}

fn nginx(binary: &Path, folder: &Path, sink: SocketAddr) -> Result<Proxy, Error> {
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let config = folder.join("nginx.conf");
    fs::write(
        &config,
        format!(
            "daemon off; master_process off; worker_processes 1; pid {0}/nginx.pid; error_log stderr crit;\n\
             events {{ worker_connections 512; }}\n\
             http {{ access_log off; client_body_buffer_size 256k; client_max_body_size 200m;\n\
             client_body_temp_path {0}/body; proxy_temp_path {0}/proxy; fastcgi_temp_path {0}/f; uwsgi_temp_path {0}/u;\n\
             scgi_temp_path {0}/s; keepalive_requests 100000000;\n\
             upstream sink {{ server {sink}; keepalive 16; keepalive_requests 100000000; }}\n\
             server {{ listen {address}; location / {{ proxy_pass http://sink; proxy_http_version 1.1;\n\
             proxy_set_header Connection \"\"; }} }} }}\n",
            folder.display()
        ),
    )?;
    let mut command = children::pinned(TARGET_CORE, binary);
    command.arg("-c").arg(&config).arg("-p").arg(folder);
    let mut process = children::start(command)?;
    let end = Instant::now() + Duration::from_secs(10);
    while TcpStream::connect(address).is_err() {
        if Instant::now() > end || !process.runs() {
            return Err(format!("nginx does not start: {}", process.said().join("\n")).into());
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(Proxy { process, address })
}

/// Sends the same request over one connection until told to stop. Returns how many were answered with 200.
fn send(address: SocketAddr, request: &[u8], stop: &AtomicBool) -> std::io::Result<u64> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let (mut buffer, mut filled, mut answered) = (vec![0; 16 << 10], 0, 0);
    while !stop.load(Ordering::Relaxed) {
        stream.write_all(request)?;
        loop {
            if let Some(length) = complete(&buffer[..filled]) {
                answered += u64::from(buffer.starts_with(b"HTTP/1.1 200"));
                buffer.copy_within(length..filled, 0);
                filled -= length;
                break;
            }
            match stream.read(&mut buffer[filled..])? {
                0 => return Ok(answered),
                more => filled += more,
            }
        }
    }
    Ok(answered)
}

/// The length of the answer at the start, where all of it is there.
fn complete(bytes: &[u8]) -> Option<usize> {
    let head = bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&bytes[..head]).ok()?.to_ascii_lowercase();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    // A body in chunks ends in an empty one.
    match length {
        Some(length) => (bytes.len() >= head + length).then_some(head + length),
        None => bytes[head..].windows(5).position(|five| five == b"0\r\n\r\n").map(|at| head + at + 5),
    }
}

/// One block: the CPU time of the proxy for each envelope, in nanoseconds.
fn block(options: &Options, proxy: &Proxy, request: &Arc<[u8]>) -> Result<f64, Error> {
    let stop = Arc::new(AtomicBool::new(false));
    let before = procfs::cpu(proxy.process.pid())?;
    let threads = (0..options.connections).map(|_| {
        let (address, request, stop) = (proxy.address, Arc::clone(request), Arc::clone(&stop));
        thread::spawn(move || send(address, &request, &stop))
    });
    let threads: Vec<_> = threads.collect();
    thread::sleep(Duration::from_secs_f64(options.seconds));
    stop.store(true, Ordering::Relaxed);
    let mut answered = 0;
    for thread in threads {
        answered += thread.join().map_err(|_| "a sender failed")??;
    }
    let after = procfs::cpu(proxy.process.pid())?;
    if answered == 0 {
        return Err("no envelope was taken".into());
    }
    Ok((after - before).as_nanos() as f64 / answered as f64)
}

/// Measures, and reports.
///
/// # Errors
/// A process does not start, or does not do what it should.
pub fn run(options: &Options) -> Result<(), Error> {
    let mut report = Report::new("forward");
    for size in [options.size, 1 << 20] {
        let name = format!("{size} bytes, read, checked and made a request, in process");
        report.figure(name, in_process(size)? / 1e9, "GB/s", Some(Goal::AtLeast(1.0)));
    }
    let folder = tempfile::tempdir()?;
    // The senders and the sink share the core that is not measured.
    let sink = Sink::start(&["--blind"])?;
    let ours = profbridge(&options.binary, folder.path(), sink.address)?;
    let theirs = nginx(&options.nginx, folder.path(), sink.address)?;
    let body = error_envelope(options.size);
    let head = format!(
        "POST /api/42/envelope/ HTTP/1.1\r\nHost: h\r\nX-Sentry-Auth: Sentry sentry_key={KEY}, sentry_version=7, \
         sentry_client=bench/1\r\nContent-Type: application/x-sentry-envelope\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let request: Arc<[u8]> = [head.as_bytes(), &body].concat().into();
    let before = sink.stats()?.requests;
    let outcome = pairs::measure(
        options.pairs,
        calibrator::on_target_core,
        || block(options, &ours, &request),
        || block(options, &theirs, &request),
    )?;
    let name = format!("envelopes of {} bytes", options.size);
    report.figure(format!("{name}: profbridge"), outcome.a / 1e3, "us/envelope", Some(Goal::AtMost(50.0)));
    report.figure(format!("{name}: nginx"), outcome.b / 1e3, "us/envelope", None);
    report.figure(format!("{name}: profbridge by nginx"), outcome.a / outcome.b, "x", Some(Goal::AtMost(3.0)));
    report.detail("pairs", &outcome);
    let arrived = sink.settle(Duration::from_secs(1), Duration::from_secs(60))?.requests - before;
    report.figure("envelopes that arrived", arrived as f64, "envelopes", None);
    report.finish(options.json.as_deref())
}
