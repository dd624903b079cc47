//! Turns stacks that were found into samples of the batch, and assigns to each sample the time that it covers.

use std::time::{Duration, Instant};

use super::{Active, COUNTED, WaitStack};
use crate::message::{Location, Mode, Sample, Thread, Trust};
use crate::os::time;
use crate::probe::SchedStat;
use crate::process_files::Life;
use crate::runtime::ThreadKey;
use crate::sampler::attached::Attached;
use crate::sampler::batch::BatchEntry;
use crate::sampler::contexts::TraceContextReading;
use crate::sampler::interpreters::NamedFrames;
use crate::sampler::ledger::{SettleRules, TimeSource, Unsampled, WhatFollows};
use crate::sampler::states::LastSeen;
use crate::sampler::thread_state::Blocked;
use crate::sampler::unseen::Unseen;

/// The name of an artificial thread with the time of all threads that ended before they were examined.
const UNSEEN_THREADS: &str = "[unseen threads]";

/// The process's CPU clock is read in each tick if the process has fewer threads than `CLOCK_THREADS`. With more
/// threads it is read proportionally less often, and with more than `MANY_THREADS` four times less often again.
const CLOCK_THREADS: u64 = 64;
const MANY_THREADS: usize = 1024;

/// A stack that was found in a thread.
#[derive(Debug, Clone, Copy)]
pub(in crate::sampler) struct FoundStack<'a> {
    pub(in crate::sampler) trust: Trust,
    pub(in crate::sampler) locations: &'a [Location],
    pub(in crate::sampler) worked: &'a TraceContextReading,
    pub(in crate::sampler) at: Instant,
}

impl Active {
    /// Adds a sample of a thread that was found blocked when it was stopped, and has continued since. Returns a
    /// reference for [`Active::replace_stack`]; `None` if blocked threads are not sampled. The sample is counted later,
    /// by [`Active::observed`].
    pub(in crate::sampler) fn account_met_blocked(
        &mut self,
        index: usize,
        found: FoundStack<'_>,
    ) -> Option<BatchEntry> {
        if !self.wants_blocked() {
            return None;
        }
        let stack = self.batch.add_stack(found.trust, found.locations);
        let context = self.worked(found.worked, true);
        let sample = Sample { context, ..self.sample(index, stack, found.at, 0, true) };
        let sample = self.batch.add_sample(sample);
        let thread = &mut self.threads[index];
        thread.ledger.was_blocked(sample, found.at);
        thread.run = None;
        Some(self.batch.entry(sample))
    }

    /// Adds a sample of a running thread, taken for `period_nano` of running time. The time that it covers is
    /// determined when the batch is sent. Returns a reference for [`Active::replace_stack`]. The sample is counted
    /// later, by [`Active::observed`].
    pub(in crate::sampler) fn account_on_cpu(
        &mut self,
        index: usize,
        found: FoundStack<'_>,
        period_nano: u64,
    ) -> BatchEntry {
        let stack = self.batch.add_stack(found.trust, found.locations);
        let context = self.worked(found.worked, true);
        let sample = Sample { context, ..self.sample(index, stack, found.at, 0, false) };
        let sample = self.batch.add_sample(sample);
        let is_read = self.attached.contexts.is_read();
        let thread = &mut self.threads[index];
        if let Some(recording) = &mut thread.recording {
            if is_read {
                recording.worked.note(found.at, found.at, found.worked);
            }
            if !self.attached.interpreters.is_empty() {
                recording.frames.note(found.at, found.at, found.locations);
            }
        }
        thread.ledger.on_cpu(sample, found.at, period_nano);
        thread.run = None;
        thread.ran = true;
        self.batch.entry(sample)
    }

    /// Replaces the stack of a sample by a better one. Returns `false` if its batch was sent already.
    pub(in crate::sampler) fn replace_stack(
        &mut self,
        sample: BatchEntry,
        trust: Trust,
        locations: &[Location],
    ) -> bool {
        let Some(sample) = self.batch.present(Some(sample)) else { return false };
        let stack = self.batch.add_stack(trust, locations);
        self.batch.replace_stack(sample, stack);
        true
    }

