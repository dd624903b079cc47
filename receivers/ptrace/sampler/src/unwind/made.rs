//! A process for tests that consists of code without a file, and of stacks.

use std::collections::BTreeMap;

use super::{COUNT, FRAME_POINTER, Frame, Registers, StackMemory, UnwindOutcome, Unwinder};
use crate::address_space::AddressSpace;
use crate::address_space::fake::FakeProcess;

/// The start address of the code.
pub(super) const CODE: u64 = 0x10_0000;
/// The end address of the stack.
pub(super) const STACK: u64 = 0x7000_0000;
/// The return address into the code that starts a thread: after `call *%rax`, that code ends the thread by
/// `mov %eax, %edi; mov $60, %eax; syscall`.
pub(super) const ROOT: u64 = CODE + 2;
/// The mask with which all registers are known.
pub(super) const ALL: u32 = (1 << COUNT) - 1;

pub(super) struct SyntheticCode(Vec<u8>);

impl SyntheticCode {
    /// Creates code that starts with the code that ends a thread.
    pub(super) fn new() -> Self {
        let mut made = Self(vec![0xcc; 0x4000]);
        made.put(CODE, b"\xff\xd0\x89\xc7\xb8\x3c\x00\x00\x00\x0f\x05");
        made
    }

    pub(super) fn put(&mut self, address: u64, code: &[u8]) {
        let at = (address - CODE) as usize;
        self.0[at..at + code.len()].copy_from_slice(code);
    }

    pub(super) fn space(&self) -> AddressSpace {
        let maps = format!("{CODE:x}-{:x} r-xp 00000000 00:00 0 \n", CODE + self.0.len() as u64);
        FakeProcess { maps, memory: vec![(CODE, self.0.clone())], ..FakeProcess::default() }.load(None)
    }
}

/// Memory that records which addresses are read.
pub(super) struct RecordingMemory<F>(pub(super) F, pub(super) Vec<u64>);

impl<F: FnMut(u64) -> Option<u64>> StackMemory for RecordingMemory<F> {
    fn read_u64(&mut self, address: u64) -> Option<u64> {
        self.1.push(address);
        self.0(address)
    }

    fn peek_u64(&mut self, address: u64) -> Option<u64> {
        self.0(address)
    }
}

/// The registers of a synthetic thread, by DWARF number, and its stack.
#[derive(Debug, Clone, Default)]
pub(super) struct SyntheticThread {
    pub(super) registers: [u64; COUNT],
    words: BTreeMap<u64, u64>,
}

impl SyntheticThread {
    /// A thread with an empty stack; its other registers have arbitrary values.
    pub(super) fn new() -> Self {
        let mut thread = Self { registers: [0x5a5a; COUNT], words: BTreeMap::new() };
        thread.registers[7] = STACK;
        thread
    }

    pub(super) fn push(&mut self, word: u64) {
        self.registers[7] -= 8;
        self.words.insert(self.registers[7], word);
    }

    pub(super) fn pop(&mut self) -> u64 {
        self.registers[7] += 8;
        self.words[&(self.registers[7] - 8)]
    }

    pub(super) fn write(&mut self, address: u64, word: u64) {
        self.words.insert(address, word);
    }

    /// Reserves space with arbitrary words, none of which is a return address.
    pub(super) fn room(&mut self, bytes: u64) {
        for _ in 0..bytes / 8 {
            self.push(0x1111);
        }
    }

    /// Sets up a frame pointer.
    pub(super) fn frame(&mut self) {
        self.push(self.registers[usize::from(FRAME_POINTER)]);
        self.registers[usize::from(FRAME_POINTER)] = self.registers[7];
    }

    /// The frames at an instruction, with only these registers known (bit N for register N).
    pub(super) fn unwind(&mut self, space: &AddressSpace, pc: u64, known: u32) -> (Vec<u64>, UnwindOutcome) {
        self.registers[16] = pc;
        let registers = Registers { values: self.registers, known };
        let mut frames: Vec<Frame> = Vec::new();
        let outcome = Unwinder::new().unwind(space, &registers, self, &mut frames);
        (frames.iter().map(|frame| frame.pc).collect(), outcome)
    }
}

impl StackMemory for SyntheticThread {
    fn read_u64(&mut self, address: u64) -> Option<u64> {
        self.words.get(&address).copied()
    }
}
