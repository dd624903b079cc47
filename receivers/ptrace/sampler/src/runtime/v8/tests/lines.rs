//! Lines of scripts.

use super::functions::{count_ends, known_ends};
use super::*;

/// The memory of the stack, with a script that has these line ends, as V8 computes them.
fn with_ends(ends: &[u64]) -> (Made, Vec<Frame>, StackCopy) {
    let (mut made, frames, stack) = made();
    let words: Vec<u64> = std::iter::once(ends.len() as u64).chain(ends.iter().copied()).map(small).collect();
    let ends = made.object(layout().types.fixed_array, &words);
    let script = made.script;
    made.memory.add(script - 1 + 56, &ends.to_le_bytes());
    (made, frames, stack)
}

/// Guarantees: behind the last known line end the line is unknown, both for the current position and for the start of
/// a function.
#[test]
fn behind_the_known_ends() {
    let lines = |ends: &[u64]| {
        let (mut made, frames, mut stack) = with_ends(ends);
        let (rows, named) = told(&mut made.memory, &frames, &mut stack);
        let lines: Vec<u32> = rows.iter().map(|row| row.2).collect();
        (lines, named.positioned, named.named)
    };
    assert_eq!(lines(&[4, 10, 16, 21, 22]), (vec![3, 2, 2], 3, 0));
    assert_eq!(lines(&[4, 10]), (vec![0, 2, 2], 2, 1));
    assert_eq!(lines(&[4]), (vec![0, 0, 0], 0, 3));
    let first_line = |ends: &[u64]| {
        let (mut made, frames, mut stack) = with_ends(ends);
        read(&mut made.memory, &frames, &mut stack).1.into_iter().find(|one| one.name == "inner").unwrap().line
    };
    assert_eq!((first_line(&[4, 10, 16, 21, 22]), first_line(&[4, 10, 12]), first_line(&[4, 10])), (3, 3, 0));
}

/// Guarantees: lines end at ECMAScript's line terminators, recorded as V8 does: before the terminator, and at the end
/// of the source.
#[test]
fn ends_of_lines() {
    let ends = |source: &str| {
        let mut made = Made::default();
        let text = made.text(source);
        // The object behind it.
        made.object(131, &[0; 4]);
        let (layout, mut maps) = (layout(), Maps::default());
        let mut heap = Heap { layout: &layout, maps: &mut maps, target: Bounded::new(&mut made.memory, ALLOWANCE) };
        assert_eq!(known_ends(text, &mut heap), None);
        count_ends(text, &mut heap).unwrap()
    };
    assert_eq!(ends("a\nb\r\nc\rd"), [1, 4, 6, 8]);
    assert_eq!((ends("a\n"), ends("a\r"), ends("")), (vec![1, 2], vec![1, 2], vec![0]));
}
