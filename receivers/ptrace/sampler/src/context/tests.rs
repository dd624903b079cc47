//! Attack tests: hostile content of a program's memory, and the expected result.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::elf::RelocationKind;
use crate::message::{AttributeValue, Context, SpanLink};
use crate::runtime::TargetMemory;

/// A memory whose content may change before each read.
#[derive(Default)]
struct ChangingMemory {
    bytes: BTreeMap<u64, u8>,
    reads: usize,
    /// Changes: the number of the read before which the bytes are written, their address, and the bytes.
    changes: Vec<(usize, u64, Vec<u8>)>,
}

impl ChangingMemory {
    fn put(&mut self, address: u64, bytes: &[u8]) {
        self.bytes.extend((address..).zip(bytes.iter().copied()));
    }

    fn put_u64(&mut self, address: u64, value: u64) {
        self.put(address, &value.to_le_bytes());
    }
}

impl TargetMemory for ChangingMemory {
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> bool {
        for (number, address, change) in std::mem::take(&mut self.changes) {
            if number == self.reads {
                self.put(address, &change);
            } else {
                self.changes.push((number, address, change));
            }
        }
        self.reads += 1;
        (0..bytes.len()).all(|at| {
            let byte = address.checked_add(at as u64).and_then(|address| self.bytes.get(&address));
            byte.map(|byte| bytes[at] = *byte).is_some()
        })
    }
}

const VARIABLE: u64 = 0x1000;
const RECORD: u64 = 0x2000;
const TRACE: [u8; 16] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];
const SPAN: [u8; 8] = [21, 22, 23, 24, 25, 26, 27, 28];

fn record(valid: u8, length: u16, attributes: &[u8]) -> Vec<u8> {
    let mut bytes = [&TRACE[..], &SPAN, &[valid, 1], &length.to_le_bytes(), attributes].concat();
    bytes.truncate(bytes.len().max(28));
    bytes
}

fn memory(record: &[u8]) -> ChangingMemory {
    let mut memory = ChangingMemory::default();
    memory.put_u64(VARIABLE, RECORD);
    memory.put(RECORD, record);
    memory
}

fn schema() -> AttributeSelection {
    let keys = ["x", "http.route", "", "y"].map(str::to_owned);
    AttributeSelection::new("tlsdesc_v1_dev", &keys, &["y".to_owned(), "http.route".to_owned()]).unwrap()
}

fn context(record: &[u8]) -> Option<Context> {
    match read(VARIABLE, true, &mut memory(record)) {
        RecordReading::Record(record) => schema().context(&record),
        other => panic!("{other:?}"),
    }
}

/// Guarantees: ids are read in byte order; of the attributes, only requested ones are read, the last of each key, and
/// none that is cut, not UTF-8 or has an unknown key.
/// rule: otlp-profiles#thread-context
#[test]
fn records() {
    let link = Some(SpanLink { trace_id: TRACE, span_id: SPAN });
    assert_eq!(context(&record(1, 0, &[])), Some(Context { link, attributes: Vec::new() }));
    let bytes = b"\x00\x01a\x01\x02/a\x03\x01b\x01\x02/c\x07\x01z\x02\x00\x01\x09/";
    let found = context(&record(1, bytes.len() as u16, bytes)).unwrap();
    assert_eq!(found.attributes, [(0, "b".to_owned()), (1, "/c".to_owned())]);
    assert_eq!(context(&record(1, 4, b"\x01\x02\xff\xfe")).unwrap().attributes, []);
    // A last value that is not UTF-8 still replaces the earlier ones of its key.
    assert_eq!(context(&record(1, 7, b"\x01\x01a\x01\x02\xff\xfe")).unwrap().attributes, []);
    // The length says where the attributes end, even if more bytes follow.
    assert_eq!(context(&record(1, 2, b"\x01\x01a")).unwrap().attributes, []);
}

/// Guarantees: a record without a trace or without a span is ignored, and so is one that is marked as invalid.
#[test]
fn no_span() {
    let without = |ids: std::ops::Range<usize>, attributes: &[u8]| {
        let mut record = record(1, attributes.len() as u16, attributes);
        record[ids].fill(0);
        record
    };
    let attributes = Context { link: None, attributes: vec![(0, "b".to_owned())] };
    assert_eq!(context(&without(0..16, &[])), None);
    assert_eq!(context(&without(16..24, &[])), None);
    assert_eq!(context(&without(0..24, b"\x03\x01b")), Some(attributes));
    let mut unset = memory(&without(0..16, &[]));
    unset.put_u64(VARIABLE, 0);
    assert_eq!(read(VARIABLE, true, &mut unset), RecordReading::None);
}

