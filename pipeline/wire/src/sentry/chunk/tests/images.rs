//! Simulates how linkers lay out files, how Linux maps them, and how profilers report them. The tests compare a
//! symboliser's view of the chunk with the file.

use profbridge_model::{Location, Mapping};
use proptest::prelude::*;
use serde_json::Value;

use super::support::{BatchDraft, START};
use crate::sentry::chunk::Settings;

const PAGE: u64 = 4096;

/// The linker of a file, which determines the layout in the file and in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Linker {
    /// Each segment starts on its own page, at the same distance from its file offset.
    Gnu,
    /// Code is the first segment and starts at the file's first byte.
    Go,
    /// Segments are contiguous in the file; in memory each is shifted by one more page.
    Lld,
}

/// A segment of the file: offset, address, length, and whether it contains code.
#[derive(Debug, Clone, Copy)]
struct FileSegment {
    offset: u64,
    address: u64,
    length: u64,
    code: bool,
}

/// A file on disk and its location in a process.
#[derive(Debug, Clone)]
struct ImageFile {
    linker: Linker,
    /// The link-time address of its first byte: 0 for position-independent files.
    base: u64,
    segments: Vec<FileSegment>,
    /// The offset by which each load of the file was relocated.
    moves: Vec<u64>,
    /// Whether the profiler reports absolute memory addresses.
    absolute: bool,
    /// The executing positions, in thousandths of the segment.
    executed: Vec<u64>,
}

impl ImageFile {
    fn new((linker, fixed): (Linker, bool), lengths: &[u64], moves: Vec<u64>, absolute: bool, at: Vec<u64>) -> Self {
        let base = match linker {
            _ if !fixed => 0,
            Linker::Gnu | Linker::Go => 0x40_0000,
            Linker::Lld => 0x20_0000,
        };
        let (mut segments, mut offset, mut shift) = (Vec::new(), 0_u64, 0);
        for (part, &length) in lengths.iter().enumerate() {
            if part > 0 {
                match linker {
                    Linker::Gnu | Linker::Go => offset = offset.next_multiple_of(PAGE),
                    Linker::Lld => shift += PAGE,
                }
            }
            let code = if linker == Linker::Go { part == 0 } else { part == 1 };
            segments.push(FileSegment { offset, address: base + offset + shift, length, code });
            offset += length;
        }
        // A file linked for a fixed address is not relocated.
        let moves = if base > 0 { vec![0] } else { moves };
        Self { linker, base, segments, moves, absolute, executed: at }
    }

    /// The mapping of a segment as the kernel creates and the profiler reports it: start, limit and offset in whole
    /// pages.
    fn mapping(&self, segment: &FileSegment, moved: u64) -> (u64, u64, u64) {
        let by = if self.absolute { moved } else { 0 };
        let start = segment.address / PAGE * PAGE;
        let limit = (segment.address + segment.length).next_multiple_of(PAGE);
        (start + by, limit + by, segment.offset / PAGE * PAGE)
    }
}

fn file() -> impl Strategy<Value = ImageFile> {
    let linker = prop_oneof![Just(Linker::Gnu), Just(Linker::Go), Just(Linker::Lld)];
    let lengths = proptest::collection::vec(1_u64..3_000_000, 2..5);
    // Linux's addresses for position-independent files: 39-bit and 48-bit address spaces.
    let moved = prop_oneof![0x2a_aaaa_a000_u64..0x3f_ffff_f000, 0x5500_0000_0000_u64..0x7fff_0000_0000];
    let moves = proptest::collection::vec(moved.prop_map(|by| by / PAGE * PAGE), 1..3);
    let executed = proptest::collection::vec(0_u64..1000, 1..6);
    ((linker, any::<bool>()), lengths, moves, any::<bool>(), executed)
        .prop_map(|(kind, lengths, moves, absolute, at)| ImageFile::new(kind, &lengths, moves, absolute, at))
}

