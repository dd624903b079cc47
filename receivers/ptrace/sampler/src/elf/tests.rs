//! Attack files: hostile content that a target can put into a file, and the expected result.

use std::io::Write;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;

/// The offsets of the test file's parts, which are also their addresses.
const HDR: u64 = 0x400;
const EH_FRAME: u64 = 0x1000;
const TEXT: u64 = 0x8000;
const LENGTH: usize = 0x9000;

/// A made-up ELF file with one function, 0x100 bytes long, at [`TEXT`].
struct SyntheticElf(Vec<u8>);

impl SyntheticElf {
    fn new() -> Self {
        let mut made = Self(vec![0; LENGTH]);
        made.put(0, b"\x7fELF\x02\x01\x01");
        made.put(16, &[3, 0, 62, 0]);
        made.put_u64(24, TEXT);
        made.put_u64(32, 64);
        made.put(54, &[56, 0, 3, 0]);
        made.segment(0, [1, 4], 0, 0, 0x8000);
        made.segment(1, [1, 5], TEXT, TEXT, 0x1000);
        made.segment(2, [0x6474_e550, 4], HDR, HDR, 12 + 8);
        made.index(1, &[(TEXT, EH_FRAME + 0x18)]);
        // CIE: version 1, "zR", factors 1 and -8, return address 16, pcrel sdata4; CFA = RSP + 8, RIP at CFA - 8.
        made.entry(EH_FRAME, 0, b"\x01zR\0\x01\x78\x10\x01\x1b\x0c\x07\x08\x90\x01");
        made.function(EH_FRAME + 0x18, EH_FRAME, b"\x41\x0e\x10\x86\x02");
        made
    }

