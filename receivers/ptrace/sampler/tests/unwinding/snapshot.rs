//! The registers and the stack of a stopped thread, taken in the simplest way: attach, read, detach.

use std::io;
use std::sync::Arc;

use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use profbridge_sampler::address_space::AddressSpace;
use profbridge_sampler::elf::ObjectCache;
use profbridge_sampler::process_files::ProcessFiles;
use profbridge_sampler::unwind::{Frame, Registers, StackCopy, UnwindOutcome, Unwinder};

/// The state of a thread at one moment.
pub(crate) struct Snapshot {
    pub(crate) registers: Registers,
    pub(crate) stack: StackCopy,
}

impl Snapshot {
    /// Stops a thread, copies at most `length` bytes of its stack, and resumes it.
    pub(crate) fn take(files: &ProcessFiles, thread: i32, length: usize) -> io::Result<Self> {
        let pid = Pid::from_raw(thread);
        ptrace::seize(pid, ptrace::Options::empty())?;
        let taken = ptrace::interrupt(pid)
            .map_err(io::Error::from)
            .and_then(|()| waitpid(pid, Some(WaitPidFlag::__WALL)).map_err(io::Error::from))
            .and_then(|_| registers(pid))
            .map(|registers| {
                let start = registers.stack_pointer().saturating_sub(128);
                Self {
                    registers,
                    stack: StackCopy { start, bytes: copy(files, start, length), ..StackCopy::default() },
                }
            });
        ptrace::detach(pid, None)?;
        taken
    }

    /// Unwinds the stack. If it continues elsewhere (on a signal handler's alternate stack), reads that as well and
    /// unwinds again.
    pub(crate) fn unwind(
        &mut self,
        files: &ProcessFiles,
        space: &AddressSpace,
        unwinder: &mut Unwinder,
    ) -> (Vec<Frame>, UnwindOutcome) {
        let mut frames = Vec::new();
        let mut outcome = unwinder.unwind(space, &self.registers, &mut self.stack, &mut frames);
        if let Some(address) = outcome.needs_memory
            && self.stack.second_bytes.is_empty()
        {
            self.stack.second_start = address;
            self.stack.second_bytes = copy(files, address, 64 << 10);
            outcome = unwinder.unwind(space, &self.registers, &mut self.stack, &mut frames);
        }
        (frames, outcome)
    }
}

fn copy(files: &ProcessFiles, start: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let count = files.read_memory(start, &mut bytes);
    bytes.truncate(count);
    bytes
}

#[cfg(target_arch = "x86_64")]
fn registers(pid: Pid) -> io::Result<Registers> {
    let r = ptrace::getregs(pid)?;
    Ok(Registers::full([
        r.rax, r.rdx, r.rcx, r.rbx, r.rsi, r.rdi, r.rbp, r.rsp, r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14, r.r15,
        r.rip,
    ]))
}

#[cfg(not(target_arch = "x86_64"))]
fn registers(_: Pid) -> io::Result<Registers> {
    Err(io::ErrorKind::Unsupported.into())
}

/// A process whose threads are unwound.
pub(crate) struct UnwoundProcess {
    pub(crate) files: ProcessFiles,
    pub(crate) space: Arc<AddressSpace>,
    pub(crate) unwinder: Unwinder,
}

impl UnwoundProcess {
    pub(crate) fn open(pid: u32, cache: &mut ObjectCache) -> Self {
        let files = ProcessFiles::open(pid).expect("the process can be opened");
        let space = AddressSpace::load(&files, None, cache).expect("its maps can be read");
        Self { files, space: Arc::new(space), unwinder: Unwinder::new() }
    }

    pub(crate) fn reload(&mut self, cache: &mut ObjectCache) {
        self.space =
            Arc::new(AddressSpace::load(&self.files, Some(&self.space), cache).expect("its maps can be read again"));
    }

    /// Stops a thread and unwinds it. If the stack ends in unknown code, reads the process's maps again.
    pub(crate) fn look_at_known_code(
        &mut self,
        thread: i32,
        cache: &mut ObjectCache,
    ) -> (Snapshot, Vec<Frame>, UnwindOutcome) {
        let (mut snapshot, mut frames, mut outcome) = self.look(thread);
        if outcome.unknown_code.is_some() {
            self.reload(cache);
            (frames, outcome) = snapshot.unwind(&self.files, &self.space, &mut self.unwinder);
        }
        (snapshot, frames, outcome)
    }

    /// Unwinds a thread by only the stack pointer and the instruction pointer, which are all that is known of a blocked
    /// thread.
    pub(crate) fn unwind_passive(&mut self, snapshot: &mut Snapshot) -> (Vec<Frame>, UnwindOutcome) {
        let registers = snapshot.registers;
        let two = Registers::passive(registers.stack_pointer(), registers.instruction_pointer());
        let mut frames = Vec::new();
        let outcome = self.unwinder.unwind(&self.space, &two, &mut snapshot.stack, &mut frames);
        (frames, outcome)
    }

    /// Stops a thread and unwinds it.
    pub(crate) fn look(&mut self, thread: i32) -> (Snapshot, Vec<Frame>, UnwindOutcome) {
        let mut snapshot = Snapshot::take(&self.files, thread, 256 << 10).expect("the thread can be stopped");
        let (frames, outcome) = snapshot.unwind(&self.files, &self.space, &mut self.unwinder);
        (snapshot, frames, outcome)
    }
}
