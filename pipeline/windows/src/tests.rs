use std::collections::BTreeMap;

use profbridge_model::builder::Any;
use profbridge_model::sample_log::Shape;
use profbridge_model::{Attribute, AttributeId, AttributeSetId, Builder, Position, Profiles, Sample, arena};
use proptest::prelude::*;

use super::*;

/// A group, and a window in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Pair(u8, u8);

impl Key for Pair {
    fn is_in_group_of(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    fn first_of_group(&self) -> Self {
        Self(self.0, 0)
    }
}

struct KeepUnchanged;

impl Rewrite for KeepUnchanged {
    fn attributes<'a>(&'a self, place: &ScopedProfile<'a>, _resource: u32) -> Vec<&'a Attribute> {
        place.resource.resource.attributes.iter().collect()
    }

    fn stays(&self, _set: AttributeSetId) -> impl Iterator<Item = Option<AttributeId>> {
        std::iter::empty()
    }
}

const LIMITS: Limits = Limits {
    open_for: 100,
    max_observations: 6,
    max_window_bytes: u64::MAX,
    max_groups: 3,
    max_bytes: u64::MAX,
    max_arena_age: 150,
    max_arena_bytes: u64::MAX,
    arena: arena::Limits::ADDRESSABLE,
};

/// Adds all samples to the window of a key.
struct Into<'a> {
    store: &'a mut Store<Pair>,
    intake: &'a mut Intake<Pair>,
    request: Request<'a>,
    key: Pair,
}

impl<'a> Visitor<'a> for Into<'_> {
    fn profile(&mut self, _place: ScopedProfile<'a>, _at: Position) -> bool {
        self.intake.begin_profile();
        true
    }

    fn sample(&mut self, place: ScopedProfile<'a>, sample: &Sample<'a>, at: &mut Position) -> bool {
        let all = sample.timestamps_bytes();
        while at.timestamps * 8 < all.len() {
            let timestamps = &all[at.timestamps * 8..];
            let (key, shape, resource) = (&self.key, Shape::Times, place.resource_at);
            let (rewritten, continued) = (false, false);
            let piece = Piece { sample, key, resource, rewritten, shape, timestamps, values: &[], continued };
            let put = self.intake.put(self.store, &self.request, &KeepUnchanged, &place, &piece).unwrap();
            assert!(put > 0 && put <= self.store.limits.max_observations);
            at.timestamps += put as usize;
        }
        true
    }
}

fn put(store: &mut Store<Pair>, batch: &Profiles, key: &Pair, now: u64) {
    let mut intake = Intake::default();
    intake.resume(store);
    let request = Request::new(batch, now);
    let mut into = Into { store, intake: &mut intake, request, key: key.clone() };
    assert!(walk(batch, &mut Position::default(), &mut into));
    intake.settle(store);
    store.end_request(intake);
}

/// One sample of a function with these timestamps.
fn batch(function: u8, times: &[u64]) -> Profiles {
    let mut builder = Builder::new();
    builder.resource(&[("host.id", Any::Str("h"))]);
    builder.on_cpu(20);
    let frame = builder.frame(&format!("function {function}"), "a.rs", 1);
    let stack = builder.stack(&[frame]);
    builder.sample(stack, None, None, times, &[]);
    builder.finish().unwrap()
}

/// The values in each window, by function.
type Seen = BTreeMap<(Pair, String), Vec<u64>>;

fn see(seen: &mut Seen, flushed: &Flushed<Pair>) {
    let batch = flushed.batch.as_ref().unwrap();
    assert_eq!(batch.observations(), flushed.observations);
    assert!(flushed.observations <= LIMITS.max_observations);
    let dictionary = batch.dictionary();
    for profile in batch.profiles() {
        for sample in batch.samples(profile) {
            let frames = dictionary.stack(sample.stack).flatten();
            let name = frames
                .flat_map(|id| dictionary.lines(dictionary.location(id)))
                .filter_map(|line| Some(dictionary.string(dictionary.function(line.function?).name).to_owned()))
                .collect();
            seen.entry((flushed.key.clone(), name)).or_default().extend(sample.timestamps());
        }
    }
}

