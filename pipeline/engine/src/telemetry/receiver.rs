//! The counters of a receiver: those of the Collector's `receiverhelper`.

use std::sync::{Arc, Mutex, PoisonError};

use profbridge_net::server::ServerStats;

use super::edge::Edge;
use super::item_counts::ItemCounts;
use super::producers::{Producer, Producers};
use super::refusals::{Refusal, RefusalLine, Refusals};

/// The counters of a receiver, separate for each transport. Cheap to clone; clones share them.
#[derive(Debug, Clone)]
pub struct ReceiverTelemetry {
    id: Arc<str>,
    transports: Arc<Mutex<Vec<TransportTelemetry>>>,
    producers: Arc<Producers>,
    /// The edges of all components.
    edges: Arc<Mutex<Vec<Edge>>>,
}

/// The counters of one transport of a receiver. Cheap to clone; clones share them.
#[derive(Debug, Clone)]
pub struct TransportTelemetry {
    counters: Arc<TransportCounters>,
}

#[derive(Debug)]
struct TransportCounters {
    receiver: Arc<str>,
    transport: &'static str,
    /// For each [`RequestOutcome`], the items of the requests, and the number of requests.
    outcomes: Mutex<[(ItemCounts, u64); 3]>,
    connections: Arc<ServerStats>,
    refusals: Refusals,
    /// The receiver's producers, shared by its transports.
    producers: Arc<Producers>,
}

/// How a request ended, as the label `outcome` (opentelemetry-collector `docs/rfcs/component-universal-telemetry.md`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestOutcome {
    Success,
    Refused,
    Failure,
}

impl RequestOutcome {
    pub(super) const ALL: [RequestOutcome; 3] =
        [RequestOutcome::Success, RequestOutcome::Refused, RequestOutcome::Failure];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            RequestOutcome::Success => "success",
            RequestOutcome::Refused => "refused",
            RequestOutcome::Failure => "failure",
        }
    }
}

impl ReceiverTelemetry {
    pub(super) fn new(id: &str, edges: Arc<Mutex<Vec<Edge>>>) -> Self {
        Self { id: id.into(), transports: Arc::default(), producers: Arc::default(), edges }
    }

    /// The receiver's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The counters of one transport, such as `grpc` or `http`; the same name returns the same counters.
    pub fn transport(&self, transport: &'static str) -> TransportTelemetry {
        let mut known = self.transports.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.iter().find(|known| known.counters.transport == transport) {
            return found.clone();
        }
        let counters = TransportCounters {
            receiver: Arc::clone(&self.id),
            transport,
            outcomes: Mutex::default(),
            connections: Arc::default(),
            refusals: Refusals::default(),
            producers: Arc::clone(&self.producers),
        };
        let created = TransportTelemetry { counters: Arc::new(counters) };
        known.push(created.clone());
        created
    }

    /// The last summaries of the processors, one line each, with the names of processor and pipeline.
    pub fn processor_summaries(&self) -> Vec<String> {
        let edges = self.edges.lock().unwrap_or_else(PoisonError::into_inner);
        let line = |edge: &Edge| Some(format!("{} in {}: {}", edge.component(), edge.pipeline(), edge.summary()?));
        edges.iter().filter_map(line).collect()
    }

    /// Requests over all transports: accepted, refused, failed.
    pub fn requests(&self) -> [u64; 3] {
        let mut sums = [0; 3];
        for transport in self.transports() {
            for outcome in RequestOutcome::ALL {
                sums[outcome as usize] += transport.counted(outcome).1;
            }
        }
        sums
    }

    /// Writes due log lines about refusals; call it regularly.
    pub(crate) fn write_refusals(&self) {
        for transport in self.transports() {
            for line in transport.counters.refusals.due() {
                transport.write(&line);
            }
        }
    }

    /// The producers that have sent, with the number of accepted requests of each.
    pub fn producers(&self) -> Vec<(Producer, u64)> {
        self.producers.all()
    }

    pub(super) fn transports(&self) -> Vec<TransportTelemetry> {
        self.transports.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl TransportTelemetry {
    /// Counts a request whose items the pipelines accepted.
    pub fn accepted(&self, items: ItemCounts) {
        self.count(RequestOutcome::Success, items, 1);
    }

    /// Counts a request that a pipeline or the memory budget refused. It has no items if it was refused before it was
    /// decoded.
    pub fn refused(&self, items: ItemCounts) {
        self.count(RequestOutcome::Refused, items, 1);
    }

    /// Counts a request that failed in the receiver: it could not be read, decompressed or decoded. It has no items if
    /// they could not be counted.
    pub fn failed(&self, items: ItemCounts) {
        self.count(RequestOutcome::Failure, items, 1);
    }

    /// Counts items that failed in the receiver while others of their request were accepted. [`Self::accepted`] counts
    /// the request itself.
    pub fn failed_partly(&self, items: ItemCounts) {
        self.count(RequestOutcome::Failure, items, 0);
    }

    /// Logs that a request was refused: the first one for each reason at once, the others once a minute. Call it in
    /// addition to the counting, for every request that is not answered with success.
    pub fn not_taken(&self, refusal: Refusal) {
        if let Some(line) = self.counters.refusals.note(refusal) {
            self.write(&line);
        }
    }

    fn write(&self, line: &RefusalLine) {
        let TransportCounters { receiver, transport, .. } = &*self.counters;
        tracing::warn!(receiver = &**receiver, transport, "{line}");
    }

    /// Counts a request of a producer. If this is its first request over any transport, returns the producer, for a log
    /// line. Of many made-up names, all but a few count as one producer without a name.
    pub fn produced_by(&self, producer: Producer) -> Option<Producer> {
        self.counters.producers.note(producer)
    }

    /// The counters of the transport's connections, for the server.
    pub fn connections(&self) -> Arc<ServerStats> {
        Arc::clone(&self.counters.connections)
    }

    fn count(&self, outcome: RequestOutcome, items: ItemCounts, requests: u64) {
        let mut outcomes = self.counters.outcomes.lock().unwrap_or_else(PoisonError::into_inner);
        let (sum, count) = &mut outcomes[outcome as usize];
        *sum += items;
        *count += requests;
    }

    pub(super) fn name(&self) -> &'static str {
        self.counters.transport
    }

    /// The items of the requests with this outcome, and the number of requests.
    pub(super) fn counted(&self, outcome: RequestOutcome) -> (ItemCounts, u64) {
        self.counters.outcomes.lock().unwrap_or_else(PoisonError::into_inner)[outcome as usize]
    }
}
