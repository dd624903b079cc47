//! Reduces a transaction that is too large: the largest data is dropped first.

use super::value::Json;

/// An optional part of the JSON.
#[derive(Debug, Clone, Copy)]
struct OptionalPart {
    start: usize,
    len: usize,
}

/// The optional parts of the JSON: a span's attributes, its links, a resource, a request. Without them the rest is
/// still valid JSON.
#[derive(Debug, Default)]
pub(super) struct OptionalParts {
    /// In the order of their positions.
    all: Vec<OptionalPart>,
    /// Total length, in bytes.
    bytes: usize,
}

impl OptionalParts {
    /// Forgets all parts.
    pub(super) fn clear(&mut self) {
        self.all.clear();
        self.bytes = 0;
    }

    /// Total length, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Writes an optional part and records it.
    pub(super) fn write(&mut self, json: &mut Json, write: impl FnOnce(&mut Json)) {
        let start = json.out.len();
        write(json);
        let len = json.out.len() - start;
        if len > 0 {
            self.all.push(OptionalPart { start, len });
            self.bytes += len;
        }
    }

    /// Removes everything written from `place` on.
    pub(super) fn truncate(&mut self, json: &mut Json, place: usize) {
        json.out.truncate(place);
        while let Some(gone) = self.all.pop_if(|piece| piece.start >= place) {
            self.bytes -= gone.len;
        }
    }

    /// Removes the largest parts until the JSON has at most `limit` bytes, or none is left.
    pub(super) fn shed(&mut self, json: &mut Json, limit: usize) {
        let mut excess = json.out.len().saturating_sub(limit);
        let mut going = self.all.clone();
        going.sort_unstable_by_key(|piece| (std::cmp::Reverse(piece.len), piece.start));
        let mut enough = 0;
        while excess > 0 && enough < going.len() {
            excess = excess.saturating_sub(going[enough].len);
            enough += 1;
        }
        going.truncate(enough);
        going.sort_unstable_by_key(|piece| piece.start);
        json.notes.shed_data += going.len() as u64;
        // The remaining text moves down over the removed parts, together with the remaining parts.
        let (mut from, mut to) = (0, 0);
        for gap in &going {
            json.out.copy_within(from..gap.start, to);
            to += gap.start - from;
            from = gap.start + gap.len;
        }
        json.out.copy_within(from.., to);
        let gone = from - to;
        json.out.truncate(json.out.len() - gone);
        self.bytes -= gone;
        let mut going = going.iter().peekable();
        let mut moved = 0;
        self.all.retain_mut(|piece| {
            if going.next_if(|gap| gap.start == piece.start).is_some() {
                moved += piece.len;
                return false;
            }
            piece.start -= moved;
            true
        });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Guarantees: the largest parts are removed, and no more than necessary; the result is the same as if they had
        /// not been written, and the remaining parts can be removed later.
        /// rule: event-schema#event-spans
        #[test]
        fn the_largest_go(parts in prop::collection::vec((0..6_usize, any::<bool>()), 0..20), limit in 0..60_usize) {
            let (mut json, mut pieces) = (Json::default(), OptionalParts::default());
            for (number, (len, is_piece)) in parts.iter().enumerate() {
                let text = char::from(b'a' + number as u8).to_string().repeat(*len);
                if *is_piece {
                    pieces.write(&mut json, |json| json.raw(&text));
                } else {
                    json.raw(&text);
                }
            }
            for limit in [limit + 10, limit] {
                let before = json.out.clone();
                pieces.shed(&mut json, limit);
                let mut lengths: Vec<(usize, u8)> = Vec::new();
                for (number, (len, is_piece)) in parts.iter().enumerate() {
                    let letter = b'a' + number as u8;
                    let (was, is) = (before.contains(&letter), json.out.contains(&letter));
                    prop_assert!(is == was || (*is_piece && was), "only pieces go, and whole");
                    if was && !is {
                        lengths.push((*len, letter));
                    } else if *is_piece && is {
                        prop_assert_eq!(json.out.iter().filter(|byte| **byte == letter).count(), *len);
                    }
                }
                let smallest_gone = lengths.iter().map(|(len, _)| *len).min();
                let largest_left =
                    parts.iter().enumerate().filter(|(n, part)| part.1 && json.out.contains(&(b'a' + *n as u8)));
                let largest_left = largest_left.map(|(_, part)| part.0).max();
                prop_assert!(smallest_gone.is_none_or(|gone| largest_left.is_none_or(|left| left <= gone)));
                prop_assert!(json.out.len() <= limit || largest_left.is_none());
                prop_assert!(smallest_gone.is_none_or(|gone| json.out.len() + gone > limit), "no more than it takes");
                let fixed: usize = parts.iter().filter(|part| !part.1).map(|part| part.0).sum();
                prop_assert_eq!(json.out.len() - pieces.bytes(), fixed);
                prop_assert!(json.out.is_sorted());
            }
        }
    }
}
