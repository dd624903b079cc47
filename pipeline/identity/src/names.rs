//! The names under which sources with different knowledge find the same process.
//!
//! The profiler and the tracer of a process rarely send the same attributes: only one may know the process's start
//! time, container or host. So they do not compute the same [`Identity`](crate::Identity), but they match if one of
//! their names is equal.

use profbridge_model::{Attribute, Dictionary, IdentityStrength, ProfilerId};

use crate::identity::{identify, of_profiler};
use crate::rules::Rules;

/// Attributes that only one of the two sources has. The times of its data distinguish the process instead.
const OF_ONE_LIFE: [&str; 2] = ["process.creation.time", "profbridge.session.id"];

impl Rules {
    /// The names of the process with these attributes, as hashes: one for each complete tuple of the configuration
    /// (`service.identity.attributes`), without the start of the process. A profiler with an explicit id only has its
    /// [`profiler_name`]. Empty if the process cannot be distinguished from others.
    pub fn names<'a>(
        &self,
        dictionary: &Dictionary,
        attributes: impl Iterator<Item = &'a Attribute> + Clone,
    ) -> Vec<u128> {
        let lasting = attributes.filter(|attribute| !OF_ONE_LIFE.contains(&dictionary.string(attribute.key)));
        let mut names = Vec::new();
        for kind in &self.kinds {
            let identity = identify(dictionary, lasting.clone(), None, &[*kind]);
            if identity.strength == IdentityStrength::Strong && !names.contains(&identity.hash) {
                names.push(identity.hash);
            }
        }
        names
    }
}

/// The name of a profiler with this explicit id.
pub fn profiler_name(profiler_id: ProfilerId) -> u128 {
    of_profiler(profiler_id).hash
}

#[cfg(test)]
mod tests {
    use profbridge_model::Builder;
    use profbridge_model::builder::Any;

    use super::*;

    fn names(attributes: &[(&str, Any<'_>)]) -> Vec<u128> {
        let mut builder = Builder::new();
        builder.resource(attributes);
        let batch = builder.finish().unwrap();
        Rules::default().names(batch.dictionary(), batch.resources()[0].resource.attributes.iter())
    }

    /// Guarantees: two sources match if one complete tuple is equal, whether or not they know the start time; other
    /// processes do not match, and a process that cannot be distinguished has no name.
    #[test]
    fn sides_find_each_other() {
        let (pid, start) = (("process.pid", 7.into()), ("process.creation.time", "2026-01-01T00:00:00Z".into()));
        let (container, host) = (("container.id", "c1".into()), ("host.name", "web".into()));
        let profiled = names(&[container, host, pid, start, ("profbridge.session.id", "1f".into())]);
        let meet = |other: &[(&str, Any<'_>)]| names(other).iter().any(|name| profiled.contains(name));
        assert_eq!(profiled.len(), 2);
        assert!(meet(&[container, pid, ("service.name", "shop".into())]));
        assert!(meet(&[host, pid]));
        assert!(!meet(&[container, ("process.pid", 8.into())]));
        assert!(!meet(&[("service.name", "shop".into()), pid]));
        assert_eq!(names(&[("service.name", "shop".into())]), [0; 0]);
    }

    /// Guarantees: a profiler with an explicit id is found by this id and by nothing else.
    #[test]
    fn profilers_have_one_name() {
        let id = "00112233445546778899aabbccddeeff";
        let found =
            names(&[("sentry.profiler_id", id.into()), ("container.id", "c1".into()), ("process.pid", 7.into())]);
        let named = ProfilerId::from_hash(0x0011_2233_4455_4677_8899_aabb_ccdd_eeff);
        assert_eq!((named.to_string().as_str(), found), (id, vec![profiler_name(named)]));
    }
}
