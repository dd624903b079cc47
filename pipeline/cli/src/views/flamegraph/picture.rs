//! Writes the SVG, which any browser or viewer can show, with a script for browsers that run it.
//!
//! Without the script, it has a fixed width and shows the first view. The script fits it to the window, and adds what
//! needs clicks: switching views, zooming, searching.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, Write};

use profbridge_wire::sentry::chunk::origin::CodeOrigin;
use unicode_width::UnicodeWidthStr;

use super::Layout;
use super::cells::{Cell, MOST_CELLS};
use crate::terminal::{self, is_unprintable};
use crate::views::reading::Unit;
use crate::views::stacks::{Node, ORIGINS};

/// Width without the script, in pixels.
const WIDTH: f64 = 1200.0;

/// Margin on both sides, in pixels.
const MARGIN: f64 = 10.0;

/// Height of a row, and of the cell in it, in pixels.
const ROW: usize = 17;
const CELL: usize = 16;

/// Height of title, legend and details line, in pixels.
const HEAD: usize = 74;

/// Width of a character in a monospaced font of 12 pixels: 0.6 of the size in most fonts.
const CHARACTER: f64 = 7.25;

/// Space between a name and the edges of its cell, in pixels.
const PADDING: f64 = 3.0;

const SCRIPT: &str = include_str!("script.js");
const STYLE: &str = include_str!("style.css");

/// One thread state or value type.
#[derive(Debug)]
pub(super) struct View<'a> {
    /// The view's name.
    pub(super) name: &'a str,
    /// The unit of the cells' widths.
    pub(super) unit: Unit,
    /// The cells; the first one is the total.
    pub(super) cells: Vec<Cell<'a>>,
    /// Total width of the functions that were too narrow to show.
    pub(super) narrow: u64,
    /// The own function with the most of it, in words; empty if there is none.
    pub(super) hottest: String,
}

impl View<'_> {
    fn total(&self) -> u64 {
        self.cells.first().map_or(0, |root| root.width)
    }

    /// The total, and how much of it is not shown.
    fn amount(&self) -> String {
        let whole = amount(self.total(), &self.unit);
        let hottest = &self.hottest;
        if self.narrow == 0 {
            return format!("{whole}{hottest}");
        }
        let part = percent(self.narrow, self.total());
        let why = if self.cells.len() < MOST_CELLS { "too narrow" } else { "too narrow or too many" };
        format!(
            "{whole}, of which {} ({part}) are in functions {why} to be drawn{hottest}",
            amount(self.narrow, &self.unit)
        )
    }

    fn rows(&self) -> usize {
        self.cells.iter().map(|cell| cell.depth + 1).max().unwrap_or_default()
    }
}

/// Everything that is drawn.
#[derive(Debug)]
pub(super) struct Picture<'a> {
    pub(super) title: &'a str,
    pub(super) layout: Layout,
    /// The views; the first one is shown initially.
    pub(super) views: &'a [View<'a>],
    /// In a picture of a difference, the growth of each stack that is not zero.
    pub(super) growth: Option<HashMap<Node, i64>>,
}

/// The colours of a difference, with their meaning.
const DIFFERENCE: [(&str, &str); 3] = [("slower2", "slower"), ("faster2", "faster"), ("same1", "unchanged")];

