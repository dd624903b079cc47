use std::sync::Arc;

use profbridge_engine::component::Processor;
use profbridge_model::{Builder, Envelope, ItemView, Profile, Profiles, Reason};
use profbridge_processor_dedup::FORGOTTEN;
use profbridge_testkit as testing;
use proptest::prelude::*;

use crate::support::*;

/// Guarantees: a profile with equal content and time is dropped and counted, whatever the order of its tables.
#[test]
fn resends_are_dropped() {
    let mut dedup = dedup("");
    let first = batch(T, &["f", "g"], &[T, T + 1], false);
    let out = process(&mut dedup, first.clone(), at(0));
    assert!(Arc::ptr_eq(batches(&out)[0].dictionary(), first.dictionary()));
    let out = process(&mut dedup, batch(T, &["f", "g"], &[T, T + 1], true), at(1));
    assert!(out.telemetry.is_empty());
    assert_eq!(out.losses.get(Reason::Resent).total(), 2);
    assert_eq!(out.losses.total().total(), 2);
}

/// Guarantees: a profile with any difference is kept: in a frame, a time, the profile's start, or the peer.
#[test]
fn what_differs_goes_on() {
    let mut dedup = dedup("");
    let mut peer = batch(T, &["f", "g"], &[T], false);
    peer.peer = Some("10.0.0.1".into());
    let input = [
        batch(T, &["f", "g"], &[T], false),
        batch(T, &["g", "f"], &[T], false),
        batch(T, &["f", "g"], &[T + 1], false),
        batch(T + 1, &["f", "g"], &[T], false),
        peer,
    ];
    for batch in input {
        assert_eq!(observations(&process(&mut dedup, batch, at(0))), [1]);
    }
}

/// Guarantees: a profile without a time is never a resend.
#[test]
fn profiles_without_a_time_go_on() {
    let mut dedup = dedup("");
    for _ in 0..3 {
        assert_eq!(observations(&process(&mut dedup, batch(0, &["f"], &[T], false), at(0))), [1]);
    }
}

/// Guarantees: an equal profile id alone is no reason to drop a profile, because the parts of a split profile share it.
#[test]
fn equal_ids_are_no_resend() {
    let part = |time| {
        let mut builder = Builder::new();
        builder.profile(Profile { time_unix_nano: T, profile_id: Some([7; 16]), ..Profile::default() });
        builder.sample(None, None, None, &[time], &[]);
        builder.finish().unwrap()
    };
    let mut dedup = dedup("");
    for time in [T, T + 1] {
        assert_eq!(observations(&process(&mut dedup, part(time), at(0))), [1]);
    }
    assert_eq!(process(&mut dedup, part(T), at(0)).losses.get(Reason::Resent).total(), 1);
}

/// Guarantees: only the resends in a request are dropped, including duplicates within it; the rest keeps its order.
#[test]
fn the_rest_of_a_request_goes_on() {
    let mut builder = Builder::new();
    for (service, start) in [("a", T), ("a", T + 1), ("b", T), ("a", T)] {
        builder.resource(&[("service.name", service.into())]);
        builder.profile(Profile { time_unix_nano: start, ..Profile::default() });
        builder.sample(None, None, None, &[T], &[]);
    }
    let out = process(&mut dedup(""), builder.finish().unwrap(), at(0));
    let left = batches(&out);
    let starts: Vec<_> = left[0].profiles().map(|profile| profile.time_unix_nano - T).collect();
    assert_eq!((starts, left[0].resources().len()), (vec![0, 1, 0], 3));
    assert_eq!(out.losses.get(Reason::Resent).total(), 1);
    assert!(left[0].received.is_none());
}

/// Guarantees: a profile is stored for `resend_memory` since it was last received, and not longer.
#[test]
fn memory_ends() {
    let mut dedup = dedup("resend_memory: 10s");
    let resent =
        |dedup: &mut _, seconds| process(dedup, batch(T, &["f"], &[T], false), at(seconds * S)).losses.total().total();
    assert_eq!(resent(&mut dedup, 0), 0);
    assert_eq!(resent(&mut dedup, 9), 1);
    assert_eq!(resent(&mut dedup, 18), 1);
    assert_eq!(resent(&mut dedup, 28), 0);
}

/// Guarantees: memory is limited. Profiles dropped early are counted, and the most recent ones are kept.
#[test]
fn memory_is_bounded() {
    let mut dedup = dedup("max_resend_entries: 100");
    let mut forgotten = 0;
    for n in 0..1000 {
        let out = process(&mut dedup, batch(T + n, &["f"], &[T], false), at(n));
        forgotten += out.notes.iter().filter(|(name, _)| *name == FORGOTTEN).map(|(_, count)| count).sum::<u64>();
    }
    assert_eq!(forgotten, 900);
    assert!(dedup.held().bytes < 16 << 10, "{:?}", dedup.held());
    let again = |dedup: &mut _, n| process(dedup, batch(T + n, &["f"], &[T], false), at(1000)).losses.total().total();
    assert_eq!((again(&mut dedup, 999), again(&mut dedup, 0)), (1, 0));
    // The profile is not buffered.
    assert_eq!((dedup.held().quantities.total(), dedup.due()), (0, None));
}

/// Guarantees: resends can be kept, and then no profiles are stored.
#[test]
fn resends_can_be_kept() {
    let mut dedup = dedup("resends: keep");
    for _ in 0..2 {
        assert_eq!(observations(&process(&mut dedup, batch(T, &["f"], &[T], false), at(0))), [1]);
    }
    assert_eq!(dedup.held().bytes, 0);
}

/// Guarantees: an envelope is passed on unchanged, twice if it is received twice.
#[test]
fn envelopes_pass() {
    let mut dedup = dedup("window: 5s");
    for _ in 0..2 {
        let view: Profiles = batch(T, &["f"], &[T], false);
        let out =
            process(&mut dedup, Envelope { views: vec![ItemView::profiles(0, view)], ..Envelope::default() }, at(0));
        assert_eq!(out.telemetry.len(), 1);
        assert_eq!(out.telemetry[0].observations(), 1);
    }
}

proptest! {
    /// Guarantees: every call accounts for every observation, whatever the stream and the settings.
    #[test]
    fn conserves(seed in any::<u64>(), settings in 0usize..4) {
        let yaml = ["", "resends: keep", "window: 5s\nmax_observations: 7", "window: 30s\nmax_bytes: 8KiB\nmax_resend_entries: 3"];
        let mut last = None;
        testing::check_processor(&mut dedup(yaml[settings]), seed, |random, now| {
            // Resends some requests.
            if random.u8(0..3) > 0 || last.is_none() {
                last = Some(testing::telemetry(random, 20, now));
            }
            last.clone().unwrap()
        });
    }
}
