//! What somebody says of a process, to find out whether somebody else speaks of the same.
//!
//! A profiler and a tracer of one process rarely say the same of it: one knows its container, the other its host; one
//! knows when it began. So each is looked up under several names, and taken for the same where a name is equal and
//! nothing that both say differs.

use std::num::NonZeroU64;

use profbridge_model::{Attribute, Dictionary, ProfilerId, Value, whole_chunk};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

/// What is said of a process, as far as it tells processes apart. Texts are hashes of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Side {
    profiler: Option<ProfilerId>,
    pid: Option<i64>,
    /// By [`KEYS`].
    said: [Option<u64>; KEYS.len()],
}

/// What names a process together with its pid (the first four), alone (the fifth), or tells it from others only.
const KEYS: [&str; 7] = [
    "container.id",
    "host.id",
    "host.name",
    "k8s.node.name",
    "service.instance.id",
    "k8s.pod.uid",
    "k8s.container.name",
];

/// How many of [`KEYS`] name a process together with its pid.
const WITH_PID: usize = 4;

/// The one of [`KEYS`] that Sentry's SDKs say (`server_name`).
const HOST_NAME: usize = 2;

/// Stands for no process: ids of processes are positive.
const NO_PID: i64 = -1;

/// Marks the names of threads, behind all of [`KEYS`].
const THREAD: usize = KEYS.len();

/// The one of [`KEYS`] that names a process alone.
const INSTANCE: usize = 4;

impl Side {
    /// What attributes say, where earlier ones come before later ones with the same key.
    pub fn of<'a>(dictionary: &Dictionary, attributes: impl Iterator<Item = &'a Attribute> + Clone) -> Self {
        let mut side = Self { profiler: whole_chunk::profiler_id(dictionary, attributes.clone()), ..Self::default() };
        for attribute in attributes {
            let text = match &attribute.value {
                Value::String(text) => Some(dictionary.string(*text)).filter(|text| !text.is_empty()),
                _ => None,
            };
            let key = dictionary.string(attribute.key);
            if key == "process.pid" {
                let number = match attribute.value {
                    Value::Int(pid) => Some(pid),
                    _ => text.and_then(|text| text.parse().ok()),
                };
                side.pid = side.pid.or(number);
            } else if let Some(at) = KEYS.iter().position(|known| *known == key) {
                side.said[at] = side.said[at].or_else(|| text.map(|text| xxh3_64(text.as_bytes())));
            }
        }
        side
    }

    /// The names under which the process can be found: the profiler's id, each of container and host with the pid, the
    /// service's instance. None where it cannot be told from others.
    pub fn names(&self) -> impl Iterator<Item = u128> + use<> {
        let Self { profiler, pid, said } = *self;
        let of_profiler = profiler.map(|id| xxh3_128(id.as_bytes()));
        let with_pid = (0..WITH_PID).filter_map(move |at| Some(name(at, said[at]?, pid?)));
        of_profiler.into_iter().chain(with_pid).chain(said[INSTANCE].map(|instance| name(INSTANCE, instance, 0)))
    }

    /// Where the process runs: a name for each of container, host and node that is said. Two sides that have one in common
    /// speak of processes of one host.
    pub fn hosts(&self) -> impl Iterator<Item = u128> + use<> {
        let said = self.said;
        (0..WITH_PID).filter_map(move |at| Some(name(at, said[at]?, NO_PID)))
    }

    /// The name under which a thread is found without the process being named: that of its host and its thread pointer.
    /// Not of that process alone: what was forked has the same.
    pub fn thread_name(&self, pointer: NonZeroU64) -> Option<u128> {
        Some(name(THREAD, self.said[HOST_NAME]?, pointer.get() as i64))
    }

    /// Whether both may speak of one process: nothing that both say differs.
    pub fn agrees(&self, other: &Self) -> bool {
        if let (Some(one), Some(other)) = (self.profiler, other.profiler) {
            return one == other;
        }
        let differ = |one: Option<u64>, other: Option<u64>| one.zip(other).is_some_and(|(one, other)| one != other);
        let pids = self.pid.zip(other.pid).is_some_and(|(one, other)| one != other);
        !pids && !self.said.iter().zip(&other.said).any(|(one, other)| differ(*one, *other))
    }
}

fn name(at: usize, said: u64, pid: i64) -> u128 {
    let mut bytes = [0; 17];
    bytes[0] = at as u8;
    bytes[1..9].copy_from_slice(&said.to_le_bytes());
    bytes[9..].copy_from_slice(&pid.to_le_bytes());
    xxh3_128(&bytes)
}

