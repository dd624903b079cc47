//! Capabilities of the calling thread.

use std::io;

use nix::errno::Errno;

/// `CAP_SYS_PTRACE`: trace processes of others (`capability.h` of Linux).
pub(crate) const SYS_PTRACE: u32 = 19;

/// `CAP_SYS_ADMIN`: permits among much else what [`PERFMON`] permits, which did not exist on older kernels.
pub(crate) const SYS_ADMIN: u32 = 21;

/// `CAP_PERFMON`: see what the whole machine does.
pub(crate) const PERFMON: u32 = 38;

/// `_LINUX_CAPABILITY_VERSION_3`: 64 capabilities in two words.
const VERSION: u32 = 0x2008_0522;

#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Data {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

fn get() -> io::Result<[Data; 2]> {
    let mut header = Header { version: VERSION, pid: 0 };
    let mut data = [Data::default(); 2];
    #[allow(unsafe_code, reason = "no library that is in use wraps capget")]
    // SAFETY: both structures have the kernel's layout for this version, and live during the call.
    let result = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, data.as_mut_ptr()) };
    Errno::result(result)?;
    Ok(data)
}

/// Whether the calling thread has the capability in effect. `false` where the kernel does not say.
pub(crate) fn has(capability: u32) -> bool {
    let word = (capability / 32) as usize;
    get().ok().and_then(|data| data.get(word).copied()).is_some_and(|data| data.effective >> (capability % 32) & 1 == 1)
}

/// Takes a capability from the calling thread: from all sets, so that it cannot be taken back.
pub(crate) fn give_up(capability: u32) -> io::Result<()> {
    let mut data = get()?;
    let mask = !(1u32 << (capability % 32));
    if let Some(word) = data.get_mut((capability / 32) as usize) {
        word.effective &= mask;
        word.permitted &= mask;
        word.inheritable &= mask;
    }
    let mut header = Header { version: VERSION, pid: 0 };
    #[allow(unsafe_code, reason = "no library that is in use wraps capset")]
    // SAFETY: both structures have the kernel's layout for this version, and live during the call.
    let result = unsafe { libc::syscall(libc::SYS_capset, &raw mut header, data.as_ptr()) };
    Errno::result(result)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: a capability that was given up is gone from the thread, and from no other.
    #[test]
    fn gone_from_the_thread_only() {
        let before = has(SYS_PTRACE);
        std::thread::spawn(|| {
            give_up(SYS_PTRACE).unwrap();
            assert!(!has(SYS_PTRACE));
            let data = get().unwrap();
            assert_eq!(data[0].permitted >> SYS_PTRACE & 1, 0);
        })
        .join()
        .unwrap();
        assert_eq!(has(SYS_PTRACE), before);
    }
}
