//! Computes from the kernel's switch records when a thread ran, waited for a processor and was blocked: a state machine
//! without a clock and without input or output.
//!
//! ```text
//!            switched out, preempted              switched in
//!  running --------------------------> preempted -------------> running
//!          \                                                   /
//!           +----------------------> blocked -----------------+
//!            switched out              switched in
//! ```
//!
//! A thread that a CPU quota throttles counts as preempted. The kernel writes no record when a thread is woken. So if
//! the counters (`schedstat`) show more waiting for a processor than the preempted waits, the rest of it was at the end
//! of blocked waits.
//!
//! Lost records are noticed in two ways: two records of the same kind follow each other, or the sums differ from the
//! counters. Then the records are not used for that time, and only the counters say how long the thread ran and waited.

mod condense;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

pub(super) use self::condense::{WaitObservation, condense};
use crate::probe::SchedStat;

/// The maximum number of unsettled records of a thread. If a thread is switched more often than that within a batch,
/// its time is settled by the kernel's counters.
const MOST_RECORDS: usize = 16 << 10;

/// The capacity for records that is kept after settling.
const KEPT_RECORDS: usize = 32;

/// By how much the sums of records may differ from the kernel's counters: a fixed amount plus a part of the sum. The
/// counters are read a moment later, and are up to a timer tick late while a thread runs.
const LATE: Duration = Duration::from_millis(20);
const LATE_SWITCHES: u64 = 8;
const LATE_PART: u64 = 16;

/// The maximum difference between the times of two events that report the same switch.
const SAME_SWITCH: Duration = Duration::from_micros(100);

/// A wait whose place is not known gets a place from waits of similar length: `REMEMBERED` places are kept for each
/// length, and the `SHARING` nearest in time are used in rotation, if they are within `MOST_APART_*`. A running thread
/// is preempted at ever new places, but a blocked thread returns to the same places.
const REMEMBERED: usize = 64;
const SHARING: usize = 8;
const MOST_APART_PREEMPTED: Duration = Duration::from_millis(200);
const MOST_APART_BLOCKED: Duration = Duration::from_secs(10);

/// Why a thread does not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Cause {
    /// Another thread got the processor, or the thread's CPU quota is used up.
    Preempted,
    /// The thread waits for something, mostly in a system call.
    Blocked,
}

/// The state of a thread after its latest record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Latest {
    /// The thread has no record yet.
    Unknown,
    Running,
    /// The thread has waited since this moment.
    Waiting {
        since: Instant,
        cause: Cause,
        /// Whether the place of the wait is known.
        placed: bool,
    },
    Ended,
}

/// A wait, or the part of it that lies in the settled time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wait<P> {
    pub(super) begins: Instant,
    pub(super) nano: u64,
    /// How long the thread waited for a processor after it was woken in this wait, in nanoseconds.
    pub(super) queued_nano: u64,
    pub(super) cause: Cause,
    /// Where the thread waits, if known.
    pub(super) place: Option<P>,
    /// Whether the place was taken from another, similar wait.
    pub(super) shared: bool,
    /// The total length of the wait so far, in nanoseconds.
    whole_nano: u64,
    /// Whether the wait is over.
    pub(super) ended: bool,
}

/// An event in the life of a thread.
#[derive(Debug, Clone)]
enum TimelineEvent<P> {
    In,
    Out(Cause, Option<P>),
    /// The place where the thread waits was read between the event's time and this moment.
    Stood(Instant, P),
    Started,
    Ended,
}

/// The state of a thread at the end of the settled time.
#[derive(Debug)]
enum SettledState<P> {
    Unknown,
    Running,
    Waiting(OpenWait<P>),
    Ended,
}

#[derive(Debug)]
struct OpenWait<P> {
    began: Instant,
    cause: Cause,
    place: Option<P>,
    /// A place that is valid if the thread is still waiting at this moment.
    proposed: Option<(Instant, P)>,
}

impl<P> OpenWait<P> {
    fn new(began: Instant, cause: Cause, place: Option<P>) -> Self {
        Self { began, cause, place, proposed: None }
    }

