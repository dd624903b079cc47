//! Parses the records that the kernel writes into a ring: a pure function over the bytes of one record.
//!
//! The layouts follow `perf_event_open(2)`, section "MMAP layout", for the fields that [`super::attr`] requests.
//! Lengths are checked although the kernel wrote them: the bytes of the stack come from the target. A length that does
//! not fit is an error, and nothing beyond the record is read.

use super::attr::{REGISTERS, RESUMED_NANO, STACK_BYTES};
use crate::unwind::Registers;

/// The header of every record: its type (4 bytes), the processor mode (2) and its length with the header (2).
pub const HEADER: usize = 8;

/// The number of bytes of a sample that contain its [`SampleHead`].
pub const SAMPLE_HEAD: usize = HEADER + 40;

/// The longest record: its length has two bytes.
pub const LONGEST: usize = u16::MAX as usize;

/// `PERF_RECORD_*`.
mod kind {
    pub(super) const LOST: u32 = 2;
    pub(super) const EXIT: u32 = 4;
    pub(super) const THROTTLE: u32 = 5;
    pub(super) const UNTHROTTLE: u32 = 6;
    pub(super) const FORK: u32 = 7;
    pub(super) const SAMPLE: u32 = 9;
    pub(super) const MMAP2: u32 = 10;
    pub(super) const LOST_SAMPLES: u32 = 13;
    pub(super) const SWITCH: u32 = 14;
    pub(super) const SWITCH_CPU_WIDE: u32 = 15;
}

/// `PERF_RECORD_MISC_CPUMODE_MASK` and its values.
const CPU_MODE: u16 = 7;
const CPU_MODE_USER: u16 = 2;

/// `PERF_RECORD_MISC_SWITCH_OUT` and `PERF_RECORD_MISC_SWITCH_OUT_PREEMPT`.
const SWITCH_OUT: u16 = 1 << 13;
const SWITCH_OUT_PREEMPT: u16 = 1 << 14;

/// The size of the trailer of every record (`sample_id_all`): process and thread, time, processor.
const SAMPLE_ID: usize = 24;

/// The period of a switch sample. Samples by a clock have longer periods, in nanoseconds.
const ONE_SWITCH: u64 = 1;

/// `PERF_SAMPLE_REGS_ABI_*`: whether the registers are those of a 64-bit or a 32-bit program; 0 if there are none.
const ABI_NONE: u64 = 0;
const ABI_32: u64 = 1;
const ABI_64: u64 = 2;

/// `PERF_CONTEXT_MAX`: values in a call chain from this one on are markers, not addresses.
const CONTEXT_MAX: u64 = -4095_i64 as u64;

/// The number of registers in a sample.
const COUNT: usize = REGISTERS.count_ones() as usize;

/// The DWARF numbers (System V ABI for x86-64, figure 3.36) of the registers in the order of a sample: AX, BX, CX, DX,
/// SI, DI, BP, SP, IP, R8 to R15.
const DWARF: [u8; COUNT] = [0, 3, 2, 1, 4, 5, 6, 7, 16, 8, 9, 10, 11, 12, 13, 14, 15];

/// What the processor was executing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CpuMode {
    /// In the program's code.
    User,
    /// In the kernel, on behalf of the program. The registers are those with which the program will continue.
    Kernel,
}

/// A sample of a thread that ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OnCpuSample<'a> {
    /// The process id, in the PID namespace of the process that opened the event.
    pub process: u32,
    /// The thread id, in the same namespace.
    pub thread: u32,
    /// When the sample was taken: nanoseconds of CLOCK_MONOTONIC.
    pub time_nano: u64,
    /// The running time that the sample covers, in nanoseconds.
    pub period_nano: u64,
    /// How long the thread had run since its event was opened, on all processors, in nanoseconds. Not meaningful for
    /// events of processors.
    pub ran_nano: u64,
    /// The processor on which the thread ran.
    pub processor: u32,
    /// Whether the thread was in its program or in the kernel.
    pub mode: CpuMode,
    /// The kernel's call chain, if the thread was in the kernel and kernel samples are permitted.
    pub kernel: KernelChain<'a>,
    /// The program's registers.
    pub user: User,
    /// The stack from the stack pointer on, as far as the kernel copied it.
    pub stack: &'a [u8],
}

