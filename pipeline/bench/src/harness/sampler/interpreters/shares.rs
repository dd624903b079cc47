//! How many frames are named, and whether functions have the time that they take by their program's own clock.

use std::time::Duration;

use profbridge_sampler::message::{Location, Settings, Status};

use super::{
    super::{
        super::{
            Error,
            report::{Goal, Report},
        },
        Options,
        names::Names,
        session::Session,
        targets::{Programs, Target},
    },
    LONG, UNKNOWN, WARM_UP, functions, percent,
    versions::{Kind, Version},
};

/// Functions of 70, 20 and 10 % of the time.
const FUNCTIONS: [&str; 3] = ["seventy", "twenty", "ten"];

/// In how many turns it is measured.
const TURNS: u32 = 3;

/// The functions of V8 whose calls stand for those of the program: its interpreter, and where compiled code is entered.
const OF_V8: [&str; 3] = ["InterpreterEntryTrampoline", "BaselineOrInterpreterEnter", "BaselineOutOfLinePrologue"];

/// What a function is called that may have been one inlined into it.
const INLINED: &str = " [with inlined functions]";

pub(super) fn measure(
    version: &Version,
    options: &Options,
    programs: &Programs,
    report: &mut Report,
) -> Result<(), Error> {
    let mut target = start(version, programs)?;
    let settings = Settings { rate_hertz: 997.0, max_cpu: 1.0, ..Settings::default() };
    let mut session = Session::start(target.pid(), settings, true)?;
    session.listen(WARM_UP)?;
    session.forget();
    let before = session.status;
    let turn = Duration::from_secs_f64(LONG * options.seconds / f64::from(TURNS));
    let (mut all, mut turns) = (Times::default(), Vec::new());
    let mut clock = own_clock(&mut target)?;
    let mut sampled = [0.0; 3];
    for _ in 0..TURNS {
        session.listen(turn)?;
        let (own, so_far) = (own_clock(&mut target)?, by_function(&session));
        let times = Times { own: difference(&own, &clock), sampled: difference(&so_far, &sampled) };
        turns.push(times.worst());
        all.add(&times);
        (clock, sampled) = (own, so_far);
    }
    let name = &version.name;
    let is_running = |locations: &Vec<_>| session.running.contains_key(locations);
    let samples: u64 = session.stacks.iter().filter(|((_, one), _)| is_running(one)).map(|(_, count)| count).sum();
    let row = format!("{name}: shares, greatest difference to its own clock, of {samples} samples");
    report.spread(row, all.worst(), &turns, "points", Some(Goal::AtMost(2.0)));
    let running = session.running.values().sum::<u64>() as f64 / 1e9;
    let found = 100.0 * sampled.iter().sum::<f64>() / running.max(1e-9);
    report.figure(format!("{name}:   running time that is in one of these"), found, "%", None);
    if version.kind != Kind::Python {
        frames(version, &session, &before, report)?;
    }
    Ok(())
}

/// Starts the program of an interpreter.
pub(super) fn start(version: &Version, programs: &Programs) -> Result<Target, Error> {
    let (program, arguments): (_, &[&str]) = match version.kind {
        Kind::Python => ("functions.py", &["shares"]),
        Kind::Node => ("functions.js", &[]),
        Kind::Php => ("functions.php", &[]),
        Kind::Ruby => ("functions.rb", &[]),
    };
    programs.interpret(&version.program.to_string_lossy(), program, arguments)
}

/// The times of the functions, in seconds.
#[derive(Default)]
struct Times {
    own: [f64; 3],
    sampled: [f64; 3],
}

impl Times {
    fn add(&mut self, more: &Self) {
        for (sum, more) in self.own.iter_mut().zip(more.own).chain(self.sampled.iter_mut().zip(more.sampled)) {
            *sum += more;
        }
    }

    /// The greatest difference between shares, in points.
    fn worst(&self) -> f64 {
        let share = |all: &[f64; 3], place: usize| 100.0 * all[place] / all.iter().sum::<f64>().max(1e-9);
        (0..3).map(|place| (share(&self.sampled, place) - share(&self.own, place)).abs()).fold(0.0, f64::max)
    }
}

fn difference(after: &[f64; 3], before: &[f64; 3]) -> [f64; 3] {
    std::array::from_fn(|place| after[place] - before[place])
}

