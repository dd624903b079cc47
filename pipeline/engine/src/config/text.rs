//! The text of a source: converts byte positions to lines that may be shown.

use std::ops::Range;
use std::sync::Arc;

use super::node::{Dropped, Node, NodeKind, Scalar};
use super::position::{Excerpt, Pos, SourcePosition};
use super::redact::{self, REDACTED};

/// The maximum number of characters of a line that are shown.
const SHOWN_CHARS: usize = 120;

/// All sources of a configuration, shared by everything that can report a problem.
#[derive(Default)]
pub(super) struct Sources {
    pub(super) all: Vec<SourceText>,
}

pub(super) struct SourceText {
    pub(super) name: Arc<str>,
    pub(super) text: String,
    /// The byte offset of each line.
    lines: Vec<usize>,
    /// Byte ranges that must not be shown, sorted and disjoint.
    masks: Vec<Range<usize>>,
    /// The end of the last node on each line; a comment may follow. Empty if the source could not be parsed.
    code_ends: Vec<usize>,
}

impl SourceText {
    /// A source whose secrets are guessed line by line until [`SourceText::find_secrets`] is called.
    pub(super) fn new(name: impl Into<Arc<str>>, text: String) -> Self {
        let lines = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { name: name.into(), text, lines, masks: Vec::new(), code_ends: Vec::new() }
    }

    /// Finds secrets and comments with the parsed tree.
    pub(super) fn find_secrets(&mut self, source: u32, root: &Node, dropped: &[Dropped]) {
        let mut masks = Vec::new();
        let mut ends = self.lines.clone();
        let mut cover = |at: Pos| {
            if at.source == source && !at.is_whole() {
                let end = at.end as usize;
                let line = self.lines.partition_point(|start| *start <= end).saturating_sub(1);
                ends[line] = ends[line].max(end);
            }
        };
        let mut see = |path: &[String], node: &Node, scalar: &Scalar| {
            cover(node.at);
            if node.at.source != source || node.at.is_whole() {
                return;
            }
            let range = node.at.start as usize..node.at.end as usize;
            let Some(written) = self.text.get(range.clone()) else { return };
            if redact::is_secret_path(path) {
                if !super::expand::is_only_references(&scalar.raw) {
                    masks.push(range);
                }
            } else {
                masks.extend(
                    redact::inline_secrets(written).into_iter().map(|r| r.start + range.start..r.end + range.start),
                );
            }
        };
        root.walk(&mut Vec::new(), &mut see);
        for value in dropped {
            value.node.walk(&mut value.path.clone(), &mut see);
        }
        let mut see_key = |path: &[String], at: Pos| {
            cover(at);
            if at.source == source && !at.is_whole() {
                let start = at.start as usize;
                let key = self.text.get(start..at.end as usize).unwrap_or_default();
                if redact::hides_keys(path) {
                    masks.push(start..at.end as usize);
                } else {
                    masks.extend(redact::inline_secrets(key).into_iter().map(|r| r.start + start..r.end + start));
                }
            }
        };
        walk_keys(root, &mut Vec::new(), &mut see_key);
        for value in dropped {
            walk_keys(&value.node, &mut value.path.clone(), &mut see_key);
        }
        masks.retain(|mask| !mask.is_empty());
        masks.sort_by_key(|mask| (mask.start, std::cmp::Reverse(mask.end)));
        self.masks = masks;
        self.code_ends = ends;
    }

    /// The line that contains a byte, counted from 0.
    pub(super) fn line_of(&self, at: u32) -> usize {
        self.lines.partition_point(|start| *start <= at as usize).saturating_sub(1)
    }

    /// The bytes of a line without its line break.
    fn line(&self, index: usize) -> Range<usize> {
        let start = self.lines.get(index).copied().unwrap_or(self.text.len());
        let end = self.lines.get(index + 1).map_or(self.text.len(), |next| next - 1);
        let end = if self.text[start..end].ends_with('\r') { end - 1 } else { end };
        start..end
    }

