//! The part of `struct perf_event_attr` (the kernel's `include/uapi/linux/perf_event.h`) that is used here.

/// `PERF_TYPE_SOFTWARE`.
const TYPE_SOFTWARE: u32 = 1;
/// `PERF_COUNT_SW_CPU_CLOCK`: a timer that measures how long the thread runs. Virtual machines often have no counters
/// of processor cycles.
const CPU_CLOCK: u64 = 0;
/// `PERF_COUNT_SW_CONTEXT_SWITCHES`: counts how often a thread leaves its processor.
const CONTEXT_SWITCHES: u64 = 3;
/// `PERF_COUNT_SW_DUMMY`: counts nothing. Other events write into its ring buffer.
const DUMMY: u64 = 9;

/// `PERF_FORMAT_TOTAL_TIME_ENABLED`: besides its count, an event reports for how long it was enabled. For the event of
/// a thread, this is how long the thread ran on all processors, even if the event counts on one of them only.
const TIME_ENABLED: u64 = 1;

/// `PERF_SAMPLE_*`.
pub(super) mod sample {
    pub(in crate::perf) const IP: u64 = 1 << 0;
    pub(in crate::perf) const TID: u64 = 1 << 1;
    pub(in crate::perf) const TIME: u64 = 1 << 2;
    pub(in crate::perf) const READ: u64 = 1 << 4;
    pub(in crate::perf) const CALLCHAIN: u64 = 1 << 5;
    pub(in crate::perf) const CPU: u64 = 1 << 7;
    pub(in crate::perf) const PERIOD: u64 = 1 << 8;
    pub(in crate::perf) const REGS_USER: u64 = 1 << 12;
    pub(in crate::perf) const STACK_USER: u64 = 1 << 13;
}

/// The parts of a sample, in the order of the kernel's documentation: see [`super::record`].
pub(super) const SAMPLE_TYPE: u64 = sample::IP
    | sample::TID
    | sample::TIME
    | sample::READ
    | sample::CALLCHAIN
    | sample::CPU
    | sample::PERIOD
    | sample::REGS_USER
    | sample::STACK_USER;

/// The registers of `arch/x86/include/uapi/asm/perf_regs.h` in a sample: AX, BX, CX, DX, SI, DI, BP, SP, IP (0 to 8)
/// and R8 to R15 (16 to 23). The flags and segments between them are not needed for unwinding.
pub const REGISTERS: u64 = 0x00ff_01ff;

/// How many bytes of the stack a sample has: a multiple of 8 below 64 KiB. More would not slow the target down
/// measurably, but each sample takes its full size in the ring.
pub const STACK_BYTES: u32 = 16 << 10;

/// How many bytes of the stack the sample of a switch has. Each sample takes its full size in the ring.
pub const SWITCH_STACK_BYTES: u32 = 512;

/// The period of [`EventAttr::of_resumption`] in nanoseconds. It distinguishes samples of these events from others,
/// whose periods are longer.
pub(super) const RESUMED_NANO: u64 = 20_001;

/// The bits of `perf_event_attr` after `read_format`, from the lowest one on.
mod bit {
    pub(super) const DISABLED: u64 = 1 << 0;
    pub(super) const EXCLUDE_KERNEL: u64 = 1 << 5;
    pub(super) const TASK: u64 = 1 << 13;
    pub(super) const EXCLUDE_HV: u64 = 1 << 6;
    pub(super) const EXCLUDE_IDLE: u64 = 1 << 7;
    pub(super) const MMAP: u64 = 1 << 8;
    pub(super) const WATERMARK: u64 = 1 << 14;
    pub(super) const SAMPLE_ID_ALL: u64 = 1 << 18;
    pub(super) const EXCLUDE_CALLCHAIN_KERNEL: u64 = 1 << 21;
    pub(super) const EXCLUDE_CALLCHAIN_USER: u64 = 1 << 22;
    pub(super) const MMAP2: u64 = 1 << 23;
    pub(super) const USE_CLOCKID: u64 = 1 << 25;
    pub(super) const CONTEXT_SWITCH: u64 = 1 << 26;
    #[cfg(test)]
    pub(super) const INHERIT: u64 = 1 << 1;
}

/// `PERF_ATTR_SIZE_VER5`, which every kernel since 4.1 knows. A kernel rejects a structure with more fields than it
/// knows.
const SIZE: u32 = 112;

/// What an event samples and records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// A sample is taken whenever the thread has run for this many nanoseconds.
    pub period_nano: u64,
    /// Whether time in the kernel is sampled as well, with the kernel's call chain and with the program's registers and
    /// stack at its entry to the kernel.
    pub kernel: bool,
    /// Whether the reader is woken only when the ring is half full, instead of by each sample. This halves the cost of
    /// sampling for the target.
    pub seldom_woken: bool,
    /// What the event records besides samples, about its thread or about the threads on its processor.
    pub records: Records,
}

/// What an event records about threads besides its samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Records {
    /// Nothing.
    None,
    /// When threads start and end.
    Lives,
    /// The same as [`Self::Lives`], and when threads are switched in and out.
    Switches,
}

/// `perf_event_attr` in the kernel's layout.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventAttr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clock: i32,
    sample_regs_intr: u64,
    aux_watermark: u32,
    sample_max_stack: u16,
    reserved: u16,
}