fn hex(value: &Value) -> u64 {
    u64::from_str_radix(value.as_str().unwrap().strip_prefix("0x").unwrap(), 16).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Guarantees: a symboliser that subtracts the image's address gets the code's distance from the file's first byte.
    /// This holds for any linker, load address, number of loads and of mappings, and for file and memory addresses. The
    /// only exception is LLD's extra page in a relocated file, which the mapping does not show. A file is one image,
    /// and images do not overlap.
    /// rule: sample-format-v2#frame-address, profiles-sdk#frame-address, event-schema#image-vmaddr
    /// rule: event-schema#frame-address, otep-0239#mapping-range, otep-0239#location-address
    #[test]
    fn against_the_files(files in proptest::collection::vec(file(), 1..5), halves in any::<bool>()) {
        let mut batch = BatchDraft::new().on_cpu(20);
        let mut expected = Vec::new();
        let mut stack = Vec::new();
        for (number, file) in files.iter().enumerate() {
            let builder = &mut batch.builder;
            let filename = builder.string(&format!("file{number}"));
            let build_id = format!("{:08x}b03e4a7f", number + 1);
            let attributes = builder.attributes(&[("process.executable.build_id.gnu", build_id.as_str().into())]);
            for &moved in &file.moves {
                let segment = file.segments.iter().find(|segment| segment.code).unwrap();
                let (start, limit, offset) = file.mapping(segment, moved);
                let middle = if halves { (start + limit) / 2 / PAGE * PAGE } else { start };
                for &share in &file.executed {
                    let linked = segment.address + segment.length * share / 1000;
                    let address = linked + if file.absolute { moved } else { 0 };
                    // The kernel splits a mapping where permissions or pages differ.
                    let (memory_start, memory_limit) =
                        if address < middle { (start, middle) } else { (middle, limit) };
                    let file_offset = offset + (memory_start - start);
                    let mapping = builder.mapping(Mapping {
                        memory_start, memory_limit, file_offset, filename, attributes,
                    });
                    let place = Mapping { memory_start, memory_limit, file_offset, ..Mapping::default() };
                    prop_assert_eq!(place.offset_of(address), Some(segment.offset + (linked - segment.address)));
                    stack.push(builder.location(Location { mapping, address, ..Location::default() }, &[]));
                    let unknown = file.absolute && file.linker == Linker::Lld && file.base == 0;
                    expected.push((number, linked - file.base - if unknown { PAGE } else { 0 }));
                }
            }
        }
        let stack = batch.builder.stack(&stack);
        let thread = batch.builder.attributes(&[("thread.id", 7.into())]);
        batch.builder.sample(stack, thread, None, &[START, START + 50_000_000], &[]);
        let converted = batch.convert_with(Settings::default());
        let chunk = converted.chunk();

        let images: Vec<_> = chunk["debug_meta"]["images"].as_array().unwrap().iter().collect();
        prop_assert_eq!(images.len(), files.len());
        let mut ranges: Vec<_> = images
            .iter()
            .map(|image| (hex(&image["image_addr"]), hex(&image["image_addr"]) + image["image_size"].as_u64().unwrap()))
            .collect();
        ranges.sort_unstable();
        prop_assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{:x?}", ranges);

        // The chunk has one stack, whose frames are the locations in order.
        let frames = chunk["profile"]["frames"].as_array().unwrap();
        let stacks = chunk["profile"]["stacks"].as_array().unwrap();
        let stack = stacks.iter().find(|stack| !stack.as_array().unwrap().is_empty()).unwrap();
        let found: Vec<_> = stack
            .as_array()
            .unwrap()
            .iter()
            .map(|index| {
                let address = hex(&frames[index.as_u64().unwrap() as usize]["instruction_addr"]);
                let image = images.iter().find(|image| {
                    let start = hex(&image["image_addr"]);
                    (start..start + image["image_size"].as_u64().unwrap()).contains(&address)
                });
                let image = image.unwrap();
                let number: usize = image["code_file"].as_str().unwrap()[4..].parse().unwrap();
                (number, address - hex(&image["image_addr"]))
            })
            .collect();
        prop_assert_eq!(found, expected);
    }
}
