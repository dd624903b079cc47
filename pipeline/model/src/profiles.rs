//! A batch of profiles: the contents of one OTLP request, in columns.
//!
//! The batch mirrors OTLP's `ExportProfilesServiceRequest` without loss (opentelemetry-proto `profiles.proto`, 1.10
//! layout): the same nesting and names, leaf-first stacks, nanoseconds. The samples of all profiles share columns.
//! A batch is immutable and cheap to clone; a change creates a new batch.

mod check;
mod link;
mod position;
mod retain;
mod samples;
mod size;

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::buffer::ByteRange;
use crate::dictionary::{Attribute, Dictionary, Invalid, Value};
use crate::id::{AttributeSetId, MapIds, StringId};
use crate::process::ProcessWindow;

pub use check::{Refusal, RequestPart, check_profile};
use check::{check_columns, check_own, check_resource, check_scope};
pub use link::Linker;
pub use position::Position;
pub use samples::{Sample, SampleIds, Samples};

/// The type and unit of a number: OTLP's `ValueType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct ValueType {
    /// The type, such as `samples`, `cpu` or `wall`.
    pub kind: Option<StringId>,
    /// The unit, such as `count` or `nanoseconds`.
    pub unit: Option<StringId>,
}

/// OTLP's `Resource`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Resource {
    /// The attributes.
    pub attributes: Vec<Attribute>,
    /// The number of attributes that the sender omitted.
    pub dropped_attributes_count: u32,
    /// `entity_refs`, each message as encoded on the wire.
    pub entity_refs: Vec<ByteRange>,
}

/// OTLP's `InstrumentationScope`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Scope {
    /// The name.
    pub name: Option<StringId>,
    /// The version.
    pub version: Option<StringId>,
    /// The attributes.
    pub attributes: Vec<Attribute>,
    /// The number of attributes that the sender omitted.
    pub dropped_attributes_count: u32,
}

/// OTLP's `ResourceProfiles`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ResourceProfiles {
    /// The resource.
    pub resource: Resource,
    /// The scopes.
    pub scopes: Vec<ScopeProfiles>,
    /// The schema of the resource.
    pub schema_url: Option<StringId>,
}

/// OTLP's `ScopeProfiles`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ScopeProfiles {
    /// The scope.
    pub scope: Scope,
    /// The profiles.
    pub profiles: Vec<Profile>,
    /// The schema of the scope and its profiles.
    pub schema_url: Option<StringId>,
}

/// OTLP's `Profile`, with its samples in the batch's columns.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash)]
pub struct Profile {
    /// The type and unit of the samples' values.
    pub sample_type: ValueType,
    /// The samples: rows of the batch's [`Samples`].
    pub samples: Range<u32>,
    /// The start, in nanoseconds since the Unix epoch; 0 if unknown.
    pub time_unix_nano: u64,
    /// The duration, in nanoseconds.
    pub duration_nano: u64,
    /// The type and unit of `period`.
    pub period_type: ValueType,
    /// The distance between two samples, in the unit of `period_type`.
    pub period: i64,
    /// The id; `None` if it is missing or all zero.
    pub profile_id: Option<[u8; 16]>,
    /// The number of attributes that the sender omitted.
    pub dropped_attributes_count: u32,
    /// The format of `original_payload`, such as `pprof`.
    pub original_payload_format: Option<StringId>,
    /// The original profile as written by the profiler, if the sender included it.
    pub original_payload: ByteRange,
    /// The attributes.
    pub attributes: Option<AttributeSetId>,
}

impl Profile {
    /// A copy with mapped ids, without samples, and without the original payload, which would no longer match.
    #[inline(always)]
    pub(crate) fn map_ids<M: MapIds>(&self, map: &mut M) -> Result<Self, M::Error> {
        let &Self {
            sample_type,
            samples: _,
            time_unix_nano,
            duration_nano,
            period_type,
            period,
            profile_id,
            dropped_attributes_count,
            original_payload_format: _,
            original_payload: _,
            attributes,
        } = self;
        let mut value_type = |ValueType { kind, unit }: ValueType, fields: [&str; 2]| {
            Ok(ValueType { kind: map.string(kind, fields[0])?, unit: map.string(unit, fields[1])? })
        };
        Ok(Self {
            sample_type: value_type(sample_type, ["sample_type.type_strindex", "sample_type.unit_strindex"])?,
            samples: 0..0,
            time_unix_nano,
            duration_nano,
            period_type: value_type(period_type, ["period_type.type_strindex", "period_type.unit_strindex"])?,
            period,
            profile_id,
            dropped_attributes_count,
            original_payload_format: None,
            original_payload: ByteRange::default(),
            attributes: map.attribute_set(attributes)?,
        })
    }
}

