//! Cached byte code, with its position tables.

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::code::MAX_TABLE;
use super::heap::{Heap, number};
use crate::runtime::target::word_at;

/// Limits of the cached byte code: number of objects, bytes of all together, and bytes of one.
const MAX_KNOWN: usize = 8192;
const MAX_TEXT: usize = 32 << 20;
const MAX_LENGTH: usize = 1 << 20;

/// Cached byte code of one function.
#[derive(Debug)]
pub(super) struct Bytecode {
    /// The words compared to see whether the object is still the same: map, length and source position table.
    fingerprint: [u64; 3],
    pub(super) positions: Vec<u8>,
    /// The instructions, which are needed for code compiled by Sparkplug.
    pub(super) code: Vec<u8>,
}

/// The byte code of a process.
#[derive(Debug, Default)]
pub(super) struct Bytecodes {
    known: HashMap<u64, Bytecode, RandomState>,
    text: usize,
}

impl Bytecodes {
    /// Returns the byte code at an address, and reads it if it is new or has changed.
    pub(super) fn look_up(&mut self, address: u64, heap: &mut Heap<'_, '_>) -> Option<&Bytecode> {
        let layout = heap.layout;
        let mut bytes = [0; 48];
        if !heap.read(address, 0, &mut bytes) {
            return None;
        }
        let fingerprint = [word_at(&bytes, 0), word_at(&bytes, 8), word_at(&bytes, layout.bytecode_positions as usize)];
        if heap.kind_of_map(fingerprint[0]) != Some(layout.types.bytecode) {
            return None;
        }
        if self.known.get(&address).is_none_or(|known| known.fingerprint != fingerprint) {
            let length = usize::try_from(number(fingerprint[1])?).ok().filter(|length| *length <= MAX_LENGTH)?;
            let mut code = vec![0; length];
            if !heap.read(address, layout.bytecode_start, &mut code) {
                return None;
            }
            let positions = heap.bytes(fingerprint[2], MAX_TABLE).unwrap_or_default();
            if self.known.len() >= MAX_KNOWN || self.text > MAX_TEXT {
                self.known.clear();
                self.text = 0;
            }
            self.text += code.len() + positions.len();
            let before = self.known.insert(address, Bytecode { fingerprint, positions, code });
            self.text -= before.map_or(0, |before| before.code.len() + before.positions.len());
        }
        self.known.get(&address)
    }
}
