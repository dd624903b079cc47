//! The counters of a receiver, as the Collector's `receiverhelper` keeps them.

use std::sync::{Arc, Mutex, PoisonError};

use profbridge_net::server::ServerStats;

use super::edge::Edge;
use super::item_counts::ItemCounts;
use super::producers::{Producer, Producers};
use super::refusals::{Line, Refusal, Refusals};

/// The counters of a receiver, apart for each of its transports. Cheap to clone; clones share them.
#[derive(Debug, Clone)]
pub struct ReceiverTelemetry {
    id: Arc<str>,
    transports: Arc<Mutex<Vec<TransportTelemetry>>>,
    producers: Arc<Producers>,
    /// The counters at the edges of all components.
    edges: Arc<Mutex<Vec<Edge>>>,
}

/// The counters of one transport of a receiver. Cheap to clone; clones share them.
#[derive(Debug, Clone)]
pub struct TransportTelemetry {
    counters: Arc<Counters>,
}

#[derive(Debug)]
struct Counters {
    receiver: Arc<str>,
    transport: &'static str,
    /// By [`Outcome`]: what was in the requests, and how many there were.
    outcomes: Mutex<[(ItemCounts, u64); 3]>,
    connections: Arc<ServerStats>,
    refusals: Refusals,
    /// Those of the receiver.
    producers: Arc<Producers>,
}

/// How a request ended, as the label `outcome` (opentelemetry-collector `docs/rfcs/component-universal-telemetry.md`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Success,
    Refused,
    Failure,
}

impl Outcome {
    pub(super) const ALL: [Outcome; 3] = [Outcome::Success, Outcome::Refused, Outcome::Failure];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Outcome::Success => "success",
            Outcome::Refused => "refused",
            Outcome::Failure => "failure",
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

    /// The counters of one transport, such as `grpc` or `http`; the same ones for the same name.
    pub fn transport(&self, transport: &'static str) -> TransportTelemetry {
        let mut known = self.transports.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.iter().find(|known| known.counters.transport == transport) {
            return found.clone();
        }
        let counters = Counters {
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

    /// What processors had to say last, each in a line that names the processor and its pipeline.
    pub fn said_by_processors(&self) -> Vec<String> {
        let edges = self.edges.lock().unwrap_or_else(PoisonError::into_inner);
        let line = |edge: &Edge| Some(format!("{} in {}: {}", edge.component(), edge.pipeline(), edge.said()?));
        edges.iter().filter_map(line).collect()
    }

    /// Requests over all transports that were accepted, refused and failed.
    pub fn requests(&self) -> [u64; 3] {
        let mut sums = [0; 3];
        for transport in self.transports() {
            for outcome in Outcome::ALL {
                sums[outcome as usize] += transport.counted(outcome).1;
            }
        }
        sums
    }

    /// Writes the lines about refusals that are due; to be called once in a while.
    pub(crate) fn write_refusals(&self) {
        for transport in self.transports() {
            for line in transport.counters.refusals.due() {
                transport.write(&line);
            }
        }
    }

    /// What has sent to it, with how many requests of each were taken.
    pub fn producers(&self) -> Vec<(Producer, u64)> {
        self.producers.all()
    }

    pub(super) fn transports(&self) -> Vec<TransportTelemetry> {
        self.transports.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl TransportTelemetry {
    /// A request whose items the pipelines took.
    pub fn accepted(&self, items: ItemCounts) {
        self.count(Outcome::Success, items, 1);
    }

    /// A request whose items were refused by something behind the receiver: a pipeline or the memory budget. There are
    /// none where it was refused before it was decoded.
    pub fn refused(&self, items: ItemCounts) {
        self.count(Outcome::Refused, items, 1);
    }

    /// A request that failed in the receiver itself: it could not be read, unpacked or decoded. There are no items
    /// where they could not be counted.
    pub fn failed(&self, items: ItemCounts) {
        self.count(Outcome::Failure, items, 1);
    }

    /// Items that failed in the receiver while others of their request were accepted, which [`Self::accepted`] tells.
    pub fn failed_partly(&self, items: ItemCounts) {
        self.count(Outcome::Failure, items, 0);
    }

    /// Says in the log that a request was not taken: the first of its reason at once, the others once a minute. Beside
    /// the counting, for every request that was not answered with success.
    pub fn not_taken(&self, refusal: Refusal) {
        if let Some(line) = self.counters.refusals.note(refusal) {
            self.write(&line);
        }
    }

    fn write(&self, line: &Line) {
        let Counters { receiver, transport, .. } = &*self.counters;
        tracing::warn!(receiver = &**receiver, transport, "{line}");
    }

    /// Counts a request by what sent it. The producer as it is counted, where it is the first request of it, whichever
    /// transport it comes by: for a line in the log. Of many made-up names all but a few count as one.
    pub fn produced_by(&self, producer: Producer) -> Option<Producer> {
        self.counters.producers.note(producer)
    }

    /// The counters of its connections, for the server that serves them.
    pub fn connections(&self) -> Arc<ServerStats> {
        Arc::clone(&self.counters.connections)
    }

    fn count(&self, outcome: Outcome, items: ItemCounts, requests: u64) {
        let mut outcomes = self.counters.outcomes.lock().unwrap_or_else(PoisonError::into_inner);
        let (sum, count) = &mut outcomes[outcome as usize];
        *sum += items;
        *count += requests;
    }

    pub(super) fn name(&self) -> &'static str {
        self.counters.transport
    }

    /// What was in the requests that ended so, and how many there were.
    pub(super) fn counted(&self, outcome: Outcome) -> (ItemCounts, u64) {
        self.counters.outcomes.lock().unwrap_or_else(PoisonError::into_inner)[outcome as usize]
    }
}