    /// Called when the thread waited at least until `at`: accepts the proposed place if it was read by then.
    fn until(&mut self, at: Instant) {
        if let Some((_, place)) = self.proposed.take_if(|(until, _)| *until <= at) {
            self.place = Some(place);
        }
    }
}

/// A thread's history during a span of time, according to its records.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RecordedTime<P> {
    /// Whether the records are complete. If not, some are known to be missing.
    pub(super) is_whole: bool,
    /// The waits in the order in which they began. The thread ran for the rest of its time.
    pub(super) waits: Vec<Wait<P>>,
    /// When the thread started, if that was within the span.
    pub(super) began: Option<Instant>,
    /// When the thread ended, if it has.
    pub(super) ended: Option<Instant>,
}

/// Sums since the last comparison with the kernel's counters.
#[derive(Debug, Clone, Copy, Default)]
struct RecordSums {
    /// Nanoseconds according to records: running, preempted, and blocked in waits that have ended.
    running: u64,
    preempted: u64,
    blocked: u64,
    switched_in: u64,
    /// Whether the records since then are complete.
    is_whole: bool,
}

/// The history of one thread: settled up to `since`; later records are pending. `P` is a place where a thread waits.
#[derive(Debug)]
pub(super) struct ThreadTimeline<P> {
    /// All time before this is settled.
    since: Instant,
    state: SettledState<P>,
    /// The time of the last settled record.
    last: Instant,
    events: Vec<(Instant, TimelineEvent<P>)>,
    /// Whether records were lost.
    lost: bool,
    latest: (Instant, Latest),
    /// Whether the thread was found ready to run before its first record.
    was_ready: bool,
    sums: RecordSums,
    /// The counters at the last comparison.
    counted: Option<SchedStat>,
    /// Preempted time that the kernel has not counted yet, in nanoseconds: it counts this when the thread gets a
    /// processor or is moved to another processor's queue.
    not_counted: u64,
    /// The share of blocked waits that was spent waiting for a processor.
    queued_part: f64,
    typical: Typical<P>,
}

impl<P: Clone> ThreadTimeline<P> {
    /// Creates a history that begins at this moment.
    pub(super) fn new(since: Instant) -> Self {
        Self {
            since,
            state: SettledState::Unknown,
            last: since,
            events: Vec::new(),
            lost: false,
            latest: (since, Latest::Unknown),
            was_ready: false,
            sums: RecordSums::default(),
            counted: None,
            not_counted: 0,
            queued_part: 0.0,
            typical: Typical::default(),
        }
    }

    /// The state after the latest record.
    pub(super) fn latest(&self) -> Latest {
        self.latest.1
    }

    /// Adds that the thread was given a processor.
    pub(super) fn switched_in(&mut self, at: Instant) {
        self.record(at, TimelineEvent::In, Latest::Running);
    }

    /// Adds that the thread left its processor, with the place if it is known.
    pub(super) fn switched_out(&mut self, at: Instant, cause: Cause, place: Option<P>) {
        let placed = place.is_some();
        self.record(at, TimelineEvent::Out(cause, place), Latest::Waiting { since: at, cause, placed });
    }

    /// Adds that the thread was started.
    pub(super) fn started(&mut self, at: Instant) {
        let latest = Latest::Waiting { since: at, cause: Cause::Preempted, placed: false };
        self.record(at, TimelineEvent::Started, latest);
    }

    /// Adds that the thread ended.
    pub(super) fn ended(&mut self, at: Instant) {
        self.record(at, TimelineEvent::Ended, Latest::Ended);
    }

    /// Adds the place that was read between these moments. It is used only if no record says that the thread ran
    /// meanwhile.
    pub(super) fn note_place(&mut self, from: Instant, until: Instant, place: P) {
        match &mut self.latest.1 {
            Latest::Waiting { placed, .. } => *placed = true,
            Latest::Unknown => {
                self.latest = (from, Latest::Waiting { since: from, cause: Cause::Blocked, placed: true });
            }
            Latest::Running | Latest::Ended => {}
        }
        self.events.push((from, TimelineEvent::Stood(until, place)));
    }

