//! How much slower a target gets, in turns with itself unsampled.

use std::{
    thread,
    time::{Duration, Instant},
};

use profbridge_sampler::message::Settings;

use super::{
    super::{
        Error,
        report::{Goal, Report},
    },
    Options,
    session::Session,
    targets::{Programs, Target},
    turns,
};

/// The time that one unit of the target's work takes, over a while.
pub(super) fn cost(target: &mut Target, work: impl FnOnce() -> Result<(), Error>) -> Result<f64, Error> {
    let (before, started) = (target.number("", "work")?, Instant::now());
    work()?;
    let (after, took) = (target.number("", "work")?, started.elapsed());
    Ok(took.as_secs_f64() / (after - before).max(1.0))
}

pub(super) fn measure(options: &Options, programs: &Programs, report: &mut Report) -> Result<(), Error> {
    let time = Duration::from_secs_f64(options.turn);
    for (name, busy, goal) in [("1 busy", "1", 1.01), ("8 busy", "8", 1.03)] {
        let target = programs.start("busy", &[busy, "0"])?;
        let session = Session::start(target.pid(), Settings::default(), true)?;
        let mut state = (target, session);
        state.1.listen(Duration::from_secs(1))?;
        let turn = |(target, session): &mut (Target, Session), on: bool| {
            session.sample(on)?;
            // What the switch itself costs does not count.
            session.listen(Duration::from_millis(100))?;
            cost(target, || session.listen(time))
        };
        let off = |state: &mut _| turn(state, false);
        let on = |state: &mut _| turn(state, true);
        let turns = turns::measure(options.turns, &mut state, &[("off", &off), ("on", &on), ("null", &off)])?;
        for (condition, outcome) in &turns.outcomes {
            match condition.as_str() {
                "on" => report.ratio(format!("slowdown, {name}"), outcome, Some(Goal::AtMost(goal))),
                _ => report.ratio(format!("  control: not sampled either, {name}"), outcome, None),
            }
        }
        // The target comes to rest before the next one starts.
        drop(state);
        thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}
