//! The properties that the pipeline knows of every span, whatever its form.

use std::sync::Arc;

use super::ids::{SpanId, TraceId};
use crate::{ByteRange, ProfilerId};

/// One span. Its other properties are in the batch's bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// The id of the trace.
    pub trace_id: TraceId,
    /// The id of the span.
    pub span_id: SpanId,
    /// The id of the parent span; `None` for the root of a trace.
    pub parent_span_id: Option<SpanId>,
    /// The start, in nanoseconds since the Unix epoch.
    pub start_unix_nano: u64,
    /// The end, in nanoseconds since the Unix epoch; not before the start.
    pub end_unix_nano: u64,
    /// The role in a call between programs.
    pub kind: SpanKind,
    /// Whether the parent is in another process, if known (OTLP `Span.flags`, bits 8 and 9).
    pub parent_is_remote: Option<bool>,
    /// Whether the trace was sampled, if known. OTLP exporters often omit the W3C flag, so an unset flag means unknown.
    pub sampled: Option<bool>,
    /// Whether the span is sent to Sentry alone instead of as part of a transaction, because it came from a span
    /// container, possibly converted to OTLP.
    pub is_streamed: bool,
    /// The position of the scope in the batch.
    pub scope: u32,
    /// The range of the span in the batch's bytes.
    pub at: ByteRange,
    /// The transaction to which the processor `transactions` assigned the span.
    pub segment: Option<Segment>,
    /// Additions of processors.
    pub changes: Option<Box<SpanChanges>>,
}

impl Span {
    /// Whether the span is the first one of its process in its trace, which becomes a Sentry transaction: it has no
    /// parent or a remote one, or it serves a call or consumes a message.
    pub fn is_local_root(&self) -> bool {
        self.parent_span_id.is_none()
            || self.parent_is_remote == Some(true)
            || matches!(self.kind, SpanKind::Server | SpanKind::Consumer)
    }
}

/// The role of a span in a call between programs (opentelemetry-proto `trace.proto`, `Span.SpanKind`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum SpanKind {
    /// Not specified.
    #[default]
    Unspecified,
    /// The span is work within a program.
    Internal,
    /// The span serves a call of another program.
    Server,
    /// The span calls another program.
    Client,
    /// The span sends a message.
    Producer,
    /// The span receives a message.
    Consumer,
}

impl SpanKind {
    /// The kind from its number on the wire; `Unspecified` for an unknown number.
    pub const fn from_number(number: u64) -> Self {
        match number {
            1 => Self::Internal,
            2 => Self::Server,
            3 => Self::Client,
            4 => Self::Producer,
            5 => Self::Consumer,
            _ => Self::Unspecified,
        }
    }

    /// The number of the kind on the wire.
    pub const fn number(self) -> u64 {
        match self {
            Self::Unspecified => 0,
            Self::Internal => 1,
            Self::Server => 2,
            Self::Client => 3,
            Self::Producer => 4,
            Self::Consumer => 5,
        }
    }
}

/// The transaction to which a span was assigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Segment {
    /// A number shared by exactly the spans of this transaction in the batch.
    pub number: u32,
    /// Whether the span becomes the transaction itself. If the root span never arrived, no span of the segment is the
    /// root, and its first span is used instead.
    pub is_root: bool,
}

/// Additions of processors to a span.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SpanChanges {
    /// The profiler that sampled the span's thread during the span.
    pub profiler: Option<ProfilerLink>,
    /// The probability with which the span was kept, over all sampling steps: above 0 and at most 1.
    pub sample_rate: Option<f64>,
}

/// The reference from a span to the profile of the same time. Sentry finds the profile by profiler, thread and time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfilerLink {
    /// The profiler.
    pub profiler_id: ProfilerId,
    /// The key of the thread in the profiler's chunks; `None` if the thread of the span is unknown.
    pub thread_id: Option<Arc<str>>,
    /// The thread's name.
    pub thread_name: Option<Arc<str>>,
}
