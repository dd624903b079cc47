use profbridge_engine::component::{Outbox, Processor};
use profbridge_processor_symbolize::{LATE, NAMED, RELEASED_EARLY};
use profbridge_symbolizer::SymbolAnswer;

use crate::support::*;

/// Guarantees: a batch waits until all of its addresses have final answers, and a poll is due until then. Other batches
/// are not delayed.
#[test]
fn waits_for_the_last_name() {
    let (mut symbolize, fake) = symbolize("timeout: 5s");
    fake.set(ID, 0x1100, known("f"));
    assert!(process(&mut symbolize, batch("a", &[native(0x1100), native(0x1200)]), at(0)).telemetry.is_empty());
    assert_eq!(symbolize.held().quantities.total(), 2);
    assert!(symbolize.held().bytes > 0);
    for moment in [20, 40, 900] {
        assert!(symbolize.due().unwrap() <= at(moment * MS).monotonic_nano);
        assert!(advance(&mut symbolize, at(moment * MS)).telemetry.is_empty());
        assert!(symbolize.due().unwrap() > at(moment * MS).monotonic_nano);
    }
    // A name without a line is not final.
    fake.set(ID, 0x1200, SymbolAnswer::Symbols(symbols("g", None, 0)));
    assert!(advance(&mut symbolize, at(920 * MS)).telemetry.is_empty());
    fake.set(ID, 0x1200, known("g"));
    let out = advance(&mut symbolize, at(940 * MS));
    let expected = [(0x1100, vec!["f@main.c:7".to_owned()]), (0x1200, vec!["g@main.c:7".to_owned()])];
    assert_eq!(lines(&batches(&out)[0]), expected);
    assert_eq!((note(&out, NAMED), note(&out, LATE)), (2, 0));
    assert_eq!((symbolize.due(), symbolize.held().quantities.total(), symbolize.held().bytes), (None, 0, 0));
}

/// Guarantees: at the deadline, a batch is sent with the names known so far: locations have a name without a line, or
/// no name. Both are counted as late.
#[test]
fn the_deadline_ends_waiting() {
    let (mut symbolize, fake) = symbolize("timeout: 1s");
    fake.set(ID, 0x1100, SymbolAnswer::Symbols(symbols("f", None, 0)));
    process(&mut symbolize, batch("a", &[native(0x1100), native(0x1200)]), at(0));
    advance(&mut symbolize, at(990 * MS));
    assert_eq!(symbolize.due(), Some(at(1000 * MS).monotonic_nano), "no later than the deadline");
    let out = advance(&mut symbolize, at(1000 * MS));
    assert_eq!(lines(&batches(&out)[0]), [(0x1100, vec!["f@:0".to_owned()]), (0x1200, vec![])]);
    assert_eq!((note(&out, NAMED), note(&out, LATE)), (1, 2));
    assert_eq!(symbolize.due(), None);
}

/// Guarantees: batches of one peer stay in order, and do not delay those of other peers.
#[test]
fn senders_keep_their_order() {
    let (mut symbolize, fake) = symbolize("");
    fake.set(ID, 0x1100, known("f"));
    assert!(process(&mut symbolize, batch("a", &[native(0x1200)]), at(0)).telemetry.is_empty());
    // These batches could be sent at once, but an earlier batch of "a" is waiting.
    assert!(process(&mut symbolize, batch("a", &[native(0x1100)]), at(1)).telemetry.is_empty());
    assert!(process(&mut symbolize, batch("a", &[]), at(2)).telemetry.is_empty());
    assert_eq!(senders(&process(&mut symbolize, batch("b", &[native(0x1100)]), at(3))), ["b"]);
    assert!(process(&mut symbolize, batch("c", &[native(0x1300)]), at(4)).telemetry.is_empty());
    fake.set(ID, 0x1300, known("h"));
    assert_eq!(senders(&advance(&mut symbolize, at(20 * MS))), ["c"]);
    fake.set(ID, 0x1200, known("g"));
    let out = advance(&mut symbolize, at(40 * MS));
    let addresses: Vec<_> =
        batches(&out).iter().map(|batch| lines(batch).first().map(|(address, _)| *address)).collect();
    assert_eq!(addresses, [Some(0x1200), Some(0x1100), None]);
}

/// Guarantees: without a timeout, nothing is buffered, and known names are used.
#[test]
fn no_timeout_holds_nothing() {
    let (mut symbolize, fake) = symbolize("timeout: 0s");
    fake.set(ID, 0x1100, known("f"));
    let out = process(&mut symbolize, batch("a", &[native(0x1100), native(0x1200)]), at(0));
    assert_eq!(lines(&batches(&out)[0])[0].1, ["f@main.c:7"]);
    assert_eq!((note(&out, NAMED), note(&out, LATE)), (1, 1));
    assert_eq!(symbolize.due(), None);
}

/// Guarantees: above the size limit, the oldest batches are sent early and counted, and the buffer stays below the
/// limit.
#[test]
fn the_bound_lets_the_oldest_go() {
    let (mut symbolize, _) = symbolize("max_bytes: 4KiB");
    let mut left = Vec::new();
    let mut early = 0;
    for number in 0..20 {
        let out = process(&mut symbolize, batch(&format!("peer {number}"), &[native(0x1100)]), at(number));
        left.extend(senders(&out));
        early += note(&out, RELEASED_EARLY);
        assert!(symbolize.held().bytes <= 4096);
    }
    let expected: Vec<_> = (0..left.len()).map(|number| format!("peer {number}")).collect();
    assert!(!left.is_empty());
    assert_eq!((left, early), (expected.clone(), expected.len() as u64));
}

/// Guarantees: under memory pressure, all batches are sent at once and counted as early; at shutdown, they are sent in
/// order.
#[test]
fn relief_and_flush_empty_it() {
    for on_memory_pressure in [true, false] {
        let (mut symbolize, fake) = symbolize("");
        fake.set(ID, 0x1100, SymbolAnswer::Symbols(symbols("f", None, 0)));
        process(&mut symbolize, batch("a", &[native(0x1100)]), at(0));
        process(&mut symbolize, batch("b", &[native(0x1200)]), at(0));
        let mut out = Outbox::default();
        while if on_memory_pressure {
            symbolize.on_memory_pressure(at(1), &mut out)
        } else {
            symbolize.flush(at(1), &mut out)
        } {}
        assert_eq!(senders(&out), ["a", "b"]);
        assert_eq!(lines(&batches(&out)[0])[0].1, ["f@:0"]);
        assert_eq!(note(&out, RELEASED_EARLY), if on_memory_pressure { 2 } else { 0 });
        assert_eq!((symbolize.due(), symbolize.held().bytes), (None, 0));
    }
}
