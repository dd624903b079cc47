//! Interns the resources and scopes of held spans, each once however many batches contain them.
//!
//! A process sends the same resource in each request. To hold spans without their batches, resources and scopes are
//! stored here and the spans separately; [`Assembly`](super::Assembly) builds a batch from both again.
//!
//! Resources or scopes are equal if they are byte for byte equal, order included. Uses are counted, and unused entries
//! are removed. The hash is seeded at random because resources come from outside: with a known hash their sender could
//! put all of them into one bucket.

use std::borrow::Cow;
use std::hash::{BuildHasher, Hash};

use hashbrown::{DefaultHashBuilder, HashTable};

use super::{AddedAttribute, SpanResource, SpanScope, Spans};
use crate::ByteRange;

/// A stored scope together with its resource. In held spans its number is [`Span::scope`](super::Span::scope).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Origin(u32);

/// The stored resources and scopes. See the [module](self).
#[derive(Debug, Default)]
pub struct Origins {
    state: DefaultHashBuilder,
    resources: CountedValues<HeldResource>,
    scopes: CountedValues<HeldScope>,
    /// The bytes of the encoded resources and scopes.
    contents: usize,
}

#[derive(Debug)]
struct HeldResource {
    /// The fields of the `ResourceSpans`, one after the other.
    bytes: Box<[u8]>,
    added: Vec<AddedAttribute>,
}

#[derive(Debug)]
struct HeldScope {
    resource: u32,
    /// The fields of the `ScopeSpans`, one after the other.
    bytes: Box<[u8]>,
}

/// The resources and scopes of one batch that are already stored, so that each is looked up once. Its entries count as
/// used until [`Origins::end`].
#[derive(Debug, Default)]
pub struct OriginIntake {
    resources: Vec<Option<u32>>,
    scopes: Vec<Option<Origin>>,
}

impl Origin {
    /// The origin's number, stored in [`Span::scope`](super::Span::scope).
    pub const fn number(self) -> u32 {
        self.0
    }

    /// The origin from the scope number of a held span.
    pub const fn of(scope: u32) -> Self {
        Self(scope)
    }
}

impl OriginIntake {
    /// Memory use in bytes.
    pub fn bytes(&self) -> usize {
        self.resources.capacity() * size_of::<Option<u32>>() + self.scopes.capacity() * size_of::<Option<Origin>>()
    }
}

impl Origins {
    /// Counts one more span for the scope at this position of a batch, which is stored if it is new.
    pub fn hold(&mut self, intake: &mut OriginIntake, spans: &Spans, scope: u32) -> Origin {
        if intake.scopes.len() < spans.scopes().len() {
            intake.scopes.resize(spans.scopes().len(), None);
            intake.resources.resize(spans.resources().len(), None);
        }
        let at = scope as usize;
        let known = intake.scopes[at].unwrap_or_else(|| {
            let scope = &spans.scopes()[at];
            let of = scope.resource as usize;
            let resource = intake.resources[of].unwrap_or_else(|| self.resource(spans, &spans.resources()[of]));
            intake.resources[of] = Some(resource);
            self.scope(spans, scope, resource)
        });
        intake.scopes[at] = Some(known);
        self.scopes.add_use(known.0);
        known
    }

    /// Releases the entries of a finished batch.
    pub fn end(&mut self, intake: OriginIntake) {
        for scope in intake.scopes.into_iter().flatten() {
            self.release(scope);
        }
        for resource in intake.resources.into_iter().flatten() {
            self.release_resource(resource);
        }
    }

    /// Counts one span less.
    pub fn release(&mut self, origin: Origin) {
        if let Some(scope) = self.scopes.release(origin.0) {
            self.contents -= scope.bytes.len();
            self.release_resource(scope.resource);
        }
    }

    /// The number of the origin's resource. Equal resources have the same number while any of them is stored.
    pub fn resource_of(&self, origin: Origin) -> u32 {
        self.scopes.get(origin.0).map_or(u32::MAX, |scope| scope.resource)
    }

    /// A hash of a resource, which is the same when the resource arrives again.
    pub fn resource_hash(&self, resource: u32) -> u64 {
        self.resources.hash_of(resource)
    }

    /// A hash of the origin's scope and resource, which is the same when they arrive again.
    pub fn hash_of(&self, origin: Origin) -> u64 {
        self.scopes.hash_of(origin.0)
    }

    /// The encoded length of the resource in bytes.
    pub fn resource_len(&self, resource: u32) -> usize {
        self.resources.get(resource).map_or(0, HeldResource::len)
    }

    /// Memory use in bytes.
    pub fn bytes(&self) -> usize {
        self.contents + self.resources.bytes() + self.scopes.bytes()
    }

    /// Whether nothing is stored.
    pub fn is_empty(&self) -> bool {
        self.resources.is_empty()
    }

    /// The encoded scope, and the number of its resource. Empty if the scope is not stored.
    pub(super) fn scope_parts(&self, origin: Origin) -> (&[u8], u32) {
        self.scopes.get(origin.0).map_or((&[], u32::MAX), |scope| (&scope.bytes, scope.resource))
    }

    /// The encoded resource and its added attributes. Empty if the resource is not stored.
    pub(super) fn resource_parts(&self, resource: u32) -> (&[u8], &[AddedAttribute]) {
        self.resources.get(resource).map_or((&[], &[]), |held| (&held.bytes, &held.added))
    }

