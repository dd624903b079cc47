//! Unwinds a process whose registers, stack, code and file with unwind tables are arbitrary bytes.
//!
//! The bytes are 17 registers, the mask of the known ones, the stack's length in words (one byte), the stack, and the
//! file. It is mapped twice: as a file, and as code compiled at run time.
//!
//! Guarantees: no panic; the stack ends within the limits; unwinding with and without cached data gives the same stack.
#![no_main]

use std::fs::File;
use std::io;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use profbridge_sampler::address_space::{AddressSpace, CodeMemory, FileId, MapsEntry, ProcessView};
use profbridge_sampler::elf::ObjectCache;
use profbridge_sampler::unwind::{MAX_FRAMES, Registers, StackCopy, Unwinder};

const FILE: u64 = 0x7f00_0000_0000;
const GENERATED: u64 = 0x7f10_0000_0000;
const STACK: u64 = 0x7fff_0000_0000;

#[derive(Debug)]
struct FuzzedProcess(Arc<FuzzedMemory>);

#[derive(Debug)]
struct FuzzedMemory(Vec<u8>);

impl CodeMemory for FuzzedMemory {
    fn read(&self, address: u64, bytes: &mut [u8]) -> usize {
        let offset = address.checked_sub(GENERATED).or_else(|| address.checked_sub(FILE));
        let rest = offset.and_then(|offset| self.0.get(usize::try_from(offset).ok()?..)).unwrap_or_default();
        let count = rest.len().min(bytes.len());
        bytes[..count].copy_from_slice(&rest[..count]);
        count
    }
}

impl ProcessView for FuzzedProcess {
    fn maps(&self) -> io::Result<Vec<u8>> {
        let length = (self.0.0.len() as u64).next_multiple_of(4096).max(4096);
        let (end, other) = (FILE + length, GENERATED + length);
        Ok(format!("{FILE:x}-{end:x} r-xp 00000000 fe:01 7 /file\n{GENERATED:x}-{other:x} rwxp 00000000 00:00 0\n")
            .into())
    }

    fn executable(&self) -> Option<FileId> {
        None
    }

    fn open(&self, _: &MapsEntry) -> io::Result<File> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn memory(&self) -> io::Result<Arc<dyn CodeMemory>> {
        Ok(Arc::clone(&self.0) as Arc<dyn CodeMemory>)
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((head, rest)) = data.split_at_checked(17 * 8 + 5) else { return };
    let mut registers = Registers::default();
    for (register, value) in (0u8..17).zip(head.chunks_exact(8)) {
        registers.set(register, place(value));
    }
    registers.known &= u32::from_le_bytes(head[136..140].try_into().expect("four bytes"));
    let Some((stack, file)) = rest.split_at_checked(8 * usize::from(head[140])) else { return };
    let bytes = stack.chunks_exact(8).flat_map(|word| place(word).to_le_bytes()).collect();
    let mut stack = StackCopy { start: STACK, bytes, ..StackCopy::default() };

    let process = FuzzedProcess(Arc::new(FuzzedMemory(file.to_vec())));
    let mut cache = ObjectCache::default();
    let Ok(space) = AddressSpace::load(&process, None, &mut cache) else { return };
    let mut unwinder = Unwinder::new();
    let (mut first, mut again) = (Vec::new(), Vec::new());
    let outcome = unwinder.unwind(&space, &registers, &mut stack, &mut first);
    assert!((1..=MAX_FRAMES).contains(&first.len()));
    assert_eq!(outcome, unwinder.unwind(&space, &registers, &mut stack, &mut again));
    assert_eq!(first, again);
});

/// A word of the input; its last byte may turn it into an address in the file, the generated code or the stack.
fn place(word: &[u8]) -> u64 {
    let value = u64::from_le_bytes(word.try_into().expect("eight bytes"));
    match value >> 56 {
        1 => FILE + (value & 0xffff),
        2 => GENERATED + (value & 0xffff),
        3 => STACK + (value & 0xff8),
        _ => value,
    }
}