    /// Whether a pending record says that the thread was given a processor between these moments.
    pub(super) fn ran_between(&self, from: Instant, until: Instant) -> bool {
        let mut records = self.events.iter().rev();
        records.any(|(at, event)| matches!(event, TimelineEvent::In) && (from..=until).contains(at))
    }

    /// Since when the thread has run without leaving its processor, according to its records.
    pub(super) fn running_since(&self) -> Option<Instant> {
        (self.latest.1 == Latest::Running).then_some(self.latest.0)
    }

    /// Called when the thread was found ready to run. If it has no record yet and turns out not to run, it waits for a
    /// processor.
    pub(super) fn ready(&mut self) {
        self.was_ready |= self.latest.1 == Latest::Unknown;
    }

    /// Called when records were lost, possibly of this thread.
    pub(super) fn lost(&mut self) {
        self.lost = true;
    }

    fn record(&mut self, at: Instant, event: TimelineEvent<P>, latest: Latest) {
        if self.events.len() >= MOST_RECORDS {
            self.lost = true;
            self.events.clear();
        }
        self.events.push((at, event));
        if at >= self.latest.0 {
            self.latest = (at, latest);
        }
    }

    /// Settles the time up to `until`; all records before that have been added. `counters` are the kernel's counters at
    /// that moment, if they were read.
    pub(super) fn settle(&mut self, until: Instant, counters: Option<SchedStat>) -> RecordedTime<P> {
        let mut events = std::mem::take(&mut self.events);
        // Records of one thread come from the rings of several processors.
        events.sort_by_key(|(at, _)| *at);
        let settled = events.partition_point(|(at, _)| *at <= until);
        let mut is_whole = !std::mem::take(&mut self.lost);
        let (mut waits, mut began) = (Vec::new(), None);
        for (at, event) in events.drain(..settled) {
            if matches!(event, TimelineEvent::Started) {
                began = Some(at);
            }
            is_whole &= self.apply_event(at, event, &mut waits);
        }
        self.pass(until, false, &mut waits);
        self.since = self.since.max(until);
        // Some capacity is kept for the next records.
        events.shrink_to(KEPT_RECORDS);
        self.events = events;
        is_whole &= !matches!(self.state, SettledState::Unknown);
        self.sums.is_whole &= is_whole;
        if let Some(counters) = counters {
            is_whole &= self.compare(counters);
        }
        for wait in waits.iter_mut().filter(|wait| wait.cause == Cause::Blocked && wait.ended) {
            wait.queued_nano = part_of(wait.nano, self.queued_part);
        }
        self.typical.place(&mut waits);
        let ended = if matches!(self.state, SettledState::Ended) { Some(self.last) } else { None };
        RecordedTime { is_whole, waits, began, ended }
    }

