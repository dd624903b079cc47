//! The identity of a process, and the ids computed from it.
//!
//! # Identity
//!
//! A profiler with an explicit id, Sentry's id in `sentry.profiler_id`, is identified by it alone: Sentry's spans refer
//! to this id, and the profiler manages its own sessions. Otherwise the identity is the first complete tuple of
//!
//! 1. `container.id` and `process.pid`,
//! 2. `host.id`, `host.name`, `k8s.node.name`, as far as present, and `process.pid`,
//! 3. `service.instance.id`.
//!
//! The second tuple also includes `k8s.pod.uid` and `k8s.container.name` if present, since each container has its own
//! numbering of processes. Each tuple includes `profbridge.session.id`, by which the built-in sampler distinguishes the
//! programs that one process executes one after the other, or else `process.creation.time` if known. (The creation time
//! changes when the wall clock is set; the session id does not.)
//!
//! Names of services and executables are never included: two replicas of a service have the same ones. All names of a
//! host count, since another host may have the same one: virtual machines made from one image share `/etc/machine-id`,
//! and many hosts are called `localhost`. Renaming a host changes the identity of its processes. That is rare and only
//! costs an id, while frames of two machines in one chunk could never be separated.
//!
//! A process without a complete tuple is *weak*: it is identified by all its attributes and the sending peer, so it is
//! never merged with data that differs in either. If the peer forwards data of several machines, not even these
//! distinguish processes: then each resource of each request is *alone*.
//!
//! # Canonical encoding, version 2
//!
//! The text `profbridge identity 2`, a zero byte, and for each existing part: the tag (one byte), the length (32 bits,
//! little-endian), the content. For a strong identity the parts of host, container or instance come first, in the order
//! of their tags, then the pid, then the rest in the order of the tags. Strings are unmodified, without a change of
//! case; a pid is a signed 64-bit integer, little-endian, even if it was received as decimal text.
//!
//! | tag | part |
//! | --- | --- |
//! | 1 | `container.id` |
//! | 2 | `host.id` |
//! | 3 | `host.name` |
//! | 4 | `process.pid` |
//! | 5 | `service.instance.id` |
//! | 6 | `process.creation.time` (without 10) |
//! | 7 | the peer (weak only) |
//! | 8 | a key (weak only), keys in ascending order, each followed by its |
//! | 9 | value: see the code of `put_value` |
//! | 10 | `profbridge.session.id` (not weak) |
//! | 11 | `k8s.node.name` |
//! | 12 | `k8s.pod.uid` (with a host only) |
//! | 13 | `k8s.container.name` (with a host only) |
//! | 14 | `sentry.profiler_id`, 16 bytes (then nothing else) |
//!
//! The identity's hash is XXH3-128 of this encoding (seed 0). The profiler id is XXH3-128 of the text
//! `profbridge profiler 1`, a zero byte, the hash (big-endian) and the session number (64 bits, little-endian), with
//! the version and variant bits of a random UUID. All replicas compute the same id, and nothing is stored. A change of
//! the encoding increases its version.

use profbridge_model::{Attribute, Dictionary, IdentityStrength, ProfilerId, Value, whole_chunk};
use xxhash_rust::xxh3::xxh3_128;

const IDENTITY: &[u8] = b"profbridge identity 2\0";
const PROFILER: &[u8] = b"profbridge profiler 1\0";
const ALONE: &[u8] = b"profbridge alone 1\0";

/// A tuple of attributes that identifies a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdentityKind {
    /// `container.id` and `process.pid`.
    Container,
    /// `host.id`, `host.name`, `k8s.node.name` as far as present, and `process.pid`.
    Host,
    /// `service.instance.id`.
    Instance,
}

/// A time unit of cuts, in nanoseconds. If the window length is a multiple of it, windows begin and end at its
/// multiples since the Unix epoch. The receiver `ptrace` splits its observations of waiting threads at these times, so
/// that none extends into the next window.
const CUTS: u64 = 500_000_000;

/// The identity of a process, without a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity {
    /// A hash that is equal for equal processes, in every replica.
    pub hash: u128,
    /// Whether the process is identified by a complete tuple.
    pub strength: IdentityStrength,
    /// Whether no later data may be added to this process: other processes may have exactly the same attributes.
    pub alone: bool,
    /// Sentry's id of the profiler, if the profiler has an explicit one.
    pub profiler: Option<ProfilerId>,
}

/// Identifies a request within a processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequestId {
    /// The arrival time, in nanoseconds since the Unix epoch.
    pub arrival: u64,
    /// The request's sequence number in the processor.
    pub number: u64,
}

impl Identity {
    /// The identity of a process with the same attributes as others: it includes the request and the place in it, so
    /// that the process is merged with no other.
    pub(crate) fn alone(self, request: RequestId, place: u32) -> Self {
        let mut bytes = ALONE.to_vec();
        bytes.extend_from_slice(&self.hash.to_be_bytes());
        bytes.extend_from_slice(&request.arrival.to_le_bytes());
        bytes.extend_from_slice(&request.number.to_le_bytes());
        bytes.extend_from_slice(&place.to_le_bytes());
        Self { hash: xxh3_128(&bytes), alone: true, ..self }
    }

    /// Sentry's id for the process in a session.
    pub fn profiler_id(&self, session: u64) -> ProfilerId {
        if let Some(profiler) = self.profiler {
            return profiler;
        }
        let mut bytes = PROFILER.to_vec();
        bytes.extend_from_slice(&self.hash.to_be_bytes());
        bytes.extend_from_slice(&session.to_le_bytes());
        ProfilerId::from_hash(xxh3_128(&bytes))
    }

