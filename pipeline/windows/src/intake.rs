//! Adds the samples of a request to windows.

use std::collections::HashMap;

use profbridge_model::arena::{Full, TableSource, Transfer};
use profbridge_model::compact::split_values;
use profbridge_model::sample_log::{Carrier, LoggedResource, LoggedScope, SampleLayout};
use profbridge_model::{Attribute, AttributeId, AttributeSetId, Profiles, Sample, SampleIds};

use crate::key::WindowKey;
use crate::store::Store;
use crate::walk::ScopedProfile;

/// A cache of a request is cleared when it has more entries than this.
pub const MEMO: usize = 32_768;

/// How many pieces of samples are added between two checks of the dictionary's size. A check costs as much as adding a
/// piece.
const SIZE_CHECK_INTERVAL: u32 = 64;

/// Chooses resources and attributes for a window. Called within [`Intake::put`] by the calling thread.
pub trait Rewrite {
    /// The attributes of the resource with the number in [`KeyedPiece::resource`].
    fn attributes<'a>(&'a self, place: &ScopedProfile<'a>, resource: u32) -> Vec<&'a Attribute>;

    /// The attributes of a set that remain in samples.
    fn stays(&self, set: AttributeSetId) -> impl Iterator<Item = Option<AttributeId>>;
}

/// The timestamps and values of a sample that belong to one window.
#[derive(Debug)]
pub struct KeyedPiece<'a, K> {
    /// The sample, whose stack, attributes and link are used.
    pub sample: &'a Sample<'a>,
    /// The key of the window.
    pub key: &'a K,
    /// The number of the piece's resource, see [`Rewrite`].
    pub resource: u32,
    /// Whether the sample's attribute set must be reduced to the attributes that remain in samples.
    pub rewritten: bool,
    /// Whether the sample has timestamps, values or both.
    pub shape: SampleLayout,
    /// The timestamps, eight little-endian bytes each.
    pub timestamps: &'a [u8],
    /// The values, packed varints: as many as timestamps, or none.
    pub values: &'a [u8],
    /// Whether the piece continues an observation of another window. If so, it must not advance the group's latest
    /// time.
    pub continued: bool,
}

/// The window for the current profile, which many samples use.
#[derive(Debug, Clone)]
struct Cursor<K> {
    key: K,
    resource: u32,
    shape: SampleLayout,
    slot: u32,
    /// The window's order number. It shows whether the slot was reused.
    order: u64,
    /// Index of the window's arena in [`Intake::carried`].
    carried: usize,
    series: u32,
}

/// Caches for a request that is being added to windows.
#[derive(Debug)]
pub struct Intake<K> {
    carried: Vec<Carried>,
    /// The numbers of resources and of scopes in windows. The key includes the order number of the window.
    resources: HashMap<(u32, u64), u32>,
    scopes: HashMap<(u32, u32, u64), u32>,
    cursor: Option<Cursor<K>>,
    /// The number of pieces until the dictionary's size is checked.
    until_size_check: u32,
}

/// The elements that were copied into one arena.
#[derive(Debug)]
struct Carried {
    /// The arena's slot and its number, which shows whether the slot was reused.
    arena: u32,
    number: u64,
    transfer: Transfer,
    /// Attribute sets, reduced to the attributes that remain in samples.
    kept: HashMap<AttributeSetId, Option<AttributeSetId>>,
    resources: HashMap<u32, LoggedResource>,
    scopes: HashMap<(u32, u32), LoggedScope>,
}

impl Carried {
    fn new(arena: u32, number: u64, transfer: Transfer) -> Self {
        let (kept, resources, scopes) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self { arena, number, transfer, kept, resources, scopes }
    }

    fn entries(&self) -> usize {
        self.kept.len() + self.resources.len() + self.scopes.len()
    }

    /// Approximate heap size in bytes.
    fn bytes(&self) -> usize {
        self.transfer.bytes()
            + self.kept.capacity() * (size_of::<(AttributeSetId, Option<AttributeSetId>)>() + 1)
            + self.resources.capacity() * (size_of::<(u32, LoggedResource)>() + 1)
            + self.scopes.capacity() * (size_of::<((u32, u32), LoggedScope)>() + 1)
    }
}

impl<K> Default for Intake<K> {
    fn default() -> Self {
        Self {
            carried: Vec::new(),
            resources: HashMap::new(),
            scopes: HashMap::new(),
            cursor: None,
            until_size_check: SIZE_CHECK_INTERVAL,
        }
    }
}

