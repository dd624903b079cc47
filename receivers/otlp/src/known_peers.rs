//! Detects peers that forward the profiles of several machines.
//!
//! A Collector in front of many machines is a single peer. If its profiles name no host, processes of different
//! machines with equal ids cannot be distinguished. Such a peer is detected if it names several hosts, or if one
//! process id runs two programs, or belongs to two services, at the same time. A program that executes another program
//! is no evidence, nor is a service that is named late or renamed: there the second value begins when the first one
//! ends.
//!
//! Two pods with the same process id are no evidence either: containers of one machine number their processes
//! separately. So process ids are compared within their pod and container, if those are known.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// The time for which a peer counts as a relay after it was detected.
const REMEMBERED: Duration = Duration::from_secs(600);

/// If a process id was not observed for this many nanoseconds, it may belong to another process.
const SAME_PROCESS: u64 = 600_000_000_000;

/// The maximum number of stored peers, and of stored process traits; about 6 MiB in all. Above it, some are dropped.
const MAX_PEERS: usize = 4096;
const MAX_TRAITS: usize = 32_768;

/// The maximum length of a host name in bytes (RFC 1035: 255); longer names are ignored.
const MAX_NAME: usize = 256;

/// The known names of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct HostNames<'a> {
    /// `host.id`.
    pub(crate) id: Option<&'a str>,
    /// `host.name`.
    pub(crate) name: Option<&'a str>,
    /// `k8s.node.name`.
    pub(crate) node: Option<&'a str>,
}

impl<'a> HostNames<'a> {
    pub(crate) fn is_named(&self) -> bool {
        self.id.is_some() || self.name.is_some() || self.node.is_some()
    }

    /// The name for messages.
    fn label(&self) -> &'a str {
        self.name.or(self.node).or(self.id).unwrap_or_default()
    }

    /// The first attribute in which both hosts have different names. Each attribute counts, because machines made from
    /// one image share an id.
    fn difference<'b>(&self, other: &HostNames<'b>) -> Option<(&'a str, &'b str)> {
        let names = self.name.zip(other.name).filter(|(one, other)| !same_name(one, other));
        let nodes = self.node.zip(other.node).filter(|(one, other)| one != other);
        let ids = self.id.zip(other.id).filter(|(one, other)| one != other);
        names.or(nodes).or(ids)
    }

    /// Whether the host is another machine than `this`. This machine may also have an id given by a cloud, and
    /// containers have names of their own. This machine's node name in a cluster is unknown.
    fn is_foreign(&self, this: &HostNames<'_>) -> bool {
        let id = self.id.zip(this.id).map(|(one, other)| one == other);
        let name = self.name.zip(this.name).map(|(one, other)| same_name(one, other));
        let known = id.is_some() || name.is_some();
        known && id != Some(true) && name != Some(true)
    }
}

/// Whether two names may denote the same host, such as `web-1` and `web-1.example.com`.
fn same_name(one: &str, other: &str) -> bool {
    let first = |name: &str| name.split('.').next().unwrap_or_default().to_ascii_lowercase();
    let short = !one.contains('.') || !other.contains('.');
    one.eq_ignore_ascii_case(other) || (short && first(one) == first(other))
}

/// A property of which a process has only one value at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ProcessTrait {
    /// The program that the process runs.
    Executable,
    /// The name of the process's service.
    Service,
}

/// A value of a trait in one request, for a process that is identified only by its process id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TraitSighting<'a> {
    pub(crate) pid: i64,
    /// The pod and the container of the process, each of which may number its processes separately.
    pub(crate) pod_and_container: [Option<&'a str>; 2],
    pub(crate) of: ProcessTrait,
    pub(crate) value: &'a str,
    /// The first and the last observation of the value, in nanoseconds since the Unix epoch; `None` if unknown.
    pub(crate) times: Option<(u64, u64)>,
}

impl TraitSighting<'_> {
    /// Explains why the two values belong to different processes.
    fn why(&self) -> String {
        let (pid, value) = (self.pid, shown(self.value));
        match self.of {
            ProcessTrait::Executable => format!("process {pid} executes {value} and at the same time something else"),
            ProcessTrait::Service => {
                format!("process {pid} is of the service {value} and at the same time of another one")
            }
        }
    }
}

/// The information in one request about its sender.
#[derive(Debug, Default)]
pub(crate) struct PeerReport<'a> {
    /// The hosts that the request names.
    pub(crate) hosts: Vec<HostNames<'a>>,
    pub(crate) sightings: Vec<TraitSighting<'a>>,
}

#[derive(Debug)]
struct PeerState {
    /// The host that the peer named last: id, name and node, empty if unknown.
    host: [String; 3],
    host_seen: Instant,
    /// The time until which the peer counts as a relay, and the reason.
    relays: Option<(Instant, String)>,
    seen: Instant,
}

/// A period in which a trait had one value.
#[derive(Debug, Clone, Copy)]
struct TraitPeriod {
    /// The hash of the value.
    value: u64,
    /// The first and the last time of the period, in nanoseconds since the Unix epoch; `None` if unknown.
    times: Option<(u64, u64)>,
}

impl TraitPeriod {
    fn overlaps(&self, other: &Self) -> bool {
        let times = self.times.zip(other.times);
        times.is_some_and(|((first, last), (from, to))| first < to && from < last)
    }
}

