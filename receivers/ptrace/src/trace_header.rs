//! The two headers that carry a root span's ids and its sampling decision.
//!
//! `sentry-trace` is `traceid-spanid` or `traceid-spanid-sampled` (Sentry's tracing guidelines, "Header
//! sentry-trace"): 32 and 16 hexadecimal digits and 0 or 1. Without the last field the decision is deferred.
//! `traceparent` is defined by W3C Trace Context, section 3.2: lower-case digits, the version first and flags last.

/// A root span: its trace and its own id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpanKey {
    /// The trace id.
    pub trace_id: u128,
    /// The span id.
    pub span_id: u64,
}

/// The sampling decision of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The span is sampled.
    Sampled,
    /// The span is not sampled.
    NotSampled,
    /// The decision has not been made yet.
    Deferred,
}

/// The error in a header: the rule that it breaks, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("at byte {at}: {rule}")]
pub struct MalformedHeader {
    /// The offset of the first byte that breaks the rule.
    pub at: usize,
    /// The rule.
    pub rule: &'static str,
}

/// Parses `sentry-trace`. Blanks around the header are allowed.
///
/// # Errors
///
/// The first rule that the header breaks.
pub fn sentry_trace(header: &str) -> Result<(SpanKey, Decision), MalformedHeader> {
    let mut reader = HeaderReader::new(header, u8::is_ascii_hexdigit);
    let key = reader.ids("the trace id has 32 hexadecimal digits", "the span id has 16 hexadecimal digits")?;
    if reader.rest.is_empty() {
        return Ok((key, Decision::Deferred));
    }
    reader.dash("a dash follows the span id")?;
    let decision =
        reader.next(|byte| matches!(byte, b'0' | b'1'), "the sampling decision is 0, 1 or left out with its dash")?;
    reader.end("nothing follows the sampling decision")?;
    Ok((key, if decision == b'1' { Decision::Sampled } else { Decision::NotSampled }))
}

/// Parses `traceparent`. Blanks around the header are allowed.
///
/// # Errors
///
/// The first rule that the header breaks.
pub fn traceparent(header: &str) -> Result<(SpanKey, Decision), MalformedHeader> {
    let mut reader = HeaderReader::new(header, |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let start = reader.at;
    let version = reader.hex(2, "the version has 2 lower-case hexadecimal digits")?;
    if version == 0xff {
        return Err(MalformedHeader { at: start, rule: "version ff is not allowed" });
    }
    reader.dash("a dash follows the version")?;
    let (trace_id, span_id) =
        ("the trace id has 32 lower-case hexadecimal digits", "the span id has 16 lower-case hexadecimal digits");
    let key = reader.ids(trace_id, span_id)?;
    reader.dash("a dash follows the span id")?;
    let flags = reader.hex(2, "the flags have 2 lower-case hexadecimal digits")?;
    if version == 0 {
        reader.end("nothing follows the flags of version 00")?;
    } else if !reader.rest.is_empty() {
        // Later versions may add fields (W3C Trace Context, "Versioning of traceparent").
        reader.dash("a dash follows the flags")?;
    }
    Ok((key, if flags & 1 == 1 { Decision::Sampled } else { Decision::NotSampled }))
}

struct HeaderReader<'a> {
    /// The unread rest of the header, and its offset.
    rest: &'a [u8],
    at: usize,
    is_digit: fn(&u8) -> bool,
}

impl<'a> HeaderReader<'a> {
    fn new(header: &'a str, is_digit: fn(&u8) -> bool) -> Self {
        let text = header.trim_start_matches([' ', '\t']);
        let at = header.len() - text.len();
        Self { rest: text.trim_end_matches([' ', '\t']).as_bytes(), at, is_digit }
    }

    fn next(&mut self, is_allowed: fn(&u8) -> bool, rule: &'static str) -> Result<u8, MalformedHeader> {
        let next = self.rest.split_first().filter(|(byte, _)| is_allowed(byte));
        let (&byte, rest) = next.ok_or(MalformedHeader { at: self.at, rule })?;
        (self.rest, self.at) = (rest, self.at + 1);
        Ok(byte)
    }

    fn hex(&mut self, digits: usize, rule: &'static str) -> Result<u128, MalformedHeader> {
        (0..digits).try_fold(0, |value, _| {
            let digit = char::from(self.next(self.is_digit, rule)?).to_digit(16);
            Ok(value << 4 | u128::from(digit.unwrap_or_default()))
        })
    }

    /// Parses both ids, and the dash between them.
    fn ids(&mut self, trace_rule: &'static str, span_rule: &'static str) -> Result<SpanKey, MalformedHeader> {
        let trace_at = self.at;
        let trace_id = self.hex(32, trace_rule)?;
        self.dash("a dash follows the trace id")?;
        let span_at = self.at;
        let span_id = self.hex(16, span_rule)? as u64;
        if trace_id == 0 {
            return Err(MalformedHeader { at: trace_at, rule: "the trace id is not all zeroes" });
        }
        if span_id == 0 {
            return Err(MalformedHeader { at: span_at, rule: "the span id is not all zeroes" });
        }
        Ok(SpanKey { trace_id, span_id })
    }

    fn dash(&mut self, rule: &'static str) -> Result<(), MalformedHeader> {
        self.next(|byte| *byte == b'-', rule).map(drop)
    }

    fn end(&self, rule: &'static str) -> Result<(), MalformedHeader> {
        if self.rest.is_empty() { Ok(()) } else { Err(MalformedHeader { at: self.at, rule }) }
    }
}

#[cfg(test)]
mod tests;
