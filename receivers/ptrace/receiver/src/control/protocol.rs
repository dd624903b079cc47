//! Requests and responses, as values and as lines.

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
}

/// Which processes are meant: all, or those of a target, or one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Choice {
    /// The target's name in the configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The process's id, as profbridge sees it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
}

/// Which root span is meant, and for whom.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SpanHeaders {
    /// Sentry's header.
    #[serde(rename = "sentry-trace", skip_serializing_if = "Option::is_none")]
    pub sentry_trace: Option<String>,
    /// W3C's header.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// The span is one of all processes of this target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The span is one of this process, and not of the one that is connected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
}

/// What profbridge answers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Response {
    /// Whether the request was understood and allowed.
    pub ok: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Fault>,
    /// What happened, for a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// How many processes are profiled now that were not before, or the other way round.
    #[serde(default)]
    pub changed: u64,
    /// The processes that the request spoke of, and what became of each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<ProcessAnswer>,
    /// For `status`: the targets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<TargetStatus>,
}

/// What is wrong with a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Where: a key of the request, or `request`.
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProcessStatus {
    /// Its id.
    pub pid: u32,
    /// Its executable.
    pub executable: String,
    /// The session, as in the resource attribute `profbridge.session.id`.
    pub session: String,
    /// Whether the session is sampled.
    pub sampled: bool,
    /// Whether it is profiled at the moment.
    pub profiling: bool,
    /// Sampled root spans that are open.
    pub open_spans: u64,
    /// Its threads.
    pub threads: u64,
    /// The rate at the moment.
    pub rate_hertz: f64,
    /// The configured rate. The rate is lower while `max_cpu` or `max_stopped` is spent.
    #[serde(default)]
    pub configured_hertz: f64,
    /// Ticks that were left out because a budget was spent.
    #[serde(default)]
    pub lowered_ticks: u64,
    /// Ticks that the sampler was too late for, and times at which the kernel took no more samples for a moment since
    /// there were too many.
    #[serde(default)]
    pub missed_ticks: u64,
    /// How often a thread was stopped.
    #[serde(default)]
    pub stops: u64,
    /// How often a stop was refused, by another tracer or by the kernel.
    #[serde(default)]
    pub refused_stops: u64,
    /// 99 of 100 stops were at most so long, in microseconds, as a power of two.
    #[serde(default)]
    pub stop_p99_micros: u64,
    /// The longest stop, in microseconds.
    #[serde(default)]
    pub longest_stop_micros: u64,
    /// Observations since it was attached.
    pub observations: u64,
    /// Those of them whose stack is complete.
    pub complete: u64,
    /// Those that were lost on the way.
    pub lost: u64,
    /// How running threads are sampled, for a person.
    #[serde(default)]
    pub running: String,
    /// How much processor time was not sampled, in milliseconds.
    #[serde(default)]
    pub not_sampled_millis: u64,
    /// What would show more of running threads, for a person; empty where nothing would.
    #[serde(default)]
    pub more: String,
    /// How many system calls came back early since their thread was stopped in them.
    #[serde(default)]
    pub cut_calls: u64,
}

impl Response {
    /// A refusal.
    #[must_use]
    pub fn refused(place: impl Into<String>, rule: impl Into<String>) -> Self {
        Self { error: Some(Fault { place: place.into(), rule: rule.into() }), ..Self::default() }
    }

    /// A response without more to say than this.
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
    /// The first rule of JSON or of the protocol that it breaks, and the column.
    pub fn read(line: &[u8]) -> Result<Self, Fault> {
        let fault = |place: &str, rule: String| Fault { place: place.to_owned(), rule };
        if line.len() > MAX_REQUEST {
            return Err(fault("request", format!("is longer than {MAX_REQUEST} bytes")));
        }
        serde_json::from_slice(line).map_err(|error| {
            let text = error.to_string();
            // One line is line 1; only the column says something.
            let rule = text.rsplit_once(" at line ").map_or(text.as_str(), |(rule, _)| rule);
            let place = match error.column() {
                0 => "request".to_owned(),
                column => format!("request, column {column}"),
            };
            fault(&place, rule.to_owned())
        })
    }
}

impl SpanHeaders {
    /// The span that is meant and its decision.
    ///
    /// # Errors
    ///
    /// The header that breaks a rule, and the rule.
    pub fn span(&self) -> Result<(SpanKey, Decision), Fault> {
        let fault = |place: &str, rule: String| Fault { place: place.to_owned(), rule };
        match (&self.sentry_trace, &self.traceparent) {
            (Some(header), None) => {
                trace_header::sentry_trace(header).map_err(|malformed| fault("sentry-trace", malformed.to_string()))
            }
            (None, Some(header)) => {
                trace_header::traceparent(header).map_err(|malformed| fault("traceparent", malformed.to_string()))
            }
            _ => Err(fault("request", "has either sentry-trace or traceparent".to_owned())),
        }
    }
}
