//! The parts of a V8 recording besides memory: V8's constants, and the native frames of the thread.
//!
//! Both are stored as words at addresses that no process has, so tests that alter each word of a recording alter these
//! words too.

use super::layout::{Constants, Sizes};
use crate::message::Location;
use crate::runtime::target::{TargetMemory, word, word_at};
use crate::runtime::{CodePlace, Recording};
use crate::unwind::{FRAME_POINTER, Frame, MAX_FRAMES, Registers, StackMemory};

use super::frames::CALLED;

/// The addresses of the constants and of the native frames in a recording.
const CONSTANTS: u64 = 1 << 63;
const FRAMES: u64 = CONSTANTS + (1 << 20);

/// Marks a constant or a register that is not known.
const UNKNOWN: u64 = u64::MAX;

/// The words of a frame: program counter, stack pointer, frame pointer, the register with the called function, and the
/// kind of code.
const FRAME: usize = 5;

/// The native stack of a thread as it was recorded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecordedStack {
    /// The frames, innermost first.
    pub frames: Vec<Frame>,
    /// The kind of code of each frame.
    places: Vec<CodePlace>,
}

impl RecordedStack {
    /// The same stack without its `inner` innermost frames.
    #[must_use]
    pub fn without(&self, inner: usize) -> Self {
        let (frames, places) = (self.frames.iter().skip(inner), self.places.iter().skip(inner));
        Self { frames: frames.copied().collect(), places: places.copied().collect() }
    }

    /// The kind of code at an address in one of the frames.
    pub fn place(&self, address: u64) -> CodePlace {
        let is_here = |frame: &Frame| frame.pc == address || frame.pc.wrapping_sub(1) == address;
        let found = self.frames.iter().zip(&self.places).find(|(frame, _)| is_here(frame));
        found.map_or(CodePlace::Other, |(_, place)| *place)
    }
}

impl Recording {
    /// Adds the native frames of the thread, innermost first, with the kind of code of each.
    pub fn add_native(&mut self, frames: &[(Frame, CodePlace)]) {
        let mut words = vec![frames.len() as u64];
        for (frame, place) in frames {
            let register = |number| frame.registers.get(number).unwrap_or(UNKNOWN);
            let place = match place {
                CodePlace::Other => 0,
                CodePlace::Generated => 1,
                CodePlace::Builtin => 2,
            };
            words.extend([frame.pc, frame.sp, register(FRAME_POINTER), register(CALLED), place]);
        }
        self.pointer = FRAMES;
        self.add(FRAMES, &words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>());
    }

    /// Returns the native frames of the thread, if there are any.
    pub fn native(&mut self) -> RecordedStack {
        let at = self.pointer;
        let count = word(self, at).and_then(|count| usize::try_from(count).ok()).unwrap_or(0).min(MAX_FRAMES);
        let mut stack = RecordedStack::default();
        for index in 0..count {
            let mut bytes = [0; FRAME * 8];
            if !self.read(at.wrapping_add(8 + (index * bytes.len()) as u64), &mut bytes) {
                break;
            }
            let [pc, sp, pointer, called, place] = std::array::from_fn(|index| word_at(&bytes, index * 8));
            let mut registers = Registers::passive(sp, pc);
            for (number, value) in [(FRAME_POINTER, pointer), (CALLED, called)] {
                if value != UNKNOWN {
                    registers.set(number, value);
                }
            }
            let location = Location::Native { mapping: None, address: pc };
            stack.frames.push(Frame { pc, sp, location, registers });
            stack.places.push(match place {
                1 => CodePlace::Generated,
                2 => CodePlace::Builtin,
                _ => CodePlace::Other,
            });
        }
        stack
    }

    /// Adds V8's constants.
    pub(in crate::runtime) fn add_constants(&mut self, constants: &Constants) {
        let Constants { version: (major, minor), numbers, types, sizes } = constants;
        (self.runtime, self.version) = (CONSTANTS, major << 16 | minor & 0xffff);
        let numbers = numbers.iter().map(|number| number.map_or(UNKNOWN, u64::from));
        let sizes = sizes.as_ref().map_or(&[][..], |Sizes(sizes)| sizes);
        let words = numbers.chain(types.iter().map(|kind| u64::from(*kind))).chain([sizes.len() as u64]);
        let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        bytes.extend(sizes);
        self.add(CONSTANTS, &bytes);
    }

    /// Returns V8's constants; `None` if they were not recorded.
    pub(in crate::runtime) fn constants(&mut self) -> Option<Constants> {
        let version = (self.version >> 16, self.version & 0xffff);
        let mut at = self.runtime;
        let mut next = || {
            let value = word(self, at);
            at = at.wrapping_add(8);
            value
        };
        let (mut numbers, mut types) = ([None; _], [0; _]);
        for number in &mut numbers {
            *number = u32::try_from(next()?).ok();
        }
        for kind in &mut types {
            *kind = u16::try_from(next()?).unwrap_or(0);
        }
        let mut sizes = vec![0; usize::try_from(next()?).ok().filter(|length| *length <= Sizes::MAX)?];
        let read = sizes.is_empty() || self.read(at, &mut sizes);
        let sizes = Some(Sizes(sizes)).filter(|Sizes(sizes)| !sizes.is_empty() && sizes.len() % 3 == 0);
        read.then_some(Constants { version, numbers, types, sizes })
    }
}

/// The recorded memory includes the words of the thread's stack.
impl StackMemory for Recording {
    fn read_u64(&mut self, address: u64) -> Option<u64> {
        word(self, address)
    }
}
