//! Converts collapsed stacks to a profile.
//!
//! A line has frames, root first and separated by `;`, then white space and an integer. The file does not state what
//! the integer counts: samples, unless the caller passes another unit. It contains no times either, so the profile has
//! none.

use std::collections::HashMap;

use profbridge_model::dictionary::Invalid;
use profbridge_model::{Builder, LocationId, Profile, Profiles, StackId};

use crate::otlp::Limits;

/// The number of first lines that are inspected to detect the file type.
const LOOKED_AT: usize = 32;

/// The maximum number of rejected lines that are listed individually.
const MOST_NAMED: usize = 100;

/// Memory for a new frame, in bytes: its name's range, a function, a location, a line, and their entries in the
/// builder's tables.
const BYTES_OF_FRAME: usize = 160;

/// Memory for a new stack besides its frames, in bytes.
const BYTES_OF_STACK: usize = 96;

/// The memory limit is this factor times the size of the text, plus a base. Real names have tens of bytes, and most
/// lines contain no new names; a file with only new three-byte names would need fifty times its size.
const MEMORY_FACTOR: usize = 16;
const MEMORY_BASE: usize = 1 << 20;

/// What the numbers at the end of lines count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CountUnit {
    /// Samples.
    #[default]
    Samples,
    /// Nanoseconds.
    Nanoseconds,
    /// Microseconds.
    Microseconds,
    /// Milliseconds.
    Milliseconds,
    /// Bytes of memory.
    Bytes,
}

impl CountUnit {
    /// The type and the unit of the profile's values in pprof's terms.
    fn value_type(self) -> (&'static str, &'static str) {
        match self {
            Self::Samples => ("samples", "count"),
            Self::Nanoseconds => ("time", "nanoseconds"),
            Self::Microseconds => ("time", "microseconds"),
            Self::Milliseconds => ("time", "milliseconds"),
            Self::Bytes => ("space", "bytes"),
        }
    }
}

/// The result of reading a file.
#[derive(Debug, Clone)]
pub struct FoldedProfile {
    /// One profile, with a sample for each distinct stack, in the order of first occurrence.
    pub profiles: Profiles,
    /// The first hundred rejected lines.
    pub refused: Vec<RefusedLine>,
    /// Number of rejected lines.
    pub refused_lines: u64,
    /// Number of lines that were not valid UTF-8 and had bytes replaced by U+FFFD.
    pub replaced_lines: u64,
}

/// A rejected line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {rule}")]
pub struct RefusedLine {
    /// The line number, from 1.
    pub line: u64,
    /// The reason.
    pub rule: &'static str,
}

/// Whether a text consists of collapsed stacks: at least half of its first lines end with a number, and one of them has
/// several frames. No JSON and no document begins like this. Comments before the first stack are ignored.
pub fn is_folded(text: &[u8]) -> bool {
    let mut lines = stacks(text).map(|(_, line)| line).peekable();
    if lines.peek().is_none_or(|first| is_other(first)) {
        return false;
    }
    let (mut seen, mut numbered, mut deep) = (0, 0, false);
    for line in lines.take(LOOKED_AT) {
        if has_control(line) {
            return false;
        }
        seen += 1;
        // A number that cannot be parsed only invalidates its own line, so the line still counts for the detection.
        if let Some((stack, _)) = divided(line).filter(|(_, number)| is_any_number(number)) {
            numbered += 1;
            deep |= stack.contains(&b';');
        }
    }
    deep && numbered * 2 >= seen
}

/// Whether a text may consist of collapsed stacks of one frame each: every line ends with a number, including the last,
/// which excludes JSON and other documents. A text with comments is not accepted, because it could be any list, such as
/// metrics. `named` means that the file's name or something else indicates collapsed stacks: then one such line is
/// enough.
pub fn is_flat(text: &[u8], named: bool) -> bool {
    let mut lines = stacks(text).map(|(_, line)| line).peekable();
    if lines.peek().is_none_or(|first| is_other(first)) || text.is_empty() {
        return false;
    }
    let commented = !named && text.trim_ascii_start().starts_with(b"#");
    let (mut seen, mut numbered) = (0, 0);
    for line in lines {
        if has_control(line) {
            return false;
        }
        seen += 1;
        numbered += usize::from(divided(line).is_some_and(|(_, number)| is_number(number)));
    }
    if named { numbered > 0 } else { !commented && numbered == seen }
}

/// The number, from 1, of the first line of differential stacks, in which each line ends with two numbers, before and
/// after (brendangregg/FlameGraph `difffolded.pl`). `None` if a line has fewer.
pub fn differential(text: &[u8]) -> Option<u64> {
    let two = |line| {
        divided(line)
            .is_some_and(|(rest, last)| is_number(last) && divided(rest).is_some_and(|(_, first)| is_number(first)))
    };
    let mut lines = stacks(text);
    let (first, line) = lines.next()?;
    (two(line) && lines.all(|(_, line)| two(line))).then_some(first)
}

/// The non-empty lines with their numbers from 1, without comments before the first stack.
fn stacks(text: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let lines = (1..).zip(text.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii));
    lines.filter(|(_, line)| !line.is_empty()).skip_while(|(_, line)| is_comment(line))
}

/// Whether a line is a comment. `#<Class:Shop>#open` is not, because Ruby names methods like this.
fn is_comment(line: &[u8]) -> bool {
    matches!(line, [b'#', rest @ ..] if rest.first() != Some(&b'<'))
}

/// Whether the first line belongs to another format.
fn is_other(first: &[u8]) -> bool {
    first.starts_with(b"{") || is_markup(first)
}

