//! System calls that fail or are shortened because a thread is sampled.

use std::time::Duration;

use profbridge_sampler::message::Settings;

use super::{
    super::{
        Error,
        report::{Goal, Report},
    },
    Options,
    session::Session,
    targets::{Programs, Target},
};

/// How long each call waits, in milliseconds.
const LENGTH: f64 = 3000.0;

/// A timeout in whole jiffies may end one earlier; none of HZ above 100 is longer than this.
const JIFFY: f64 = 5.0;

/// A call, its result and error, and how long it took in milliseconds.
pub(super) type Call = (String, String, f64);

pub(super) fn measure(options: &Options, programs: &Programs, report: &mut Report) -> Result<(), Error> {
    let alone = calls(programs, false)?;
    let sampled = calls(programs, true)?;
    let bad = differing(&alone, &sampled, LENGTH);
    let name = format!("of {} system calls of 3 s, failed or shortened", alone.len());
    report.figure(name, bad.len() as f64, "", Some(Goal::AtMost(0.0)));
    let offered = alone.iter().filter(|call| !call.1.starts_with("absent")).count();
    report.figure("  offered by this machine", offered as f64, "", None);
    report.detail("matrix, alone and sampled", (&alone, &sampled));

    let mut target = programs.start("short_waits", &[])?;
    let mut session = Session::start(target.pid(), Settings::default(), false)?;
    for (name, on, goal) in
        [("interrupted", true, Some(Goal::AtMost(0.0))), ("  control: not sampled, interrupted", false, None)]
    {
        session.sample(on)?;
        let (calls, interrupted) = (target.number("", "calls")?, target.number("", "interrupted")?);
        session.listen(Duration::from_secs_f64(options.seconds * 2.0))?;
        let interrupted = target.number("", "interrupted")? - interrupted;
        let calls = target.number("", "calls")? - calls;
        report.figure(format!("short waits: {name}, of {calls}"), interrupted, "", goal);
    }
    Ok(())
}

fn calls(programs: &Programs, sampled: bool) -> Result<Vec<Call>, Error> {
    let mut target = programs.start("matrix", &[&LENGTH.to_string()])?;
    let mut session = sampled.then(|| Session::start(target.pid(), Settings::default(), true)).transpose()?;
    if let Some(session) = &mut session {
        session.listen(Duration::from_millis(300))?;
    }
    go(&mut target)
}

/// Has the calls made.
pub(super) fn go(target: &mut Target) -> Result<Vec<Call>, Error> {
    let mut line = target.ask("go")?;
    let mut calls = Vec::new();
    while line != "done" {
        let words: Vec<&str> = line.split(' ').collect();
        let [name, result, error, took] = words[..] else { return Err(format!("odd line {line:?}").into()) };
        calls.push((name.to_owned(), format!("{result} {error}"), took.parse()?));
        line = target.line()?;
    }
    Ok(calls)
}

/// The calls that ended in another way than alone, or early, where each waits for so many milliseconds.
pub(super) fn differing<'a>(alone: &[Call], observed: &'a [Call], length: f64) -> Vec<&'a Call> {
    let differs = |(a, b): &(&Call, &Call)| a.1 != b.1 || b.2 < a.2.min(length) - JIFFY;
    alone.iter().zip(observed).filter(differs).map(|(_, observed)| observed).collect()
}
