//! The resource usage of the process itself, from `/proc/self` (proc(5)).

/// Clock ticks per second. Part of the kernel's ABI: 100 on every platform of Rust's tiers 1 and 2 (`USER_HZ`, linux
/// `include/asm-generic/param.h`).
const TICKS_PER_SECOND: f64 = 100.0;

/// The resource usage at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Usage {
    /// User and system time, in seconds.
    pub(super) cpu_seconds: f64,
    /// Resident memory, in bytes.
    pub(super) rss_bytes: u64,
}

impl Usage {
    /// Reads the usage; `None` if the system has no `/proc`.
    pub(super) fn read() -> Option<Self> {
        let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        Some(Self { cpu_seconds: cpu_seconds(&stat)?, rss_bytes: rss_bytes(&status)? })
    }
}

/// Fields 14 and 15 of `stat`. The second field is the command in parentheses and may contain anything.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some((user.checked_add(system)?) as f64 / TICKS_PER_SECOND)
}

fn rss_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: the fields are found after a command that contains parentheses and spaces.
    #[test]
    fn parses_proc() {
        let stat = "1 (a) b (c)) S 0 1 1 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 4 0 77 1000 200";
        assert_eq!(cpu_seconds(stat), Some(3.0));
        assert_eq!(rss_bytes("Name:\tx\nVmRSS:\t    9876 kB\n"), Some(9876 * 1024));
        assert_eq!((cpu_seconds("1 (a"), rss_bytes("VmRSS: 1")), (None, None));
    }
}
