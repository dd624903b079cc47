//! The process of a sample, and the ids computed from it.

use super::attributes::SampleAttributes;

/// The identity of a process. Service and executable names are never part of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NaiveIdentity {
    /// `container.id` and `process.pid`.
    Container(String, i64),
    /// The attributes of the host, the pod and the container, and `process.pid`.
    Host([Option<String>; 5], i64),
    /// `service.instance.id`.
    Instance(String),
    /// There is no complete tuple: the number of the resource in the request.
    Weak(usize),
}

/// The identity from the first complete tuple.
pub(super) fn identity(attributes: &SampleAttributes<'_>, resource_number: usize) -> NaiveIdentity {
    let pid = attributes.int("process.pid");
    let host = ["host.id", "host.name", "k8s.node.name", "k8s.pod.uid", "k8s.container.name"];
    let host = host.map(|key| attributes.text(key));
    let is_host = host[..3].iter().any(Option::is_some);
    if let (Some(container), Some(pid)) = (attributes.text("container.id"), pid) {
        return NaiveIdentity::Container(container, pid);
    }
    if let (true, Some(pid)) = (is_host, pid) {
        return NaiveIdentity::Host(host, pid);
    }
    match attributes.text("service.instance.id") {
        Some(instance) => NaiveIdentity::Instance(instance),
        None => NaiveIdentity::Weak(resource_number),
    }
}

/// An id that is the same for every chunk of a process.
pub(super) fn profiler_id(identity: &NaiveIdentity) -> String {
    uuid_from(format!("{identity:?}").as_bytes())
}

/// An id that is the same whenever the same request is converted again.
pub(super) fn chunk_id(profiler_id: &str, first_timestamp: u64, samples: usize) -> String {
    uuid_from(format!("{profiler_id}/{first_timestamp}/{samples}").as_bytes())
}

/// FNV-1a in 128 bits with the version and variant bits of a random UUID.
fn uuid_from(bytes: &[u8]) -> String {
    let mut hash = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128;
    for &byte in bytes {
        hash = (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
    }
    let hash = hash & !(0xf000_u128 << 64) | (0x4000_u128 << 64);
    let hash = hash & !(0xc0_u128 << 56) | (0x80_u128 << 56);
    format!("{hash:032x}")
}
