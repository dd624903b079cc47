//! Parses records from an independent encoder, which follows the kernel's layout and not the parser.

use proptest::prelude::*;

use super::*;

/// A sample as `perf_event_open(2)` lays it out.
#[derive(Debug, Clone)]
pub(in crate::perf) struct EncodedSample {
    pub(in crate::perf) misc: u16,
    pub(in crate::perf) process: u32,
    pub(in crate::perf) thread: u32,
    pub(in crate::perf) time: u64,
    pub(in crate::perf) period: u64,
    pub(in crate::perf) ran: u64,
    pub(in crate::perf) chain: Vec<u64>,
    pub(in crate::perf) abi: u64,
    /// The registers, in the order of `perf_regs.h`.
    pub(in crate::perf) registers: Vec<u64>,
    pub(in crate::perf) stack: Vec<u8>,
    pub(in crate::perf) valid: u64,
}

impl Default for EncodedSample {
    fn default() -> Self {
        Self {
            misc: 2,
            process: 7,
            thread: 8,
            time: 9,
            period: 10,
            ran: 11,
            chain: Vec::new(),
            abi: 2,
            registers: (100..117).collect(),
            stack: vec![1, 2, 3, 4, 5, 6, 7, 8],
            valid: 8,
        }
    }
}

impl EncodedSample {
    pub(in crate::perf) fn bytes(&self) -> Vec<u8> {
        let mut body = Vec::new();
        body.extend(0x4000_u64.to_ne_bytes());
        body.extend(self.process.to_ne_bytes());
        body.extend(self.thread.to_ne_bytes());
        body.extend(self.time.to_ne_bytes());
        body.extend([3, 0, 0, 0, 0, 0, 0, 0]);
        body.extend(self.period.to_ne_bytes());
        body.extend(words(&[77, self.ran]));
        body.extend((self.chain.len() as u64).to_ne_bytes());
        body.extend(words(&self.chain));
        body.extend(self.abi.to_ne_bytes());
        for register in &self.registers {
            body.extend(register.to_ne_bytes());
        }
        body.extend((self.stack.len() as u64).to_ne_bytes());
        body.extend(&self.stack);
        if !self.stack.is_empty() {
            body.extend(self.valid.to_ne_bytes());
        }
        record(9, self.misc, &body)
    }
}

/// A mapping as `perf_event_open(2)` lays it out (`PERF_RECORD_MMAP2`), at time 9.
pub(super) fn mapping(path: &[u8]) -> Vec<u8> {
    let mut body = words(&[8 << 32 | 7, 0x7000, 0x2000, 0x1000, 1 << 32 | 0xfe, 131, 1, 2 << 32 | 5]);
    body.extend(path);
    body.resize((body.len() + 1).next_multiple_of(8), 0);
    body.extend(words(&[8 << 32 | 7, 9, 3]));
    record(10, 0, &body)
}

/// A record of any type.
pub(in crate::perf) fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = kind.to_ne_bytes().to_vec();
    bytes.extend(misc.to_ne_bytes());
    bytes.extend(u16::try_from(body.len() + 8).unwrap().to_ne_bytes());
    bytes.extend(body);
    bytes
}

/// Converts words to bytes.
pub(super) fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Guarantees: each register of a sample gets its DWARF number. The kernel's `perf_regs.h` has another order.
#[test]
fn registers() {
    let bytes = EncodedSample::default().bytes();
    let Ok(Record::Sample(sample)) = parse(&bytes) else { panic!("no sample") };
    let User::Registers(registers) = sample.user else { panic!("no registers") };
    // AX, DX, CX, BX, SI, DI, BP, SP, R8 to R15 and the instruction pointer.
    let expected = [100, 103, 102, 101, 104, 105, 106, 107, 109, 110, 111, 112, 113, 114, 115, 116, 108];
    assert_eq!(registers, Registers::full(expected));
}

/// Guarantees: records other than samples are parsed, with and without the fields that the kernel appends.
#[test]
fn others() {
    let event = words(&[0x0000_0003_0000_0002, 1, 0]);
    for tail in [&[][..], &event] {
        let with = |kind, body: &[u64]| record(kind, 0, &[&words(body)[..], tail].concat());
        assert_eq!(parse(&with(2, &[77, 5])), Ok(Record::Lost(5)));
        assert_eq!(parse(&with(13, &[6])), Ok(Record::Lost(6)));
        assert_eq!(parse(&with(5, &[1, 2, 3])), Ok(Record::Throttled));
        assert_eq!(parse(&with(6, &[1, 2, 3])), Ok(Record::Unthrottled));
        let task = [0x0000_0001_0000_0002, 0x0000_0003_0000_0004, 99];
        assert_eq!(parse(&with(7, &task)), Ok(Record::Started { process: 2, thread: 4, time_nano: 99 }));
        assert_eq!(parse(&with(4, &task)), Ok(Record::Ended { process: 2, thread: 4, time_nano: 99 }));
        assert_eq!(parse(&with(1, &task)), Ok(Record::Other));
        assert_eq!(parse(&with(u32::MAX, &task)), Ok(Record::Other));
    }
}