    /// Accounts for a thread that is blocked with the stack in `ThreadState::blocked`: extends its last sample if that
    /// has the same stack, else adds a sample.
    pub(in crate::sampler) fn account_blocked(&mut self, index: usize, now: Instant) {
        let thread = &mut self.threads[index];
        if let Some(recording) = &mut thread.recording {
            let incomplete = thread.blocked.unwound.filter(|_| thread.blocked.trust != Trust::Complete);
            recording.incomplete_in = incomplete.map(|unwound| unwound.space_generation);
            let Blocked { trust, ref locations, named, ref worked, .. } = thread.blocked;
            let worked = self.attached.contexts.is_read().then(|| worked.clone());
            let found = || WaitStack::new(trust, locations, named, worked);
            let standing = thread.blocked.standing.clone().unwrap_or_else(found);
            thread.blocked.standing = Some(standing.clone());
            if self.threads[index].name.is_empty() {
                // Names are not left for the end of the batch: while the names of thousands of threads are read, the
                // rings would overflow.
                self.introduce(index);
            }
            return self.note_place(index, now, now, standing);
        }
        let trust = thread.blocked.trust;
        let worked = std::mem::take(&mut thread.blocked.worked);
        let run = self.batch.present(thread.run);
        let context = self.worked(&worked, run.is_none());
        let thread = &mut self.threads[index];
        thread.blocked.worked = worked;
        let sample = match run {
            Some(sample) => {
                self.batch.extend(sample);
                sample
            }
            None => {
                let stack = self.batch.present(thread.blocked.stack).unwrap_or_else(|| {
                    let stack = self.batch.add_stack(trust, &thread.blocked.locations);
                    thread.blocked.stack = Some(self.batch.entry(stack));
                    stack
                });
                let sample = Sample { context, ..self.sample(index, stack, now, 0, true) };
                self.batch.add_sample(sample)
            }
        };
        let thread = &mut self.threads[index];
        thread.run = Some(self.batch.entry(sample));
        let sched = thread.sched;
        thread.ledger.blocked(sample, now, sched);
        // Counts how often the stack was read; finding it unchanged does not count.
        let named = std::mem::take(&mut thread.blocked.named);
        self.observed(trust, &named);
    }

    /// Divides the time of all threads up to now among their samples. `next` says what follows.
    pub(in crate::sampler) fn settle_all(&mut self, now: Instant, next: WhatFollows) {
        self.apply_records();
        let mut running = 0;
        for index in 0..self.threads.len() {
            let task = self.attached.files.task();
            let thread = &mut self.threads[index];
            if thread.recording.is_some() {
                running += 1;
                self.settle_recorded(index, now, next);
                continue;
            }
            match thread.ledger.last_blocked() {
                // The thread has no sample since its time was last divided.
                Some(_) if thread.ledger.is_empty() => {}
                // The thread has not run since it was last examined, so the counters of that time still hold.
                Some((at, sched)) => self.settle(index, at, Some(sched), next, TimeSource::COUNTERS),
                None => match thread.files.schedstat(task) {
                    Ok(sched) => {
                        running += 1;
                        thread.sched = sched;
                        self.settle(index, now, Some(sched), next, TimeSource::COUNTERS);
                    }
                    Err(_) => self.settle_ended(index, now),
                },
            }
        }
        self.settle_pool(now, next);
        self.report_unseen(now, running, next);
    }

    /// Divides the time of a running thread up to now among its samples. Later samples do not cover any of it.
    pub(in crate::sampler) fn settle_up_to(&mut self, index: usize, now: Instant) {
        let thread = &mut self.threads[index];
        // Reading the counters of a thread that has ended fails. Its time is divided when the threads are listed again.
        if thread.recording.is_some() {
            self.settle_recorded(index, now, WhatFollows::Other);
        } else if let Ok(sched) = thread.files.schedstat(self.attached.files.task()) {
            thread.sched = sched;
            self.settle(index, now, Some(sched), WhatFollows::Other, TimeSource::COUNTERS);
        }
    }

    /// Divides the time of the threads that are no longer among these ids.
    pub(super) fn settle_gone(&mut self, ids: &[u32], now: Instant) {
        for index in 0..self.threads.len() {
            if ids.binary_search(&self.threads[index].id()).is_err() {
                self.settle_ended(index, now);
            }
        }
    }

    /// Divides the time of a thread that has ended.
    pub(in crate::sampler) fn settle_ended(&mut self, index: usize, now: Instant) {
        if self.threads[index].recording.is_some() {
            return self.settle_recorded(index, now, WhatFollows::Nothing);
        }
        self.settle(index, now, None, WhatFollows::Nothing, TimeSource::COUNTERS);
    }

    /// Starts counting running time: of the current threads by their own counters, and of all others by the difference
    /// to the process's CPU clock.
    pub(in crate::sampler) fn begin_counting(&mut self) {
        self.read_counters();
        self.unseen = Some(Unseen::default());
        self.note_clock();
        self.missing(false);
    }

