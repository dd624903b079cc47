//! Reasons to refuse a request, and when its sender may retry.

use std::time::Duration;

use profbridge_model::{Reason, Telemetry};

use crate::budget::Exhausted;
use crate::component::{Rejected, Retry};
use crate::telemetry::Edge;

/// The delay for a sender that was refused for lack of memory. Memory pressure flushes windows at once, so the next
/// report of a profiler (after 5 s in the OpenTelemetry eBPF profiler) finds room.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// The delay for a sender that was refused because of a full queue: the pause before an exporter's own first retry.
const QUEUE_RETRY_AFTER: Duration = Duration::from_secs(5);

fn rejected(component: String, reason: Reason, retry: Retry, message: impl Into<String>) -> Rejected {
    Rejected { component, reason, retry, message: message.into() }
}

/// The error if the memory budget is used up, or the request is larger than the whole budget.
pub(super) fn out_of_memory(exhausted: Exhausted) -> Rejected {
    let Exhausted { wanted, used, limit } = exhausted;
    let component = "service.limits.memory".to_owned();
    if wanted > limit {
        let message = format!("the request needs {wanted} bytes of memory, the limit is {limit}");
        return rejected(component, Reason::LimitExceeded, Retry::Never, message);
    }
    let message = format!("{used} of {limit} bytes of memory are used, {wanted} more are needed");
    rejected(component, Reason::MemoryLimit, Retry::After(RETRY_AFTER), message)
}

/// The error if the queue of an exporter is full.
pub(crate) fn queue_full(exporter: &str) -> Rejected {
    let message = format!("the queue of exporter {exporter} is full: {}", Reason::QueueFull.explanation());
    rejected(format!("exporters/{exporter}"), Reason::QueueFull, Retry::After(QUEUE_RETRY_AFTER), message)
}

/// The error if the request has passed through this process before.
pub(super) fn circle(exporter: &str) -> Rejected {
    rejected(format!("exporters/{exporter}"), Reason::Loop, Retry::Never, Reason::Loop.explanation())
}

/// The error during a shutdown.
pub(super) fn stopped(pipeline: &str) -> Rejected {
    rejected(format!("pipelines/{pipeline}"), Reason::Shutdown, Retry::Later, "profbridge is shutting down")
}

/// The error if the thread of a pipeline has ended.
pub(super) fn broken(pipeline: &str) -> Rejected {
    let message = "the pipeline has failed, see the log of profbridge";
    rejected(format!("pipelines/{pipeline}"), Reason::Internal, Retry::Later, message)
}

/// The error if no pipeline carries this kind of telemetry.
pub(super) fn unroutable(edge: &Edge, telemetry: &Telemetry) -> Rejected {
    let message = format!("no pipeline of this receiver carries {}", telemetry.kind().noun());
    rejected(edge.component().to_owned(), Reason::Unroutable, Retry::Never, message)
}
