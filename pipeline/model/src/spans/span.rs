//! What the pipeline knows of every span, whatever its form.

use std::sync::Arc;

use super::ids::{SpanId, TraceId};
use crate::{ByteRange, ProfilerId};

/// One span. What else it says stands at its place in the batch's bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// Its trace.
    pub trace_id: TraceId,
    /// Its id.
    pub span_id: SpanId,
    /// The span in which it was made; `None` for the root of a trace.
    pub parent_span_id: Option<SpanId>,
    /// When it began, in nanoseconds since the Unix epoch.
    pub start_unix_nano: u64,
    /// When it ended, in nanoseconds since the Unix epoch; not before its beginning.
    pub end_unix_nano: u64,
    /// What part it has in a call between programs.
    pub kind: SpanKind,
    /// Whether its parent is in another process, where that is known (OTLP `Span.flags`, bits 8 and 9).
    pub parent_is_remote: Option<bool>,
    /// Whether its trace was decided to be sampled, where that is known. Exporters of OTLP leave the W3C flag away as
    /// often as not, so a flag that is not set says nothing.
    pub sampled: Option<bool>,
    /// Whether Sentry takes it by itself and not as a part of a transaction: it is one of a container of spans, or was
    /// that before it became OTLP.
    pub is_streamed: bool,
    /// Its scope, by its position among those of the batch.
    pub scope: u32,
    /// Where it stands in the batch's bytes.
    pub at: ByteRange,
    /// The transaction to which it was put, where the processor `transactions` has done that.
    pub segment: Option<Segment>,
    /// What was found out about it on the way.
    pub changes: Option<Box<SpanChanges>>,
}

impl Span {
    /// Whether it is the first of its process in its trace, which makes it a transaction of Sentry's: it has no parent,
    /// or one in another process, or it answers a call or takes a message.
    pub fn is_local_root(&self) -> bool {
        self.parent_span_id.is_none()
            || self.parent_is_remote == Some(true)
            || matches!(self.kind, SpanKind::Server | SpanKind::Consumer)
    }
}

/// What part a span has in a call between programs (opentelemetry-proto `trace.proto`, `Span.SpanKind`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum SpanKind {
    /// Nothing is said.
    #[default]
    Unspecified,
    /// None: work within a program.
    Internal,
    /// It answers a call of another program.
    Server,
    /// It calls another program.
    Client,
    /// It sends a message.
    Producer,
    /// It takes a message.
    Consumer,
}

impl SpanKind {
    /// The kind of a number on the wire; one that is not known says nothing.
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

/// To which transaction a span was put.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Segment {
    /// A number that the spans of one transaction share, and no others of the batch.
    pub number: u32,
    /// Whether the span is the one that the transaction is made of. A segment whose root never came has none: its first
    /// span stands for it.
    pub is_root: bool,
}

/// What was found out about a span.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SpanChanges {
    /// Which profiler saw what its thread did meanwhile.
    pub profiler: Option<ProfilerLink>,
    /// The probability with which the span was kept, of all steps together: above 0 and at most 1.
    pub sample_rate: Option<f64>,
}

/// How a span names the profile of its time. Sentry finds it by the profiler, the thread and the time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfilerLink {
    /// The profiler.
    pub profiler_id: ProfilerId,
    /// The key of the thread in the profiler's chunks; `None` where it is not known which thread ran the span.
    pub thread_id: Option<Arc<str>>,
    /// The thread's name.
    pub thread_name: Option<Arc<str>>,
}
