//! Reads the labels that link a sample to a span.
//!
//! | label | who writes it | what it holds |
//! |---|---|---|
//! | `trace_id`, `span_id` | programs that use OpenTelemetry | hexadecimal digits, as in W3C Trace Context |
//! | `span_id` alone | Grafana's otel-profiling-go | the same |
//! | `span id` | DataDog/dd-trace-go `internal/traceprof` | a 64-bit number, as text or as number |
//! | `local root span id` | dd-trace-go, and Datadog's native profilers | a number, of the process's outermost span |
//!
//! A link needs a span id. Without a trace id, as with Datadog's labels, the trace id is all zeros. The labels remain
//! attributes, except for `trace_id` and `span_id` if both exist in the form that this module writes: so a profile
//! keeps its labels when it is read and written again.

use profbridge_model::Link;

/// The labels of OpenTelemetry.
pub(super) const TRACE_ID: &str = "trace_id";
/// See [`TRACE_ID`].
pub(super) const SPAN_ID: &str = "span_id";

/// The meaning of a label for the span link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// The trace id, and whether its text is in the form that this module writes.
    Trace([u8; 16], bool),
    /// The span id, and whether its text is in the form that this module writes.
    Span([u8; 8], bool),
    /// The span id in Datadog's form.
    Number([u8; 8]),
    /// The outermost span of the process.
    Root([u8; 8]),
}

#[derive(Debug, Clone, Copy)]
pub(super) enum LabelValue<'a> {
    Text(&'a [u8]),
    Number(i64),
}

/// The meaning of a label for the span link, if it has one.
pub(super) fn role(key: &[u8], held: LabelValue<'_>) -> Option<Role> {
    match (key, held) {
        (b"trace_id", LabelValue::Text(text)) => hex(text).map(|(id, exact)| Role::Trace(id, exact)),
        (b"span_id", LabelValue::Text(text)) => hex(text).map(|(id, exact)| Role::Span(id, exact)),
        (b"span id", held) => number(held).map(Role::Number),
        (b"local root span id", held) => number(held).map(Role::Root),
        _ => None,
    }
}

/// Parses a non-zero id in hexadecimal digits. Also returns whether all of them are lower-case.
fn hex<const N: usize>(text: &[u8]) -> Option<([u8; N], bool)> {
    if text.len() != 2 * N {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let mut id = [0; N];
    for (byte, pair) in id.iter_mut().zip(text.chunks_exact(2)) {
        *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
    }
    (id != [0; N]).then(|| (id, !text.iter().any(u8::is_ascii_uppercase)))
}

/// Converts a 64-bit id to big-endian bytes, as in W3C Trace Context.
fn number(held: LabelValue<'_>) -> Option<[u8; 8]> {
    let number = match held {
        LabelValue::Number(number) => number as u64,
        LabelValue::Text(text) => std::str::from_utf8(text).ok()?.parse().ok()?,
    };
    (number != 0).then(|| number.to_be_bytes())
}

/// The span that the labels of a sample name, and whether `trace_id` and `span_id` can be dropped because the writer
/// would restore them from the link.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SpanLabels {
    trace: Option<([u8; 16], bool)>,
    span: Option<([u8; 8], bool)>,
    number: Option<[u8; 8]>,
    root: Option<[u8; 8]>,
    /// Whether an OpenTelemetry label is duplicate.
    twice: bool,
}

impl SpanLabels {
    pub(super) fn add(&mut self, role: Role) {
        match role {
            Role::Trace(id, exact) => {
                self.twice |= self.trace.is_some();
                self.trace.get_or_insert((id, exact));
            }
            Role::Span(id, exact) => {
                self.twice |= self.span.is_some();
                self.span.get_or_insert((id, exact));
            }
            Role::Number(id) => {
                self.number.get_or_insert(id);
            }
            Role::Root(id) => {
                self.root.get_or_insert(id);
            }
        }
    }

    /// The link to the span.
    pub(super) fn link(&self) -> Option<Link> {
        let span_id = self.span.map(|(id, _)| id).or(self.number).or(self.root)?;
        Some(Link { trace_id: self.trace.map_or([0; 16], |(id, _)| id), span_id })
    }

    /// Whether the OpenTelemetry labels can be dropped.
    pub(super) fn is_plain(&self) -> bool {
        !self.twice && matches!((self.trace, self.span), (Some((_, true)), Some((_, true))))
    }
}

/// Formats an id.
pub(super) fn text(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(labels: &[(&str, LabelValue<'_>)]) -> SpanLabels {
        let mut named = SpanLabels::default();
        labels.iter().filter_map(|&(key, held)| role(key.as_bytes(), held)).for_each(|role| named.add(role));
        named
    }

    /// Guarantees: each form of the labels gives its span, and the most exact form takes precedence; a label with an
    /// invalid id gives none.
    #[test]
    fn forms() {
        let trace = LabelValue::Text(b"0102030405060708090a0b0c0d0e0f10");
        let span = LabelValue::Text(b"00000000000000ff");
        let both = named(&[("trace_id", trace), ("span_id", span), ("span id", LabelValue::Number(7))]);
        assert!(both.is_plain());
        let link = both.link().unwrap();
        assert_eq!((link.trace_id[0], link.trace_id[15], link.span_id), (1, 16, 255u64.to_be_bytes()));
        assert_eq!((text(&link.span_id), text(&link.trace_id).len()), ("00000000000000ff".to_owned(), 32));
        for (key, held, id) in [
            ("span_id", span, 255u64),
            ("span_id", LabelValue::Text(b"00000000000000FF"), 255),
            ("span id", LabelValue::Text(b"18446744073709551615"), u64::MAX),
            ("local root span id", LabelValue::Number(-1), u64::MAX),
            ("local root span id", LabelValue::Text(b"12"), 12),
        ] {
            let named = named(&[(key, held)]);
            let expected = Link { trace_id: [0; 16], span_id: id.to_be_bytes() };
            assert_eq!((named.link(), named.is_plain()), (Some(expected), false), "{key}");
        }
        for (key, held) in [
            ("trace_id", trace),
            ("span_id", LabelValue::Number(255)),
            ("span_id", LabelValue::Text(b"ff")),
            ("span_id", LabelValue::Text(b"000000000000000g")),
            ("span_id", LabelValue::Text(b"0000000000000000")),
            ("span id", LabelValue::Text(b"-1")),
            ("span id", LabelValue::Number(0)),
            ("span", LabelValue::Number(5)),
        ] {
            assert_eq!(named(&[(key, held)]).link(), None, "{key} {held:?}");
        }
        let upper = LabelValue::Text(b"0102030405060708090A0B0C0D0E0F10");
        for labels in [
            &[("trace_id", upper), ("span_id", span)][..],
            &[("trace_id", trace), ("span_id", span), ("span_id", span)],
        ] {
            assert!(!named(labels).is_plain());
        }
    }
}
