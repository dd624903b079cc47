//! What an envelope's header says of the trace that its spans belong to.

use profbridge_model::TraceId;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::truth;
use crate::sentry::sampled::text::Text;

/// The key `trace` of an envelope's header, as far as a span takes something from it (Sentry developer documentation,
/// "Dynamic Sampling Context").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TraceHeader {
    trace_id: Option<TraceId>,
    sampled: Option<bool>,
}

impl TraceHeader {
    /// Reads an envelope's header. What is not there, or of another type, says nothing.
    pub fn read(line: &[u8]) -> Self {
        #[derive(Deserialize)]
        struct Line<'a> {
            #[serde(borrow, default)]
            trace: Option<&'a RawValue>,
        }
        #[derive(Deserialize)]
        struct Trace<'a> {
            #[serde(borrow, default)]
            trace_id: Option<Text<'a>>,
            #[serde(borrow, default)]
            sampled: Option<&'a RawValue>,
        }
        let line = serde_json::from_slice::<Line<'_>>(line).ok();
        let trace = line.and_then(|line| line.trace);
        let Some(Ok(trace)) = trace.map(|trace| serde_json::from_str::<Trace<'_>>(trace.get())) else {
            return Self::default();
        };
        let trace_id = trace.trace_id.and_then(|id| TraceId::parse(id.as_str()));
        Self { trace_id, sampled: truth(trace.sampled) }
    }

    /// What it says of the spans of a trace: whether the trace was decided to be sampled.
    pub fn sampled_of(&self, trace: TraceId) -> Option<bool> {
        self.sampled.filter(|_| self.is_of(trace))
    }

    /// Whether it speaks of a trace. A header without an id speaks of all that is in the envelope.
    pub fn is_of(&self, trace: TraceId) -> bool {
        self.trace_id.is_none_or(|id| id == trace)
    }
}
