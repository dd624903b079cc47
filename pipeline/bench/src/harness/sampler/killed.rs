//! Targets of samplers that are killed.

use std::{
    fs,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use profbridge_sampler::message::{Settings, Stops};

use super::{
    super::{
        Error,
        report::{Goal, Report},
    },
    session::Session,
    targets::Programs,
};

/// How often.
const TIMES: u64 = 100;
/// A target that runs has done some work after this long, even where others keep all processors busy.
const PATIENCE: Duration = Duration::from_secs(2);

pub(super) fn measure(programs: &Programs, report: &mut Report) -> Result<(), Error> {
    for (how, stops) in [("", Stops::default()), ("that stops threads, ", Stops::Always)] {
        let unharmed = unharmed(programs, stops)?;
        let name = format!("alive, running, not stopped after SIGKILL of the sampler, {how}of {TIMES}");
        report.figure(name, unharmed as f64, "", Some(Goal::AtLeast(TIMES as f64)));
    }
    Ok(())
}

/// How many of the times the target was left as it was.
fn unharmed(programs: &Programs, stops: Stops) -> Result<u64, Error> {
    let mut target = programs.start("busy", &["3", "2"])?;
    let settings = Settings { rate_hertz: 1000.0, max_cpu: 1.0, max_stopped: 1.0, stops, ..Settings::default() };
    let (mut unharmed, mut rng) = (0, fastrand::Rng::with_seed(9));
    for _ in 0..TIMES {
        let mut session = Session::start(target.pid(), settings, true)?;
        session.listen(Duration::from_micros(rng.u64(..20_000)))?;
        kill(Pid::from_raw(i32::try_from(session.pid())?), Signal::SIGKILL)?;
        session.wait_for_end()?;
        let before = target.number("", "work")?;
        let end = Instant::now() + PATIENCE;
        let mut works = false;
        while !works && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
            works = target.number("", "work")? > before;
        }
        unharmed += u64::from(target.lives() && works && !held(target.pid())?);
    }
    Ok(unharmed)
}

/// Whether a thread of a process is stopped or traced.
fn held(pid: u32) -> Result<bool, Error> {
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let status = fs::read_to_string(thread?.path().join("status"))?;
        let field =
            |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default().trim().to_owned();
        if field("State:").starts_with(['t', 'T']) || field("TracerPid:") != "0" {
            return Ok(true);
        }
    }
    Ok(false)
}
