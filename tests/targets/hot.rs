//! A program with one hot function: `hot SECONDS` ends after so many seconds, and not before it was looked at often enough. One
//! more thread waits.

use std::time::{Duration, Instant};

/// Each step needs the result of the one before it, so that where the loop lies in memory makes no difference.
macro_rules! burn {
    ($steps:expr) => {{
        let mut x = std::hint::black_box(1u64);
        for _ in 0..$steps {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        }
        std::hint::black_box(x)
    }};
}

mod crunch {
    /// Nine tenths of the time.
    #[inline(never)]
    pub fn hot_function(steps: u64) -> u64 {
        burn!(9 * steps)
    }

    /// One tenth.
    #[inline(never)]
    pub fn cold_function(steps: u64) -> u64 {
        burn!(steps)
    }
}

/// How often it is looked at before it ends.
const LOOKS: u64 = 50;

/// How often this thread was stopped to be looked at: it computes, so it gives its processor up by itself in no other way
/// (proc(5), `voluntary_ctxt_switches`).
fn looks() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
    count.trim().parse().unwrap()
}

fn main() {
    let seconds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1);
    std::thread::Builder::new().name("waiter".to_owned()).spawn(|| std::thread::park()).unwrap();
    let end = Instant::now() + Duration::from_secs(seconds);
    // Without anybody who looks it ends all the same.
    let at_last = end + Duration::from_secs(120);
    println!("started");
    let mut sum = 0u64;
    let first = looks();
    while Instant::now() < end || looks() < first + LOOKS && Instant::now() < at_last {
        sum = sum.wrapping_add(crunch::hot_function(1_000_000)).wrapping_add(crunch::cold_function(1_000_000));
    }
    println!("{sum}");
}
