use profbridge_model::arena::ArenaLimits;
use profbridge_model::{Builder, Telemetry};

use profbridge_model::Reason;

use super::*;

/// Guarantees: when an arena is full, the window continues in another one and no data is lost; data too large even for
/// an empty arena is dropped and counted.
#[test]
fn full_arenas_are_left() {
    let settings = Settings { arena: ArenaLimits::bytes(32 << 10), ..Settings::default() };
    let mut hold = Hold::new(settings);
    let now = Now { monotonic_nano: 1, unix_nano: 1 };
    let mut out = Outbox::default();
    let mut batch = |names: std::ops::Range<u32>| {
        let mut builder = Builder::new();
        builder.resource(&[("host.id", "h".into()), ("process.pid", 1.into())]);
        let frames: Vec<_> = names.map(|n| builder.frame(&format!("a function, number {n}"), "", 1)).collect();
        let stack = builder.stack(&frames);
        builder.sample(stack, None, None, &[5], &[]);
        hold.take(builder.finish().unwrap(), now, &mut out);
        while hold.is_absorbing() {
            hold.advance(now, &mut out);
        }
    };
    (0..2000).for_each(|n| batch(n..n + 1));
    batch(0..5000);
    while hold.flush(&mut out) {}
    let sent: u64 = out.telemetry.iter().map(Telemetry::observations).sum();
    assert_eq!((sent, out.losses.get(Reason::LimitExceeded).total()), (2000, 1));
    assert!(out.telemetry.len() > 2);
}
