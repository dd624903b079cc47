//! Sends batches to the pipelines, and counts those that they do not accept in time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use profbridge_engine::component::{Rejected, Retry};
use profbridge_engine::intake::Intake;
use profbridge_engine::telemetry::{ItemCounts, TransportTelemetry};
use profbridge_model::{Profiles, Quantities, Reason};
use profbridge_net::{LogGate, Shutdown};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::problems::BETWEEN_LINES;

/// How long a batch is offered again to pipelines that refuse it: enough for a pipeline to flush several windows under
/// memory pressure. While the queue of an exporter is full there is no time limit: the destination may be unavailable
/// for minutes, and the samples wait in this queue as long as they fit.
const RETRY_FOR: Duration = Duration::from_secs(30);

/// Replaces [`RETRY_FOR`] during a shutdown, whose deadline is the same for all components.
const RETRY_FOR_AT_THE_END: Duration = Duration::from_secs(1);

/// The shortest and the longest pause between two attempts.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// The sending side of the delivery. After this is dropped, the task ends when everything is delivered.
#[derive(Debug)]
pub(crate) struct Delivery {
    /// Unlimited in number, since all processes may be due at the same moment; `limit` limits the bytes.
    sender: mpsc::UnboundedSender<(Profiles, u64)>,
    intake: Intake,
    waiting: Arc<AtomicU64>,
    limit: u64,
    warned: LogGate,
}

impl Delivery {
    /// Creates the sending side, and the task that has to be run. At most `limit` bytes wait, besides the last batch.
    pub(crate) fn new(
        intake: Intake,
        telemetry: TransportTelemetry,
        shutdown: Shutdown,
        limit: u64,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (sender, mut receiver) = mpsc::unbounded_channel::<(Profiles, u64)>();
        let waiting = Arc::new(AtomicU64::new(0));
        let mut courier = Courier { intake: intake.clone(), telemetry, shutdown, losing: false };
        let counted = Arc::clone(&waiting);
        let task = async move {
            while let Some((profiles, bytes)) = receiver.recv().await {
                courier.deliver(profiles, bytes).await;
                counted.fetch_sub(bytes, Ordering::Relaxed);
            }
        };
        (Self { sender, intake, waiting, limit, warned: LogGate::new(BETWEEN_LINES) }, task)
    }

    /// Queues a batch, or counts it as lost if too much is waiting.
    pub(crate) fn send(&mut self, profiles: Profiles) {
        let (bytes, observations) = (profiles.size_bytes(), profiles.observations());
        let waiting = self.waiting();
        if waiting >= self.limit {
            if self.warned.pass().is_some() {
                tracing::warn!("{observations} samples are lost, since {waiting} bytes wait for the pipelines already");
            }
            return self.intake.refused(Reason::QueueFull, Quantities::observations(observations));
        }
        self.waiting.fetch_add(bytes, Ordering::Relaxed);
        if self.sender.send((profiles, bytes)).is_err() {
            // The task has panicked, which ends the receiver.
            self.waiting.fetch_sub(bytes, Ordering::Relaxed);
            self.intake.refused(Reason::Internal, Quantities::observations(observations));
        }
    }

    /// The size of the waiting batches in bytes.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }
}

struct Courier {
    intake: Intake,
    telemetry: TransportTelemetry,
    shutdown: Shutdown,
    /// Whether the last batch was refused, so that it is logged only once.
    losing: bool,
}

impl Courier {
    async fn deliver(&mut self, profiles: Profiles, bytes: u64) {
        let (samples, observations) = (profiles.columns().len() as u64, profiles.observations());
        let start = Instant::now();
        let mut pause = PAUSE.0;
        loop {
            let Err(rejected) = self.offer(profiles.clone(), bytes).await else {
                self.losing = false;
                return self.telemetry.accepted(ItemCounts::samples(samples));
            };
            let patience = match rejected.reason {
                _ if self.shutdown.is_triggered() => RETRY_FOR_AT_THE_END,
                Reason::QueueFull => Duration::MAX,
                _ => RETRY_FOR,
            };
            let wanted = match rejected.retry {
                Retry::Never => None,
                Retry::Later => Some(pause),
                Retry::After(after) => Some(after.min(PAUSE.1)),
            };
            match wanted.filter(|wanted| start.elapsed() + *wanted <= patience) {
                None => {
                    if !std::mem::replace(&mut self.losing, true) {
                        tracing::warn!("samples are lost until a pipeline takes them again: {rejected}");
                    }
                    self.intake.refused(rejected.reason, Quantities::observations(observations));
                    return self.telemetry.refused(ItemCounts::samples(samples));
                }
                Some(wanted) => tokio::time::sleep(wanted).await,
            }
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    async fn offer(&self, profiles: Profiles, bytes: u64) -> Result<(), Rejected> {
        let permit = self.intake.admit(bytes)?;
        self.intake.consume(profiles, permit).await
    }
}
