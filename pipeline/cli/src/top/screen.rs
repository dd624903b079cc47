//! The lines of a view, computed from its state and the size of the terminal.

#[cfg(test)]
mod tests;

use std::time::Duration;

use unicode_width::UnicodeWidthStr;

use super::state::{LATELY, Sort, ThreadTimes, Totals, ViewState};
use crate::terminal::{cut, shortened};
use crate::views::tree::is_own;
use crate::views::waits::WaitReason;

/// From this many columns on, times are shown beside shares.
const WIDE: usize = 100;

/// The number of functions in the output without a terminal.
const PLAIN: usize = 10;

/// A line of the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ScreenRow {
    /// No wider than the terminal.
    pub(super) text: String,
    pub(super) style: Style,
}

/// The style of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// Normal text.
    Plain,
    /// A table heading.
    Heading,
    /// Program code.
    Own,
    /// A library or the system.
    Other,
}

/// The display width of a text in columns.
pub(super) fn columns(text: &str) -> usize {
    text.width()
}

/// All lines of the terminal.
pub(super) fn draw(state: &mut ViewState, width: usize, height: usize) -> Vec<ScreenRow> {
    let (totals, time) = state.totals();
    let mut title = format!("profbridge top  {}", state.course.text);
    while columns(&title) > width
        && let Some((start, _)) = title.rsplit_once(", ")
    {
        title.truncate(start.len());
    }
    let (summary, reasons) = (summary(state, &totals, time), reasons(&totals));
    let both = if reasons.is_empty() { summary.clone() } else { format!("{summary} ({reasons})") };
    let fits = columns(&both) <= width;
    // What was said is more important than why threads wait.
    let third = if fits { String::new() } else { format!("waiting for: {reasons}") };
    let third = state.messages().next_back().cloned().unwrap_or(third);
    let mut rows =
        vec![row(title, Style::Plain), row(if fits { both } else { summary }, Style::Plain), row(third, Style::Plain)];
    if !state.hide_threads {
        // The functions get at least two thirds of the remaining lines.
        threads(state, &totals, time, width, height.saturating_sub(5) / 3, &mut rows);
    }
    let functions = state.sorted(&totals);
    // The heading of the table and the last line.
    let room = height.saturating_sub(rows.len() + 2);
    state.page = room.max(1);
    state.scroll = state.scroll.min(functions.len().saturating_sub(room.max(1)));
    rows.push(row(heading(state, width), Style::Heading));
    for (number, times) in functions.iter().skip(state.scroll).take(room) {
        let own = shares(&totals, times.own, times.total, times.waiting);
        let seconds = if width < WIDE { String::new() } else { format!("{:>9.2}", seconds(times.by(state.sort))) };
        let style = if is_own(state.stacks(), *number) { Style::Own } else { Style::Other };
        rows.push(row(
            format!("{own}{seconds}  {}", named(state, *number, width, own.len() + seconds.len() + 2)),
            style,
        ));
    }
    if functions.is_empty() {
        let why = match state.filter.is_empty() {
            true if state.awaits_names() => "no functions yet: their names are being read",
            true => "no samples yet",
            false => "no function with this name",
        };
        rows.push(row(why.to_owned(), Style::Other));
    }
    rows.truncate(height.saturating_sub(1));
    rows.resize(height.saturating_sub(1), row(String::new(), Style::Plain));
    if height > 0 {
        rows.push(row(footer(state, functions.len()), Style::Heading));
    }
    for row in &mut rows {
        row.text = cut(&row.text, width);
    }
    rows
}

/// The lines written without a terminal.
pub(super) fn plain(state: &mut ViewState) -> Vec<String> {
    let (totals, time) = state.totals();
    let reasons = Some(reasons(&totals)).filter(|reasons| !reasons.is_empty());
    let reasons = reasons.map(|reasons| format!(" ({reasons})")).unwrap_or_default();
    let mut lines = vec![state.course.text.clone(), summary(state, &totals, time) + &reasons];
    let functions = state.sorted(&totals);
    if !functions.is_empty() {
        lines.push("   self   total    wait  function".to_owned());
    }
    for (number, times) in functions.iter().take(PLAIN) {
        let own = shares(&totals, times.own, times.total, times.waiting);
        lines.push(format!("{own}  {}", whole_name(state, *number, false)));
    }
    lines.push(String::new());
    lines
}

fn row(text: String, style: Style) -> ScreenRow {
    ScreenRow { text, style }
}

fn summary(state: &ViewState, totals: &Totals, time: Duration) -> String {
    if state.awaits_names() {
        return "no figures yet: the samples wait for the names of their functions".to_owned();
    }
    let of = |nano: u64| nano as f64 / (time.as_nanos() as f64).max(1.0);
    // Parts are half a second long, so they may cover a little more than the range.
    let lately = time.min(LATELY).as_secs_f64();
    let span = if state.since_start { "all time".to_owned() } else { format!("last {lately:.0} s") };
    let mut text =
        format!("{span}: running {:.2} processors, waiting {:.2} threads", of(totals.running), of(totals.waiting));
    if !state.filter.is_empty() || state.typing {
        text.push_str(&format!("; functions with `{}`", state.filter));
    }
    text
}

