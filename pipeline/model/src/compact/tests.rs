use proptest::prelude::*;

use super::*;
use crate::{Builder, Value};

/// The properties of an observation: service, scope, kind, profile's time, frames, thread, link, time, value.
type ObservationRecord =
    (String, String, String, u64, Vec<String>, Option<i64>, Option<[u8; 16]>, Option<u64>, Vec<i64>);

fn seen(batch: &Profiles) -> Vec<ObservationRecord> {
    let dictionary = batch.dictionary();
    let mut all = Vec::new();
    for resource in batch.resources() {
        let service = match batch.find(&resource.resource.attributes, "service.name") {
            Some(Value::String(id)) => dictionary.string(*id).to_owned(),
            _ => String::new(),
        };
        for scope in &resource.scopes {
            let name = dictionary.string(scope.scope.name);
            for profile in &scope.profiles {
                for sample in batch.samples(profile) {
                    let frames: Vec<_> = dictionary
                        .stack(sample.stack)
                        .flatten()
                        .flat_map(|id| dictionary.lines(dictionary.location(id)))
                        .filter_map(|line| line.function)
                        .map(|id| dictionary.string(dictionary.function(id).name).to_owned())
                        .collect();
                    let thread = match dictionary.find(sample.attributes, "thread.id") {
                        Some(Value::Int(id)) => Some(*id),
                        _ => None,
                    };
                    let mut times: Vec<_> = sample.timestamps().map(Some).collect();
                    let mut values: Vec<_> = sample.values().map(|value| vec![value]).collect();
                    if times.is_empty() {
                        (times, values) = (vec![None], vec![sample.values().collect()]);
                    }
                    values.resize(times.len(), Vec::new());
                    for (time, value) in times.into_iter().zip(values) {
                        let kind = dictionary.string(profile.sample_type.kind).to_owned();
                        let link = sample.link.map(|id| dictionary.link(id).trace_id);
                        let parents = (service.clone(), name.to_owned(), kind, profile.time_unix_nano);
                        let (a, b, c, d) = parents;
                        all.push((a, b, c, d, frames.clone(), thread, link, time, value));
                    }
                }
            }
        }
    }
    all
}

fn batch(samples: &[(u8, u8, Vec<u64>, bool)]) -> Profiles {
    let mut builder = Builder::new();
    for (number, (kind, frames, times, valued)) in samples.iter().enumerate() {
        if number % 3 == 0 {
            builder.resource(&[("service.name", (&format!("service {number}")).into())]);
            builder.scope(&format!("scope {number}"), "");
        }
        let sample_type = builder.value_type(&format!("kind {kind}"), "count");
        builder.profile(Profile { sample_type, time_unix_nano: number as u64, ..Profile::default() });
        let locations: Vec<_> = (0..*frames).map(|n| builder.frame(&format!("f{n}"), "", 1)).collect();
        let stack = builder.stack(&locations);
        let thread = builder.attributes(&[("thread.id", i64::from(*frames).into())]);
        let link = builder.link([*kind; 16], [*kind; 8]);
        let values: Vec<_> = times.iter().map(|&time| time as i64).collect();
        let values = if *valued { &values[..] } else { &[] };
        builder.sample(stack, thread, link, times, if times.is_empty() { &[7, 8] } else { values });
    }
    builder.finish().unwrap()
}

proptest! {
    /// Guarantees: the parts together contain everything in the batch, in order, for whole samples and split ones
    /// alike.
    #[test]
    fn parts_make_the_whole(
        samples in prop::collection::vec((0u8..3, 0u8..5, prop::collection::vec(any::<u64>(), 0..6), any::<bool>()), 0..12),
        cuts in prop::collection::vec(0u64..40, 0..6),
    ) {
        let whole = batch(&samples);
        let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(whole.observations())).collect();
        cuts.extend([0, whole.observations()]);
        cuts.sort_unstable();
        let mut transfer = Transfer::default();
        let mut parts = Vec::new();
        for pair in cuts.windows(2) {
            let part = part(&whole, pair[0]..pair[1], &mut transfer).unwrap();
            prop_assert_eq!(part.observations(), pair[1] - pair[0]);
            parts.extend(seen(&part));
        }
        prop_assert_eq!(parts, seen(&whole));
    }
}

/// Guarantees: a part contains only the elements that it refers to, and keeps peer, window and profile id.
/// rule: otlp-profiles#dictionary-compact
#[test]
fn parts_are_compact() {
    let samples: Vec<_> = (0..200).map(|n| (n as u8, 1 + n as u8 % 50, vec![n, n + 1], false)).collect();
    let mut whole = batch(&samples);
    whole.peer = Some("10.0.0.7".into());
    whole.relayed = true;
    let part = part(&whole, 0..1, &mut Transfer::default()).unwrap();
    let tables = part.dictionary().tables();
    assert_eq!((tables.stacks.len(), tables.locations.len(), tables.functions.len()), (2, 2, 2));
    assert_eq!((&part.peer, part.relayed), (&whole.peer, true));
    assert_eq!(part.profiles().count(), 1);
}

/// Guarantees: profiles without samples are in exactly one part.
#[test]
fn empty_profiles_are_kept_once() {
    let mut builder = Builder::new();
    for times in [&[][..], &[1, 2], &[], &[3], &[]] {
        builder.profile(Profile::default());
        if !times.is_empty() {
            builder.sample(None, None, None, times, &[]);
        }
    }
    let whole = builder.finish().unwrap();
    let mut transfer = Transfer::default();
    let mut count = |range| part(&whole, range, &mut transfer).unwrap().profiles().count();
    assert_eq!([count(0..1), count(1..2), count(2..3)], [2, 1, 3]);
    assert_eq!(count(0..3), 5);
    let empty = Builder::new().finish().unwrap();
    assert_eq!(part(&empty, 0..0, &mut Transfer::default()).unwrap().observations(), 0);
}
