//! The queue of events to be sent to the owner.
//!
//! Sending never blocks. If the owner does not keep up, the oldest batches are dropped and counted, because new ones
//! are worth more; all other events are kept, because later events refer to them.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::message::{Batch, Event, ProcessId, Status};
use crate::protocol::{Outgoing, encode_event, socket, split, split_functions};

/// How many bytes of batches may be queued: the output of 64 processes for some seconds.
const MOST_BATCH_BYTES: usize = 16 << 20;

/// How long to wait before another attempt, if the kernel does not signal when there is room.
pub(super) const RETRY: Duration = Duration::from_millis(10);

/// The queued events, in the order in which they are sent.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    waiting: VecDeque<Waiting>,
    batch_bytes: usize,
    held_up: bool,
    lost: HashMap<ProcessId, u64>,
}

#[derive(Debug)]
enum Waiting {
    Batch {
        process: ProcessId,
        observations: u64,
        packet: Outgoing,
    },
    /// A status is encoded when it is sent, so that it includes all losses up to then.
    Status(Box<Status>),
    Resource {
        process: ProcessId,
        packet: Outgoing,
    },
    Other(Outgoing),
}

impl Outbox {
    /// Adds an event.
    pub(super) fn push(&mut self, event: Event) {
        match event {
            Event::Batch(batch) => self.push_batch(&batch),
            Event::Status(status) => {
                // All counters are totals, so a later status replaces an unsent one.
                self.waiting
                    .retain(|waiting| !matches!(waiting, Waiting::Status(old) if old.process == status.process));
                self.waiting.push_back(Waiting::Status(Box::new(status)));
            }
            Event::Detached { process, .. } => {
                self.waiting.push_back(Waiting::Other(encode_event(event)));
                // The process is detached, so no later status can count its losses.
                if !self.waiting.iter().any(|waiting| matches!(waiting, Waiting::Status(old) if old.process == process))
                {
                    self.lost.remove(&process);
                }
            }
            Event::Resource { process, .. } => {
                // Only the latest context matters. Replacing the queued one bounds the memory for a process that keeps
                // changing it.
                self.waiting
                    .retain(|waiting| !matches!(waiting, Waiting::Resource { process: of, .. } if *of == process));
                self.waiting.push_back(Waiting::Resource { process, packet: encode_event(event) });
            }
            Event::Functions { process, first, functions } => {
                for (first, functions) in split_functions(first, functions) {
                    let packet = encode_event(Event::Functions { process, first, functions });
                    self.waiting.push_back(Waiting::Other(packet));
                }
            }
            event => self.waiting.push_back(Waiting::Other(encode_event(event))),
        }
    }

    fn push_batch(&mut self, batch: &Batch) {
        for part in split(batch) {
            let process = part.process;
            let observations = part.samples.iter().map(|sample| u64::from(sample.observations)).sum();
            let packet = encode_event(Event::Batch(part));
            self.batch_bytes += packet.bytes.len();
            self.waiting.push_back(Waiting::Batch { process, observations, packet });
        }
        while self.batch_bytes > MOST_BATCH_BYTES {
            let Some(oldest) = self.waiting.iter().position(|waiting| matches!(waiting, Waiting::Batch { .. })) else {
                return;
            };
            if let Some(Waiting::Batch { process, observations, packet }) = self.waiting.remove(oldest) {
                self.batch_bytes -= packet.bytes.len();
                *self.lost.entry(process).or_default() += observations;
            }
        }
    }

    /// Whether the queue is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether the socket has room but something else prevents sending, so that the next attempt is due after
    /// [`RETRY`].
    pub(super) fn is_held_up(&self) -> bool {
        self.held_up
    }

