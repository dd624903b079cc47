//! Puts the samples of a request into windows.

use std::collections::HashMap;

use profbridge_model::arena::{Full, Source, Transfer};
use profbridge_model::compact::split_values;
use profbridge_model::sample_log::{Carrier, LoggedResource, LoggedScope, Shape};
use profbridge_model::{Attribute, AttributeId, AttributeSetId, Profiles, Sample, SampleIds};

use crate::key::Key;
use crate::store::Store;
use crate::walk::ScopedProfile;

/// What was found about a request is forgotten when it is more than this, in entries: it is found again.
pub const MEMO: usize = 32_768;

/// So often the memory of the dictionary is looked at, in pieces of samples: it takes as long as putting one in.
const LOOK: u32 = 64;

/// What becomes of resources and attributes on the way into a window. Asked within [`Intake::put`] by the thread that
/// calls it.
pub trait Rewrite {
    /// The attributes of the resource that is numbered so in [`Piece::resource`].
    fn attributes<'a>(&'a self, place: &ScopedProfile<'a>, resource: u32) -> Vec<&'a Attribute>;

    /// The attributes that stay in a sample's set.
    fn stays(&self, set: AttributeSetId) -> impl Iterator<Item = Option<AttributeId>>;
}

/// Some timestamps and values of a sample, all of one window.
#[derive(Debug)]
pub struct Piece<'a, K> {
    /// The sample, for its stack, attributes and link.
    pub sample: &'a Sample<'a>,
    /// The window.
    pub key: &'a K,
    /// The number of its resource, see [`Rewrite`].
    pub resource: u32,
    /// Whether some attributes of the sample's set do not stay in it.
    pub rewritten: bool,
    /// How it says when and how much.
    pub shape: Shape,
    /// Eight little-endian bytes each.
    pub timestamps: &'a [u8],
    /// Packed varints, as many as timestamps, or none.
    pub values: &'a [u8],
    /// Whether it goes on with an observation of another window: it does not say how far its group has come.
    pub continued: bool,
}

/// Where the profile at hand goes: it is found once for many samples.
#[derive(Debug, Clone)]
struct Cursor<K> {
    key: K,
    resource: u32,
    shape: Shape,
    slot: u32,
    /// The window's order: another one may have got its slot.
    order: u64,
    /// The position of the window's arena in [`Intake::carried`].
    carried: usize,
    series: u32,
}

/// What was found about a request that is being put into windows.
#[derive(Debug)]
pub struct Intake<K> {
    carried: Vec<Carried>,
    /// The resources, and the scopes of resources, in the windows that they got to, by the windows' order.
    resources: HashMap<(u32, u64), u32>,
    scopes: HashMap<(u32, u32, u64), u32>,
    cursor: Option<Cursor<K>>,
    /// Pieces until the dictionary's memory is looked at.
    until_look: u32,
}

/// What was carried into one arena.
#[derive(Debug)]
struct Carried {
    /// The arena, and its number: another one may get its place.
    arena: u32,
    number: u64,
    transfer: Transfer,
    /// Attribute sets without what does not stay in them.
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

    /// Rough, in bytes.
    fn bytes(&self) -> usize {
        self.transfer.bytes()
            + self.kept.capacity() * (size_of::<(AttributeSetId, Option<AttributeSetId>)>() + 1)
            + self.resources.capacity() * (size_of::<(u32, LoggedResource)>() + 1)
            + self.scopes.capacity() * (size_of::<((u32, u32), LoggedScope)>() + 1)
    }
}

impl<K> Default for Intake<K> {
    fn default() -> Self {
        Self { carried: Vec::new(), resources: HashMap::new(), scopes: HashMap::new(), cursor: None, until_look: LOOK }
    }
}

impl<K: Key> Intake<K> {
    /// The memory that is taken besides the request itself. Rough, in bytes.
    pub fn bytes(&self) -> usize {
        self.carried.iter().map(Carried::bytes).sum::<usize>()
            + self.resources.capacity() * (size_of::<((u32, u64), u32)>() + 1)
            + self.scopes.capacity() * (size_of::<((u32, u32, u64), u32)>() + 1)
    }

    /// How many entries were found.
    pub fn entries(&self) -> usize {
        self.carried.iter().map(Carried::entries).sum::<usize>() + self.resources.len() + self.scopes.len()
    }

    /// Forgets what can be found again. The numbers of resources may change with it.
    pub fn forget(&mut self) {
        self.cursor = None;
        (self.resources, self.scopes) = (HashMap::new(), HashMap::new());
        for carried in &mut self.carried {
            (carried.kept, carried.resources, carried.scopes) = (HashMap::new(), HashMap::new(), HashMap::new());
        }
    }

    /// Begins a profile, which joins each window that it gets to.
    pub fn begin_profile(&mut self) {
        self.cursor = None;
    }

