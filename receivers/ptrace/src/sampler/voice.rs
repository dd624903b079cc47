//! Saying things without ever waiting for the listener.

use std::collections::VecDeque;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::{Duration, Instant};

use super::Output;
use crate::message::Batch;

/// How long the last words may take to find room at the end.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How often another attempt is made to say what found no room.
pub(super) const RETRY: Duration = Duration::from_millis(20);

/// The way to the listener, and what found no room in it yet. That is little: samples are never kept, and of the counters of a process only the last.
pub(super) struct Voice<'a> {
    out: SyncSender<Output>,
    wake: &'a dyn Fn(),
    unsaid: VecDeque<Output>,
}

impl<'a> Voice<'a> {
    pub(super) fn new(out: SyncSender<Output>, wake: &'a dyn Fn()) -> Self {
        Self { out, wake, unsaid: VecDeque::new() }
    }

    pub(super) fn has_unsaid(&self) -> bool {
        !self.unsaid.is_empty()
    }

    /// Says samples, or drops them where there is no room: how many observations were lost.
    pub(super) fn say_batch(&mut self, batch: Batch) -> u64 {
        self.say_unsaid();
        if self.has_unsaid() {
            // Nothing may overtake what was to be said before it.
            return observations(&batch);
        }
        match self.out.try_send(Output::Batch(batch)) {
            Ok(()) => {
                (self.wake)();
                0
            }
            Err(TrySendError::Full(Output::Batch(batch)) | TrySendError::Disconnected(Output::Batch(batch))) => {
                observations(&batch)
            }
            Err(_) => 0,
        }
    }

    /// Says something, now or as soon as there is room.
    pub(super) fn say(&mut self, output: Output) {
        if let Output::Status(status) = &output {
            let process = status.process;
            self.unsaid.retain(|before| !matches!(before, Output::Status(before) if before.process == process));
        }
        self.unsaid.push_back(output);
        self.say_unsaid();
    }

    /// Says what found no room before.
    pub(super) fn say_unsaid(&mut self) {
        while let Some(output) = self.unsaid.pop_front() {
            match self.out.try_send(output) {
                Ok(()) => (self.wake)(),
                Err(TrySendError::Full(output)) => {
                    self.unsaid.push_front(output);
                    return;
                }
                Err(TrySendError::Disconnected(_)) => self.unsaid.clear(),
            }
        }
    }

    /// Says what is left, and waits for room if need be, for a while.
    pub(super) fn last_words(&mut self) {
        let deadline = Instant::now() + LAST_WORDS;
        loop {
            self.say_unsaid();
            if !self.has_unsaid() || Instant::now() >= deadline {
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

    /// Guarantees: with a listener that does not listen, samples are dropped and counted, of counters the last is kept, everything else is said once there is
    /// room, in order, and the thread never waits.
    #[test]
    fn no_room() {
        let (out, outputs) = sync_channel(1);
        let woken = Cell::new(0);
        let wake = || woken.set(woken.get() + 1);
        let mut voice = Voice::new(out, &wake);
        assert_eq!(voice.say_batch(batch(3)), 0);
        assert_eq!(voice.say_batch(batch(3)), 6);
        for ticks in 1..=100 {
            voice.say(Output::Status(Status { ticks, ..Status::default() }));
        }
        voice.say(Output::Gone { process: ProcessId(1), why: Detached::Asked });
        assert_eq!(voice.unsaid.len(), 2);
        assert!(matches!(outputs.try_recv(), Ok(Output::Batch(_))));
        assert_eq!(voice.say_batch(batch(1)), 2);
        assert!(matches!(outputs.try_recv(), Ok(Output::Status(Status { ticks: 100, .. }))));
        voice.say_unsaid();
        assert!(matches!(outputs.try_recv(), Ok(Output::Gone { .. })));
        assert!(!voice.has_unsaid());
        assert_eq!(woken.get(), 3);
        drop(outputs);
        assert_eq!(voice.say_batch(batch(1)), 2);
        voice.say(Output::Reload(ProcessId(1)));
        assert!(!voice.has_unsaid());
    }
}
