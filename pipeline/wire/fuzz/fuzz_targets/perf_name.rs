//! Uses arbitrary bytes as a name from a perf map, of code in no file: parses it, and converts it as the name of a
//! native frame.
//!
//! Guarantees: no panic; a parsed name has a function, and its file is a part of the name; Relay accepts the chunk.
#![no_main]

use libfuzzer_sys::fuzz_target;
use profbridge_model::{Builder, IdentityStrength, ProcessWindow, ProfilerId};
use profbridge_relay_rules::validate_json;
use profbridge_wire::perf_name;
use profbridge_wire::sentry::chunk::{Collected, Converter, Settings};

const START: u64 = 1_760_000_000_000_000_000;

fuzz_target!(|data: &[u8]| {
    let Ok(name) = std::str::from_utf8(data) else { return };
    if let Some(parsed) = perf_name::parse(name) {
        assert!(!parsed.function.is_empty());
        assert!(name.contains(parsed.file));
    }
    let mut builder = Builder::new();
    builder.resource(&[("service.name", "shop".into())]);
    builder.scope("fuzz", "1");
    builder.on_cpu(20);
    let frame = builder.frame(name, "", 0);
    let stack = builder.stack(&[frame]);
    let thread = builder.attributes(&[("thread.id", 7.into())]);
    builder.sample(stack, thread, None, &[START, START + 50_000_000], &[]);
    let mut batch = builder.finish().expect("small");
    batch.window = Some(ProcessWindow {
        profiler_id: ProfilerId::from_hash(7),
        strength: IdentityStrength::Strong,
        start_unix_nano: START,
        end_unix_nano: START + 1_000_000_000,
    });
    let mut collected = Collected::default();
    let report = Converter::new(Settings::default()).convert(&batch, &mut collected);
    assert!(report.balanced(), "{report:?}");
    for (json, _) in &collected.chunks {
        validate_json(json).expect("a chunk that Relay takes");
    }
});
