//! The two headers that carry a root span's ids and whether it is sampled.
//!
//! `sentry-trace` is `traceid-spanid` or `traceid-spanid-sampled` (Sentry's tracing guidelines, "Header sentry-trace"):
//! 32 and 16 hexadecimal digits and 0 or 1. Without the last the decision is deferred. `traceparent` is W3C Trace
//! Context, section 3.2: lower-case digits, the version in front, flags behind.

use std::fmt;

/// A root span: its trace and its own id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpanKey {
    /// The trace.
    pub trace_id: u128,
    /// The span.
    pub span_id: u64,
}

/// Whether a span is sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It is.
    Sampled,
    /// It is not.
    NotSampled,
    /// It is not decided yet.
    Deferred,
}

/// What is wrong with a header: the rule that it breaks, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed {
    /// The offset of the first byte that breaks the rule.
    pub at: usize,
    /// The rule.
    pub rule: &'static str,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}: {}", self.at, self.rule)
    }
}

/// Reads `sentry-trace`.
///
/// # Errors
///
/// The first rule that it breaks. Blanks around the header are allowed.
pub fn sentry_trace(header: &str) -> Result<(SpanKey, Decision), Malformed> {
    let mut reader = Reader::new(header);
    let trace_id = reader.hex(32, "the trace id has 32 hexadecimal digits", Case::Any)?;
    reader.dash("a dash follows the trace id")?;
    let span_id = reader.hex(16, "the span id has 16 hexadecimal digits", Case::Any)?;
    let decision = if reader.is_at_end() {
        Decision::Deferred
    } else {
        reader.dash("a dash follows the span id")?;
        let rule = "the sampling decision is 0, 1 or left out with its dash";
        match reader.next() {
            Some(b'0') => Decision::NotSampled,
            Some(b'1') => Decision::Sampled,
            _ => return Err(Malformed { at: reader.at.saturating_sub(1), rule }),
        }
    };
    reader.end("nothing follows the sampling decision")?;
    key(trace_id, span_id, reader.offset, 33).map(|key| (key, decision))
}

/// Reads `traceparent`.
///
/// # Errors
///
/// The first rule that it breaks. Blanks around the header are allowed.
pub fn traceparent(header: &str) -> Result<(SpanKey, Decision), Malformed> {
    let mut reader = Reader::new(header);
    let version = reader.hex(2, "the version has 2 lower-case hexadecimal digits", Case::Lower)?;
    if version == 0xff {
        return Err(Malformed { at: reader.at - 2, rule: "version ff is not allowed" });
    }
    reader.dash("a dash follows the version")?;
    let trace_id = reader.hex(32, "the trace id has 32 lower-case hexadecimal digits", Case::Lower)?;
    reader.dash("a dash follows the trace id")?;
    let span_id = reader.hex(16, "the span id has 16 lower-case hexadecimal digits", Case::Lower)?;
    reader.dash("a dash follows the span id")?;
    let flags = reader.hex(2, "the flags have 2 lower-case hexadecimal digits", Case::Lower)?;
    if version == 0 {
        reader.end("nothing follows the flags of version 00")?;
    } else if !reader.is_at_end() {
        // Later versions may add fields (W3C Trace Context, "Versioning of traceparent").
        reader.dash("a dash follows the flags")?;
    }
    let decision = if flags & 1 == 1 { Decision::Sampled } else { Decision::NotSampled };
    key(trace_id, span_id, reader.offset + 3, 33).map(|key| (key, decision))
}

fn key(trace_id: u128, span_id: u128, at: usize, span_at: usize) -> Result<SpanKey, Malformed> {
    if trace_id == 0 {
        return Err(Malformed { at, rule: "the trace id is not all zeroes" });
    }
    let span_id = span_id as u64;
    if span_id == 0 {
        return Err(Malformed { at: at + span_at, rule: "the span id is not all zeroes" });
    }
    Ok(SpanKey { trace_id, span_id })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Case {
    Any,
    Lower,
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Where the header starts, after blanks.
    offset: usize,
}

impl<'a> Reader<'a> {
    fn new(header: &'a str) -> Self {
        let blank = |c: char| c == ' ' || c == '\t';
        let offset = header.len() - header.trim_start_matches(blank).len();
        Self { bytes: header.trim_end_matches(blank).as_bytes(), at: offset, offset }
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.bytes.get(self.at).copied();
        self.at += 1;
        byte
    }

    fn is_at_end(&self) -> bool {
        self.at >= self.bytes.len()
    }

    fn hex(&mut self, digits: usize, rule: &'static str, case: Case) -> Result<u128, Malformed> {
        let mut value = 0;
        for _ in 0..digits {
            let at = self.at;
            let digit = self
                .next()
                .filter(|digit| case == Case::Any || !digit.is_ascii_uppercase())
                .and_then(|digit| (digit as char).to_digit(16))
                .ok_or(Malformed { at, rule })?;
            value = value << 4 | u128::from(digit);
        }
        Ok(value)
    }

    fn dash(&mut self, rule: &'static str) -> Result<(), Malformed> {
        let at = self.at;
        match self.next() {
            Some(b'-') => Ok(()),
            _ => Err(Malformed { at, rule }),
        }
    }

    fn end(&self, rule: &'static str) -> Result<(), Malformed> {
        if self.is_at_end() { Ok(()) } else { Err(Malformed { at: self.at, rule }) }
    }
}

#[cfg(test)]
mod tests;
