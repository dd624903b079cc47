//! The open root spans, by the connection that announced them.
//!
//! In the lifecycle `trace` the profiler runs while a sampled root span is open. Spans belong to the connection that
//! announced them and end when it closes, so that a client that dies does not leave the profiler running. They are not
//! stored with the processes, because a process may announce a span before the sampler has found it.

use std::collections::HashMap;

use profbridge_sampler::message::TargetId;

use crate::trace_header::{Decision, SpanKey};

/// How many spans may be open on one connection.
pub const MAX_SPANS_PER_CONNECTION: usize = 4096;

/// How many spans may be open in all: 64 Ki with about 100 bytes each are some 6 MiB.
pub const MAX_SPANS: usize = 65_536;

/// The number of a connection to the control socket; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

/// The processes for which a span is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// The process with this id.
    Process(u32),
    /// All processes of a target.
    Target(TargetId),
    /// The process with this id, if it belongs to this target.
    Member(u32, TargetId),
}

impl Scope {
    /// Whether this scope includes the process `pid` of a target.
    #[must_use]
    pub fn covers(self, target: TargetId, pid: u32) -> bool {
        match self {
            Self::Process(of) => of == pid,
            Self::Target(of) => of == target,
            Self::Member(of_pid, of_target) => (of_pid, of_target) == (pid, target),
        }
    }
}

/// The result of an announcement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Announced {
    /// The span is open and sampled: it keeps the profiler running.
    Counts,
    /// The span is open and is not sampled.
    NotSampled,
    /// The span is open, but whether it is sampled is not decided: it does not count until it is announced again with a
    /// decision.
    Deferred,
    /// The span was open already, with the same decision.
    Known,
}

/// Why an announcement was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SpanRefusal {
    /// The connection has too many open spans.
    #[error("a connection has at most {MAX_SPANS_PER_CONNECTION} open spans")]
    Connection,
    /// All connections together have too many open spans.
    #[error("all connections together have at most {MAX_SPANS} open spans")]
    All,
    /// The span is open with another decision, which cannot be changed.
    #[error("the span is open and its sampling decision was made before")]
    Decided,
    /// The span is open for other processes.
    #[error("the span is open for another process or target")]
    Scope,
}

/// The open spans of all connections.
#[derive(Debug, Default)]
pub struct OpenSpans {
    connections: HashMap<ConnectionId, HashMap<SpanKey, (Scope, Decision)>>,
    sampled: HashMap<Scope, usize>,
    count: usize,
}

impl OpenSpans {
    /// Announces the start of a root span. A span without a decision may be announced again with one.
    ///
    /// # Errors
    ///
    /// If a limit is exceeded, or the announcement contradicts an earlier one. Nothing is changed then.
    pub fn start(
        &mut self,
        connection: ConnectionId,
        scope: Scope,
        key: SpanKey,
        decision: Decision,
    ) -> Result<Announced, SpanRefusal> {
        let spans = self.connections.entry(connection).or_default();
        if let Some((known_scope, known)) = spans.get_mut(&key) {
            if *known_scope != scope {
                return Err(SpanRefusal::Scope);
            }
            if *known == decision {
                return Ok(Announced::Known);
            }
            if *known != Decision::Deferred {
                return Err(SpanRefusal::Decided);
            }
            *known = decision;
        } else {
            if spans.len() >= MAX_SPANS_PER_CONNECTION {
                return Err(SpanRefusal::Connection);
            }
            if self.count >= MAX_SPANS {
                return Err(SpanRefusal::All);
            }
            spans.insert(key, (scope, decision));
            self.count += 1;
        }
        Ok(match decision {
            Decision::Sampled => {
                *self.sampled.entry(scope).or_default() += 1;
                Announced::Counts
            }
            Decision::NotSampled => Announced::NotSampled,
            Decision::Deferred => Announced::Deferred,
        })
    }

    /// Announces the end of a root span. Returns the processes for which it was open; `None` if this connection had not
    /// announced it.
    pub fn end(&mut self, connection: ConnectionId, key: SpanKey) -> Option<Scope> {
        let spans = self.connections.get_mut(&connection)?;
        let (scope, decision) = spans.remove(&key)?;
        if spans.is_empty() {
            self.connections.remove(&connection);
        }
        self.forget(scope, decision);
        Some(scope)
    }

    /// Closes a connection, which ends its spans. Returns the processes for which they were open, each once.
    pub fn close(&mut self, connection: ConnectionId) -> Vec<Scope> {
        let mut scopes = Vec::new();
        for (scope, decision) in self.connections.remove(&connection).unwrap_or_default().into_values() {
            self.forget(scope, decision);
            scopes.push(scope);
        }
        scopes.sort_unstable();
        scopes.dedup();
        scopes
    }

    /// The number of open sampled root spans for a process of a target.
    #[must_use]
    pub fn sampled(&self, target: TargetId, pid: u32) -> usize {
        let of = |scope| self.sampled.get(&scope).copied().unwrap_or(0);
        of(Scope::Process(pid)) + of(Scope::Target(target)) + of(Scope::Member(pid, target))
    }

    fn forget(&mut self, scope: Scope, decision: Decision) {
        self.count -= 1;
        if decision != Decision::Sampled {
            return;
        }
        if let Some(open) = self.sampled.get_mut(&scope) {
            *open -= 1;
            if *open == 0 {
                self.sampled.remove(&scope);
            }
        }
    }
}

#[cfg(test)]
mod tests;
