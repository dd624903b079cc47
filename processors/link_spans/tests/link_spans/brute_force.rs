//! Compares links with those found by trying every span against every observation.

use profbridge_engine::component::Outbox;
use profbridge_model::{Profiles, Spans};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::support::*;

/// Observations at most this far apart, in milliseconds, cover the time between them: twice the period of 50 ms.
const GAP: u64 = 100;

/// Observations this shortly before or after a span, in milliseconds, count as during it.
const OFF: u64 = 50;

/// A thread of a process and its times of observation in milliseconds.
type TimedThread = (i64, i64, Vec<u64>);

/// A span of a process, the thread that it names, and its time in milliseconds.
type Asked = (i64, Option<i64>, u64, u64);

/// The result of trying everything: whether linked, and with which thread.
fn expected(&(pid, thread, from, to): &Asked, seen: &[TimedThread]) -> Option<Option<i64>> {
    let covers_within = |times: &[u64], from: u64, to: u64| {
        let mut times = times.to_vec();
        times.sort_unstable();
        let at = times.iter().any(|time| (from..=to).contains(time));
        let between = times.windows(2).any(|pair| pair[1] - pair[0] <= GAP && pair[0] <= to && from <= pair[1]);
        at || between
    };
    let covers = |times: &[u64]| covers_within(times, from.saturating_sub(OFF), to + OFF);
    let joined_of = |pid: i64, id: i64| -> Vec<u64> {
        seen.iter()
            .filter(|(of, thread, _)| *of == pid && *thread == id)
            .flat_map(|(_, _, times)| times.clone())
            .collect()
    };
    let joined = |id: i64| joined_of(pid, id);
    let threads: Vec<i64> = seen.iter().filter(|(of, ..)| *of == pid).map(|(_, thread, _)| *thread).collect();
    if !threads.iter().any(|id| covers(&joined(*id))) {
        return None;
    }
    match thread {
        None => Some(None),
        // A thread of a different process of the host, whose parent the span may claim: exactly one must match.
        Some(thread) if !threads.contains(&thread) => {
            let of_others = (1..5).filter(|of| *of != pid && covers_within(&joined_of(*of, thread), from, to));
            (of_others.count() == 1).then_some(Some(thread))
        }
        Some(thread) => covers(&joined(thread)).then_some(Some(thread)),
    }
}

/// The profiles of some observations of one thread.
fn observed((pid, thread, times): &TimedThread) -> Profiles {
    let times: Vec<u64> = times.iter().map(|time| time * MS).collect();
    profiles(&web(*pid), &[(*thread, "", &times)])
}

/// The span with this number.
fn request(number: usize, &(pid, thread, from, to): &Asked) -> Spans {
    let names = thread.map(|thread| ("thread.native_id", IntValue(thread)));
    spans(&traced(pid), vec![span(number as u8 + 1, from * MS, to * MS, names.as_slice())])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Guarantees: in whatever order spans and profiles arrive, however they are split into requests, and whether spans
    /// wait or not, a span is linked with its process and thread if and only if an observation that arrived until then
    /// covers a part of its time, or, if its process has no such thread, with the only other process whose thread of
    /// that id was observed during it. The counts of outcomes add up.
    #[test]
    fn as_by_trying_everything(
        seen in vec((1i64..4, 1i64..4, vec(0u64..3000, 1..6)), 0..8),
        asked in vec((1i64..5, proptest::option::of(1i64..5), 0u64..3000, 0u64..400), 1..8),
        (order, waits) in any::<(u64, bool)>(),
    ) {
        let asked: Vec<Asked> = asked.into_iter().map(|(pid, thread, from, long)| (pid, thread, from, from + long)).collect();
        let mut processor = link_spans(if waits { "{}" } else { "{span_wait: 0s}" });
        let (mut profiled, mut traced) = (0, 0);
        let (mut count, mut counted) = (0, 0);
        let mut check = |sent: &Outbox, profiled: usize| {
            counted += decided(sent);
            for (id, link) in links(sent) {
                count += 1;
                let (asked, seen) = (&asked[id as usize - 1], &seen[..profiled]);
                let link = link.map(|thread| thread.map(|thread| thread.parse::<i64>().unwrap()));
                prop_assert_eq!(link, expected(asked, seen), "{:?} {:?}", asked, seen);
            }
            Ok(())
        };
        for step in 0..seen.len() + asked.len() {
            let sent = if profiled < seen.len() && (traced == asked.len() || order >> step & 1 == 1) {
                profiled += 1;
                process(&mut processor, observed(&seen[profiled - 1]), at(S))
            } else {
                traced += 1;
                process(&mut processor, request(traced - 1, &asked[traced - 1]), at(S))
            };
            check(&sent, profiled)?;
        }
        check(&flush(&mut processor, at(60 * S)), profiled)?;
        prop_assert_eq!((count, counted), (asked.len(), asked.len() as u64));
    }
}
