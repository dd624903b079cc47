//! Caches the bytes of code around addresses, read from the process.
//!
//! Only code without call frame information is read. Each read is a system call, so the bytes are cached: by object for
//! files, by address space for code compiled at run time. The latter may change after it was read. An outdated entry
//! can make a word look like a return address that follows a call, but the frame pointer that led to that word is
//! checked independently.

use super::cache::Cache;
use super::code::{CALL_LENGTH, LOOK_AHEAD};
use crate::address_space::{AddressSpace, Module};

/// The code around an address. Bytes that could not be read are 0; no instruction that is looked for begins with 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct CodeWindow {
    pub(super) before: [u8; CALL_LENGTH],
    pub(super) after: [u8; LOOK_AHEAD],
}

#[derive(Debug, Default)]
pub(super) struct CodeCache(Cache<2, CodeWindow, 2048>);

impl CodeCache {
    /// Returns the code around `address`, which lies in `module` or at its end. `budget` counts the reads that are
    /// still allowed; `None` once they are used up, or if nothing can be read.
    pub(super) fn window(
        &mut self,
        space: &AddressSpace,
        module: &Module,
        address: u64,
        budget: &mut u32,
    ) -> Option<CodeWindow> {
        let (owner, key) = match &module.object {
            Some(object) => (object.id(), address.wrapping_sub(module.bias)),
            None => (space.id(), address),
        };
        let find = || {
            *budget = budget.checked_sub(1)?;
            read_window(space, module, address)
        };
        self.0.try_get([owner, key], find).copied()
    }
}

fn read_window(space: &AddressSpace, module: &Module, address: u64) -> Option<CodeWindow> {
    let mut window = CodeWindow::default();
    let behind = address.saturating_sub(module.start).min(CALL_LENGTH as u64);
    let ahead = module.end.saturating_sub(address).min(LOOK_AHEAD as u64);
    let mut bytes = [0; CALL_LENGTH + LOOK_AHEAD];
    let length = (behind + ahead) as usize;
    let count = space.read_code(address - behind, &mut bytes[..length]).min(length);
    let behind = behind as usize;
    if count < behind.max(1) {
        return None;
    }
    window.before[CALL_LENGTH - behind..].copy_from_slice(&bytes[..behind]);
    window.after[..count - behind].copy_from_slice(&bytes[behind..count]);
    Some(window)
}
