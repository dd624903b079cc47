//! `profbridge diff`: shows what became slower or faster between two files of profiles.
//!
//! Both files are folded to own code alike. The number of samples behind each time says how exact it is: the errors of
//! independent samples have a Poisson distribution, and samples at regular times are more exact than that.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use profbridge_codec::Report;
use profbridge_codec::decode::{Findings, Options, decode};
use profbridge_engine::clock::Clock;
use profbridge_wire::folded::Counted;

use crate::args::DiffArgs;
use crate::convert::input;
use crate::convert::selection::Selection;
use crate::destination::{Format, format_of};
use crate::files::write_file;
use crate::terminal::{self, counted, shown};
use crate::views::flamegraph;
use crate::views::page::{self, Difference};
use crate::views::reading::{State, Unit};
use crate::views::stacks::{Node, Stacks};
use crate::views::sums::Sums;
use crate::views::tree::innermost_own;
use crate::{Failure, files};

/// How many standard deviations a difference must have. With thousands of functions, fewer would show some by chance.
const DEVIATIONS: f64 = 4.0;

/// Smaller differences are not worth a row, as a share of the larger whole.
const LEAST_SHARE: f64 = 0.005;

/// Functions with a smaller share of the whole do not decide about the exit status.
const LEAST_DECIDING: f64 = 0.01;

/// How many functions are listed in each direction.
const MOST_ROWS: usize = 12;

/// One of the two files.
struct Side {
    stacks: Vec<(Node, u64)>,
    counts: HashMap<Node, u64>,
    lines: HashMap<u32, u32>,
    total: u64,
    span_nano: Option<u64>,
}

impl Side {
    /// What weights are divided by to be compared: the span in nanoseconds, or the total.
    fn basis(&self, per_second: bool) -> f64 {
        (if per_second { self.span_nano.unwrap_or(1) } else { self.total }).max(1) as f64
    }
}

/// A value in units of the comparison, with its sampling error.
#[derive(Debug, Clone, Copy, Default)]
struct Measured {
    value: f64,
    deviation: f64,
}

/// A function, or the whole.
#[derive(Debug, Clone, Copy)]
struct Change {
    function: Option<u32>,
    before: Measured,
    after: Measured,
}

impl Change {
    fn delta(&self) -> f64 {
        self.after.value - self.before.value
    }

    /// Whether the difference is more than the noise of sampling.
    fn is_certain(&self) -> bool {
        self.delta().abs() > DEVIATIONS * self.before.deviation.hypot(self.after.deviation)
    }

    /// The growth in percent; infinite for a new function.
    fn percent(&self) -> f64 {
        self.delta() * 100.0 / self.before.value
    }
}

/// Compares two files.
pub(crate) fn run(arguments: &DiffArgs) -> Result<ExitCode, Failure> {
    let is_known = |path: &&Path| matches!(format_of(path), Ok(Format::Svg | Format::Html));
    if let Some(output) = arguments.output.as_deref().filter(|path| !is_known(path)) {
        let why = format!(
            "-o {}: the difference is a flame graph or a page, so the file must end with .svg or .html",
            shown(output)
        );
        terminal::say(format!("error: {why}"));
        return Ok(ExitCode::from(2));
    }
    files::never_replace([&arguments.before, &arguments.after].into_iter().map(std::path::PathBuf::as_path));
    compare(arguments, |comparison, name| {
        if let Some(path) = &arguments.output {
            let is_page = format_of(path) == Ok(Format::Html);
            let size = write_file(path, |file| match is_page {
                true => comparison.page(name, arguments, file),
                false => comparison.picture(name, arguments, file),
            })?;
            let size = terminal::bytes(size);
            terminal::result(format!("wrote {} ({size}): red became slower, blue faster", shown(path)));
        }
        let Some(limit) = arguments.fail_above else { return Ok(ExitCode::SUCCESS) };
        match comparison.above(limit) {
            None => Ok(ExitCode::SUCCESS),
            Some(change) => Err(Failure(format!(
                "error: {} grew by {:.1} %, which is more than {limit} %",
                change.function.map_or("the whole", |function| comparison.stacks.label_of(function)),
                change.percent()
            ))),
        }
    })
}