    /// Goes on with a request after a pause.
    pub fn resume(&mut self, store: &Store<K>) {
        // Arenas that went away meanwhile took their ids along.
        self.carried.retain(|carried| store.arenas.has(carried.arena, carried.number));
    }

    /// Gives back what the next request can use.
    pub(crate) fn give_back(self, store: &mut Store<K>) {
        for carried in self.carried {
            store.give_back(carried.transfer);
        }
    }

    /// Counts what the arenas have come to that this request got to.
    pub fn settle(&self, store: &mut Store<K>) {
        for carried in &self.carried {
            store.arenas.settle(carried.arena);
        }
    }

    /// The key of the window that the last piece of a resource and shape got to, if it still is that of the profile at
    /// hand.
    pub fn key_of_last(&self, resource: u32, shape: Shape) -> Option<&K> {
        let cursor = self.cursor.as_ref()?;
        (cursor.resource == resource && cursor.shape == shape).then_some(&cursor.key)
    }

    /// Puts a piece of a sample into its window, or as many of its observations as that still takes, and closes the
    /// window if it is full then. Returns how many observations were put in; the rest is put in by another call.
    ///
    /// # Errors
    ///
    /// What the piece refers to is too large even for an empty arena.
    pub fn put(
        &mut self,
        store: &mut Store<K>,
        request: &Request<'_>,
        rewrite: &impl Rewrite,
        place: &ScopedProfile<'_>,
        piece: &Piece<'_, K>,
    ) -> Result<u64, Full> {
        // A full arena closes the window, and another one is tried.
        let mut tried = self.try_put(store, request, rewrite, place, piece);
        if tried.is_err() {
            let slot = store.find(piece.key, &request.profiles.peer, request.monotonic_nano);
            store.retire(slot);
            tried = self.try_put(store, request, rewrite, place, piece);
        }
        let (slot, observations) = tried?;
        store.settle(slot, observations);
        self.look(store, slot);
        Ok(observations)
    }

    /// Looks once in a while at what the dictionary has come to.
    fn look(&mut self, store: &mut Store<K>, slot: u32) {
        self.until_look -= 1;
        if self.until_look > 0 {
            return;
        }
        self.until_look = LOOK;
        self.settle(store);
        store.retire_if_large(slot);
    }

    /// Puts what there is room for of a piece into its window. Returns the window's slot and how many observations
    /// these are.
    fn try_put(
        &mut self,
        store: &mut Store<K>,
        request: &Request<'_>,
        rewrite: &impl Rewrite,
        place: &ScopedProfile<'_>,
        piece: &Piece<'_, K>,
    ) -> Result<(u32, u64), Full> {
        let same = |at: &Cursor<K>| (&at.key, at.resource, at.shape) == (piece.key, piece.resource, piece.shape);
        let (slot, carried, series) = match &self.cursor {
            Some(at) if same(at) && store.is_open(at.slot, at.order) => (at.slot, at.carried, at.series),
            _ => self.enter(store, request, rewrite, place, piece)?,
        };
        let &Piece { mut timestamps, mut values, .. } = piece;
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
        let SampleIds { stack, attributes, link } = piece.sample.ids();
        let stack = transfer.stack(&request.source, arena, stack)?;
        let link = transfer.link(&request.source, arena, link)?;
        let attributes = match attributes.filter(|_| piece.rewritten) {
            None => transfer.attribute_set(&request.source, arena, attributes)?,
            Some(set) => match kept.get(&set) {
                Some(&known) => known,
                None => {
                    let there = transfer.some_attributes(&request.source, arena, rewrite.stays(set))?;
                    kept.insert(set, there);
                    there
                }
            },
        };
        window.held.push(series, stack, attributes, link, timestamps, values);
        if let Some(&last) = timestamps.as_chunks::<8>().0.last()
            && !piece.continued
        {
            window.latest = window.latest.max(u64::from_le_bytes(last));
        }
        Ok((slot, observations))
    }

    /// Finds the window of a piece, and what its profile is called there.
    fn enter(
        &mut self,
        store: &mut Store<K>,
        request: &Request<'_>,
        rewrite: &impl Rewrite,
        place: &ScopedProfile<'_>,
        piece: &Piece<'_, K>,
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

/// The store finds a window for each key: it does not happen.
fn no_window() -> Full {
    Full { what: "windows", limit: 0 }
}

/// A request on its way into windows.
#[derive(Debug)]
pub struct Request<'a> {
    profiles: &'a Profiles,
    source: Source<'a>,
    monotonic_nano: u64,
}

impl<'a> Request<'a> {
    /// A request that arrived at a time of the caller's steady clock, in nanoseconds.
    pub fn new(profiles: &'a Profiles, monotonic_nano: u64) -> Self {
        Self { profiles, source: Source::from(&**profiles.dictionary()), monotonic_nano }
    }
}
