//! Profiles of the releases up to 1.7, which may have several types of samples: each type becomes a profile.
//!
//! The first of them keeps the profile's id. Each further one has the first 16 bytes of a hash of that id and its
//! position among the types, so that ids are unique, and equal when the profile is sent again; a profile without an id
//! makes profiles without. What a profiler wrote itself (`original_payload`) stays with the first.

use profbridge_model::dictionary::Invalid;
use profbridge_model::profiles::RequestPart;
use profbridge_model::{Attribute, AttributeId, Profile, StringId, Value, ValueType};
use xxhash_rust::xxh3::xxh3_128;

use super::super::super::error::Result;
use super::super::super::reader::Reader;
use super::super::Decoder;
use super::super::profile::profile_id;
use super::attributes::not_delta;
use super::release::{Home, ProfileField, Release, each};
use super::sample::Rows;
use super::tables::Parts;
use super::v1_3::{CONTAINER, ContainerField};

/// A profile while it is read.
#[derive(Debug, Default)]
struct Draft {
    /// What all its types have in common.
    common: Profile,
    types: Vec<ValueType>,
    comments: Vec<Value>,
    attributes: Vec<Option<AttributeId>>,
    /// `drop_frames` and `keep_frames`, by the attributes that they are since.
    patterns: [Option<StringId>; 2],
    /// When it began and ended, as its container says.
    container: [u64; 2],
}

/// What `drop_frames` and `keep_frames` are since (semantic-conventions `model/pprof`).
const PATTERNS: [&str; 2] = ["pprof.profile.drop_frames", "pprof.profile.keep_frames"];

impl<'a> Decoder<'a> {
    /// Reads the `p`th profile of a scope and appends what it becomes.
    pub(in super::super) fn profiles_of_types(
        &mut self,
        release: &'static Release,
        reader: Reader<'a>,
        [r, s, p]: [usize; 3],
        profiles: &mut Vec<Profile>,
    ) -> Result<()> {
        let mut fault = None;
        let first = profiles.len();
        match release.home {
            Home::Container => {
                let mut draft = Draft::default();
                let pieces = self.container(reader, &mut draft, &mut fault)?;
                self.profile_of(release, &pieces, draft, &mut fault, profiles)
            }
            _ => self.profile_of(release, &[reader], Draft::default(), &mut fault, profiles),
        }?;
        if let Some(invalid) = fault {
            // It counts as the one that was sent.
            profiles.truncate(first + 1);
            let place = format!("resource_profiles[{r}].scope_profiles[{s}].profiles[{p}].{}", invalid.place);
            self.faults.push((RequestPart::Profile(r, s, first), Invalid { place, ..invalid }));
        }
        Ok(())
    }

