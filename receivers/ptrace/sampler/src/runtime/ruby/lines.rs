//! Finds the line of an instruction.
//!
//! A sequence has descriptions of some of its instructions, in the order of their positions, and an index that gives
//! the number of described positions up to a given one: six words with counts for the first 54 positions, then blocks
//! of 512 positions with a bit for each (ruby/ruby `iseq.c`, `struct succ_index_table`).

use super::layout::RubyLayout;
use crate::runtime::target::{Bounded, TargetMemory, half, half_at, word, word_at};

/// The words at the start of the index: the number of positions in all of them and in each, and the bits of a count.
const FIRST: (u64, u64, u64) = (54, 9, 7);
/// A block: its number of positions, its size in bytes, the offset of the counts for its words, and the offset of the
/// words.
const BLOCK: (u64, u64, usize, usize) = (512, 80, 8, 16);
const BLOCK_BYTES: usize = 80;
/// The bits of a count for a word of a block.
const COUNT_BITS: u64 = 9;

/// The line at a position of a sequence with these descriptions (address, count and index); 0 if there is no line.
/// `None` if it cannot be read.
pub(super) fn line(
    layout: &RubyLayout,
    (info, count, index): (u64, u32, u64),
    position: u64,
    target: &mut Bounded<'_>,
) -> Option<u32> {
    let rank = match count {
        0 | 1 => u64::from(count),
        _ => rank(index, position, target)?,
    };
    let Some(at) = rank.checked_sub(1).filter(|at| *at < u64::from(count)) else { return Some(0) };
    half(target, info.wrapping_add(at * u64::from(layout.info_entry)))
}

/// The number of described positions up to this one.
fn rank(index: u64, position: u64, target: &mut Bounded<'_>) -> Option<u64> {
    let Some(behind) = position.checked_sub(FIRST.0) else {
        let counts = word(target, index.wrapping_add(position / FIRST.1 * 8))?;
        return Some(counts >> (position % FIRST.1 * FIRST.2) & 0x7f);
    };
    let mut block = [0; BLOCK_BYTES];
    let start = index.wrapping_add(FIRST.0 / FIRST.1 * 8).wrapping_add(behind / BLOCK.0 * BLOCK.1);
    if !target.read(start, &mut block) {
        return None;
    }
    let (at, bit) = (behind % BLOCK.0 / 64, behind % 64);
    let before = if at == 0 { 0 } else { word_at(&block, BLOCK.2) >> ((at - 1) * COUNT_BITS) & 0x1ff };
    let bits = word_at(&block, BLOCK.3 + at as usize * 8) << (63 - bit);
    Some(u64::from(half_at(&block, 0)) + before + u64::from(bits.count_ones()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::{Allowance, Recording};

    /// Guarantees: the line of every position is that of the last description at or before it, in the first words and
    /// in blocks, with an index built by Ruby's rules.
    #[test]
    fn index() {
        // Each of these positions has a description; its line is the position plus one thousand.
        let described: Vec<u64> =
            (0..1300).filter(|at| at % 7 == 0 || at % 64 == 63 || (500..520).contains(at)).collect();
        let up_to = |position: u64| described.iter().filter(|at| **at <= position).count() as u64;
        let mut index = Vec::new();
        for word in 0..6 {
            index.push((0..9).fold(0, |counts, at| counts | up_to(word * 9 + at) << (at * 7)));
        }
        for block in 0..3 {
            let start = 54 + block * 512;
            let rank = up_to(start - 1);
            index.push(rank);
            index.push((1..8).fold(0, |counts, at| counts | (up_to(start + at * 64 - 1) - rank) << ((at - 1) * 9)));
            for at in 0..8 {
                let first = start + at * 64;
                index.push((0..64).fold(0, |bits, bit| bits | u64::from(described.contains(&(first + bit))) << bit));
            }
        }
        let layout = RubyLayout::of_version(3, 3).unwrap();
        let mut recording = Recording::default();
        recording.add(0x1000, &index.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>());
        let mut info = Vec::new();
        for at in &described {
            info.extend((*at as u32 + 1000).to_le_bytes());
            info.extend([0; 8]);
        }
        recording.add(0x9000, &info);
        let mut target = Bounded::new(&mut recording, Allowance { reads: 10_000, bytes: 1 << 20 });
        for position in 0..1300 {
            let known = described.iter().rev().find(|at| **at <= position).map(|at| *at as u32 + 1000);
            let count = described.len() as u32;
            assert_eq!(line(&layout, (0x9000, count, 0x1000), position, &mut target), known, "{position}");
        }
        assert_eq!(line(&layout, (0x9000, 1, 0), 9, &mut target), Some(1000));
        // There is no line here, or it cannot be read.
        assert_eq!(line(&layout, (0x9000, 0, 0), 9, &mut target), Some(0));
        assert_eq!(line(&layout, (0x9000, 2, 0x1000), 1299, &mut target), Some(0));
        assert_eq!(line(&layout, (0x9000, 2, 0x10), 9, &mut target), None);
        assert_eq!(line(&layout, (0x10, 1, 0), 9, &mut target), None);
    }
}