impl<K: WindowKey> Intake<K> {
    /// Approximate heap size in bytes, without the request itself.
    pub fn bytes(&self) -> usize {
        self.carried.iter().map(Carried::bytes).sum::<usize>()
            + self.resources.capacity() * (size_of::<((u32, u64), u32)>() + 1)
            + self.scopes.capacity() * (size_of::<((u32, u32, u64), u32)>() + 1)
    }

    /// Number of cache entries.
    pub fn entries(&self) -> usize {
        self.carried.iter().map(Carried::entries).sum::<usize>() + self.resources.len() + self.scopes.len()
    }

    /// Clears the caches. The numbers of resources may change afterwards.
    pub fn forget(&mut self) {
        self.cursor = None;
        (self.resources, self.scopes) = (HashMap::new(), HashMap::new());
        for carried in &mut self.carried {
            (carried.kept, carried.resources, carried.scopes) = (HashMap::new(), HashMap::new(), HashMap::new());
        }
    }

    /// Starts a profile. The profile is added to each window that gets samples of it.
    pub fn begin_profile(&mut self) {
        self.cursor = None;
    }

    /// Continues a request after a pause.
    pub fn resume(&mut self, store: &Store<K>) {
        // Ids in arenas that were freed meanwhile are invalid.
        self.carried.retain(|carried| store.arenas.has(carried.arena, carried.number));
    }

    /// Finishes the request: frees the caches, and schedules windows for closing if their total size is too large.
    pub fn end(self, store: &mut Store<K>) {
        for carried in self.carried {
            store.give_back(carried.transfer);
        }
        store.end_request();
    }

    /// Updates the sizes of the arenas that this request used.
    pub fn settle(&self, store: &mut Store<K>) {
        for carried in &self.carried {
            store.arenas.settle(carried.arena);
        }
    }

    /// The key of the window that received the last piece with this resource and shape, if no other profile was started
    /// since.
    pub fn key_of_last(&self, resource: u32, shape: SampleLayout) -> Option<&K> {
        let cursor = self.cursor.as_ref()?;
        (cursor.resource == resource && cursor.shape == shape).then_some(&cursor.key)
    }

    /// Adds a piece of a sample to its window, or as many of its observations as fit, and closes the window if it is
    /// then full. Returns how many observations were added; call again for the rest.
    /// # Errors
    ///
    /// If the piece refers to data that is too large even for an empty arena.
    pub fn put(
        &mut self,
        store: &mut Store<K>,
        request: &Request<'_>,
        rewrite: &impl Rewrite,
        place: &ScopedProfile<'_>,
        piece: &KeyedPiece<'_, K>,
    ) -> Result<u64, Full> {
        // Retries once if the arena is full: the failed attempt closes the window, and the next one gets another arena.
        let mut tried = self.try_put(store, request, rewrite, place, piece);
        if tried.is_err() {
            let slot = store.find(piece.key, &request.profiles.peer, request.monotonic_nano);
            store.retire(slot);
            tried = self.try_put(store, request, rewrite, place, piece);
        }
        let (slot, observations) = tried?;
        store.settle(slot, observations);
        self.check_dictionary_size(store, slot);
        Ok(observations)
    }

    /// Checks the dictionary's size after every `SIZE_CHECK_INTERVAL` pieces.
    fn check_dictionary_size(&mut self, store: &mut Store<K>, slot: u32) {
        self.until_size_check -= 1;
        if self.until_size_check > 0 {
            return;
        }
        self.until_size_check = SIZE_CHECK_INTERVAL;
        self.settle(store);
        store.retire_if_large(slot);
    }

