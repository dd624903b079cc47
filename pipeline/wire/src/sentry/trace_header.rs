//! The trace data in an envelope's header: the dynamic sampling context, which the trace's first program creates and
//! all others pass on (Sentry developer documentation, "Dynamic Sampling Context").
//!
//! SDKs write its values as text, some as numbers and booleans; both are accepted. Values of other types or out of
//! range are ignored.

use profbridge_model::TraceId;
use serde::Deserialize;
use serde_json::{Map, Value};

/// The sampling data in the key `trace` of an envelope's header.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct TraceHeader {
    /// The trace it describes. A header without an id describes all traces in the envelope.
    pub trace_id: Option<TraceId>,
    /// Whether the trace was sampled.
    pub sampled: Option<bool>,
    /// The sample rate: above 0 and at most 1.
    pub sample_rate: Option<f64>,
    /// The random number that was compared with the rate: from 0, inclusive, to 1, exclusive. A trace is kept if the
    /// number is below the rate.
    pub sample_rand: Option<f64>,
}

#[derive(Deserialize, Default)]
struct HeaderJson {
    trace: Option<TraceJson>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct TraceJson {
    trace_id: Value,
    sampled: Value,
    sample_rate: Value,
    sample_rand: Value,
}

impl TraceHeader {
    /// Parses an envelope's header. Missing or invalid values are ignored.
    pub fn read(line: &[u8]) -> Self {
        let TraceJson { trace_id, sampled, sample_rate, sample_rand } =
            serde_json::from_slice::<HeaderJson>(line).unwrap_or_default().trace.unwrap_or_default();
        let number = |value: &Value| value.as_f64().or_else(|| value.as_str()?.parse().ok());
        Self {
            trace_id: trace_id.as_str().and_then(TraceId::parse),
            sampled: sampled.as_bool().or_else(|| sampled.as_str()?.parse().ok()),
            sample_rate: number(&sample_rate).filter(|rate| *rate > 0.0 && *rate <= 1.0),
            sample_rand: number(&sample_rand).filter(|number| (0.0..1.0).contains(number)),
        }
    }

    /// The header with this public key in its trace data, if these lack one: those of an envelope that was written to a
    /// file. Relay drops containers of spans without it.
    pub fn with_public_key(line: &[u8], key: &str) -> Option<Vec<u8>> {
        let mut header: Map<String, Value> = serde_json::from_slice(line).ok()?;
        let trace = header.get_mut("trace")?.as_object_mut()?;
        if trace.contains_key("public_key") {
            return None;
        }
        trace.insert("public_key".to_owned(), key.into());
        serde_json::to_vec(&header).ok()
    }

    /// Whether it describes this trace.
    pub fn is_of(&self, trace: TraceId) -> bool {
        self.trace_id.is_none_or(|id| id == trace)
    }

    /// The data for this trace: empty if the header describes another one.
    #[must_use]
    pub fn of(&self, trace: TraceId) -> Self {
        if self.is_of(trace) { *self } else { Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: values are parsed as SDKs write them, as text or not; a value that is out of range, of another type
    /// or missing does not affect the others; a header only applies to its own trace.
    #[test]
    fn values() {
        let read = |trace: &str| {
            let header = TraceHeader::read(format!(r#"{{"event_id":"1","trace":{trace}}}"#).as_bytes());
            (header.sampled, header.sample_rate, header.sample_rand)
        };
        assert_eq!(
            read(r#"{"sampled":"true","sample_rate":"0.25","sample_rand":"0.1999"}"#),
            (Some(true), Some(0.25), Some(0.1999))
        );
        assert_eq!(read(r#"{"sampled":false,"sample_rate":1,"sample_rand":0}"#), (Some(false), Some(1.0), Some(0.0)));
        assert_eq!(read(r#"{"sampled":"yes","sample_rate":"1.5","sample_rand":1}"#), (None, None, None));
        assert_eq!(read(r#"{"sampled":[true],"sample_rate":0,"sample_rand":"0.5"}"#), (None, None, Some(0.5)));
        assert_eq!(read(r#"{"sample_rate":"nan","sample_rand":-1,"sampled":null}"#), (None, None, None));
        assert_eq!(read("null"), (None, None, None));
        let id = TraceId::new(&[7; 16]).unwrap();
        let header = TraceHeader::read(format!(r#"{{"trace":{{"trace_id":"{id}","sampled":true}}}}"#).as_bytes());
        assert_eq!((header.of(id).sampled, header.trace_id), (Some(true), Some(id)));
        assert_eq!(header.of(TraceId::new(&[8; 16]).unwrap()), TraceHeader::default());
        for nothing in ["", "{}", "[]", r#"{"trace":7}"#, r#"{"trace":"#] {
            assert_eq!(TraceHeader::read(nothing.as_bytes()), TraceHeader::default(), "{nothing}");
        }
    }

    /// Guarantees: a public key is added to trace data without one, and nothing else is changed.
    /// rule: transport#span-containers-key
    #[test]
    fn public_keys() {
        for (line, named) in [
            (r#"{"a":1,"trace":{"trace_id":"7"}}"#, Some(r#"{"a":1,"trace":{"public_key":"k","trace_id":"7"}}"#)),
            (r#"{"trace":{"public_key":"other"}}"#, None),
            (r#"{"trace":7}"#, None),
            ("{}", None),
        ] {
            let found = TraceHeader::with_public_key(line.as_bytes(), "k");
            assert_eq!(found.map(|line| String::from_utf8(line).unwrap()).as_deref(), named, "{line}");
        }
    }
}
