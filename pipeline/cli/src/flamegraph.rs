//! A flame graph of collapsed stacks, drawn by inferno.

use std::io;

use inferno::flamegraph::{self, Options};
use profbridge_wire::folded::Unit;

/// Draws collapsed stacks (`root;...;leaf count`, one per line) as SVG.
///
/// # Errors
///
/// When there is nothing to draw, or `out` cannot be written.
pub(crate) fn draw(folded: &str, title: &str, unit: Unit, out: impl io::Write) -> io::Result<()> {
    if folded.trim().is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "there is not a single stack to draw"));
    }
    let mut options = Options::default();
    options.title = title.to_owned();
    options.count_name = match unit {
        Unit::Samples => "samples".to_owned(),
        Unit::Nanoseconds => "ns".to_owned(),
    };
    flamegraph::from_lines(&mut options, folded.lines(), out).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: a function is found in the graph by its name, and nothing to draw is an error that says so.
    #[test]
    fn draws() {
        let mut svg = Vec::new();
        draw("main;work 3\nmain;rest 1\n", "demo", Unit::Samples, &mut svg).unwrap();
        let svg = String::from_utf8(svg).unwrap();
        assert!(svg.contains("work (3 samples, 75.00%)"), "{svg}");
        assert!(draw("\n", "demo", Unit::Samples, Vec::new()).unwrap_err().to_string().contains("not a single stack"));
    }
}