/// The kernel's call chain of a sample, as bytes of the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KernelChain<'a>(&'a [u8]);

impl KernelChain<'_> {
    /// The addresses, innermost first: the current instruction, then the return address of each call.
    pub fn addresses(&self) -> impl Iterator<Item = u64> {
        let (words, _) = self.0.as_chunks();
        // Markers (`PERF_CONTEXT_*`, the last 4095 values) say whether kernel or user addresses follow.
        words.iter().map(|word| u64::from_ne_bytes(*word)).filter(|address| *address < CONTEXT_MAX)
    }
}

/// Executable memory that a process has mapped, or memory that it has made executable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapped<'a> {
    /// The process id, in the PID namespace of the process that opened the event.
    pub process: u32,
    /// The thread that made the call.
    pub thread: u32,
    /// The time in nanoseconds of CLOCK_MONOTONIC.
    pub time_nano: u64,
    /// The address.
    pub start: u64,
    /// The length in bytes.
    pub length: u64,
    /// The offset in the file at `start`.
    pub offset: u64,
    /// The file's device: its major and its minor number.
    pub device: (u32, u32),
    /// The file's inode; 0 for memory without a file.
    pub inode: u64,
    /// The protection, as for `mmap`: `PROT_READ`, `PROT_WRITE`, `PROT_EXEC`.
    pub protection: u32,
    /// The file's path as the process sees it, followed by ` (deleted)` if the file was deleted. The process chooses
    /// it.
    pub path: &'a [u8],
}

/// The registers of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum User {
    /// All registers.
    Registers(Registers),
    /// No registers: the thread belongs to the kernel or is ending.
    None,
    /// The registers of a 32-bit program.
    OtherArchitecture,
}

/// A record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "most records are samples, and none is kept")]
pub enum Record<'a> {
    /// A thread ran.
    Sample(OnCpuSample<'a>),
    /// A thread is about to leave its processor: a sample at that moment.
    Leaving(OnCpuSample<'a>),
    /// A thread that waited for a processor runs again: a sample of where it resumes.
    Resumed(OnCpuSample<'a>),
    /// A thread was given a processor, or left it.
    Switched(Switched),
    /// The ring had no room for this many records.
    Lost(u64),
    /// The kernel pauses sampling until [`Record::Unthrottled`], because there were too many samples.
    Throttled,
    /// The kernel samples again.
    Unthrottled,
    /// A thread was started.
    Started {
        /// The thread's process.
        process: u32,
        /// The thread.
        thread: u32,
        /// The time in nanoseconds of CLOCK_MONOTONIC.
        time_nano: u64,
    },
    /// A thread ended.
    Ended {
        /// The thread's process.
        process: u32,
        /// The thread.
        thread: u32,
        /// The time in nanoseconds of CLOCK_MONOTONIC.
        time_nano: u64,
    },
    /// A process has mapped executable memory, or made memory executable.
    Mapped(Mapped<'a>),
    /// A record of another type, which is ignored.
    Other,
}

/// A context switch from the point of view of the thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThreadSwitch {
    /// The thread was given the processor.
    In,
    /// The thread left the processor.
    Out {
        /// Whether the thread was still ready to run, so that it waits for a processor now.
        preempted: bool,
    },
}

/// A thread was given a processor, or left it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Switched {
    /// The process id, in the PID namespace of the process that opened the event.
    pub process: u32,
    /// The thread id, in the same namespace.
    pub thread: u32,
    /// The time in nanoseconds of CLOCK_MONOTONIC.
    pub time_nano: u64,
    /// The processor.
    pub processor: u32,
    /// Whether the thread got the processor or left it.
    pub change: ThreadSwitch,
}

/// Why a record is malformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MalformedRecord {
    /// The record is shorter than its fields.
    #[error("it ends too early")]
    Short,
    /// The length differs from the one in the header, or is no multiple of 8.
    #[error("its length is wrong")]
    Length,
    /// The stack is larger than requested, or its valid part is longer than the stack.
    #[error("the size of its stack is wrong")]
    Stack,
    /// The registers have an unknown ABI.
    #[error("its registers are of no known kind")]
    Registers,
}

