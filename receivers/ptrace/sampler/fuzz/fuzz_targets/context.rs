//! Reads process and thread contexts (OTEPs 4719, 4947) from arbitrary bytes, which are the program's memory from
//! address 0 on.
//!
//! The input is a kind of relocation, an offset, a thread pointer and an address (8 bytes each), then the memory.
//! Guarantees: no panic; a bounded number of reads; a resource and attributes within their limits.
#![no_main]

use libfuzzer_sys::fuzz_target;
use profbridge_sampler::context::{
    AttributeSelection, MAX_ATTRIBUTES, MAX_RESOURCE_ATTRIBUTES, MAX_RESOURCE_TEXT, MAX_VALUE, RecordReading, Variable,
    Word, publication, published_at, read,
};
use profbridge_sampler::elf::RelocationKind;
use profbridge_sampler::message::AttributeValue;
use profbridge_sampler::runtime::TargetMemory;

struct Memory<'a> {
    bytes: &'a [u8],
    reads: u32,
}

impl TargetMemory for Memory<'_> {
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> bool {
        self.reads += 1;
        let found = usize::try_from(address).ok().and_then(|at| self.bytes.get(at..)?.get(..bytes.len()));
        found.is_some_and(|found| {
            bytes.copy_from_slice(found);
            true
        })
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((head, bytes)) = data.split_first_chunk::<32>() else { return };
    let number = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().unwrap());
    let (kind, offset, pointer, address) = (number(0), number(8), number(16), number(24));
    let mut memory = Memory { bytes, reads: 0 };
    let kinds =
        [RelocationKind::Distance, RelocationKind::Descriptor, RelocationKind::Module, RelocationKind::ModuleOnly];
    let words = vec![Word { kind: kinds[(kind % 4) as usize], address: kind >> 8 }];
    let variable =
        Variable { offset, in_program: None, words, linker: std::iter::once(0..1 << 40).collect(), glibc: true };
    let keys = ["a", "b", "c"].map(str::to_owned);
    let schema = AttributeSelection::new("tls_v1", &keys, &keys[1..]).unwrap();
    let place = variable.place(&mut memory).and_then(|place| place.address(pointer, &mut 0, &mut memory));
    for at in [place, Some(address)].into_iter().flatten() {
        if let RecordReading::Record(record) = read(at, true, &mut memory)
            && let Some(context) = schema.context(&record)
        {
            let size: usize = context.attributes.iter().map(|(_, value)| value.len()).sum();
            assert!(context.attributes.len() <= 2 && size <= MAX_ATTRIBUTES);
            assert!(context.attributes.iter().all(|(key, value)| *key < 2 && value.len() <= MAX_VALUE));
        }
    }
    published_at(address, &mut memory);
    if let Ok(published) = publication(address, &mut memory) {
        assert!(published.resource.len() <= MAX_RESOURCE_ATTRIBUTES && published.at != 0);
        for (_, value) in &published.resource {
            assert!(!matches!(value, AttributeValue::Text(text) if text.is_empty() || text.len() > MAX_RESOURCE_TEXT));
        }
        published.schema(&keys);
    }
    assert!(memory.reads <= 32);
});
