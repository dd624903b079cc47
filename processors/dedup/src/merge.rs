//! Holds the requests of each sender for a while and lets them go on as one, with one dictionary.
//!
//! Each element of a request is looked up once, so merging costs what comes in, not what is there already. (The
//! Collector's merge compares each with all.)

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use profbridge_engine::component::{Now, Outbox};
use profbridge_model::arena::{Arena, Full, Source, Transfer, Work};
use profbridge_model::compact::split_values;
use profbridge_model::held::{Carrier, Shape};
use profbridge_model::{Held, Position, Profile, Profiles, Reason, ResourceProfiles, Sample, ScopeProfiles};

use crate::config::Settings;

type Peer = Option<Arc<str>>;

/// What one sender sent.
#[derive(Debug)]
struct Window {
    arena: Arena,
    held: Held,
    peer: Peer,
    due: u64,
    counted: u64,
}

/// The open windows.
#[derive(Debug)]
pub(crate) struct Merge {
    settings: Settings,
    /// In order of opening, which is the order in which they are due.
    open: BTreeMap<u64, Window>,
    peers: HashMap<Peer, u64>,
    opened: u64,
    observations: u64,
    bytes: u64,
    transfer: Transfer,
    work: Work,
    /// Closed windows that were not put out yet, in order.
    closed: VecDeque<Window>,
    /// The request that is being taken in.
    under_way: Option<Box<UnderWay>>,
    /// How many bytes may be held at the end of a relief that is under way.
    relief: Option<u64>,
}

/// A request that is being taken in.
#[derive(Debug)]
struct UnderWay {
    profiles: Profiles,
    now: Now,
    at: Position,
    /// Observations that are neither in a window nor lost yet.
    left: u64,
}

/// Where the samples of a profile go.
struct Cursor {
    window: u64,
    shape: Shape,
    series: u32,
}

/// A profile with what it stands in.
#[derive(Clone, Copy)]
struct Place<'a> {
    resource: (usize, &'a ResourceProfiles),
    scope: (usize, &'a ScopeProfiles),
    profile: &'a Profile,
}

/// One request, and what its resources and scopes are called in a window.
struct Request<'a> {
    profiles: &'a Profiles,
    source: Source<'a>,
    now: Now,
    resources: HashMap<(usize, u64), u32>,
    scopes: HashMap<(usize, usize, u64), u32>,
    cursor: Option<Cursor>,
    at: Position,
    /// Observations that were taken in or lost.
    done: u64,
}

/// Some timestamps and values of a sample.
#[derive(Clone, Copy)]
struct Piece<'a> {
    shape: Shape,
    timestamps: &'a [u8],
    values: &'a [u8],
}

/// More scratch memory than this is given back, in bytes.
const SCRATCH: usize = 1 << 20;

/// So many windows may be closed for a request before the first of them is put out.
const WAITING: usize = 4;

/// So many samples are taken in by one call.
const PIECE: usize = 8192;

