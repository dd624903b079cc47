//! Gives memory that was freed back to the system.
//!
//! glibc keeps what is freed between blocks that are still in use, and in the arenas of threads that have nothing to do,
//! until somebody asks for it. After a burst that may be hundreds of megabytes, which the service beside profbridge
//! cannot use. No safe library wraps the call, so it has a crate of its own, with nothing else in it.

/// Gives freed memory back to the system, where the C library can do that on request (glibc); does nothing elsewhere.
///
/// Looks through all of the heap, so it takes milliseconds where that is large, and what is taken afterwards has to be
/// asked of the system again. For the end of large work, not for each request.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // SAFETY: malloc_trim has no preconditions, and takes the locks of the arenas that it looks through (malloc_trim(3):
        // MT-Safe). It returns memory that no block lies in, and nothing is done with the result.
        #[allow(unsafe_code, reason = "no library wraps malloc_trim")]
        unsafe {
            libc::malloc_trim(0);
        }
    }
}

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
#[allow(clippy::unwrap_used, reason = "helpers of tests may fail like tests")]
mod tests {
    /// The anonymous memory of this process that is resident, in bytes.
    fn anonymous() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        line.trim().trim_end_matches("kB").trim().parse::<usize>().unwrap() << 10
    }

    /// Guarantees: memory that was freed between blocks in use goes back to the system.
    #[test]
    fn freed_memory_goes_back() {
        const SIZE: usize = 64 << 10;
        // Smaller than what glibc maps for itself, and each second one stays.
        let mut blocks: Vec<Option<Vec<u8>>> = (0..1000).map(|_| Some(vec![1; SIZE])).collect();
        blocks.iter_mut().step_by(2).for_each(|block| *block = None);
        let before = anonymous();
        super::give_back();
        let after = anonymous();
        assert!(before - after >= 400 * SIZE, "{before} {after}");
        assert_eq!(blocks.iter().flatten().count(), 500);
    }
}