/// A batch of profiles. Cheap to clone, immutable.
#[derive(Debug, Clone)]
pub struct Profiles {
    pub(crate) dictionary: Arc<Dictionary>,
    resources: Arc<[ResourceProfiles]>,
    pub(crate) samples: Arc<Samples>,
    observations: u64,
    /// The sender: the address of the peer, or the name of a file. It distinguishes processes that cannot be
    /// identified.
    pub peer: Option<Arc<str>>,
    /// Whether the peer forwards data of several machines. Then profiles without a process identity may be of different
    /// processes even if all their attributes are equal, so they must not be merged.
    pub relayed: bool,
    /// The process and window for which this batch was cut; `None` before it was cut.
    pub window: Option<ProcessWindow>,
    /// The request from which the batch was decoded, as long as the batch still matches it; `None` for a rebuilt batch.
    pub received: Option<Bytes>,
}

impl Profiles {
    /// Validates the profiles against their dictionary, each index once, and creates a batch.
    ///
    /// # Errors
    ///
    /// The error names the first dangling reference or broken sample rule. A decoder that wants to refuse single
    /// profiles validates each with [`check_profile`] first.
    pub fn new(
        dictionary: Arc<Dictionary>,
        resources: Vec<ResourceProfiles>,
        samples: Samples,
    ) -> Result<Self, Invalid> {
        check_columns(&samples)?;
        for (r, resource) in resources.iter().enumerate() {
            let place = || format!("resource_profiles[{r}]");
            check_resource(&dictionary, resource, &place)?;
            for (s, scope) in resource.scopes.iter().enumerate() {
                for (p, profile) in scope.profiles.iter().enumerate() {
                    check_profile(&dictionary, profile, &samples, &|| {
                        format!("resource_profiles[{r}].scope_profiles[{s}].profiles[{p}]")
                    })?;
                }
            }
        }
        Ok(Self::checked(dictionary, resources.into(), Arc::new(samples)))
    }

    /// Validates like [`Profiles::new`], but removes invalid parts and reports them in order. For decoders, because one
    /// invalid profile is no reason to lose the others.
    ///
    /// `known` returns a problem already known about a resource, scope or profile; it is called for each one that is
    /// not part of a refused one. The rows of refused profiles stay in the columns, unreferenced.
    ///
    /// # Errors
    ///
    /// The columns differ in length, or a profile's rows lie outside of them.
    pub fn new_refusing(
        dictionary: Arc<Dictionary>,
        mut resources: Vec<ResourceProfiles>,
        samples: Samples,
        known: &mut dyn FnMut(RequestPart) -> Option<Invalid>,
    ) -> Result<(Self, Vec<Refusal>), Invalid> {
        check_columns(&samples)?;
        let mut refused = Vec::new();
        let mut r = 0;
        resources.retain_mut(|resource| {
            let place = || format!("resource_profiles[{r}]");
            let invalid = known(RequestPart::Resource(r)).or_else(|| check_own(&dictionary, resource, &place).err());
            if let Some(invalid) = invalid {
                let profiles = resource.scopes.iter().flat_map(|scope| &scope.profiles);
                refused.push(Refusal::of(invalid, profiles, &samples));
                r += 1;
                return false;
            }
            let mut s = 0;
            resource.scopes.retain_mut(|scope| {
                let place = || format!("resource_profiles[{r}].scope_profiles[{s}]");
                let invalid = known(RequestPart::Scope(r, s)).or_else(|| check_scope(&dictionary, scope, &place).err());
                if let Some(invalid) = invalid {
                    refused.push(Refusal::of(invalid, scope.profiles.iter(), &samples));
                    s += 1;
                    return false;
                }
                let mut p = 0;
                scope.profiles.retain(|profile| {
                    let place = || format!("resource_profiles[{r}].scope_profiles[{s}].profiles[{p}]");
                    let invalid = known(RequestPart::Profile(r, s, p))
                        .or_else(|| check_profile(&dictionary, profile, &samples, &place).err());
                    p += 1;
                    match invalid {
                        Some(invalid) => {
                            refused.push(Refusal::of(invalid, std::iter::once(profile), &samples));
                            false
                        }
                        None => true,
                    }
                });
                s += 1;
                true
            });
            r += 1;
            true
        });
        Ok((Self::checked(dictionary, resources.into(), Arc::new(samples)), refused))
    }