    /// The ranges of a line that must not be shown, relative to its beginning.
    pub(super) fn masks_of(&self, index: usize) -> Vec<Range<usize>> {
        let line = self.line(index);
        let text = &self.text[line.clone()];
        if self.code_ends.is_empty() {
            return redact::guess(text, self.is_inside_secret(index));
        }
        let mut found: Vec<Range<usize>> = Vec::new();
        for mask in self.masks.iter().filter(|mask| mask.start < line.end && mask.end > line.start) {
            let start = mask.start.max(line.start) - line.start;
            let end = mask.end.min(line.end) - line.start;
            // The indentation of a block scalar is not secret.
            let blank = text[start..end].len() - text[start..end].trim_start().len();
            let start = (start + blank).max(found.last().map_or(0, |last| last.end));
            if start < end {
                found.push(start..end);
            }
        }
        let code_end = self.code_ends[index].clamp(line.start, line.end) - line.start;
        if let Some(comment) = text.get(code_end..).filter(|rest| rest.contains('#')) {
            found.extend(redact::guess(comment, false).into_iter().map(|r| r.start + code_end..r.end + code_end));
        }
        found
    }

    /// Whether a less indented line above names a secret.
    fn is_inside_secret(&self, index: usize) -> bool {
        let indent = |text: &str| text.len() - text.trim_start().len();
        let mut limit = indent(&self.text[self.line(index)]);
        for above in (0..index).rev() {
            let text = &self.text[self.line(above)];
            let content = text.trim_start();
            if content.is_empty() || content.starts_with('#') || indent(text) >= limit {
                continue;
            }
            limit = indent(text);
            let key = content.trim_start_matches("- ").split(':').next().unwrap_or_default();
            if redact::is_secret_key(key.trim_matches(['"', '\''])) {
                return true;
            }
        }
        false
    }

    /// The position to show for a byte range; `extra` is masked in addition to the known secrets.
    fn position(&self, at: Pos, extra: Option<Pos>) -> SourcePosition {
        if at.is_whole() {
            return SourcePosition { file: self.name.clone(), line: 0, column: 0, excerpt: None, pos: at };
        }
        let index = self.line_of(at.start);
        let line = self.line(index);
        let text = &self.text[line.clone()];
        let mut masks = self.masks_of(index);
        if let Some(extra) = extra.filter(|extra| !extra.is_whole()) {
            let start = (extra.start as usize).clamp(line.start, line.end) - line.start;
            let end = (extra.end as usize).clamp(line.start, line.end) - line.start;
            if start < end {
                let (overlapping, mut apart): (Vec<_>, Vec<_>) =
                    masks.into_iter().partition(|mask| mask.start < end && mask.end > start);
                let union = |all: Range<usize>, mask: Range<usize>| all.start.min(mask.start)..all.end.max(mask.end);
                apart.push(overlapping.into_iter().fold(start..end, union));
                masks = apart;
                masks.sort_by_key(|mask| mask.start);
            }
        }
        let start = (at.start as usize).clamp(line.start, line.end) - line.start;
        let end = (at.end as usize).clamp(line.start, line.end) - line.start;
        let column = text.get(..start).map_or(0, |before| before.chars().count()) + 1;
        SourcePosition {
            file: self.name.clone(),
            line: u32::try_from(index + 1).unwrap_or(u32::MAX),
            column: u32::try_from(column).unwrap_or(u32::MAX),
            excerpt: Some(excerpt(text, &masks, start..end)),
            pos: at,
        }
    }
}

/// Calls `visit` with the position of every key and the path to its map.
fn walk_keys(node: &Node, path: &mut Vec<String>, visit: &mut dyn FnMut(&[String], Pos)) {
    match &node.kind {
        NodeKind::Scalar(_) => {}
        NodeKind::Seq(items) => items.iter().for_each(|item| walk_keys(item, path, visit)),
        NodeKind::Map(entries) => {
            for entry in entries {
                entry.at.iter().for_each(|at| visit(path, *at));
                path.push(entry.key.clone());
                walk_keys(&entry.value, path, visit);
                path.pop();
            }
        }
    }
}

