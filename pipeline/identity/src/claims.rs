//! What a source claims about a process. Claims show whether two sources describe the same process.
//!
//! The profiler and the tracer of a process rarely send the same attributes: only one may know the process's container,
//! host or start time. So each process is looked up under several names, and two sources match if a name is equal and
//! no attribute that both have differs.

use std::num::NonZeroU64;

use profbridge_model::{Attribute, Dictionary, ProfilerId, Value, whole_chunk};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

/// A source's claims that distinguish a process from others. Texts are stored as hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ProcessClaims {
    profiler: Option<ProfilerId>,
    pid: Option<i64>,
    /// The process id in the process's own PID namespace, if that is known to be a different one: `process.vpid`.
    inner_pid: Option<i64>,
    /// The values of [`KEYS`].
    values: [Option<u64>; KEYS.len()],
}

/// The attributes of claims. The first four and the pod name a process together with its pid; the fifth names it alone;
/// the others only distinguish it from other processes.
const KEYS: [&str; 7] = [
    "container.id",
    "host.id",
    "host.name",
    "k8s.node.name",
    "service.instance.id",
    "k8s.pod.uid",
    "k8s.container.name",
];

/// The number of [`KEYS`] that identify a process together with its pid.
const WITH_PID: usize = 4;

/// Indices in [`KEYS`] of attributes whose presence indicates that the process may have its own PID namespace and host
/// name. Sources inside the namespace send the ids and the name that they see there; a profiler outside sends those of
/// the machine.
const OWN_NAMESPACE: [usize; 2] = [0, 5];

/// Indices in [`KEYS`] of attributes whose values differ between the inside and the outside of a container.
const OF_HOST: [usize; 2] = [1, 2];

/// Index in [`KEYS`] of the attribute that Sentry's SDKs send (`server_name`).
const HOST_NAME: usize = 2;

/// Index in [`KEYS`] of the pod, which also names a process together with its pid.
const POD: usize = 5;

/// Stands for a missing process id, since those of processes are positive.
const NO_PID: i64 = -1;

/// Distinguishes the names of threads from those of processes; follows all of [`KEYS`].
const THREAD: usize = KEYS.len();

/// Index in [`KEYS`] of the attribute that names a process alone.
const INSTANCE: usize = 4;