/// Guarantees: a record that is being written, or at an implausible address, is rejected; one at the end of its
/// mapping is read; attributes are read up to the limit and no further.
/// rule: otlp-profiles#thread-context
#[test]
fn attack_records() {
    for valid in [0, 2, 0xff] {
        assert_eq!(read(VARIABLE, true, &mut memory(&record(valid, 0, &[]))), RecordReading::Torn);
    }
    let mut nowhere = ChangingMemory::default();
    assert_eq!(read(VARIABLE, true, &mut nowhere), RecordReading::Torn);
    nowhere.put_u64(VARIABLE, u64::MAX);
    assert_eq!(read(VARIABLE, true, &mut nowhere), RecordReading::Torn);
    assert_eq!(read(VARIABLE, false, &mut memory(&record(1, 0, &[])[..27])), RecordReading::Torn);
    assert!(matches!(read(VARIABLE, true, &mut memory(&record(1, 0, &[]))), RecordReading::Record(_)));
    assert_eq!(read(VARIABLE, true, &mut memory(&record(1, 300, &[0; 100]))), RecordReading::Torn);
    assert!(matches!(read(VARIABLE, false, &mut memory(&record(1, 300, &[]))), RecordReading::Record(_)));
    let mut long = memory(&record(1, u16::MAX, &vec![0; 1 << 16]));
    let RecordReading::Record(found) = read(VARIABLE, true, &mut long) else { panic!() };
    assert_eq!(found.attributes().count(), MAX_ATTRIBUTES / 2);
    assert_eq!(long.reads, 3);
}

/// Guarantees: unknown layouts are not read, and without requested keys no attributes are read.
#[test]
fn schemas() {
    for name in ["", "tls_v2", "go_pprof_labels_v1", "TLS_V1"] {
        assert_eq!(AttributeSelection::new(name, &[], &[]), None);
    }
    for name in ["tls_v1", "tlsdesc_v1", "tlsdesc_v1_dev"] {
        assert!(!AttributeSelection::new(name, &["a".to_owned()], &[]).unwrap().wants_attributes());
    }
    let many: Vec<String> = (0..1000).map(|key| key.to_string()).collect();
    let schema = AttributeSelection::new("tls_v1", &many, &many[250..]).unwrap();
    assert!(schema.wants_attributes());
    assert!(!AttributeSelection::new("tls_v1", &many, &many[256..]).unwrap().wants_attributes());
}

fn variable(kind: RelocationKind) -> Variable {
    Variable {
        offset: 0x18,
        in_program: None,
        words: vec![Word { kind, address: 0x100 }],
        linker: std::iter::once(0x7000..0x8000).collect(),
        glibc: true,
    }
}

fn words(first: u64, second: u64) -> ChangingMemory {
    let mut memory = ChangingMemory::default();
    memory.put_u64(0x100, first);
    memory.put_u64(0x108, second);
    memory.put_u64(0x200, 3);
    memory.put_u64(0x208, 0x110);
    memory
}

/// Guarantees: every form in which the dynamic linker stores the position of a variable is understood.
#[test]
fn places() {
    use RelocationKind::{Descriptor, Distance, Module, ModuleOnly};
    let below = 0u64.wrapping_sub(0x98);
    let place = |kind, first, second| variable(kind).place(&mut words(first, second));
    assert_eq!(place(Distance, below, 0), Some(Place::Fixed(below)));
    assert_eq!(place(Descriptor, 0x7100, below), Some(Place::Fixed(below)));
    assert_eq!(place(Descriptor, 0x7100, 0x200), Some(Place::Block { module: 3, offset: 0x110 }));
    assert_eq!(place(Module, 2, 0x20), Some(Place::Block { module: 2, offset: 0x20 }));
    assert_eq!(place(ModuleOnly, 2, 0), Some(Place::Block { module: 2, offset: 0x18 }));
    let program = Variable { in_program: Some(below), ..variable(Distance) };
    assert_eq!(program.place(&mut ChangingMemory::default()), Some(Place::Fixed(below)));
}

/// Guarantees: words that the dynamic linker has not written yet, or implausible ones, give no place.
#[test]
fn attack_places() {
    use RelocationKind::{Descriptor, Distance, Module};
    let place = |kind, first, second| variable(kind).place(&mut words(first, second));
    for distance in [0, 1, 1 << 40, 1 << 63] {
        assert_eq!(place(Distance, distance, 0), None, "{distance:#x}");
    }
    assert_eq!(place(Descriptor, 0x6fff, 0x200), None, "a resolver outside of the linker");
    assert_eq!(place(Descriptor, 0x7100, 0x300), None, "an argument that cannot be read");
    assert_eq!(place(Descriptor, 0x7100, 1 << 63), None);
    for (module, offset) in [(0, 0), (u64::MAX, 0), (1 << 20, 0), (1, u64::MAX)] {
        assert_eq!(place(Module, module, offset), None, "{module:#x} {offset:#x}");
    }
    assert_eq!(variable(Module).place(&mut ChangingMemory::default()), None);
    let musl = Variable { glibc: false, ..variable(Module) };
    assert_eq!(musl.place(&mut words(1, 0)), None);
    let mut endless = variable(Distance);
    endless.words = vec![endless.words[0]; 100_000];
    let mut memory = words(0, 0);
    assert_eq!(endless.place(&mut memory), None);
    assert_eq!(memory.reads, MAX_RELOCATIONS);
}