    /// Reads a `ProfileContainer`, and returns the pieces of its profile.
    fn container(
        &mut self,
        reader: Reader<'a>,
        draft: &mut Draft,
        fault: &mut Option<Invalid>,
    ) -> Result<Vec<Reader<'a>>> {
        let mut pieces = Vec::new();
        each(reader, CONTAINER, |field, wire| {
            match field {
                ContainerField::Id => draft.common.profile_id = profile_id(wire.message()?.rest(), fault),
                ContainerField::Start => draft.container[0] = wire.fixed64()?,
                ContainerField::End => draft.container[1] = wire.fixed64()?,
                ContainerField::Attributes => self.own_attribute(wire.message()?, draft, fault)?,
                ContainerField::DroppedAttributes => draft.common.dropped_attributes_count = wire.number()? as u32,
                ContainerField::PayloadFormat => {
                    draft.common.original_payload_format = self.inline_string(wire.message()?.place())?;
                }
                ContainerField::Payload => draft.common.original_payload = wire.message()?.place(),
                ContainerField::Profile => {
                    self.budget.charge::<Reader<'_>>(1)?;
                    pieces.push(wire.message()?);
                }
            }
            Ok(())
        })?;
        Ok(pieces)
    }

    /// An attribute of a profile that stands in place.
    fn own_attribute(&mut self, reader: Reader<'a>, draft: &mut Draft, fault: &mut Option<Invalid>) -> Result<()> {
        let i = draft.attributes.len();
        let attribute = self.key_value(reader, 0).map_err(|fault| fault.within(format_args!("attributes[{i}]")))?;
        if let Some(invalid) = self.take_dangling(|| format!("attributes[{i}]")) {
            fault.get_or_insert(invalid);
        }
        let id = self.add_attribute(attribute)?;
        draft.attributes.push(id);
        Ok(())
    }

    /// Reads a profile that stands in these pieces, and appends one for each of its types.
    fn profile_of(
        &mut self,
        release: &'static Release,
        pieces: &[Reader<'a>],
        mut draft: Draft,
        fault: &mut Option<Invalid>,
        profiles: &mut Vec<Profile>,
    ) -> Result<()> {
        let own = release.home.is_profile();
        let mut parts = match own {
            true => self.tables_of(release, pieces)?,
            false => std::mem::take(&mut self.older.parts),
        };
        let mut rows = Rows::default();
        for &piece in pieces {
            self.profile_fields(release, piece, &mut draft, &mut rows, &mut parts, fault)?;
        }
        if release.home == Home::Container {
            self.times_of_container(&mut draft, fault);
            let times = [draft.common.time_unix_nano, draft.common.duration_nano];
            rows.unit_of_times(release, pieces, times, fault)?;
            let executable = self.main_executable(&parts);
            self.older.executables.push(executable);
        }
        let first = self.samples.len() as u32;
        self.rows_of(release, pieces, &mut rows, &mut parts, fault)?;
        // Those that stand in place have units like all others.
        if own {
            self.give_units(&parts, draft.attributes.iter().flatten().map(|id| id.index()));
        }
        draft.attributes.extend(self.comments(std::mem::take(&mut draft.comments))?.map(Some));
        for (key, pattern) in PATTERNS.into_iter().zip(draft.patterns) {
            if pattern.is_some() {
                let key = self.text(key)?;
                let id = self.add_attribute(Attribute { key, value: Value::String(pattern), unit: None })?;
                draft.attributes.push(id);
            }
        }
        draft.common.attributes = self.set_of(&draft.attributes)?;
        if draft.types.is_empty() {
            draft.types.push(ValueType::default());
        }
        debug_assert_eq!(self.samples.len() as u32, first);
        for (k, sample_type) in draft.types.iter().enumerate() {
            let start = self.samples.len() as u32;
            self.push_rows(&mut rows, [k, draft.types.len()], *sample_type, fault)?;
            let mut profile = Profile { sample_type: *sample_type, ..draft.common.clone() };
            profile.samples = start..self.samples.len() as u32;
            if k > 0 {
                profile.profile_id = draft.common.profile_id.and_then(|id| id_of_type(id, k));
                profile.original_payload_format = None;
                profile.original_payload = Default::default();
            }
            profiles.push(profile);
        }
        if let Some(invalid) = parts.invalid.take() {
            fault.get_or_insert(invalid);
        }
        if !own {
            self.older.parts = parts;
        }
        Ok(())
    }

    fn profile_fields(
        &mut self,
        release: &'static Release,
        piece: Reader<'a>,
        draft: &mut Draft,
        rows: &mut Rows,
        parts: &mut Parts,
        fault: &mut Option<Invalid>,
    ) -> Result<()> {
        each(piece, release.profile, |field, wire| {
            match field {
                ProfileField::SampleType => {
                    self.budget.charge::<ValueType>(1)?;
                    let place = "sample_type";
                    let read = self.type_of(wire.message()?, place, parts, Some(&mut *fault));
                    draft.types.push(read.map_err(|fault| fault.within(place))?);
                }
                // Samples are read once everything is known that they refer to.
                ProfileField::Sample => drop(wire.message()?),
                ProfileField::LocationIndices => {
                    wire.list(|index| self.add_location(index, rows, parts))?;
                }
                ProfileField::Time => draft.common.time_unix_nano = time(wire.number()?, "time_nanos", fault),
                ProfileField::Duration => draft.common.duration_nano = time(wire.number()?, "duration_nanos", fault),
                ProfileField::PeriodType => {
                    let read = self.type_of(wire.message()?, "period_type", parts, None);
                    draft.common.period_type = read.map_err(|fault| fault.within("period_type"))?;
                }
                ProfileField::Period => draft.common.period = wire.number()? as i64,
                ProfileField::Comment => wire.list(|index| {
                    self.budget.charge::<Value>(1)?;
                    let comment = self.string_at(index, parts, || "comment_strindices".to_owned());
                    draft.comments.push(Value::String(comment));
                    Ok(())
                })?,
                ProfileField::DefaultSampleType => {
                    let set = wire.number()? != 0;
                    self.older.leave_out("default_sample_type", u64::from(set));
                }
                ProfileField::DropFrames => {
                    draft.patterns[0] = self.string_at(wire.number()?, parts, || "drop_frames".to_owned());
                }
                ProfileField::KeepFrames => {
                    draft.patterns[1] = self.string_at(wire.number()?, parts, || "keep_frames".to_owned());
                }
                ProfileField::Id => draft.common.profile_id = profile_id(wire.message()?.rest(), fault),
                ProfileField::Attributes => self.own_attribute(wire.message()?, draft, fault)?,
                ProfileField::AttributeIndices => wire.list(|index| {
                    self.budget.charge::<Option<AttributeId>>(1)?;
                    draft.attributes.push(self.attribute_at(index, parts, || "attribute_indices".to_owned()));
                    Ok(())
                })?,
                ProfileField::DroppedAttributes => draft.common.dropped_attributes_count = wire.number()? as u32,
                ProfileField::PayloadFormat => {
                    draft.common.original_payload_format = self.inline_string(wire.message()?.place())?;
                }
                ProfileField::Payload => draft.common.original_payload = wire.message()?.place(),
            }
            Ok(())
        })
    }

    /// Reads a `ValueType`; where `fault` is given, its temporality has to be that of changes.
    fn type_of(
        &mut self,
        reader: Reader<'a>,
        place: &str,
        parts: &mut Parts,
        mut fault: Option<&mut Option<Invalid>>,
    ) -> Result<ValueType> {
        let mut value_type = ValueType::default();
        each(reader, &[(1, 1), (2, 2), (3, 3)], |field, wire| {
            let number = wire.number()?;
            match field {
                1 => value_type.kind = self.string_at(number, parts, || format!("{place}.type_strindex")),
                2 => value_type.unit = self.string_at(number, parts, || format!("{place}.unit_strindex")),
                _ if number > 1 => {
                    if let Some(fault) = &mut fault {
                        fault.get_or_insert(not_delta(number));
                    }
                }
                _ => {}
            }
            Ok(())
        })?;
        Ok(value_type)
    }

    /// Takes the times of a profile from its container, which has them before the profile itself.
    fn times_of_container(&mut self, draft: &mut Draft, fault: &mut Option<Invalid>) {
        let [start, end] = draft.container;
        if start == 0 {
            return;
        }
        draft.common.time_unix_nano = start;
        draft.common.duration_nano = end.saturating_sub(start);
        if end < start && end != 0 {
            let rule = format!("{end} is before start_time_unix_nano, {start}");
            fault.get_or_insert(Invalid { place: "end_time_unix_nano".to_owned(), rule });
        }
    }
}

/// A time of a release in which it was a signed integer.
fn time(number: u64, place: &str, fault: &mut Option<Invalid>) -> u64 {
    if number > i64::MAX as u64 {
        let rule = format!("{} ns is no time", number as i64);
        fault.get_or_insert(Invalid { place: place.to_owned(), rule });
    }
    number
}

/// The id of the profile that the `k`th type becomes.
fn id_of_type(id: [u8; 16], k: usize) -> Option<[u8; 16]> {
    let mut text = id.to_vec();
    text.extend_from_slice(b"sample_type");
    text.extend_from_slice(&(k as u64).to_le_bytes());
    Some(xxh3_128(&text).to_be_bytes()).filter(|id| *id != [0; 16])
}
