//! Validates profiles, each once. A part that breaks a rule can be refused without the others.

use super::{Profile, Resource, ResourceProfiles, Samples, Scope, ScopeProfiles};
use crate::buffer::ByteRange;
use crate::dictionary::{Dictionary, IdCheck, Invalid, check_attribute, check_index};
use crate::id::StringId;
use crate::varint;

/// A part of a request that can be refused without the others. The numbers are positions in the request's lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestPart {
    /// `resource_profiles[0]`, with all its profiles.
    Resource(usize),
    /// `resource_profiles[0].scope_profiles[1]`, with all its profiles.
    Scope(usize, usize),
    /// `resource_profiles[0].scope_profiles[1].profiles[2]`.
    Profile(usize, usize, usize),
}

/// A part of a request that was refused, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The place and the broken rule.
    pub invalid: Invalid,
    /// The number of profiles that were refused with the part.
    pub profiles: u64,
    /// The number of observations that were refused with the part.
    pub observations: u64,
}

impl Refusal {
    pub(super) fn of<'a>(invalid: Invalid, refused: impl Iterator<Item = &'a Profile>, samples: &Samples) -> Self {
        let (mut profiles, mut observations) = (0, 0);
        for profile in refused {
            profiles += 1;
            let rows = samples.timestamps.get(profile.samples.start as usize..profile.samples.end as usize);
            observations += rows.unwrap_or_default().iter().map(|span| u64::from(span.len / 8).max(1)).sum::<u64>();
        }
        Self { invalid, profiles, observations }
    }
}

pub(super) fn check_columns(samples: &Samples) -> Result<(), Invalid> {
    match samples.has_equal_columns() {
        true => Ok(()),
        false => Err(Invalid { place: "samples".to_owned(), rule: "columns differ in length".to_owned() }),
    }
}

/// Checks the references of a resource and its scopes.
///
/// # Errors
///
/// The error names the first dangling reference.
pub(super) fn check_resource(
    dictionary: &Dictionary,
    resource: &ResourceProfiles,
    place: &dyn Fn() -> String,
) -> Result<(), Invalid> {
    check_own(dictionary, resource, place)?;
    for (s, scope) in resource.scopes.iter().enumerate() {
        check_scope(dictionary, scope, &|| format!("{}.scope_profiles[{s}]", place()))?;
    }
    Ok(())
}

/// Checks a resource without its scopes.
pub(super) fn check_own(
    dictionary: &Dictionary,
    resource: &ResourceProfiles,
    place: &dyn Fn() -> String,
) -> Result<(), Invalid> {
    let tables = dictionary.tables();
    let ResourceProfiles { resource, scopes: _, schema_url } = resource;
    let Resource { attributes, dropped_attributes_count: _, entity_refs } = resource;
    check_index(StringId::wire(*schema_url), "string_table", tables.strings.len(), || {
        format!("{}.schema_url", place())
    })?;
    for (i, attribute) in attributes.iter().enumerate() {
        check_attribute(attribute, &tables.strings, &tables.buffer, &|| {
            format!("{}.resource.attributes[{i}]", place())
        })?;
    }
    for &entity in entity_refs {
        check_span(dictionary, entity, || format!("{}.resource.entity_refs", place()))?;
    }
    Ok(())
}

pub(super) fn check_scope(
    dictionary: &Dictionary,
    scope: &ScopeProfiles,
    place: &dyn Fn() -> String,
) -> Result<(), Invalid> {
    let tables = dictionary.tables();
    let string = |id: Option<StringId>, field: &str| {
        check_index(StringId::wire(id), "string_table", tables.strings.len(), || format!("{}.{field}", place()))
    };
    let ScopeProfiles { scope, profiles: _, schema_url } = scope;
    let Scope { name, version, attributes, dropped_attributes_count: _ } = scope;
    string(*schema_url, "schema_url")?;
    string(*name, "scope.name")?;
    string(*version, "scope.version")?;
    for (i, attribute) in attributes.iter().enumerate() {
        check_attribute(attribute, &tables.strings, &tables.buffer, &|| format!("{}.scope.attributes[{i}]", place()))?;
    }
    Ok(())
}

/// Checks one profile and its samples, whose columns must be equally long.
///
/// # Errors
///
/// The error names the first dangling reference, or a sample with a wrong number of values: with timestamps there must
/// be as many values or none, without timestamps at least one (opentelemetry-proto `profiles.proto`, `Sample`). A
/// duration that is negative when read as signed, and an end beyond 64 bits, are refused too.
pub fn check_profile(
    dictionary: &Dictionary,
    profile: &Profile,
    samples: &Samples,
    place: &dyn Fn() -> String,
) -> Result<(), Invalid> {
    let tables = dictionary.tables();
    profile.map_ids(&mut IdCheck { tables, place })?;
    let &Profile { time_unix_nano, duration_nano, original_payload_format, original_payload, .. } = profile;
    check_index(StringId::wire(original_payload_format), "string_table", tables.strings.len(), || {
        format!("{}.original_payload_format", place())
    })?;
    // Before 1.8 the duration was a signed integer; a negative one reads as more than half of the unsigned range.
    let end = time_unix_nano.checked_add(duration_nano);
    if duration_nano > i64::MAX as u64 || end.is_none() {
        let rule = format!("{duration_nano} ns after {time_unix_nano} ns is no time");
        return Err(Invalid { place: format!("{}.duration_nano", place()), rule });
    }
    check_span(dictionary, original_payload, || format!("{}.original_payload", place()))?;
    let rows = profile.samples.start as usize..profile.samples.end as usize;
    if rows.start > rows.end || rows.end > samples.len() {
        let rule = "lie outside of the batch".to_owned();
        return Err(Invalid { place: format!("{}.samples", place()), rule });
    }
    for row in rows.clone() {
        let at = |field: &str| format!("{}.samples[{}].{field}", place(), row - rows.start);
        samples.ids[row].check(dictionary, at)?;
        let timestamps = check_span(dictionary, samples.timestamps[row], || at("timestamps_unix_nano"))?;
        let values = check_span(dictionary, samples.values_at(row), || at("values"))?;
        check_shape(timestamps, values, at)?;
    }
    Ok(())
}

#[inline]
fn check_shape(timestamps: &[u8], values: &[u8], at: impl Fn(&str) -> String) -> Result<(), Invalid> {
    if !timestamps.len().is_multiple_of(8) {
        return Err(Invalid { place: at("timestamps_unix_nano"), rule: "is not a list of fixed64".to_owned() });
    }
    let count = timestamps.len() / 8;
    if values.is_empty() {
        if count > 0 {
            return Ok(());
        }
        return Err(Invalid { place: at("values"), rule: "the sample has neither values nor timestamps".to_owned() });
    }
    let mut rest = values;
    let mut found = 0;
    while !rest.is_empty() {
        if varint::take(&mut rest).is_none() {
            return Err(Invalid { place: at("values"), rule: "a value is cut off or too long".to_owned() });
        }
        found += 1;
    }
    if count > 0 && count != found {
        let rule = format!("there are {found} values for {count} timestamps");
        return Err(Invalid { place: at("values"), rule });
    }
    Ok(())
}

#[inline(always)]
fn check_span(dictionary: &Dictionary, span: ByteRange, place: impl FnOnce() -> String) -> Result<&[u8], Invalid> {
    dictionary
        .tables()
        .buffer
        .get(span)
        .ok_or_else(|| Invalid { place: place(), rule: "lies outside of the data".to_owned() })
}
