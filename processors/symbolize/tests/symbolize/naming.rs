use std::collections::HashMap;
use std::sync::Arc;

use profbridge_model::{Builder, Envelope, ItemView};
use profbridge_processor_symbolize::{CodeAddress, UNKNOWN};
use profbridge_symbolizer::{SymbolAnswer, SymbolFrame, Symbols};
use proptest::prelude::*;

use crate::support::*;

/// Guarantees: names are requested only for native code: not for a bytecode index, a location with lines, an address
/// outside of its mapping, or a file without an id. Batches without native code pass unchanged, with the original
/// request.
/// rule: otlp-profiles#machine-code
#[test]
fn other_frames_are_left_alone() {
    let (mut symbolize, fake) = symbolize("");
    let mut before = batch(
        "a",
        &[
            MappedLocation { kind: "cpython", ..native(0x1100) },
            MappedLocation { kind: "jvm", ..native(0x1101) },
            MappedLocation { kind: "v8js", build_id: "", address: 0x1102, name: "" },
            MappedLocation { kind: "native", name: "known", ..native(0x1103) },
            MappedLocation { build_id: "", ..native(0x1104) },
            MappedLocation { build_id: "no digits", ..native(0x1105) },
            native(0x9000),
            native(0xfff),
            MappedLocation { kind: "abort-marker", ..native(0x1106) },
        ],
    );
    before.received = Some(b"request"[..].into());
    let out = process(&mut symbolize, before.clone(), at(0));
    assert_eq!(fake.asked(), []);
    let after = &batches(&out)[0];
    assert!(Arc::ptr_eq(after.dictionary(), before.dictionary()));
    assert_eq!(after.received, before.received);
    assert_eq!(note(&out, UNKNOWN), 3, "one without an id, two outside of their file");
}

/// Guarantees: names are also requested for unnamed kernel, Go and Rust frames, and for frames without a type.
/// Addresses are requested file by file, each once, with the process that maps the file.
#[test]
fn machine_code_is_asked_for() {
    let (mut symbolize, fake) = symbolize("");
    let places = [
        native(0x1100),
        MappedLocation { kind: "kernel", ..native(0x1101) },
        MappedLocation { kind: "go", ..native(0x1102) },
        MappedLocation { kind: "rust", ..native(0x1103) },
        MappedLocation { kind: "", ..native(0x1104) },
        MappedLocation { kind: "rust", ..native(0x1100) },
        MappedLocation { build_id: "AABBCCDD", ..native(0x1100) },
    ];
    let out = process(&mut symbolize, batch("10.0.0.1", &places), at(0));
    assert_eq!(batches(&out).len(), 0);
    let asked = fake.asked();
    let [(app, first), (other, second)] = &asked[..] else { panic!("two files: {asked:?}") };
    assert_eq!(first, &[0x1100, 0x1101, 0x1102, 0x1103, 0x1104].map(CodeAddress::Virtual));
    assert_eq!(second, &[CodeAddress::Virtual(0x1100)]);
    assert_eq!(other.id, profbridge_processor_symbolize::FileId::Gnu("aabbccdd".into()), "in lower case");
    assert_eq!(&*app.filename, "app");
    let [process] = &app.processes[..] else { panic!("one process: {app:?}") };
    assert_eq!((process.pid, process.executable.as_deref()), (Some(7), Some("/usr/bin/app")));
    assert_eq!(process.peer.as_deref(), Some("10.0.0.1"));
}

/// Guarantees: a file without a GNU build id is identified by its htlhash. For addresses in memory, the name of the
/// file offset is requested, wherever the process maps the file.
/// rule: otlp-profiles#build-ids
#[test]
fn files_are_told_by_hash() {
    let hash = "00112233445566778899aabbccddeeff";
    let (linked, low, high) = (0x1000, 0x2a_aaaa_b000, 0x7f00_0000_1000);
    for (start, address) in [
        (linked, CodeAddress::Virtual(0x1001)),
        (low, CodeAddress::InFile(0x3001)),
        (high, CodeAddress::InFile(0x3001)),
    ] {
        let (mut symbolize, fake) = symbolize("");
        let mut builder = Builder::new();
        let attributes = builder.attributes(&[("process.executable.build_id.htlhash", hash.into())]);
        let range = profbridge_model::Mapping {
            memory_start: start,
            memory_limit: start + 0x1000,
            file_offset: if start == linked { 0 } else { 0x3000 },
            ..Default::default()
        };
        let mapping = builder.mapping(profbridge_model::Mapping { attributes, ..range });
        let location = profbridge_model::Location { mapping, address: start + 1, ..Default::default() };
        let location = builder.location(location, &[]);
        let stack = builder.stack(&[location]);
        builder.sample(stack, None, None, &[1], &[]);
        process(&mut symbolize, builder.finish().unwrap(), at(0));
        let found = fake.asked();
        let [(file, asked)] = &found[..] else { panic!("{start:#x}: {found:?}") };
        assert_eq!(asked, &[address], "{start:#x}");
        assert_eq!(file.id, profbridge_processor_symbolize::FileId::Htlhash(hash.into()));
    }
}

