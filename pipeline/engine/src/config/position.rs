//! Positions in the configuration: a byte range for the loader, file and line for a person.

use std::fmt;
use std::sync::Arc;

/// A byte range in one of the loaded sources. Small, because every node has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct Pos {
    /// Index into the list of sources, in the order they were given.
    pub(super) source: u32,
    /// Offset of the first byte.
    pub(super) start: u32,
    /// Offset after the last byte.
    pub(super) end: u32,
}

impl Pos {
    /// The position of a source as a whole.
    pub(super) fn whole(source: u32) -> Self {
        Self { source, start: u32::MAX, end: u32::MAX }
    }

    /// Whether this is [`Pos::whole`].
    pub(super) fn is_whole(self) -> bool {
        self.start == u32::MAX
    }
}

/// The place of a problem: file, line, column and the line itself.
///
/// The line may be logged, because secrets in it are masked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourcePosition {
    /// Name of the source: a path, the name of a text, or `--set`.
    pub file: Arc<str>,
    /// Line, counted from 1; 0 if the problem concerns the source as a whole.
    pub line: u32,
    /// Column in characters, counted from 1; 0 if the problem concerns the source as a whole.
    pub column: u32,
    /// The line, with the relevant part marked.
    pub excerpt: Option<Excerpt>,
    /// The byte range, by which problems are sorted.
    pub(super) pos: Pos,
}

/// One line of a source with secrets masked, and the part that a problem is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    /// The line without its line break.
    pub text: String,
    /// The number of characters of `text` before the marked part.
    pub caret: usize,
    /// The number of marked characters; at least 1.
    pub width: usize,
}

impl SourcePosition {
    /// The key to sort by: source, then position within it.
    pub(super) fn order(&self) -> (u32, u32, u32) {
        let start = if self.pos.is_whole() { 0 } else { self.pos.start.saturating_add(1) };
        (self.pos.source, start, self.pos.end)
    }
}

impl fmt::Display for SourcePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            return f.write_str(&self.file);
        }
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}