/// Guarantees: a thread's thread-local block is found by the thread's table (DTV) and cached, and is not invented if
/// the thread has no block yet.
#[test]
fn blocks() {
    let place = Place::Block { module: 3, offset: 0x110 };
    let mut memory = ChangingMemory::default();
    memory.put_u64(0x508, 0x600);
    memory.put_u64(0x630, u64::MAX);
    let mut block = 0;
    assert_eq!(place.address(0x500, &mut block, &mut memory), None);
    memory.put_u64(0x630, 0);
    assert_eq!(place.address(0x500, &mut block, &mut memory), None);
    memory.put_u64(0x630, 0x9000);
    assert_eq!(place.address(0x500, &mut block, &mut memory), Some(0x9110));
    let reads = memory.reads;
    assert_eq!(place.address(0x500, &mut block, &mut memory), Some(0x9110));
    assert_eq!((block, memory.reads), (0x9000, reads));
    assert_eq!(place.address(u64::MAX, &mut 0, &mut memory), None);
    assert_eq!(Place::Fixed(0u64.wrapping_sub(8)).address(0x500, &mut 0, &mut memory), Some(0x4f8));
}

/// A bytes field of a protobuf message.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    prost::encoding::encode_varint(bytes.len() as u64, &mut field);
    field.extend_from_slice(bytes);
    field
}

fn text(key: &[u8], value: &[u8]) -> Vec<u8> {
    [field(1, key), field(2, &field(1, value))].concat()
}

fn payload(resource: &[Vec<u8>], attributes: &[Vec<u8>]) -> Vec<u8> {
    let resource: Vec<u8> = resource.iter().flat_map(|attribute| field(1, attribute)).collect();
    let attributes: Vec<u8> = attributes.iter().flat_map(|attribute| field(2, attribute)).collect();
    [field(1, &resource), attributes].concat()
}

const HEADER: u64 = 0x10_0000;
const PAYLOAD: u64 = 0x20_0000;

fn published(payload: &[u8]) -> ChangingMemory {
    let mut memory = ChangingMemory::default();
    memory.put(HEADER, b"OTEL_CTX\x02\0\0\0");
    memory.put(HEADER + 12, &(payload.len() as u32).to_le_bytes());
    memory.put_u64(HEADER + 16, 77);
    memory.put_u64(HEADER + 24, PAYLOAD);
    memory.put(PAYLOAD, payload);
    memory
}

fn value(text: &str) -> AttributeValue {
    AttributeValue::Text(text.to_owned())
}

/// Guarantees: string and integer attributes of the resource are read, the last of each key, and so is the layout of
/// thread records.
/// rule: otlp-profiles#process-context
#[test]
fn publications() {
    let number = [field(1, b"process.threads"), field(2, b"\x18\x07")].concat();
    let keys: Vec<u8> = [&b"a"[..], b"\xff", b"http.route"].iter().flat_map(|key| field(1, &field(1, key))).collect();
    let keys = [field(1, b"threadlocal.attribute_key_map"), field(2, &field(5, &keys))].concat();
    let payload = payload(
        &[text(b"service.name", b"old"), number, text(b"service.name", b"shop")],
        &[text(b"threadlocal.schema_version", b"tls_v1"), keys],
    );
    let found = publication(HEADER, &mut published(&payload)).unwrap();
    let expected = [("process.threads", AttributeValue::Int(7)), ("service.name", value("shop"))];
    assert_eq!(found.resource, expected.map(|(key, value)| (key.to_owned(), value)));
    assert_eq!(found.at, 77);
    assert_eq!(published_at(HEADER, &mut published(&payload)), Some(77));
    let keys = ["a", "", "http.route"].map(str::to_owned);
    let allowed = ["http.route".to_owned()];
    assert_eq!(found.schema(&allowed), AttributeSelection::new("tls_v1", &keys, &allowed));
    assert_eq!(publication(HEADER, &mut published(&[])).unwrap().schema(&[]), None);
}