    /// Applies an event. Returns whether it fits the previous state. The first event may be older than the beginning of
    /// the history: it shows the state at the beginning.
    fn apply_event(&mut self, at: Instant, event: TimelineEvent<P>, waits: &mut Vec<Wait<P>>) -> bool {
        if let TimelineEvent::Stood(until, place) = event {
            match &mut self.state {
                SettledState::Waiting(standing) => standing.proposed = Some((until, place)),
                SettledState::Unknown => {
                    let mut standing = OpenWait::new(self.since, Cause::Blocked, None);
                    standing.proposed = Some((until, place));
                    self.state = SettledState::Waiting(standing);
                }
                // The thread ran while its place was read.
                SettledState::Running | SettledState::Ended => {}
            }
            return true;
        }
        let is_repeated = match (&self.state, &event) {
            (SettledState::Waiting(_), TimelineEvent::Started) | (SettledState::Ended, TimelineEvent::Ended) => true,
            (SettledState::Running, TimelineEvent::In) => at.saturating_duration_since(self.last) <= SAME_SWITCH,
            _ => false,
        };
        if is_repeated {
            // While one perf event replaces another, both may report the same switch.
            return true;
        }
        if at < self.last && !matches!(self.state, SettledState::Unknown) {
            // The record arrives late: time after it is already settled.
            return false;
        }
        self.last = at;
        let is_in = matches!(event, TimelineEvent::In);
        let fits = match (&self.state, &event) {
            (SettledState::Unknown, _)
            | (SettledState::Running, TimelineEvent::Out(..) | TimelineEvent::Ended)
            | (SettledState::Waiting(_), TimelineEvent::In | TimelineEvent::Ended) => true,
            (SettledState::Running | SettledState::Waiting(_) | SettledState::Ended, _) => false,
        };
        if matches!(self.state, SettledState::Unknown) {
            // The first record shows what the thread did before it.
            match event {
                TimelineEvent::In => {
                    let cause = if self.was_ready { Cause::Preempted } else { Cause::Blocked };
                    self.state = SettledState::Waiting(OpenWait::new(self.since, cause, None));
                }
                TimelineEvent::Out(..) | TimelineEvent::Ended => self.state = SettledState::Running,
                TimelineEvent::Started | TimelineEvent::Stood(..) => {}
            }
        }
        self.pass(at, is_in, waits);
        self.state = match event {
            TimelineEvent::In => SettledState::Running,
            TimelineEvent::Out(cause, place) => SettledState::Waiting(OpenWait::new(at, cause, place)),
            TimelineEvent::Started => SettledState::Waiting(OpenWait::new(at, Cause::Preempted, None)),
            TimelineEvent::Ended | TimelineEvent::Stood(..) => SettledState::Ended,
        };
        self.sums.switched_in += u64::from(is_in);
        fits
    }

    /// Moves the end of the settled time to a moment; `ended` says that the current wait ends there.
    fn pass(&mut self, at: Instant, ended: bool, waits: &mut Vec<Wait<P>>) {
        let nano = between(self.since, at);
        match &mut self.state {
            SettledState::Running => self.sums.running += nano,
            SettledState::Waiting(standing) => {
                standing.until(at);
                let whole_nano = between(standing.began, at);
                match standing.cause {
                    Cause::Preempted => self.sums.preempted += nano,
                    Cause::Blocked if ended => self.sums.blocked += whole_nano,
                    Cause::Blocked => {}
                }
                if nano > 0 {
                    let (cause, place) = (standing.cause, standing.place.clone());
                    let begins = self.since;
                    waits.push(Wait { begins, nano, queued_nano: 0, cause, place, shared: false, whole_nano, ended });
                }
            }
            SettledState::Unknown | SettledState::Ended => {}
        }
        self.since = self.since.max(at);
    }

    /// Compares the sums with the kernel's counters, and updates the share of blocked waits in which the woken thread
    /// waited for a processor. Returns whether they agree, as far as that can be checked.
    fn compare(&mut self, counters: SchedStat) -> bool {
        let sums = std::mem::replace(&mut self.sums, RecordSums { is_whole: true, ..RecordSums::default() });
        let Some(before) = self.counted.replace(counters).filter(|_| sums.is_whole && counters.kept()) else {
            return true;
        };
        let ran = counters.run_nano.saturating_sub(before.run_nano);
        let waited = counters.wait_nano.saturating_sub(before.wait_nano);
        let slices = counters.timeslices.saturating_sub(before.timeslices);
        let not_counted = self.not_counted.saturating_add(sums.preempted);
        let queued = waited.saturating_sub(not_counted);
        let is_preempted = matches!(&self.state, SettledState::Waiting(standing) if standing.cause == Cause::Preempted);
        self.not_counted = not_counted.saturating_sub(waited);
        let missing = if is_preempted { 0 } else { std::mem::take(&mut self.not_counted) };
        let late = u64::try_from(LATE.as_nanos()).unwrap_or(u64::MAX);
        let agrees = sums.running.abs_diff(ran) <= late + ran / LATE_PART
            && sums.switched_in.abs_diff(slices) <= LATE_SWITCHES + slices / LATE_PART
            && missing <= late + waited / LATE_PART;
        if agrees {
            #[allow(clippy::cast_precision_loss, reason = "a share")]
            let part = queued as f64 / sums.blocked.max(1) as f64;
            self.queued_part = part.min(1.0);
        }
        agrees
    }
}

