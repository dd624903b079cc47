use std::collections::BTreeMap;

use profbridge_model::builder::Any;
use profbridge_model::sample_log::SampleLayout;
use profbridge_model::{Attribute, AttributeId, AttributeSetId, Builder, Position, Profiles, Sample, arena};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;

/// The key: a group, and a window in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct GroupWindow(u8, u8);

impl WindowKey for GroupWindow {
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

const LIMITS: WindowLimits = WindowLimits {
    open_for: 100,
    max_observations: 6,
    max_window_bytes: u64::MAX,
    max_groups: 3,
    max_bytes: u64::MAX,
    max_arena_age: 150,
    max_arena_bytes: u64::MAX,
    arena: arena::ArenaLimits::ADDRESSABLE,
};

/// Adds all samples to the window of a key.
struct Into<'a> {
    store: &'a mut Store<GroupWindow>,
    intake: &'a mut Intake<GroupWindow>,
    request: Request<'a>,
    key: GroupWindow,
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
            let (key, shape, resource) = (&self.key, SampleLayout::Times, place.resource_at);
            let (rewritten, continued) = (false, false);
            let piece = KeyedPiece { sample, key, resource, rewritten, shape, timestamps, values: &[], continued };
            let put = self.intake.put(self.store, &self.request, &KeepUnchanged, &place, &piece).unwrap();
            assert!(put > 0 && put <= self.store.limits.max_observations);
            at.timestamps += put as usize;
        }
        true
    }
}

fn put(store: &mut Store<GroupWindow>, batch: &Profiles, key: &GroupWindow, now: u64) {
    let mut intake = Intake::default();
    intake.resume(store);
    let request = Request::new(batch, now);
    let mut into = Into { store, intake: &mut intake, request, key: key.clone() };
    assert!(walk(batch, &mut Position::default(), &mut into));
    intake.settle(store);
    intake.end(store);
}

/// The function, times and values of a sample.
type WindowSample = (u8, Vec<u64>, Vec<i64>);

fn request(sender: u8, rows: &[WindowSample]) -> Profiles {
    let mut builder = Builder::new();
    builder.resource(&[("host.id", Any::Str("h"))]);
    builder.on_cpu(20);
    for (function, times, values) in rows {
        let frame = builder.frame(&format!("function {function}"), "a.rs", 1);
        let stack = builder.stack(&[frame]);
        builder.sample(stack, None, None, times, values);
    }
    let mut batch = builder.finish().unwrap();
    batch.peer = Some(sender.to_string().into());
    batch
}

/// One sample of a function with these timestamps.
fn batch(function: u8, times: &[u64]) -> Profiles {
    request(0, &[(function, times.to_vec(), Vec::new())])
}

/// The times and values in each window, by function.
type WindowValues = BTreeMap<(GroupWindow, String), Vec<(u64, i64)>>;

fn expect(seen: &mut WindowValues, key: &GroupWindow, (function, times, values): &WindowSample) {
    let values = values.iter().copied().chain(std::iter::repeat(1));
    seen.entry((key.clone(), format!("function {function}"))).or_default().extend(times.iter().copied().zip(values));
}

fn see(seen: &mut WindowValues, flushed: &Flushed<GroupWindow>) {
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
            let values = sample.values().chain(std::iter::repeat(1));
            seen.entry((flushed.key.clone(), name)).or_default().extend(sample.timestamps().zip(values));
        }
    }
}