impl Picture<'_> {
    pub(super) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let rows = self.views.iter().map(View::rows).max().unwrap_or_default();
        let graph = rows * ROW;
        let height = HEAD + graph + 10;
        // Shows something without scrolling: the title is next to the outermost functions.
        let (head, first, class) = match self.layout {
            Layout::Icicle => (0, HEAD, "icicle"),
            Layout::Flame => (graph + 10, graph + 5 - ROW, "flame"),
        };
        writeln!(
            out,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" version=\"1.1\" \
             width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" class=\"{class}\" role=\"figure\" aria-label=\"{}\">",
            xml(self.title)
        )?;
        writeln!(out, "<style>{STYLE}</style>")?;
        writeln!(out, "<rect class=\"page\" width=\"100%\" height=\"100%\"/>")?;
        writeln!(out, "<text class=\"title\" x=\"{MARGIN}\" y=\"{}\">{}</text>", head + 22, xml(self.title))?;
        self.legend(head + 33, out)?;
        let what = self.views.first().map(|view| format!("{}: {}", view.name, view.amount()));
        let what = what.unwrap_or_default();
        writeln!(
            out,
            "<text class=\"about\" aria-live=\"polite\" x=\"{MARGIN}\" y=\"{}\">{}</text>",
            head + 64,
            xml(&what)
        )?;
        for (number, view) in self.views.iter().enumerate() {
            let hidden = if number == 0 { "" } else { " style=\"display:none\"" };
            writeln!(
                out,
                "<g class=\"view\" data-name=\"{}\" data-amount=\"{}\" data-whole=\"{}\"{hidden}>",
                xml(view.name),
                xml(&amount(view.total(), &view.unit)),
                xml(&view.amount())
            )?;
            for cell in &view.cells {
                let y = match self.layout {
                    Layout::Icicle => first + cell.depth * ROW,
                    Layout::Flame => first - cell.depth * ROW,
                };
                self.cell(cell, view, y, out)?;
            }
            writeln!(out, "</g>")?;
        }
        writeln!(out, "<script><![CDATA[{SCRIPT}]]></script>\n</svg>")
    }

    /// Draws the legend: the kinds of code that occur, with their colours.
    fn legend(&self, y: usize, out: &mut impl Write) -> io::Result<()> {
        let mut x = MARGIN;
        let cells = || self.views.iter().flat_map(|view| &view.cells);
        let origins = ORIGINS.into_iter().filter(|(of, _)| cells().any(|cell| cell.origin == Some(*of)));
        let entries: Vec<(String, &str)> = match self.growth {
            Some(_) => DIFFERENCE.map(|(class, name)| (class.to_owned(), name)).to_vec(),
            None => origins.map(|(origin, name)| (format!("{}1", class(Some(origin))), name)).collect(),
        };
        for (class, name) in entries {
            writeln!(
                out,
                "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y}\" width=\"12\" height=\"12\"/>\
                 <text class=\"legend\" x=\"{:.1}\" y=\"{}\">{}</text>",
                x + 17.0,
                y + 10,
                name
            )?;
            x += 17.0 + CHARACTER * name.len() as f64 + 22.0;
        }
        Ok(())
    }

    fn cell(&self, cell: &Cell<'_>, view: &View<'_>, y: usize, out: &mut impl Write) -> io::Result<()> {
        let total = view.total();
        let part = |of: u64| of as f64 / total as f64 * (WIDTH - 2.0 * MARGIN);
        let (x, width) = (MARGIN + part(cell.left), part(cell.width));
        let place = if cell.place.is_empty() { String::new() } else { format!("{}, ", cell.place) };
        let line = if cell.origin == Some(CodeOrigin::Own) { &*cell.place } else { "" };
        let of_line = if line.is_empty() { String::new() } else { format!(" data-line=\"{}\"", xml(line)) };
        // The whole name stands between the short one and the place if it has more.
        let whole = if cell.whole_name == cell.name { String::new() } else { format!("{}\n", cell.whole_name) };
        let growth = self.growth.as_ref().map(|growth| growth.get(&cell.node).copied().unwrap_or_default());
        let (class, grew) = match growth {
            None => (format!("{}{}", class(cell.origin), shade(cell.name)), String::new()),
            Some(growth) => {
                let sign = if growth < 0 { "-" } else { "+" };
                let grew = format!("{sign}{}, ", amount(growth.unsigned_abs(), &view.unit));
                (changed(growth, cell.width), if growth == 0 { String::new() } else { grew })
            }
        };
        writeln!(
            out,
            "<g><title>{}\n{}{}{grew}{}, {}</title><rect class=\"{class}\" x=\"{x:.2}\" y=\"{y}\" \
             width=\"{width:.2}\" height=\"{CELL}\"{of_line}/>{}</g>",
            xml(cell.name),
            xml(&whole),
            xml(&place),
            amount(cell.width, &view.unit),
            percent(cell.width, total),
            label(cell.name, line, width).map_or_else(String::new, |label| format!(
                "<text x=\"{:.2}\" y=\"{}\">{}</text>",
                x + PADDING,
                y + 12,
                xml(&label)
            )),
        )
    }
}

/// CSS class for an origin of code: the first word of its name.
fn class(origin: Option<CodeOrigin>) -> &'static str {
    let name = ORIGINS.iter().find(|(known, _)| Some(*known) == origin).and_then(|(_, name)| name.split(' ').next());
    name.unwrap_or("whole")
}

