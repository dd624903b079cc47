//! Finds the line of an instruction, in the three formats of line tables that Python has had.

use super::layout::LineFormat;

/// The line of the instruction at this offset in bytes; `None` if the table has no line for it.
pub(super) fn line(format: LineFormat, table: &[u8], first: u32, offset: u64) -> Option<u32> {
    let line = match format {
        LineFormat::Steps => steps(table, i64::from(first), offset),
        LineFormat::Ranges => ranges(table, i64::from(first), offset)?,
        LineFormat::Locations => locations(table, i64::from(first), offset)?,
    };
    u32::try_from(line).ok()
}

/// `co_lnotab` (CPython 3.9 `Objects/lnotab_notes.txt`): pairs of increments of address and line. An increment applies
/// to all instructions from its address on.
fn steps(table: &[u8], first: i64, offset: u64) -> i64 {
    let (mut line, mut address) = (first, 0u64);
    for pair in table.chunks_exact(2) {
        address += u64::from(pair[0]);
        if address > offset {
            break;
        }
        line += i64::from(pair[1].cast_signed());
    }
    line
}

/// `co_linetable` of 3.10 (CPython 3.10 `Objects/lnotab_notes.txt`): pairs of a length in bytes and a line increment.
/// An increment of -128 means that these bytes have no line.
fn ranges(table: &[u8], first: i64, offset: u64) -> Option<i64> {
    let (mut line, mut end) = (first, 0u64);
    for pair in table.chunks_exact(2) {
        end += u64::from(pair[0]);
        let step = pair[1].cast_signed();
        if step != i8::MIN {
            line += i64::from(step);
        }
        if offset < end {
            return (step != i8::MIN).then_some(line);
        }
    }
    None
}

/// The location table (CPython `Objects/locations.md`, 3.11 on). An entry begins with a byte whose top bit is set;
/// four bits are the entry's format, and three bits its length in units of two bytes.
fn locations(table: &[u8], first: i64, offset: u64) -> Option<i64> {
    let (mut line, mut end) = (first, 0u64);
    let mut rest = table;
    while let Some((&head, behind)) = rest.split_first() {
        rest = behind;
        end += (u64::from(head & 7) + 1) * 2;
        let kind = head >> 3 & 15;
        match kind {
            0..=9 => rest = rest.get(1..)?,
            10..=12 => {
                line += i64::from(kind - 10);
                rest = rest.get(2..)?;
            }
            13 | 14 => {
                let step = number(&mut rest)?;
                line = line.checked_add(if step & 1 == 1 {
                    -((step >> 1).cast_signed())
                } else {
                    (step >> 1).cast_signed()
                })?;
                if kind == 14 {
                    for _ in 0..3 {
                        number(&mut rest)?;
                    }
                }
            }
            _ => {}
        }
        if offset < end {
            return (kind != 15).then_some(line);
        }
    }
    None
}

/// Reads a number with six bits in each byte, lowest first; the seventh bit of a byte means that another one follows.
fn number(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..36).step_by(6) {
        let (&byte, behind) = rest.split_first()?;
        *rest = behind;
        value |= u64::from(byte & 63) << shift;
        if byte & 64 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Guarantees: the example table in Python's documentation of the format up to 3.9 yields its lines.
    #[test]
    fn documented_steps() {
        let table = [6, 1, 44, 5, 255, 0, 45, 1];
        let at = |offset| line(LineFormat::Steps, &table, 10, offset).unwrap();
        assert_eq!([0, 5, 6, 49, 50, 349, 350].map(at), [10, 10, 11, 11, 16, 16, 17]);
        assert_eq!(line(LineFormat::Steps, &[4, 0xfe], 10, 4), Some(8));
    }

    /// Guarantees: tables of 3.10 yield their lines, also for instructions that have no line.
    #[test]
    fn ranges_of_lines() {
        let table = [6, 1, 44, 0x80, 10, 5];
        let at = |offset| line(LineFormat::Ranges, &table, 10, offset);
        assert_eq!([0, 5, 6, 49, 50, 59].map(at), [Some(11), Some(11), None, None, Some(16), Some(16)]);
        assert_eq!(at(60), None);
    }

    /// Guarantees: all kinds of entries of the location table are read.
    #[test]
    fn all_locations() {
        // No line; line +2, two columns; the same line; line -3 without columns; line +70 with all fields.
        let head = |kind: u8, units: u8| 0x80 | kind << 3 | (units - 1);
        let table = [head(15, 1), head(12, 2), 0, 0, head(0, 4), 0, head(13, 1), 7, head(14, 1), 0x4c, 2, 0, 0, 0];
        let at = |offset| line(LineFormat::Locations, &table, 10, offset);
        assert_eq!([0, 2, 5, 6, 13, 14, 16].map(at), [None, Some(12), Some(12), Some(12), Some(12), Some(9), Some(79)]);
        assert_eq!(at(18), None);
    }

    proptest! {
        /// Guarantees: no table causes a panic, or more steps than its number of bytes.
        #[test]
        fn attack_tables(table in proptest::collection::vec(any::<u8>(), 0..300), first: u32, offset: u64) {
            for format in [LineFormat::Steps, LineFormat::Ranges, LineFormat::Locations] {
                line(format, &table, first, offset);
            }
        }
    }
}
