//! The floor: what the system calls of sampling one running thread cost on this machine, with nothing around them.
//!
//! It differs by half between machines, and between two minutes on a shared one; most of it is being woken. A share of a core says little without it.

use std::{fs::File, os::unix::fs::FileExt, time::Duration};

use nix::{
    sys::{
        ptrace,
        wait::{WaitPidFlag, waitpid},
    },
    time::{ClockId, clock_gettime},
    unistd::Pid,
};

use super::super::Error;

/// As often as the sampler by default.
const PERIOD: Duration = Duration::from_nanos(9_900_990);

/// What is copied of the stack: what the sampler copies of small ones.
const COPY: usize = 4224;

/// The share of a core, in percent, that sampling the busiest thread of a process takes at least, measured for so long.
pub(super) fn share(process: u32, time: Duration) -> Result<f64, Error> {
    let thread = busiest(process)?;
    // The tracer is a thread: one of its own leaves nothing behind.
    let measured = std::thread::spawn(move || sample(process, thread, time).map_err(|error| error.to_string()));
    Ok(measured.join().map_err(|_| "the floor could not be measured")??)
}

fn sample(process: u32, thread: u32, time: Duration) -> Result<f64, Error> {
    let open = |name: &str| File::open(format!("/proc/{process}/task/{thread}/{name}"));
    let (call, memory) = (open("syscall")?, open("mem")?);
    let pid = Pid::from_raw(thread.cast_signed());
    let mut buffer = [0; COPY];
    let ticks = (time.as_nanos() / PERIOD.as_nanos()).max(1);
    let before = cpu()?;
    for _ in 0..ticks {
        std::thread::sleep(PERIOD);
        call.read_at(&mut buffer, 0)?;
        ptrace::seize(pid, ptrace::Options::empty())?;
        ptrace::interrupt(pid)?;
        waitpid(pid, Some(WaitPidFlag::__WALL))?;
        let registers = ptrace::getregs(pid)?;
        memory.read_at(&mut buffer, registers.rsp)?;
        ptrace::detach(pid, None)?;
    }
    let used = cpu()?.saturating_sub(before);
    Ok(100.0 * used.as_secs_f64() / (PERIOD.as_secs_f64() * ticks as f64))
}

/// The thread that ran most. One that blocks would have its system calls interrupted.
fn busiest(process: u32) -> Result<u32, Error> {
    let mut busiest = (0, process);
    for thread in std::fs::read_dir(format!("/proc/{process}/task"))? {
        let thread = thread?;
        let ran = std::fs::read_to_string(thread.path().join("schedstat"))?;
        let ran: u64 = ran.split_whitespace().next().unwrap_or("0").parse()?;
        busiest = busiest.max((ran, thread.file_name().to_string_lossy().parse()?));
    }
    Ok(busiest.1)
}

fn cpu() -> Result<Duration, Error> {
    Ok(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?.into())
}