/// The page of two files.
pub(crate) fn page(arguments: &DiffArgs) -> Result<Vec<u8>, Failure> {
    compare(arguments, |comparison, name| {
        let mut page = Vec::new();
        comparison.page(name, arguments, &mut page).map_err(|error| Failure::new("the page", &error))?;
        Ok(page)
    })
}

/// Compares two files, prints the result, and calls `done` with it and the name of what was compared.
fn compare<T>(
    arguments: &DiffArgs,
    done: impl FnOnce(&Comparison<'_>, &str) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let mut before = Sums::default();
    read(&mut before, &arguments.before, arguments)?;
    let mut after = before.next();
    read(&mut after, &arguments.after, arguments)?;
    let state = common_state(&before, &after, arguments)?;
    let unit = after.reading.unit(state);
    let name = after.reading.name(state);
    std::mem::swap(&mut before.reading, &mut after.reading);
    let first = side(&mut before, state, arguments.graph.native);
    std::mem::swap(&mut before.reading, &mut after.reading);
    let second = side(&mut after, state, arguments.graph.native);
    let stacks = &after.reading.stacks;
    let comparison = Comparison::new(stacks, &first, &second, unit, arguments.graph.native);
    terminal::result(comparison.text(&name, &arguments.before, &arguments.after).trim_end());
    done(&comparison, &name)
}

/// The title of a picture of two files.
fn title(arguments: &DiffArgs) -> String {
    format!("{} to {}", shown(&arguments.before), shown(&arguments.after))
}

/// Reads a file into sums.
fn read(sums: &mut Sums, path: &Path, arguments: &DiffArgs) -> Result<(), Failure> {
    let limit = usize::try_from(arguments.limit_mib.saturating_mul(1 << 20)).unwrap_or(usize::MAX);
    let options = Options { limit, counted: Counted::default() };
    let mut selection = Selection::new(arguments.kind.clone(), None, Clock::system().now().unix_nano);
    let (mut findings, mut report) = (Findings::default(), Report::default());
    let bytes = input::read(path, limit)?;
    let decoded = decode(&shown(path), bytes, options, &mut findings, |telemetry| {
        if let Some(telemetry) = selection.take(telemetry, &mut report) {
            telemetry.profiles().for_each(|profiles| sums.add(profiles));
        }
    });
    decoded.map_err(|refused| Failure(format!("error: {refused}")))?;
    if let Some(refused) = findings.refused.first() {
        return Err(Failure(format!("error: {}: {refused}", shown(path))));
    }
    selection.check()?;
    report.losses.merge(&findings.losses);
    report.losses.merge(&sums.reading.losses);
    for explanation in report.losses.explanations() {
        terminal::say(format!("note: {}: {explanation}", shown(path)));
    }
    Ok(())
}

/// The state or type that is compared: running time if both have it, or else the first that both have.
fn common_state(before: &Sums, after: &Sums, arguments: &DiffArgs) -> Result<State, Failure> {
    let (first, second) = (before.states(), after.states());
    first.intersection(&second).next().copied().ok_or_else(|| {
        let name = |state: &State| after.reading.name(*state).into_string();
        let names =
            |states: &std::collections::BTreeSet<State>| match states.iter().map(name).collect::<Vec<_>>().join(", ") {
                names if names.is_empty() => "no values".to_owned(),
                names => names,
            };
        Failure(format!(
            "error: {} has {} and {} has {}: there is nothing to compare",
            shown(&arguments.before),
            names(&first),
            shown(&arguments.after),
            names(&second)
        ))
    })
}

fn side(sums: &mut Sums, state: State, native: bool) -> Side {
    let stacks = sums.weighed_in_all(state, !native);
    let counts = sums.counted(state, !native);
    Side { total: sums.total(state), stacks, counts, lines: sums.hottest_lines(), span_nano: sums.span_nano() }
}

/// Two files, compared.
struct Comparison<'a> {
    stacks: &'a Stacks,
    sides: [&'a Side; 2],
    unit: Unit,
    /// Whether times are per second; otherwise shares are compared.
    per_second: bool,
    whole: Change,
    changes: Vec<Change>,
}

impl<'a> Comparison<'a> {
    fn new(stacks: &'a Stacks, before: &'a Side, after: &'a Side, unit: Unit, native: bool) -> Self {
        let per_second = unit == Unit::Nanoseconds && before.span_nano.is_some() && after.span_nano.is_some();
        let scale = |side: &Side| 1.0 / side.basis(per_second);
        let measured = |side: &Side, weight: u64, count: u64| {
            let value = weight as f64 * scale(side);
            // Of nothing seen, one sample might have been missed.
            let one = side.total as f64 * scale(side) / side.counts.values().sum::<u64>().max(1) as f64;
            Measured { value, deviation: if count == 0 { one } else { value / (count as f64).sqrt() } }
        };
        let mut functions: HashMap<u32, [(u64, u64); 2]> = HashMap::new();
        let mut all = [(0u64, 0u64); 2];
        for (at, side) in [before, after].into_iter().enumerate() {
            for &(node, weight) in &side.stacks {
                let path = stacks.path(node);
                let own = innermost_own(stacks, &path).filter(|_| !native);
                let Some(function) = own.or(path.last().copied()) else { continue };
                let count = side.counts.get(&node).copied().unwrap_or_default();
                for sum in [&mut functions.entry(function).or_default()[at], &mut all[at]] {
                    sum.0 = sum.0.saturating_add(weight);
                    sum.1 += count;
                }
            }
        }
        let change = |function, [first, second]: [(u64, u64); 2]| Change {
            function,
            before: measured(before, first.0, first.1),
            after: measured(after, second.0, second.1),
        };
        let mut changes: Vec<Change> =
            functions.into_iter().map(|(function, sums)| change(Some(function), sums)).collect();
        changes.sort_by(|one, other| {
            other.delta().abs().total_cmp(&one.delta().abs()).then(one.function.cmp(&other.function))
        });
        Self { stacks, sides: [before, after], unit, per_second, whole: change(None, all), changes }
    }

    /// What weights of the two files are multiplied with, so that they can be compared.
    fn scale(&self) -> [f64; 2] {
        let [before, after] = self.sides;
        [1.0, before.basis(self.per_second) / after.basis(self.per_second)]
    }

    /// Draws the difference as a flame graph.
    fn picture(&self, name: &str, arguments: &DiffArgs, out: &mut impl io::Write) -> io::Result<()> {
        let (scale, layout) = (self.scale(), arguments.graph.layout);
        let sides = [0, 1].map(|at| (&*self.sides[at].stacks, scale[at]));
        flamegraph::draw_difference(self.stacks, name, self.unit.clone(), &title(arguments), layout, sides, out)
    }

    /// Writes the difference as a page.
    fn page(&self, name: &str, arguments: &DiffArgs, out: &mut impl io::Write) -> io::Result<()> {
        let [before, after] = self.sides;
        let mut lines = before.lines.clone();
        lines.extend(&after.lines);
        let sides = self.sides.map(|side| (&*side.stacks, side.basis(self.per_second)));
        let (stacks, unit, per_second) = (self.stacks, &self.unit, self.per_second);
        let difference = Difference { stacks, name, unit, lines, sides, per_second };
        page::write_difference(difference, &title(arguments), out)
    }

    /// The larger of the two wholes.
    fn larger(&self) -> f64 {
        self.whole.before.value.max(self.whole.after.value)
    }

    fn listed(&self) -> impl Iterator<Item = &Change> {
        let least = self.larger() * LEAST_SHARE;
        self.changes.iter().filter(move |change| change.is_certain() && change.delta().abs() >= least)
    }

    /// The largest growth above a limit in percent.
    fn above(&self, percent: f64) -> Option<&Change> {
        let least = self.larger() * LEAST_DECIDING;
        // Shares always add up to the whole.
        let whole = Some(&self.whole).filter(|whole| self.per_second && whole.is_certain());
        let functions = self.listed().filter(|change| change.after.value >= least);
        whole
            .into_iter()
            .chain(functions)
            .filter(|change| change.percent() > percent)
            .max_by(|one, other| one.percent().total_cmp(&other.percent()))
    }

    fn amount(&self, value: f64) -> String {
        if self.per_second { format!("{:.1} ms/s", value * 1e3) } else { format!("{:.2} %", value * 100.0) }
    }

    fn text(&self, name: &str, before: &Path, after: &Path) -> String {
        let mut out = String::new();
        let mut line = |text: String| {
            out.push_str(text.trim_end());
            out.push('\n');
        };
        for (title, path, side) in [("before", before, self.sides[0]), ("after ", after, self.sides[1])] {
            let whole = match &self.unit {
                Unit::Nanoseconds => format!("{:.2} s", side.total as f64 / 1e9),
                Unit::Bytes => terminal::bytes(side.total),
                Unit::Count(of) => format!("{} {of}", side.total),
            };
            let span = side.span_nano.map(|nano| format!(" in {:.1} s", nano as f64 / 1e9)).unwrap_or_default();
            let samples = counted(side.counts.values().sum(), "sample");
            line(format!("{title}: {whole} {name}{span}, {samples}, {}", shown(path)));
        }
        let what = if self.per_second { "processor time per second" } else { "shares of the whole" };
        line(format!("compared by {what}"));
        if self.per_second {
            let (whole, noise) =
                (&self.whole, if self.whole.is_certain() { "" } else { ", within the noise of sampling" });
            let (from, to) = (self.amount(whole.before.value), self.amount(whole.after.value));
            line(format!("whole: {from} -> {to} ({:+.1} %{noise})", whole.percent()));
        }
        let lines = |function: u32| {
            let line = |side: &Side| side.lines.get(&function).copied();
            line(self.sides[1]).or_else(|| line(self.sides[0]))
        };
        for (title, slower) in [("slower", true), ("faster", false)] {
            let rows: Vec<&Change> = self.listed().filter(|change| (change.delta() > 0.0) == slower).collect();
            if rows.is_empty() {
                line(format!("{title}: nothing"));
                continue;
            }
            line(format!("{title}:"));
            for change in rows.iter().take(MOST_ROWS) {
                let function = change.function.unwrap_or_default();
                let percent = match change.percent() {
                    percent if !percent.is_finite() => "new".to_owned(),
                    percent if change.after.value == 0.0 => format!("gone ({percent:.0} %)"),
                    percent => format!("{percent:+.1} %"),
                };
                let place = self.stacks.get(function).place_with(lines(function));
                let place = if place.is_empty() { place } else { format!(" ({place})") };
                let (from, to) = (self.amount(change.before.value), self.amount(change.after.value));
                let name = terminal::shortened(self.stacks.label_of(function), 60);
                line(format!("  {percent:>9}  {from:>12} -> {to:>12}  {name}{place}"));
            }
            if let Some(more) = rows.len().checked_sub(MOST_ROWS).filter(|&more| more > 0) {
                line(format!("  and {}", counted(more as u64, "more function")));
            }
        }
        // The smallest growth that would have been seen of the largest function.
        let largest = self.changes.iter().max_by(|one, other| one.before.value.total_cmp(&other.before.value));
        if let Some(largest) = largest.filter(|largest| largest.before.value > 0.0) {
            let noise = DEVIATIONS * largest.before.deviation * std::f64::consts::SQRT_2;
            let name = largest.function.map(|function| self.stacks.label_of(function)).unwrap_or_default();
            line(format!(
                "noise: a change of {} by less than {:.1} % would not have been seen",
                terminal::shortened(name, 60),
                noise * 100.0 / largest.before.value
            ));
        }
        out
    }
}
