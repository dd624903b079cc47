use std::net::Ipv4Addr;

use super::*;

const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 7));
const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 8));

fn id(id: &str) -> Host<'_> {
    Host { id: Some(id), name: None }
}

fn name(name: &str) -> Host<'_> {
    Host { id: None, name: Some(name) }
}

fn hosts<'a>(hosts: &[Host<'a>]) -> Told<'a> {
    Told { hosts: hosts.to_vec(), sightings: Vec::new() }
}

/// What a request says of process 42.
fn runs(executables: &[(&'static str, Option<(u64, u64)>)]) -> Told<'static> {
    let sighting = |&(executable, times): &(&'static str, _)| Sighting { pid: 42, executable, times };
    Told { hosts: Vec::new(), sightings: executables.iter().map(sighting).collect() }
}

/// Whether the last of these requests of one peer finds it to be one that passes on what others send.
fn relays(requests: &[Told<'_>]) -> bool {
    let (mut senders, now) = (Senders::default(), Instant::now());
    requests.iter().map(|told| senders.see(PEER, None, told, now)).last().flatten().is_some()
}

/// Guarantees: a peer that names two hosts, in one request or in two, passes on what they send; one that names one host in
/// several ways does not.
#[test]
fn several_hosts() {
    assert!(relays(&[hosts(&[name("a"), name("b")])]));
    assert!(relays(&[hosts(&[id("1")]), hosts(&[id("2")])]));
    assert!(relays(&[
        hosts(&[Host { id: Some("1"), name: Some("a") }]),
        hosts(&[Host { id: Some("2"), name: Some("a") }])
    ]));
    // The name was learned from the second.
    assert!(relays(&[hosts(&[id("1")]), hosts(&[Host { id: Some("1"), name: Some("a") }]), hosts(&[name("b")])]));
    assert!(!relays(&[hosts(&[name("a")]), hosts(&[name("a")])]));
    assert!(!relays(&[hosts(&[name("web-1"), name("WEB-1.example.com")])]));
    assert!(relays(&[hosts(&[name("web-1.example.com"), name("web-1.example.org")])]));
    assert!(!relays(&[hosts(&[id("1"), name("a")])]));
    assert!(!relays(&[hosts(&[])]));
}

/// Guarantees: a process id that executes two programs at once, or by turns, is of two machines; one whose program executes
/// another is of one.
#[test]
fn two_programs_at_once() {
    assert!(relays(&[runs(&[("sh", Some((10, 20))), ("python", Some((15, 30)))])]));
    assert!(relays(&[runs(&[("sh", Some((10, 20)))]), runs(&[("python", Some((12, 30)))])]));
    assert!(relays(&[runs(&[("sh", None)]), runs(&[("python", None)]), runs(&[("sh", None)])]));
    assert!(relays(&[runs(&[("sh", Some((1, 2)))]), runs(&[("python", Some((3, 4)))]), runs(&[("sh", Some((5, 6)))])]));
    assert!(!relays(&[runs(&[("sh", Some((10, 20))), ("python", Some((21, 30)))])]));
    assert!(!relays(&[runs(&[("sh", Some((10, 20)))]), runs(&[("sh", Some((5, 30)))])]));
    assert!(!relays(&[runs(&[("a", None)]), runs(&[("b", None)]), runs(&[("c", None)])]));
}

/// Guarantees: peers do not speak for each other, and one that was found out is trusted again when it gave no reason for ten
/// minutes.
#[test]
fn peers_are_remembered_for_a_while() {
    let (mut senders, now) = (Senders::default(), Instant::now());
    let two = hosts(&[name("a"), name("b")]);
    assert!(senders.see(PEER, None, &two, now).unwrap().contains("\"a\" and \"b\""));
    assert_eq!(senders.see(OTHER, None, &hosts(&[name("c")]), now), None);
    let later = |seconds| now + Duration::from_secs(seconds);
    assert!(senders.see(PEER, None, &hosts(&[]), later(600)).is_some());
    assert_eq!(senders.see(PEER, None, &hosts(&[]), later(601)), None);
    // It has moved to another machine meanwhile.
    assert_eq!(senders.see(PEER, None, &hosts(&[name("d")]), later(1300)), None);
}

/// Guarantees: a peer on this machine that names another one passes on what that sends; what it calls this one does not matter.
#[test]
fn local_peers() {
    let this = Some(Host { id: Some("f00d"), name: Some("web-1") });
    for (said, foreign) in [
        (name("web-2"), true),
        (name("web-1"), false),
        (name("web-1.example.com"), false),
        (id("f00d"), false),
        (id("cafe"), true),
        (Host { id: Some("i-0abc"), name: Some("web-1") }, false),
        (Host { id: Some("f00d"), name: Some("else") }, false),
    ] {
        let mut senders = Senders::default();
        let found = senders.see(PEER, this, &hosts(&[said]), Instant::now());
        assert_eq!(found.is_some(), foreign, "{said:?}");
    }
}

/// Guarantees: what is remembered has a bound, whoever sends what, and the newest is remembered.
#[test]
fn memory_is_bounded() {
    let (mut senders, now) = (Senders::default(), Instant::now());
    for number in 0..2 * MAX_PEERS as u32 {
        let peer = IpAddr::V4(Ipv4Addr::from(number));
        senders.see(peer, None, &hosts(&[name(&"n".repeat(100_000))]), now + Duration::from_millis(number.into()));
    }
    assert!(senders.peers.len() <= MAX_PEERS);
    assert!(senders.peers.contains_key(&IpAddr::V4(Ipv4Addr::from(2 * MAX_PEERS as u32 - 1))));
    assert!(senders.peers.values().all(|sender| sender.host.1.len() <= MAX_NAME));
    let all = (0..3 * MAX_PROCESSES as i64).map(|pid| Sighting { pid, executable: "x", times: None }).collect();
    senders.see(PEER, None, &Told { hosts: Vec::new(), sightings: all }, now);
    assert!(senders.processes.len() <= MAX_PROCESSES);
}

/// Guarantees: what a sender writes cannot control the terminal that shows the log, nor fill it.
#[test]
fn names_are_harmless_in_the_log() {
    let mut senders = Senders::default();
    let evil = format!("\u{1b}[2J\n\u{202e}{}", "x".repeat(10_000));
    let why = senders.see(PEER, None, &hosts(&[name(&evil), name("b")]), Instant::now()).unwrap();
    assert!(why.len() < 1000 && !why.contains(|c: char| c.is_control() || c == '\u{202e}'), "{why:?}");
}
