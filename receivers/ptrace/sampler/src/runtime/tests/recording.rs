//! Recordings of memory that was read from a process, so that interpreters can be tested without a process.

#[cfg(test)]
mod reader;
#[cfg(test)]
mod targets;

use std::collections::BTreeMap;

#[cfg(test)]
pub(super) use self::reader::*;
#[cfg(test)]
pub(super) use self::targets::{Changing, CountingTarget, Hidden};
use super::target::{TargetMemory, half_at, word_at};
use super::{Found, FoundKind, php, python, ruby, v8};
use crate::message::FunctionKind;

/// The first bytes of a recording, by the kind of interpreter.
const MAGICS: [(&[u8; 8], FunctionKind); 4] = [
    (b"PBRUNTM1", FunctionKind::CPython),
    (b"PBRUNTP1", FunctionKind::Php),
    (b"PBRUNTR1", FunctionKind::Ruby),
    (b"PBRUNTV1", FunctionKind::V8),
];

/// The longest recording that is accepted, in bytes.
const MAX_LENGTH: usize = 1 << 20;

impl Found {
    /// Creates a Python interpreter from the address of its `_PyRuntime` alone.
    ///
    /// # Errors
    ///
    /// A message for the operator: why its frames cannot be read.
    pub fn python(runtime: u64, version: u32, target: &mut dyn TargetMemory) -> Result<Self, String> {
        python::PythonPlace::at(runtime, version, target).map(|place| Self { kind: FoundKind::Python(place) })
    }

    /// Creates a PHP interpreter from the address of its `executor_globals` alone. `version` has major, minor and
    /// release in one byte each.
    ///
    /// # Errors
    ///
    /// A message for the operator: why its frames cannot be read.
    pub fn php(globals: u64, version: u32) -> Result<Self, String> {
        php::PhpPlace::at(globals, version).map(|place| Self { kind: FoundKind::Php(place) })
    }

    /// Creates a Ruby interpreter from the addresses of its virtual machine and of the variable with the symbol names.
    /// `version` has three numbers in the upper bytes.
    ///
    /// # Errors
    ///
    /// A message for the operator: why its frames cannot be read.
    pub fn ruby(machine: u64, symbols: u64, version: u32) -> Result<Self, String> {
        ruby::RubyPlace::at(machine, symbols, version).map(|place| Self { kind: FoundKind::Ruby(place) })
    }

    fn v8(constants: v8::Constants) -> Result<Self, String> {
        v8::V8Layout::from_constants(constants).map(|layout| Self { kind: FoundKind::V8(Box::new(layout)) })
    }

    /// Creates an empty recording of this interpreter and one of its threads.
    pub fn recording(&self, thread: u32) -> Recording {
        let (runtime, version) = self.state();
        // A Ruby recording has the address of the variable with the symbol names in place of a thread pointer.
        let (kind, pointer) = (Some(self.kind()), self.symbols());
        let mut recording = Recording { kind, runtime, version, thread, pointer, ..Recording::default() };
        if let FoundKind::V8(layout) = &self.kind {
            recording.add_constants(layout.constants());
        }
        recording
    }

    /// The kind of interpreter.
    pub fn kind(&self) -> FunctionKind {
        match &self.kind {
            FoundKind::Python(_) => FunctionKind::CPython,
            FoundKind::Php(_) => FunctionKind::Php,
            FoundKind::V8(_) => FunctionKind::V8,
            FoundKind::Ruby(_) => FunctionKind::Ruby,
        }
    }

    /// The address of the interpreter's state (for Ruby, the virtual machine) and its version: for Python as in
    /// `PY_VERSION_HEX`, for PHP major, minor and release in one byte each, for Ruby three numbers in the upper bytes.
    /// Zeros for V8, which has no such address.
    pub fn state(&self) -> (u64, u32) {
        match &self.kind {
            FoundKind::Python(place) => (place.runtime, place.version),
            FoundKind::Php(place) => (place.globals, place.version),
            FoundKind::V8(_) => (0, 0),
            FoundKind::Ruby(place) => (place.data().0, place.version),
        }
    }

    /// The address of the variable with Ruby's symbol names, 0 if unknown or for other interpreters.
    pub fn symbols(&self) -> u64 {
        match &self.kind {
            FoundKind::Ruby(place) => place.data().1,
            FoundKind::Python(_) | FoundKind::Php(_) | FoundKind::V8(_) => 0,
        }
    }
}