/// Applies the masks, replaces control characters, and crops the line to the width of a screen.
fn excerpt(text: &str, masks: &[Range<usize>], marked: Range<usize>) -> Excerpt {
    let mut shown: Vec<char> = Vec::new();
    let mut caret = None;
    let mut caret_end = 0;
    let mut skip_to = 0;
    for (at, c) in text.char_indices().chain([(text.len(), '\n')]) {
        let mask = masks.iter().find(|mask| mask.contains(&at));
        if at >= marked.start && caret.is_none() && mask.is_none_or(|mask| mask.start >= marked.start) {
            caret = Some(shown.len());
        }
        if at <= marked.end {
            caret_end = shown.len();
        }
        if at < skip_to || c == '\n' {
            continue;
        }
        if let Some(mask) = mask {
            if caret.is_none() && marked.start < mask.end {
                caret = Some(shown.len());
            }
            shown.extend(REDACTED.chars());
            skip_to = mask.end;
            if marked.end > mask.start {
                caret_end = shown.len();
            }
            continue;
        }
        shown.push(if c == '\t' || c.is_control() { ' ' } else { c });
    }
    let caret = caret.unwrap_or(shown.len());
    let width = caret_end.saturating_sub(caret).max(1);
    let from = if caret < SHOWN_CHARS { 0 } else { caret - SHOWN_CHARS / 2 };
    let end = shown.len().min(from + SHOWN_CHARS);
    let mut out: String = shown[from.min(end)..end].iter().collect();
    let mut caret = caret - from;
    if from > 0 {
        out.insert_str(0, "...");
        caret += 3;
    }
    let room = out.chars().count().saturating_sub(caret).max(1);
    if end < shown.len() {
        out.push_str("...");
    }
    Excerpt { text: out.trim_end().to_owned(), caret, width: width.min(room) }
}

impl Sources {
    /// The position to show for a byte range.
    pub(super) fn position(&self, at: Pos) -> SourcePosition {
        self.position_hiding(at, None)
    }

    /// The position to show for a byte range, with `extra` masked in addition to the known secrets.
    pub(super) fn position_hiding(&self, at: Pos, extra: Option<Pos>) -> SourcePosition {
        match self.all.get(at.source as usize) {
            Some(source) => source.position(at, extra.filter(|extra| extra.source == at.source)),
            None => SourcePosition {
                file: "configuration".into(),
                line: 0,
                column: 0,
                excerpt: None,
                pos: Pos::whole(at.source),
            },
        }
    }

    /// Whether a value is always masked, because one of its parent keys names a secret.
    pub(super) fn hides(&self, at: Pos) -> bool {
        let Some(source) = self.all.get(at.source as usize).filter(|_| !at.is_whole()) else { return false };
        let (start, end) = (at.start as usize, at.end as usize);
        source.masks.iter().any(|mask| mask.start <= start && end <= mask.end && start < end)
    }

    /// Whether the text of this scalar must not be printed. An alias of a secret is a secret too, whatever its key.
    pub(super) fn is_sensitive(&self, path: &[String], node: &Node, scalar: &Scalar) -> bool {
        scalar.from_env
            || redact::is_secret_path(path)
            || self.hides(node.at)
            || !redact::inline_secrets(&scalar.text).is_empty()
    }

    /// Removes the secret scalars at and below `node`, whose path is `path`, from a message.
    ///
    /// A component's message may quote its settings, or parts of them.
    pub(super) fn scrub(&self, message: &str, path: &[String], node: Option<&Node>) -> String {
        let mut message = redact::without_userinfo(message);
        let Some(node) = node else { return message };
        let mut leaks = false;
        node.walk(&mut path.to_vec(), &mut |path, node, scalar| {
            if self.is_sensitive(path, node, scalar) {
                for secret in [&scalar.text, &scalar.raw] {
                    leaks |= redact::hide(&mut message, secret);
                }
            }
        });
        if leaks { "the value is not valid".to_owned() } else { message }
    }

    /// Returns "line 3" or "lines 3-7" for the bytes from `from` up to `end`, counted from 1.
    pub(super) fn lines(&self, from: Pos, end: u32) -> String {
        let Some(source) = self.all.get(from.source as usize).filter(|_| !from.is_whole()) else {
            return "all of it".to_owned();
        };
        let first = source.line_of(from.start) + 1;
        // A block scalar ends at the beginning of the following line.
        let last = source.line_of(end.saturating_sub(1).max(from.start)) + 1;
        if first == last { format!("line {first}") } else { format!("lines {first}-{last}") }
    }
}