/// The first fields of a sample, which are read even for processes that are not sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleHead {
    /// The process id.
    pub process: u32,
    /// When the thread left its processor, in nanoseconds of CLOCK_MONOTONIC; `None` if the sample was not taken at a
    /// switch.
    pub switched_nano: Option<u64>,
}

/// A record's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordHeader {
    kind: u32,
    misc: u16,
    /// The length of the record with its header, in bytes.
    pub length: usize,
}

impl RecordHeader {
    /// Reads a header.
    ///
    /// # Errors
    ///
    /// When no record can have this length.
    pub fn parse(bytes: [u8; HEADER]) -> Result<Self, MalformedRecord> {
        let [k0, k1, k2, k3, m0, m1, l0, l1] = bytes;
        let length = usize::from(u16::from_ne_bytes([l0, l1]));
        if length < HEADER || !length.is_multiple_of(8) {
            return Err(MalformedRecord::Length);
        }
        Ok(Self { kind: u32::from_ne_bytes([k0, k1, k2, k3]), misc: u16::from_ne_bytes([m0, m1]), length })
    }

    /// The offset of the process id in the record, if it is a sample, a switch or a mapping. The rest of the record is
    /// read only if that process is sampled.
    pub fn process_at(&self) -> Option<usize> {
        match self.kind {
            // The process id follows the header and the instruction pointer.
            kind::SAMPLE => Some(HEADER + 8),
            kind::MMAP2 => Some(HEADER),
            kind::SWITCH | kind::SWITCH_CPU_WIDE => self.length.checked_sub(SAMPLE_ID),
            _ => None,
        }
    }

    /// Parses the first fields of a sample.
    pub fn sample_head(&self, bytes: [u8; SAMPLE_HEAD]) -> Option<SampleHead> {
        let mut rest = RecordFields(bytes.get(HEADER + 8..)?);
        let (process, _thread) = rest.pair().ok()?;
        let time_nano = rest.word().ok()?;
        rest.word().ok()?;
        let is_switch = rest.word().ok()? == ONE_SWITCH;
        Some(SampleHead { process, switched_nano: is_switch.then_some(time_nano) })
    }

    /// Whether the record is a sample.
    pub fn is_sample(&self) -> bool {
        self.kind == kind::SAMPLE
    }
}

/// Parses a whole record.
///
/// # Errors
///
/// If the record is malformed. The caller can skip it and parse the next one.
pub fn parse(bytes: &[u8]) -> Result<Record<'_>, MalformedRecord> {
    let (header, rest) = bytes.split_first_chunk::<HEADER>().ok_or(MalformedRecord::Short)?;
    let header = RecordHeader::parse(*header)?;
    if header.length != bytes.len() {
        return Err(MalformedRecord::Length);
    }
    let mut rest = RecordFields(rest);
    Ok(match header.kind {
        kind::SAMPLE => match sample(header, &mut rest)? {
            sample if sample.period_nano == ONE_SWITCH => Record::Leaving(sample),
            sample if sample.period_nano == RESUMED_NANO => Record::Resumed(sample),
            sample => Record::Sample(sample),
        },
        kind::SWITCH | kind::SWITCH_CPU_WIDE => {
            let mut id = RecordFields(bytes.get(bytes.len().saturating_sub(SAMPLE_ID)..).unwrap_or_default());
            if rest.0.len() < SAMPLE_ID {
                return Err(MalformedRecord::Short);
            }
            let (process, thread) = id.pair()?;
            let time_nano = id.word()?;
            let (processor, _) = id.pair()?;
            let change = if header.misc & SWITCH_OUT == 0 {
                ThreadSwitch::In
            } else {
                ThreadSwitch::Out { preempted: header.misc & SWITCH_OUT_PREEMPT != 0 }
            };
            Record::Switched(Switched { process, thread, time_nano, processor, change })
        }
        kind::MMAP2 => Record::Mapped(mapped(&mut rest)?),
        kind::LOST => {
            // The first word is the id of the event.
            rest.word()?;
            Record::Lost(rest.word()?)
        }
        kind::LOST_SAMPLES => Record::Lost(rest.word()?),
        kind::THROTTLE => Record::Throttled,
        kind::UNTHROTTLE => Record::Unthrottled,
        kind::FORK | kind::EXIT => {
            let (process, _parent) = rest.pair()?;
            let (thread, _parent) = rest.pair()?;
            let time_nano = rest.word()?;
            if header.kind == kind::FORK {
                Record::Started { process, thread, time_nano }
            } else {
                Record::Ended { process, thread, time_nano }
            }
        }
        _ => Record::Other,
    })
}

