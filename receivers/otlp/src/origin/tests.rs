use std::net::Ipv4Addr;

use bytes::Bytes;
use profbridge_model::Builder;
use profbridge_model::builder::Any;

use super::*;

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const REMOTE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 7));

type AttributeList = Vec<(&'static str, Any<'static>)>;

fn this() -> ThisHost {
    ThisHost { id: Some("f00d".to_owned()), name: Some("web-1".to_owned()) }
}

fn origin(host: ThisHost, insert: &[(&str, &str)]) -> HostAttribution {
    let insert = insert.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    HostAttribution::new("otlp".to_owned(), ResourceSettings { local_host: true, insert }, host)
}

/// The attributes of a process as the eBPF profiler sends them.
fn process(executable: &'static str) -> AttributeList {
    vec![("process.pid", 42.into()), ("process.executable.path", executable.into())]
}

fn on_host(name: &'static str) -> AttributeList {
    vec![("host.name", name.into()), ("process.pid", 42.into())]
}

/// A batch with one resource per list of attributes, each with one sample at a different time.
fn batch(resources: &[AttributeList]) -> Profiles {
    let mut builder = Builder::new();
    for (at, attributes) in resources.iter().enumerate() {
        builder.resource(attributes);
        builder.on_cpu(20);
        builder.sample(None, None, None, &[1000 + at as u64, 2000 + at as u64], &[]);
    }
    let mut batch = builder.finish().unwrap();
    batch.received = Some(Bytes::from_static(b"request"));
    batch
}

fn take(origin: &HostAttribution, peer: IpAddr, batch: Profiles) -> Profiles {
    let findings = origin.examine_batch(&batch, peer, Instant::now());
    origin.apply_findings(batch, &findings).unwrap()
}

/// The value of a resource's attribute.
fn get<'a>(batch: &'a Profiles, resource: usize, key: &str) -> Option<&'a str> {
    match batch.find(&batch.resources()[resource].resource.attributes, key)? {
        Value::String(id) => Some(batch.dictionary().string(*id)),
        other => panic!("{other:?}"),
    }
}

fn hosts(batch: &Profiles) -> Vec<(Option<&str>, Option<&str>)> {
    let of = |at| (get(batch, at, "host.id"), get(batch, at, "host.name"));
    (0..batch.resources().len()).map(of).collect()
}

/// Guarantees: profiles from any loopback address that name no host get the id and name of this host; those that name a
/// host, even only in samples, keep it; profiles of other peers stay unchanged.
#[test]
fn local_peers_are_this_machine() {
    let named = (Some("f00d"), Some("web-1"));
    for peer in ["127.0.0.1", "127.8.8.8", "::1"] {
        let taken = take(&origin(this(), &[]), peer.parse().unwrap(), batch(&[process("/a"), on_host("web-1")]));
        assert_eq!(hosts(&taken), [named, (None, Some("web-1"))], "{peer}");
        assert!(taken.received.is_none() && !taken.relayed);
    }
    let taken = take(&origin(this(), &[]), REMOTE, batch(&[process("/a")]));
    assert_eq!((hosts(&taken), taken.received.is_some()), (vec![(None, None)], true));

    let mut builder = Builder::new();
    builder.resource(&[]);
    builder.on_cpu(20);
    let attributes = builder.attributes(&on_host("web-1"));
    builder.sample(None, attributes, None, &[1], &[]);
    let taken = take(&origin(this(), &[]), LOOPBACK, builder.finish().unwrap());
    assert_eq!(hosts(&taken), [(None, None)]);
}

/// Guarantees: a container without a machine id adds only its name, and a host without names adds nothing.
#[test]
fn hosts_without_an_id() {
    let pod = ThisHost { id: None, name: Some("pod-7".to_owned()) };
    assert_eq!(hosts(&take(&origin(pod, &[]), LOOPBACK, batch(&[process("/a")]))), [(None, Some("pod-7"))]);
    let taken = take(&origin(ThisHost::default(), &[]), LOOPBACK, batch(&[process("/a")]));
    assert_eq!((hosts(&taken), taken.received.is_some()), (vec![(None, None)], true));
    let settings = ResourceSettings { local_host: false, insert: Vec::new() };
    let off = HostAttribution::new("otlp".to_owned(), settings, this());
    assert_eq!(hosts(&take(&off, LOOPBACK, batch(&[process("/a")]))), [(None, None)]);
}

/// Guarantees: configured attributes are added to resources of every peer that lack them, and do not change existing
/// ones; if a host is configured, this machine's names are not added.
#[test]
fn configured_attributes_are_inserted() {
    let insert = [("deployment.environment.name", "staging"), ("host.id", "node-3")];
    let named = vec![("host.id", "own".into()), ("deployment.environment.name", "own".into())];
    for peer in [LOOPBACK, REMOTE] {
        let taken = take(&origin(this(), &insert), peer, batch(&[process("/a"), named.clone()]));
        assert_eq!(get(&taken, 0, "deployment.environment.name"), Some("staging"));
        assert_eq!(get(&taken, 1, "deployment.environment.name"), Some("own"));
        assert_eq!(hosts(&taken)[0], (Some("node-3"), None));
        assert_eq!(hosts(&taken)[1], (Some("own"), None));
    }
    // If nothing is missing, the request stays unchanged.
    let complete = take(&origin(this(), &insert), REMOTE, batch(&[named]));
    assert_eq!(complete.received.as_deref(), Some(&b"request"[..]));
}

