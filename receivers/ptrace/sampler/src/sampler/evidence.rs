//! Decides whether a thread executed nothing between its sample and the end of reading its memory: a pure function over
//! the kernel's data about that time.
//!
//! A sample wakes a reader on the processor of the sampled thread, which therefore has to leave that processor. The
//! memory that the reader reads belongs to the sample if the thread executed nothing in between. The kernel counts how
//! long a thread ran and how often it was given a processor, and records its registers when it leaves one.

use crate::perf::record::CpuMode;
use crate::unwind::Registers;

/// By how much a thread's running time after its sample may exceed the time from the sample to the switch, in
/// nanoseconds: the kernel stops the counter some microseconds after it records the switch (at most 5.7 in 999 of 1000
/// samples).
const BEHIND_SWITCH: u64 = 12_000;

/// How long after a sample in its own code the thread may leave its processor, in nanoseconds. A thread that runs
/// longer may loop back to the same registers.
const LONGEST_STAY: u64 = 1_000_000;

/// How much longer than usual a thread may continue to run after its sample if its registers at the switch are not
/// known, in nanoseconds. In 56,000 samples no thread left its instruction within this time.
const BEHIND_USUAL: u64 = 20_000;

/// The registers that the kernel changes during a system call (DWARF numbers of RAX, RCX and R11).
const CHANGED_BY_CALLS: [u8; 3] = [0, 2, 11];

/// The data about the time between a sample and the end of the reading.
#[derive(Debug, Clone, Copy)]
pub(super) struct StillEvidence {
    /// How long the thread had run according to its event, in nanoseconds: at the sample, before its memory was read,
    /// and after that.
    pub(super) ran: [u64; 3],
    /// Whether the thread was in its program or in the kernel when it was sampled.
    pub(super) mode: CpuMode,
    pub(super) registers: Registers,
    /// The processor on which the thread was sampled, and the one on which the reader runs.
    pub(super) processor: u32,
    pub(super) reader: Option<u32>,
    /// How long after the sample the thread left the processor, in nanoseconds, and its registers at that moment, if
    /// recorded.
    pub(super) left: Option<(u64, Registers)>,
    /// How long threads usually continue to run after a sample, in nanoseconds, if already known.
    pub(super) usual: Option<u64>,
}

/// Whether data that was read after a sample is valid for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Proof {
    /// Yes: the thread left its processor in the sampled state, and has executed nothing since.
    Proven,
    /// Yes, except for some microseconds: the thread ran only for as long as it takes to leave the kernel.
    Counted,
    /// Nothing proves that the data is valid.
    #[default]
    None,
}

impl Proof {
    /// Whether the data that was read may be used.
    pub(super) fn holds(self) -> bool {
        self != Self::None
    }
}

impl StillEvidence {
    /// What the evidence proves.
    pub(super) fn judge(&self) -> Proof {
        let [sampled, before, after] = self.ran;
        let Some(ran) = before.checked_sub(sampled).filter(|_| before == after) else { return Proof::None };
        match self.left {
            Some((until, registers)) => {
                let stayed =
                    self.left_with_same_registers(&registers, until) && ran <= until.saturating_add(BEHIND_SWITCH);
                if stayed { Proof::Proven } else { Proof::None }
            }
            None if self.is_short(ran) => Proof::Counted,
            None => Proof::None,
        }
    }

    /// Whether the thread left its processor with the registers of its sample. A thread sampled in the kernel may have
    /// executed more of the same system call, but its program has not continued.
    fn left_with_same_registers(&self, left: &Registers, until: u64) -> bool {
        match self.mode {
            CpuMode::User => self.registers == *left && until <= LONGEST_STAY,
            CpuMode::Kernel => (0..crate::unwind::COUNT as u8)
                .filter(|number| !CHANGED_BY_CALLS.contains(number))
                .all(|number| self.registers.get(number) == left.get(number)),
        }
    }

    /// Whether the thread ran after its sample only for as long as it takes to leave the kernel.
    fn is_short(&self, ran: u64) -> bool {
        self.mode == CpuMode::User
            && self.reader == Some(self.processor)
            && self.usual.is_some_and(|usual| ran <= usual.saturating_add(BEHIND_USUAL))
    }
}

/// How long threads continue to run after a sample before they leave their processor: the time to leave the kernel,
/// which depends on the machine.
#[derive(Debug, Default)]
pub(super) struct KernelExitTime {
    last: Vec<u64>,
    next: usize,
}

impl KernelExitTime {
    /// How many of the last samples are used, and how many are required.
    const SAMPLES: usize = 200;
    const LEAST: usize = 8;