/// The last two periods of a process's trait.
#[derive(Debug, Clone, Copy)]
struct LastPeriods {
    latest: TraitPeriod,
    before: Option<TraitPeriod>,
}

impl LastPeriods {
    /// Records a new period. Returns whether it proves that the process id belongs to several processes.
    fn record_period(&mut self, seen: TraitPeriod) -> bool {
        if let Some(before) = self.before.filter(|before| before.value == seen.value) {
            self.before = Some(std::mem::replace(&mut self.latest, before));
            if seen.times.is_none() || before.times.is_none() {
                return true;
            }
        }
        if self.latest.value == seen.value {
            self.latest.times = match (self.latest.times, seen.times) {
                (Some((first, last)), Some((from, to))) if from <= last.saturating_add(SAME_PROCESS) => {
                    Some((first.min(from), last.max(to)))
                }
                (_, times) => times,
            };
        } else {
            self.before = Some(std::mem::replace(&mut self.latest, seen));
        }
        self.before.is_some_and(|before| before.overlaps(&self.latest))
    }
}

fn hashed(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// The peers of a receiver.
#[derive(Debug, Default)]
pub(crate) struct KnownPeers {
    peers: HashMap<IpAddr, PeerState>,
    /// Key: peer, process id, hash of pod and container, trait.
    traits: HashMap<(IpAddr, i64, u64, ProcessTrait), LastPeriods>,
}

impl KnownPeers {
    /// Records the information in a request. If its peer counts as a relay, returns the reason. `this` is the peer's
    /// machine, if known.
    pub(crate) fn record_report(
        &mut self,
        peer: IpAddr,
        this: Option<HostNames<'_>>,
        report: &PeerReport<'_>,
        now: Instant,
    ) -> Option<String> {
        let mut conflict = None;
        for sighting in &report.sightings {
            if self.conflicts(peer, sighting) {
                conflict.get_or_insert(sighting);
            }
        }
        self.make_room(peer, now);
        let new = || PeerState { host: Default::default(), host_seen: now, relays: None, seen: now };
        let state = self.peers.entry(peer).or_insert_with(new);
        state.seen = now;
        let mut why = conflict.map(TraitSighting::why);
        for host in &report.hosts {
            if let Some(this) = this.filter(|this| host.is_foreign(this)) {
                why =
                    Some(format!("it names the host {}, and this one is {}", shown(host.label()), shown(this.label())));
            } else if let Some((one, other)) = state.record_host(host, now) {
                why = Some(format!("it names the hosts {} and {}", shown(&one), shown(other)));
            }
        }
        if let Some(why) = why {
            state.relays = Some((now + REMEMBERED, why));
        }
        state.relays.take_if(|(until, _)| *until < now);
        state.relays.as_ref().map(|(_, why)| why.clone())
    }

    /// Records a trait of a process. Returns whether it proves that the process id belongs to several processes.
    fn conflicts(&mut self, peer: IpAddr, sighting: &TraitSighting<'_>) -> bool {
        let key = (peer, sighting.pid, hashed(sighting.pod_and_container), sighting.of);
        if self.traits.len() >= MAX_TRAITS && !self.traits.contains_key(&key) {
            self.traits = HashMap::new();
        }
        let seen = TraitPeriod { value: hashed(sighting.value), times: sighting.times };
        match self.traits.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(LastPeriods { latest: seen, before: None });
                false
            }
            Entry::Occupied(mut entry) => entry.get_mut().record_period(seen),
        }
    }

    /// If there are too many peers, drops the least recently seen one.
    fn make_room(&mut self, peer: IpAddr, now: Instant) {
        if self.peers.len() < MAX_PEERS || self.peers.contains_key(&peer) {
            return;
        }
        self.peers.retain(|_, state| now.saturating_duration_since(state.seen) < REMEMBERED);
        if self.peers.len() >= MAX_PEERS
            && let Some(oldest) = self.peers.iter().min_by_key(|(_, state)| state.seen).map(|(peer, _)| *peer)
        {
            self.peers.remove(&oldest);
        }
    }
}

impl PeerState {
    /// Records a host that the peer names. Returns the conflicting names if the peer named another host before.
    fn record_host<'a>(&mut self, host: &HostNames<'a>, now: Instant) -> Option<(String, &'a str)> {
        let [id, name, node] = self.host.each_ref().map(|known| Some(&**known).filter(|known| !known.is_empty()));
        let known = HostNames { id, name, node };
        let fresh = now.saturating_duration_since(self.host_seen) < REMEMBERED;
        if let Some((one, other)) = known.difference(host).filter(|_| fresh) {
            return Some((one.to_owned(), other));
        }
        self.host_seen = now;
        for (known, new_name) in self.host.iter_mut().zip([host.id, host.name, host.node]) {
            if let Some(new_name) = new_name.map(shortened).filter(|new_name| known != new_name) {
                new_name.clone_into(known);
            }
        }
        None
    }
}

fn shortened(text: &str) -> &str {
    let end = (0..=MAX_NAME.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}

/// A name chosen by a sender, made safe for the log: short, and without control characters.
fn shown(text: &str) -> String {
    format!("{:?}", shortened(text))
}

#[cfg(test)]
mod tests;