/// CSS class for a growth: the more of the cell's width it is, the stronger the colour.
fn changed(growth: i64, width: u64) -> String {
    let parts = growth.unsigned_abs().saturating_mul(100) / width.max(1);
    match (parts, growth > 0) {
        (0..2, _) => "same1".to_owned(),
        (_, slower) => format!("{}{}", if slower { "slower" } else { "faster" }, (parts / 10).min(2)),
    }
}

/// One of three shades for a function, to distinguish neighbours.
fn shade(name: &str) -> u32 {
    name.bytes().fold(7u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into())) % 3
}

/// A percentage that is never shown as zero unless it is zero.
pub(super) fn percent(part: u64, whole: u64) -> String {
    match part as f64 / whole as f64 * 100.0 {
        percent if part > 0 && percent < 0.005 => "less than 0.01 %".to_owned(),
        percent => format!("{percent:.2} %"),
    }
}

/// Formats a weight.
fn amount(weight: u64, unit: &Unit) -> String {
    match unit {
        Unit::Nanoseconds if weight < 1_000 => format!("{:.6} ms", weight as f64 / 1e6),
        Unit::Nanoseconds if weight < 100_000 => format!("{:.4} ms", weight as f64 / 1e6),
        Unit::Nanoseconds if weight < 1_000_000_000 => format!("{:.1} ms", weight as f64 / 1e6),
        Unit::Count(of) if weight == 1 => format!("1 {}", of.strip_suffix('s').unwrap_or(of)),
        unit => unit.amount(weight as f64),
    }
}

/// A name that fits into a cell, with the line behind it if that fits too, or with its middle cut out if it is too long;
/// `None` if too little fits.
fn label(name: &str, line: &str, width: f64) -> Option<String> {
    let room = ((width - 2.0 * PADDING) / CHARACTER).max(0.0) as usize;
    let with_line = format!("{name} {line}");
    if !line.is_empty() && with_line.width() <= room {
        return Some(with_line);
    }
    Some(terminal::shortened(name, room)).filter(|label| *label == name || room >= 3)
}

/// Escapes text for XML. Replaces characters that XML does not allow (XML 1.0, 2.2) or that change the direction of the
/// text around them.
fn xml(text: &str) -> Cow<'_, str> {
    let special = |c: char| matches!(c, '<' | '>' | '&' | '"' | '\'' | '\u{fffe}' | '\u{ffff}') || is_unprintable(c);
    if !text.contains(special) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c if special(c) => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: long names keep both ends, and are left out where nothing would be left of them; a line is whole.
    #[test]
    fn labels() {
        let width = |characters: f64| 2.0 * PADDING + characters * CHARACTER + 0.5;
        assert_eq!(label("function", "a.c:7", width(14.0)).as_deref(), Some("function a.c:7"));
        assert_eq!(label("function", "a.c:7", width(13.0)).as_deref(), Some("function"));
        assert_eq!(label("function", "", width(7.0)).as_deref(), Some("fun…ion"));
        assert_eq!(label("function", "", width(3.0)).as_deref(), Some("f…n"));
        assert_eq!(label("function", "", width(2.0)), None);
        assert_eq!(label("f", "", width(0.0)), None);
        assert_eq!(label("漢字漢字", "", width(5.0)).as_deref(), Some("漢…字"));
    }

    /// Guarantees: no name contains markup or a character that XML does not allow.
    #[test]
    fn escapes() {
        assert_eq!(xml("a<b>&\"'"), "a&lt;b&gt;&amp;&quot;&#39;");
        assert_eq!(xml("a\u{0}\u{1b}\u{ffff}b"), "a\u{fffd}\u{fffd}\u{fffd}b");
        assert!(matches!(xml("é 漢"), Cow::Borrowed(_)));
    }

    /// Guarantees: times are seconds or milliseconds, however short they are.
    #[test]
    fn amounts() {
        assert_eq!(amount(9_870_040_000, &Unit::Nanoseconds), "9.87 s");
        assert_eq!(amount(1_500, &Unit::Nanoseconds), "0.0015 ms");
        assert_eq!([1, 999].map(|nano| amount(nano, &Unit::Nanoseconds)), ["0.000001 ms", "0.000999 ms"]);
        assert_eq!([0, 1, 5].map(|part| percent(part, 100_000)), ["0.00 %", "less than 0.01 %", "0.01 %"]);
        let samples = Unit::Count("samples".into());
        assert_eq!([1, 2].map(|count| amount(count, &samples)), ["1 sample", "2 samples"]);
        assert_eq!(amount(2048, &Unit::Bytes), "2.0 KiB");
    }
}