/// Guarantees: a publication that changes while it is read is read again, three times at most; each reason for not
/// reading a context is reported.
/// rule: otlp-profiles#process-context
#[test]
fn attack_publications() {
    let payload = payload(&[text(b"service.name", b"a")], &[]);
    let mut changing = published(&payload);
    changing.changes = vec![(1, PAYLOAD + payload.len() as u64 - 1, b"b".to_vec()), (2, HEADER + 16, vec![78])];
    let found = publication(HEADER, &mut changing).unwrap();
    assert_eq!((found.at, &found.resource[0].1), (78, &value("b")));
    let mut endless = published(&payload);
    endless.changes = (0..30).map(|read| (read, HEADER + 16, vec![read as u8 + 1])).collect();
    assert_eq!(publication(HEADER, &mut endless), Err(Unreadable::Changing));
    assert!(endless.reads <= 9);
    let with = |change: &dyn Fn(&mut ChangingMemory)| {
        let mut memory = published(&payload);
        change(&mut memory);
        let at = published_at(HEADER, &mut memory);
        (publication(HEADER, &mut memory).unwrap_err(), at)
    };
    assert_eq!(with(&|memory| memory.put_u64(HEADER + 16, 0)), (Unreadable::Changing, None));
    assert_eq!(with(&|memory| memory.put(HEADER, b"x")).0, Unreadable::Missing);
    assert_eq!(with(&|memory| memory.bytes.clear()), (Unreadable::Missing, None));
    assert_eq!(with(&|memory| memory.put(HEADER + 8, &[1])).0, Unreadable::Version(1));
    assert_eq!(with(&|memory| memory.put(HEADER + 12, &[0xff; 4])).0, Unreadable::TooLarge(u32::MAX));
    assert!(matches!(with(&|memory| memory.put_u64(HEADER + 24, u64::MAX)).0, Unreadable::Malformed(_)));
    assert!(matches!(with(&|memory| memory.put(PAYLOAD, &[0xff])).0, Unreadable::Malformed(_)));
}

/// Guarantees: keys and strings that are not UTF-8, empty or too long are left out without affecting others;
/// attributes beyond the limits are dropped; the nesting of messages is limited.
#[test]
fn attack_messages() {
    let long = [b'x'; MAX_RESOURCE_TEXT + 1];
    let bad = [
        text(b"\xff", b"a"),
        text(b"b", b"\xff"),
        text(b"", b"c"),
        text(b"d", b""),
        text(&long, b"e"),
        text(b"f", &long),
        text(b"good", b"g"),
    ];
    let found = publication(HEADER, &mut published(&payload(&bad, &[]))).unwrap();
    assert_eq!(found.resource, [("good".to_owned(), value("g"))]);
    let many: Vec<Vec<u8>> = (0..1000).map(|key| text(key.to_string().as_bytes(), b"v")).collect();
    let found = publication(HEADER, &mut published(&payload(&many, &[]))).unwrap();
    assert_eq!(found.resource.len(), MAX_RESOURCE_ATTRIBUTES);
    let large: Vec<Vec<u8>> = (0..10).map(|key| text(key.to_string().as_bytes(), &long[1..])).collect();
    let found = publication(HEADER, &mut published(&payload(&large, &[]))).unwrap();
    assert!(found.resource.iter().map(|(key, value)| key.len() + value.size()).sum::<usize>() <= MAX_RESOURCE);
    let mut nested = Vec::new();
    while nested.len() < 40_000 {
        nested = field(5, &field(1, &nested));
    }
    let nested = [field(1, b"threadlocal.attribute_key_map"), field(2, &nested)].concat();
    assert!(matches!(publication(HEADER, &mut published(&payload(&[], &[nested]))), Err(Unreadable::Malformed(_))));
}

proptest! {
    /// Guarantees: whatever is in memory, reading ends after few reads and without a panic.
    #[test]
    fn anything(bytes in proptest::collection::vec(any::<u8>(), 0..2000), pointer in 0u64..3000) {
        let mut memory = ChangingMemory::default();
        memory.put(0, &bytes);
        let reading = read(pointer, true, &mut memory);
        if let RecordReading::Record(record) = reading {
            schema().context(&record);
        }
        drop(publication(pointer, &mut memory));
        prop_assert!(memory.reads <= 12);
        memory.put(HEADER, b"OTEL_CTX\x02\0\0\0");
        memory.put(HEADER + 12, &(bytes.len() as u32).to_le_bytes());
        memory.put_u64(HEADER + 16, 1);
        memory.put_u64(HEADER + 24, 0);
        if let Ok(found) = publication(HEADER, &mut memory) {
            prop_assert!(found.resource.len() <= MAX_RESOURCE_ATTRIBUTES);
        }
    }
}
