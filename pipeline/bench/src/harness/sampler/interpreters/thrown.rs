//! Python functions that are compiled, called and thrown away: memory that was one function's is soon another's.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use super::{
    super::{
        super::{
            Error,
            report::{Goal, Report},
        },
        Options,
        names::Names,
        session::Session,
        targets::Programs,
    },
    WARM_UP, functions, percent,
    python::{PROGRAM, fast, truth},
};

/// How often the evaluation function stands in a stack by its own name.
const EVALUATION: &str = "_PyEval_EvalFrameDefault";

/// How many bytes the native functions are called with by the functions that say which one they call.
const BYTES: &str = "3000";

/// What was observed of functions that are thrown away.
#[derive(Debug, Default)]
struct Observed {
    /// With name, file and line of functions of numbers.
    all: u64,
    /// Of which name, file and line are not of the same number.
    mixed: u64,
    /// With a native function below them that tells whether the number is odd.
    told: u64,
    /// Of which it tells that this is another function.
    others: u64,
    /// Functions that are said to be unknown, and stacks with a frame of the evaluation function in which nothing could
    /// be proven.
    unknown: u64,
    unnamed: u64,
    stacks: u64,
}

impl Observed {
    fn add(&mut self, session: &Session) -> Result<(), Error> {
        let names = Names::of(session)?;
        for ((_, locations), count) in &session.stacks {
            self.stacks += count;
            let is_evaluation = |name: &str| name.contains(EVALUATION);
            let is_unnamed = locations
                .iter()
                .filter_map(|location| names.symbols(location))
                .any(|symbols| symbols.frames.iter().any(|frame| is_evaluation(&frame.function)));
            self.unnamed += if is_unnamed { *count } else { 0 };
            let mut is_innermost = true;
            for (function, file, line) in functions(session, locations) {
                let first = std::mem::take(&mut is_innermost);
                let Some(number) = function.strip_prefix("thrown_").and_then(|number| number.parse::<u32>().ok())
                else {
                    self.unknown += if function.starts_with('[') { *count } else { 0 };
                    continue;
                };
                self.all += count;
                let line_of_first = number % 1000 + 1;
                let fits = file == format!("/thrown/{number}.py") && (line_of_first..line_of_first + 5).contains(&line);
                self.mixed += if fits { 0 } else { *count };
                if first && let Some(truth) = truth(&names, locations) {
                    self.told += count;
                    self.others += if (truth == "crc32") == (number % 2 == 1) { 0 } else { *count };
                }
            }
        }
        Ok(())
    }
}

/// Functions whose name, file and line are not of the same one, and functions that another one is taken for, until
/// there are enough observations or the time is over.
pub(super) fn measure(
    name: &str,
    python: &Path,
    options: &Options,
    programs: &Programs,
    report: &mut Report,
) -> Result<(), Error> {
    let python = python.to_string_lossy();
    let observed = |arguments: &[&str]| {
        let target = programs.interpret(&python, PROGRAM, arguments)?;
        let mut session = Session::start(target.pid(), fast(), true)?;
        session.listen(WARM_UP)?;
        session.forget();
        let end = Instant::now() + Duration::from_secs_f64(options.thrown_seconds);
        let mut observed = Observed::default();
        while observed.all < options.thrown_observations && Instant::now() < end {
            session.listen(Duration::from_secs_f64(options.seconds).min(end - Instant::now()))?;
            observed.add(&session)?;
            session.forget();
        }
        Ok::<_, Error>(observed)
    };
    let by_text = observed(&["thrown"])?;
    let row = format!("{name}: functions that are thrown away with another's name, file or line, of {}", by_text.all);
    report.figure(row, by_text.mixed as f64, "", Some(Goal::AtMost(0.0)));
    let row = format!("{name}:   unknown ones, beside them");
    let all = by_text.all + by_text.unknown;
    report.figure(row, percent(by_text.unknown, all), "%", Some(Goal::AtMost(1.0)));
    let row = format!("{name}:   stacks with an evaluation function in which nothing is proven, of {}", by_text.stacks);
    report.figure(row, percent(by_text.unnamed, by_text.stacks), "%", None);
    let by_callee = observed(&["thrown-native", BYTES])?;
    let row = format!("{name}:   that contradict the native function below them, of {}", by_callee.told);
    report.figure(row, by_callee.others as f64, "", Some(Goal::AtMost(0.0)));
    let row = format!("{name}:   called from C, with another's name, file or line, of {}", by_callee.all);
    report.figure(row, by_callee.mixed as f64, "", Some(Goal::AtMost(0.0)));
    Ok(())
}
