use std::collections::BTreeSet;

use profbridge_model::builder::Any;
use profbridge_model::{Builder, IdentityStrength, Profiles, Value};
use profbridge_processor_chunk::WEAK_IDENTITY;

use crate::support::*;

fn run_all(identity: &str, input: Vec<Profiles>) -> (Vec<Profiles>, u64) {
    let mut chunk = chunk(identity, "");
    let mut all = Vec::new();
    let mut weak = 0;
    for batch in input {
        let out = process_one(&mut chunk, batch, at(S));
        weak += noted(&out, WEAK_IDENTITY);
        all.extend(batches(&out));
    }
    all.extend(flush(&mut chunk));
    (all, weak)
}

fn id(batch: &Profiles) -> String {
    batch.window.as_ref().unwrap().profiler_id.to_string()
}

/// Guarantees: process, container, service and host attributes of samples move to the resource and distinguish
/// processes; those of the thread stay.
#[test]
fn process_attributes_move_up() {
    for identity in MODES {
        let mut builder = Builder::new();
        builder.resource(&[("container.id", "c".into()), ("process.pid", 99.into())]);
        builder.on_cpu(20);
        for pid in [1, 2] {
            for thread in [1, 2] {
                let attributes = builder.attributes(&[
                    ("thread.id", thread.into()),
                    ("process.pid", pid.into()),
                    ("process.executable.name", "python".into()),
                    ("process.context.label.tenant", "acme".into()),
                ]);
                builder.sample(None, attributes, None, &[T], &[]);
            }
        }
        let (out, _) = run_all(identity, vec![builder.finish().unwrap()]);
        assert_eq!(out.len(), 2, "{identity}");
        for (batch, pid) in out.iter().zip([1, 2]) {
            let [resource] = batch.resources() else { panic!("one resource") };
            let attributes = &resource.resource.attributes;
            assert_eq!(batch.find(attributes, "process.pid"), Some(&Value::Int(pid)));
            assert!(batch.find(attributes, "process.executable.name").is_some());
            assert_eq!(attributes.len(), 3);
            let profile = batch.profiles().next().unwrap();
            for sample in batch.samples(profile) {
                let dictionary = batch.dictionary();
                let keys: BTreeSet<_> =
                    dictionary.attributes(sample.attributes).map(|item| dictionary.string(item.key)).collect();
                assert_eq!(keys, BTreeSet::from(["thread.id", "process.context.label.tenant"]));
            }
        }
    }
}

/// Guarantees: a process has the same id in every replica, whoever sends it, and wherever its attributes are.
/// rule: sample-format-v2#profiler-id-random
#[test]
fn replicas_agree() {
    let mut ids = BTreeSet::new();
    for identity in MODES {
        let mut on_samples = Builder::new();
        on_samples.resource(&[("service.name", "b".into())]);
        let attributes = on_samples.attributes(&process(7));
        on_samples.sample(None, attributes, None, &[T], &[]);
        let mut first = one(&process(7), &[T]);
        first.peer = Some("10.0.0.1".into());
        for batch in [first, on_samples.finish().unwrap()] {
            let (out, _) = run_all(identity, vec![batch]);
            ids.insert(id(&out[0]));
        }
    }
    assert_eq!(ids.len(), 1);
}

/// Guarantees: an unidentified process is distinguished by its peer and by every attribute, and counted.
#[test]
fn weak_processes_stay_apart() {
    for identity in MODES {
        let with = |service: &str, peer: &str| {
            let mut batch = one(&[("service.name", service.into()), ("process.pid", 1.into())], &[T, T + 1]);
            batch.peer = Some(peer.into());
            batch
        };
        let input = vec![with("a", "p"), with("a", "q"), with("b", "p"), with("a", "p")];
        let (out, weak) = run_all(identity, input);
        assert_eq!(out.iter().map(id).collect::<BTreeSet<_>>().len(), 3, "{identity}");
        assert!(out.iter().all(|batch| batch.window.as_ref().unwrap().strength == IdentityStrength::Weak));
        assert!(out.iter().all(|batch| batch.peer.is_some()));
        assert_eq!(weak, 8);
    }
}

