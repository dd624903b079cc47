//! Converts mappings to images in disjoint synthetic address ranges.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::profiles::v1development::{Mapping, ProfilesDictionary};

use super::{
    attributes::{indexed, string, text_of},
    chunk::NaiveImage,
};

const PAGE: u64 = 4096;

/// The address of the first image.
const BASE: u64 = 0x1_0000_0000;

/// The synthetic address space of one chunk.
#[derive(Default)]
pub(super) struct NaiveImages {
    placed: BTreeMap<i32, Placed>,
}

#[derive(Clone, Copy)]
struct Placed {
    image_addr: u64,
    image_vmaddr: u64,
    size: u64,
}

impl NaiveImages {
    /// Places every used mapping, in order of its index. `used` contains the highest used address of each.
    pub(super) fn place(dictionary: &ProfilesDictionary, used: &BTreeMap<i32, u64>) -> Self {
        let mut next = BASE;
        let mut placed = BTreeMap::new();
        for (&index, &highest) in used {
            let Some(mapping) = mapping(dictionary, index) else { continue };
            // The kernel's mapping has no range, and its frames already have names.
            if mapping.memory_limit <= mapping.memory_start {
                continue;
            }
            let end = mapping.memory_limit.max(highest.saturating_add(1));
            let size = end.saturating_sub(mapping.memory_start).div_ceil(PAGE).saturating_mul(PAGE);
            placed.insert(index, Placed { image_addr: next, image_vmaddr: mapping.memory_start, size });
            next = next.saturating_add(size).saturating_add(PAGE);
        }
        Self { placed }
    }

    /// `image_addr + (address - image_vmaddr)`, if the address is in the mapping.
    pub(super) fn absolute(&self, mapping: i32, address: u64) -> Option<u64> {
        let placed = self.placed.get(&mapping)?;
        placed.image_addr.checked_add(address.checked_sub(placed.image_vmaddr)?)
    }

    /// The images of the mappings that have a GNU build id.
    pub(super) fn list(&self, dictionary: &ProfilesDictionary) -> Vec<NaiveImage> {
        let image = |(&index, placed): (&i32, &Placed)| {
            let mapping = mapping(dictionary, index)?;
            Some(NaiveImage {
                kind: "symbolic".to_owned(),
                debug_id: debug_id(&gnu_build_id(dictionary, mapping)?)?,
                code_file: string(dictionary, mapping.filename_strindex).to_owned(),
                image_addr: format!("{:#x}", placed.image_addr),
                image_vmaddr: format!("{:#x}", placed.image_vmaddr),
                image_size: placed.size,
            })
        };
        self.placed.iter().filter_map(image).collect()
    }
}

/// The mapping of a location; index 0 is "none".
pub(super) fn mapping(dictionary: &ProfilesDictionary, index: i32) -> Option<&Mapping> {
    dictionary.mapping_table.get(usize::try_from(index).ok().filter(|&index| index > 0)?)
}

fn gnu_build_id(dictionary: &ProfilesDictionary, mapping: &Mapping) -> Option<String> {
    text_of(dictionary, indexed(dictionary, &mapping.attribute_indices, "process.executable.build_id.gnu")?)
}

/// The first 16 bytes as a GUID whose first three fields are little-endian; shorter ids are padded with zeroes.
///
/// Source: getsentry/relay's test vector (b03e4a7f5e884c8d... is 7f4a3eb0-885e-8d4c-...).
pub(super) fn debug_id(build_id: &str) -> Option<String> {
    if build_id.is_empty() || !build_id.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let digits: String = build_id.to_ascii_lowercase().chars().chain("0".repeat(32).chars()).take(32).collect();
    let byte = |position: usize| &digits[position * 2..position * 2 + 2];
    let group = |positions: &[usize]| positions.iter().map(|&position| byte(position)).collect::<String>();
    Some(format!(
        "{}-{}-{}-{}-{}",
        group(&[3, 2, 1, 0]),
        group(&[5, 4]),
        group(&[7, 6]),
        group(&[8, 9]),
        group(&[10, 11, 12, 13, 14, 15])
    ))
}