    fn resource(&mut self, spans: &Spans, resource: &SpanResource) -> u32 {
        let bytes = joined(spans, &resource.parts);
        let added = &resource.added;
        let hash = self.hash((&bytes, added));
        let equal = |held: &HeldResource| *held.bytes == *bytes && held.added == *added;
        let found = self.resources.find_or_add(hash, equal, || {
            let held = HeldResource { bytes: bytes.as_ref().into(), added: added.clone() };
            self.contents += held.len();
            held
        });
        self.resources.add_use(found);
        found
    }

    fn scope(&mut self, spans: &Spans, scope: &SpanScope, resource: u32) -> Origin {
        let bytes = joined(spans, &scope.parts);
        let hash = self.hash((&bytes, self.resource_hash(resource)));
        let equal = |held: &HeldScope| *held.bytes == *bytes && held.resource == resource;
        let mut is_new = false;
        let found = self.scopes.find_or_add(hash, equal, || {
            self.contents += bytes.len();
            is_new = true;
            HeldScope { bytes: bytes.as_ref().into(), resource }
        });
        if is_new {
            self.resources.add_use(resource);
        }
        self.scopes.add_use(found);
        Origin(found)
    }

    fn release_resource(&mut self, resource: u32) {
        if let Some(held) = self.resources.release(resource) {
            self.contents -= held.len();
        }
    }

    fn hash(&self, value: impl Hash) -> u64 {
        self.state.hash_one(value)
    }
}

impl HeldResource {
    fn len(&self) -> usize {
        self.bytes.len() + self.added.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>()
    }
}

/// Concatenates parts of a batch. The protobuf fields of a message may be moved without changing their meaning.
fn joined<'a>(spans: &'a Spans, parts: &[ByteRange]) -> Cow<'a, [u8]> {
    match parts {
        [part] => Cow::Borrowed(spans.get(*part)),
        parts => Cow::Owned(parts.iter().flat_map(|part| spans.get(*part)).copied().collect()),
    }
}

/// Distinct values with their use counts.
#[derive(Debug)]
struct CountedValues<T> {
    slots: Vec<Option<CountedValue<T>>>,
    free: Vec<u32>,
    by_hash: HashTable<u32>,
}

#[derive(Debug)]
struct CountedValue<T> {
    value: T,
    hash: u64,
    uses: u64,
}

impl<T> Default for CountedValues<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), by_hash: HashTable::new() }
    }
}

impl<T> CountedValues<T> {
    fn is_empty(&self) -> bool {
        self.by_hash.is_empty()
    }

    /// The number of an equal value, or of a new one. The use count does not change, so that of a new value is zero.
    fn find_or_add(&mut self, hash: u64, equal: impl Fn(&T) -> bool, make: impl FnOnce() -> T) -> u32 {
        let slot = |at: u32| self.slots.get(at as usize).and_then(Option::as_ref);
        let is_equal = |at: &u32| slot(*at).is_some_and(|slot| slot.hash == hash && equal(&slot.value));
        if let Some(found) = self.by_hash.find(hash, is_equal) {
            return *found;
        }
        let slot = Some(CountedValue { value: make(), hash, uses: 0 });
        let at = match self.free.pop() {
            Some(at) => {
                self.slots[at as usize] = slot;
                at
            }
            None => {
                self.slots.push(slot);
                // Each value takes tens of bytes, so memory is used up before 2^32 of them.
                (self.slots.len() - 1) as u32
            }
        };
        let slots = &self.slots;
        self.by_hash.insert_unique(hash, at, |at| slots[*at as usize].as_ref().map_or(0, |slot| slot.hash));
        at
    }

    fn get(&self, at: u32) -> Option<&T> {
        Some(&self.slots.get(at as usize)?.as_ref()?.value)
    }

    fn hash_of(&self, at: u32) -> u64 {
        self.slots.get(at as usize).and_then(Option::as_ref).map_or(0, |slot| slot.hash)
    }

    fn add_use(&mut self, at: u32) {
        if let Some(Some(slot)) = self.slots.get_mut(at as usize) {
            slot.uses += 1;
        }
    }

    /// Removes one use. Returns the value if that was the last use.
    fn release(&mut self, at: u32) -> Option<T> {
        let place = self.slots.get_mut(at as usize)?;
        let slot = place.as_mut()?;
        slot.uses = slot.uses.saturating_sub(1);
        if slot.uses > 0 {
            return None;
        }
        if let Ok(entry) = self.by_hash.find_entry(slot.hash, |other| *other == at) {
            entry.remove();
        }
        let slot = place.take()?;
        self.free.push(at);
        if self.by_hash.is_empty() {
            // Releases the memory that a burst took.
            *self = Self::default();
        }
        Some(slot.value)
    }

    /// Memory use without the contents of the values, in bytes.
    fn bytes(&self) -> usize {
        // At least 7 of 16 slots of a table are in use. The table's own capacity is not used here: whether removed
        // entries still occupy slots depends on the hashes, so it differs from run to run.
        let table = self.slots.len() * (size_of::<u32>() + 1) * 16 / 7;
        self.slots.capacity() * size_of::<Option<CountedValue<T>>>() + self.free.capacity() * size_of::<u32>() + table
    }
}
