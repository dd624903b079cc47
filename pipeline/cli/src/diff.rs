//! `profbridge diff`: shows what became slower or faster between two files of profiles.
//!
//! Both files are folded to own code in the same way. A function is listed if its change differs from that of most
//! functions by more than [`noise`] explains: a slower processor, for example because of busy neighbours, slows down
//! all functions, and changes only the total.

mod noise;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::Path;
use std::process::ExitCode;

use profbridge_codec::EncodingReport;
use profbridge_codec::decode::{DecodeOptions, Findings, decode};
use profbridge_engine::clock::Clock;
use profbridge_model::{Losses, Reason};

use crate::args::{By, DiffArgs};
use crate::convert::input;
use crate::convert::selection::Selection;
use crate::destination::{Format, format_of};
use crate::files::write_file;
use crate::terminal::{self, counted, shown};
use crate::views::flamegraph;
use crate::views::fold::{FrameRole, NO_OWN_CODE};
use crate::views::page::{self, Difference};
use crate::views::reading::{State, Unit};
use crate::views::stacks::{Node, Stacks};
use crate::views::sums::{Sums, Timed};
use crate::views::tree::innermost_own;
use crate::views::waits::WaitReason;
use crate::{Failure, files};
use noise::{FileWeights, Noise, Observed};

/// Differences below this share of the larger total are not listed.
const LEAST_SHARE: f64 = 0.005;

/// Differences below this share of the function's larger value are not listed: two runs of one program place its code
/// and its data differently, which alone changes times that much.
const LEAST_CHANGE: f64 = 0.03;

/// A function with this share of the total changes as the total does.
const NEARLY_ALL: f64 = 0.9;

/// Functions with a smaller share of the total do not affect the exit status.
const LEAST_DECIDING: f64 = 0.01;

/// Threads are always busy if their total time, running or waiting for a processor, is this close to a whole number of
/// processors.
const BUSY: f64 = 0.05;

/// How many functions are listed in each direction.
const MOST_ROWS: usize = 12;

/// One of the two files.
struct ComparedFile {
    stacks: Vec<(Node, u64)>,
    measured: FileWeights,
    lines: HashMap<u32, u32>,
    total: u64,
    span_nano: Option<u64>,
    /// Whether a command was sampled from its start to its end.
    is_of_whole_command: bool,
    /// The number of threads, if all of them are always busy.
    busy: Option<u64>,
}

impl ComparedFile {
    /// The divisor that makes the weights of both files comparable.
    fn basis(&self, by: By) -> f64 {
        match by {
            By::Total => 1.0,
            By::Second => self.span_nano.unwrap_or(1).max(1) as f64,
            By::Share => self.total.max(1) as f64,
        }
    }
}

/// The change of a function, or of the total.
#[derive(Debug, Clone, Copy)]
struct FunctionChange {
    function: Option<u32>,
    before: f64,
    after: f64,
    /// Whether the change is more than noise.
    is_certain: bool,
}

impl FunctionChange {
    fn delta(&self) -> f64 {
        self.after - self.before
    }

