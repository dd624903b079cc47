//! A debugger that attaches to a process while it is sampled.

use std::{
    process::{Command, Stdio},
    time::Duration,
};

use profbridge_sampler::message::Settings;

use super::{
    super::{
        Error,
        report::{Goal, Report},
    },
    perf::Perf,
    session::Session,
    targets::Programs,
};

/// How often it attaches.
const TIMES: u32 = 12;

/// How long a session runs before the first time.
const WARM_UP: Duration = Duration::from_secs(2);

pub(super) fn measure(programs: &Programs, report: &mut Report) -> Result<(), Error> {
    let mut target = programs.start("busy", &["2", "2"])?;
    let pid = target.pid();
    let mut session = Session::start(pid, Settings::default(), true)?;
    session.listen(WARM_UP)?;
    let attached = attach(pid, || session.listen(Duration::from_millis(50)))?;
    report.figure(format!("gdb attaches, of {TIMES}"), attached.into(), "", Some(Goal::AtLeast(TIMES.into())));
    let stops = session.total(|status| status.stops);
    report.figure("  stops meanwhile", stops as f64, "", Some(Goal::AtMost(0.0)));
    drop(session);
    if Perf::works() {
        let perf = Perf::start(programs.folder(), pid, Settings::default().rate_hertz, "fp")?;
        report.figure("  beside perf record", attach(pid, || Ok(()))?.into(), "", None);
        perf.finish()?;
    }
    if !target.lives() {
        return Err("the target ended".into());
    }
    Ok(())
}

/// How often gdb could read a register of a process, and so was its tracer.
fn attach(pid: u32, mut between: impl FnMut() -> Result<(), Error>) -> Result<u32, Error> {
    let mut attached = 0;
    for _ in 0..TIMES {
        let mut command = Command::new("gdb");
        command.args(["-nx", "-batch", "-p", &pid.to_string(), "-ex", "print $pc"]);
        let output = command.env("DEBUGINFOD_URLS", "").stdin(Stdio::null()).output();
        let output = output.map_err(|error| format!("gdb: {error}"))?;
        attached += u32::from(String::from_utf8_lossy(&output.stdout).contains("$1 = (void (*)()) 0x"));
        between()?;
    }
    Ok(attached)
}