fn sample<'a>(header: RecordHeader, rest: &mut RecordFields<'a>) -> Result<OnCpuSample<'a>, MalformedRecord> {
    let _instruction = rest.word()?;
    let (process, thread) = rest.pair()?;
    let time_nano = rest.word()?;
    // 4 reserved bytes follow.
    let (processor, _) = rest.pair()?;
    let period_nano = rest.word()?;
    let _count = rest.word()?;
    let ran_nano = rest.word()?;
    let calls =
        usize::try_from(rest.word()?).ok().and_then(|calls| calls.checked_mul(8)).ok_or(MalformedRecord::Short)?;
    let kernel = KernelChain(rest.bytes(calls)?);
    let user = match rest.word()? {
        ABI_NONE => User::None,
        abi => {
            let mut registers = Registers::default();
            for number in DWARF {
                registers.set(number, rest.word()?);
            }
            match abi {
                ABI_64 => User::Registers(registers),
                ABI_32 => User::OtherArchitecture,
                _ => return Err(MalformedRecord::Registers),
            }
        }
    };
    let size = rest.word()?;
    let stack = if size == 0 {
        &[]
    } else {
        // The kernel shortens the stack if the record would get too long, and omits it if the thread has no user stack.
        let size =
            usize::try_from(size).ok().filter(|&size| size <= STACK_BYTES as usize).ok_or(MalformedRecord::Stack)?;
        let bytes = rest.bytes(size)?;
        let valid = usize::try_from(rest.word()?).unwrap_or(usize::MAX);
        bytes.get(..valid).ok_or(MalformedRecord::Stack)?
    };
    // Time in a hypervisor or a guest counts as kernel: it is not the program's code either.
    let mode = if header.misc & CPU_MODE == CPU_MODE_USER { CpuMode::User } else { CpuMode::Kernel };
    Ok(OnCpuSample { process, thread, time_nano, period_nano, ran_nano, processor, mode, kernel, user, stack })
}

fn mapped<'a>(rest: &mut RecordFields<'a>) -> Result<Mapped<'a>, MalformedRecord> {
    let (process, thread) = rest.pair()?;
    let (start, length, offset) = (rest.word()?, rest.word()?, rest.word()?);
    let device = rest.pair()?;
    let (inode, _generation) = (rest.word()?, rest.word()?);
    let (protection, _flags) = rest.pair()?;
    // The path is padded with zeros to a multiple of 8 bytes.
    let path = rest.bytes(rest.0.len().checked_sub(SAMPLE_ID).ok_or(MalformedRecord::Short)?)?;
    let path = path.split(|byte| *byte == 0).next().unwrap_or_default();
    rest.word()?;
    let time_nano = rest.word()?;
    Ok(Mapped { process, thread, time_nano, start, length, offset, device, inode, protection, path })
}

/// The fields of a record that are not parsed yet.
struct RecordFields<'a>(&'a [u8]);

impl<'a> RecordFields<'a> {
    fn word(&mut self) -> Result<u64, MalformedRecord> {
        let (word, rest) = self.0.split_first_chunk().ok_or(MalformedRecord::Short)?;
        self.0 = rest;
        Ok(u64::from_ne_bytes(*word))
    }

    fn pair(&mut self) -> Result<(u32, u32), MalformedRecord> {
        let (&[a, b, c, d, e, f, g, h], rest) = self.0.split_first_chunk::<8>().ok_or(MalformedRecord::Short)?;
        self.0 = rest;
        Ok((u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h])))
    }

    fn bytes(&mut self, length: usize) -> Result<&'a [u8], MalformedRecord> {
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(MalformedRecord::Short)?;
        self.0 = rest;
        Ok(bytes)
    }
}

#[cfg(test)]
mod attacks;
#[cfg(test)]
pub(super) mod tests;