/// Known places of waits, by cause and length. The longer a wait is, the more likely its place is found out; but among
/// waits of similar length this is equally likely for all, so those with a known place represent the others.
#[derive(Debug)]
struct Typical<P> {
    /// Empty until a wait without a place is seen.
    classes: Vec<Class<P>>,
    is_wanted: bool,
}

/// The waits of one cause and one [`kind`] of length.
#[derive(Debug)]
struct Class<P> {
    cause: Cause,
    kind: u32,
    /// When each wait began, in ascending order, and its place.
    places: VecDeque<(Instant, P)>,
    /// Counts the places that were returned, so that they are used in rotation.
    turn: usize,
}

impl<P> Default for Typical<P> {
    fn default() -> Self {
        Self { classes: Vec::new(), is_wanted: false }
    }
}

impl<P: Clone> Typical<P> {
    /// Gives each wait without a place the place of a wait that was similar in cause, length and time. The candidates
    /// are used in rotation.
    fn place(&mut self, waits: &mut [Wait<P>]) {
        self.is_wanted |= waits.iter().any(|wait| wait.place.is_none());
        if !self.is_wanted {
            return;
        }
        for wait in waits.iter() {
            if let Some(place) = &wait.place {
                self.remember(wait, place);
            }
        }
        for wait in waits.iter_mut().filter(|wait| wait.place.is_none()) {
            self.classes.sort_by_key(|class| class.kind.abs_diff(kind(wait)));
            let mut of_cause = self.classes.iter_mut().filter(|class| class.cause == wait.cause);
            wait.place = of_cause.find_map(|class| class.next(wait.begins));
            wait.shared = wait.place.is_some();
        }
        for class in &mut self.classes {
            class.places.drain(..class.places.len().saturating_sub(REMEMBERED));
        }
    }

    fn remember(&mut self, wait: &Wait<P>, place: &P) {
        let (cause, kind, place) = (wait.cause, kind(wait), (wait.begins, place.clone()));
        let mut classes = self.classes.iter_mut();
        let Some(class) = classes.find(|class| class.cause == cause && class.kind == kind) else {
            return self.classes.push(Class { cause, kind, places: VecDeque::from([place]), turn: 0 });
        };
        class.places.push_back(place);
    }
}

impl<P: Clone> Class<P> {
    /// The next place, in rotation, among the waits around a moment.
    fn next(&mut self, at: Instant) -> Option<P> {
        let later = self.places.partition_point(|(began, _)| *began <= at);
        let sharing = SHARING.min(self.places.len());
        let first = later.saturating_sub(SHARING / 2).min(self.places.len() - sharing);
        self.turn = self.turn.wrapping_add(1);
        let (began, place) = self.places.get(first + self.turn % sharing.max(1))?;
        let apart = at.saturating_duration_since(*began).max(began.saturating_duration_since(at));
        let most = if self.cause == Cause::Preempted { MOST_APART_PREEMPTED } else { MOST_APART_BLOCKED };
        (apart <= most).then(|| place.clone())
    }
}

/// The class of a wait's length: the number of binary digits of its nanoseconds. It separates waits of microseconds,
/// for example when the sampler itself preempts a thread at some point of its code, from waits of milliseconds at the
/// ends of time slices.
fn kind<P>(wait: &Wait<P>) -> u32 {
    u64::BITS - wait.whole_nano.leading_zeros()
}

fn between(from: Instant, to: Instant) -> u64 {
    u64::try_from(to.saturating_duration_since(from).as_nanos()).unwrap_or(u64::MAX)
}

fn part_of(nano: u64, part: f64) -> u64 {
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of some seconds"
    )]
    let share = (nano as f64 * part) as u64;
    share.min(nano)
}

#[cfg(test)]
mod tests;