#[cfg(test)]
mod tests {
    use profbridge_model::Builder;
    use profbridge_model::builder::Any;

    use super::*;

    fn side(attributes: &[(&str, Any<'_>)]) -> Side {
        let mut builder = Builder::new();
        builder.resource(attributes);
        let batch = builder.finish().unwrap();
        Side::of(batch.dictionary(), batch.resources()[0].resource.attributes.iter())
    }

    fn meet(one: &[(&str, Any<'_>)], other: &[(&str, Any<'_>)]) -> bool {
        let (one, other) = (side(one), side(other));
        let named = one.names().any(|name| other.names().any(|known| known == name));
        named && one.agrees(&other)
    }

    /// Guarantees: two who say different things of a process meet where a name is equal and nothing that both say differs.
    #[test]
    fn sides_meet() {
        let pid = ("process.pid", 7.into());
        let (container, host) = (("container.id", "c1".into()), ("host.name", "web".into()));
        let id = ("host.id", "9f".into());
        let start = ("process.creation.time", "2026-01-01T00:00:00Z".into());
        assert!(meet(&[container, pid, start], &[container, pid, host]));
        assert!(meet(&[id, host, pid], &[host, pid]));
        assert!(meet(&[host, ("process.pid", "7".into())], &[host, pid]));
        assert!(meet(&[("service.instance.id", "i".into())], &[("service.instance.id", "i".into()), pid]));
        // An image's machine id, on machines with names of their own.
        assert!(!meet(&[id, host, pid], &[id, ("host.name", "other".into()), pid]));
        assert!(!meet(&[host, pid], &[host, ("process.pid", 8.into())]));
        assert!(!meet(&[host, pid, ("k8s.pod.uid", "a".into())], &[host, pid, ("k8s.pod.uid", "b".into())]));
        assert!(!meet(&[("service.name", "shop".into()), pid], &[("service.name", "shop".into()), pid]));
        assert!(!meet(&[host], &[host]));
    }

    /// Guarantees: what two sides have in common of container, host and node is known without a process id, and is no name of
    /// a process.
    #[test]
    fn hosts_are_known_without_a_process() {
        let (host, node, pid) =
            (("host.name", Any::Str("web")), ("k8s.node.name", Any::Str("web")), ("process.pid", 7.into()));
        let hosts = |attributes: &[(&str, Any<'_>)]| side(attributes).hosts().collect::<Vec<_>>();
        assert_eq!(hosts(&[host, pid]), hosts(&[host]));
        assert_eq!(hosts(&[host, node]).len(), 2);
        assert!(!hosts(&[host]).contains(&hosts(&[node])[0]));
        assert!(hosts(&[pid, ("service.instance.id", "i".into())]).is_empty());
        assert!(side(&[host, pid]).names().all(|name| !hosts(&[host, pid]).contains(&name)));
    }

    /// Guarantees: a profiler that names itself is found by its id, whatever else is said of it, and never by another.
    #[test]
    fn profilers_meet_by_their_id() {
        let profiler = |id| ("sentry.profiler_id", Any::Str(id));
        let (one, other) = ("00112233445546778899aabbccddeeff", "ffeeddccbbaa46778899aabbccddeeff");
        let pid = ("process.pid", 7.into());
        let host = ("host.name", "web".into());
        assert!(meet(&[profiler(one), ("host.name", "x".into())], &[profiler(one), host, pid]));
        assert!(!meet(&[profiler(one), host, pid], &[profiler(other), host, pid]));
        assert!(meet(&[profiler(one), host, pid], &[host, pid]));
    }

    /// Guarantees: a thread is found by its pointer on its host, whatever is said of the process, and nowhere else; its name
    /// is none of a process's.
    #[test]
    fn threads_meet_on_their_host() {
        let (one, other) = (NonZeroU64::new(0x7f12_3456_7740).unwrap(), NonZeroU64::new(7).unwrap());
        let (host, pid) = (("host.name", Any::Str("web")), ("process.pid", Any::Int(7)));
        let named = side(&[host]);
        assert!(named.thread_name(one).is_some());
        assert_eq!(named.thread_name(one), side(&[host, pid]).thread_name(one));
        assert_ne!(named.thread_name(one), named.thread_name(other));
        assert_ne!(named.thread_name(one), side(&[("host.name", "db".into())]).thread_name(one));
        assert_eq!(side(&[("host.id", "9f".into()), pid]).thread_name(one), None);
        assert!(side(&[host, pid]).names().all(|name| Some(name) != named.thread_name(other)));
    }
}
