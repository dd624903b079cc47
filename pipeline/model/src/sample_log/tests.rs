use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::ValueType;
use crate::arena::{Arena, TableWriter, Transfer};
use crate::varint;

/// Maps (series, stack, attributes, link) to the times and values observed there.
type ObservedValues = BTreeMap<(u32, u32, u32, u32), Vec<(u64, i64)>>;

fn series(kind: Option<StringId>, shape: SampleLayout, resource: u32, scope: u32) -> Series {
    Series {
        resource,
        scope,
        profile: Profile { sample_type: ValueType { kind, unit: None }, period: 5, ..Profile::default() },
        shape,
    }
}

fn bytes(times: &[u64]) -> Vec<u8> {
    times.iter().flat_map(|time| time.to_le_bytes()).collect()
}

fn packed(values: &[i64]) -> Vec<u8> {
    let mut packed = Vec::new();
    values.iter().for_each(|&value| varint::put(&mut packed, value as u64));
    packed
}

proptest! {
    /// Guarantees: merging gives the same result as a map from identity to observations: every timestamp and value is
    /// kept, in order, under its own stack, attributes, link and series, in one sample per identity.
    /// rule: otep-0239#aggregation, otlp-profiles#sample-identity
    #[test]
    fn merges_as_a_map_does(pushed in prop::collection::vec((0u32..3, 1u32..5, 0u32..3, 0u32..3, prop::collection::vec((any::<u64>(), any::<i64>()), 1..4)), 0..60)) {
        let mut arena = Arena::default();
        let names: Vec<_> = (0..3).map(|n| arena.string(&format!("kind{n}")).unwrap()).collect();
        let mut held = SampleLog::new();
        let mut expected = ObservedValues::new();
        for (kind, stack, attribute, link, observations) in &pushed {
            let resource = held.resource(LoggedResource { dropped_attributes_count: kind % 2, ..LoggedResource::default() });
            let scope = held.scope(LoggedScope::default());
            let series = series(names[*kind as usize], SampleLayout::TimesAndValues, resource, scope);
            let at = held.series(series, 0..0, None);
            let location = crate::Location { address: u64::from(*stack), ..Default::default() };
            let location = arena.put_location(location, &[]).unwrap();
            let stack_id = arena.stack([location]).unwrap();
            let key = arena.string(&"x".repeat(*attribute as usize)).unwrap();
            let item = arena.put_attribute(crate::Attribute { key, ..Default::default() }).unwrap();
            let attributes = arena.put_attribute_set(&[item]).unwrap();
            let link_id = crate::Link { trace_id: [*link as u8; 16], span_id: [*link as u8; 8] };
            let link_id = arena.put_link(link_id).unwrap();
            let (times, values): (Vec<_>, Vec<_>) = observations.iter().copied().unzip();
            let ids = SampleIds::new(stack_id, attributes, link_id);
            held.push(at, ids, &bytes(&times), &packed(&values));
            expected.entry((*kind, *stack, *attribute, *link)).or_default().extend(observations);
        }
        let batch = held.flush(&arena, &mut Transfer::default()).unwrap();
        prop_assert_eq!(batch.observations(), held.observations());
        prop_assert_eq!(batch.columns().len(), expected.len());
        let dictionary = batch.dictionary();
        let mut found = ObservedValues::new();
        for profile in batch.profiles() {
            let kind = dictionary.string(profile.sample_type.kind).trim_start_matches("kind").parse().unwrap();
            for sample in batch.samples(profile) {
                let stack = dictionary.stack(sample.stack).map(|id| dictionary.location(id.unwrap()).address as u32);
                let attribute = dictionary.attributes(sample.attributes).map(|item| dictionary.string(item.key).len()).sum::<usize>();
                let link = sample.link.map_or(0, |id| u32::from(dictionary.link(id).span_id[0]));
                let observations = sample.timestamps().zip(sample.values()).collect();
                let key = (kind, stack.clone().next().unwrap(), attribute as u32, link);
                prop_assert!(found.insert(key, observations).is_none());
            }
        }
        prop_assert_eq!(found, expected);
    }
}