/// Why threads waited.
fn reasons(totals: &Totals) -> String {
    let mut reasons: Vec<_> = totals.reasons.iter().collect();
    reasons.sort_by_key(|(reason, nano)| (std::cmp::Reverse(**nano), **reason));
    let of = |nano: u64| nano as f64 * 100.0 / totals.waiting.max(1) as f64;
    let reasons = reasons.iter().take(3).map(|(reason, nano)| format!("{} {:.0} %", reason.name(), of(**nano)));
    let reasons: Vec<String> = reasons.filter(|_| totals.waiting > 0).collect();
    reasons.join(", ")
}

fn threads(state: &ViewState, totals: &Totals, time: Duration, width: usize, most: usize, rows: &mut Vec<ScreenRow>) {
    let mut threads: Vec<_> = totals.threads.iter().collect();
    // Running threads come first, then those that waited longest.
    threads.sort_by_key(|(key, times)| (std::cmp::Reverse((times.running, times.waiting)), (*key).clone()));
    let several = threads.iter().any(|((label, _), _)| *label != threads[0].0.0);
    // The heading takes a line, and the number of omitted threads another one.
    let shown = most.saturating_sub(1);
    let shown = if threads.len() > shown { shown.saturating_sub(1) } else { shown };
    if shown == 0 || threads.is_empty() {
        return;
    }
    rows.push(row("    run    wait  thread".to_owned(), Style::Heading));
    for ((label, id), times) in threads.iter().take(shown) {
        let name = if *id == 0 { times.name.to_string() } else { format!("{} ({id})", times.name) };
        let name = if several { format!("{label} {name}") } else { name };
        let part = |nano: u64| nano as f64 * 100.0 / (time.as_nanos() as f64).max(1.0);
        let share = format!("{:>5.1} % {:>5.1} %", part(times.running), part(times.waiting));
        let place = match place(times) {
            _ if times.running < times.waiting => {
                let reason = times.awaited.iter().max_by_key(|(_, nano)| **nano).map(|(awaited, _)| &**awaited);
                // Of a thread without functions only the reason is known.
                let is_function = |function: &u32| WaitReason::of_frame(state.stacks().label_of(*function)).is_none();
                let place = place(times).filter(is_function);
                let place = place.map(|function| format!(": {}", whole_name(state, function, true)));
                format!("  {}{}", reason.unwrap_or("waiting"), place.unwrap_or_default())
            }
            Some(function) => format!("  {}", whole_name(state, function, false)),
            None => String::new(),
        };
        let name = cut(&name, width.saturating_sub(share.len() + 2).min(if several { 48 } else { 28 }));
        rows.push(row(format!("{share}  {name}{place}"), Style::Plain));
    }
    if let Some(more) = threads.len().checked_sub(shown).filter(|&more| more > 0) {
        rows.push(row(format!("                 and {more} more"), Style::Other));
    }
}

/// The function where a thread spent most of its time.
fn place(times: &ThreadTimes) -> Option<u32> {
    times.places.iter().max_by_key(|(number, nano)| (**nano, std::cmp::Reverse(**number))).map(|(number, _)| *number)
}

fn shares(totals: &Totals, own: u64, total: u64, waiting: u64) -> String {
    let of = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 };
    let running = |part| of(part, totals.running);
    format!("{:>5.1} % {:>5.1} % {:>5.1} %", running(own), running(total), of(waiting, totals.waiting))
}

fn heading(state: &ViewState, width: usize) -> String {
    let mark = |sort: Sort, name: &str| {
        let mark = if state.sort == sort { ">" } else { "" };
        format!("{:>7}", format!("{mark}{name}"))
    };
    let columns = [mark(Sort::Own, "self"), mark(Sort::Total, "total"), mark(Sort::Waiting, "wait")];
    let seconds = if width < WIDE { "" } else { "  seconds" };
    let first = if state.mixed { "" } else { ", own code first" };
    format!("{}{seconds}  function{first}", columns.join(" "))
}

fn footer(state: &ViewState, functions: usize) -> String {
    if state.typing {
        return format!("filter: {}_  Enter keeps it, Escape drops it", state.filter);
    }
    let place = if state.scroll == 0 { String::new() } else { format!(" from {}", state.scroll + 1) };
    format!("q quit  s t w sort  / filter  o own  n native  h threads  a all  {functions} functions{place}")
}

fn seconds(nano: u64) -> f64 {
    nano as f64 / 1e9
}

fn whole_name(state: &ViewState, function: u32, waits: bool) -> String {
    let name = state.stacks().label_of(function);
    match state.place(function, waits) {
        // The name of a library's function already has its package.
        _ if name.ends_with(')') || name.contains(" → ") => name.to_owned(),
        place => format!("{name}{place}"),
    }
}

/// A function's name in the rest of a line: its file is dropped before the name is shortened, and the name keeps both
/// ends, because both distinguish functions.
fn named(state: &ViewState, function: u32, width: usize, taken: usize) -> String {
    let room = width.saturating_sub(taken);
    let whole = whole_name(state, function, false);
    if columns(&whole) <= room {
        return whole;
    }
    shortened(state.stacks().label_of(function), room)
}
