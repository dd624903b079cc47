//! What events cost a process that is switched twenty thousand times a second: by its processor time for each turn, in
//! turns with itself unsampled.
//!
//! With the right to it, such a process is sampled by events of the processors. So that events of its threads are
//! measured as well, this program runs once more without that right.

use std::{
    io::Write,
    process::{Command, Stdio},
    time::Duration,
};

use profbridge_sampler::message::{Level, Settings, Stops};

use super::{
    super::{
        Error,
        pairs::Outcome,
        report::{Goal, Report},
        statistics,
    },
    OnceSwitches, Options,
    perf::Perf,
    session::Session,
    targets::{Programs, Target},
    turns::{self, Condition},
};

/// For how long each of the two threads works before it hands over, in microseconds: with what the switch takes, fifty.
const WORK: &str = "45";

/// How long sampling goes on before its cost counts: what events cover is decided after a second.
const WARM_UP: Duration = Duration::from_millis(2500);

/// The target, and who samples it.
struct State {
    target: Target,
    session: Session,
    /// Turns in a second of processor time, and what was sampled by.
    rates: Vec<f64>,
    level: Level,
}

pub(super) fn measure(options: &Options, programs: &Programs, report: &mut Report) -> Result<(), Error> {
    let (outcomes, state) = in_turns(options.turn, options.turns, programs, Perf::works())?;
    for (name, outcome) in &outcomes {
        match name.as_str() {
            "sampled" => {
                let name =
                    format!("cost of {} switches/s, {}", rate(&state), state.level.description(Stops::default()));
                report.ratio(name, outcome, Some(Goal::AtMost(1.01)));
            }
            other => report.ratio(format!("  {other}, switches"), outcome, None),
        }
    }
    let (level, outcome) = without_right(options)?;
    report.ratio(format!("cost of the same switches, {level}"), &outcome, Some(Goal::AtMost(1.02)));
    Ok(())
}

fn rate(state: &State) -> String {
    format!("{:.0}", statistics::median(&state.rates))
}

fn in_turns(
    turn: f64,
    turns: usize,
    programs: &Programs,
    with_perf: bool,
) -> Result<(Vec<(String, Outcome)>, State), Error> {
    let time = Duration::from_secs_f64(turn);
    let target = programs.start("switches", &[WORK])?;
    let session = Session::start(target.pid(), Settings::default(), false)?;
    let mut state = State { target, session, rates: Vec::new(), level: Level::None };
    let alone = |state: &mut State| {
        state.session.listen(Duration::from_millis(200))?;
        state.cost(time)
    };
    let sampled = |state: &mut State| {
        state.session.sample(true)?;
        state.session.listen(WARM_UP)?;
        let cost = state.cost(time)?;
        state.level = state.session.status.level;
        state.session.sample(false)?;
        state.session.listen(Duration::from_millis(200))?;
        Ok(cost)
    };
    let perf = |state: &mut State| {
        let perf = Perf::start(programs.folder(), state.target.pid(), Settings::default().rate_hertz, "fp")?;
        let cost = state.cost(time)?;
        perf.finish()?;
        Ok(cost)
    };
    let mut conditions: Vec<Condition<'_, State>> =
        vec![("alone", &alone), ("sampled", &sampled), ("control: not sampled either", &alone)];
    if with_perf {
        conditions.push(("perf record", &perf));
    }
    let turns = turns::measure(turns, &mut state, &conditions)?;
    Ok((turns.outcomes, state))
}

impl State {
    /// The processor time of one turn, in nanoseconds.
    fn cost(&mut self, time: Duration) -> Result<f64, Error> {
        let before = self.marks()?;
        self.session.listen(time)?;
        let after = self.marks()?;
        let (turns, cpu) = (after.0 - before.0, after.1 - before.1);
        self.rates.push(turns * 1e9 / cpu.max(1.0));
        Ok(cpu / turns.max(1.0))
    }

    /// The target's turns and processor time, of one moment.
    fn marks(&mut self) -> Result<(f64, f64), Error> {
        let answer = self.target.ask("")?;
        match answer.split(' ').collect::<Vec<_>>()[..] {
            ["turns", turns, "cpu", cpu] => Ok((turns.parse()?, cpu.parse()?)),
            _ => Err(format!("odd line {answer:?}").into()),
        }
    }
}

/// The same in a process that may not see the kernel, and therefore has events of threads.
fn without_right(options: &Options) -> Result<(String, Outcome), Error> {
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-perfmon,-sys_admin", "--inh-caps=-perfmon,-sys_admin"]);
    command.arg(std::env::current_exe()?).arg("sampler-switches-once");
    command.args([&options.turn.to_string(), &options.turns.to_string()]);
    let output = command.stderr(Stdio::inherit()).output().map_err(|error| format!("{command:?}: {error}"))?;
    let text = String::from_utf8(output.stdout)?;
    let odd = || format!("{command:?} said {text:?}");
    let (level, ratios) = text.trim().split_once(": ").ok_or_else(odd)?;
    let ratios = ratios.split(' ').map(str::parse).collect::<Result<Vec<f64>, _>>().map_err(|_| odd())?;
    let outcome = Outcome {
        ratio: statistics::median(&ratios),
        interval: statistics::interval(&ratios),
        a: 1.0,
        b: statistics::median(&ratios),
        rejected: 0,
        calibrator_spread: 1.0,
        ratios,
    };
    Ok((level.to_owned(), outcome))
}

/// Prints what it is sampled by, and the ratio of each turn.
pub(super) fn once(options: &OnceSwitches) -> Result<(), Error> {
    let programs = Programs::new()?;
    let (outcomes, state) = in_turns(options.turn, options.turns, &programs, false)?;
    let sampled = outcomes.iter().find(|(name, _)| name == "sampled").ok_or("no turns")?;
    let ratios: Vec<String> = sampled.1.ratios.iter().map(f64::to_string).collect();
    writeln!(std::io::stdout(), "{}: {}", state.level.description(Stops::default()), ratios.join(" "))?;
    Ok(())
}