proptest! {
    /// Guarantees: all added data is flushed under its key and function, once and in order, in batches within the limit
    /// of observations. The limits for windows and groups hold, and in the end no observations and no memory are left.
    #[test]
    fn comes_out_as_it_went_in(
        steps in vec((0u8..6, 0u8..5, 0u8..3, 0u8..4, 1usize..15, 0u64..60), 1..40),
    ) {
        let mut store = Store::new(LIMITS);
        let empty = store.bytes();
        let (mut now, mut time) = (0, 0u64);
        let (mut expected, mut seen) = (WindowValues::new(), WindowValues::new());
        for (what, group, window, function, count, wait) in steps {
            now += wait;
            match what {
                0 => store.close_due(now),
                1 => store.on_memory_pressure(),
                2 => store.close_group(&GroupWindow(group, 9), |open| open.key.1 == window),
                _ => {
                    let times: Vec<u64> = (0..count as u64).map(|n| time + n).collect();
                    time += count as u64;
                    let key = GroupWindow(group, window);
                    put(&mut store, &batch(function, &times), &key, now);
                    expect(&mut expected, &key, &(function, times, Vec::new()));
                }
            }
            store.flush(true).iter().for_each(|flushed| see(&mut seen, flushed));
            let out: usize = seen.values().map(Vec::len).sum();
            prop_assert_eq!(out as u64 + store.observations(), time);
            let groups = (0..5).filter(|&group| store.group(&GroupWindow(group, 0)).next().is_some()).count();
            let windows: usize = (0..5).map(|group| store.group(&GroupWindow(group, 0)).count()).sum();
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

    /// Guarantees: requests of several samples come out completely, from their sender and with their values, although
    /// they pause while windows are flushed, and full dictionaries and short memory close windows. Only data that does
    /// not fit into an empty dictionary is lost, and it is counted. The memory limit holds once windows were flushed.
    #[test]
    fn requests_come_out_completely(
        requests in vec((0u8..3, 0u8..2, vec((0u8..12, 1usize..40, any::<bool>()), 1..8), 0u64..60, 0u8..4), 1..20),
        strings in select(vec![4, 20, u32::MAX]),
        max_bytes in select(vec![0, 64 << 10, u64::MAX]),
        max_arena_bytes in select(vec![0, 8 << 10, u64::MAX]),
    ) {
        let arena = arena::ArenaLimits { strings, ..arena::ArenaLimits::ADDRESSABLE };
        let mut buffer = Requests::new(WindowLimits { max_bytes, max_arena_bytes, arena, ..LIMITS });
        let empty = buffer.bytes();
        let (mut now, mut time, mut lost) = (0, 0u64, 0);
        let (mut expected, mut seen) = (WindowValues::new(), WindowValues::new());
        let mut check = |flushed: Option<Flushed<GroupWindow>>| {
            let Some(flushed) = flushed else { return 0 };
            assert_eq!(flushed.batch.as_ref().unwrap().peer.as_deref(), Some(&*flushed.key.0.to_string()));
            see(&mut seen, &flushed);
            flushed.observations
        };
        let mut out = 0;
        for (sender, window, samples, wait, what) in requests {
            now += wait;
            let key = GroupWindow(sender, window);
            let rows: Vec<WindowSample> = samples.iter().map(|&(function, count, has_values)| {
                let times: Vec<u64> = (time..time + count as u64).collect();
                time += count as u64;
                let values = times.iter().filter(|_| has_values).map(|time| *time as i64 * 7 - 50).collect();
                (function, times, values)
            }).collect();
            rows.iter().filter(|_| strings > 4).for_each(|row| expect(&mut expected, &key, row));
            lost += buffer.add(request(sender, &rows), key, now).lost;
            while buffer.is_absorbing() {
                prop_assert_eq!((out + lost + buffer.observations(), buffer.due()), (time, Some(0)));
                if what % 2 == 0 {
                    out += check(buffer.flush_due(now));
                }
                lost += buffer.absorb().lost;
            }
            if what == 3 {
                out += check(buffer.flush_for_memory().0);
            }
            while buffer.due().is_some_and(|due| due <= now) {
                out += check(buffer.flush_due(now));
            }
            prop_assert_eq!(out + lost + buffer.observations(), time);
            prop_assert!(buffer.bytes() <= max_bytes.max(empty + 16 * 1024), "{}", buffer.bytes());
        }
        while !buffer.is_empty() {
            out += check(buffer.flush_at_end());
        }
        [&mut expected, &mut seen].into_iter().flat_map(BTreeMap::values_mut).for_each(|rows| rows.sort_unstable());
        prop_assert_eq!(&seen, &expected);
        prop_assert_eq!((out + lost, lost), (time, if strings > 4 { 0 } else { time }));
        prop_assert!(buffer.bytes() <= empty + 16 * 1024, "{} {}", buffer.bytes(), empty);
    }
}

/// Guarantees: windows of a sender share an arena while it is young, and never if the age limit is 0. Unwanted windows
/// are dropped without a batch, and counted.
#[test]
fn arenas_are_shared_for_a_while() {
    let one = batch(1, &[1]);
    for (max_arena_age, arenas) in [(150, 2), (0, 3)] {
        let mut store = Store::new(WindowLimits { max_arena_age, ..LIMITS });
        put(&mut store, &one, &GroupWindow(0, 0), 0);
        let first = store.distinct_bytes();
        put(&mut store, &one, &GroupWindow(0, 1), 10);
        assert_eq!(store.distinct_bytes(), if max_arena_age == 0 { 2 * first } else { first });
        put(&mut store, &one, &GroupWindow(0, 2), 160);
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
    let mut store = Store::new(WindowLimits { max_observations: 100_000, ..LIMITS });
    let times: Vec<u64> = (0..50_000).map(|n| n * 999_983).collect();
    put(&mut store, &batch(1, &times[..10]), &GroupWindow(0, 0), 0);
    put(&mut store, &batch(1, &times), &GroupWindow(1, 0), 0);
    put(&mut store, &batch(1, &times[..10]), &GroupWindow(2, 0), 0);
    store.on_memory_pressure();
    let flushed = store.flush(true).unwrap();
    assert_eq!((flushed.key, flushed.observations), (GroupWindow(1, 0), 50_000));
    store.on_memory_pressure();
    assert!(store.flush(true).is_none() && !store.is_relieving());
    assert_eq!((store.observations(), store.take_closed_early()), (20, 1));
}
