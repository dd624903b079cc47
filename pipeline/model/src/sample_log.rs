//! Holds the observations of many batches until they go on as one.
//!
//! A [`SampleLog`] speaks in the ids of one [`Arena`](crate::Arena), which it usually shares with others. It merges
//! while it holds: profiles that say the same about their samples become one, and samples of equal identity (stack,
//! attributes and link, opentelemetry-proto `profiles.proto`, `Sample`) become one when it is put out, timestamps in
//! the order in which they came. Samples without timestamps stay what they are, for each is an observation of its own,
//! and the range of their profile is all that says when it was.

mod carry;
mod flush;
mod interned;
mod log;
#[cfg(test)]
mod tests;

pub use self::carry::Carrier;
use self::interned::Interned;
use self::log::{Head, Log};
use crate::buffer::ByteRange;
use crate::id::{AttributeSetId, LinkId, StackId, StringId};
use crate::profiles::Profile;

/// A resource in the words of an arena. Its attributes are a set of the arena's attribute table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct LoggedResource {
    /// The attributes.
    pub attributes: Option<AttributeSetId>,
    /// How many attributes the sender left out.
    pub dropped_attributes_count: u32,
    /// The schema.
    pub schema_url: Option<StringId>,
    /// `entity_refs`, each message as it stood on the wire behind its length as a varint: one blob of the arena.
    pub entity_refs: ByteRange,
}

/// A scope in the words of an arena. Its attributes are a set of the arena's attribute table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct LoggedScope {
    /// The name.
    pub name: Option<StringId>,
    /// The version.
    pub version: Option<StringId>,
    /// The attributes.
    pub attributes: Option<AttributeSetId>,
    /// How many attributes the sender left out.
    pub dropped_attributes_count: u32,
    /// The schema.
    pub schema_url: Option<StringId>,
}

/// How the samples of a profile say when and how much. All samples of a profile should do it alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Shape {
    /// Timestamps alone: each counts 1.
    Times,
    /// Timestamps, and a value for each.
    TimesAndValues,
    /// Values alone, somewhere in the range of the profile: such profiles are merged only where the range is equal.
    Values {
        /// `Profile.time_unix_nano`.
        time_unix_nano: u64,
        /// `Profile.duration_nano`.
        duration_nano: u64,
        /// `Profile.profile_id`.
        profile_id: Option<[u8; 16]>,
    },
}

impl Shape {
    /// The shape of a sample of a profile.
    pub fn of(profile: &Profile, timestamps: &[u8], values: &[u8]) -> Self {
        match (timestamps.is_empty(), values.is_empty()) {
            (false, true) => Self::Times,
            (false, false) => Self::TimesAndValues,
            (true, _) => Self::Values {
                time_unix_nano: profile.time_unix_nano,
                duration_nano: profile.duration_nano,
                profile_id: profile.profile_id,
            },
        }
    }
}

/// What profiles must have in common to be merged: everything but their time and id.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Series {
    /// The resource, as [`SampleLog::resource`] returned it.
    pub resource: u32,
    /// The scope, as [`SampleLog::scope`] returned it.
    pub scope: u32,
    /// The profile in the words of the arena, without time, id and samples.
    pub profile: Profile,
    /// How the samples say when and how much.
    pub shape: Shape,
}

/// What is kept beside a series and changes with each profile that joins it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Joined {
    start: u64,
    end: u64,
    /// The id that all profiles had which joined, `None` once two differ.
    profile_id: Option<[u8; 16]>,
    any: bool,
}

/// Observations, held. See the [module](self).
#[derive(Debug, Default)]
pub struct SampleLog {
    log: Log,
    resources: Interned<LoggedResource>,
    scopes: Interned<LoggedScope>,
    series: Interned<Series>,
    joined: Vec<Joined>,
    state: hashbrown::DefaultHashBuilder,
    observations: u64,
    /// The memory of everything but the log, in bytes.
    tables: usize,
}

impl SampleLog {
    /// A holder of nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// A resource that series can refer to.
    pub fn resource(&mut self, resource: LoggedResource) -> u32 {
        let at = self.resources.get_or_add(resource, &self.state);
        self.count_tables();
        at
    }

    /// A scope that series can refer to.
    pub fn scope(&mut self, scope: LoggedScope) -> u32 {
        let at = self.scopes.get_or_add(scope, &self.state);
        self.count_tables();
        at
    }

    /// A series that samples can be pushed to. The profile that joins it covers `range`, in nanoseconds since the Unix
    /// epoch; `0..0`, and a range that ends before it starts, is one that is not known.
    pub fn series(&mut self, series: Series, range: std::ops::Range<u64>, profile_id: Option<[u8; 16]>) -> u32 {
        let at = self.series.get_or_add(series, &self.state);
        if self.joined.len() <= at as usize {
            self.joined.reserve_exact(if self.joined.len() == self.joined.capacity() {
                1 + at as usize / 4
            } else {
                0
            });
            self.joined.push(Joined::default());
        }
        self.count_tables();
        let joined = &mut self.joined[at as usize];
        if range.start <= range.end && range.end > 0 {
            let known = joined.end > 0;
            joined.start = if known { joined.start.min(range.start) } else { range.start };
            joined.end = joined.end.max(range.end);
        }
        joined.profile_id =
            if joined.any { joined.profile_id.filter(|id| Some(*id) == profile_id) } else { profile_id };
        joined.any = true;
        at
    }

    /// Holds a sample: packed little-endian timestamps and packed varints, as many values as timestamps or none, or,
    /// without timestamps, values alone. A sample may be pushed in pieces.
    pub fn push(
        &mut self,
        series: u32,
        stack: Option<StackId>,
        attributes: Option<AttributeSetId>,
        link: Option<LinkId>,
        timestamps: &[u8],
        values: &[u8],
    ) {
        self.log.push(Head { series, stack, attributes, link }, timestamps, values);
        self.observations += (timestamps.len() as u64 / 8).max(1);
    }

    /// How many observations are held.
    pub fn observations(&self) -> u64 {
        self.observations
    }

    /// The memory that is allocated, in bytes, without the arena.
    pub fn bytes(&self) -> u64 {
        (size_of::<Self>() + self.log.allocated() + self.tables) as u64
    }

    /// Counted when it changes, since [`SampleLog::bytes`] is asked for with every sample.
    fn count_tables(&mut self) {
        self.tables = self.resources.allocated()
            + self.scopes.allocated()
            + self.series.allocated()
            + self.joined.capacity() * size_of::<Joined>();
    }
}