/// What the program's own clock says of its functions.
fn own_clock(target: &mut Target) -> Result<[f64; 3], Error> {
    let answer = target.ask("")?;
    let words: Vec<_> = answer.split(' ').collect();
    let mut times = [0.0; 3];
    for (time, function) in times.iter_mut().zip(FUNCTIONS) {
        let place = words.iter().position(|word| *word == function).ok_or_else(|| format!("odd answer {answer:?}"))?;
        *time = words.get(place + 1).ok_or("no time")?.parse()?;
    }
    Ok(times)
}

/// The sampled time of the functions.
fn by_function(session: &Session) -> [f64; 3] {
    let mut times = [0.0; 3];
    for (locations, nano) in &session.running {
        let of = |name: &str| {
            let name = name.strip_suffix(INLINED).unwrap_or(name);
            // Ruby has the class in front of a method.
            FUNCTIONS.iter().position(|function| name.rsplit(['#', '.']).next() == Some(*function))
        };
        if let Some(place) = functions(session, locations).find_map(|(name, ..)| of(name)) {
            times[place] += *nano as f64 / 1e9;
        }
    }
    times
}

/// How many frames of running threads are named, and how exactly.
fn frames(version: &Version, session: &Session, before: &Status, report: &mut Report) -> Result<(), Error> {
    let names = Names::of(session)?;
    // Of the other interpreters every stack has a frame; V8 also runs code of its own.
    let always = version.kind != Kind::Node;
    let [mut named, mut not, mut stacks, mut whole] = [0; 4];
    for ((_, locations), count) in &session.stacks {
        if !session.running.contains_key(locations) || locations.iter().any(|one| one.explanation().is_some()) {
            continue;
        }
        let told = functions(session, locations).filter(|(name, ..)| *name != UNKNOWN).count() as u64;
        let mut missing =
            locations.iter().filter(|location| is_missing(version.kind, &names, session, location)).count();
        if always && told == 0 {
            missing = missing.max(1);
        }
        named += count * told;
        not += count * missing as u64;
        if told > 0 || missing > 0 {
            stacks += count;
            whole += if missing == 0 { *count } else { 0 };
        }
    }
    let (name, now) = (&version.name, &session.status);
    if always {
        // The interpreter's own function may have no name in a stripped file, so the sampler's count is taken.
        not = not.max(now.unproven_frames - before.unproven_frames + now.unknown_functions - before.unknown_functions);
    }
    let row = format!("{name}: frames of running threads that are named, of {}", named + not);
    report.figure(row, percent(named, named + not), "%", Some(Goal::AtLeast(99.0)));
    report.figure(format!("{name}:   stacks of which all are, of {stacks}"), percent(whole, stacks), "%", None);
    report.figure(format!("{name}:   stops"), now.stops as f64, "", Some(Goal::AtMost(0.0)));
    if version.kind == Kind::Node {
        let [exact, first, several] = [
            now.positioned_frames - before.positioned_frames,
            now.unpositioned_frames - before.unpositioned_frames,
            now.inlining_frames - before.inlining_frames,
        ];
        let all = exact + first + several;
        report.figure(format!("{name}:   with the line where they were"), percent(exact, all), "%", None);
        let row = format!("{name}:   that stand for inlined functions as well");
        report.figure(row, percent(several, all), "%", None);
    }
    Ok(())
}

/// Whether a frame should have the name of a function of the program and has not.
fn is_missing(kind: Kind, names: &Names, session: &Session, location: &Location) -> bool {
    let is = |function: &str| match kind {
        Kind::Node => OF_V8.iter().any(|name| function.contains(name)),
        Kind::Php => function == "execute_ex",
        Kind::Ruby => ["rb_vm_exec", "vm_exec_core"].contains(&function),
        Kind::Python => function.starts_with("_PyEval_EvalFrame"),
    };
    match location {
        Location::Interpreted { function, .. } => {
            session.functions.get(*function as usize).is_none_or(|function| function.name == UNKNOWN)
        }
        Location::Native { .. } if location.is_kernel() => false,
        // Code that was compiled at run time.
        Location::Native { mapping: None, .. } | Location::Compiled { .. } => true,
        Location::Native { .. } => {
            names.symbols(location).is_some_and(|symbols| symbols.frames.iter().any(|frame| is(&frame.function)))
        }
    }
}
