//! Recognises profiles that are complete Sentry chunks.
//!
//! The parser of a chunk (`profbridge_wire::sentry::chunk_reader`) stores the chunk's number of samples in the profile.
//! So a later component, perhaps after other programs, can tell whether the profile is still the whole chunk. A whole
//! chunk can become the same chunk again, and must not be cut, merged or put into a window a second time. A profile
//! that was split or lost samples has a different number of samples, and is treated like any other profile.

use crate::dictionary::{Attribute, Dictionary, Value};
use crate::process::{IdentityStrength, ProcessWindow, ProfilerId};
use crate::profiles::{Profile, Profiles, ResourceProfiles};

/// The key of the resource attribute that names its profiler: a UUID in Sentry's form.
pub const PROFILER_ID: &str = "sentry.profiler_id";

/// The key of the attribute of a profile that is a chunk: the chunk's number of samples.
pub const CHUNK_SAMPLES: &str = "sentry.chunk_samples";

/// The profiler named by attributes, if any.
pub fn profiler_id<'a>(
    dictionary: &Dictionary,
    attributes: impl IntoIterator<Item = &'a Attribute>,
) -> Option<ProfilerId> {
    let found = attributes.into_iter().find(|attribute| dictionary.string(attribute.key) == PROFILER_ID)?;
    let Value::String(text) = found.value else { return None };
    uuid::Uuid::try_parse(dictionary.string(text)).ok().map(ProfilerId::from_uuid)
}

/// The profiler and the time range of a profile that is a whole chunk; `None` for other profiles. `resource` must be
/// that of the profile.
pub fn window(profiles: &Profiles, resource: &ResourceProfiles, profile: &Profile) -> Option<ProcessWindow> {
    let dictionary = profiles.dictionary();
    let Value::Int(samples) = dictionary.find(profile.attributes, CHUNK_SAMPLES)? else { return None };
    let profiler_id = profiler_id(dictionary, &resource.resource.attributes)?;
    let (mut first, mut last, mut found) = (u64::MAX, 0, 0);
    for sample in profiles.samples(profile) {
        for time in sample.timestamps() {
            (first, last, found) = (first.min(time), last.max(time), found + 1);
        }
    }
    let is_whole = found > 0 && *samples == found && profiles.observations_of(profile) == found as u64;
    is_whole.then_some(ProcessWindow {
        profiler_id,
        strength: IdentityStrength::Strong,
        start_unix_nano: first,
        end_unix_nano: last,
    })
}

/// Whether any of the profiles is a whole chunk.
pub fn any(profiles: &Profiles) -> bool {
    profiles.resources().iter().any(|resource| {
        let mut own = resource.scopes.iter().flat_map(|scope| &scope.profiles);
        own.any(|profile| window(profiles, resource, profile).is_some())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Builder;

    const ID: &str = "00112233-4455-4677-8899-aabbccddeeff";

    fn batch(id: &str, samples: i64, times: &[&[u64]]) -> Profiles {
        let mut builder = Builder::new();
        builder.resource(&[(PROFILER_ID, id.into())]);
        builder.on_cpu(20);
        let attributes = builder.attributes(&[(CHUNK_SAMPLES, samples.into())]);
        builder.open_profile().unwrap().attributes = attributes;
        times.iter().for_each(|times| builder.sample(None, None, None, times, &[]));
        builder.finish().unwrap()
    }

    /// Guarantees: a chunk is whole if it has all of its samples, each with its time, and its profiler is named; a
    /// profile with fewer or more samples is not a chunk.
    #[test]
    fn whole_and_parts() {
        let found =
            |profiles: &Profiles| window(profiles, &profiles.resources()[0], profiles.profiles().next().unwrap());
        let whole = found(&batch(ID, 3, &[&[5, 9], &[2]])).unwrap();
        assert_eq!((whole.start_unix_nano, whole.end_unix_nano), (2, 9));
        assert_eq!(whole.profiler_id.to_string(), "00112233445546778899aabbccddeeff");
        for other in [
            batch(ID, 4, &[&[5, 9], &[2]]),
            batch(ID, 2, &[&[5, 9], &[2]]),
            batch(ID, -3, &[&[5, 9], &[2]]),
            batch(ID, 0, &[]),
            batch("not an id", 3, &[&[5, 9], &[2]]),
        ] {
            assert_eq!(found(&other), None);
        }
    }
}