/// Guarantees: samples without timestamps are not merged, and neither are their profiles if the ranges differ.
#[test]
fn values_without_timestamps_stay_apart() {
    let mut held = SampleLog::new();
    let (resource, scope) = (held.resource(LoggedResource::default()), held.scope(LoggedScope::default()));
    for start in [10, 10, 20] {
        let shape = SampleLayout::Values { time_unix_nano: start, duration_nano: 5, profile_id: None };
        let at = held.series(series(None, shape, resource, scope), start..start + 5, None);
        held.push(at, SampleIds::default(), &[], &packed(&[3, 4]));
    }
    let batch = held.flush(&Arena::default(), &mut Transfer::default()).unwrap();
    assert_eq!(batch.observations(), 3);
    let profiles: Vec<_> = batch.profiles().map(|profile| (profile.time_unix_nano, profile.samples.len())).collect();
    assert_eq!(profiles, [(10, 2), (20, 1)]);
}

/// Guarantees: a merged profile covers the ranges of all joined profiles, including ranges of length zero but not
/// unknown ones, and keeps an id only if all of them had it.
#[test]
fn joined_profiles_share_range_and_id() {
    let mut held = SampleLog::new();
    let (resource, scope) = (held.resource(LoggedResource::default()), held.scope(LoggedScope::default()));
    let key = series(None, SampleLayout::Times, resource, scope);
    let id = Some([7; 16]);
    let backwards = std::ops::Range { start: 9, end: 3 };
    for range in [0..0, 40..40, 30..35, 10..20, backwards] {
        let at = held.series(key.clone(), range, id);
        held.push(at, SampleIds::default(), &bytes(&[12]), &[]);
    }
    let flush = |held: &SampleLog| {
        let batch = held.flush(&Arena::default(), &mut Transfer::default()).unwrap();
        let profile = batch.profiles().next().unwrap().clone();
        (profile.time_unix_nano, profile.duration_nano, profile.profile_id)
    };
    assert_eq!(flush(&held), (10, 30, id));
    held.series(key.clone(), 0..0, Some([8; 16]));
    held.series(key.clone(), 0..0, id);
    assert_eq!(flush(&held), (10, 30, None));
}

/// Guarantees: the batch contains only referenced elements, whatever else is in the arena.
/// rule: otlp-profiles#dictionary-compact
#[test]
fn the_dictionary_is_compact() {
    let mut arena = Arena::default();
    for n in 0..1000u64 {
        arena.string(&format!("unrelated {n}")).unwrap();
        let location = arena.put_location(crate::Location { address: n + 1, ..Default::default() }, &[]).unwrap();
        arena.stack([location]).unwrap();
    }
    let mut held = SampleLog::new();
    let name = arena.string("name").unwrap();
    let key = arena.put_attribute(crate::Attribute { key: name, ..Default::default() }).unwrap();
    let attributes = arena.put_attribute_set(&[key]).unwrap();
    let entity_refs = arena.put_blob(b"\x06entity\x00\x02ab").unwrap();
    let resource = held.resource(LoggedResource { attributes, entity_refs, ..LoggedResource::default() });
    let scope = held.scope(LoggedScope { name, ..LoggedScope::default() });
    let at = held.series(series(None, SampleLayout::Times, resource, scope), 0..0, None);
    held.push(at, SampleIds { stack: crate::id::StackId::new(500), ..SampleIds::default() }, &bytes(&[1]), &[]);
    let batch = held.flush(&arena, &mut Transfer::default()).unwrap();
    let tables = batch.dictionary().tables();
    assert_eq!((tables.strings.len(), tables.locations.len(), tables.stacks.len()), (2, 2, 2));
    // A resource's attributes are stored in the resource and nowhere else.
    assert_eq!((tables.attributes.len(), tables.attribute_sets.len()), (1, 1));
    let resource = &batch.resources()[0];
    assert_eq!(batch.dictionary().string(resource.resource.attributes[0].key), "name");
    let entities = resource.resource.entity_refs.iter().map(|&entity| batch.dictionary().bytes(entity));
    assert_eq!(entities.collect::<Vec<_>>(), [&b"entity"[..], b"", b"ab"]);
}
