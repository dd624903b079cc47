//! V8's position tables: from offsets in code to positions in the source.
//!
//! Source of the formats: v8/v8 `src/codegen/source-position-table.cc` (pairs of variable-length integers),
//! `src/codegen/source-position.h` (what a position is), `src/baseline/bytecode-offset-iterator.h` (Sparkplug's table).

/// A position in a source, with the number of the inlined function to which it belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct SourcePosition(pub(super) u64);

impl SourcePosition {
    /// The character offset in the script; `None` if it is unknown or the source is V8's own.
    pub(super) fn offset(self) -> Option<u32> {
        let external = self.0 & 1 == 1;
        // The stored value counts from one; zero means none.
        let offset = (self.0 >> 1) as u32 & ((1 << 30) - 1);
        (!external).then(|| offset.checked_sub(1)).flatten()
    }

    /// The number of the inlined call, counted from one; 0 in the function that was compiled.
    pub(super) fn inlining(self) -> u16 {
        (self.0 >> 31) as u16
    }
}

/// Reads variable-length integers with seven bits in each byte, lowest bits first.
struct Integers<'a>(&'a [u8]);

impl Integers<'_> {
    fn unsigned(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// Reads a number whose lowest bit is the sign.
    fn signed(&mut self) -> Option<i64> {
        let value = self.unsigned()?;
        Some((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }
}

/// The entries of a source position table: offset in the code, and position. The offset is -1 for the entry of an
/// interpreted function.
pub(super) fn entries(table: &[u8]) -> impl Iterator<Item = (i64, SourcePosition)> + '_ {
    let mut integers = Integers(table);
    let (mut offset, mut position) = (-1i64, 0i64);
    std::iter::from_fn(move || {
        let step = integers.signed()?;
        // The sign marks a statement.
        offset = offset.wrapping_add(if step >= 0 { step } else { step.wrapping_add(1).wrapping_neg() });
        position = position.wrapping_add(integers.signed()?);
        Some((offset, SourcePosition(position.cast_unsigned())))
    })
}

/// The position of the last entry at or before an offset in the code.
pub(super) fn position(table: &[u8], offset: u64) -> Option<SourcePosition> {
    let offset = i64::try_from(offset).ok()?;
    entries(table).take_while(|(at, _)| *at <= offset).last().map(|(_, position)| position)
}

/// The lengths of byte code instructions: by operation, for operands of one, two and four bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sizes(pub(super) Vec<u8>);

impl Sizes {
    /// The maximum table size in bytes: an operation is one byte, with three lengths each.
    pub(super) const MAX: usize = 3 << 8;

    /// The prefixes of instructions with operands of two and four bytes, and those that a debugger inserts, each with
    /// the index of the operand width.
    const PREFIXES: [(u8, usize); 4] = [(0, 1), (1, 2), (2, 1), (3, 2)];

    /// Returns the length of the first instruction, including its prefix.
    fn first(&self, code: &[u8]) -> Option<usize> {
        let (&operation, rest) = code.split_first()?;
        let count = self.0.len() / 3;
        let scaled = Self::PREFIXES.into_iter().find(|(prefix, _)| *prefix == operation);
        let (prefix, scale, operation) = match scaled {
            Some((_, scale)) => (1, scale, *rest.first()?),
            None => (0, 0, operation),
        };
        let size = (usize::from(operation) < count).then(|| self.0[scale * count + usize::from(operation)])?;
        (size > 0).then(|| prefix + usize::from(size))
    }
}

/// Converts an offset in Sparkplug's code to a byte code offset. The table contains the length of the prologue, then
/// the length of the machine code for each byte code instruction.
pub(super) fn bytecode_offset(table: &[u8], sizes: &Sizes, code: &[u8], offset: u64) -> Option<u64> {
    let mut lengths = Integers(table);
    let mut end = lengths.unsigned()?;
    let mut at = 0;
    if offset < end {
        return Some(0);
    }
    loop {
        end = end.saturating_add(lengths.unsigned()?);
        if offset < end {
            return Some(at as u64);
        }
        at += sizes.first(code.get(at..)?)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: the table that V8 12.4 wrote for a function with another one inlined has these entries, and an
    /// offset belongs to the last entry before it.
    #[test]
    fn table() {
        // Node 22.23.3: `outer` of a program in which `inner` is inlined.
        let words = [0x0190_2d7c_4f01_d803u64, 0x0733_3934_1701_c339, 0xffff_fdd8_1948_2134, 0xffff_fe97_2908_310f];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let first: Vec<_> = entries(&bytes).take(2).map(|(at, position)| (at, position.offset())).collect();
        assert_eq!(first, [(0, Some(53)), (39, Some(84))]);
        assert_eq!(position(&bytes, 38).and_then(SourcePosition::offset), Some(53));
        // An interpreted function: the entry of the function, and that of its first instruction.
        assert_eq!(
            entries(&[1, 6, 2, 4]).map(|(at, position)| (at, position.0)).collect::<Vec<_>>(),
            [(-1, 3), (0, 5)]
        );
        assert_eq!(entries(&[0xff; 40]).count(), 0);
        assert_eq!(position(&[], 3), None);
    }

    /// Guarantees: offsets in Sparkplug's code map to the instruction that contains them, prefixes belong to their
    /// instruction, and truncated tables yield nothing.
    #[test]
    fn baseline() {
        // Operations 0 to 3 are prefixes, 4 has one byte, 5 has two (three, five).
        let sizes = Sizes(vec![1, 1, 1, 1, 1, 2, 1, 1, 1, 1, 1, 3, 1, 1, 1, 1, 1, 5]);
        let code = [4, 5, 0, 0, 5, 0, 0, 4];
        let table = [10, 2, 4, 6, 2];
        let at = |offset| bytecode_offset(&table, &sizes, &code, offset);
        assert_eq!([at(0), at(9), at(10), at(12), at(15)], [Some(0), Some(0), Some(0), Some(1), Some(1)]);
        assert_eq!([at(16), at(22), at(23), at(24)], [Some(3), Some(7), Some(7), None]);
        assert_eq!(bytecode_offset(&table, &sizes, &[9, 9], 22), None);
    }
}
