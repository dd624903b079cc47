//! Sends the sampler's outputs without ever waiting for the receiver.

use std::collections::VecDeque;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::{Duration, Instant};

use super::SamplerOutput;
use crate::message::Batch;

/// How long the sampling thread waits at its end for room in the channel.
const LAST_ATTEMPT: Duration = Duration::from_secs(1);

/// How often sending is retried for outputs for which there was no room.
pub(super) const RETRY: Duration = Duration::from_millis(20);

/// Sends [`SamplerOutput`]s, and keeps those for which the channel has no room. Their number stays small: batches are
/// dropped instead, and only the latest counters of a process are kept.
pub(super) struct OutputSender<'a> {
    out: SyncSender<SamplerOutput>,
    wake: &'a dyn Fn(),
    unsent: VecDeque<SamplerOutput>,
}

impl<'a> OutputSender<'a> {
    pub(super) fn new(out: SyncSender<SamplerOutput>, wake: &'a dyn Fn()) -> Self {
        Self { out, wake, unsent: VecDeque::new() }
    }

    pub(super) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Sends a batch, or drops it if there is no room. Returns how many observations were lost.
    pub(super) fn send_batch(&mut self, batch: Batch) -> u64 {
        self.send_unsent();
        if self.has_unsent() {
            // A batch must not overtake the outputs that are waiting.
            return observations(&batch);
        }
        match self.out.try_send(SamplerOutput::Batch(batch)) {
            Ok(()) => {
                (self.wake)();
                0
            }
            Err(
                TrySendError::Full(SamplerOutput::Batch(batch))
                | TrySendError::Disconnected(SamplerOutput::Batch(batch)),
            ) => observations(&batch),
            Err(_) => 0,
        }
    }

    /// Sends an output other than a batch, now or as soon as there is room.
    pub(super) fn send(&mut self, output: SamplerOutput) {
        if let SamplerOutput::Status(status) = &output {
            let process = status.process;
            self.unsent.retain(|before| !matches!(before, SamplerOutput::Status(before) if before.process == process));
        }
        self.unsent.push_back(output);
        self.send_unsent();
    }

    /// Sends the outputs for which there was no room before.
    pub(super) fn send_unsent(&mut self) {
        while let Some(output) = self.unsent.pop_front() {
            match self.out.try_send(output) {
                Ok(()) => (self.wake)(),
                Err(TrySendError::Full(output)) => {
                    self.unsent.push_front(output);
                    return;
                }
                Err(TrySendError::Disconnected(_)) => self.unsent.clear(),
            }
        }
    }

    /// Sends the remaining outputs, and waits for room if necessary, for at most [`LAST_ATTEMPT`].
    pub(super) fn send_rest(&mut self) {
        let deadline = Instant::now() + LAST_ATTEMPT;
        loop {
            self.send_unsent();
            if !self.has_unsent() || Instant::now() >= deadline {
                return;
            }
            std::thread::park_timeout(RETRY);
        }
    }
}

fn observations(batch: &Batch) -> u64 {
    batch.samples.iter().map(|sample| u64::from(sample.observations)).sum()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::mpsc::sync_channel;

    use super::*;
    use crate::message::{Detached, ProcessId, Sample, Status};

    fn batch(observations: u32) -> Batch {
        Batch { samples: vec![Sample { observations, ..Sample::default() }; 2], ..Batch::default() }
    }

    /// Guarantees: while the receiver reads nothing, batches are dropped and counted, only the latest counters are
    /// kept, all other outputs are sent in order once there is room, and the sender never waits.
    #[test]
    fn no_room() {
        let (out, outputs) = sync_channel(1);
        let woken = Cell::new(0);
        let wake = || woken.set(woken.get() + 1);
        let mut sender = OutputSender::new(out, &wake);
        assert_eq!(sender.send_batch(batch(3)), 0);
        assert_eq!(sender.send_batch(batch(3)), 6);
        for ticks in 1..=100 {
            sender.send(SamplerOutput::Status(Status { ticks, ..Status::default() }));
        }
        sender.send(SamplerOutput::Gone { process: ProcessId(1), why: Detached::Asked });
        assert_eq!(sender.unsent.len(), 2);
        assert!(matches!(outputs.try_recv(), Ok(SamplerOutput::Batch(_))));
        assert_eq!(sender.send_batch(batch(1)), 2);
        assert!(matches!(outputs.try_recv(), Ok(SamplerOutput::Status(Status { ticks: 100, .. }))));
        sender.send_unsent();
        assert!(matches!(outputs.try_recv(), Ok(SamplerOutput::Gone { .. })));
        assert!(!sender.has_unsent());
        assert_eq!(woken.get(), 3);
        drop(outputs);
        assert_eq!(sender.send_batch(batch(1)), 2);
        sender.send(SamplerOutput::Reload { process: ProcessId(1), mapped: Vec::new() });
        assert!(!sender.has_unsent());
    }
}
