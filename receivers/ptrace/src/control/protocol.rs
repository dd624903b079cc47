//! Requests and responses of the control socket, as values and as lines of JSON.

use serde::{Deserialize, Serialize};

use crate::trace_header::{self, Decision, SpanKey};

/// The longest request, in bytes, without its line end.
pub const MAX_REQUEST: usize = 4096;

/// A request from a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub enum ControlRequest {
    /// Start the profiler.
    Start(Choice),
    /// Stop the profiler.
    Stop(Choice),
    /// Report the status.
    Status(Choice),
    /// A root span started.
    SpanStart(SpanHeaders),
    /// A root span ended.
    SpanEnd(SpanHeaders),
    /// Return the id of the profiler that samples the connected process, or another one, and the key of its thread in
    /// chunks.
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
    /// The process's id in profbridge's PID namespace; without it, the connected process is meant.
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
    /// The value of Sentry's header `sentry-trace`.
    #[serde(rename = "sentry-trace", skip_serializing_if = "Option::is_none")]
    pub sentry_trace: Option<String>,
    /// The value of W3C's header `traceparent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// The name of a target, for all of whose processes the span counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The id of a process for which the span counts instead of the connected one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
}

/// profbridge's response to a request.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ControlResponse {
    /// Whether the request was understood and allowed.
    pub ok: bool,
    /// The error, if `ok` is false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<RequestFault>,
    /// What happened, for the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// How many processes were switched on or off by the request.
    pub changed: u64,
    /// For `profiler`: the `profiler_id` of the chunks that currently include the process, 32 hexadecimal digits. To
    /// be used as a transaction's `contexts.profile.profiler_id`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profiler_id: Option<String>,
    /// For `profiler` with a thread: the thread's key in those chunks. To be used as a transaction's
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

/// The error in a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestFault {
    /// The key of the request that is wrong, or `request`.
    pub place: String,
    /// The rule that is broken.
    pub rule: String,
}

/// What a request did to a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessAnswer {
    /// The name of the process's target.
    pub target: String,
    /// The process id.
    pub pid: u32,
    /// Whether the process is being profiled now.
    pub profiling: bool,
    /// What happened, or why nothing did.
    pub message: String,
}

/// The status of a target and its processes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TargetStatus {
    /// The target's name.
    pub target: String,
    /// The lifecycle: `manual` or `trace`.
    pub profile_lifecycle: crate::lifecycle::LifecycleMode,
    /// The attached processes.
    pub processes: Vec<ProcessStatus>,
}

/// The status of a process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessStatus {
    /// The process id.
    pub pid: u32,
    /// The path of the process's executable.
    pub executable: String,
    /// The session, as in the resource attribute `profbridge.session.id`.
    pub session: String,
    /// The `profiler_id` of the chunks that currently include the process: 32 hexadecimal digits.
    pub profiler_id: String,
    /// Whether the process's session is sampled.
    pub sampled: bool,
    /// Whether the process is currently being profiled.
    pub profiling: bool,
    /// The number of open sampled root spans.
    pub open_spans: u64,
    /// The number of the process's threads.
    pub threads: u64,
    /// The current rate, in hertz.
    pub rate_hertz: f64,
    /// The configured rate, in hertz. The current rate is lower while `max_cpu` or `max_stopped` is exceeded.
    pub configured_hertz: f64,
    /// The number of ticks left out because a budget was exceeded.
    pub lowered_ticks: u64,
    /// The number of ticks skipped because the sampler was late, and of times at which the kernel paused sampling
    /// because there were too many samples.
    pub missed_ticks: u64,
    /// The number of times a thread was stopped.
    pub stops: u64,
    /// The number of stops that were refused, by another tracer or by the kernel.
    pub refused_stops: u64,
    /// The length that 99 of 100 stops did not exceed: a power of two, in microseconds.
    pub stop_p99_micros: u64,
    /// The longest stop, in microseconds.
    pub longest_stop_micros: u64,
    /// The number of observations since the process was attached.
    pub observations: u64,
    /// The number of observations whose stack is complete.
    pub complete: u64,
    /// The number of observations that were lost before they reached a pipeline.
    pub lost: u64,
    /// How running threads are sampled, as text for the user.
    pub running: String,
    /// Running time that was not sampled, in milliseconds.
    pub not_sampled_millis: u64,
    /// The right that would make more of running threads visible, as text for the user; empty if there is none.
    pub more: String,
    /// The number of system calls that returned early because their thread was stopped in them.
    pub cut_calls: u64,
}

impl RequestFault {
    /// An error: the place in the request, and the rule that is broken there.
    #[must_use]
    pub fn new(place: impl Into<String>, rule: impl Into<String>) -> Self {
        Self { place: place.into(), rule: rule.into() }
    }
}

impl From<RequestFault> for ControlResponse {
    fn from(fault: RequestFault) -> Self {
        Self { error: Some(fault), ..Self::default() }
    }
}

impl ControlResponse {
    /// A response that has only a message.
    #[must_use]
    pub fn message(message: impl Into<String>) -> Self {
        Self { ok: true, message: Some(message.into()), ..Self::default() }
    }
}

impl ControlRequest {
    /// Parses a request.
    ///
    /// # Errors
    ///
    /// The first rule of JSON or of the protocol that the line breaks, and the column.
    pub fn parse(line: &[u8]) -> Result<Self, RequestFault> {
        if line.len() > MAX_REQUEST {
            return Err(RequestFault::new("request", format!("is longer than {MAX_REQUEST} bytes")));
        }
        serde_json::from_slice(line).map_err(|error| {
            let text = error.to_string();
            // A request is always line 1, so only the column is reported.
            let rule = text.rsplit_once(" at line ").map_or(text.as_str(), |(rule, _)| rule);
            let place = match error.column() {
                0 => "request".to_owned(),
                column => format!("request, column {column}"),
            };
            RequestFault::new(place, rule)
        })
    }
}

impl SpanHeaders {
    /// The span that a request is about, and its sampling decision.
    ///
    /// # Errors
    ///
    /// The malformed header, and the rule that it breaks.
    pub fn span(&self) -> Result<(SpanKey, Decision), RequestFault> {
        let (place, read) = match (&self.sentry_trace, &self.traceparent) {
            (Some(header), None) => ("sentry-trace", trace_header::sentry_trace(header)),
            (None, Some(header)) => ("traceparent", trace_header::traceparent(header)),
            _ => return Err(RequestFault::new("request", "has either sentry-trace or traceparent")),
        };
        read.map_err(|malformed| RequestFault::new(place, malformed.to_string()))
    }
}