proptest! {
    /// Guarantees: everything that was added is flushed under its key and function, once and in order, in batches
    /// within the limit of observations. The limits for windows and groups hold, and in the end no observations and no
    /// memory remain.
    #[test]
    fn comes_out_as_it_went_in(
        steps in prop::collection::vec((0u8..6, 0u8..5, 0u8..3, 0u8..4, 1usize..15, 0u64..60), 1..40),
    ) {
        let mut store = Store::new(LIMITS);
        let empty = store.bytes();
        let (mut now, mut time) = (0, 0u64);
        let (mut expected, mut seen) = (Seen::new(), Seen::new());
        for (what, group, window, function, count, wait) in steps {
            now += wait;
            match what {
                0 => store.close_due(now),
                1 => store.on_memory_pressure(),
                2 => store.close_group(&Pair(group, 9), |open| open.key.1 == window),
                _ => {
                    let times: Vec<u64> = (0..count as u64).map(|n| time + n).collect();
                    time += count as u64;
                    let key = Pair(group, window);
                    put(&mut store, &batch(function, &times), &key, now);
                    expected.entry((key, format!("function {function}"))).or_default().extend(times);
                }
            }
            store.flush(true).iter().for_each(|flushed| see(&mut seen, flushed));
            let out: usize = seen.values().map(Vec::len).sum();
            prop_assert_eq!(out as u64 + store.observations(), time);
            let groups = (0..5).filter(|&group| store.group(&Pair(group, 0)).next().is_some()).count();
            let windows: usize = (0..5).map(|group| store.group(&Pair(group, 0)).count()).sum();
            prop_assert!(groups <= LIMITS.max_groups && windows <= 2 * LIMITS.max_groups, "{groups} {windows}");
        }
        store.close_for_the_end();
        while !store.is_empty() {
            store.close_for_the_end();
            store.flush(true).iter().for_each(|flushed| see(&mut seen, flushed));
        }
        store.sweep();
        prop_assert_eq!(&seen, &expected);
        prop_assert_eq!((store.observations(), store.due()), (0, None));
        prop_assert!(store.bytes() <= empty + 16 * 1024, "{} {}", store.bytes(), empty);
    }
}

/// Guarantees: windows of a sender share an arena while it is young, and never if the age limit is 0. Unwanted windows
/// are dropped without a batch, and counted.
#[test]
fn arenas_are_shared_for_a_while() {
    let one = batch(1, &[1]);
    for (max_arena_age, arenas) in [(150, 2), (0, 3)] {
        let mut store = Store::new(Limits { max_arena_age, ..LIMITS });
        put(&mut store, &one, &Pair(0, 0), 0);
        let first = store.distinct_bytes();
        put(&mut store, &one, &Pair(0, 1), 10);
        assert_eq!(store.distinct_bytes(), if max_arena_age == 0 { 2 * first } else { first });
        put(&mut store, &one, &Pair(0, 2), 160);
        assert_eq!(store.distinct_bytes(), arenas * first);
        store.close_due(100);
        let flushed = store.flush(false).unwrap();
        assert!(flushed.batch.is_none() && flushed.observations == 1);
        assert_eq!(store.observations(), 2);
    }
}

/// Guarantees: memory pressure closes the windows that free the most, until half of the initial size is left.
#[test]
fn relief_closes_the_largest_first() {
    let mut store = Store::new(Limits { max_observations: 100_000, ..LIMITS });
    let times: Vec<u64> = (0..50_000).map(|n| n * 999_983).collect();
    put(&mut store, &batch(1, &times[..10]), &Pair(0, 0), 0);
    put(&mut store, &batch(1, &times), &Pair(1, 0), 0);
    put(&mut store, &batch(1, &times[..10]), &Pair(2, 0), 0);
    store.on_memory_pressure();
    let flushed = store.flush(true).unwrap();
    assert_eq!((flushed.key, flushed.observations), (Pair(1, 0), 50_000));
    store.on_memory_pressure();
    assert!(store.flush(true).is_none() && !store.is_relieving());
    assert_eq!((store.observations(), store.take_closed_early()), (20, 1));
}