    /// Adds how long a thread ran after its sample, in nanoseconds.
    pub(super) fn note(&mut self, ran: u64) {
        if self.last.len() < Self::SAMPLES {
            self.last.push(ran);
        } else if let Some(oldest) = self.last.get_mut(self.next) {
            *oldest = ran;
            self.next = (self.next + 1) % Self::SAMPLES;
        }
    }

    /// The time that was exceeded after nine tenths of the last samples, in nanoseconds; `None` if there are too few.
    pub(super) fn usual(&self) -> Option<u64> {
        let mut sorted = self.last.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 10).copied().filter(|_| sorted.len() >= Self::LEAST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registers() -> Registers {
        Registers::full(std::array::from_fn(|number| number as u64 + 100))
    }

    /// A thread that was sampled in its own code, left its processor 20 us later, and ran for 5 us more by its counter.
    fn left_with_same_registers() -> StillEvidence {
        StillEvidence {
            ran: [1_000, 26_000, 26_000],
            mode: CpuMode::User,
            registers: registers(),
            processor: 1,
            reader: Some(1),
            left: Some((20_000, registers())),
            usual: None,
        }
    }

    /// Guarantees: if a thread left its processor in the sampled state and has not run since, its data is proven, no
    /// matter on which processor the reader ran.
    #[test]
    fn proven() {
        assert_eq!(left_with_same_registers().judge(), Proof::Proven);
        assert_eq!(StillEvidence { reader: Some(0), ..left_with_same_registers() }.judge(), Proof::Proven);
        let kernel = StillEvidence {
            mode: CpuMode::Kernel,
            left: Some((20_000_000, registers())),
            ..left_with_same_registers()
        };
        assert_eq!(kernel.judge(), Proof::Proven);
    }

    /// Guarantees: if one register differs, in any bit, nothing is proven; except for the registers that a system call
    /// changes, if the thread was in one.
    #[test]
    fn one_bit() {
        for number in 0..crate::unwind::COUNT as u8 {
            for bit in 0..64 {
                let mut left = registers();
                left.set(number, left.get(number).unwrap() ^ 1 << bit);
                let at = |mode| {
                    StillEvidence { mode, left: Some((20_000, left)), ..left_with_same_registers() }.judge().holds()
                };
                assert!(!at(CpuMode::User), "{number} {bit}");
                assert_eq!(at(CpuMode::Kernel), CHANGED_BY_CALLS.contains(&number), "{number} {bit}");
            }
        }
    }

    /// Guarantees: if a thread was given a processor again before or during the reading, nothing is proven, even if the
    /// registers are the same.
    #[test]
    fn ran_again() {
        let counted = |sampled, before, after| {
            StillEvidence { ran: [sampled, before, after], ..left_with_same_registers() }.judge()
        };
        assert_eq!(counted(1_000, 26_000, 26_001), Proof::None);
        assert_eq!(counted(1_000, 33_000, 33_000), Proof::Proven);
        assert_eq!(counted(1_000, 33_001, 33_001), Proof::None);
        // A counter must not decrease.
        assert_eq!(counted(27_000, 26_000, 26_000), Proof::None);
        let late = StillEvidence { left: Some((LONGEST_STAY + 1, registers())), ..left_with_same_registers() };
        assert_eq!(late.judge(), Proof::None);
    }

    /// Guarantees: without the registers at the switch, a sample is accepted only if the thread was in its own code,
    /// ran not much longer than usual, and was read on its own processor.
    #[test]
    fn without_registers() {
        let without = StillEvidence { left: None, usual: Some(5_000), ..left_with_same_registers() };
        assert_eq!(without.judge(), Proof::Counted);
        for other in [
            StillEvidence { usual: None, ..without },
            StillEvidence { usual: Some(4_999), ..without },
            StillEvidence { mode: CpuMode::Kernel, ..without },
            StillEvidence { reader: Some(0), ..without },
            StillEvidence { reader: None, ..without },
        ] {
            assert_eq!(other.judge(), Proof::None, "{other:?}");
        }
    }

    /// Guarantees: the usual time is the one that nine tenths of the last two hundred samples exceed, and is unknown
    /// while there are too few samples.
    #[test]
    fn way_out() {
        let mut way_out = KernelExitTime::default();
        for ran in 1..KernelExitTime::LEAST as u64 {
            way_out.note(ran);
        }
        assert_eq!(way_out.usual(), None);
        (0..100).for_each(|_| way_out.note(1_000_000));
        assert_eq!(way_out.usual(), Some(1_000_000));
        (0..200).for_each(|ran| way_out.note(ran * 10));
        assert_eq!(way_out.usual(), Some(200));
    }
}
