//! Measures the peak memory under stress, relative to the configured limit. The loads of profiles: a shutdown with
//! thousands of open windows; the same with a limit that is too small for them; a request of a few hundred kilobytes
//! that names hundreds of thousands of processes; several such requests at the same time; many requests that decompress
//! to zeros. The loads of traces: a million spans, and a hundred thousand traces, in one request.

mod spans;

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::PathBuf,
    process::Command,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use clap::Args;
use flate2::{Compression, write::GzEncoder};
use prost::Message;

use profbridge_testkit::RequestBuilder;

use crate::end_to_end::target::BenchTarget;
use crate::end_to_end::{self, Sink};
use crate::process::Setting;
use crate::report::{Goal, Report};
use crate::traces::{self, SpanOutput};
use crate::{Error, machine};

/// What to measure.
#[derive(Args, Clone, Debug)]
pub(crate) struct MemoryBoundsOptions {
    /// The binary of profbridge
    #[arg(long, default_value = "target/dist/profbridge")]
    binary: PathBuf,
    /// The limits, `service.limits.memory`, in MiB
    #[arg(long, value_delimiter = ',', default_values_t = [24, 96, 256])]
    limits: Vec<u64>,
    /// The number of processes of the flush, each with 40 samples
    #[arg(long, default_value_t = 9000)]
    processes: i64,
    /// The number of processes in the hostile request
    #[arg(long, default_value_t = 300_000)]
    hostile: i64,
    /// The number of processes in each of the eight hostile requests that are sent at the same time
    #[arg(long, default_value_t = 25_000)]
    together: i64,
    /// Measure a pipeline of traces instead, whose spans go here
    #[arg(long, num_args = 0..=1, default_missing_value = "otlp")]
    spans: Option<SpanOutput>,
    /// Write the figures as JSON
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Spans of one trace in one request.
const MOST_SPANS: u64 = 1_000_000;

/// Traces in one request.
const MOST_TRACES: u64 = 100_000;

/// The path for profiles.
const PROFILES: &str = "/v1development/profiles";

/// How far resident memory may exceed the limit, in bytes: for the program itself, a batch in progress, and the
/// allocator's reserve.
const BEYOND: u64 = 32 << 20;

/// Samples per process.
const SAMPLES: u64 = 40;

/// Processes per request.
const TOGETHER: i64 = 250;

/// The number of functions in all processes, and of frames per stack.
const FUNCTIONS: u64 = 4000;
const DEPTH: u64 = 30;

/// How long a sender waits after a temporary refusal.
const LATER: Duration = Duration::from_millis(200);

/// The maximum duration of a request, or of the process's shutdown.
const PATIENCE: Duration = Duration::from_secs(600);

/// How long the process must be idle before its resident memory is measured.
const REST: Duration = Duration::from_secs(3);

/// The number of concurrent requests of zeros, and the decompressed size of each.
const ZEROS: (usize, usize) = (32, 30 << 20);

/// The requests of one measurement, and how they are sent.
struct MemoryLoad {
    name: &'static str,
    /// The path in the URL.
    path: &'static str,
    requests: Vec<Vec<u8>>,
    gzipped: bool,
    /// The number of requests that are sent concurrently.
    at_once: usize,
    dedup_window: &'static str,
}

impl Default for MemoryLoad {
    fn default() -> Self {
        Self { name: "", path: PROFILES, requests: Vec::new(), gzipped: true, at_once: 1, dedup_window: "0s" }
    }
}

/// The results of one run, in bytes.
#[derive(Clone, Copy, Debug)]
struct MemoryFigures {
    peak: u64,
    /// Resident memory after all requests were processed.
    at_rest: u64,
    /// The observations or spans that the process reported as dropped.
    dropped: u64,
    /// The number of accepted requests. The others were refused permanently.
    taken: usize,
}

/// Measures and reports.
pub(crate) fn run(options: &MemoryBoundsOptions) -> Result<(), Error> {
    let mut report = Report::new("memory-bounds");
    let (loads, noun) = match options.spans {
        None => (of_profiles(options, &mut report)?, "observations"),
        Some(_) => (spans::loads(MOST_SPANS, MOST_TRACES)?, "spans"),
    };
    for &limit in &options.limits {
        let bound = Goal::AtMost(((limit << 20) + BEYOND) as f64 / 1e6);
        for load in &loads {
            let outcome = measured(options, limit, load)?;
            let name = format!("{limit} MiB, {}", load.name);
            report.figure(format!("{name}: peak (VmHWM)"), outcome.peak as f64 / 1e6, "MB", Some(bound));
            report.figure(format!("{name}: at rest before the end"), outcome.at_rest as f64 / 1e6, "MB", None);
            report.figure(format!("{name}: dropped"), outcome.dropped as f64, noun, Some(Goal::AtMost(0.0)));
            if options.spans.is_some() {
                let all = load.requests.len();
                report.figure(format!("{name}: taken of {all}"), outcome.taken as f64, "requests", None);
            }
        }
    }
    report.finish(options.json.as_deref())
}

fn of_profiles(options: &MemoryBoundsOptions, report: &mut Report) -> Result<Vec<MemoryLoad>, Error> {
    let now = u64::try_from(std::time::UNIX_EPOCH.elapsed()?.as_nanos())?;
    let requests: Vec<Vec<u8>> = (0..options.processes)
        .step_by(usize::try_from(TOGETHER)?)
        .map(|first| usual(first..(first + TOGETHER).min(options.processes), now))
        .collect();
    let hostile = gzip(&many_processes(options.hostile, "h", now))?;
    report.figure("hostile request, gzipped", hostile.len() as f64 / 1e6, "MB", None);
    let together: Result<Vec<Vec<u8>>, Error> =
        (0..8).map(|host| gzip(&many_processes(options.together, &format!("host-{host}"), now))).collect();
    let zeros = vec![gzip(&vec![0; ZEROS.1])?; ZEROS.0];
    let merged: Result<Vec<Vec<u8>>, Error> = requests.iter().map(|request| gzip(request)).collect();
    let merged = merged.map(|merged| [merged, zeros.clone()].concat());
    Ok(vec![
        // At the smallest limit, memory pressure flushes most windows before the shutdown.
        MemoryLoad { name: "flush and relief", requests, gzipped: false, ..MemoryLoad::default() },
        MemoryLoad { name: "hostile request", requests: vec![hostile], ..MemoryLoad::default() },
        MemoryLoad { name: "8 hostile requests at once", requests: together?, at_once: 8, ..MemoryLoad::default() },
        MemoryLoad { name: "32 requests of zeros at once", requests: zeros, at_once: ZEROS.0, ..MemoryLoad::default() },
        // Memory pressure flushes merged profiles while more requests arrive.
        MemoryLoad {
            name: "zeros beside a window of dedup",
            requests: merged?,
            at_once: ZEROS.0,
            dedup_window: "60s",
            ..MemoryLoad::default()
        },
    ])
}

/// Sends requests to a new process, stops it, and returns its results.
fn measured(options: &MemoryBoundsOptions, limit: u64, load: &MemoryLoad) -> Result<MemoryFigures, Error> {
    let folder = end_to_end::begin()?;
    let sink = Sink::start(true)?;
    let limits = format!("{{memory: {limit}MiB}}");
    let yaml = if let Some(to) = options.spans {
        traces::yaml("", (to, end_to_end::RequestCompression::None), "", &limits, sink.address)
    } else {
        let MemoryLoad { dedup_window, .. } = load;
        Setting { window: "60s", dedup_window, compression: "zstd", queue_mib: 64, limits: &limits }.yaml(sink.address)
    };
    let mut target = BenchTarget::profbridge(&options.binary, folder.path(), &yaml)?;
    let http = target.http.ok_or("profbridge does not say where it listens for HTTP")?;
    let (next, taken) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let send = || -> Result<(), String> {
        while let Some(request) = load.requests.get(next.fetch_add(1, Ordering::Relaxed)) {
            let is_taken = post(http, load.path, request, load.gzipped).map_err(|error| error.to_string())?;
            taken.fetch_add(usize::from(is_taken), Ordering::Relaxed);
        }
        Ok(())
    };
    thread::scope(|scope| {
        let senders: Vec<_> = (0..load.at_once).map(|_| scope.spawn(send)).collect();
        senders.into_iter().try_for_each(|sender| sender.join().map_err(|_| "a sender panicked".to_owned())?)
    })?;
    let pid = target.process.pid();
    thread::sleep(REST);
    let mut memory = machine::memory(pid)?;
    let at_rest = memory.resident;
    if !Command::new("kill").args(["-TERM", &pid.to_string()]).status()?.success() {
        return Err("the process could not be ended".into());
    }
    let begin = Instant::now();
    while target.process.runs() {
        // The process ended between the two queries, so the last value is used.
        memory = machine::memory(pid).unwrap_or(memory);
        if begin.elapsed() > PATIENCE {
            return Err("the process does not end".into());
        }
        thread::sleep(Duration::from_millis(1));
    }
    thread::sleep(Duration::from_millis(100));
    let dropped = target.process.printed_lines().iter().map(|line| dropped(line)).sum();
    Ok(MemoryFigures { peak: memory.peak, at_rest, dropped, taken: taken.into_inner() })
}

/// The observations that a line of the final report lists as dropped: `dropped 3 queue_full, 5 shutdown`.
fn dropped(line: &str) -> u64 {
    let totals = [" pipeline profiles: ", " pipeline traces: ", " exporter sentry: ", " exporter otlp: "];
    let is_total = totals.iter().any(|total| line.contains(total));
    let Some((_, losses)) = line.split_once("dropped ").filter(|_| is_total) else { return 0 };
    let loss = |part: &str| part.split_once(' ').filter(|(_, reason)| !reason.contains(' '))?.0.parse::<u64>().ok();
    losses.split(", ").map_while(loss).sum()
}

/// A request of typical processes: 40 samples each, whose stacks share functions.
fn usual(processes: std::ops::Range<i64>, now: u64) -> Vec<u8> {
    let names: Vec<String> =
        (0..FUNCTIONS).map(|n| format!("go!module_{}.subsystem.a_function_with_number_{n}", n % 50)).collect();
    let mut random = fastrand::Rng::with_seed(processes.start.unsigned_abs());
    let mut builder = RequestBuilder::new();
    for pid in processes {
        builder = builder.process("fleet", pid).on_cpu(20);
        for sample in 0..SAMPLES {
            // Each stack has its own leaf; its callers are those of one of a hundred threads.
            let thread = random.u64(0..100);
            let leaf = random.u64(0..FUNCTIONS);
            let stack: Vec<&str> = std::iter::once(leaf)
                .chain((1..DEPTH).map(|depth| (thread * 37 + depth * 101 + leaf % 7 * depth) % FUNCTIONS))
                .map(|at| names[at as usize].as_str())
                .collect();
            builder = builder.sample(&stack, 1, &[now + sample * 50_000_000 + pid.unsigned_abs()]);
        }
    }
    builder.build().encode_to_vec()
}

/// A request with as many processes, and as little data for each, as possible.
fn many_processes(processes: i64, host: &str, now: u64) -> Vec<u8> {
    let mut builder = RequestBuilder::new();
    for pid in 0..processes {
        builder = builder.resource().scope("", "").attr("host.id", host).attr("process.pid", pid);
        builder = builder.on_cpu(20).raw_sample(&["go!f"], &[], &[now]);
    }
    builder.build().encode_to_vec()
}

fn gzip(bytes: &[u8]) -> Result<Vec<u8>, Error> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}

/// Posts a request, and retries after a temporary refusal. Returns whether the request was accepted; a permanent
/// refusal is not an error.
fn post(address: SocketAddr, path: &str, body: &[u8], gzipped: bool) -> Result<bool, Error> {
    let encoding = if gzipped { "Content-Encoding: gzip\r\n" } else { "" };
    let begin = Instant::now();
    loop {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let length = body.len();
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
             Content-Type: application/x-protobuf\r\n{encoding}Content-Length: {length}\r\n\r\n"
        )?;
        // A server that refuses early closes the connection during the body; only its answer matters.
        stream.write_all(body).ok();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok();
        let answer = String::from_utf8_lossy(&answer).into_owned();
        match answer.split_whitespace().nth(1) {
            Some("200") => return Ok(true),
            Some("400" | "413") => return Ok(false),
            Some("503" | "429") | None if begin.elapsed() < PATIENCE => thread::sleep(LATER),
            _ => return Err(format!("a request was not taken: {}", answer.lines().next().unwrap_or_default()).into()),
        }
    }
}