/// Guarantees: all fields that identify a mapping are read, with a path of any length.
#[test]
fn mappings() {
    for path in [&b""[..], b"/lib/a", b"/lib/abc", b"/lib/a b (deleted)"] {
        let expected = Mapped {
            process: 7,
            thread: 8,
            time_nano: 9,
            start: 0x7000,
            length: 0x2000,
            offset: 0x1000,
            device: (0xfe, 1),
            inode: 131,
            protection: 5,
            path,
        };
        assert_eq!(parse(&mapping(path)), Ok(Record::Mapped(expected)));
    }
}

/// Guarantees: a switch record yields the thread, the time, the processor and the kind of switch, no matter whether the
/// event belongs to a thread or to a processor; a switch sample is distinguished from a sample by the clock.
#[test]
fn switches() {
    let id = words(&[0x0000_0003_0000_0002, 99, 5]);
    for (kind, before) in [(14, vec![]), (15, words(&[0x0000_0008_0000_0007]))] {
        for (misc, change) in [
            (0, ThreadSwitch::In),
            (1 << 13, ThreadSwitch::Out { preempted: false }),
            (3 << 13, ThreadSwitch::Out { preempted: true }),
        ] {
            let bytes = record(kind, misc | 1, &[&before[..], &id].concat());
            let switched = Switched { process: 2, thread: 3, time_nano: 99, processor: 5, change };
            assert_eq!(parse(&bytes), Ok(Record::Switched(switched)), "{kind} {misc}");
            let header = RecordHeader::parse(*bytes.first_chunk().unwrap()).unwrap();
            assert_eq!(bytes[header.process_at().unwrap()..][..4], [2, 0, 0, 0]);
        }
    }
    let leaving = EncodedSample { period: 1, ..EncodedSample::default() }.bytes();
    let header = RecordHeader::parse(*leaving.first_chunk().unwrap()).unwrap();
    let head = header.sample_head(*leaving.first_chunk().unwrap());
    assert_eq!(head, Some(SampleHead { process: 7, switched_nano: Some(9) }));
    let head = header.sample_head(*EncodedSample::default().bytes().first_chunk().unwrap());
    assert_eq!(head, Some(SampleHead { process: 7, switched_nano: None }));
    assert!(matches!(parse(&leaving), Ok(Record::Leaving(sample)) if sample.ran_nano == 11 && sample.thread == 8));
}

proptest! {
    /// Guarantees: a sample contains the values that the kernel wrote, with the valid part of the stack, no matter what
    /// follows.
    #[test]
    fn samples(
        process: u32, thread: u32, time: u64, period in 2_u64.., ran: u64, mode in 1u16..3, flags in 0u16..0x1000,
        chain in prop::collection::vec(prop_oneof![any::<u64>(), 0xffff_8000_0000_0000_u64..], 0..128),
        registers in prop::option::of(prop::collection::vec(any::<u64>(), 17)),
        blocks in 0usize..2049, seed: u8, share in 0.0..=1.0,
    ) {
        let stack: Vec<u8> = (0..blocks * 8).map(|at| (at as u8).wrapping_mul(31) ^ seed).collect();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
        let valid = (stack.len() as f64 * share) as u64;
        let encoded = EncodedSample {
            misc: mode | flags << 3, process, thread, time, period, ran, chain: chain.clone(),
            abi: if registers.is_some() { 2 } else { 0 },
            registers: registers.clone().unwrap_or_default(),
            stack: stack.clone(), valid,
        };
        let bytes = encoded.bytes();
        let Ok(Record::Sample(sample)) = parse(&bytes) else { panic!("no sample") };
        prop_assert_eq!((sample.process, sample.thread), (process, thread));
        prop_assert_eq!((sample.time_nano, sample.period_nano, sample.ran_nano), (time, period, ran));
        prop_assert_eq!(sample.mode == CpuMode::Kernel, mode == 1);
        prop_assert_eq!(sample.stack, &stack[..valid as usize]);
        let marks = 0xffff_ffff_ffff_f001..;
        let calls: Vec<u64> = chain.iter().copied().filter(|call| !marks.contains(call)).collect();
        prop_assert_eq!(sample.kernel.addresses().collect::<Vec<_>>(), calls);
        match (sample.user, registers) {
            (User::None, None) => {}
            (User::Registers(found), Some(registers)) => {
                prop_assert_eq!(found.stack_pointer(), registers[7]);
                prop_assert_eq!(found.instruction_pointer(), registers[8]);
                prop_assert_eq!(found.get(15), Some(registers[16]));
            }
            (found, registers) => panic!("{found:?} {registers:?}"),
        }
    }
}