    /// The growth in percent; infinite for a new function.
    fn percent(&self) -> f64 {
        self.delta() * 100.0 / self.before
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
            let [more, less] = comparison.directions();
            let (path, size) = (shown(path), terminal::bytes(size));
            terminal::result(format!("wrote {path} ({size}): red became {more}, blue {less}"));
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
    before.reading.stacks.by_line = arguments.graph.lines;
    read(&mut before, &arguments.before, arguments)?;
    let mut after = before.next();
    read(&mut after, &arguments.after, arguments)?;
    check_places([&before, &after], arguments)?;
    let state = common_state(&before, &after, arguments)?;
    let others: Vec<String> = after.reading.not_shown.in_words().collect();
    if !others.is_empty() {
        terminal::say(format!("note: not compared: {} (--type compares one)", others.join("; ")));
    }
    let unit = after.reading.unit(state);
    let name = after.reading.name(state);
    std::mem::swap(&mut before.reading, &mut after.reading);
    let first = side(&mut before, state, arguments.graph.native);
    std::mem::swap(&mut before.reading, &mut after.reading);
    let second = side(&mut after, state, arguments.graph.native);
    let stacks = &after.reading.stacks;
    let comparison = Comparison::new(stacks, [&first, &second], unit, arguments.by);
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
    let options = DecodeOptions { limit, counted: arguments.counted.into() };
    let mut selection = Selection::new(arguments.kind.clone(), None, Clock::system().now().unix_nano);
    let (mut findings, mut report) = (Findings::default(), EncodingReport::default());
    let bytes = input::read(path, limit)?;
    sums.keep_times();
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
    let mut said = Losses::default();
    // Values of other types do not count as lost, because only one type is compared at a time.
    let lost = report.losses.iter().filter(|loss| loss.reason != Reason::OtherType);
    lost.for_each(|loss| said.add(loss.reason, loss.quantities));
    for explanation in said.explanations() {
        terminal::say(format!("note: {}: {explanation}", shown(path)));
    }
    Ok(())
}

/// Refuses a file that names functions without files, as collapsed stacks do, if the other one has both: no function
/// would be in the two of them.
fn check_places(sums: [&Sums; 2], arguments: &DiffArgs) -> Result<(), Failure> {
    let stacks = &sums[1].reading.stacks;
    let is_placed = |function: &u32| {
        let function = stacks.get(*function);
        !function.file.is_empty() || !function.module.is_empty()
    };
    let of = sums.map(|sums| {
        let mut states = sums.states().into_iter();
        states.any(|state| sums.counted(state).any(|(node, ..)| stacks.path(node).iter().any(is_placed)))
    });
    let is_empty = sums.iter().any(|sums| sums.states().is_empty());
    if of[0] == of[1] || is_empty {
        return Ok(());
    }
    let (mut without, mut with) = (shown(&arguments.before), shown(&arguments.after));
    if of[0] {
        std::mem::swap(&mut without, &mut with);
    }
    Err(Failure(format!(
        "error: {without} names functions without their files, as collapsed stacks do, and {with} names both, so they \
         have no function in common\nhint: make collapsed stacks of both: `profbridge convert {with} -o x.folded`; \
         profbridge writes nanoseconds into them (--folded-unit ns)"
    )))
}

/// The state or type that is compared: running time if both have it, or else the first that both have.
fn common_state(before: &Sums, after: &Sums, arguments: &DiffArgs) -> Result<State, Failure> {
    let (first, second) = (before.states(), after.states());
    first.intersection(&second).next().copied().ok_or_else(|| {
        let names = |states: &BTreeSet<State>| {
            let names: Vec<_> = states.iter().map(|state| after.reading.name(*state).into_string()).collect();
            if names.is_empty() { "no values".to_owned() } else { names.join(", ") }
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

fn side(sums: &mut Sums, state: State, native: bool) -> ComparedFile {
    let stacks = sums.weighed_in_all(state, !native);
    let nodes: BTreeSet<Node> = sums.counted(state).map(|(node, ..)| node).collect();
    let mut functions: HashMap<Node, u32> = HashMap::new();
    for node in nodes {
        let stacks = &mut sums.reading.stacks;
        let folded = if native { node } else { stacks.fold(node, state == State::Waiting) };
        let path = stacks.path(folded);
        // Interpreters and the kernel without a caller in the program are shown as one function.
        let is_alone = |function: &u32| !native && FrameRole::of(stacks.get(*function)) == FrameRole::Caller;
        let last = path.last().filter(|last| !is_alone(last)).or(path.first()).copied();
        let function = innermost_own(stacks, &path).filter(|_| !native).or(last);
        functions.extend(function.map(|function| (node, function)));
    }
    let measured = match sums.timed(state) {
        Some(timed) => FileWeights::timed(
            timed
                .filter_map(|one| {
                    let &Timed { thread, time, weight, .. } = one;
                    Some(Observed { thread, time, function: *functions.get(&one.node)?, weight })
                })
                .collect(),
        ),
        None => FileWeights::counted(
            sums.counted(state).filter_map(|(node, weight, count)| Some((*functions.get(&node)?, weight, count))),
        ),
    };
    let (total, span_nano) = (sums.total(state), sums.span_nano());
    let waited = sums.weighed_in_all(State::Waiting, true).into_iter().filter(|(node, _)| {
        let of = sums.reading.stacks.innermost(*node).map(|function| &*function.name);
        of.and_then(WaitReason::of_frame) == Some(WaitReason::Processor)
    });
    let waited: u64 = waited.map(|(_, nano)| nano).sum();
    let threads = span_nano.map(|span| (total + waited) as f64 / span.max(1) as f64);
    let busy = threads.filter(|threads| state != State::Waiting && (threads - threads.round()).abs() < BUSY);
    ComparedFile {
        stacks,
        measured,
        lines: sums.hottest_lines(state),
        total,
        span_nano,
        is_of_whole_command: sums.is_of_whole_command,
        busy: busy.map(|threads| threads.round() as u64).filter(|&threads| threads > 0),
    }
}

/// The quantity by which two files are compared, and the reason.
fn basis([before, after]: [&ComparedFile; 2], unit: &Unit, by: Option<By>) -> (By, &'static str) {
    let spans = before.span_nano.is_some() && after.span_nano.is_some();
    match by {
        Some(By::Second) if !spans => (By::Share, "the files do not say how long they were made for"),
        Some(by) => (by, "as asked for"),
        None if *unit != Unit::Nanoseconds => (By::Total, "the values are no time"),
        None if before.is_of_whole_command && after.is_of_whole_command => {
            (By::Total, "both are of a command, from its start to its end")
        }
        None if !spans && before.measured.samples.min(after.measured.samples) == 0 => {
            (By::Total, "the files do not say how long they were made for")
        }
        None if !spans => (By::Share, "the files do not say how long they were made for"),
        None if before.busy.is_some() && before.busy == after.busy => {
            (By::Share, "both were always busy, so what one function gains, others lose")
        }
        None => (By::Second, "both may have been made for different times"),
    }
}

/// The factor by which most functions grew, for example because of a faster clock or busy neighbours: the median of all
/// growth factors, weighted by time. `None` if a single function has half of the weight.
fn common_growth(before: &FileWeights, after: &FileWeights) -> Option<f64> {
    let both =
        before.functions.iter().filter_map(|(function, of)| Some((after.functions.get(function)?.total, of.total)));
    let mut both: Vec<(f64, f64)> = both.filter(|(_, from)| *from > 0.0).map(|(to, from)| (to / from, from)).collect();
    both.sort_by(|one, other| one.0.total_cmp(&other.0));
    let half = both.iter().map(|(_, from)| from).sum::<f64>() / 2.0;
    let mut sum = 0.0;
    let middle = both.iter().find(|(_, from)| {
        sum += from;
        sum >= half
    });
    middle.filter(|(_, from)| *from < half).map(|(growth, _)| *growth)
}

/// Two files, compared.
struct Comparison<'a> {
    stacks: &'a Stacks,
    sides: [&'a ComparedFile; 2],
    unit: Unit,
    by: By,
    why: &'static str,
    noise: Noise<'a>,
    /// The factor by which most functions grew, which does not count as a change of a function.
    common_growth: f64,
    whole: FunctionChange,
    changes: Vec<FunctionChange>,
}

impl<'a> Comparison<'a> {
    fn new(stacks: &'a Stacks, sides: [&'a ComparedFile; 2], unit: Unit, by: Option<By>) -> Self {
        let (by, why) = basis(sides, &unit, by);
        let [before, after] = sides.map(|side| &side.measured);
        let functions: BTreeSet<u32> = before.functions.keys().chain(after.functions.keys()).copied().collect();
        let larger = |function| before.share(function).max(after.share(function));
        let compared = functions.iter().filter(|&&function| larger(function) >= LEAST_SHARE).count();
        let noise = Noise { before, after, compared, is_same_work: by == By::Total };
        let [first, second] = sides.map(|side| 1.0 / side.basis(by));
        let value = |of: &FileWeights, function| of.functions.get(&function).map_or(0.0, |of| of.total);
        let (from, to) = (before.all.total * first, after.all.total * second);
        let common_growth =
            common_growth(before, after).filter(|_| unit == Unit::Nanoseconds).map(|growth| growth * second / first);
        let common_growth = common_growth.filter(|growth| (growth - 1.0).abs() >= LEAST_CHANGE).unwrap_or(1.0);
        let is_certain = by != By::Share && (to - from).abs() > from.max(to) * LEAST_CHANGE.max(noise.total_noise());
        let whole = FunctionChange { function: None, before: from, after: to, is_certain };
        let change = |&function: &u32| {
            let (from, to) = (value(before, function) * first, value(after, function) * second / common_growth);
            let share = after.share(function) - before.share(function);
            let of = stacks.get(function);
            let is_function = !of.is_placeholder() || of.is_folded && &*of.name != NO_OWN_CODE;
            let is_certain = is_function
                && match noise.is_known() {
                    true => share.abs() > noise.share_noise(function) && (share > 0.0) == (to > from),
                    false => true,
                };
            let least = (whole.before.max(whole.after) * LEAST_SHARE).max(from.max(to) * LEAST_CHANGE);
            FunctionChange {
                function: Some(function),
                before: from,
                after: to,
                is_certain: is_certain && (to - from).abs() >= least,
            }
        };
        let mut changes: Vec<FunctionChange> = functions.iter().map(change).collect();
        changes.sort_by(|one, other| {
            other.delta().abs().total_cmp(&one.delta().abs()).then(one.function.cmp(&other.function))
        });
        Self { stacks, sides, unit, by, why, noise, common_growth, whole, changes }
    }

    /// The factors that make the weights of the two files comparable.
    fn scale(&self) -> [f64; 2] {
        let [before, after] = self.sides.map(|side| side.basis(self.by));
        [1.0, before / after / self.common_growth]
    }

    /// Draws the difference as a flame graph.
    fn picture(&self, name: &str, arguments: &DiffArgs, out: &mut impl io::Write) -> io::Result<()> {
        let (scale, layout) = (self.scale(), arguments.graph.layout.unwrap_or_default());
        let sides = [0, 1].map(|at| (&*self.sides[at].stacks, scale[at]));
        flamegraph::draw_difference(self.stacks, name, self.unit.clone(), &title(arguments), layout, sides, out)
    }

    /// Writes the difference as a page.
    fn page(&self, name: &str, arguments: &DiffArgs, out: &mut impl io::Write) -> io::Result<()> {
        let [before, after] = self.sides;
        let mut lines = before.lines.clone();
        lines.extend(&after.lines);
        let sides =
            [(&*before.stacks, before.basis(self.by)), (&*after.stacks, after.basis(self.by) * self.common_growth)];
        let (stacks, unit, by) = (self.stacks, &self.unit, self.by);
        let difference = Difference { stacks, name, unit, lines, sides, by, why: self.why };
        page::write_difference(difference, &title(arguments), arguments.graph, out)
    }

    fn listed(&self) -> impl Iterator<Item = &FunctionChange> {
        self.changes.iter().filter(|change| change.is_certain)
    }

    /// The words for a function whose value grew, and for one whose value fell.
    fn directions(&self) -> [&'static str; 2] {
        if self.unit == Unit::Nanoseconds { ["slower", "faster"] } else { ["larger", "smaller"] }
    }

    /// The largest growth above a limit in percent.
    fn above(&self, percent: f64) -> Option<&FunctionChange> {
        let least = self.whole.before.max(self.whole.after) * LEAST_DECIDING;
        let whole = Some(&self.whole).filter(|whole| whole.is_certain);
        let functions = self.listed().filter(|change| change.after >= least);
        whole
            .into_iter()
            .chain(functions)
            .filter(|change| change.percent() > percent)
            .max_by(|one, other| one.percent().total_cmp(&other.percent()))
    }

    fn amount(&self, value: f64) -> String {
        match (self.by, &self.unit) {
            (By::Share, _) => format!("{:.2} %", value * 100.0),
            (By::Second, Unit::Nanoseconds) => format!("{:.1} ms/s", value * 1e3),
            (By::Second, unit) => format!("{}/s", unit.amount(value * 1e9)),
            (By::Total, unit) => unit.amount(value),
        }
    }

    fn text(&self, name: &str, before: &Path, after: &Path) -> String {
        let mut out = String::new();
        let mut line = |text: String| {
            out.push_str(text.trim_end());
            out.push('\n');
        };
        for (title, path, side) in [("before", before, self.sides[0]), ("after ", after, self.sides[1])] {
            let whole = self.unit.amount(side.total as f64);
            let span = side.span_nano.map(|nano| format!(" in {:.1} s", nano as f64 / 1e9)).unwrap_or_default();
            let samples = Some(side.measured.samples).filter(|&samples| samples > 0);
            let samples = samples.map(|samples| format!(", {}", counted(samples, "sample"))).unwrap_or_default();
            let name = Some(format!(" {name}")).filter(|name| !whole.ends_with(name)).unwrap_or_default();
            line(format!("{title}: {whole}{name}{span}{samples}, {}", shown(path)));
        }
        let what = match (self.by, &self.unit) {
            (By::Total, Unit::Nanoseconds) => "total time",
            (By::Total, _) => "totals",
            (By::Second, Unit::Nanoseconds) => "time per second",
            (By::Second, _) => "values per second",
            (By::Share, _) => "shares of the whole",
        };
        line(format!("compared by {what}: {}", self.why));
        if self.by != By::Share {
            let whole = &self.whole;
            let noise = if whole.is_certain { "" } else { ", within the noise" };
            let (from, to) = (self.amount(whole.before), self.amount(whole.after));
            // The change of a function with most of the time hardly differs from that of the total.
            let most = self.changes.first().filter(|most| most.delta() / whole.delta() > 0.5 && !most.is_certain);
            let most = most.filter(|_| whole.is_certain).and_then(|most| Some((most.function?, most.percent())));
            let most = most.map(|(function, percent)| {
                format!(", most of it in {} ({percent:+.1} %)", terminal::shortened(self.stacks.label_of(function), 60))
            });
            line(format!("whole: {from} -> {to} ({:+.1} %{noise}){}", whole.percent(), most.unwrap_or_default()));
        }
        if self.common_growth != 1.0 {
            let percent = (self.common_growth - 1.0) * 100.0;
            line(format!("most functions changed alike, by {percent:+.1} %: that is left out below"));
        }
        let lines = |function: u32| {
            let line = |side: &ComparedFile| side.lines.get(&function).copied();
            line(self.sides[1]).or_else(|| line(self.sides[0]))
        };
        let [slower, faster] = self.directions();
        for (title, slower) in [(slower, true), (faster, false)] {
            let rows: Vec<&FunctionChange> = self.listed().filter(|change| (change.delta() > 0.0) == slower).collect();
            if rows.is_empty() {
                line(format!("{title}: nothing"));
                continue;
            }
            line(format!("{title}:"));
            for change in rows.iter().take(MOST_ROWS) {
                let function = change.function.unwrap_or_default();
                let percent = match change.percent() {
                    percent if !percent.is_finite() => "new".to_owned(),
                    percent if change.after == 0.0 => format!("gone ({percent:.0} %)"),
                    percent => format!("{percent:+.1} %"),
                };
                let place = self.stacks.get(function).in_place(lines(function));
                let (from, to) = (self.amount(change.before), self.amount(change.after));
                let name = terminal::shortened(self.stacks.label_of(function), 60);
                line(format!("  {percent:>9}  {from:>12} -> {to:>12}  {name}{place}"));
            }
            if let Some(more) = rows.len().checked_sub(MOST_ROWS).filter(|&more| more > 0) {
                line(format!("  and {}", counted(more as u64, "more function")));
            }
        }
        line(self.smallest());
        out
    }

    /// The smallest growth of the largest function that would have been noticed.
    fn smallest(&self) -> String {
        if !self.noise.is_known() {
            return format!("noise: not known; changes below {:.0} % are not listed", LEAST_CHANGE * 100.0);
        }
        let largest = self.changes.iter().max_by(|one, other| one.before.total_cmp(&other.before));
        let Some(function) = largest.and_then(|largest| largest.function) else { return String::new() };
        let (share, noise) = (self.noise.before.share(function), self.noise.share_noise(function));
        let name = terminal::shortened(self.stacks.label_of(function), 60);
        // Growth by g of a function with the share s makes the share s (1 + g) / (1 + s g).
        let rest = if self.by == By::Share { share } else { share * (1.0 - share - noise) };
        let growth = (noise / rest.max(f64::MIN_POSITIVE)).max(LEAST_CHANGE) * 100.0;
        // A share cannot grow beyond all there is.
        let is_hidden = rest <= 0.0 || growth > 100.0 || self.by == By::Share && share + noise > 1.0;
        if is_hidden && share >= NEARLY_ALL && self.by != By::Share {
            return format!("noise: {name} is nearly the whole, which shows its changes");
        }
        if is_hidden {
            let [before, after] = self.sides.map(|side| side.measured.samples);
            return format!(
                "noise: {before} and {after} samples are too few to see even a doubling of {name}; sample for longer, \
                 or with a higher --rate"
            );
        }
        let what = if self.by == By::Share { "the share of " } else { "" };
        format!("noise: a change of {what}{name} by less than {growth:.1} % would not have been seen")
    }
}