    fn put(&mut self, at: u64, bytes: &[u8]) {
        self.0[at as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    fn put_u32(&mut self, at: u64, value: u32) {
        self.put(at, &value.to_le_bytes());
    }

    fn put_u64(&mut self, at: u64, value: u64) {
        self.put(at, &value.to_le_bytes());
    }

    fn segment(&mut self, number: u64, [kind, flags]: [u32; 2], offset: u64, address: u64, size: u64) {
        let at = 64 + 56 * number;
        self.put_u32(at, kind);
        self.put_u32(at + 4, flags);
        for (field, value) in [offset, address, address, size, size, 0x1000].into_iter().enumerate() {
            self.put_u64(at + 8 + 8 * field as u64, value);
        }
    }

    /// `.eh_frame_hdr`: pcrel sdata4, udata4, datarel sdata4.
    fn index(&mut self, count: u32, entries: &[(u64, u64)]) {
        self.put(HDR, &[1, 0x1b, 0x03, 0x3b]);
        self.put_u32(HDR + 4, (EH_FRAME - (HDR + 4)) as u32);
        self.put_u32(HDR + 8, count);
        for (number, (function, entry)) in entries.iter().enumerate() {
            let at = HDR + 12 + 8 * number as u64;
            self.put_u32(at, function.wrapping_sub(HDR) as u32);
            self.put_u32(at + 4, entry.wrapping_sub(HDR) as u32);
        }
    }

    fn entry(&mut self, at: u64, pointer: u32, rest: &[u8]) {
        let length = (4 + rest.len()).next_multiple_of(4);
        self.put_u32(at, length as u32);
        self.put_u32(at + 4, pointer);
        self.put(at + 8, rest);
    }

    fn function(&mut self, at: u64, common: u64, instructions: &[u8]) {
        let mut rest = Vec::new();
        rest.extend((TEXT.wrapping_sub(at + 8) as u32).to_le_bytes());
        rest.extend(0x100u32.to_le_bytes());
        rest.push(0);
        rest.extend(instructions);
        self.entry(at, (at + 4).wrapping_sub(common) as u32, &rest);
    }

    fn read(&self) -> Result<ElfObject, Malformed> {
        ElfObject::read(self.0.as_slice())
    }

    fn tables(&self) -> UnwindTables {
        let object = self.read().expect("its headers are right");
        assert!(object.fault().is_none(), "{:?}", object.fault());
        object.tables.expect("it has tables")
    }
}

fn row(tables: &UnwindTables, address: u64) -> Result<Option<i64>, gimli::Error> {
    let mut context = Context::new_in();
    let found = tables.row(address, &mut context)?;
    Ok(found.map(|found| match found.row.cfa() {
        gimli::CfaRule::RegisterAndOffset { offset, .. } => *offset,
        gimli::CfaRule::Expression(_) => 0,
    }))
}

/// Guarantees: text is found in any range of addresses, also in a range that is shorter than a piece or ends before the
/// text.
#[test]
fn text_within_any_range() {
    let object = ElfObject::read(SyntheticElf::new().0.as_slice()).unwrap();
    let pieces = |range| object.text_within(range, 64, 16);
    assert_eq!(pieces(TEXT..TEXT + 64), [(TEXT, TEXT)]);
    assert_eq!(pieces(0..u64::MAX).len(), 16);
    let backwards = std::ops::Range { start: u64::MAX, end: 10 };
    for range in [0..0, 0..10, 0..TEXT, TEXT..TEXT + 63, TEXT + 0x1000..u64::MAX, backwards] {
        assert_eq!(pieces(range), []);
    }
}

/// Guarantees: the test file, on which the attacks are based, is read correctly, including its unwind rows and all
/// other data.
#[test]
fn harmless() {
    let made = SyntheticElf::new();
    let tables = made.tables();
    assert_eq!(row(&tables, TEXT), Ok(Some(8)));
    assert_eq!(row(&tables, TEXT + 1), Ok(Some(16)));
    assert_eq!(row(&tables, TEXT + 0x100), Ok(None));
    assert_eq!(row(&tables, TEXT - 1), Ok(None));
    let object = made.read().expect("it is right");
    assert_eq!(object.executable_range(), Some((TEXT, TEXT + 0x1000, TEXT)));
    assert_eq!(object.bias(0x7f00_0000_8000, 0x8000), Some(0x7f00_0000_0000));
    assert_eq!(object.bias(0x7f00_0000_0000, 0x20_0000), None);
    assert_eq!((object.entry(), object.is_go(), object.build_id()), (TEXT, false, None));
}

/// Guarantees: without `.eh_frame_hdr`, the table is found by the section header, and the index built from it gives
/// the same rows.
#[test]
fn without_an_index() {
    let mut made = SyntheticElf::new();
    made.put_u32(64 + 2 * 56, 0);
    made.put_u64(40, 0x200);
    made.put(58, &[64, 0, 2, 0, 0, 0]);
    made.put_u64(0x200 + 24, 0x300);
    made.put_u64(0x200 + 32, 0x10);
    made.put(0x300, b"x\0.eh_frame\0");
    made.put_u32(0x240, 2);
    for (field, value) in [(16, EH_FRAME), (24, EH_FRAME), (32, 0x1000)] {
        made.put_u64(0x240 + field, value);
    }
    let tables = made.tables();
    assert_eq!(tables.functions(), 1);
    assert_eq!(row(&tables, TEXT + 1), Ok(Some(16)));
}

/// Guarantees: files for other machines, and files that are not ELF, cause different errors that name the problem.
#[test]
fn other_machines() {
    let refusal = |made: &SyntheticElf| made.read().expect_err("it is refused").to_string();
    for (changes, message) in [
        (&[(4, &[1][..])][..], "x32, only 64-bit x86-64 can be unwound"),
        (&[(4, &[1]), (18, &[3])], "32-bit x86, only 64-bit x86-64 can be unwound"),
        (&[(18, &[183])], "64-bit ARM, only 64-bit x86-64 can be unwound"),
        (&[(5, &[2])], "big-endian, only 64-bit x86-64 can be unwound"),
        (&[(16, &[1])], "an ELF file of type 1, neither an executable nor a shared object"),
        (&[(0, b"#!/bin/sh\n")], "not an ELF file"),
    ] {
        let mut made = SyntheticElf::new();
        changes.iter().for_each(|(at, bytes)| made.put(*at, bytes));
        assert_eq!(refusal(&made), message);
    }
    assert_eq!(refusal(&SyntheticElf(SyntheticElf::new().0[..63].to_vec())), "not an ELF file");
}

/// Guarantees: program headers that are too many, of another size, or outside of the file make the file fail, before
/// memory is allocated for them.
#[test]
fn attack_program_headers() {
    for (at, bytes) in [
        (56, &[0xff, 0xff][..]),
        (54, &[1, 0]),
        (32, &[0xff; 8]),
        (32, &[0xf0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]),
    ] {
        let mut made = SyntheticElf::new();
        made.put(at, bytes);
        assert!(made.read().is_err(), "{bytes:x?} at {at}");
    }
}

/// Guarantees: if segments or tables lie outside of the file, wrap around or are far too large, the file has no tables,
/// and no memory of their size is allocated.
#[test]
fn attack_segments() {
    for (offset, address, size) in [
        (LENGTH as u64, HDR, 20),
        (u64::MAX, HDR, 20),
        (HDR, HDR, u64::MAX),
        (HDR, HDR, 1 << 40),
        (u64::MAX - 10, u64::MAX - 10, 20),
        (HDR, HDR, 0),
    ] {
        let mut made = SyntheticElf::new();
        made.segment(2, [0x6474_e550, 4], offset, address, size);
        let object = made.read().expect("the file is used without its tables");
        assert!(object.tables().is_none() && object.fault().is_some(), "{offset:x} {address:x} {size:x}");
    }
    let mut made = SyntheticElf::new();
    made.segment(0, [1, 4], 0, u64::MAX - 0x100, u64::MAX);
    made.segment(1, [1, 5], u64::MAX, 0, u64::MAX);
    assert!(made.read().is_ok_and(|object| object.tables().is_none()));
}

/// Guarantees: if the count is larger than the index, reading ends with the bytes of the index; index entries that
/// point before or after the table, and functions outside of the image, are left out; an unordered index is sorted.
#[test]
fn attack_index() {
    let mut made = SyntheticElf::new();
    made.index(u32::MAX, &[(TEXT, EH_FRAME + 0x18)]);
    assert_eq!(made.tables().functions(), 1);
    let entry = EH_FRAME + 0x18;
    let entries = [
        (TEXT + 0x50, 0),
        (TEXT, entry),
        (TEXT + 0x60, 1 << 31),
        (0u64.wrapping_sub(9), entry),
        (TEXT + 0x70, EH_FRAME - 1),
    ];
    made.segment(2, [0x6474_e550, 4], HDR, HDR, 12 + 8 * 5);
    made.index(5, &entries);
    let tables = made.tables();
    assert_eq!(tables.starts().collect::<Vec<_>>(), [TEXT]);
    made.segment(2, [0x6474_e550, 4], HDR, HDR, 12 + 8 * 3);
    made.index(3, &[(TEXT + 0x90, entry), (TEXT, entry), (TEXT + 0x30, entry)]);
    let tables = made.tables();
    assert!(tables.starts().is_sorted());
    assert_eq!(row(&tables, TEXT + 0x31), Ok(Some(16)));
}

/// Guarantees: an entry that is its own common entry, or whose common entry is another function, in a circle, is an
/// error and does not loop.
#[test]
fn attack_cyclic_common_parts() {
    let function = EH_FRAME + 0x18;
    for common in [function, function + 0x40] {
        let mut made = SyntheticElf::new();
        made.function(function, common, b"");
        made.function(function + 0x40, function, b"");
        assert!(row(&made.tables(), TEXT).is_err());
    }
}

/// Guarantees: entries and common entries longer than the limits, or than the table, are rejected because of their
/// length, before they are read.
#[test]
fn attack_lengths() {
    for length in [u32::MAX, u32::MAX - 1, 0x7fff_ffff, (64 << 10) + 1] {
        let mut made = SyntheticElf::new();
        made.put_u32(EH_FRAME + 0x18, length);
        let found = made.read().map(|object| object.tables.map(|tables| row(&tables, TEXT)));
        assert!(!matches!(found, Ok(Some(Ok(Some(_))))), "{length:x}");
        let mut made = SyntheticElf::new();
        made.put_u32(EH_FRAME, length);
        assert!(row(&made.tables(), TEXT).is_err());
    }
}

/// Guarantees: an augmentation that claims more bytes than there are, one without an end, unknown letters, and a return
/// address in another register than x86-64's are errors.
#[test]
fn attack_augmentations() {
    for rest in [
        &b"\x01zR\0\x01\x78\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"[..],
        b"\x01zRzRzRzRzRzRzRzR",
        b"\x01zXYZW\0\x01\x78\x10",
        b"\x01zR\0\x01\x78\x10\x01\x77",
        b"\x09zR\0\x01\x78\x10\x01\x1b",
    ] {
        let mut made = SyntheticElf::new();
        made.put(EH_FRAME + 8, &[0; 12]);
        made.entry(EH_FRAME, 0, &rest[..rest.len().min(16)]);
        assert!(!matches!(row(&made.tables(), TEXT), Ok(Some(_))), "{rest:x?}");
    }
    let mut made = SyntheticElf::new();
    made.put(EH_FRAME + 8 + 6, &[3]);
    assert!(row(&made.tables(), TEXT).is_err());
}

/// Guarantees: instructions that push states forever, set more registers than there are, or advance past the end of all
/// addresses are errors.
#[test]
fn attack_instructions() {
    let remember = [0x0a; 300];
    let registers: Vec<u8> = (0..100u8).flat_map(|register| [0x05, register, 1]).collect();
    let advance: Vec<u8> = [0x04, 0xff, 0xff, 0xff, 0xff].repeat(60);
    for (instructions, refused) in [(&remember[..], true), (&registers, true), (&advance, false)] {
        let mut made = SyntheticElf::new();
        made.function(EH_FRAME + 0x18, EH_FRAME, instructions);
        let found = row(&made.tables(), TEXT + 1);
        assert_eq!(found.is_err(), refused, "{found:?}");
    }
}

/// Guarantees: an entry of the maximum length may be full of instructions without effect; a longer one is rejected
/// ([`attack_lengths`]).
#[test]
fn attack_long_entry() {
    let mut made = SyntheticElf::new();
    made.0.resize(0x40000, 0);
    made.segment(0, [1, 4], 0, 0, 0x8000);
    made.segment(1, [1, 5], 0x20000, 0x20000, 0x20000);
    made.index(1, &[(0x30000, 0x20018)]);
    made.put_u32(HDR + 4, (0x20000 - (HDR + 4)) as u32);
    made.entry(0x20000, 0, b"\x01zR\0\x01\x78\x10\x01\x1b\x0c\x07\x08\x90\x01");
    made.function(0x20018, 0x20000, &vec![0; (64 << 10) - 32]);
    made.put_u32(0x20018 + 8, 0x30000 - (0x20018 + 8));
    let tables = made.tables();
    assert_eq!(row(&tables, 0x30000), Ok(Some(8)));
}

/// Guarantees: a file that gets shorter while it is read is an error.
#[test]
fn attack_shrinking_file() {
    let file = file(&SyntheticElf::new().0);
    let source = FileSource::new(&file, LENGTH as u64);
    file.set_len(HDR + 4).expect("it is cut");
    assert!(matches!(ElfObject::read(&source), Err(Malformed::OutOfFile { .. })));
}

fn file(bytes: &[u8]) -> std::fs::File {
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(bytes).expect("it is written");
    file
}

/// Guarantees: an unchanged file is read once; the byte limit is respected; unused objects make room, oldest first;
/// objects in use stay, and when they fill the cache, nothing more is read.
#[test]
fn cache_budget() {
    let made = SyntheticElf::new();
    let each = made.read().expect("it is right").memory();
    let mut cache = ObjectCache::new(2 * each);
    let [first, second, third] = [file(&made.0), file(&made.0), file(&made.0)];
    let again = |file: &std::fs::File| file.try_clone().expect("another descriptor");
    let one = cache.load(again(&first)).expect("it is right").expect("it fits");
    let same = cache.load(again(&first)).expect("it is right").expect("it is there");
    assert!(Arc::ptr_eq(&one.object, &same.object));
    drop(cache.load(again(&second)));
    assert_eq!((cache.files(), cache.memory()), (2, 2 * each));
    let other = cache.load(again(&third)).expect("it is right").expect("the second makes room");
    assert_eq!((cache.files(), cache.memory()), (2, 2 * each));
    let kept = cache.load(again(&first)).expect("it is right").expect("it is in use");
    assert!(Arc::ptr_eq(&one.object, &kept.object));
    assert!(cache.load(again(&second)).expect("it is right").is_none(), "all is in use");
    drop(other);
    assert!(cache.load(again(&second)).expect("it is right").is_some());
}

/// Guarantees: a file that was written to is read again, and a pipe is never read.
#[test]
fn cache_keys() {
    let mut cache = ObjectCache::default();
    let mut file = file(&SyntheticElf::new().0);
    let before = cache.load(file.try_clone().expect("a descriptor")).expect("it is right").expect("it fits");
    file.write_all(&[0]).expect("it grows");
    let after = cache.load(file).expect("it is right").expect("it fits");
    assert_ne!(before.object.id(), after.object.id());
    let (pipe, _writer) = nix::unistd::pipe().expect("a pipe");
    assert!(cache.load(pipe.into()).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Guarantees: whatever bytes of a file are changed, reading it and looking up addresses does not panic, and takes
    /// little more memory than the file's length.
    #[test]
    fn any_change(changes in prop::collection::vec((0..LENGTH, any::<u8>()), 1..20), dense in prop::collection::vec((0x1000usize..0x1050, any::<u8>()), 0..8)) {
        let mut made = SyntheticElf::new();
        for (at, byte) in changes.into_iter().map(|(at, byte)| (at % 0x500, byte)).chain(dense) {
            made.0[at] = byte;
        }
        if let Ok(object) = made.read() {
            prop_assert!(object.memory() <= 4 * LENGTH);
            if let Some(tables) = object.tables() {
                for address in [0, TEXT, TEXT + 1, TEXT + 0xff, u64::MAX] {
                    row(tables, address).ok();
                }
            }
        }
    }
}
