//! Buffers batches while their addresses are looked up.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use profbridge_engine::component::{Held, Now, Outbox, Processor};
use profbridge_model::{Profiles, Telemetry};

use crate::answers;
use crate::background::Background;
use crate::config::Settings;
use crate::names::NameSource;
use crate::queries::{Queries, Query};

/// The interval, in nanoseconds, at which a waiting batch is checked.
const POLL_NANO: u64 = 20_000_000;

struct WaitingBatch {
    profiles: Profiles,
    queries: Queries,
    /// All queries before this index have final answers.
    answered: usize,
    deadline: u64,
    bytes: u64,
}

/// The processor. Batches wait in order of arrival.
pub struct Symbolize {
    timeout: u64,
    max_bytes: u64,
    names: Box<dyn NameSource>,
    waiting: VecDeque<WaitingBatch>,
    next_poll: u64,
    held: Held,
}

impl Symbolize {
    /// A processor without any data. Its threads start with the first query.
    pub fn new(settings: &Settings) -> Self {
        Self::with_names(settings, Box::new(Background::new(settings)))
    }

    /// A processor with the given source of names.
    pub fn with_names(settings: &Settings, names: Box<dyn NameSource>) -> Self {
        Self {
            timeout: settings.timeout,
            max_bytes: settings.max_bytes,
            names,
            waiting: VecDeque::new(),
            next_poll: 0,
            held: Held::default(),
        }
    }

    /// Whether the size limit is exceeded, so that the oldest batches must be released.
    fn is_over_full(&self) -> bool {
        self.held.bytes > self.max_bytes
    }

    /// Accepts a batch. If the batch need not wait for names, it is sent at once, unless an earlier batch of the same
    /// peer is waiting.
    fn take(&mut self, profiles: Profiles, now: Now, out: &mut Outbox) {
        let queries = Queries::of(&profiles, &*self.names);
        self.ask(&queries);
        let bytes = profiles.size_bytes()
            + size_of::<WaitingBatch>() as u64
            + (queries.queries.len() * size_of::<Query>()) as u64;
        let deadline = now.monotonic_nano.saturating_add(self.timeout);
        let mut new = WaitingBatch { profiles, queries, answered: 0, deadline, bytes };
        let ready = self.timeout == 0 || new.is_answered(&mut *self.names);
        if ready && !self.waiting.iter().any(|earlier| earlier.profiles.peer == new.profiles.peer) {
            return self.send(new, out);
        }
        if self.waiting.is_empty() {
            self.next_poll = now.monotonic_nano.saturating_add(POLL_NANO);
        }
        self.held.bytes += bytes;
        self.held.quantities.observations += new.profiles.observations();
        self.waiting.push_back(new);
        if self.is_over_full() {
            self.release(true, out);
        }
    }

    /// Requests the names of all addresses of a batch, file by file.
    fn ask(&mut self, queries: &Queries) {
        let mut addresses = vec![Vec::new(); queries.files.len()];
        for query in &queries.queries {
            addresses[query.file as usize].push(query.address);
        }
        for (file, mut addresses) in queries.files.iter().zip(addresses) {
            if !addresses.is_empty() {
                addresses.sort_unstable();
                addresses.dedup();
                self.names.ask(file, &addresses);
            }
        }
    }

    /// Sends the oldest batch with the names known so far. Returns whether there is another batch.
    fn release(&mut self, early: bool, out: &mut Outbox) -> bool {
        if let Some(waiting) = self.remove(0) {
            if early {
                out.note(crate::RELEASED_EARLY, 1);
            }
            self.send(waiting, out);
        }
        !self.waiting.is_empty()
    }

    fn remove(&mut self, at: usize) -> Option<WaitingBatch> {
        let waiting = self.waiting.remove(at)?;
        self.held.bytes -= waiting.bytes;
        self.held.quantities.observations -= waiting.profiles.observations();
        Some(waiting)
    }

    fn send(&mut self, waiting: WaitingBatch, out: &mut Outbox) {
        let named = answers::write(waiting.profiles, &waiting.queries, &mut *self.names, out);
        out.send(named);
    }
}

impl Processor for Symbolize {
    fn fit_memory(&mut self, limit: u64) {
        self.max_bytes = self.max_bytes.min(limit / 2);
    }

    fn is_absorbing(&self) -> bool {
        self.is_over_full()
    }

    fn process(&mut self, telemetry: Telemetry, now: Now, out: &mut Outbox) {
        match telemetry {
            Telemetry::Profiles(profiles) => self.take(profiles, now, out),
            // Spans have no addresses. An envelope is delivered as a whole, and its contents were symbolized by their
            // sender.
            other => out.send(other),
        }
    }

    fn due(&self) -> Option<u64> {
        if self.is_over_full() {
            return Some(0);
        }
        // The oldest batch has the earliest deadline.
        self.waiting.front().map(|first| first.deadline.min(self.next_poll))
    }

    /// Sends the first batch that is answered, has waited long enough, or exceeds the size limit.
    fn advance(&mut self, now: Now, out: &mut Outbox) {
        if self.is_over_full() {
            self.release(true, out);
            return;
        }
        let mut blocked: HashSet<Option<Arc<str>>> = HashSet::new();
        for at in 0..self.waiting.len() {
            let waiting = &mut self.waiting[at];
            let over = waiting.deadline <= now.monotonic_nano;
            let free = !blocked.contains(&waiting.profiles.peer);
            // Deadlines are in order of arrival, so an expired batch is never blocked by an earlier one.
            if free && (over || waiting.is_answered(&mut *self.names)) {
                if let Some(ready) = self.remove(at) {
                    self.send(ready, out);
                }
                return;
            }
            blocked.insert(self.waiting[at].profiles.peer.clone());
        }
        self.next_poll = now.monotonic_nano.saturating_add(POLL_NANO);
    }

    fn on_memory_pressure(&mut self, _now: Now, out: &mut Outbox) -> bool {
        self.release(true, out)
    }

    fn flush(&mut self, _now: Now, out: &mut Outbox) -> bool {
        self.release(false, out)
    }

    fn held(&self) -> Held {
        self.held
    }
}

impl WaitingBatch {
    /// Whether all addresses have final answers. Only checks the addresses that had none at the last call.
    fn is_answered(&mut self, names: &mut dyn NameSource) -> bool {
        while let Some(query) = self.queries.queries.get(self.answered) {
            if names.answer(&self.queries.files[query.file as usize].id, query.address, false).is_late() {
                return false;
            }
            self.answered += 1;
        }
        true
    }
}