/// Guarantees: unidentified profiles that a peer forwards for several machines are never merged, even if all attributes
/// are equal: neither with another resource of the request nor with another request. Those of one resource stay
/// together, are sent at once and counted as weak, and nothing is lost. Identified profiles are merged as usual.
#[test]
fn relayed_weak_processes_are_never_merged() {
    for identity in MODES {
        let attributes = [("process.executable.name", "python".into()), ("process.pid", 42.into())];
        let request = |own: &[(&'static str, Any<'static>)]| {
            let mut builder = Builder::new();
            for host in 0..2 {
                let mut all = attributes.to_vec();
                all.extend_from_slice(own);
                builder.resource(&all);
                builder.on_cpu(20);
                for time in [T, T + 20] {
                    builder.sample(None, None, None, &[time + host], &[]);
                }
            }
            let mut batch = builder.finish().unwrap();
            batch.peer = Some("10.0.0.7".into());
            batch.relayed = true;
            batch
        };
        let mut chunk = chunk(identity, "");
        let (mut ids, mut weak) = (BTreeSet::new(), 0);
        for _ in 0..2 {
            let out = process_one(&mut chunk, request(&[]), at(S));
            weak += noted(&out, WEAK_IDENTITY);
            let batches = batches(&out);
            assert_eq!(observations(&batches), [2, 2], "{identity}");
            assert!(batches.iter().all(|batch| batch.window.as_ref().unwrap().strength == IdentityStrength::Weak));
            ids.extend(batches.iter().map(id));
        }
        assert_eq!((ids.len(), weak), (4, 8), "{identity}");
        assert!(flush(&mut chunk).is_empty());

        let (out, weak) = run_all(identity, vec![request(&[("host.name", "a".into())]); 2]);
        assert_eq!(out.iter().map(id).collect::<BTreeSet<_>>().len(), 1, "{identity}");
        assert_eq!((observations(&out).iter().sum::<u64>(), weak), (8, 0));
    }
}

/// Guarantees: sessions have the configured length and separate ids; without a configured length, a session lasts as
/// long as the process.
/// rule: sample-format-v2#profiler-id-random, profiles-sdk#v2-profiler-id, profiles-sdk#session
#[test]
fn sessions_have_their_own_ids() {
    let ids = |identity: &str| {
        let input = [T, T + 90 * S, T + 3600 * S].map(|time| one(&process(1), &[time])).into();
        let (out, _) = run_all(identity, input);
        out.iter().map(id).collect::<BTreeSet<_>>().len()
    };
    for mode in MODES {
        assert_eq!(ids(mode), 1);
        assert_eq!(ids(&format!("{mode}, session: 1h")), 2);
        // The id is the same even after a decade.
        let input = [T, T + 10 * 365 * 86_400 * S].map(|time| one(&process(1), &[time])).into();
        let lives = run_all(mode, input).0.iter().map(id).collect::<BTreeSet<_>>();
        assert_eq!(lives.len(), 1, "{mode}");
        let other = run_all(mode, vec![one(&process(2), &[T])]).0.iter().map(id).collect::<BTreeSet<_>>();
        assert!(lives.is_disjoint(&other), "another process has another id");
    }
}

/// Guarantees: a process whose attributes differ between samples is one batch with a resource for each variant.
#[test]
fn one_process_with_two_resources() {
    for identity in MODES {
        let mut builder = Builder::new();
        builder.resource(&process(1));
        for name in ["before-exec", "after-exec", "before-exec"] {
            let attributes = builder.attributes(&[("process.executable.name", Any::Str(name))]);
            builder.sample(None, attributes, None, &[T], &[]);
        }
        let (out, _) = run_all(identity, vec![builder.finish().unwrap()]);
        assert_eq!(out.len(), 1, "{identity}");
        assert_eq!(out[0].resources().len(), 2);
    }
}
