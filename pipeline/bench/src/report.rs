//! Prints figures with their goals as a table, and writes them as JSON.

use std::{fs, io::Write, path::Path};

use serde::Serialize;

use super::{Error, pairs::PairComparison, statistics};

/// The goal of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Goal {
    /// At least this value.
    AtLeast(f64),
    /// At most this value.
    AtMost(f64),
}

impl Goal {
    /// Whether a figure with this interval reaches the goal: the whole interval must.
    fn holds(self, (low, high): (f64, f64)) -> bool {
        match self {
            Self::AtLeast(least) => low >= least,
            Self::AtMost(most) => high <= most,
        }
    }
}

/// One measured figure.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figure {
    /// What was measured.
    pub(crate) name: String,
    pub(crate) value: f64,
    /// The unit of the value; `x` for ratios.
    pub(crate) unit: &'static str,
    /// The 95 % confidence interval, for ratios of pairs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) interval: Option<(f64, f64)>,
    /// The minimum and maximum of several turns, whose median is `value`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) turns: Option<(f64, f64)>,
    /// The goal of the figure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) goal: Option<Goal>,
    /// Whether the goal is reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reached: Option<bool>,
}

/// The results of a command.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    command: String,
    machine: Machine,
    figures: Vec<Figure>,
    details: serde_json::Map<String, serde_json::Value>,
}

/// The machine of the measurement.
#[derive(Clone, Debug, Serialize)]
struct Machine {
    processor: String,
    cores: usize,
    kernel: String,
    /// Seconds since the Unix epoch.
    measured_at: u64,
}

impl Machine {
    fn this() -> Self {
        let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            processor: model.map_or("unknown", |(_, name)| name).to_owned(),
            cores: cpus.lines().filter(|line| line.starts_with("processor")).count(),
            kernel: kernel.trim().to_owned(),
            measured_at: std::time::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_secs()),
        }
    }
}

impl Report {
    /// Creates an empty report for a command.
    pub(crate) fn new(command: impl Into<String>) -> Self {
        Self { command: command.into(), machine: Machine::this(), figures: Vec::new(), details: serde_json::Map::new() }
    }

    pub(crate) fn figure(&mut self, name: impl Into<String>, value: f64, unit: &'static str, goal: Option<Goal>) {
        let reached = goal.map(|goal| goal.holds((value, value)));
        self.figures.push(Figure { name: name.into(), value, unit, interval: None, turns: None, goal, reached });
    }

    /// Adds the median of several turns, with their minimum and maximum. The median is compared with the goal.
    pub(crate) fn turns(&mut self, name: impl Into<String>, turns: &[f64], unit: &'static str, goal: Option<Goal>) {
        self.spread(name, statistics::median(turns), turns, unit, goal);
    }

    /// Adds a figure computed from all turns, with their minimum and maximum.
    pub(crate) fn spread(
        &mut self,
        name: impl Into<String>,
        value: f64,
        turns: &[f64],
        unit: &'static str,
        goal: Option<Goal>,
    ) {
        self.figure(name, value, unit, goal);
        if let (Some(figure), false) = (self.figures.last_mut(), turns.is_empty()) {
            let least = turns.iter().copied().fold(f64::INFINITY, f64::min);
            figure.turns = Some((least, turns.iter().copied().fold(f64::NEG_INFINITY, f64::max)));
        }
    }

    /// Adds a ratio of pairs. Its whole confidence interval must reach the goal.
    pub(crate) fn ratio(&mut self, name: impl Into<String>, outcome: &PairComparison, goal: Option<Goal>) {
        let name = name.into();
        self.detail(&name, outcome);
        let (interval, reached) = (outcome.interval, goal.map(|goal| goal.holds(outcome.interval)));
        let interval = Some(interval);
        self.figures.push(Figure { name, value: outcome.ratio, unit: "x", interval, turns: None, goal, reached });
    }

    /// Adds the raw data of a figure, which is only in the JSON.
    pub(crate) fn detail(&mut self, name: &str, detail: impl Serialize) {
        // Serialisation only fails for maps with unusual keys, which do not occur.
        self.details.insert(name.to_owned(), serde_json::to_value(detail).unwrap_or_default());
    }

    /// Prints the table, and writes the JSON if a path is given.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn finish(&self, json: Option<&Path>) -> Result<(), Error> {
        self.print(&mut std::io::stdout().lock())?;
        if let Some(path) = json {
            fs::write(path, serde_json::to_vec_pretty(self)?)
                .map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Ok(())
    }

    fn print(&self, out: &mut impl Write) -> Result<(), Error> {
        let width = self.figures.iter().map(|figure| figure.name.chars().count()).max().unwrap_or(0).max(6);
        // A figure has either an interval or turns.
        let range =
            if self.figures.iter().any(|figure| figure.turns.is_some()) { "least, most turn" } else { "95 % interval" };
        writeln!(out, "{:<width$}  {:>14}  {range:>18}  {:>12}", self.command, "measured", "goal")?;
        for figure in &self.figures {
            let measured = format!("{} {}", short(figure.value), figure.unit);
            let range = match (figure.interval, figure.turns) {
                (Some((low, high)), _) => format!("{} .. {}", short(low), short(high)),
                (None, Some((least, most))) => format!("{}, {}", short(least), short(most)),
                (None, None) => String::new(),
            };
            let goal = match figure.goal {
                Some(Goal::AtLeast(least)) => format!(">= {}", short(least)),
                Some(Goal::AtMost(most)) => format!("<= {}", short(most)),
                None => String::new(),
            };
            let verdict = figure.reached.map_or("", |reached| if reached { "  reached" } else { "  NOT REACHED" });
            writeln!(out, "{:<width$}  {measured:>14}  {range:>18}  {goal:>12}{verdict}", figure.name)?;
        }
        Ok(())
    }
}

/// A number with about four digits.
fn short(value: f64) -> String {
    match value.abs() {
        large if large >= 1_000.0 => format!("{value:.0}"),
        middle if middle >= 100.0 => format!("{value:.1}"),
        small if small >= 10.0 => format!("{value:.2}"),
        small if small >= 0.1 || small == 0.0 => format!("{value:.3}"),
        _ => format!("{value:.4}"),
    }
}
