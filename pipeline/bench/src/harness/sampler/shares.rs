//! Which functions the processor time goes to, beside `perf record -a -e cpu-clock` of the same seconds.

use std::{collections::HashMap, time::Duration};

use profbridge_sampler::message::{Settings, Stops};

use super::{
    super::{
        Error,
        report::{Goal, Report},
    },
    Options,
    names::Names,
    perf::Perf,
    session::Session,
    targets::Programs,
};

/// What is measured: the name, the program and its arguments, and the functions whose shares are compared.
type Case = (&'static str, &'static str, &'static [&'static str], &'static [&'static str]);

const CASES: [Case; 5] = [
    ("0.3 ms of work, 1 ms of waiting", "duty", &["300", "1000"], &["work", "epoll_wait"]),
    ("1 ms of work, 4 ms of waiting", "duty", &["1000", "4000"], &["work", "epoll_wait"]),
    ("3 ms of work, 7 ms of waiting", "duty", &["3000", "7000"], &["work", "epoll_wait"]),
    ("40 us of work, woken each 150 us", "duty", &["40", "150", "woken"], &["work", "epoll_wait"]),
    ("70/20/10", "shares", &[], &["seventy", "twenty", "ten"]),
];

/// Both sides take samples: of two thousand, a share is known to about one point.
const LENGTH: f64 = 6.0;

/// How far a share may be from perf's, in points.
const POINTS: f64 = 3.0;

/// How long a session runs before it counts: what its events cover is decided after a second.
const WARM_UP: Duration = Duration::from_secs(2);

pub(super) fn measure(options: &Options, programs: &Programs, report: &mut Report) -> Result<(), Error> {
    if !Perf::works() {
        return Err("`shares` needs perf".into());
    }
    for (name, program, arguments, functions) in CASES {
        let target = programs.start(program, arguments)?;
        let settings = Settings::default();
        let mut session = Session::start(target.pid(), settings, true)?;
        session.listen(WARM_UP)?;
        let perf = Perf::start_everywhere(programs.folder(), settings.rate_hertz)?;
        session.forget();
        session.listen(Duration::from_secs_f64(options.seconds * LENGTH))?;
        let theirs = perf.finish()?.functions(target.pid())?;
        let names = Names::of(&session)?;
        let mut ours = HashMap::new();
        for (locations, nano) in &session.running {
            *ours.entry(names.innermost(&session.mappings, locations)).or_default() += nano;
        }
        for function in functions {
            let (mine, perfs) = (share(&ours, function), share(&theirs, function));
            let row = format!("CPU share of {function}, {name}: {mine:.1} %, perf {perfs:.1} %; difference");
            report.figure(row, (mine - perfs).abs(), "points", Some(Goal::AtMost(POINTS)));
        }
        let stops = session.total(|status| status.stops);
        report.figure(format!("  stops, {name}"), stops as f64, "", Some(Goal::AtMost(0.0)));
        report.detail(&format!("shares, {name}"), (session.status.level.description(Stops::default()), &ours, &theirs));
    }
    Ok(())
}

/// A part of all, in percent.
fn share(all: &HashMap<String, u64>, name: &str) -> f64 {
    let sum: u64 = all.values().sum();
    100.0 * all.get(name).copied().unwrap_or(0) as f64 / sum.max(1) as f64
}