/// Parts of a process's memory, by address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recording {
    /// The kind of interpreter; `None` is CPython.
    pub kind: Option<FunctionKind>,
    /// The address of the interpreter's state (Python's `_PyRuntime`, PHP's `executor_globals`, Ruby's virtual
    /// machine). For V8, the address of the constants in the recording.
    pub runtime: u64,
    /// The interpreter's version, as returned by [`Found::state`].
    pub version: u32,
    /// The thread's id in its own PID namespace.
    pub thread: u32,
    /// The thread pointer, 0 if unknown. For Ruby, which needs no thread pointer, the address of the variable with the
    /// symbol names; for V8 the address of the native frames in the recording.
    pub pointer: u64,
    /// The recorded bytes by their address.
    pub parts: BTreeMap<u64, Vec<u8>>,
}

impl Recording {
    /// Parses the output of [`Recording::to_bytes`]; `None` if it is malformed.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let begun = MAGICS.iter().find_map(|(magic, kind)| Some((bytes.strip_prefix(*magic)?, *kind)));
        let (mut rest, kind) = begun.filter(|(rest, _)| rest.len() <= MAX_LENGTH)?;
        let (head, parts) = rest.split_at_checked(24)?;
        let mut recording = Self {
            kind: Some(kind),
            runtime: word_at(head, 0),
            version: half_at(head, 8),
            thread: half_at(head, 12),
            pointer: word_at(head, 16),
            parts: BTreeMap::new(),
        };
        rest = parts;
        while !rest.is_empty() {
            let (head, behind) = rest.split_at_checked(12)?;
            let (part, behind) = behind.split_at_checked(half_at(head, 8) as usize)?;
            word_at(head, 0).checked_add(part.len() as u64)?;
            recording.parts.insert(word_at(head, 0), part.to_vec());
            rest = behind;
        }
        Some(recording)
    }

    /// Serializes the recording.
    pub fn to_bytes(&self) -> Vec<u8> {
        let is_it = |(_, kind): &&(_, FunctionKind)| Some(*kind) == self.kind;
        let (magic, _) = MAGICS.iter().find(is_it).unwrap_or(&MAGICS[0]);
        let mut bytes = magic.to_vec();
        bytes.extend(self.runtime.to_le_bytes());
        bytes.extend(self.version.to_le_bytes());
        bytes.extend(self.thread.to_le_bytes());
        bytes.extend(self.pointer.to_le_bytes());
        for (address, part) in &self.parts {
            bytes.extend(address.to_le_bytes());
            bytes.extend(u32::try_from(part.len()).unwrap_or(u32::MAX).to_le_bytes());
            bytes.extend(part);
        }
        bytes
    }

    /// The interpreter that was recorded.
    ///
    /// # Errors
    ///
    /// A message for the operator: why its frames cannot be read.
    pub fn found(&mut self) -> Result<Found, String> {
        match self.kind {
            Some(FunctionKind::Php) => Found::php(self.runtime, self.version),
            Some(FunctionKind::V8) => Found::v8(self.constants().ok_or("nothing tells where V8 has its fields")?),
            Some(FunctionKind::Ruby) => Found::ruby(self.runtime, self.pointer, self.version),
            _ => Found::python(self.runtime, self.version, self),
        }
    }

    /// Adds bytes. Parts that overlap or touch are merged; in the overlap the new bytes replace the old ones.
    pub fn add(&mut self, address: u64, bytes: &[u8]) {
        let end = |start: u64, part: &[u8]| start.saturating_add(part.len() as u64);
        let (mut start, mut whole) = (address, bytes.to_vec());
        let touching: Vec<u64> = self
            .parts
            .range(..=end(address, bytes))
            .filter(|(other, part)| end(**other, part) >= address)
            .map(|(other, _)| *other)
            .collect();
        for other in touching {
            let Some(mut part) = self.parts.remove(&other) else { continue };
            let (first, last) = (start.min(other), end(start, &whole).max(end(other, &part)));
            part.splice(0..0, std::iter::repeat_n(0, (other - first) as usize));
            part.resize((last - first) as usize, 0);
            let at = (start - first) as usize;
            part[at..at + whole.len()].copy_from_slice(&whole);
            (start, whole) = (first, part);
        }
        self.parts.insert(start, whole);
    }
}

impl TargetMemory for Recording {
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> bool {
        let Some((start, part)) = self.parts.range(..=address).next_back() else { return false };
        let found = usize::try_from(address - start).ok().and_then(|at| part.get(at..)?.get(..bytes.len()));
        found.is_some_and(|found| {
            bytes.copy_from_slice(found);
            true
        })
    }
}
