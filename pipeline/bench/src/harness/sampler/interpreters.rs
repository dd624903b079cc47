//! Names of functions of programs that interpreters run: how many there are, how many are wrong, and what they cost.
//!
//! What only Python has is in `python.rs`: functions whose names prove themselves. What holds for every interpreter is
//! beside it, so that all stand in the same table: `versions.rs` finds them, `shares.rs` has how many frames are named
//! and whether time goes to the right ones, `cost.rs` what that costs the sampler and the target, `waits.rs` that it
//! interrupts nobody.

mod cost;
mod python;
mod shares;
mod thrown;
mod versions;
mod waits;

use std::{fs, time::Duration};

use profbridge_sampler::message::{Location, Settings, Trust};

use self::versions::{Kind, Version};
use super::{
    super::{
        Error,
        report::{Goal, Report},
    },
    Options,
    session::Session,
    targets::{Programs, Target},
};

/// How long a session runs before it counts: each function is met for the first time.
const WARM_UP: Duration = Duration::from_secs(1);

/// How often as long as others the measurements last that count observations.
const LONG: f64 = 3.0;

/// What a function is called that could not be told.
const UNKNOWN: &str = "[unknown function]";

pub(super) fn measure(options: &Options, programs: &Programs, report: &mut Report) -> Result<(), Error> {
    load("before", report);
    let found = versions::found(options);
    for kind in Kind::ALL {
        let count = found.iter().filter(|one| one.kind == kind).count();
        report.figure(format!("versions of {} that are here", kind.name()), count as f64, "", None);
    }
    for one in &found {
        let is_newest = found.iter().rfind(|other| other.kind == one.kind).is_some_and(|other| other.name == one.name);
        let parts: &[Part] = match one.kind {
            Kind::Python => &[python::measure, shares::measure, cost::measure],
            _ if is_newest => &[shares::measure, cost::measure],
            _ => &[shares::measure],
        };
        for part in parts {
            note(one, part(one, options, programs, report), report);
        }
    }
    if let Some(python) = found.iter().rfind(|one| one.kind == Kind::Python) {
        note(python, waits::measure(python, programs, report), report);
    }
    load("afterwards", report);
    Ok(())
}

/// What is measured of each version.
type Part = fn(&Version, &Options, &Programs, &mut Report) -> Result<(), Error>;

/// Says what could not be measured, among the figures that could.
fn note(version: &Version, result: Result<(), Error>, report: &mut Report) {
    if let Err(error) = result {
        let row = format!("{}: NOT MEASURED: {error}", version.name);
        report.figure(row, f64::NAN, "", Some(Goal::AtLeast(0.0)));
    }
}

/// How many programs want a processor, on average over the last minute.
fn load(when: &str, report: &mut Report) {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = text.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(f64::NAN);
    report.figure(format!("load of the machine, {when}"), load, "", None);
}
/// Samples a target for so many times the length of a measurement, behind a warm-up.
fn sampled(target: &Target, settings: Settings, time: Duration) -> Result<(Session, [u64; 4]), Error> {
    let mut session = Session::start(target.pid(), settings, true)?;
    session.listen(WARM_UP)?;
    session.forget();
    let before = session.status;
    session.listen(time)?;
    let now = session.status;
    let more = [
        now.interpreted - before.interpreted,
        now.unproven_frames - before.unproven_frames,
        now.stops,
        now.unknown_functions - before.unknown_functions,
    ];
    Ok((session, more))
}

/// How many stacks of a program that always runs interpreted code have no frame of the evaluation function left: at
/// least so many, since a stack may have several.
fn named(name: &str, target: &Target, options: &Options, report: &mut Report) -> Result<(), Error> {
    let settings = Settings { rate_hertz: 499.0, ..Settings::default() };
    let (session, [_, unproven, stops, _]) = sampled(target, settings, Duration::from_secs_f64(options.seconds))?;
    let all: u64 = session.stacks.values().sum();
    let share = 100.0 * (1.0 - unproven as f64 / all.max(1) as f64);
    let row = format!("{name}: stacks whose every evaluation frame is named, of {all}");
    report.figure(row, share, "%", Some(Goal::AtLeast(99.0)));
    report.figure(format!("{name}:   stops"), stops as f64, "", Some(Goal::AtMost(0.0)));
    let later: u64 =
        session.stacks.iter().filter(|((trust, _), _)| *trust == Trust::MissingCallers).map(|(_, n)| n).sum();
    report.figure(format!("{name}:   with callers that are not known"), percent(later, all), "%", None);
    Ok(())
}

fn percent(part: u64, all: u64) -> f64 {
    100.0 * part as f64 / all.max(1) as f64
}

/// The interpreted functions of a stack, the innermost first.
fn functions<'a>(session: &'a Session, locations: &'a [Location]) -> impl Iterator<Item = (&'a str, &'a str, u32)> {
    locations.iter().filter_map(|location| {
        let Location::Interpreted { function, line } = location else { return None };
        let function = session.functions.get(*function as usize)?;
        Some((function.name.as_str(), function.file.as_str(), *line))
    })
}