impl ProcessClaims {
    /// The claims in attributes. If several have the same key, the first one counts.
    pub fn of<'a>(dictionary: &Dictionary, attributes: impl Iterator<Item = &'a Attribute> + Clone) -> Self {
        let mut claims = Self { profiler: whole_chunk::profiler_id(dictionary, attributes.clone()), ..Self::default() };
        for attribute in attributes {
            let text = match &attribute.value {
                Value::String(text) => Some(dictionary.string(*text)).filter(|text| !text.is_empty()),
                _ => None,
            };
            let key = dictionary.string(attribute.key);
            let pid = match key {
                "process.pid" => Some(&mut claims.pid),
                "process.vpid" => Some(&mut claims.inner_pid),
                _ => None,
            };
            if let Some(pid) = pid {
                let number = match attribute.value {
                    Value::Int(number) => Some(number),
                    _ => text.and_then(|text| text.parse().ok()),
                };
                *pid = pid.or(number);
            } else if let Some(at) = KEYS.iter().position(|known| *known == key) {
                claims.values[at] = claims.values[at].or_else(|| text.map(|text| xxh3_64(text.as_bytes())));
            }
        }
        claims
    }

    /// Adds a profiler id to the claims.
    #[must_use]
    pub fn with_profiler(self, id: ProfilerId) -> Self {
        Self { profiler: Some(id), ..self }
    }

    /// These claims, completed by claims that only `other` has.
    #[must_use]
    pub fn or(self, other: &Self) -> Self {
        Self {
            profiler: self.profiler.or(other.profiler),
            pid: self.pid.or(other.pid),
            inner_pid: self.inner_pid.or(other.inner_pid),
            values: std::array::from_fn(|at| self.values[at].or(other.values[at])),
        }
    }

    /// The names under which the process can be found: the profiler id; each of container, pod and host with the pid;
    /// container and pod also with the pid in the process's own namespace; the service instance. Empty if the process
    /// cannot be distinguished from others.
    pub fn names(&self) -> impl Iterator<Item = u128> + use<> {
        let Self { profiler, pid, inner_pid, values } = *self;
        let of_profiler = profiler.map(|id| xxh3_128(id.as_bytes()));
        let with_pid = (0..WITH_PID).chain([POD]).filter_map(move |at| Some(name(at, values[at]?, pid?)));
        let inner_pid = inner_pid.filter(|own| Some(*own) != pid);
        let with_inner_pid = OWN_NAMESPACE.into_iter().filter_map(move |at| Some(name(at, values[at]?, inner_pid?)));
        let of_instance = values[INSTANCE].map(|instance| name(INSTANCE, instance, 0));
        of_profiler.into_iter().chain(with_pid).chain(with_inner_pid).chain(of_instance)
    }

    /// The claimed process id, which is not that in the process's own namespace.
    pub fn pid(&self) -> Option<i64> {
        self.pid
    }

    /// The process id in the process's own PID namespace, if that is known to be a different one.
    pub fn inner_pid(&self) -> Option<i64> {
        self.inner_pid
    }

    /// Whether the process may have its own PID namespace, with an unknown id in it.
    pub fn may_have_another_pid(&self) -> bool {
        self.pid.is_some() && self.inner_pid.is_none() && OWN_NAMESPACE.iter().any(|at| self.values[*at].is_some())
    }

    /// The same claims for a known process: its id and its host replace the program's own claims about them.
    #[must_use]
    pub fn of_process(self, host: &str, pid: u32) -> Self {
        let mut claims = Self { pid: Some(pid.into()), ..self };
        claims.values[HOST_NAME] = Some(xxh3_64(host.as_bytes()));
        claims
    }

    /// Adds the process id in the process's own PID namespace to the claims.
    #[must_use]
    pub fn with_inner_pid(self, inner_pid: i64) -> Self {
        Self { inner_pid: Some(inner_pid), ..self }
    }

    /// Names of the places where the process runs, one for each claimed container, host and node. Two sources with a
    /// common name are on the same host.
    pub fn hosts(&self) -> impl Iterator<Item = u128> + use<> {
        let values = self.values;
        (0..WITH_PID).filter_map(move |at| Some(name(at, values[at]?, NO_PID)))
    }

    /// Whether both processes are on one host: a name of container, host or node is equal, and no claim about the place
    /// differs.
    pub fn is_of_host_of(&self, other: &Self) -> bool {
        let both = |at: usize| self.values[at].zip(other.values[at]);
        let differs = |at: usize| at != INSTANCE && both(at).is_some_and(|(one, other)| one != other);
        let is_equal = |at: usize| both(at).is_some_and(|(one, other)| one == other);
        (0..WITH_PID).any(is_equal) && !(0..KEYS.len()).any(differs)
    }

    /// The name under which a thread is found without knowing the process: its host and thread pointer. It is not
    /// unique: a forked child has the same one.
    pub fn thread_name(&self, pointer: NonZeroU64) -> Option<u128> {
        Some(name(THREAD, self.values[HOST_NAME]?, pointer.get() as i64))
    }

    /// The names under which a thread is found by its system id, without knowing the process: one for each claimed
    /// container, host and node.
    pub fn names_of_thread(&self, id: u32) -> impl Iterator<Item = u128> + use<> {
        let values = self.values;
        (0..WITH_PID).filter_map(move |at| Some(name(THREAD + 1 + at, values[at]?, id.into())))
    }

    /// Whether both may describe one process: no attribute that both have differs. If both name the same container or
    /// pod, one source may be inside, so the pid may be that of either namespace, and host names are ignored.
    pub fn agrees(&self, other: &Self) -> bool {
        if let (Some(one), Some(other)) = (self.profiler, other.profiler) {
            return one == other;
        }
        let both = |at: usize| self.values[at].zip(other.values[at]);
        let may_be_inside = OWN_NAMESPACE.iter().any(|at| both(*at).is_some_and(|(one, other)| one == other));
        let differs = |at: usize| both(at).is_some_and(|(one, other)| one != other);
        if (0..KEYS.len()).any(|at| differs(at) && !(may_be_inside && OF_HOST.contains(&at))) {
            return false;
        }
        match (self.pid, other.pid) {
            (Some(one), Some(pid)) => {
                one == pid || may_be_inside && (self.inner_pid == Some(pid) || other.inner_pid == Some(one))
            }
            _ => true,
        }
    }
}

