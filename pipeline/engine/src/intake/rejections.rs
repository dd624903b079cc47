//! Why a request is refused, and when its sender may come back.

use std::time::Duration;

use profbridge_model::{Reason, Telemetry};

use crate::budget::Exhausted;
use crate::component::{Rejected, Retry};
use crate::telemetry::Edge;

/// When a sender that was turned away for want of memory may come back. Windows are put out at once when memory is
/// short, so the next report of a profiler (5 s in the OpenTelemetry eBPF profiler) finds room.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// When a sender that was turned away because a queue is full may come back: the pause after which an exporter itself
/// tries again for the first time.
const QUEUE_RETRY_AFTER: Duration = Duration::from_secs(5);

/// The memory budget is used up, or the request is larger than all of it.
pub(super) fn out_of_memory(exhausted: Exhausted) -> Rejected {
    let Exhausted { wanted, used, limit } = exhausted;
    let component = "service.limits.memory".to_owned();
    if wanted > limit {
        let message = format!("the request needs {wanted} bytes of memory, the limit is {limit}");
        return Rejected { component, reason: Reason::LimitExceeded, retry: Retry::Never, message };
    }
    let message = format!("{used} of {limit} bytes of memory are used, {wanted} more are needed");
    Rejected { component, reason: Reason::MemoryLimit, retry: Retry::After(RETRY_AFTER), message }
}

/// The queue of an exporter is full.
pub(crate) fn queue_full(exporter: &str) -> Rejected {
    Rejected {
        component: format!("exporters/{exporter}"),
        reason: Reason::QueueFull,
        retry: Retry::After(QUEUE_RETRY_AFTER),
        message: format!("the queue of exporter {exporter} is full: {}", Reason::QueueFull.explanation()),
    }
}

/// The request has left this process before.
pub(super) fn circle(exporter: &str) -> Rejected {
    Rejected {
        component: format!("exporters/{exporter}"),
        reason: Reason::Loop,
        retry: Retry::Never,
        message: Reason::Loop.explanation().to_owned(),
    }
}

/// profbridge ends.
pub(super) fn stopped(pipeline: &str) -> Rejected {
    Rejected {
        component: format!("pipelines/{pipeline}"),
        reason: Reason::Shutdown,
        retry: Retry::Later,
        message: "profbridge is shutting down".to_owned(),
    }
}

/// The thread of a pipeline is gone.
pub(super) fn broken(pipeline: &str) -> Rejected {
    Rejected {
        component: format!("pipelines/{pipeline}"),
        reason: Reason::Internal,
        retry: Retry::Later,
        message: "the pipeline has failed, see the log of profbridge".to_owned(),
    }
}

/// Nothing takes this kind of telemetry.
pub(super) fn unroutable(edge: &Edge, telemetry: &Telemetry) -> Rejected {
    Rejected {
        component: edge.component().to_owned(),
        reason: Reason::Unroutable,
        retry: Retry::Never,
        message: format!("no pipeline of this receiver carries {}", telemetry.kind().noun()),
    }
}