    /// Reads the threads' counters between two ticks, if that is due.
    pub(in crate::sampler) fn count_between_ticks(&mut self, now: Instant) {
        if self.count_due.is_some_and(|due| now >= due) {
            self.count_due = Some(now + COUNTED);
            self.read_counters();
            self.note_clock();
        }
    }

    fn read_counters(&mut self) {
        for thread in &mut self.threads {
            if let Ok(sched) = thread.files.schedstat(self.attached.files.task()) {
                thread.sched = sched;
                thread.ledger.note_counters(sched);
            }
        }
    }

    /// Records the process's CPU time, which cannot be read after the process has ended. The kernel adds up all threads
    /// for it, so it is read less often if there are many threads.
    pub(in crate::sampler) fn note_clock(&mut self) {
        let seldom = if self.threads.len() > MANY_THREADS { 4 } else { 1 };
        let stride = 1 + seldom * self.threads.len() as u64 / CLOCK_THREADS;
        if self.attached.status.ticks.is_multiple_of(stride)
            && let Some(unseen) = &mut self.unseen
        {
            unseen.note(time::cpu_of(self.attached.files.pid()));
        }
    }

    /// Adds a sample for the processor time of threads that were never examined; at the end, for all time without a
    /// sample.
    fn report_unseen(&mut self, now: Instant, running: u64, next: WhatFollows) {
        let period = self.event_period();
        let is_significant = |missing| match next {
            WhatFollows::Nothing => Unseen::is_left(missing, running),
            WhatFollows::Same | WhatFollows::Other => Unseen::is_significant(missing, period, running),
        };
        if next == WhatFollows::Nothing && self.attached.files.alive() == Life::Same {
            self.note_clock();
        }
        let begins = std::mem::replace(&mut self.unseen_since, now);
        // The first estimate uses the last readings of the counters. Idle threads were not read for some ticks, so all
        // counters are read before a sample is added.
        if !is_significant(self.missing(false)) {
            return;
        }
        let missing = self.missing(true);
        if !is_significant(missing) {
            return;
        }
        self.count_accounted(missing);
        self.attached.status.not_sampled_nano += missing;
        let stack = self.batch.add_stack(Trust::Complete, &[Location::NOT_SAMPLED]);
        let thread = self.batch.add_thread(Thread { name: UNSEEN_THREADS.to_owned(), ..Thread::default() });
        let time_unix_nano = on_wall_clock(self.epoch, begins);
        let sample =
            Sample { thread, stack, time_unix_nano, weight_nano: missing, observations: 1, ..Sample::default() };
        self.batch.add_sample(sample);
    }

    /// The CPU time of the process that no thread accounts for, in nanoseconds. With `read`, the counters of all
    /// threads are read again; otherwise the last readings are used.
    fn missing(&mut self, read: bool) -> u64 {
        let mut known = 0;
        for thread in &mut self.threads {
            if read
                && thread.recording.is_none()
                && let Ok(sched) = thread.files.schedstat(self.attached.files.task())
            {
                thread.sched = sched;
            }
            if !thread.sched.kept() {
                // The kernel does not maintain such counters, or the thread was not examined yet, which will happen
                // soon.
                continue;
            }
            known += thread.ledger.unaccounted(thread.sched);
        }
        let is_kept = self.threads.iter().any(|thread| thread.sched.kept());
        self.unseen.as_mut().filter(|_| is_kept).map_or(0, |unseen| unseen.missing(known))
    }

    /// Counts running time that was accounted for, in nanoseconds.
    fn count_accounted(&mut self, nano: u64) {
        if let Some(unseen) = &mut self.unseen {
            unseen.account(nano);
        }
    }

