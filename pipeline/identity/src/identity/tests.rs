use profbridge_model::Builder;
use profbridge_model::builder::Any;

use super::*;

const ALL: [IdentityKind; 3] = [IdentityKind::Container, IdentityKind::Host, IdentityKind::Instance];

fn of(attributes: &[(&str, Any<'_>)], peer: Option<&str>, kinds: &[IdentityKind]) -> Identity {
    let mut builder = Builder::new();
    builder.resource(attributes);
    let batch = builder.finish().unwrap();
    identify(batch.dictionary(), batch.resources()[0].resource.attributes.iter(), peer, kinds)
}

fn strong(attributes: &[(&str, Any<'_>)]) -> u128 {
    let identity = of(attributes, Some("peer"), &ALL);
    assert_eq!(identity.strength, IdentityStrength::Strong, "{attributes:?}");
    identity.hash
}

/// Guarantees: the first complete tuple decides, whatever else is known and whoever sent the data.
#[test]
fn the_first_complete_tuple() {
    let container = strong(&[("container.id", "c".into()), ("process.pid", 7.into())]);
    let more = [
        ("process.pid", 7.into()),
        ("host.id", "h".into()),
        ("service.instance.id", "i".into()),
        ("container.id", "c".into()),
    ];
    assert_eq!(strong(&more), container);
    let host = strong(&[("host.id", "h".into()), ("process.pid", 7.into())]);
    assert_eq!(
        strong(&[("service.instance.id", "i".into()), ("process.pid", 7.into()), ("host.id", "h".into())]),
        host
    );
    let name = strong(&[("host.name", "h".into()), ("process.pid", 7.into())]);
    assert_ne!(name, host);
    // A container without a pid is incomplete.
    let instance = strong(&[("service.instance.id", "i".into())]);
    assert_eq!(strong(&[("container.id", "c".into()), ("service.instance.id", "i".into())]), instance);
    assert_ne!(strong(&[("container.id", "c".into()), ("process.pid", 8.into())]), container);
    assert_eq!(strong(&[("container.id", "c".into()), ("process.pid", "7".into())]), container);
}

/// Guarantees: each name of a host distinguishes hosts, so machines with one id (copies of an image), one name or one
/// node are not confused. Nor are the pods and containers of a host, each of which has its own numbering of processes.
#[test]
fn every_name_of_a_host_counts() {
    let keys = ["host.id", "host.name", "k8s.node.name", "k8s.pod.uid", "k8s.container.name"];
    let of = |values: [&'static str; 5]| {
        let mut attributes: Vec<(&str, Any<'_>)> = vec![("process.pid", 7.into())];
        attributes.extend(keys.into_iter().zip(values).map(|(key, value)| (key, value.into())));
        strong(&attributes)
    };
    let same = ["x"; 5];
    for at in 0..keys.len() {
        let (mut other, mut unsaid) = (same, same);
        (other[at], unsaid[at]) = ("y", "");
        assert_ne!(of(same), of(other), "{}", keys[at]);
        assert_ne!(of(same), of(unsaid), "{}", keys[at]);
    }
    strong(&[("k8s.node.name", "n".into()), ("process.pid", 7.into())]);
    // A pod is not a host: each of its containers may have a process with this number.
    let pod = [("k8s.pod.uid", "p".into()), ("k8s.container.name", "c".into()), ("process.pid", 7.into())];
    assert_eq!(self::of(&pod, None, &ALL).strength, IdentityStrength::Weak);
}

/// Guarantees: names of services and executables are not part of a strong identity, but the start time is.
#[test]
fn names_do_not_identify() {
    let plain = strong(&[("host.id", "h".into()), ("process.pid", 7.into())]);
    let named = [
        ("host.id", "h".into()),
        ("process.pid", 7.into()),
        ("service.name", "checkout".into()),
        ("process.executable.name", "python".into()),
    ];
    assert_eq!(strong(&named), plain);
    let start = |time: &str| {
        strong(&[("host.id", "h".into()), ("process.pid", 7.into()), ("process.creation.time", time.into())])
    };
    assert_ne!(start("2026-01-01T00:00:00Z"), plain);
    assert_ne!(start("2026-01-01T00:00:00Z"), start("2026-01-01T00:00:01Z"));
}

/// Guarantees: if the sampler provides a session id, it alone distinguishes the programs that one process executes one
/// after the other.
#[test]
fn sessions_of_one_process() {
    let session =
        |id: &str| strong(&[("host.id", "h".into()), ("process.pid", 7.into()), ("profbridge.session.id", id.into())]);
    assert_ne!(session("a"), session("b"));
    assert_ne!(session("a"), strong(&[("host.id", "h".into()), ("process.pid", 7.into())]));
    assert_eq!(session("a"), session("a"));
    // The wall clock may be set between two readings of a process's start time.
    let started = |time: &str| {
        strong(&[
            ("host.id", "h".into()),
            ("process.pid", 7.into()),
            ("process.creation.time", time.into()),
            ("profbridge.session.id", "a".into()),
        ])
    };
    assert_eq!(started("2026-01-01T00:00:00Z"), started("2026-01-01T00:00:01Z"));
}

/// Guarantees: an incomplete identity is weak, belongs to one peer, and differs if any attribute differs.
#[test]
fn weak_ones_are_never_merged() {
    let weak = |attributes: &[(&str, Any<'_>)], peer| {
        let identity = of(attributes, peer, &ALL);
        assert_eq!(identity.strength, IdentityStrength::Weak);
        identity.hash
    };
    let a = weak(&[("service.name", "a".into()), ("process.pid", 7.into())], Some("10.0.0.1"));
    assert_eq!(weak(&[("process.pid", 7.into()), ("service.name", "a".into())], Some("10.0.0.1")), a);
    assert_ne!(weak(&[("service.name", "a".into()), ("process.pid", 7.into())], Some("10.0.0.2")), a);
    assert_ne!(weak(&[("service.name", "b".into()), ("process.pid", 7.into())], Some("10.0.0.1")), a);
    assert_ne!(weak(&[("service.name", "a".into()), ("process.pid", 8.into())], Some("10.0.0.1")), a);
    assert_ne!(weak(&[], None), weak(&[], Some("")));
    assert_eq!(
        weak(&[("container.id", "".into()), ("process.pid", 7.into())], None),
        weak(&[("container.id", "".into()), ("process.pid", 7.into())], None)
    );
}

/// Guarantees: only the configured tuples count, in their configured order.
#[test]
fn tuples_can_be_chosen() {
    let attributes = [("container.id", "c".into()), ("host.id", "h".into()), ("process.pid", 7.into())];
    let host = strong(&[("host.id", "h".into()), ("process.pid", 7.into())]);
    assert_eq!(of(&attributes, None, &[IdentityKind::Host, IdentityKind::Container]).hash, host);
    assert_eq!(of(&attributes, None, &[IdentityKind::Instance]).strength, IdentityStrength::Weak);
}

/// Guarantees: the encoding does not change: Sentry stores these ids, and another version of profbridge running at the
/// same time has to compute the same. A change must increase the version.
/// rule: sample-format-v2#profiler-id
#[test]
fn ids_are_pinned() {
    let identity = of(&[("container.id", "c0ffee".into()), ("process.pid", 4711.into())], None, &ALL);
    let mut expected = b"profbridge identity 2\0\x01\x06\0\0\0c0ffee\x04\x08\0\0\0".to_vec();
    expected.extend_from_slice(&4711i64.to_le_bytes());
    assert_eq!(identity.hash, xxh3_128(&expected));
    assert_eq!(identity.profiler_id(0).to_string(), "88dc659ad2904accbd2d5975b2b756fd");
    assert_eq!(identity.profiler_id(1).to_string(), "ab2f127d4f55440080bd7c8c8eae76de");
}

/// Guarantees: an explicit profiler id takes precedence over every tuple, stays the same in every session and with any
/// other attributes, and differs from other ids; an invalid id is ignored.
/// rule: round-trip#profiler
#[test]
fn a_profiler_that_names_itself() {
    let (id, other) = ("00112233445546778899aabbccddeeff", "00112233-4455-4677-8899-AABBCCDDEE00");
    let host = [("host.id", "h".into()), ("process.pid", 7.into())];
    let named = |id: &'static str| {
        let attributes = [&host[..], &[("sentry.profiler_id", id.into())]].concat();
        of(&attributes, Some("peer"), &ALL)
    };
    let first = named(id);
    assert_eq!(first, of(&[("sentry.profiler_id", id.into())], None, &[]));
    assert_eq!(first.strength, IdentityStrength::Strong);
    assert_eq!([0, 7].map(|session| first.profiler_id(session).to_string()), [id, id]);
    assert_eq!(named(other).profiler_id(0).to_string(), "00112233445546778899aabbccddee00");
    assert_ne!(named(other).hash, first.hash);
    assert_eq!(named("not an id"), of(&host, Some("peer"), &ALL));
}