const _: () = assert!(size_of::<EventAttr>() == SIZE as usize);

impl EventAttr {
    /// An event for one thread or processor. It counts from the moment it is opened, and does not include threads that
    /// the thread starts.
    pub fn new(wanted: Wanted) -> Self {
        let kernel = if wanted.kernel { 0 } else { bit::EXCLUDE_KERNEL | bit::EXCLUDE_CALLCHAIN_KERNEL };
        Self {
            kind: TYPE_SOFTWARE,
            size: SIZE,
            config: CPU_CLOCK,
            sample_period: wanted.period_nano.max(1),
            sample_type: SAMPLE_TYPE,
            read_format: TIME_ENABLED,
            // The kernel could also record the call chain of the program, but only by frame pointers. The program's
            // part is unwound from the copied stack instead.
            flags: kernel
                | if wanted.seldom_woken { bit::WATERMARK } else { 0 }
                | match wanted.records {
                    Records::None => 0,
                    Records::Lives => bit::TASK,
                    Records::Switches => bit::CONTEXT_SWITCH | bit::TASK,
                }
                | bit::EXCLUDE_CALLCHAIN_USER
                | bit::EXCLUDE_HV
                | bit::EXCLUDE_IDLE
                | bit::SAMPLE_ID_ALL
                // Executable mappings are recorded, so that the address of a sample is looked up among the mappings at
                // the time of the sample.
                | bit::MMAP
                | bit::MMAP2
                | bit::USE_CLOCKID,
            // A watermark of 0 means half of the ring (kernel/events/ring_buffer.c, `ring_buffer_init`).
            wakeup_events: u32::from(!wanted.seldom_woken),
            breakpoint_type: 0,
            config1: 0,
            config2: 0,
            branch_sample_type: 0,
            sample_regs_user: REGISTERS,
            sample_stack_user: STACK_BYTES,
            clock: libc::CLOCK_MONOTONIC,
            sample_regs_intr: 0,
            aux_watermark: 0,
            sample_max_stack: 0,
            reserved: 0,
        }
    }

    /// An event that takes a sample whenever its thread leaves a processor, with the registers with which the program
    /// will continue and the innermost part of its stack. The samples have a period of 1, and never wake the reader.
    /// The event requires the right to sample the kernel.
    pub fn of_switches() -> Self {
        let sampling = Self::new(Wanted { period_nano: 1, kernel: true, seldom_woken: true, records: Records::None });
        Self {
            config: CONTEXT_SWITCHES,
            flags: sampling.flags | bit::EXCLUDE_CALLCHAIN_KERNEL,
            sample_stack_user: SWITCH_STACK_BYTES,
            ..sampling
        }
    }

    /// An event that takes one sample in user mode each time that it is armed ([`super::open::arm`]), 20 us after its
    /// thread is next switched in. Its samples never wake the reader.
    pub fn of_resumption() -> Self {
        let wanted = Wanted { period_nano: RESUMED_NANO, kernel: false, seldom_woken: true, records: Records::None };
        let sampling = Self::new(wanted);
        Self { flags: sampling.flags & !(bit::MMAP | bit::MMAP2) | bit::DISABLED, ..sampling }
    }

    /// An event that counts nothing. Other events write into its ring.
    pub fn of_ring() -> Self {
        let sampling = Self::new(Wanted { period_nano: 1, kernel: false, seldom_woken: true, records: Records::None });
        Self { config: DUMMY, sample_period: 0, ..sampling }
    }

    /// Whether time in the kernel is sampled.
    #[cfg(test)]
    pub(crate) fn sees_kernel(&self) -> bool {
        self.flags & bit::EXCLUDE_KERNEL == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: the fields have the offsets that the kernel expects (`linux/perf_event.h`), threads that a thread
    /// starts are never included, and samples use the requested clock, CLOCK_MONOTONIC.
    #[test]
    fn layout() {
        let attr = EventAttr::new(Wanted {
            period_nano: 9_900_990,
            kernel: false,
            seldom_woken: false,
            records: Records::None,
        });
        assert_eq!(std::mem::offset_of!(EventAttr, sample_period), 16);
        assert_eq!(std::mem::offset_of!(EventAttr, sample_type), 24);
        assert_eq!(std::mem::offset_of!(EventAttr, flags), 40);
        assert_eq!(std::mem::offset_of!(EventAttr, wakeup_events), 48);
        assert_eq!(std::mem::offset_of!(EventAttr, sample_regs_user), 80);
        assert_eq!(std::mem::offset_of!(EventAttr, sample_stack_user), 88);
        assert_eq!(std::mem::offset_of!(EventAttr, clock), 92);
        assert_eq!(attr.sample_period, 9_900_990);
        assert_eq!(attr.flags & bit::INHERIT, 0);
        assert_eq!((attr.flags & bit::USE_CLOCKID, attr.clock), (1 << 25, 1));
        assert!(!attr.sees_kernel());
        assert!(
            EventAttr::new(Wanted { period_nano: 1, kernel: true, seldom_woken: true, records: Records::Switches })
                .sees_kernel()
        );
        assert_eq!(REGISTERS.count_ones(), 17);
        assert!(STACK_BYTES.is_multiple_of(8) && STACK_BYTES < 64 << 10);
    }
}