impl Merge {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            open: BTreeMap::new(),
            peers: HashMap::new(),
            opened: 0,
            observations: 0,
            bytes: 0,
            transfer: Transfer::default(),
            work: Work::default(),
            closed: VecDeque::new(),
            under_way: None,
            relief: None,
        }
    }

    /// Makes the bounds small enough for the memory that all data of the process may take, in bytes: a window that is put
    /// out takes several times of what it held, beside everything else.
    pub(crate) fn fit_memory(&mut self, limit: u64) {
        self.settings.max_bytes = self.settings.max_bytes.min(limit / 4);
    }

    pub(crate) fn is_absorbing(&self) -> bool {
        self.under_way.is_some()
    }

    pub(crate) fn observations(&self) -> u64 {
        self.observations + self.under_way.as_ref().map_or(0, |work| work.left)
    }

    /// The memory of everything that is held, as allocated, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes + self.transfer.bytes() as u64
    }

    /// What the dictionaries of all windows that there are and were have done.
    pub(crate) fn work(&self) -> Work {
        self.open.values().fold(self.work, |sum, window| {
            let work = window.arena.work();
            Work { lookups: sum.lookups + work.lookups, comparisons: sum.comparisons + work.comparisons }
        })
    }

    /// When the next window is due.
    pub(crate) fn due(&self) -> Option<u64> {
        if self.is_absorbing() || !self.closed.is_empty() || self.relief.is_some() {
            return Some(0);
        }
        self.open.first_key_value().map(|(_, window)| window.due)
    }

    /// Holds a request, or the beginning of it.
    pub(crate) fn take(&mut self, profiles: Profiles, now: Now, out: &mut Outbox) {
        let (left, at) = (profiles.observations(), Position::default());
        self.under_way = Some(Box::new(UnderWay { profiles, now, at, left }));
        self.absorb(out);
    }

    /// Takes in as much of a request as fits into one call.
    fn absorb(&mut self, out: &mut Outbox) {
        let Some(mut work) = self.under_way.take() else { return };
        let profiles = work.profiles.clone();
        // What was carried may be of a window that is closed by now.
        self.transfer.begin();
        let source = Source::from(&**profiles.dictionary());
        let (resources, scopes) = (HashMap::new(), HashMap::new());
        let mut request = Request {
            profiles: &profiles,
            source,
            now: work.now,
            resources,
            scopes,
            cursor: None,
            at: work.at,
            done: 0,
        };
        let is_done = self.run(&mut request, out);
        (work.at, work.left) = (request.at, work.left - request.done);
        self.settle(&profiles.peer);
        if !is_done {
            self.under_way = Some(work);
            return;
        }
        if self.bytes() > self.settings.max_bytes {
            self.relief = Some(self.settings.max_bytes / 4 * 3);
        }
    }

    /// Takes in what is left of a request, until it is enough for one call. Returns whether that was all of it.
    fn run(&mut self, request: &mut Request<'_>, out: &mut Outbox) -> bool {
        let profiles = request.profiles;
        let may_wait = self.closed.len() + WAITING;
        let mut left = PIECE;
        while let Some(resource) = profiles.resources().get(request.at.resource) {
            while let Some(scope) = resource.scopes.get(request.at.scope) {
                while let Some(profile) = scope.profiles.get(request.at.profile) {
                    request.cursor = None;
                    let Position { resource: resource_at, scope: scope_at, .. } = request.at;
                    if !profile.original_payload.is_empty() && request.at.begins_profile() {
                        out.note(crate::PAYLOAD_REMOVED, 1);
                    }
                    let place = Place { resource: (resource_at, resource), scope: (scope_at, scope), profile };
                    let rows = profile.samples.clone();
                    while let Some(row) = rows.start.checked_add(request.at.sample).filter(|row| rows.contains(row)) {
                        let is_enough = left == 0 || self.closed.len() >= may_wait;
                        if is_enough || !self.sample(request, place, &profiles.sample(row), may_wait, out) {
                            return false;
                        }
                        left -= 1;
                        request.at = request.at.next_sample();
                    }
                    request.at = request.at.next_profile();
                }
                request.at = request.at.next_scope();
            }
            request.at = request.at.next_resource();
        }
        true
    }

    /// Holds what is left of a sample, in pieces where it is larger than what a window still takes. Returns whether that
    /// was all of it.
    fn sample(
        &mut self,
        request: &mut Request<'_>,
        place: Place<'_>,
        sample: &Sample<'_>,
        may_wait: usize,
        out: &mut Outbox,
    ) -> bool {
        let shape = Shape::of(place.profile, sample.timestamps_bytes(), sample.values_bytes());
        let (_, mut timestamps) = sample.timestamps_bytes().split_at(request.at.timestamps * 8);
        let (_, mut values) = sample.values_bytes().split_at(request.at.values);
        loop {
            if self.closed.len() >= may_wait {
                request.at.timestamps = (sample.timestamps_bytes().len() - timestamps.len()) / 8;
                request.at.values = sample.values_bytes().len() - values.len();
                return false;
            }
            let window = self.window(&request.profiles.peer, request.now);
            let held = self.open.get(&window).map_or(0, |window| window.held.observations());
            let room = usize::try_from(self.settings.max_observations - held).unwrap_or(usize::MAX);
            let (mine, later) = timestamps.split_at(timestamps.len().min(room.saturating_mul(8)));
            let (mine_values, later_values) = match (timestamps.is_empty(), values.is_empty()) {
                (false, false) => split_values(values, mine.len() / 8),
                _ => (values, &[][..]),
            };
            let observations = (mine.len() as u64 / 8).max(1);
            let piece = Piece { shape, timestamps: mine, values: mine_values };
            match self.put(request, place, sample, piece, window) {
                Ok(()) => self.observations += observations,
                // The window was not empty, or its arena would have room for anything: it is closed, and another one
                // tried.
                Err(Full { .. }) if held > 0 => {
                    self.close_early(window, out);
                    continue;
                }
                Err(Full { .. }) => out.drop_observations(Reason::LimitExceeded, observations),
            }
            request.done += observations;
            if held + observations >= self.settings.max_observations {
                self.close_early(window, out);
            }
            if later.is_empty() {
                return true;
            }
            (timestamps, values) = (later, later_values);
        }
    }

    fn put(
        &mut self,
        request: &mut Request<'_>,
        place: Place<'_>,
        sample: &Sample<'_>,
        piece: Piece<'_>,
        at: u64,
    ) -> Result<(), Full> {
        let Some(window) = self.open.get_mut(&at) else {
            return Err(Full { what: "windows", limit: 0 });
        };
        let (transfer, arena, held) = (&mut self.transfer, &mut window.arena, &mut window.held);
        let source = &request.source;
        let known = request.cursor.as_ref().filter(|cursor| cursor.window == at && cursor.shape == piece.shape);
        let series = match known {
            Some(cursor) => cursor.series,
            None => {
                let mut carrier = Carrier { source, transfer: &mut *transfer, arena: &mut *arena };
                let (resource_at, resource) = place.resource;
                let (scope_at, scope) = place.scope;
                let resource_id = match request.resources.get(&(resource_at, at)) {
                    Some(&known) => known,
                    None => held.resource(carrier.resource(resource, resource.resource.attributes.iter())?),
                };
                request.resources.insert((resource_at, at), resource_id);
                let scope_id = match request.scopes.get(&(resource_at, scope_at, at)) {
                    Some(&known) => known,
                    None => held.scope(carrier.scope(scope)?),
                };
                request.scopes.insert((resource_at, scope_at, at), scope_id);
                let series = carrier.series(place.profile, resource_id, scope_id, piece.shape)?;
                let series = held.series(series, range(place.profile), place.profile.profile_id);
                request.cursor = Some(Cursor { window: at, shape: piece.shape, series });
                series
            }
        };
        let stack = transfer.stack(source, arena, sample.stack)?;
        let attributes = transfer.attribute_set(source, arena, sample.attributes)?;
        let link = transfer.link(source, arena, sample.link)?;
        held.push(series, stack, attributes, link, piece.timestamps, piece.values);
        Ok(())
    }

    /// The open window of a sender, which is opened where there is none.
    fn window(&mut self, peer: &Peer, now: Now) -> u64 {
        if let Some(&at) = self.peers.get(peer) {
            return at;
        }
        let at = self.opened;
        self.opened += 1;
        let due = now.monotonic_nano.saturating_add(self.settings.window);
        // Ids of another window mean nothing here.
        self.transfer.begin();
        let window = Window { arena: Arena::default(), held: Held::new(), peer: peer.clone(), due, counted: 0 };
        self.open.insert(at, window);
        self.peers.insert(peer.clone(), at);
        at
    }

    /// Counts what the window of a sender has come to.
    fn settle(&mut self, peer: &Peer) {
        if let Some(at) = self.peers.get(peer)
            && let Some(window) = self.open.get_mut(at)
        {
            let bytes = size_of::<Window>() as u64 + window.arena.bytes() + window.held.bytes();
            self.bytes = self.bytes - window.counted + bytes;
            window.counted = bytes;
        }
    }

    fn close_early(&mut self, at: u64, out: &mut Outbox) {
        out.note(crate::CLOSED_EARLY, 1);
        self.close(at);
    }

    /// Closes a window. What it holds goes out in its turn.
    fn close(&mut self, at: u64) {
        let Some(mut window) = self.open.remove(&at) else { return };
        self.peers.remove(&window.peer);
        let bytes = size_of::<Window>() as u64 + window.arena.bytes() + window.held.bytes();
        self.bytes = self.bytes - window.counted + bytes;
        window.counted = bytes;
        self.closed.push_back(window);
        // What it remembers is of the closed window.
        self.transfer.begin();
    }

    /// Puts out the next closed window.
    fn put_out(&mut self, out: &mut Outbox) {
        let Some(window) = self.closed.pop_front() else { return };
        self.bytes -= window.counted;
        let observations = window.held.observations();
        self.observations -= observations;
        let work = window.arena.work();
        self.work.lookups += work.lookups;
        self.work.comparisons += work.comparisons;
        if observations > 0 {
            match window.held.put_out(&window.arena, &mut self.transfer) {
                Ok(mut batch) => {
                    batch.peer = window.peer;
                    out.send(batch);
                }
                Err(_) => out.drop_observations(Reason::LimitExceeded, observations),
            }
        }
        if self.transfer.bytes() > SCRATCH {
            self.transfer = Transfer::default();
        }
        self.transfer.begin();
    }

    /// Puts out a window that is closed, is to be closed for want of memory, or is due, and takes in more of the request
    /// that is being taken in.
    pub(crate) fn advance(&mut self, now: Now, out: &mut Outbox) {
        self.close_largest(out);
        if self.closed.is_empty()
            && let Some((&at, window)) = self.open.first_key_value()
            && window.due <= now.monotonic_nano
        {
            self.close(at);
        }
        self.put_out(out);
        self.absorb(out);
    }

    /// In a relief, closes the largest window if none is closed already, or ends the relief.
    fn close_largest(&mut self, out: &mut Outbox) {
        let Some(target) = self.relief.filter(|_| self.closed.is_empty()) else { return };
        let largest = self.open.iter().max_by_key(|&(&at, window)| (window.counted, std::cmp::Reverse(at)));
        match largest.map(|(&at, _)| at).filter(|_| self.bytes() > target) {
            Some(at) => self.close_early(at, out),
            None => self.relief = None,
        }
    }

    /// Puts out a window because memory is short, until half of what was held at the beginning is left. Returns whether
    /// there is more to put out.
    pub(crate) fn relieve(&mut self, out: &mut Outbox) -> bool {
        self.relief.get_or_insert(self.bytes.saturating_add(self.transfer.bytes() as u64) / 2);
        self.close_largest(out);
        self.put_out(out);
        self.relief.is_some()
    }

    /// Puts out a window because the pipeline ends, the oldest first. Returns whether there is more to do.
    pub(crate) fn flush(&mut self, now: Now, out: &mut Outbox) -> bool {
        if self.is_absorbing() {
            self.advance(now, out);
            return true;
        }
        self.relief = None;
        if self.closed.is_empty()
            && let Some((&at, _)) = self.open.first_key_value()
        {
            self.close(at);
        }
        self.put_out(out);
        let more = !self.open.is_empty() || !self.closed.is_empty();
        if !more {
            self.peers = HashMap::new();
            self.closed = VecDeque::new();
            self.transfer = Transfer::default();
        }
        more
    }
}

/// The range of a profile; empty where it does not say when it was.
fn range(profile: &Profile) -> std::ops::Range<u64> {
    match profile.time_unix_nano {
        0 => 0..0,
        start => start..start.saturating_add(profile.duration_nano),
    }
}
