//! Decides which processes each scan of `/proc` examines.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::DirEntryExt;

/// The numbers of scans after which a process of no target is examined again: soon after it appeared, since it may be
/// about to execute a program that a target selects; later every 16th scan.
const AGAIN: [u32; 5] = [1, 1, 2, 4, 8];

/// An old process is examined in one of this many scans.
const OLD: u32 = 16;

/// Remembers which processes were examined.
#[derive(Debug, Default)]
pub(crate) struct Scanner {
    seen: HashMap<u32, KnownProcess>,
    scans: u64,
}

#[derive(Debug, Clone, Copy)]
struct KnownProcess {
    /// The inode of `/proc/PID`. Every process gets a different one, so a new process with a reused id is noticed
    /// without opening a file. If the inode of an old process changes, it is examined once more than necessary.
    inode: u64,
    looks: usize,
    due: u64,
    scan: u64,
}

impl Scanner {
    /// Lists `/proc`, and returns the ids of the processes to be examined now.
    ///
    /// # Errors
    ///
    /// The error of the system call.
    pub(crate) fn scan(&mut self) -> io::Result<Vec<u32>> {
        let mut present = Vec::new();
        for entry in fs::read_dir("/proc")? {
            let entry = entry?;
            if let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) {
                present.push((pid, entry.ino()));
            }
        }
        Ok(self.due(&present))
    }

    /// Makes the next scan examine a process as if it were new.
    pub(crate) fn forget(&mut self, pid: u32) {
        self.seen.remove(&pid);
    }

    /// Makes the next scan examine all processes.
    pub(crate) fn forget_all(&mut self) {
        self.seen.clear();
    }

    fn due(&mut self, present: &[(u32, u64)]) -> Vec<u32> {
        self.scans += 1;
        let now = self.scans;
        let mut due = Vec::new();
        for (pid, inode) in present {
            let fresh = KnownProcess { inode: *inode, looks: 0, due: now, scan: now };
            let seen = self.seen.entry(*pid).or_insert(fresh);
            if seen.inode != *inode {
                *seen = fresh;
            }
            seen.scan = now;
            if seen.due <= now {
                let pause = AGAIN.get(seen.looks).copied().unwrap_or(OLD);
                seen.looks += 1;
                seen.due = now + u64::from(pause);
                due.push(*pid);
            }
        }
        self.seen.retain(|_, seen| seen.scan == now);
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: a new process is examined at once and soon again, an old process is examined rarely, and a process
    /// with a reused id counts as new.
    #[test]
    fn new_ones_often_old_ones_rarely() {
        let mut scanner = Scanner::default();
        let looks: Vec<usize> = (0..64).map(|_| scanner.due(&[(7, 1)]).len()).collect();
        assert_eq!(looks[..5], [1, 1, 1, 0, 1]);
        assert_eq!(looks.iter().sum::<usize>(), 6 + (63 - 16) / 16);
        assert_eq!(scanner.due(&[(7, 2)]), [7]);
        assert_eq!(scanner.due(&[]), [0; 0]);
        assert!(scanner.seen.is_empty());
        assert_eq!(scanner.due(&[(7, 2)]), [7]);
        scanner.forget(7);
        assert_eq!(scanner.due(&[(7, 2)]), [7]);
    }

    /// Guarantees: the first scan finds every process, this one included.
    #[test]
    fn finds_this_process() {
        assert!(Scanner::default().scan().unwrap().contains(&std::process::id()));
    }
}
