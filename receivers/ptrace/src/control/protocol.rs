//! Requests and responses, as values and as lines of JSON.

use serde::{Deserialize, Serialize};

use crate::trace_header::{self, Decision, SpanKey};

/// The longest request, in bytes, without the end of its line.
pub const MAX_REQUEST: usize = 4096;

/// What a client asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Start the profiler.
    Start(Choice),
    /// Stop it.
    Stop(Choice),
    /// Say what is going on.
    Status(Choice),
    /// A root span starts.
    SpanStart(SpanHeaders),
    /// A root span ends.
    SpanEnd(SpanHeaders),
    /// Say which profiler samples the process that is connected, or another, and what chunks call its thread.
    Profiler(ThreadChoice),
}

/// The processes that a request is about: all, those of a target, or one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Choice {
    /// The target's name in the configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The process's id in profbridge's PID namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
}

/// The process and the thread that a request is about.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ThreadChoice {
    /// The process's id in profbridge's PID namespace, instead of the connected one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The thread's id in the process's own PID namespace, as `gettid` returns it there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<u32>,
}

/// The root span that a request is about, and its processes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SpanHeaders {
    /// Sentry's header.
    #[serde(rename = "sentry-trace", skip_serializing_if = "Option::is_none")]
    pub sentry_trace: Option<String>,
    /// W3C's header.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// The span counts for all processes of this target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The span counts for this process instead of the connected one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
}

/// An answer of profbridge.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Response {
    /// Whether the request was understood and allowed.
    pub ok: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Fault>,
    /// What happened, for a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// How many processes were switched on or off by the request.
    pub changed: u64,
    /// For `profiler`: the `profiler_id` of the chunks in which the process is at the moment, 32 hexadecimal digits.
    /// The value of a transaction's `contexts.profile.profiler_id`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profiler_id: Option<String>,
    /// For `profiler` with a thread: the thread's key in those chunks. The value of a transaction's
    /// `contexts.trace.data["thread.id"]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    /// The processes that the request was about, and what happened to each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<ProcessAnswer>,
    /// For `status`: the targets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<TargetStatus>,
}

/// What is wrong with a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Where it is wrong: a key of the request, or `request`.
    pub place: String,
    /// The rule.
    pub rule: String,
}

/// What a request did to a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessAnswer {
    /// Its target.
    pub target: String,
    /// Its id.
    pub pid: u32,
    /// Whether it is profiled now.
    pub profiling: bool,
    /// What happened, or why nothing did.
    pub message: String,
}

/// A target and its processes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TargetStatus {
    /// Its name.
    pub target: String,
    /// `manual` or `trace`.
    pub profile_lifecycle: crate::lifecycle::Mode,
    /// The processes that are attached.
    pub processes: Vec<ProcessStatus>,
}

/// A process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessStatus {
    /// Its id.
    pub pid: u32,
    /// Its executable.
    pub executable: String,
    /// The session, as in the resource attribute `profbridge.session.id`.
    pub session: String,
    /// The `profiler_id` of the chunks in which it is at the moment: 32 hexadecimal digits.
    pub profiler_id: String,
    /// Whether the session is sampled.
    pub sampled: bool,
    /// Whether it is being profiled now.
    pub profiling: bool,
    /// How many sampled root spans are open for it.
    pub open_spans: u64,
    /// Its threads.
    pub threads: u64,
    /// The present rate, in hertz.
    pub rate_hertz: f64,
    /// The configured rate, in hertz. The present rate is lower while `max_cpu` or `max_stopped` is overspent.
    pub configured_hertz: f64,
    /// Ticks that were left out because a budget was overspent.
    pub lowered_ticks: u64,
    /// Ticks that were skipped because the sampler was late, and times at which the kernel paused sampling because
    /// there were too many samples.
    pub missed_ticks: u64,
    /// How often a thread was stopped.
    pub stops: u64,
    /// How often a stop was refused, by another tracer or by the kernel.
    pub refused_stops: u64,
    /// 99 of 100 stops were at most this long: a power of two, in microseconds.
    pub stop_p99_micros: u64,
    /// The longest stop, in microseconds.
    pub longest_stop_micros: u64,
    /// Observations since it was attached.
    pub observations: u64,
    /// Those of them whose stack is complete.
    pub complete: u64,
    /// Observations that were lost before they reached a pipeline.
    pub lost: u64,
    /// How running threads are sampled, for a person.
    pub running: String,
    /// How much running time was not sampled, in milliseconds.
    pub not_sampled_millis: u64,
    /// The right that would show more of running threads, for a person; empty if there is none.
    pub more: String,
    /// How many system calls returned early because their thread was stopped in them.
    pub cut_calls: u64,
}

impl Fault {
    /// A rule that is broken somewhere.
    #[must_use]
    pub fn new(place: impl Into<String>, rule: impl Into<String>) -> Self {
        Self { place: place.into(), rule: rule.into() }
    }
}

impl From<Fault> for Response {
    fn from(fault: Fault) -> Self {
        Self { error: Some(fault), ..Self::default() }
    }
}

impl Response {
    /// A response with nothing but a message.
    #[must_use]
    pub fn said(message: impl Into<String>) -> Self {
        Self { ok: true, message: Some(message.into()), ..Self::default() }
    }
}

impl Request {
    /// Reads a request.
    ///
    /// # Errors
    ///
    /// The first rule of JSON or of the protocol that a line breaks, and the column.
    pub fn read(line: &[u8]) -> Result<Self, Fault> {
        if line.len() > MAX_REQUEST {
            return Err(Fault::new("request", format!("is longer than {MAX_REQUEST} bytes")));
        }
        serde_json::from_slice(line).map_err(|error| {
            let text = error.to_string();
            // A request is always line 1, so only the column is reported.
            let rule = text.rsplit_once(" at line ").map_or(text.as_str(), |(rule, _)| rule);
            let place = match error.column() {
                0 => "request".to_owned(),
                column => format!("request, column {column}"),
            };
            Fault::new(place, rule)
        })
    }
}

impl SpanHeaders {
    /// The span that a request is about, and its sampling decision.
    ///
    /// # Errors
    ///
    /// The header that is malformed, and the rule that it breaks.
    pub fn span(&self) -> Result<(SpanKey, Decision), Fault> {
        let (place, read) = match (&self.sentry_trace, &self.traceparent) {
            (Some(header), None) => ("sentry-trace", trace_header::sentry_trace(header)),
            (None, Some(header)) => ("traceparent", trace_header::traceparent(header)),
            _ => return Err(Fault::new("request", "has either sentry-trace or traceparent")),
        };
        read.map_err(|malformed| Fault::new(place, malformed.to_string()))
    }
}