/// Guarantees: a peer that forwards the profiles of several machines is marked from the first request that proves it,
/// and its profiles do not get this host's name; other peers are not marked.
#[test]
fn relaying_peers_are_marked() {
    let (a, b) = (process("/usr/bin/a"), process("/usr/bin/b"));
    for peer in [LOOPBACK, REMOTE] {
        let two_hosts = [on_host("web-2"), on_host("web-3"), a.clone()];
        for report in [batch(&two_hosts), batch(&[a.clone(), b.clone()])] {
            let origin = origin(this(), &[]);
            let taken = take(&origin, peer, report);
            assert!(taken.relayed && hosts(&taken).iter().all(|(id, _)| id.is_none()), "{:?}", hosts(&taken));
            let later = take(&origin, peer, batch(std::slice::from_ref(&a)));
            assert_eq!((later.relayed, hosts(&later), later.received.is_some()), (true, vec![(None, None)], true));
        }
        let origin = origin(this(), &[]);
        assert!(!take(&origin, peer, batch(std::slice::from_ref(&a))).relayed);
        // Attributes of samples have the same effect as those of resources.
        let mut builder = Builder::new();
        for (executable, time) in [("/usr/bin/a", 10), ("/usr/bin/b", 15), ("/usr/bin/a", 20)] {
            let attributes = builder.attributes(&process(executable));
            builder.sample(None, attributes, None, &[time], &[]);
        }
        assert!(take(&origin, peer, builder.finish().unwrap()).relayed);
    }
    let signal_forwarder = origin(this(), &[("host.id", "node-3")]);
    assert!(!take(&signal_forwarder, REMOTE, batch(&[a, b])).relayed, "what has a host cannot be mixed up");
}

/// Guarantees: if processes of a loopback peer name two hosts, in whichever attribute, their profiles do not get this
/// host's name, and those without a host are marked; the same applies if only the services differ, and the log reports
/// it. A service that is named late, by an SDK's placeholder, or by a matching variable is no difference.
#[test]
fn two_hosts_behind_the_loopback() {
    let with = |more: &[(&'static str, &'static str)]| -> AttributeList {
        process("/a").into_iter().chain(more.iter().map(|&(key, value)| (key, value.into()))).collect()
    };
    for [one, other] in [
        [with(&[("k8s.node.name", "n-1")]), with(&[("k8s.node.name", "n-2")])],
        [with(&[("host.id", "f00d"), ("host.name", "web-1")]), with(&[("host.id", "f00d"), ("host.name", "web-2")])],
    ] {
        let taken = take(&origin(this(), &[]), LOOPBACK, batch(&[one, other, process("/a")]));
        assert!(taken.relayed, "{:?}", hosts(&taken));
        assert_eq!(get(&taken, 0, "host.id"), get(&taken, 1, "host.id"));
        assert_eq!(get(&taken, 2, "host.id"), None);
    }
    let services = |one: &[(&'static str, &'static str)], other: &[(&'static str, &'static str)]| {
        let (origin, batch) = (origin(this(), &[]), batch(&[with(one), with(other)]));
        let findings = origin.examine_batch(&batch, LOOPBACK, Instant::now());
        (findings.relayed, findings.warning)
    };
    let (name, variable) = ("service.name", "process.environment_variable.OTEL_SERVICE_NAME");
    for key in [name, variable] {
        let (relayed, warning) = services(&[(key, "shop")], &[(key, "mail")]);
        let warning = warning.unwrap();
        assert!(
            relayed && warning.contains("process 42 is of the service") && warning.contains("host.id"),
            "{warning}"
        );
    }
    for (one, other) in [
        (&[][..], &[(name, "shop")][..]),
        (&[(name, "unknown_service:python")], &[(name, "shop")]),
        (&[(variable, "shop")], &[(name, "shop"), (variable, "other")]),
        (&[(name, "shop"), ("k8s.pod.uid", "p-1")], &[(name, "mail"), ("k8s.pod.uid", "p-2")]),
    ] {
        assert_eq!(services(one, other), (false, None), "{one:?} {other:?}");
    }
}

/// Guarantees: if profiles cannot be attributed, the log reports it once a minute, with the peer, the reason, the
/// number of observations and advice; if all profiles name their host, nothing is logged.
#[test]
fn a_warning_a_minute() {
    let origin = origin(this(), &[]);
    let (now, minute) = (Instant::now(), Duration::from_secs(60));
    let mixed = batch(&[on_host("web-2"), on_host("web-3"), process("/a")]);
    let warning_at = |at| origin.examine_batch(&mixed, REMOTE, at).warning;
    let first = warning_at(now).unwrap();
    for part in ["10.0.0.7", "\"web-2\" and \"web-3\"", " 2 observations", "resource: {insert: {host.id: ...}}"] {
        assert!(first.contains(part), "{first}");
    }
    assert_eq!(warning_at(now + minute / 2), None);
    assert!(warning_at(now + minute).unwrap().contains(" 4 observations"));
    let named = batch(&[on_host("web-2"), on_host("web-3")]);
    assert_eq!(origin.examine_batch(&named, REMOTE, now + 2 * minute).warning, None);
}

/// Guarantees: the memory for added attributes is estimated before it is taken.
#[test]
fn memory_is_asked_for() {
    let origin = origin(this(), &[]);
    let before = batch(&vec![process("/a"); 1000]);
    let findings = origin.examine_batch(&before, LOOPBACK, Instant::now());
    // Each resource has two existing and two added attributes.
    assert_eq!(findings.memory(&before), 4000 * size_of::<Attribute>());
    let capacity = |batch: &Profiles| -> usize {
        batch.resources().iter().map(|resource| resource.resource.attributes.capacity()).sum()
    };
    assert_eq!(capacity(&origin.apply_findings(before, &findings).unwrap()), 4000);
}
