//! A program with one hot function: `hot SECONDS` ends after so many seconds, at the latest. One more thread waits.

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

fn main() {
    let seconds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1);
    std::thread::Builder::new().name("waiter".to_owned()).spawn(|| std::thread::park()).unwrap();
    let end = Instant::now() + Duration::from_secs(seconds);
    println!("started");
    let mut sum = 0u64;
    while Instant::now() < end {
        sum = sum.wrapping_add(crunch::hot_function(1_000_000)).wrapping_add(crunch::cold_function(1_000_000));
    }
    println!("{sum}");
}