    /// A batch of some of these profiles that shares the dictionary and samples.
    ///
    /// # Errors
    ///
    /// As [`Profiles::new`].
    pub fn with_resources(&self, resources: Vec<ResourceProfiles>) -> Result<Self, Invalid> {
        for (r, resource) in resources.iter().enumerate() {
            let profiles = resource.scopes.iter().flat_map(|scope| &scope.profiles);
            for profile in profiles {
                if profile.samples.end as usize > self.samples.len() || profile.samples.start > profile.samples.end {
                    return Err(Invalid {
                        place: format!("resource_profiles[{r}]"),
                        rule: "samples lie outside of the batch".to_owned(),
                    });
                }
            }
        }
        let mut some = Self::checked(Arc::clone(&self.dictionary), resources.into(), Arc::clone(&self.samples));
        some.peer.clone_from(&self.peer);
        some.relayed = self.relayed;
        some.window.clone_from(&self.window);
        Ok(some)
    }

    /// A batch of the profiles that `map` returns; their samples must be those of the original profile. `map` gets the
    /// positions of the resource, of the scope in the resource, and of the profile in the scope. `None` if no profile
    /// is left.
    pub fn map_profiles(&self, map: impl FnMut([usize; 3], &Profile) -> Option<Profile>) -> Option<Self> {
        self.with_resources(self.map_resources(map)).ok().filter(|left| !left.resources.is_empty())
    }

    /// The resources and scopes that keep any of their profiles.
    pub(crate) fn map_resources(
        &self,
        mut map: impl FnMut([usize; 3], &Profile) -> Option<Profile>,
    ) -> Vec<ResourceProfiles> {
        let mut resources = Vec::new();
        for (r, resource) in self.resources.iter().enumerate() {
            let mut scopes = Vec::new();
            for (s, scope) in resource.scopes.iter().enumerate() {
                let profiles = scope.profiles.iter().enumerate();
                let profiles: Vec<_> = profiles.filter_map(|(p, profile)| map([r, s, p], profile)).collect();
                if !profiles.is_empty() {
                    scopes.push(ScopeProfiles { profiles, scope: scope.scope.clone(), schema_url: scope.schema_url });
                }
            }
            if !scopes.is_empty() {
                let (own, schema_url) = (resource.resource.clone(), resource.schema_url);
                resources.push(ResourceProfiles { resource: own, scopes, schema_url });
            }
        }
        resources
    }

    /// Creates a batch of validated parts. Debug builds validate again.
    pub(crate) fn from_checked(
        dictionary: Arc<Dictionary>,
        resources: Vec<ResourceProfiles>,
        samples: Samples,
    ) -> Self {
        debug_assert_eq!(Self::new(Arc::clone(&dictionary), resources.clone(), samples.clone()).err(), None);
        Self::checked(dictionary, resources.into(), Arc::new(samples))
    }

    fn checked(dictionary: Arc<Dictionary>, resources: Arc<[ResourceProfiles]>, samples: Arc<Samples>) -> Self {
        let mut batch = Self {
            dictionary,
            resources,
            samples,
            observations: 0,
            peer: None,
            relayed: false,
            window: None,
            received: None,
        };
        batch.observations = batch.profiles().map(|profile| batch.observations_of(profile)).sum();
        batch
    }

    /// The tables to which everything in this batch refers.
    #[inline]
    pub fn dictionary(&self) -> &Arc<Dictionary> {
        &self.dictionary
    }

    /// The resources and the profiles in them.
    pub fn resources(&self) -> &[ResourceProfiles] {
        &self.resources
    }

    /// Mutable access to the resources. They are copied first if they are shared.
    pub(crate) fn resources_mut(&mut self) -> &mut [ResourceProfiles] {
        Arc::make_mut(&mut self.resources)
    }

    /// All profiles, in order.
    pub fn profiles(&self) -> impl Iterator<Item = &Profile> + '_ {
        self.resources.iter().flat_map(|resource| &resource.scopes).flat_map(|scope| &scope.profiles)
    }

    /// The columns of all samples.
    pub fn columns(&self) -> &Samples {
        &self.samples
    }

    /// One sample by its row.
    #[inline]
    pub fn sample(&self, row: u32) -> Sample<'_> {
        self.samples.sample(row, &self.dictionary)
    }

    /// The samples of a profile of this batch.
    #[inline]
    pub fn samples<'a>(&'a self, profile: &Profile) -> impl ExactSizeIterator<Item = Sample<'a>> + Clone + 'a {
        profile.samples.clone().map(|row| self.sample(row))
    }

    /// The number of observations.
    pub fn observations(&self) -> u64 {
        self.observations
    }

    /// The number of observations in a profile of this batch.
    pub fn observations_of(&self, profile: &Profile) -> u64 {
        let rows = profile.samples.start as usize..profile.samples.end as usize;
        self.samples.timestamps[rows].iter().map(|span| u64::from(span.len / 8).max(1)).sum()
    }

    /// An attribute of a resource or scope by its key.
    pub fn find<'a>(&self, attributes: &'a [Attribute], key: &str) -> Option<&'a Value> {
        attributes.iter().find(|attribute| self.dictionary.string(attribute.key) == key).map(|found| &found.value)
    }
}
