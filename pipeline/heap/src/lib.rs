//! How the C library keeps memory: little of what is freed.
//!
//! glibc gives memory back late. What is freed between blocks that are still in use stays, and so does what threads
//! with nothing to do have in arenas of their own; and once a large block was freed, blocks of that size are no longer
//! asked of the system one by one, so that up to 64 MiB of each arena stay for good. After a burst that may be hundreds
//! of megabytes, which the service beside profbridge cannot use. No safe library wraps these calls, so they have a
//! crate of their own, with nothing else in it: it knows the C library, and nothing of profbridge.

/// Blocks from this size on are taken from the system one by one and given back at once when they are freed, in bytes.
/// Buffers of large requests are above it; those of usual ones are reused.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const LARGE: i32 = 512 << 10;

/// The most arenas. Each keeps some of what was freed in it; few threads allocate at the same time.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const ARENAS: i32 = 2;

/// Makes the C library (glibc) give large blocks back as soon as they are freed; does nothing elsewhere. To be called
/// before there are threads. Who set up glibc's allocator with `GLIBC_TUNABLES` or `MALLOC_*` is left alone.
pub fn keep_little() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        let is_set = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            let name = name.as_encoded_bytes();
            name.starts_with(b"MALLOC_")
                || (name == b"GLIBC_TUNABLES" && value.to_string_lossy().contains("glibc.malloc."))
        };
        if std::env::vars_os().any(is_set) {
            return;
        }
        for (parameter, value) in
            [(libc::M_MMAP_THRESHOLD, LARGE), (libc::M_TRIM_THRESHOLD, LARGE), (libc::M_ARENA_MAX, ARENAS)]
        {
            // SAFETY: mallopt takes two integers and the lock of the allocator (mallopt(3): MT-Unsafe only in what it
            // means for allocations at the same time, of which there are none before there are threads). An unknown
            // parameter is refused.
            #[allow(unsafe_code, reason = "no library wraps mallopt")]
            unsafe {
                libc::mallopt(parameter, value);
            }
        }
    }
}

/// Gives freed memory back to the system, where the C library can do that on request (glibc); does nothing elsewhere.
///
/// Looks through all of the heap, so it takes milliseconds where that is large, and what is taken afterwards has to be
/// asked of the system again. For the end of large work, not for each request.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // SAFETY: malloc_trim has no preconditions, and takes the locks of the arenas that it looks through
        // (malloc_trim(3): MT-Safe). It returns memory that no block lies in, and nothing is done with the result.
        #[allow(unsafe_code, reason = "no library wraps malloc_trim")]
        unsafe {
            libc::malloc_trim(0);
        }
    }
}

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
#[allow(clippy::unwrap_used, reason = "helpers of tests may fail like tests")]
mod tests {
    use std::sync::Mutex;

    /// Both tests look at the memory of the whole process.
    static ALONE: Mutex<()> = Mutex::new(());

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
        let _alone = ALONE.lock().unwrap();
        // Smaller than what glibc maps for itself, and each second one stays.
        let mut blocks: Vec<Option<Vec<u8>>> = (0..1000).map(|_| Some(vec![1; SIZE])).collect();
        blocks.iter_mut().step_by(2).for_each(|block| *block = None);
        let before = anonymous();
        super::give_back();
        let after = anonymous();
        assert!(before - after >= 400 * SIZE, "{before} {after}");
        assert_eq!(blocks.iter().flatten().count(), 500);
    }

    /// Guarantees: once that is asked for, large blocks that threads free go back to the system at once, also those
    /// that come after a larger one was freed.
    #[test]
    fn large_blocks_go_back_at_once() {
        const SIZE: usize = 24 << 20;
        let _alone = ALONE.lock().unwrap();
        super::keep_little();
        super::give_back();
        let before = anonymous();
        for _ in 0..4 {
            let thread = || {
                drop(vec![1_u8; SIZE]);
                drop((0..SIZE / (512 << 10)).map(|_| vec![1_u8; 512 << 10]).collect::<Vec<_>>());
            };
            std::thread::spawn(thread).join().unwrap();
        }
        let after = anonymous();
        assert!(after.saturating_sub(before) < SIZE, "{before} {after}");
    }
}