fn name(at: usize, values: u64, pid: i64) -> u128 {
    let mut bytes = [0; 17];
    bytes[0] = at as u8;
    bytes[1..9].copy_from_slice(&values.to_le_bytes());
    bytes[9..].copy_from_slice(&pid.to_le_bytes());
    xxh3_128(&bytes)
}

#[cfg(test)]
mod tests {
    use profbridge_model::Builder;
    use profbridge_model::builder::Any;

    use super::*;

    fn claims(attributes: &[(&str, Any<'_>)]) -> ProcessClaims {
        let mut builder = Builder::new();
        builder.resource(attributes);
        let batch = builder.finish().unwrap();
        ProcessClaims::of(batch.dictionary(), batch.resources()[0].resource.attributes.iter())
    }

    fn meet(one: &[(&str, Any<'_>)], other: &[(&str, Any<'_>)]) -> bool {
        let (one, other) = (claims(one), claims(other));
        let named = one.names().any(|name| other.names().any(|known| known == name));
        named && one.agrees(&other)
    }

    /// Guarantees: two sources match if a name is equal and no attribute that both have differs.
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
        // Machines made from one image share a machine id, but have different names.
        assert!(!meet(&[id, host, pid], &[id, ("host.name", "other".into()), pid]));
        assert!(!meet(&[host, pid], &[host, ("process.pid", 8.into())]));
        assert!(!meet(&[host, pid, ("k8s.pod.uid", "a".into())], &[host, pid, ("k8s.pod.uid", "b".into())]));
        assert!(!meet(&[("service.name", "shop".into()), pid], &[("service.name", "shop".into()), pid]));
        assert!(!meet(&[host], &[host]));
    }

    /// Guarantees: when claims are merged, the first source takes precedence for attributes that both have.
    #[test]
    fn sides_are_joined() {
        let (container, host) = (("container.id", Any::Str("c1")), ("host.name", Any::Str("web")));
        let (pid, inner_pid, instance) =
            (("process.pid", 7.into()), ("process.vpid", 1.into()), ("service.instance.id", Any::Str("i")));
        let joined = claims(&[host, pid]).or(&claims(&[container, inner_pid, ("host.name", "db".into()), instance]));
        assert_eq!(joined, claims(&[container, host, pid, inner_pid, instance]));
        assert_eq!(claims(&[pid]).or(&ProcessClaims::default()), claims(&[pid]));
        let profiler = claims(&[("sentry.profiler_id", "00112233445546778899aabbccddeeff".into())]);
        assert_eq!(claims(&[pid]).or(&profiler).or(&profiler).names().next(), profiler.names().next());
    }

    /// Guarantees: common containers, hosts and nodes are found without a process id, and do not name processes.
    #[test]
    fn hosts_are_known_without_a_process() {
        let (host, node, pid) =
            (("host.name", Any::Str("web")), ("k8s.node.name", Any::Str("web")), ("process.pid", 7.into()));
        let hosts = |attributes: &[(&str, Any<'_>)]| claims(attributes).hosts().collect::<Vec<_>>();
        assert_eq!(hosts(&[host, pid]), hosts(&[host]));
        assert_eq!(hosts(&[host, node]).len(), 2);
        assert!(!hosts(&[host]).contains(&hosts(&[node])[0]));
        assert!(hosts(&[pid, ("service.instance.id", "i".into())]).is_empty());
        assert!(claims(&[host, pid]).names().all(|name| !hosts(&[host, pid]).contains(&name)));
    }

    /// Guarantees: processes of one host are recognised by claims about the host, whatever the claims about the
    /// processes, but not if any claim about the place differs.
    #[test]
    fn processes_of_one_host() {
        let (host, pod, container) =
            (("host.name", Any::Str("web")), ("k8s.pod.uid", Any::Str("p1")), ("container.id", Any::Str("c1")));
        let (pid, inner_pid, instance) =
            (("process.pid", Any::Int(7)), ("process.vpid", Any::Int(1)), ("service.instance.id", Any::Str("i")));
        let is = |one: &[(&str, Any<'_>)], other: &[(&str, Any<'_>)]| claims(one).is_of_host_of(&claims(other));
        let others = [("process.pid", Any::Int(8)), ("service.instance.id", Any::Str("j"))];
        assert!(is(&[host, pid, inner_pid, instance], &[host, others[0], others[1]]));
        assert!(is(&[host, container, pid], &[container, others[0]]));
        assert!(is(&[host, container, pid], &[host, others[0]]));
        assert!(!is(&[host, container, pid], &[host, ("container.id", "c2".into())]));
        assert!(!is(&[host, pod, pid], &[host, ("k8s.pod.uid", "p2".into())]));
        assert!(!is(&[host, ("host.id", "a".into())], &[host, ("host.id", "b".into())]));
        assert!(!is(&[pid, instance], &[pid, instance]) && !is(&[pod, pid], &[pod, pid]));
    }

    /// Guarantees: a profiler with an explicit id is found by this id, whatever the other attributes, and never by
    /// another id.
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

    /// Guarantees: a source inside a container (with the process's own pid and host name) and one outside match by a
    /// common container or pod; without one, the pid of another namespace means another process.
    #[test]
    fn sides_of_a_container_meet() {
        let (container, pod) = (("container.id", Any::Str("c1")), ("k8s.pod.uid", Any::Str("p1")));
        let (outside, inside) = (("host.name", Any::Str("node-1")), ("host.name", Any::Str("shop-7f9")));
        let (pid, own) = (("process.pid", Any::Int(4711)), ("process.pid", Any::Int(7)));
        let inner_pid = ("process.vpid", Any::Int(7));
        assert!(meet(&[container, outside, pid, inner_pid], &[container, inside, own]));
        assert!(meet(&[container, inside, own], &[container, outside, pid, inner_pid]));
        assert!(meet(&[container, pod, outside, pid, inner_pid], &[pod, inside, own]));
        assert!(meet(&[container, outside, pid], &[container, inside, pid]), "it shares the machine's pids");
        assert!(!meet(&[container, outside, pid], &[container, inside, own]), "nobody knows its own pid");
        assert!(!meet(&[container, outside, pid, inner_pid], &[container, inside, ("process.pid", 8.into())]));
        assert!(!meet(&[outside, pid, inner_pid], &[outside, own]));
        assert!(!meet(&[outside, container, pid, inner_pid], &[outside, own]), "another process of the machine");
        assert!(!meet(&[container, pod, pid, inner_pid], &[container, ("k8s.pod.uid", "p2".into()), own]));
        let known = claims(&[container, outside, pid]).with_inner_pid(7);
        assert_eq!(known, claims(&[container, outside, pid, inner_pid]));
        assert_eq!((known.pid(), known.inner_pid(), claims(&[pid]).inner_pid()), (Some(4711), Some(7), None));
        assert!(claims(&[container, pid]).may_have_another_pid() && claims(&[pod, pid]).may_have_another_pid());
        for claims in [known, claims(&[outside, pid]), claims(&[container])] {
            assert!(!claims.may_have_another_pid());
        }
    }

    /// Guarantees: a thread is found by its pointer on its host, whatever the claims about the process, and on no other
    /// host; its name never equals that of a process.
    #[test]
    fn threads_meet_on_their_host() {
        let (one, other) = (NonZeroU64::new(0x7f12_3456_7740).unwrap(), NonZeroU64::new(7).unwrap());
        let (host, pid) = (("host.name", Any::Str("web")), ("process.pid", Any::Int(7)));
        let named = claims(&[host]);
        assert!(named.thread_name(one).is_some());
        assert_eq!(named.thread_name(one), claims(&[host, pid]).thread_name(one));
        assert_ne!(named.thread_name(one), named.thread_name(other));
        assert_ne!(named.thread_name(one), claims(&[("host.name", "db".into())]).thread_name(one));
        assert_eq!(claims(&[("host.id", "9f".into()), pid]).thread_name(one), None);
        let by_id: Vec<u128> = claims(&[("host.id", "9f".into()), host, pid]).names_of_thread(7).collect();
        assert_eq!(by_id[1..], named.names_of_thread(7).collect::<Vec<_>>());
        assert!(
            named.names_of_thread(8).all(|name| !by_id.contains(&name)) && named.thread_name(other) != Some(by_id[1])
        );
        assert!(claims(&[host, pid]).names().chain(named.hosts()).all(|name| !by_id.contains(&name)));
        assert!(claims(&[host, pid]).names().all(|name| Some(name) != named.thread_name(other)));
    }
}
