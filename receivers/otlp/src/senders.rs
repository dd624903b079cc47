//! What is known of the peers that send: whether one passes on the profiles of several machines.
//!
//! A Collector in front of many machines is one peer. Where its profiles do not say whose they are, processes of
//! different machines cannot be told apart, although their ids are equal. Such a peer gives itself away: it names
//! several hosts, or one process id executes two programs, or is of two services, at the same time. A program that
//! executes another one is not taken for that, nor is a service that is named late or renamed: the second begins where
//! the first ends.
//!
//! Two pods with one process id are no such sign: containers of one machine number their processes anew. So a process
//! id is compared within its pod and container, where these are said.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// For so long a peer is taken for what it gave itself away as.
const REMEMBERED: Duration = Duration::from_secs(600);

/// A process id that has not been what it was for so long may have been given to another process since, in nanoseconds.
const SAME_PROCESS: u64 = 600_000_000_000;

/// So many peers and traits of processes are remembered. Beyond that some are forgotten: about 6 MiB at most.
const MAX_PEERS: usize = 4096;
const MAX_TRAITS: usize = 32_768;

/// Longer names are no names of hosts, in bytes (RFC 1035: 255).
const MAX_NAME: usize = 256;

/// The names of a host, as far as they are said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Host<'a> {
    /// `host.id`.
    pub(crate) id: Option<&'a str>,
    /// `host.name`.
    pub(crate) name: Option<&'a str>,
    /// `k8s.node.name`.
    pub(crate) node: Option<&'a str>,
}

impl<'a> Host<'a> {
    pub(crate) fn is_named(&self) -> bool {
        self.id.is_some() || self.name.is_some() || self.node.is_some()
    }

    /// What people call it.
    fn label(&self) -> &'a str {
        self.name.or(self.node).or(self.id).unwrap_or_default()
    }

    /// The first of their names that differ, where both say one. Each counts: machines that were made of one image
    /// share an id.
    fn difference<'b>(&self, other: &Host<'b>) -> Option<(&'a str, &'b str)> {
        let names = self.name.zip(other.name).filter(|(one, other)| !same_name(one, other));
        let nodes = self.node.zip(other.node).filter(|(one, other)| one != other);
        let ids = self.id.zip(other.id).filter(|(one, other)| one != other);
        names.or(nodes).or(ids)
    }

    /// Whether it is another machine than this one, which some know by the id that its cloud gave it, and containers by
    /// a name of their own. What a cluster calls this machine is not known.
    fn is_foreign(&self, this: &Host<'_>) -> bool {
        let id = self.id.zip(this.id).map(|(one, other)| one == other);
        let name = self.name.zip(this.name).map(|(one, other)| same_name(one, other));
        let known = id.is_some() || name.is_some();
        known && id != Some(true) && name != Some(true)
    }
}

/// Whether two names are of one host: `web-1` and `web-1.example.com` are.
fn same_name(one: &str, other: &str) -> bool {
    let first = |name: &str| name.split('.').next().unwrap_or_default().to_ascii_lowercase();
    let short = !one.contains('.') || !other.contains('.');
    one.eq_ignore_ascii_case(other) || (short && first(one) == first(other))
}

/// Something of which a process has one at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Trait {
    /// The program that it executes.
    Executable,
    /// The name of the service that it is of.
    Service,
}

/// A process that nothing but its id tells apart, in one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sighting<'a> {
    pub(crate) pid: i64,
    /// The pod and the container that it runs in, each of which may number its processes anew.
    pub(crate) inside: [Option<&'a str>; 2],
    pub(crate) of: Trait,
    pub(crate) value: &'a str,
    /// The first and the last time that it was observed, in nanoseconds since the Unix epoch; `None` where none is
    /// said.
    pub(crate) times: Option<(u64, u64)>,
}

impl Sighting<'_> {
    /// Why processes that are this are not one, in words.
    fn why(&self) -> String {
        let (pid, value) = (self.pid, shown(self.value));
        match self.of {
            Trait::Executable => format!("process {pid} executes {value} and at the same time something else"),
            Trait::Service => format!("process {pid} is of the service {value} and at the same time of another one"),
        }
    }
}

/// What one request says of its peer.
#[derive(Debug, Default)]
pub(crate) struct Told<'a> {
    /// The hosts it names.
    pub(crate) hosts: Vec<Host<'a>>,
    pub(crate) sightings: Vec<Sighting<'a>>,
}

/// A peer.
#[derive(Debug)]
struct Sender {
    /// The host that it named last: id, name and node, empty where not known.
    host: [String; 3],
    host_seen: Instant,
    /// Until when it counts as one that passes on what several machines send, and why.
    relays: Option<(Instant, String)>,
    seen: Instant,
}

