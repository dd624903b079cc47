//! Makes the C library return freed memory to the system.
//!
//! By default glibc returns memory late. Freed memory between blocks in use is kept, and so is the memory in arenas of
//! idle threads. After a large block was freed, blocks of that size are no longer mapped one by one, so up to 64 MiB of
//! each arena are never returned. After a burst this may amount to hundreds of megabytes, which the service beside
//! profbridge cannot use. No safe library wraps the necessary calls, so this crate contains only them. It knows the C
//! library and nothing of profbridge.

/// Blocks of at least this size in bytes are mapped one by one and returned to the system when they are freed. Buffers
/// of large requests are larger than this; smaller buffers are reused.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const LARGE: i32 = 512 << 10;

/// The maximum number of arenas. Each arena keeps part of its freed memory; few threads allocate at the same time.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const ARENAS: i32 = 2;

/// Makes glibc return large blocks to the system as soon as they are freed; does nothing with other C libraries. Call
/// it before there are threads. Does nothing if the user configured glibc's allocator with `GLIBC_TUNABLES` or
/// `MALLOC_*`.
pub fn configure_allocator() {
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
            // SAFETY: mallopt takes two integers and locks the allocator (mallopt(3): MT-Unsafe only for allocations at
            // the same time, and there are none before there are threads). It refuses an unknown parameter.
            #[allow(unsafe_code, reason = "no library wraps mallopt")]
            unsafe {
                libc::mallopt(parameter, value);
            }
        }
    }
}

/// Returns freed memory to the system if the C library can do so on request (glibc); otherwise does nothing.
///
/// Scans the whole heap, which takes milliseconds if the heap is large, and later allocations have to request memory
/// from the system again. Call it after large work, not after each request.
pub fn return_free_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // SAFETY: malloc_trim has no preconditions, and locks the arenas that it scans (malloc_trim(3): MT-Safe). It
        // returns only memory without allocated blocks, and its result is ignored.
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

    /// Serializes the tests, because both measure the memory of the whole process.
    static ALONE: Mutex<()> = Mutex::new(());

    /// The resident anonymous memory of this process, in bytes.
    fn anonymous() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        line.trim().trim_end_matches("kB").trim().parse::<usize>().unwrap() << 10
    }

    /// Guarantees: freed memory between blocks in use is returned to the system.
    #[test]
    fn freed_memory_goes_back() {
        const SIZE: usize = 64 << 10;
        let _alone = ALONE.lock().unwrap();
        // The blocks are too small to be mapped one by one, and every second one stays allocated.
        let mut blocks: Vec<Option<Vec<u8>>> = (0..1000).map(|_| Some(vec![1; SIZE])).collect();
        blocks.iter_mut().step_by(2).for_each(|block| *block = None);
        let before = anonymous();
        super::return_free_memory();
        let after = anonymous();
        assert!(before - after >= 400 * SIZE, "{before} {after}");
        assert_eq!(blocks.iter().flatten().count(), 500);
    }

    /// Guarantees: after `configure_allocator`, large blocks that threads free are returned to the system at once, also
    /// those allocated after a larger one was freed.
    #[test]
    fn large_blocks_go_back_at_once() {
        const SIZE: usize = 24 << 20;
        let _alone = ALONE.lock().unwrap();
        super::configure_allocator();
        super::return_free_memory();
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