    pub(super) fn settle(
        &mut self,
        index: usize,
        now: Instant,
        sched: Option<SchedStat>,
        next: WhatFollows,
        basis: TimeSource,
    ) {
        let hides = self.watch.hides_kernel();
        let thread = &mut self.threads[index];
        let kernel_nano = if hides { thread.take_skipped() } else { 0 };
        let rules = SettleRules {
            period_nano: self.event_period(),
            kernel_nano,
            duty_divisor: self.threads[index].duty_cycle.divisor(),
            cpu: self.attached.settings.mode == Mode::Cpu,
            pooled: self.is_pooled(),
            ready: self.threads[index].last_seen == LastSeen::Running,
            next,
            basis,
        };
        let settled = self.threads[index].ledger.settle(now, sched, rules);
        let is_sampled = self.are_switches_sampled();
        self.count_accounted(settled.ran_nano);
        let status = &mut self.attached.status;
        let all = settled
            .samples
            .iter()
            .map(|(_, stretch)| stretch)
            .chain(settled.without_samples.iter().map(|(_, stretch)| stretch));
        let all = all.map(|stretch| stretch.nano).sum::<u64>();
        match basis {
            TimeSource::Records { .. } => {
                status.recorded_nano += all;
                status.switches_sampled_nano += if is_sampled { all } else { 0 };
            }
            TimeSource::Counters { .. } if settled.ran_nano > 0 => status.counted_nano += all,
            // The thread was blocked all the time.
            TimeSource::Counters { .. } => {}
        }
        for &(sample, stretch) in &settled.samples {
            self.batch.weigh(sample, on_wall_clock(self.epoch, stretch.begins), stretch.nano);
        }
        if rules.pooled {
            self.pool.left.extend(settled.left);
        }
        for (rest, stretch) in settled.without_samples {
            if rules.pooled && rest == Unsampled::NotSampled {
                self.pool.not_sampled = self.pool.not_sampled.saturating_add(stretch.nano);
                continue;
            }
            let (location, blocked) = match rest {
                Unsampled::NotSampled => (Location::NOT_SAMPLED, false),
                Unsampled::InTheKernel => (Location::KERNEL_NOT_VISIBLE, false),
                Unsampled::WaitingForProcessor => (Location::WAITING_FOR_PROCESSOR, true),
                Unsampled::NotSeen => (Location::WAITING_NOT_SEEN, true),
            };
            let status = &mut self.attached.status;
            let kind = if blocked { &mut status.not_placed_nano } else { &mut status.not_sampled_nano };
            *kind += stretch.nano;
            let stack = self.batch.add_stack(Trust::Complete, &[location]);
            let sample = self.sample(index, stack, stretch.begins, stretch.nano, blocked);
            self.batch.add_sample(sample);
        }
        if !settled.samples.is_empty() {
            // The time up to the last sample has been divided, so a blocked thread needs a new sample.
            self.threads[index].run = None;
        }
    }

    /// Reads a thread's name and ids, unless they are known.
    fn introduce(&mut self, index: usize) -> ThreadKey {
        let Attached { interpreters, files, .. } = &mut self.attached;
        let thread = &mut self.threads[index];
        if thread.name.is_empty() {
            thread.read_name(&mut interpreters.lock(), files, self.slot);
        }
        thread.key(files, self.slot)
    }

    pub(super) fn sample(
        &mut self,
        index: usize,
        stack: u32,
        begins: Instant,
        weight_nano: u64,
        blocked: bool,
    ) -> Sample {
        let entry = match self.batch.present(self.threads[index].batch_entry) {
            Some(entry) => entry,
            None => {
                let ThreadKey { id: namespace_id, pointer } = self.introduce(index);
                let thread = &mut self.threads[index];
                let (id, name) = (thread.files.id, thread.name.clone());
                let entry = self.batch.add_thread(Thread { id, namespace_id, name, pointer });
                thread.batch_entry = Some(self.batch.entry(entry));
                entry
            }
        };
        Sample {
            thread: entry,
            stack,
            context: None,
            time_unix_nano: on_wall_clock(self.epoch, begins),
            weight_nano,
            observations: 1,
            blocked,
        }
    }

    /// Counts the trace context of a sample, and adds the context to the batch if the sample is `new` there. Returns
    /// the index of the context.
    pub(super) fn worked(&mut self, worked: &TraceContextReading, new: bool) -> Option<u32> {
        let TraceContextReading { context, torn, unproven } = worked;
        let status = &mut self.attached.status;
        status.contexts += u64::from(context.is_some());
        status.torn_contexts += u64::from(*torn);
        status.unproven_contexts += u64::from(*unproven);
        context.as_ref().filter(|_| new).map(|context| self.batch.add_context(context))
    }

    /// Counts a sample that was taken.
    pub(in crate::sampler) fn observed(&mut self, trust: Trust, named: &NamedFrames) {
        let status = &mut self.attached.status;
        status.count(trust, 1);
        status.interpreted += u64::from(named.any);
        status.unproven_frames += u64::from(named.merged.unproven);
        status.missing_callers += u64::from(named.merged.missing_callers > 0);
        status.unknown_functions += u64::from(named.merged.unknown);
        status.positioned_frames += named.positioned;
        status.unpositioned_frames += named.named;
        status.inlining_frames += named.inlined;
    }
}

/// Converts a moment to nanoseconds since the Unix epoch. `then` and `unix_nano` are the same moment on both clocks.
pub(super) fn on_wall_clock((then, unix_nano): (Instant, u64), at: Instant) -> u64 {
    let nano = |length: Duration| u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
    match at.checked_duration_since(then) {
        Some(after) => unix_nano.saturating_add(nano(after)),
        None => unix_nano.saturating_sub(nano(then.duration_since(at))),
    }
}