/// What a process was for a while.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    /// The value, as a hash.
    value: u64,
    /// The first and the last time that it was observed so, in nanoseconds since the Unix epoch; `None` where none is
    /// said.
    times: Option<(u64, u64)>,
}

impl Stretch {
    fn overlaps(&self, other: &Self) -> bool {
        let times = self.times.zip(other.times);
        times.is_some_and(|((first, last), (from, to))| first < to && from < last)
    }
}

/// The last two values that a trait of a process had.
#[derive(Debug, Clone, Copy)]
struct Turns {
    latest: Stretch,
    before: Option<Stretch>,
}

impl Turns {
    /// Takes in what was seen, and returns whether one process cannot have been so.
    fn take(&mut self, seen: Stretch) -> bool {
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
pub(crate) struct Senders {
    peers: HashMap<IpAddr, Sender>,
    /// By peer, process id, what it is inside of as a hash, and trait.
    traits: HashMap<(IpAddr, i64, u64, Trait), Turns>,
}

impl Senders {
    /// Takes in what a request says, and returns why its peer is taken for one that passes on what several machines
    /// send, if it is. `this` is the machine of the peer where that is known.
    pub(crate) fn see(
        &mut self,
        peer: IpAddr,
        this: Option<Host<'_>>,
        told: &Told<'_>,
        now: Instant,
    ) -> Option<String> {
        let mut conflict = None;
        for sighting in &told.sightings {
            if self.conflicts(peer, sighting) {
                conflict.get_or_insert(sighting);
            }
        }
        self.make_room(peer, now);
        let new = || Sender { host: Default::default(), host_seen: now, relays: None, seen: now };
        let sender = self.peers.entry(peer).or_insert_with(new);
        sender.seen = now;
        let mut why = conflict.map(Sighting::why);
        for host in &told.hosts {
            if let Some(this) = this.filter(|this| host.is_foreign(this)) {
                why =
                    Some(format!("it names the host {}, and this one is {}", shown(host.label()), shown(this.label())));
            } else if let Some((one, other)) = sender.name(host, now) {
                why = Some(format!("it names the hosts {} and {}", shown(&one), shown(other)));
            }
        }
        if let Some(why) = why {
            sender.relays = Some((now + REMEMBERED, why));
        }
        sender.relays.take_if(|(until, _)| *until < now);
        sender.relays.as_ref().map(|(_, why)| why.clone())
    }

    /// Notes what a process is, and returns whether something speaks against its being one process.
    fn conflicts(&mut self, peer: IpAddr, sighting: &Sighting<'_>) -> bool {
        let key = (peer, sighting.pid, hashed(sighting.inside), sighting.of);
        if self.traits.len() >= MAX_TRAITS && !self.traits.contains_key(&key) {
            self.traits = HashMap::new();
        }
        let seen = Stretch { value: hashed(sighting.value), times: sighting.times };
        match self.traits.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(Turns { latest: seen, before: None });
                false
            }
            Entry::Occupied(mut entry) => entry.get_mut().take(seen),
        }
    }

    /// Forgets the peer that was heard of least recently where there are too many.
    fn make_room(&mut self, peer: IpAddr, now: Instant) {
        if self.peers.len() < MAX_PEERS || self.peers.contains_key(&peer) {
            return;
        }
        self.peers.retain(|_, sender| now.saturating_duration_since(sender.seen) < REMEMBERED);
        if self.peers.len() >= MAX_PEERS
            && let Some(oldest) = self.peers.iter().min_by_key(|(_, sender)| sender.seen).map(|(peer, _)| *peer)
        {
            self.peers.remove(&oldest);
        }
    }
}

impl Sender {
    /// Notes a host that the peer names, and returns where it is called other than the one that the peer named before.
    fn name<'a>(&mut self, host: &Host<'a>, now: Instant) -> Option<(String, &'a str)> {
        let [id, name, node] = self.host.each_ref().map(|known| Some(&**known).filter(|known| !known.is_empty()));
        let known = Host { id, name, node };
        let fresh = now.saturating_duration_since(self.host_seen) < REMEMBERED;
        if let Some((one, other)) = known.difference(host).filter(|_| fresh) {
            return Some((one.to_owned(), other));
        }
        self.host_seen = now;
        for (known, said) in self.host.iter_mut().zip([host.id, host.name, host.node]) {
            if let Some(said) = said.map(shortened).filter(|said| known != said) {
                said.clone_into(known);
            }
        }
        None
    }
}

fn shortened(text: &str) -> &str {
    let end = (0..=MAX_NAME.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}

/// A name that somebody else chose, as it may stand in the log: short, and without characters that control a terminal.
fn shown(text: &str) -> String {
    format!("{:?}", shortened(text))
}

#[cfg(test)]
mod tests;
