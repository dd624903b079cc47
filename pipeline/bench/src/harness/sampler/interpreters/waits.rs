//! System calls of an interpreter's threads that fail or are shortened because these are sampled with their names.

use std::time::Duration;

use profbridge_sampler::message::Settings;

use super::{
    super::{
        super::{
            Error,
            report::{Goal, Report},
        },
        matrix::{Call, differing, go},
        session::Session,
        targets::Programs,
    },
    functions,
    versions::Version,
};

/// How long each call waits, in milliseconds.
const LENGTH: u32 = 2000;

pub(super) fn measure(python: &Version, programs: &Programs, report: &mut Report) -> Result<(), Error> {
    let (alone, _) = calls(python, programs, false)?;
    let (sampled, session) = calls(python, programs, true)?;
    let failed = differing(&alone, &sampled, f64::from(LENGTH)).len();
    let name = &python.name;
    let row = format!("{name}, {} system calls of 2 s on a thread each: failed or shortened", sampled.len());
    report.figure(row, failed as f64, "", Some(Goal::AtMost(0.0)));
    let interrupted = sampled.iter().filter(|call| call.1 == format!("-1 {}", nix::errno::Errno::EINTR as i32));
    let before = alone.iter().filter(|call| call.1 == format!("-1 {}", nix::errno::Errno::EINTR as i32));
    let new = interrupted.count() as f64 - before.count() as f64;
    report.figure(
        format!("{name}:   failed with EINTR, beyond those of nobody sampled"),
        new,
        "",
        Some(Goal::AtMost(0.0)),
    );
    let Some(session) = session else { return Ok(()) };
    report.figure(format!("{name}:   stops"), session.status.stops as f64, "", Some(Goal::AtMost(0.0)));
    let with_names = |locations: &[_]| functions(&session, locations).any(|(name, ..)| name == "call");
    let looks: u64 =
        session.stacks.iter().filter(|((_, locations), _)| with_names(locations)).map(|(_, count)| count).sum();
    report.figure(format!("{name}:   looks at these threads that named their functions"), looks as f64, "", None);
    report.detail("matrix of an interpreter, alone and sampled", (&alone, &sampled));
    Ok(())
}

fn calls(python: &Version, programs: &Programs, sampled: bool) -> Result<(Vec<Call>, Option<Session>), Error> {
    let library = programs.library("matrix_library")?;
    let arguments = [&*library.to_string_lossy(), &LENGTH.to_string()];
    let mut target = programs.interpret(&python.program.to_string_lossy(), "matrix.py", &arguments)?;
    let mut session = sampled.then(|| Session::start(target.pid(), Settings::default(), true)).transpose()?;
    if let Some(session) = &mut session {
        session.listen(Duration::from_millis(300))?;
    }
    let calls = go(&mut target)?;
    if let Some(session) = &mut session {
        session.listen(Duration::from_millis(100))?;
    }
    Ok((calls, session))
}
