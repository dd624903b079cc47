//! Flame graphs: stacks as columns of cells, each function as wide as its time.
//!
//! Running time is shown first. Waiting time, and each type of values that is not time, is another picture in the same
//! file, selected by a button. The crate `inferno` is not used, because it draws only one picture, colours by language,
//! has no legend, and shows times as integers.

mod cells;
mod picture;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::io;

use clap::{Args, ValueEnum};

use super::reading::{State, Unit};
use super::stacks::{Node, Stacks};
use super::sums::Sums;
use super::tree::Tree;
use crate::destination::Format;
use cells::Cells;
use picture::{Picture, View, percent};

/// Position of the outermost functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Layout {
    /// At the top, and what they call below them.
    #[default]
    Icicle,
    /// At the bottom, and what they call above them.
    Flame,
}

/// How a flame graph is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Args)]
pub(crate) struct GraphStyle {
    /// How a flame graph is drawn. Default: icicle.
    #[arg(long = "graph", value_enum, value_name = "LAYOUT")]
    pub(crate) layout: Option<Layout>,
    /// Tell lines of the program's own code apart, and not only its functions: each by the time in it and in what it
    /// calls of libraries.
    #[arg(long, conflicts_with = "native")]
    pub(crate) lines: bool,
    /// Show stacks as they were sampled, with the frames of interpreters, the C library and the kernel. Without it,
    /// time in these counts for the function of the program that called them, and of a library only what the program
    /// calls is shown.
    #[arg(long)]
    pub(crate) native: bool,
}

impl GraphStyle {
    /// The option that has no meaning for a format.
    pub(crate) fn meaningless_for(self, format: Format) -> Option<&'static str> {
        let is_drawn = matches!(format, Format::Svg | Format::Html);
        let has_functions = is_drawn || matches!(format, Format::Speedscope | Format::Firefox);
        let of = [("--graph", self.layout.is_some() && !is_drawn), ("--lines", self.lines && !has_functions)];
        of.into_iter().find_map(|(option, is_meaningless)| is_meaningless.then_some(option))
    }
}

/// Writes sums as SVG.
///
/// # Errors
///
/// If there is nothing to draw, or `out` cannot be written.
pub(crate) fn draw(sums: &mut Sums, title: &str, style: GraphStyle, out: &mut impl io::Write) -> io::Result<()> {
    let states = sums.states();
    let several = states.iter().flat_map(|&state| sums.processes(state)).collect::<BTreeSet<_>>().len() > 1;
    let mut weighed = Vec::new();
    for &state in &states {
        let processes: Vec<u32> = sums.processes(state).collect();
        let stacks: Vec<_> =
            processes.into_iter().map(|process| (process, sums.weighed(state, process, !style.native))).collect();
        weighed.push((state, sums.reading.name(state), stacks));
    }
    let mut views = Vec::new();
    for (state, name, stacks) in &mut weighed {
        let lines = sums.hottest_lines(*state);
        let all: Vec<_> = stacks.iter().flat_map(|(_, weights)| weights.iter().copied()).collect();
        let hottest = Tree::new(&sums.reading.stacks, &all).hottest().filter(|_| !style.native);
        let hottest = hottest.map(|(_, function, weight)| {
            let (stacks, part) = (&sums.reading.stacks, percent(weight, sums.total(*state)));
            let place = stacks.get(function).in_place(lines.get(&function).copied());
            let most = match state {
                State::Waiting => "waited most",
                State::Type(_) => "most",
                State::Running | State::Wall => "hottest",
            };
            format!("; {most}: {}{place} {part}", stacks.label_of(function))
        });
        let processes = std::mem::take(stacks).into_iter().map(|(process, weights)| {
            let label = &*sums.reading.processes[process as usize].label;
            (several.then_some(label), weights)
        });
        let Cells { cells, narrow } = cells::cells(&sums.reading.stacks, &lines, name, processes.collect());
        if !cells.is_empty() {
            let hottest = hottest.unwrap_or_default();
            views.push(View { name, unit: sums.reading.unit(*state), cells, narrow, hottest });
        }
    }
    if views.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "there is not a single stack to draw"));
    }
    Picture { title, layout: style.layout.unwrap_or_default(), views: &views, growth: None }.write(out)
}

/// Draws the stacks of two files as SVG, each as wide as the larger of its two weights, coloured by growth. `scale` is
/// what the weights of each file are multiplied with to be compared.
///
/// # Errors
///
/// If there is nothing to draw, or `out` cannot be written.
pub(crate) fn draw_difference(
    stacks: &Stacks,
    name: &str,
    unit: Unit,
    title: &str,
    layout: Layout,
    sides: [(&[(Node, u64)], f64); 2],
    out: &mut impl io::Write,
) -> io::Result<()> {
    let mut weights: HashMap<Node, [u64; 2]> = HashMap::new();
    for (at, (weighed, scale)) in sides.into_iter().enumerate() {
        for &(node, weight) in weighed {
            weights.entry(node).or_default()[at] += (weight as f64 * scale) as u64;
        }
    }
    let mut growth: HashMap<Node, i64> = HashMap::new();
    let mut widest = Vec::new();
    for (node, [before, after]) in weights {
        widest.push((node, before.max(after)));
        let grew = i64::try_from(after).unwrap_or(i64::MAX).saturating_sub(i64::try_from(before).unwrap_or(i64::MAX));
        let mut at = Some(node);
        while let Some(node) = at {
            let sum = growth.entry(node).or_default();
            *sum = sum.saturating_add(grew);
            at = stacks.edge(node).map(|(caller, _)| caller);
        }
    }
    let Cells { cells, narrow } = cells::cells(stacks, &HashMap::new(), name, vec![(None, widest)]);
    if cells.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "there is not a single stack to draw"));
    }
    let views = [View { name, unit, cells, narrow, hottest: String::new() }];
    Picture { title, layout, views: &views, growth: Some(growth) }.write(out)
}