    /// Adds as much of a piece to its window as fits. Returns the window's slot and the number of observations.
    fn try_put(
        &mut self,
        store: &mut Store<K>,
        request: &Request<'_>,
        rewrite: &impl Rewrite,
        place: &ScopedProfile<'_>,
        piece: &KeyedPiece<'_, K>,
    ) -> Result<(u32, u64), Full> {
        let same = |at: &Cursor<K>| (&at.key, at.resource, at.shape) == (piece.key, piece.resource, piece.shape);
        let (slot, carried, series) = match &self.cursor {
            Some(at) if same(at) && store.is_open(at.slot, at.order) => (at.slot, at.carried, at.series),
            _ => self.enter(store, request, rewrite, place, piece)?,
        };
        let &KeyedPiece { mut timestamps, mut values, .. } = piece;
        if timestamps.len() > 8 {
            let room = usize::try_from(store.room(slot)).unwrap_or(usize::MAX).saturating_mul(8);
            if room < timestamps.len() {
                timestamps = &timestamps[..room];
                values = split_values(values, room / 8).0;
            }
        }
        let observations = (timestamps.len() as u64 / 8).max(1);
        let Some((window, shared)) = store.get_mut(slot) else { return Err(no_window()) };
        let arena = &mut shared.arena;
        let Carried { transfer, kept, .. } = &mut self.carried[carried];
        let ids = piece.sample.ids;
        let ids = match ids.attributes.filter(|_| piece.rewritten) {
            None => ids.transfer(transfer, &request.source, arena)?,
            Some(set) => {
                let others = SampleIds { attributes: None, ..ids }.transfer(transfer, &request.source, arena)?;
                let attributes = match kept.get(&set) {
                    Some(&known) => known,
                    None => {
                        let there = transfer.some_attributes(&request.source, arena, rewrite.stays(set))?;
                        kept.insert(set, there);
                        there
                    }
                };
                SampleIds { attributes, ..others }
            }
        };
        window.held.push(series, ids, timestamps, values);
        if let Some(&last) = timestamps.as_chunks::<8>().0.last()
            && !piece.continued
        {
            window.latest = window.latest.max(u64::from_le_bytes(last));
        }
        Ok((slot, observations))
    }

    /// Finds the window of a piece, and adds the piece's profile to it.
    fn enter(
        &mut self,
        store: &mut Store<K>,
        request: &Request<'_>,
        rewrite: &impl Rewrite,
        place: &ScopedProfile<'_>,
        piece: &KeyedPiece<'_, K>,
    ) -> Result<(u32, usize, u32), Full> {
        let slot = store.find(piece.key, &request.profiles.peer, request.monotonic_nano);
        let Some((window, shared)) = store.get_mut(slot) else { return Err(no_window()) };
        let (arena, number) = (window.arena, shared.number);
        let at = self.carried.iter().rposition(|carried| carried.number == number).unwrap_or_else(|| {
            self.carried.push(Carried::new(arena, number, store.transfer()));
            self.carried.len() - 1
        });
        let Some((window, shared)) = store.get_mut(slot) else { return Err(no_window()) };
        let Carried { transfer, resources, scopes, .. } = &mut self.carried[at];
        let mut carrier = Carrier { source: &request.source, transfer, arena: &mut shared.arena };
        let resource = match self.resources.get(&(piece.resource, window.order)) {
            Some(&known) => known,
            None => {
                let held = match resources.get(&piece.resource) {
                    Some(&held) => held,
                    None => {
                        let attributes = rewrite.attributes(place, piece.resource);
                        let held = carrier.resource(place.resource, attributes.into_iter())?;
                        *resources.entry(piece.resource).or_insert(held)
                    }
                };
                *self.resources.entry((piece.resource, window.order)).or_insert(window.held.resource(held))
            }
        };
        let scope_at = (place.resource_at, place.scope_at);
        let scope = match self.scopes.get(&(scope_at.0, scope_at.1, window.order)) {
            Some(&known) => known,
            None => {
                let held = match scopes.get(&scope_at) {
                    Some(&held) => held,
                    None => *scopes.entry(scope_at).or_insert(carrier.scope(place.scope)?),
                };
                *self.scopes.entry((scope_at.0, scope_at.1, window.order)).or_insert(window.held.scope(held))
            }
        };
        let series = carrier.series(place.profile, resource, scope, piece.shape)?;
        let series = window.held.series(series, piece.key.range_of(place.profile), place.profile.profile_id);
        let (key, resource, shape) = (piece.key.clone(), piece.resource, piece.shape);
        self.cursor = Some(Cursor { key, resource, shape, slot, order: window.order, carried: at, series });
        Ok((slot, at, series))
    }
}

/// The error if there is no window. This cannot happen: the store finds or opens a window for each key.
fn no_window() -> Full {
    Full { what: "windows", limit: 0 }
}

/// A request that is being added to windows.
#[derive(Debug)]
pub struct Request<'a> {
    profiles: &'a Profiles,
    source: TableSource<'a>,
    monotonic_nano: u64,
}

impl<'a> Request<'a> {
    /// Wraps a request that arrived at `monotonic_nano`, a time of the caller's monotonic clock in nanoseconds.
    pub fn new(profiles: &'a Profiles, monotonic_nano: u64) -> Self {
        Self { profiles, source: TableSource::from(&**profiles.dictionary()), monotonic_nano }
    }
}
