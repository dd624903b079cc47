//! Holds the requests of each sender for a while and lets them go on as one, with one dictionary.
//!
//! Each element of a request is looked up once, so merging costs what comes in, not what is there already. (The
//! Collector's merge compares each with all.)

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use profbridge_engine::component::{Now, Outbox};
use profbridge_model::arena::{Arena, Full, Source, Transfer, Work};
use profbridge_model::compact::split_values;
use profbridge_model::held::{Carrier, Shape};
use profbridge_model::{Held, Profile, Profiles, Reason, ResourceProfiles, Sample, ScopeProfiles};

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
        }
    }

    pub(crate) fn observations(&self) -> u64 {
        self.observations
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
        self.open.first_key_value().map(|(_, window)| window.due)
    }

    /// Holds a request.
    pub(crate) fn take(&mut self, profiles: &Profiles, now: Now, out: &mut Outbox) {
        self.transfer.begin();
        let source = Source::from(&**profiles.dictionary());
        let (resources, scopes) = (HashMap::new(), HashMap::new());
        let mut request = Request { profiles, source, now, resources, scopes, cursor: None };
        for resource in profiles.resources().iter().enumerate() {
            for scope in resource.1.scopes.iter().enumerate() {
                for profile in &scope.1.profiles {
                    request.cursor = None;
                    if !profile.original_payload.is_empty() {
                        out.note(crate::PAYLOAD_REMOVED, 1);
                    }
                    let place = Place { resource, scope, profile };
                    for sample in profiles.samples(profile) {
                        self.sample(&mut request, place, &sample, out);
                    }
                }
            }
        }
        self.settle(&profiles.peer);
        if self.bytes() > self.settings.max_bytes {
            self.shrink(self.settings.max_bytes / 4 * 3, out);
        }
    }

    /// Holds a sample, in pieces where it is larger than what a window still takes.
    fn sample(&mut self, request: &mut Request<'_>, place: Place<'_>, sample: &Sample<'_>, out: &mut Outbox) {
        let (mut timestamps, mut values) = (sample.timestamps_bytes(), sample.values_bytes());
        let shape = Shape::of(place.profile, timestamps, values);
        loop {
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
                Err(Full { .. }) => out.drop(Reason::LimitExceeded, observations),
            }
            if held + observations >= self.settings.max_observations {
                self.close_early(window, out);
            }
            if later.is_empty() {
                return;
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
        self.close(at, out);
    }

    fn close(&mut self, at: u64, out: &mut Outbox) {
        let Some(window) = self.open.remove(&at) else { return };
        self.peers.remove(&window.peer);
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
                Err(_) => out.drop(Reason::LimitExceeded, observations),
            }
        }
        if self.transfer.bytes() > SCRATCH {
            self.transfer = Transfer::default();
        }
        // What it remembers is of the closed window.
        self.transfer.begin();
    }

    /// Closes what is due.
    pub(crate) fn close_due(&mut self, now: Now, out: &mut Outbox) {
        while let Some((&at, window)) = self.open.first_key_value()
            && window.due <= now.monotonic_nano
        {
            self.close(at, out);
        }
    }

    /// Closes the largest windows until at most `target` bytes are held.
    pub(crate) fn shrink(&mut self, target: u64, out: &mut Outbox) {
        let mut largest: Vec<(u64, u64)> = self.open.iter().map(|(&at, window)| (window.counted, at)).collect();
        largest.sort_unstable_by_key(|&(bytes, at)| (std::cmp::Reverse(bytes), at));
        for (_, at) in largest {
            if self.bytes() <= target {
                break;
            }
            self.close_early(at, out);
        }
    }

    /// Closes everything, oldest first.
    pub(crate) fn close_all(&mut self, out: &mut Outbox) {
        while let Some((&at, _)) = self.open.first_key_value() {
            self.close(at, out);
        }
        self.peers = HashMap::new();
        self.transfer = Transfer::default();
    }
}

/// The range of a profile; empty where it does not say when it was.
fn range(profile: &Profile) -> std::ops::Range<u64> {
    match profile.time_unix_nano {
        0 => 0..0,
        start => start..start.saturating_add(profile.duration_nano),
    }
}
