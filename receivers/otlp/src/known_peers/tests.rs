use std::net::Ipv4Addr;

use super::*;

const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 7));
const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 8));

fn id(id: &str) -> HostNames<'_> {
    HostNames { id: Some(id), ..HostNames::default() }
}

fn name(name: &str) -> HostNames<'_> {
    HostNames { name: Some(name), ..HostNames::default() }
}

fn both<'a>(id: &'a str, name: &'a str) -> HostNames<'a> {
    HostNames { id: Some(id), name: Some(name), node: None }
}

fn node(node: &str) -> HostNames<'_> {
    HostNames { node: Some(node), ..HostNames::default() }
}

fn hosts<'a>(hosts: &[HostNames<'a>]) -> PeerReport<'a> {
    PeerReport { hosts: hosts.to_vec(), sightings: Vec::new() }
}

/// A request that reports programs of process 42.
fn reports_programs(executables: &[(&'static str, Option<(u64, u64)>)]) -> PeerReport<'static> {
    seen(ProcessTrait::Executable, [None; 2], executables)
}

/// A request that reports services of process 42.
fn reports_services(services: &[(&'static str, Option<(u64, u64)>)]) -> PeerReport<'static> {
    seen(ProcessTrait::Service, [None; 2], services)
}

fn seen(
    of: ProcessTrait,
    pod_and_container: [Option<&'static str>; 2],
    values: &[(&'static str, Option<(u64, u64)>)],
) -> PeerReport<'static> {
    let sighting = |&(value, times): &(&'static str, _)| TraitSighting { pid: 42, pod_and_container, of, value, times };
    PeerReport { hosts: Vec::new(), sightings: values.iter().map(sighting).collect() }
}

/// Whether the last of these requests makes the peer count as a relay.
fn relays(requests: &[PeerReport<'_>]) -> bool {
    let (mut known_peers, now) = (KnownPeers::default(), Instant::now());
    requests.iter().map(|report| known_peers.record_report(PEER, None, report, now)).last().flatten().is_some()
}

/// Guarantees: a peer that names two hosts, in one request or in two, counts as a relay; one that names a single host
/// in several ways does not.
#[test]
fn several_hosts() {
    assert!(relays(&[hosts(&[name("a"), name("b")])]));
    assert!(relays(&[hosts(&[id("1")]), hosts(&[id("2")])]));
    assert!(relays(&[hosts(&[both("1", "a")]), hosts(&[both("2", "a")])]));
    // The second request provided the missing name.
    assert!(relays(&[hosts(&[id("1")]), hosts(&[both("1", "a")]), hosts(&[name("b")])]));
    assert!(!relays(&[hosts(&[name("a")]), hosts(&[name("a")])]));
    assert!(!relays(&[hosts(&[name("web-1"), name("WEB-1.example.com")])]));
    assert!(relays(&[hosts(&[name("web-1.example.com"), name("web-1.example.org")])]));
    assert!(!relays(&[hosts(&[id("1"), name("a")])]));
    // Machines from one image have the same id but different names.
    assert!(relays(&[hosts(&[both("1", "a"), both("1", "b")])]));
    assert!(!relays(&[hosts(&[both("1", "a"), both("1", "a.example.com")])]));
    assert!(relays(&[hosts(&[node("n-1")]), hosts(&[node("n-2")])]));
    assert!(relays(&[hosts(&[
        HostNames { node: Some("n-1"), ..id("1") },
        HostNames { node: Some("n-2"), ..id("1") }
    ])]));
    assert!(!relays(&[hosts(&[node("n-1"), name("n-1"), node("n-1")])]));
    assert!(!relays(&[hosts(&[])]));
}

/// Guarantees: a process id that runs two programs at once or in turns belongs to two machines; if one program executes
/// the other, it belongs to one.
#[test]
fn two_programs_at_once() {
    assert!(relays(&[reports_programs(&[("sh", Some((10, 20))), ("python", Some((15, 30)))])]));
    assert!(relays(&[reports_programs(&[("sh", Some((10, 20)))]), reports_programs(&[("python", Some((12, 30)))])]));
    assert!(relays(&[
        reports_programs(&[("sh", None)]),
        reports_programs(&[("python", None)]),
        reports_programs(&[("sh", None)])
    ]));
    assert!(relays(&[
        reports_programs(&[("sh", Some((1, 2)))]),
        reports_programs(&[("python", Some((3, 4)))]),
        reports_programs(&[("sh", Some((5, 6)))])
    ]));
    assert!(!relays(&[reports_programs(&[("sh", Some((10, 20))), ("python", Some((21, 30)))])]));
    assert!(!relays(&[reports_programs(&[("sh", Some((10, 20)))]), reports_programs(&[("sh", Some((5, 30)))])]));
    assert!(!relays(&[
        reports_programs(&[("a", None)]),
        reports_programs(&[("b", None)]),
        reports_programs(&[("c", None)])
    ]));
    // Late and repeated reports do not count.
    let late = reports_programs(&[("sh", Some((12, 20)))]);
    assert!(!relays(&[
        reports_programs(&[("sh", Some((10, 20)))]),
        reports_programs(&[("python", Some((21, 30)))]),
        late
    ]));
    // After this long without an observation, the process id belongs to another process.
    let days = |first: u64, last: u64| Some((10 + first * 86_400_000_000_000, 10 + last * 86_400_000_000_000));
    let turns = ["sh", "python", "sh", "python"];
    let turns: Vec<_> =
        turns.into_iter().zip(1..).map(|(program, day)| reports_programs(&[(program, days(day, day))])).collect();
    assert!(!relays(&turns));
}

/// Guarantees: a process id with two services at once belongs to two machines; if its service was renamed, to one.
/// Programs and services are compared separately, and so are different pods and containers.
#[test]
fn two_services_at_once() {
    assert!(relays(&[reports_services(&[("shop", Some((10, 20))), ("mail", Some((10, 20)))])]));
    assert!(relays(&[reports_services(&[("shop", Some((10, 20)))]), reports_services(&[("mail", Some((15, 25)))])]));
    assert!(!relays(&[reports_services(&[("shop", Some((10, 20)))]), reports_services(&[("mail", Some((20, 30)))])]));
    assert!(!relays(&[reports_services(&[("shop", Some((10, 20)))]), reports_programs(&[("sh", Some((10, 20)))])]));
    let service_in =
        |pod, container, service| seen(ProcessTrait::Service, [pod, container], &[(service, Some((10, 20)))]);
    assert!(!relays(&[service_in(Some("a"), None, "shop"), service_in(Some("b"), None, "mail")]));
    assert!(!relays(&[service_in(Some("a"), Some("x"), "shop"), service_in(Some("a"), Some("y"), "mail")]));
    assert!(relays(&[service_in(Some("a"), Some("x"), "shop"), service_in(Some("a"), Some("x"), "mail")]));
}

/// Guarantees: each peer is judged separately, and a relay is trusted again after ten minutes without evidence.
#[test]
fn peers_are_remembered_for_a_while() {
    let (mut known_peers, now) = (KnownPeers::default(), Instant::now());
    let two = hosts(&[name("a"), name("b")]);
    assert!(known_peers.record_report(PEER, None, &two, now).unwrap().contains("\"a\" and \"b\""));
    assert_eq!(known_peers.record_report(OTHER, None, &hosts(&[name("c")]), now), None);
    let later = |seconds| now + Duration::from_secs(seconds);
    assert!(known_peers.record_report(PEER, None, &hosts(&[]), later(600)).is_some());
    assert_eq!(known_peers.record_report(PEER, None, &hosts(&[]), later(601)), None);
    // The peer has moved to another machine in the meantime.
    assert_eq!(known_peers.record_report(PEER, None, &hosts(&[name("d")]), later(1300)), None);
}

/// Guarantees: a loopback peer that names another machine counts as a relay; one that names this machine, in any way,
/// does not.
#[test]
fn local_peers() {
    let this = Some(both("f00d", "web-1"));
    for (names, foreign) in [
        (name("web-2"), true),
        (name("web-1"), false),
        (name("web-1.example.com"), false),
        (id("f00d"), false),
        (id("cafe"), true),
        (both("i-0abc", "web-1"), false),
        (both("f00d", "else"), false),
        (node("n-1"), false),
    ] {
        let mut known_peers = KnownPeers::default();
        let found = known_peers.record_report(PEER, this, &hosts(&[names]), Instant::now());
        assert_eq!(found.is_some(), foreign, "{names:?}");
    }
}

/// Guarantees: memory is bounded, whatever is sent, and the latest information is kept.
#[test]
fn memory_is_bounded() {
    let (mut known_peers, now) = (KnownPeers::default(), Instant::now());
    for number in 0..2 * MAX_PEERS as u32 {
        let peer = IpAddr::V4(Ipv4Addr::from(number));
        known_peers.record_report(
            peer,
            None,
            &hosts(&[name(&"n".repeat(100_000))]),
            now + Duration::from_millis(number.into()),
        );
    }
    assert!(known_peers.peers.len() <= MAX_PEERS);
    assert!(known_peers.peers.contains_key(&IpAddr::V4(Ipv4Addr::from(2 * MAX_PEERS as u32 - 1))));
    assert!(known_peers.peers.values().all(|sender| sender.host[1].len() <= MAX_NAME));
    let one =
        TraitSighting { pid: 0, pod_and_container: [None; 2], of: ProcessTrait::Executable, value: "x", times: None };
    let all = (0..3 * MAX_TRAITS as i64).map(|pid| TraitSighting { pid, ..one }).collect();
    known_peers.record_report(PEER, None, &PeerReport { hosts: Vec::new(), sightings: all }, now);
    assert!(known_peers.traits.len() <= MAX_TRAITS);
}

/// Guarantees: names from senders can neither control the terminal that shows the log nor fill the log.
#[test]
fn names_are_harmless_in_the_log() {
    let mut known_peers = KnownPeers::default();
    let evil = format!("\u{1b}[2J\n\u{202e}{}", "x".repeat(10_000));
    let why = known_peers.record_report(PEER, None, &hosts(&[name(&evil), name("b")]), Instant::now()).unwrap();
    assert!(why.len() < 1000 && !why.contains(|c: char| c.is_control() || c == '\u{202e}'), "{why:?}");
}
