use bytes::Bytes;
use profbridge_identity::{IdentityKind, Rules};
use profbridge_model::builder::Any;
use profbridge_model::{Builder, Envelope, Item, ItemView, Profiles, Quantities, Reason};
use profbridge_processor_sample::V1_EXEMPT;

use crate::support::{S, T, at, noted, process, profiles, sample, sample_with};

/// A profile of each of these processes, with one sample each.
fn batch(pids: impl Iterator<Item = i64>, time: u64) -> Profiles {
    let mut builder = Builder::new();
    for pid in pids {
        builder.resource(&[("container.id", "c1".into()), ("process.pid", pid.into())]);
        builder.on_cpu(20);
        builder.sample(None, None, None, &[time], &[]);
    }
    builder.finish().unwrap()
}

/// The processes whose profiles were kept.
fn kept(yaml: &str, rules: &Rules, batch: Profiles) -> Vec<i64> {
    let out = process(&mut sample_with(yaml, rules), batch.clone(), at(0));
    let left: Vec<Profiles> = profiles(&out);
    let lost = out.losses.get(Reason::SampleRate).observations;
    assert_eq!(left.iter().map(Profiles::observations).sum::<u64>() + lost, batch.observations());
    let pid = |batch: &Profiles, attributes: &[profbridge_model::Attribute]| match batch.find(attributes, "process.pid")
    {
        Some(profbridge_model::Value::Int(pid)) => *pid,
        other => panic!("{other:?}"),
    };
    left.iter().flat_map(|batch| batch.resources().iter().map(|of| pid(batch, &of.resource.attributes))).collect()
}

/// Guarantees: a rate keeps about its share of sessions. The decision is the same in every replica and at all times
/// within a session, and a higher rate keeps the sessions that a lower one keeps.
/// rule: profiles-sdk#session-sample-rate
#[test]
fn sessions_are_kept_or_not() {
    let rules = Rules::default();
    let of = |rate: f64, time| kept(&format!("profile_session_sample_rate: {rate}"), &rules, batch(0..2000, time));
    let (fifth, half) = (of(0.2, T), of(0.5, T));
    assert!((325..475).contains(&fifth.len()) && (900..1100).contains(&half.len()), "{} {}", fifth.len(), half.len());
    assert_eq!(fifth, of(0.2, T + 86_400 * S));
    assert!(fifth.iter().all(|pid| half.contains(pid)));
    assert_eq!((of(0.0, T).len(), of(1.0, T).len()), (0, 2000));
}

/// Guarantees: with limited session length, each session is decided independently.
/// rule: profiles-sdk#session
#[test]
fn each_session_is_decided_anew() {
    let rules = Rules { session: 3600 * S, kinds: vec![IdentityKind::Container], ..Rules::default() };
    let of = |time| kept("profile_session_sample_rate: 0.5", &rules, batch(0..500, time));
    let (first, second) = (of(T), of(T + 7200 * S));
    assert_ne!(first, second);
    assert!(first.iter().filter(|pid| second.contains(pid)).count() > 60);
}

/// Guarantees: processes that are identified only by sample attributes are decided individually.
#[test]
fn processes_of_samples() {
    let mut builder = Builder::new();
    builder.resource(&[("container.id", "c1".into())]);
    builder.on_cpu(20);
    for pid in 0..200 {
        let attributes = builder.attributes(&[("process.pid", pid.into())]);
        builder.sample(None, attributes, None, &[T], &[]);
    }
    let all = builder.finish().unwrap();
    let out = process(&mut sample("profile_session_sample_rate: 0.5"), all, at(0));
    let alone = kept("profile_session_sample_rate: 0.5", &Rules::default(), batch(0..200, T));
    assert_eq!(profiles(&out)[0].observations(), alone.len() as u64);
}

/// A profile of format V1.
fn v1() -> Profiles {
    let mut builder = Builder::new();
    builder.resource(&[("sentry.profiler_id", "00112233445546778899aabbccddeeff".into())]);
    builder.on_cpu(101);
    let attributes = builder.attributes(&[("sentry.transaction.id", Any::Str("1"))]);
    builder.open_profile().unwrap().attributes = attributes;
    builder.sample(None, None, None, &[T, T + 1], &[]);
    builder.finish().unwrap()
}

/// Guarantees: profiles of format V1 are exempt, alone and in envelopes, and are counted.
/// rule: profiles-sdk#profiles-sample-rate
#[test]
fn v1_is_exempt() {
    let mut sample = sample("profile_session_sample_rate: 0");
    let out = process(&mut sample, v1(), at(0));
    assert_eq!((profiles(&out).len(), noted(&out, V1_EXEMPT)), (1, 1));
    let item = Item { header: Bytes::from_static(b"{\"type\":\"profile\"}"), payload: Bytes::new().into() };
    let envelope = Envelope { items: vec![item], views: vec![ItemView::profiles(0, v1())], ..Envelope::default() };
    let out = process(&mut sample, envelope, at(0));
    assert_eq!((profiles(&out)[0].observations(), out.losses.is_none()), (2, true));
}

/// Guarantees: an SDK's chunk in an envelope belongs to the session that the chunk names, and is dropped if that
/// session is not sampled.
/// rule: profiles-sdk#session-sample-rate
#[test]
fn chunks_in_envelopes() {
    let envelope = |number: u128| {
        let mut builder = Builder::new();
        builder.resource(&[("sentry.profiler_id", (&format!("{number:032x}")).into())]);
        builder.on_cpu(101);
        builder.sample(None, None, None, &[T, T + 1], &[]);
        let item = Item { header: Bytes::from_static(b"{\"type\":\"profile_chunk\"}"), payload: Bytes::new().into() };
        Envelope {
            items: vec![item],
            views: vec![ItemView::profiles(0, builder.finish().unwrap())],
            ..Envelope::default()
        }
    };
    let mut sample = sample("profile_session_sample_rate: 0.5");
    let mut left = 0;
    for number in 1..=200 {
        let out = process(&mut sample, envelope(number), at(0));
        let again = process(&mut sample, envelope(number), at(S));
        assert_eq!(out.telemetry.len(), again.telemetry.len());
        let lost = if out.telemetry.is_empty() { Quantities::observations(2) } else { Quantities::NONE };
        assert_eq!(out.losses.get(Reason::SampleRate), lost);
        left += out.telemetry.len();
    }
    assert!((60..140).contains(&left), "{left}");
}