/// Guarantees: an envelope passes untouched.
#[test]
fn envelopes_pass() {
    let (mut symbolize, fake) = symbolize("");
    let envelope =
        Envelope { views: vec![ItemView::profiles(0, batch("a", &[native(0x1100)]))], ..Envelope::default() };
    assert_eq!(process(&mut symbolize, envelope, at(0)).telemetry.len(), 1);
    assert_eq!(fake.asked(), []);
}

const KINDS: [&str; 6] = ["native", "kernel", "", "cpython", "go", "beam"];

proptest! {
    /// Guarantees: for any batch and any answers, each location has the result that a list of rules requires, with
    /// inlined functions innermost first, and everything else is unchanged.
    #[test]
    fn agrees_with_an_oracle(
        places in prop::collection::vec((0..KINDS.len(), 0..3_usize, 0xffe_u64..0x1004, any::<bool>()), 0..12),
        answers in prop::collection::hash_map(0xffe_u64..0x1004, 0..4_usize, 0..6),
    ) {
        let (mut symbolize, fake) = symbolize("timeout: 0s");
        let frame = |function: &str| SymbolFrame {
            function: function.into(),
            system_name: function.into(),
            file: Some("main.c".into()),
            line: 7,
            column: 0,
        };
        let ids = ["", "aabb", "ccdd"];
        let answer = |address: u64| match answers.get(&address) {
            Some(0) => SymbolAnswer::Symbols(symbols("early", None, 0)),
            Some(1) => unknown(),
            Some(2) => known("f"),
            Some(_) => SymbolAnswer::Final(Arc::new(Symbols::from(["inner", "outer"].map(frame).to_vec()))),
            None => SymbolAnswer::Pending,
        };
        for id in &ids[1..] {
            (0xffe..0x1004).for_each(|address| fake.set(id, address, answer(address)));
        }
        let list: Vec<_> = places
            .iter()
            .map(|&(kind, id, address, named)| {
                let name = if named { "known" } else { "" };
                MappedLocation { kind: KINDS[kind], build_id: ids[id], address, name }
            })
            .collect();
        let before = batch("a", &list);
        let out = process(&mut symbolize, before.clone(), at(0));
        let after = &batches(&out)[0];
        let said = lines(after);
        prop_assert_eq!(said.len(), before.dictionary().tables().locations.len() - 1);
        // The table is in order of first use.
        let mut at = HashMap::new();
        for place in &list {
            let next = at.len();
            at.entry((place.kind, place.build_id, place.address, place.name)).or_insert(next);
        }
        for (&(kind, id, address, name), &position) in &at {
            let code = ["native", "kernel", "go", ""].contains(&kind);
            let expected = if !name.is_empty() {
                vec!["known@:3".to_owned()]
            } else if code && !id.is_empty() && address >= 0x1000 {
                match answers.get(&address) {
                    Some(0) => vec!["early@:0".to_owned()],
                    Some(2) => vec!["f@main.c:7".to_owned()],
                    Some(3) => vec!["inner@main.c:7".to_owned(), "outer@main.c:7".to_owned()],
                    _ => vec![],
                }
            } else {
                vec![]
            };
            prop_assert_eq!(&said[position], &(address, expected), "{} {} {:?}", kind, id, name);
        }
        prop_assert_eq!(after.observations(), before.observations());
        prop_assert_eq!(&after.columns().ids, &before.columns().ids);
        prop_assert!(profbridge_model::Dictionary::new(after.dictionary().tables().clone()).is_ok());
    }
}