    /// Sends as much as the socket takes without waiting.
    ///
    /// # Errors
    ///
    /// When the owner is gone.
    pub(super) fn flush(&mut self, owner: BorrowedFd<'_>) -> io::Result<()> {
        self.held_up = false;
        while let Some(first) = self.waiting.front() {
            let result = match first {
                Waiting::Batch { packet, .. } | Waiting::Resource { packet, .. } | Waiting::Other(packet) => {
                    socket::try_send(owner, &packet.bytes, packet.descriptor())
                }
                Waiting::Status(status) => {
                    let mut status = **status;
                    status.lost_observations += self.lost.get(&status.process).copied().unwrap_or(0);
                    socket::try_send(owner, &encode_event(Event::Status(status)).bytes, None)
                }
            };
            match result {
                Ok(()) => {}
                // ETOOMANYREFS: the socket holds too many unread descriptors. The owner has to read some first.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.raw_os_error() == Some(libc::ETOOMANYREFS) => {
                    self.held_up = true;
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
            if let Some(Waiting::Batch { packet, .. }) = self.waiting.pop_front() {
                self.batch_bytes -= packet.bytes.len();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::message::{AttributeValue, Sample, Stack, Thread};
    use crate::protocol::decode_event;
    use crate::protocol::socket::{ReceivedPacket, pair, receive};

    fn batch(samples: usize) -> Event {
        Event::Batch(Batch {
            process: ProcessId(1),
            period_nano: 10,
            threads: vec![Thread::default()],
            stacks: vec![Stack::default()],
            samples: vec![Sample { observations: 2, ..Sample::default() }; samples],
            ..Batch::default()
        })
    }

    /// Guarantees: an owner that reads nothing costs a bounded amount of memory; every observation is either sent or
    /// counted as lost, even in a status that was queued before the loss; everything but batches arrives completely.
    #[test]
    fn drops_the_oldest_samples_and_counts_them() {
        let (owner, sampler) = pair().unwrap();
        let mut outbox = Outbox::default();
        let rounds = 800;
        for _ in 0..rounds {
            outbox.push(batch(4000));
            outbox.push(Event::Status(Status { process: ProcessId(1), lost_observations: 5, ..Status::default() }));
            outbox.flush(sampler.as_fd()).unwrap();
            assert!(outbox.batch_bytes <= MOST_BATCH_BYTES);
        }
        outbox.push(Event::Detached { process: ProcessId(1), why: crate::message::Detached::Asked });
        let (mut arrived, mut lost, mut detached) = (0, 0, false);
        while !outbox.is_empty() || !detached {
            outbox.flush(sampler.as_fd()).unwrap();
            while let Ok(ReceivedPacket::Packet { bytes, file, .. }) = receive(owner.as_fd()) {
                match decode_event(&bytes, file).unwrap() {
                    Event::Batch(batch) => {
                        arrived += batch.samples.iter().map(|sample| u64::from(sample.observations)).sum::<u64>();
                    }
                    Event::Status(status) => lost = status.lost_observations - 5,
                    Event::Detached { .. } => detached = true,
                    other => panic!("{other:?}"),
                }
            }
        }
        assert!(lost > 0);
        assert_eq!(arrived + lost, rounds * 4000 * 2);
        assert_eq!(outbox.batch_bytes, 0);
    }

    /// Guarantees: a process that keeps changing its context while the owner reads nothing costs one event; those of
    /// other processes stay.
    #[test]
    fn the_last_resource_counts() {
        let (owner, sampler) = pair().unwrap();
        let mut outbox = Outbox::default();
        let value = |number: i64| vec![("n".to_owned(), AttributeValue::Int(number))];
        for number in 0..10_000 {
            for process in [1, 2] {
                outbox.push(Event::Resource { process: ProcessId(process), attributes: value(number) });
            }
        }
        assert_eq!(outbox.waiting.len(), 2);
        outbox.flush(sampler.as_fd()).unwrap();
        for expected in [1, 2] {
            let Ok(ReceivedPacket::Packet { bytes, file, .. }) = receive(owner.as_fd()) else { panic!() };
            let Ok(Event::Resource { process, attributes }) = decode_event(&bytes, file) else { panic!() };
            assert_eq!((process, attributes), (ProcessId(expected), value(9_999)));
        }
    }

    /// Guarantees: an owner that is gone causes an error, not a signal.
    #[test]
    fn says_that_the_owner_is_gone() {
        let (owner, sampler) = pair().unwrap();
        drop(owner);
        let mut outbox = Outbox::default();
        outbox.push(batch(1));
        assert!(outbox.flush(sampler.as_fd()).is_err());
    }
}
