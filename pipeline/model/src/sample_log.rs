//! Holds the observations of many batches until they are sent as one.
//!
//! A [`SampleLog`] uses the ids of one [`Arena`](crate::Arena), usually shared with other logs. Profiles whose samples
//! have the same types and attributes are merged on arrival; samples of equal identity (stack, attributes and link,
//! opentelemetry-proto `profiles.proto`, `Sample`) are merged on output, with timestamps in order of arrival. Samples
//! without timestamps are not merged, because each is a separate observation, and only the range of its profile shows
//! its time.

mod carry;
mod flush;
mod interned;
mod log;
#[cfg(test)]
mod tests;

pub use self::carry::Carrier;
use self::interned::DistinctValues;
use self::log::{RecordHead, RecordLog};
use crate::buffer::ByteRange;
use crate::id::{AttributeSetId, StringId};
use crate::profiles::{Profile, SampleIds};

/// A resource in ids of an arena. Its attributes are a set of the arena's attribute table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct LoggedResource {
    /// The attributes.
    pub attributes: Option<AttributeSetId>,
    /// The number of attributes that the sender omitted.
    pub dropped_attributes_count: u32,
    /// The schema.
    pub schema_url: Option<StringId>,
    /// `entity_refs`: each message as encoded on the wire, preceded by its length as a varint; one blob of the arena.
    pub entity_refs: ByteRange,
}

/// A scope in ids of an arena. Its attributes are a set of the arena's attribute table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct LoggedScope {
    /// The name.
    pub name: Option<StringId>,
    /// The version.
    pub version: Option<StringId>,
    /// The attributes.
    pub attributes: Option<AttributeSetId>,
    /// The number of attributes that the sender omitted.
    pub dropped_attributes_count: u32,
    /// The schema.
    pub schema_url: Option<StringId>,
}

/// Whether the samples of a profile have timestamps, values or both. All samples of a profile should have the same
/// shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SampleLayout {
    /// Only timestamps: each counts 1.
    Times,
    /// Timestamps, with a value for each.
    TimesAndValues,
    /// Only values, at unknown times in the profile's range: such profiles are merged only if their ranges are equal.
    Values {
        /// `Profile.time_unix_nano`.
        time_unix_nano: u64,
        /// `Profile.duration_nano`.
        duration_nano: u64,
        /// `Profile.profile_id`.
        profile_id: Option<[u8; 16]>,
    },
}

impl SampleLayout {
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

/// The common properties of profiles that can be merged: everything except their time and id.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Series {
    /// The resource, as [`SampleLog::resource`] returned it.
    pub resource: u32,
    /// The scope, as [`SampleLog::scope`] returned it.
    pub scope: u32,
    /// The profile in ids of the arena, without time, id and samples.
    pub profile: Profile,
    /// The shape of the samples.
    pub shape: SampleLayout,
}

/// The state of a series that changes with each profile that joins it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Joined {
    start: u64,
    end: u64,
    /// The common id of all joined profiles; `None` if two differ.
    profile_id: Option<[u8; 16]>,
    any: bool,
}

/// The held observations. See the [module](self).
#[derive(Debug, Default)]
pub struct SampleLog {
    log: RecordLog,
    resources: DistinctValues<LoggedResource>,
    scopes: DistinctValues<LoggedScope>,
    series: DistinctValues<Series>,
    joined: Vec<Joined>,
    state: hashbrown::DefaultHashBuilder,
    observations: u64,
    /// The memory of all fields except the log, in bytes.
    tables: usize,
}

impl SampleLog {
    /// Creates an empty log.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a resource that series can refer to.
    pub fn resource(&mut self, resource: LoggedResource) -> u32 {
        let at = self.resources.get_or_add(resource, &self.state);
        self.count_tables();
        at
    }

    /// Adds a scope that series can refer to.
    pub fn scope(&mut self, scope: LoggedScope) -> u32 {
        let at = self.scopes.get_or_add(scope, &self.state);
        self.count_tables();
        at
    }

    /// Adds a series for samples. The profile that joins it covers `range`, in nanoseconds since the Unix epoch;
    /// `0..0`, or a range that ends before it starts, means unknown.
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

    /// Adds a sample: packed little-endian timestamps and packed varints. A sample with timestamps has as many values
    /// or none; one without timestamps has only values. A sample may be pushed in pieces.
    pub fn push(&mut self, series: u32, ids: SampleIds, timestamps: &[u8], values: &[u8]) {
        self.log.push(RecordHead { series, ids }, timestamps, values);
        self.observations += (timestamps.len() as u64 / 8).max(1);
    }

    /// The number of held observations.
    pub fn observations(&self) -> u64 {
        self.observations
    }

    /// Allocated memory in bytes, without the arena.
    pub fn bytes(&self) -> u64 {
        (size_of::<Self>() + self.log.allocated() + self.tables) as u64
    }

    /// Recounts when the tables change, since [`SampleLog::bytes`] is called for every sample.
    fn count_tables(&mut self) {
        self.tables = self.resources.allocated()
            + self.scopes.allocated()
            + self.series.allocated()
            + self.joined.capacity() * size_of::<Joined>();
    }
}