/// Whether a line has control characters, which no text has.
fn has_control(line: &[u8]) -> bool {
    line.iter().any(|&byte| byte.is_ascii_control() && byte != b'\t')
}

/// Whether a line begins a document, such as an SVG flame graph. Function names may also begin with `<`: `<module>`,
/// `<main>`, `<core::option::Option<T>>::map`.
fn is_markup(line: &[u8]) -> bool {
    const BEGINNINGS: [&[u8]; 4] = [b"<?", b"<!", b"<svg", b"<html"];
    BEGINNINGS
        .iter()
        .any(|beginning| line.get(..beginning.len()).is_some_and(|line| line.eq_ignore_ascii_case(beginning)))
}

/// Splits a line at its last white space into the stack and the number.
fn divided(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = line.iter().rposition(u8::is_ascii_whitespace)?;
    Some((line[..at].trim_ascii(), &line[at + 1..])).filter(|(stack, _)| !stack.is_empty())
}

/// Whether this is an unsigned integer of any size.
fn is_number(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(u8::is_ascii_digit)
}

/// Whether this is any number, even one that is not accepted: `1.5`, `-2`, `1e9`.
fn is_any_number(text: &[u8]) -> bool {
    let digits = |text: &[u8]| text.first().is_some_and(u8::is_ascii_digit);
    digits(text.strip_prefix(b"-").unwrap_or(text))
        && std::str::from_utf8(text).is_ok_and(|text| text.parse::<f64>().is_ok())
}

/// Reads collapsed stacks. Equal stacks become one sample with the sum as its value. An invalid line is skipped and
/// reported, and comments before the first stack are ignored.
///
/// # Errors
///
/// The names are larger than 4 GiB and cannot be addressed.
pub fn read(text: &[u8], counted: CountUnit) -> Result<FoldedProfile, Invalid> {
    let mut builder = Builder::new();
    builder.resource(&[]);
    builder.scope("", "");
    let (kind, unit) = counted.value_type();
    let sample_type = builder.value_type(kind, unit);
    builder.profile(Profile { sample_type, ..Profile::default() });
    let mut reader = StackCollector {
        builder,
        frames: HashMap::new(),
        samples: Vec::new(),
        known: HashMap::new(),
        memory: text.len().saturating_mul(MEMORY_FACTOR).saturating_add(MEMORY_BASE),
        stack: Vec::new(),
    };
    let (mut refused, mut refused_lines, mut replaced_lines) = (Vec::new(), 0, 0);
    for (number, line) in stacks(text) {
        let outcome = match std::str::from_utf8(line) {
            Ok(line) => reader.line(line),
            Err(_) => {
                replaced_lines += 1;
                reader.line(&String::from_utf8_lossy(line))
            }
        };
        if let Err(rule) = outcome {
            refused_lines += 1;
            if refused.len() < MOST_NAMED {
                refused.push(RefusedLine { line: number, rule });
            }
        }
    }
    let StackCollector { mut builder, samples, .. } = reader;
    for (stack, value) in samples {
        builder.sample(stack, None, None, &[], &[value]);
    }
    Ok(FoldedProfile { profiles: builder.finish()?, refused, refused_lines, replaced_lines })
}

struct StackCollector {
    builder: Builder,
    /// The known frames by name.
    frames: HashMap<Box<str>, Option<LocationId>>,
    /// The stacks and their sums in order, and the position of each stack.
    samples: Vec<(Option<StackId>, i64)>,
    known: HashMap<Option<StackId>, usize>,
    /// The remaining memory, in bytes.
    memory: usize,
    stack: Vec<Option<LocationId>>,
}

impl StackCollector {
    fn line(&mut self, line: &str) -> Result<(), &'static str> {
        let (stack, number) = divided(line.as_bytes()).ok_or("it has no number behind a stack")?;
        if !is_number(number) {
            return Err("it does not end with an integer");
        }
        let value = std::str::from_utf8(number).ok().and_then(|number| number.parse::<i64>().ok());
        let value = value.ok_or("its number is too large")?;
        // Splitting UTF-8 at a white space of one byte gives valid UTF-8.
        let stack = std::str::from_utf8(stack).unwrap_or_default();
        if stack.bytes().filter(|&byte| byte == b';').count() >= Limits::default().max_stack_depth {
            return Err("its stack is deeper than any stack may be");
        }
        self.stack.clear();
        for name in stack.rsplit(';') {
            let frame = self.frame(name.trim())?;
            self.stack.push(frame);
        }
        let id = self.builder.stack(&self.stack);
        match self.known.get(&id) {
            Some(&at) => {
                let sum = self.samples[at].1.checked_add(value).ok_or("the sum of its stack is too large")?;
                self.samples[at].1 = sum;
            }
            None => {
                self.charge(BYTES_OF_STACK)?;
                self.known.insert(id, self.samples.len());
                self.samples.push((id, value));
            }
        }
        Ok(())
    }

    /// Returns the location of a frame, which is added if it is new. A frame without a name is `[unknown]`.
    fn frame(&mut self, name: &str) -> Result<Option<LocationId>, &'static str> {
        let name = if name.is_empty() { "[unknown]" } else { name };
        if let Some(known) = self.frames.get(name) {
            return Ok(*known);
        }
        self.charge(BYTES_OF_FRAME + 2 * name.len())?;
        let frame = self.builder.frame(name, "", 0);
        self.frames.insert(name.into(), frame);
        Ok(frame)
    }

    fn charge(&mut self, bytes: usize) -> Result<(), &'static str> {
        self.memory = self.memory.checked_sub(bytes).ok_or("the names and stacks before it took all of the memory")?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
