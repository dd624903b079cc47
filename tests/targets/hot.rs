//! A program with one hot function: `hot SECONDS` waits for a line or the end of its standard input, and ends after
//! this many seconds of processor time. A second thread waits.

/// Each step depends on the one before, so that the loop's alignment in memory does not matter.
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

/// The processor time that this thread used, in nanoseconds (Documentation/scheduler/sched-stats.rst).
fn used() -> u64 {
    let counters = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    counters.split_whitespace().next().unwrap().parse().unwrap()
}

fn main() {
    let seconds: u64 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1);
    std::thread::Builder::new().name("waiter".to_owned()).spawn(|| std::thread::park()).unwrap();
    println!("started");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let mut sum = 0u64;
    let end = used() + seconds * 1_000_000_000;
    while used() < end {
        sum = sum.wrapping_add(crunch::hot_function(1_000_000)).wrapping_add(crunch::cold_function(1_000_000));
    }
    println!("{sum}");
}
