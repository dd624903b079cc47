//! The memory use of the real binary under stress, compared with the configured limit.

use std::fs;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

use profbridge_testkit::RequestBuilder;

use crate::backend::sentry::{KEY, SentryBackend};
use crate::client::export;
use crate::process::{Profbridge, eventually};
use crate::sentry_envelopes::Sent;

/// `service.limits.memory`, and the resident bytes allowed beyond it and beyond the idle program.
const LIMIT: u64 = 24 << 20;
const BEYOND: u64 = 32 << 20;

const PROCESSES: i64 = 3000;
const SAMPLES: u64 = 20;

fn config(dsn: &str) -> String {
    format!(
        "receivers:
  otlp: {{protocols: {{grpc: {{endpoint: '127.0.0.1:0'}}}}}}
processors: {{chunk: }}
exporters:
  sentry: {{dsn: '{dsn}'}}
service:
  shutdown_timeout: 10m
  limits: {{memory: 24MiB}}
  pipelines:
    profiles: {{receivers: [otlp], processors: [chunk], exporters: [sentry]}}
"
    )
}

/// The peak resident memory of a process in bytes; `None` if it has ended.
fn peak(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()? << 10)
}

/// Guarantees: thousands of open windows with a common dictionary, and a limit too small for them, are flushed without
/// loss; at no time, including shutdown, is more memory used than the limit and 32 MiB beyond the idle program.
#[test]
fn a_small_limit_holds() {
    let sentry = SentryBackend::start();
    let profbridge = Profbridge::start(&config(&sentry.dsn(1)));
    let pid = profbridge.pid();
    let idle = peak(pid).unwrap();
    let names: Vec<String> = (0..2000).map(|n| format!("go!package.a_function_with_the_number_{n}")).collect();
    let now = u64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos()).unwrap();
    for first in (0..PROCESSES).step_by(100) {
        let mut builder = RequestBuilder::new();
        for pid in first..first + 100 {
            builder = builder.process("fleet", pid).on_cpu(20);
            for sample in 0..SAMPLES {
                let at = |depth: u64| (pid.unsigned_abs() * 131 + sample * 17 + depth * 101) % 2000;
                let stack: Vec<&str> = (0..20).map(|depth| names[at(depth) as usize].as_str()).collect();
                builder = builder.sample(&stack, 1, &[now + sample * 50_000_000]);
            }
        }
        let request = builder.build();
        // While memory is short, senders are asked to retry.
        eventually("the request is taken", || export(profbridge.address("otlp/grpc"), request.clone()).ok());
    }
    let ended = AtomicBool::new(false);
    let highest = std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut highest = 0;
            while !ended.load(Ordering::Relaxed) {
                highest = peak(pid).map_or(highest, |peak| peak.max(highest));
                std::thread::yield_now();
            }
            highest
        });
        let (exit, log) = profbridge.stop();
        ended.store(true, Ordering::Relaxed);
        assert!(exit.success(), "{log}");
        let observations = PROCESSES as u64 * SAMPLES;
        assert!(log.contains(&format!("pipeline profiles: {observations} in, {observations} out\n")), "{log}");
        assert!(!log.contains("dropped"), "{log}");
        watch.join().unwrap()
    });
    assert!(highest <= idle + LIMIT + BEYOND, "{} MiB, idle {} MiB", highest >> 20, idle >> 20);
}

/// Attack: an SDK's envelope with an attachment that compresses to a thousandth of its size, whose header has to be
/// changed.
/// Guarantees: it is rewritten without decompressing it as a whole: no more memory is used than the limit, which the
/// receiver needs to parse it, and 32 MiB beyond the idle program; all its other data arrives unchanged.
#[test]
fn changed_envelopes_stay_compressed() {
    const ATTACHMENT: usize = 64 << 20;
    const LIMIT: u64 = 80 << 20;
    let sentry = SentryBackend::start();
    let profbridge = Profbridge::start(&format!(
        "receivers: {{sentry: {{endpoint: '127.0.0.1:0'}}}}
processors: {{sample: {{traces_sample_rate: 0.5}}}}
exporters: {{sentry: {{upstream: '{}'}}}}
service:
  limits: {{memory: 80MiB}}
  pipelines: {{envelopes: {{receivers: [sentry], processors: [sample], exporters: [sentry]}}}}
",
        sentry.url()
    ));
    let idle = peak(profbridge.pid()).unwrap();
    let trace = "745e5a279d06439a81f3ebd9c4fdee8c";
    let header =
        format!("{{\"trace\":{{\"trace_id\":\"{trace}\",\"sample_rand\":\"0.1\"}}}}\n{{\"type\":\"transaction\"}}\n");
    let transaction = format!(
        "{{\"contexts\":{{\"trace\":{{\"trace_id\":\"{trace}\",\"span_id\":\"00000000000000ff\"}}}},\
         \"start_timestamp\":1790000000,\"timestamp\":1790000001}}\n"
    );
    let attachment = format!("{{\"type\":\"attachment\",\"length\":{ATTACHMENT}}}\n");
    let mut body = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    for part in [&header, &transaction, &attachment] {
        body.write_all(part.as_bytes()).unwrap();
    }
    for _ in 0..ATTACHMENT >> 20 {
        body.write_all(&[b'x'; 1 << 20]).unwrap();
    }
    let sent = Sent::plain(42, KEY, body.finish().unwrap()).with("Content-Encoding: gzip");
    assert_eq!(sent.to(profbridge.address("sentry/http")).status(), 200);
    let received = sentry.received.wait(1).remove(0);
    let highest = peak(profbridge.pid()).unwrap();
    assert_eq!(received.header["trace"]["sample_rate"], "0.5");
    assert_eq!(received.items_of("transaction"), [transaction.trim_end().as_bytes()]);
    let attachment = received.items_of("attachment").remove(0);
    assert!(attachment.len() == ATTACHMENT && attachment.iter().all(|byte| *byte == b'x'));
    assert!(highest <= idle + LIMIT + BEYOND, "{} MiB, idle {} MiB", highest >> 20, idle >> 20);
}
