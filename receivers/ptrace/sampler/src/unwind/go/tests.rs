//! A synthetic Go program, and manipulated variants of its table.

use proptest::prelude::*;

use super::*;
use crate::address_space::fake::FakeProcess;
use crate::elf::ObjectCache;

const BASE: u64 = 0x40_0000;
const TABLE: usize = 0x100;
const MODULE: usize = 0x380;
const SECTIONS: usize = 0x500;
const NAMES: usize = 0x700;
const TEXT: u64 = 0x800;

/// A Go program that consists of its headers and its table only: a function of 308 bytes, and at 0x200 the first
/// function of a stack.
#[derive(Debug, Clone)]
struct GoProgram(Vec<u8>);

impl GoProgram {
    /// Creates the program with the start of the text in the module data (since Go 1.26), or in the header of the
    /// table.
    fn new(in_module: bool) -> Self {
        let mut program = Self(vec![0; 0x1000]);
        program.put(0, b"\x7fELF\x02\x01\x01");
        program.halves(16, &[3, 62]);
        program.words(32, &[64, SECTIONS as u64]);
        program.halves(54, &[56, 2, 64, 4, 3]);
        program.segment(64, 1, 0x1000, 0);
        program.segment(120, 4, 20, 0xb0);
        program.put(0xb0, b"\x04\0\0\0\x04\0\0\0\x04\0\0\0Go\0\0abcd");
        program.put(NAMES, b"\0.gopclntab\0.go.module\0");
        for (place, name, address) in [(1, 1, TABLE), (2, 12, MODULE), (3, 0, NAMES)] {
            let at = SECTIONS + 64 * place;
            program.put(at, &[name, 0, 0, 0, 1]);
            program.words(at + 16, &[address as u64, address as u64, 0x100]);
        }
        let text = BASE + TEXT;
        program.put(TABLE, b"\xf1\xff\xff\xff\0\0\x01\x08");
        program.words(TABLE + 8, &[2, 0, if in_module { 0 } else { text }, 0, 0, 0, 0x80, 0x100]);
        program.put(TABLE + 0x81, &SIZES);
        let functions = TABLE + 0x100;
        for (at, word) in [(0, 0), (4, 0x20), (8, 0x200), (12, 0x60), (16, 0x300)] {
            program.put(functions + at, &u32::to_le_bytes(word));
        }
        for (at, start, flags) in [(0x20, 0, 0), (0x60, 0x200, TOP_FRAME)] {
            program.put(functions + at, &u32::to_le_bytes(start));
            program.put(functions + at + 16, &[1]);
            program.put(functions + at + 41, &[flags]);
        }
        program.words(MODULE, &[BASE + TABLE as u64]);
        program.words(MODULE + TEXT_IN_MODULE_DATA as usize, &[text]);
        program
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn halves(&mut self, at: usize, values: &[u16]) {
        values.iter().enumerate().for_each(|(place, value)| self.put(at + 2 * place, &value.to_le_bytes()));
    }

    fn words(&mut self, at: usize, values: &[u64]) {
        values.iter().enumerate().for_each(|(place, value)| self.put(at + 8 * place, &value.to_le_bytes()));
    }

    fn segment(&mut self, at: usize, kind: u8, size: u64, offset: u64) {
        self.put(at, &[kind, 0, 0, 0, 5]);
        self.words(at + 8, &[offset, offset, offset, size, size, 4]);
    }

    /// The table entry for an address of the text.
    fn frame(&self, distance: u64) -> Option<GoFrame> {
        let maps = "400000-401000 r-xp 00000000 fe:01 7 /go\n".into();
        let fake = FakeProcess { maps, memory: vec![(BASE, self.0.clone())], ..FakeProcess::default() };
        let space = AddressSpace::load(&fake, None, &mut ObjectCache::default()).ok()?;
        let address = BASE + TEXT + distance;
        look_up(&space, space.find(address)?, address)
    }
}

/// Stack sizes: 0 for 4 bytes of code, 8 for 3, 32 for 300, 0 for 1.
const SIZES: [u8; 10] = [2, 4, 16, 3, 48, 0xac, 2, 63, 1, 0];

/// Guarantees: frames are found in the tables of Go 1.20 to 1.25 and of 1.26, and in those of 1.18 and 1.19, whose
/// functions have one field less. The first function of a stack is recognized, there is no frame after the last
/// function, nor for a function that switches the stack pointer to another stack.
#[test]
fn known_programs() {
    let mut older = GoProgram::new(false);
    older.put(TABLE, &[0xf0]);
    older.put(TABLE + 0x160 + 37, &[TOP_FRAME]);
    for program in [GoProgram::new(false), GoProgram::new(true), older] {
        for (distance, size) in [(0, 0), (3, 0), (4, 8), (6, 8), (7, 32), (306, 32), (307, 0)] {
            assert_eq!(program.frame(distance), Some(GoFrame { size, top: false }), "{distance}");
        }
        assert_eq!((program.frame(308), program.frame(0x300)), (None, None));
        assert_eq!(program.frame(0x207), Some(GoFrame { size: 32, top: true }));
    }
    let mut other = GoProgram::new(true);
    other.words(MODULE, &[BASE]);
    assert_eq!(other.frame(4), None, "no module of this table");
    let mut switches = GoProgram::new(false);
    switches.put(TABLE + 0x120 + 41, &[WRITES_STACK_POINTER]);
    assert_eq!(switches.frame(7), None);
}

proptest! {
    /// Guarantees: whatever a program writes into its headers and its table, also words that make numbers overflow,
    /// reading terminates, and frames are within the limits.
    #[test]
    fn any_table(
        bytes in prop::collection::vec((0..0x800usize, any::<u8>()), 0..12),
        words in prop::collection::vec((0..0x80usize, prop::sample::select(vec![0, 1, 0x7fff_ffff, u32::MAX, 0x8000_0000, 0xfff8])), 0..6),
        in_module: bool,
        distance in 0..0x800u64,
    ) {
        for (bytes, words) in [(&bytes[..], &[][..]), (&[], &words)] {
            let mut program = GoProgram::new(in_module);
            bytes.iter().for_each(|(at, byte)| program.0[*at] = *byte);
            words.iter().for_each(|(place, word)| program.put(TABLE + 4 * place, &u32::to_le_bytes(*word)));
            if let Some(frame) = program.frame(distance) {
                prop_assert!(frame.size.is_multiple_of(8) && frame.size <= MAX_SIZE);
            }
        }
    }
}

/// Guarantees: there is no stack size after the end of a table, in truncated tables, and in tables whose numbers do not
/// end.
#[test]
fn sizes() {
    assert_eq!((stack_size(&SIZES, 307), stack_size(&SIZES, 308)), (Some(0), None));
    for length in 0..7 {
        assert_eq!(stack_size(&SIZES[..length], 306), None);
    }
    assert_eq!(stack_size(&[0xff; 64], 0), None);
    assert_eq!(stack_size(&[2, 0, 2, 0, 2, 0], 0), None);
}