    /// The offset of this process's windows, in nanoseconds after the multiples of `window`, the window length in
    /// nanoseconds. It differs by process, so that a thousand processes do not send in the same second. If the length
    /// is a multiple of half a second, so is the offset.
    pub fn phase(&self, window: u64) -> u64 {
        let grid = if window.is_multiple_of(CUTS) { CUTS } else { 1 };
        (self.hash as u64) % (window / grid).max(1) * grid
    }
}

/// Identifies the process with these attributes. If several have the same key, the first one counts.
pub(crate) fn identify<'a>(
    dictionary: &Dictionary,
    attributes: impl Iterator<Item = &'a Attribute> + Clone,
    peer: Option<&str>,
    kinds: &[IdentityKind],
) -> Identity {
    let find = |key: &str| {
        attributes.clone().find(|attribute| dictionary.string(attribute.key) == key).map(|found| &found.value)
    };
    let text = |key: &str| find(key).and_then(|value| text(dictionary, value));
    let pid = find("process.pid").and_then(|value| pid(dictionary, value));
    if let Some(profiler) = whole_chunk::profiler_id(dictionary, attributes.clone()) {
        return of_profiler(profiler);
    }
    let mut encoding = Encoding(IDENTITY.to_vec());
    let complete = kinds.iter().find(|kind| match kind {
        IdentityKind::Container => encoding.put_all(&[(1, text("container.id"))], pid),
        IdentityKind::Host => {
            encoding.put_all(&[(2, text("host.id")), (3, text("host.name")), (11, text("k8s.node.name"))], pid)
        }
        IdentityKind::Instance => text("service.instance.id").map(|id| encoding.put(5, &id)).is_some(),
    });
    if let Some(kind) = complete {
        if let Some(session) = text("profbridge.session.id") {
            encoding.put(10, &session);
        } else if let Some(start) = text("process.creation.time") {
            encoding.put(6, &start);
        }
        if *kind == IdentityKind::Host {
            let pod = [(12, text("k8s.pod.uid")), (13, text("k8s.container.name"))];
            pod.iter().for_each(|(tag, part)| part.iter().for_each(|part| encoding.put(*tag, part)));
        }
        return encoding.identity(IdentityStrength::Strong);
    }
    if let Some(peer) = peer {
        encoding.put(7, peer.as_bytes());
    }
    let mut all: Vec<&Attribute> = attributes.collect();
    all.sort_by_key(|attribute| dictionary.string_bytes(attribute.key));
    all.dedup_by_key(|attribute| dictionary.string_bytes(attribute.key));
    for attribute in all {
        encoding.put(8, dictionary.string_bytes(attribute.key));
        let mut value = Encoding(Vec::new());
        value.put_value(dictionary, &attribute.value);
        encoding.put(9, &value.0);
    }
    encoding.identity(IdentityStrength::Weak)
}

/// The identity of a profiler with an explicit id.
pub(crate) fn of_profiler(profiler: ProfilerId) -> Identity {
    let mut encoding = Encoding(IDENTITY.to_vec());
    encoding.put(14, profiler.as_bytes());
    Identity { profiler: Some(profiler), ..encoding.identity(IdentityStrength::Strong) }
}

/// The text of an identifying attribute: an empty text counts as missing, a number as its decimal text.
fn text(dictionary: &Dictionary, value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::String(id) => Some(dictionary.string_bytes(*id).to_vec()).filter(|text| !text.is_empty()),
        Value::Int(number) => Some(number.to_string().into_bytes()),
        _ => None,
    }
}

fn pid(dictionary: &Dictionary, value: &Value) -> Option<i64> {
    match value {
        Value::Int(pid) => Some(*pid),
        Value::String(id) => dictionary.string(*id).parse().ok(),
        _ => None,
    }
}

struct Encoding(Vec<u8>);

impl Encoding {
    fn identity(&self, strength: IdentityStrength) -> Identity {
        Identity { hash: xxh3_128(&self.0), strength, alone: false, profiler: None }
    }

    fn put(&mut self, tag: u8, content: &[u8]) {
        self.0.push(tag);
        // A string of a batch is shorter than 4 GiB, and so is every encoded value.
        self.0.extend_from_slice(&(content.len() as u32).to_le_bytes());
        self.0.extend_from_slice(content);
    }

    /// Adds the existing parts and the pid. Without any part or without a pid, adds nothing and returns `false`.
    fn put_all(&mut self, parts: &[(u8, Option<Vec<u8>>)], pid: Option<i64>) -> bool {
        let Some(pid) = pid.filter(|_| parts.iter().any(|(_, part)| part.is_some())) else { return false };
        for (tag, part) in parts {
            part.iter().for_each(|part| self.put(*tag, part));
        }
        self.put(4, &pid.to_le_bytes());
        true
    }

    /// Encodes a value: one byte for its type, then its content; text, bytes and nested values have a length before the
    /// content.
    fn put_value(&mut self, dictionary: &Dictionary, value: &Value) {
        match value {
            Value::Empty => self.put(b'0', &[]),
            Value::String(id) => self.put(b's', dictionary.string_bytes(*id)),
            Value::Bool(value) => self.put(b'b', &[u8::from(*value)]),
            Value::Int(value) => self.put(b'i', &value.to_le_bytes()),
            Value::Double(value) => self.put(b'd', &value.to_bits().to_le_bytes()),
            Value::Bytes(span) => self.put(b'y', dictionary.bytes(*span)),
            Value::Array(values) => {
                self.put(b'a', &(values.len() as u64).to_le_bytes());
                values.iter().for_each(|value| self.put_value(dictionary, value));
            }
            Value::KeyValueList(list) => {
                self.put(b'k', &(list.len() as u64).to_le_bytes());
                for item in list {
                    self.put(b's', dictionary.string_bytes(item.key));
                    self.put_value(dictionary, &item.value);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
