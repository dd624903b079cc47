//! What is known of the peers that send: whether one passes on the profiles of several machines.
//!
//! A Collector in front of many machines is one peer. Where its profiles do not say whose they are, processes of different
//! machines cannot be told apart, although their ids are equal. Such a peer gives itself away: it names several hosts, or one
//! process id executes two programs at the same time. A program that executes another one is not taken for that: the second
//! begins where the first ends.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// For so long a peer is taken for what it gave itself away as.
const REMEMBERED: Duration = Duration::from_secs(600);

/// So many peers and processes are remembered. Beyond that some are forgotten: about 3 MiB at most.
const MAX_PEERS: usize = 4096;
const MAX_PROCESSES: usize = 32_768;

/// Longer names are no names of hosts, in bytes (RFC 1035: 255).
const MAX_NAME: usize = 256;

/// The names of a host, as far as they are said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Host<'a> {
    /// `host.id`.
    pub(crate) id: Option<&'a str>,
    /// `host.name`.
    pub(crate) name: Option<&'a str>,
}

impl<'a> Host<'a> {
    pub(crate) fn is_named(&self) -> bool {
        self.id.is_some() || self.name.is_some()
    }

    /// What people call it.
    fn label(&self) -> &'a str {
        self.name.or(self.id).unwrap_or_default()
    }

    /// Whether both say the same of what both say; the id decides where both have one.
    fn differs(&self, other: &Host<'_>) -> bool {
        match (self.id.zip(other.id), self.name.zip(other.name)) {
            (Some((one, other)), _) => one != other,
            (None, Some((one, other))) => !same_name(one, other),
            (None, None) => false,
        }
    }

    /// Whether it is another machine than this one, which some know by the id that its cloud gave it.
    fn is_foreign(&self, this: &Host<'_>) -> bool {
        let same = self.name.zip(this.name).is_some_and(|(one, other)| same_name(one, other));
        !same && self.differs(this)
    }
}

/// Whether two names are of one host: `web-1` and `web-1.example.com` are.
fn same_name(one: &str, other: &str) -> bool {
    let first = |name: &str| name.split('.').next().unwrap_or_default().to_ascii_lowercase();
    let short = !one.contains('.') || !other.contains('.');
    one.eq_ignore_ascii_case(other) || (short && first(one) == first(other))
}

/// A process that nothing but its id tells apart, in one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sighting<'a> {
    pub(crate) pid: i64,
    pub(crate) executable: &'a str,
    /// The first and the last time that it was observed, in nanoseconds since the Unix epoch; `None` where none is said.
    pub(crate) times: Option<(u64, u64)>,
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
    /// The host that it named last; an id or name that is not known is empty.
    host: (String, String),
    host_seen: Instant,
    /// Until when it counts as one that passes on what several machines send, and why.
    relays: Option<(Instant, String)>,
    seen: Instant,
}

/// A process of a peer.
#[derive(Debug, Clone, Copy)]
struct Process {
    /// What it executes, as a hash, and what it executed before.
    executable: u64,
    before: Option<u64>,
    /// When it was last observed, in nanoseconds since the Unix epoch; 0 where that is not known.
    latest: u64,
}

/// The peers of a receiver.
#[derive(Debug, Default)]
pub(crate) struct Senders {
    peers: HashMap<IpAddr, Sender>,
    processes: HashMap<(IpAddr, i64), Process>,
}

impl Senders {
    /// Takes in what a request says, and returns why its peer is taken for one that passes on what several machines send, if it is.
    /// `this` is the machine of the peer where that is known.
    pub(crate) fn see(
        &mut self,
        peer: IpAddr,
        this: Option<Host<'_>>,
        told: &Told<'_>,
        now: Instant,
    ) -> Option<String> {
        let two_programs = told.sightings.iter().find_map(|sighting| self.conflict(peer, sighting));
        self.make_room(peer, now);
        let new = || Sender { host: Default::default(), host_seen: now, relays: None, seen: now };
        let sender = self.peers.entry(peer).or_insert_with(new);
        sender.seen = now;
        let mut why = two_programs;
        for host in &told.hosts {
            if let Some(this) = this.filter(|this| host.is_foreign(this)) {
                why =
                    Some(format!("it names the host {}, and this one is {}", shown(host.label()), shown(this.label())));
            } else if let Some(other) = sender.name(host, now) {
                why = Some(format!("it names the hosts {} and {}", shown(&other), shown(host.label())));
            }
        }
        if let Some(why) = why {
            sender.relays = Some((now + REMEMBERED, why));
        }
        sender.relays.take_if(|(until, _)| *until < now);
        sender.relays.as_ref().map(|(_, why)| why.clone())
    }

    /// Notes what a process executes, and says what speaks against its being one process.
    fn conflict(&mut self, peer: IpAddr, sighting: &Sighting<'_>) -> Option<String> {
        let mut hasher = DefaultHasher::new();
        sighting.executable.hash(&mut hasher);
        let executable = hasher.finish();
        if self.processes.len() >= MAX_PROCESSES && !self.processes.contains_key(&(peer, sighting.pid)) {
            self.processes = HashMap::new();
        }
        let (first, last) = sighting.times.unwrap_or((u64::MAX, 0));
        let new = Process { executable, before: None, latest: last };
        let known = self.processes.entry((peer, sighting.pid)).or_insert(new);
        if known.executable == executable {
            known.latest = known.latest.max(last);
            return None;
        }
        // It is back at what it executed before, or it began with one program before the other had ended.
        let conflict = known.before == Some(executable) || first < known.latest;
        *known = Process { executable, before: Some(known.executable), latest: known.latest.max(last) };
        let program = shown(sighting.executable);
        conflict.then(|| format!("process {} executes {program} and at the same time something else", sighting.pid))
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
    /// Notes a host that the peer names, and returns the one that it named before where that is another one.
    fn name(&mut self, host: &Host<'_>, now: Instant) -> Option<String> {
        let (id, name) = &self.host;
        let known =
            Host { id: Some(&**id).filter(|id| !id.is_empty()), name: Some(&**name).filter(|name| !name.is_empty()) };
        let fresh = now.saturating_duration_since(self.host_seen) < REMEMBERED;
        if fresh && known.is_named() && known.differs(host) {
            let other = known.label().to_owned();
            return Some(other);
        }
        self.host_seen = now;
        if let Some(id) = host.id.filter(|id| known.id != Some(id)) {
            self.host.0 = shortened(id).to_owned();
        }
        if let Some(name) = host.name.filter(|name| self.host.1 != **name) {
            self.host.1 = shortened(name).to_owned();
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
