//! The memory that the real binary takes in its hard moments, beside the limit that was configured.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use profbridge_bench::RequestBuilder;

use crate::backend::sentry::Sentry;
use crate::client::export;
use crate::process::{Profbridge, eventually};

/// `service.limits.memory`, and what may be resident beyond it and what the idle program has, in bytes.
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

/// What a process has had resident at most, in bytes; `None` where it has ended.
fn peak(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()? << 10)
}

/// Guarantees: thousands of open windows with a dictionary in common, behind a limit that is too small for them, are
/// put out without a loss, and neither that nor the end takes more memory than the limit and 32 MiB beside what the
/// idle program has.
#[test]
fn a_small_limit_holds() {
    let sentry = Sentry::start();
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
        // While memory is short senders are told to come later.
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
