//! The properties that the pipeline knows of every span, whatever its form.

use std::sync::Arc;

use super::ids::{SpanId, TraceId};
use crate::{ByteRange, ProfilerId};

/// One span. Its other properties are in the batch's bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// Its trace.
    pub trace_id: TraceId,
    /// Its id.
    pub span_id: SpanId,
    /// The parent span; `None` for the root of a trace.
    pub parent_span_id: Option<SpanId>,
    /// When it began, in nanoseconds since the Unix epoch.
    pub start_unix_nano: u64,
    /// When it ended, in nanoseconds since the Unix epoch; not before its start.
    pub end_unix_nano: u64,
    /// Its role in a call between programs.
    pub kind: SpanKind,
    /// Whether its parent is in another process, if known (OTLP `Span.flags`, bits 8 and 9).
    pub parent_is_remote: Option<bool>,
    /// Whether its trace was sampled, if known. OTLP exporters often omit the W3C flag, so an unset flag means unknown.
    pub sampled: Option<bool>,
    /// Whether Sentry takes it alone instead of as part of a transaction: it is from a span container, or was before it
    /// was converted to OTLP.
    pub is_streamed: bool,
    /// The position of its scope in the batch.
    pub scope: u32,
    /// Its range in the batch's bytes.
    pub at: ByteRange,
    /// The transaction it was assigned to by the processor `transactions`.
    pub segment: Option<Segment>,
    /// What processors added to it.
    pub changes: Option<Box<SpanChanges>>,
}

impl Span {
    /// Whether it is the first span of its process in its trace, which becomes a Sentry transaction: it has no parent
    /// or a remote one, or it serves a call or consumes a message.
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
    /// Work within a program.
    Internal,
    /// It serves a call of another program.
    Server,
    /// It calls another program.
    Client,
    /// It sends a message.
    Producer,
    /// It receives a message.
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

    /// Its number on the wire.
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

/// The transaction that a span was assigned to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Segment {
    /// A number shared by exactly the spans of this transaction in the batch.
    pub number: u32,
    /// Whether the span becomes the transaction itself. If the root never arrived, no span of the segment is the root,
    /// and its first span is used instead.
    pub is_root: bool,
}

/// What processors added to a span.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SpanChanges {
    /// The profiler that observed its thread meanwhile.
    pub profiler: Option<ProfilerLink>,
    /// The probability with which the span was kept, over all sampling steps: above 0 and at most 1.
    pub sample_rate: Option<f64>,
}

/// The reference from a span to the profile of its time. Sentry finds it by profiler, thread and time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfilerLink {
    /// The profiler.
    pub profiler_id: ProfilerId,
    /// The key of the thread in the profiler's chunks; `None` if the thread of the span is unknown.
    pub thread_id: Option<Arc<str>>,
    /// The thread's name.
    pub thread_name: Option<Arc<str>>,
}
