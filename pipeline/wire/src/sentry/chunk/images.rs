//! The executable files that frames point into.
//!
//! Relay lets one type of image pass that Sentry symbolises for Linux, `symbolic`, and drops a frame's `addr_mode`, so
//! addresses are absolute (getsentry/relay `relay-event-schema/src/protocol/debug_image.rs`,
//! `relay-profiling/src/perfetto/convert`). OTLP has addresses of the file, or of the memory of a process that had it
//! mapped ([`Mapping::moved_by`]). So each file gets a range of its own in an address space that exists for one chunk
//! only, wherever it was mapped and however often: images that overlap are none to a symboliser.

use hashbrown::HashMap;

use profbridge_model::{AttributeSetId, Dictionary, Mapping, MappingId, Value};
use serde_json::value::RawValue;

use super::limits::MAX_STRING_BYTES;
use super::report::Notes;
use super::stamped::Stamped;
use super::write::{Object, put_json};
use crate::json;
use crate::sentry::sampled::text::{Entries, Text};
use crate::sentry::sampled::{self, MAX_BYTES, MAX_ENTRIES};

/// The distance between two images, and so the largest size of one: 4 GiB.
const STRIDE: u64 = 1 << 32;

/// Load addresses are multiples of this: 4 MiB for GNU ld, 2 MiB for LLD, 0 where the file may lie anywhere.
const LOAD_ALIGN: u64 = 2 << 20;

/// Those below [`LOAD_ALIGN`] are multiples of this: 64 KiB, for Go on arm64, and GNU ld and LLD on RISC-V.
const LOW_LOAD_ALIGN: u64 = 64 << 10;

/// The images of one chunk.
#[derive(Debug, Default)]
pub(super) struct Images {
    images: Vec<Image>,
    by_mapping: Stamped,
    by_id: HashMap<([u8; 16], u64), u32>,
    /// Of a chunk that is kept as it was: the mappings that its frames lie in.
    kept: Vec<MappingId>,
}

/// A file in the chunk's address space.
#[derive(Debug, Clone, Copy)]
struct Image {
    mapping: MappingId,
    debug_id: [u8; 16],
    vmaddr: u64,
    size: u64,
}

/// Stands for "has no image" among the numbers of images.
const NO_IMAGE: u32 = u32::MAX;

impl Images {
    /// Starts a chunk.
    pub(super) fn begin(&mut self, dictionary: &Dictionary) {
        self.images.clear();
        self.kept.clear();
        self.by_id.clear();
        self.by_mapping.begin(dictionary.tables().mappings.len());
    }

    /// The absolute address of an address of a mapping's file; `None` where the file has no GNU build id or the address
    /// does not lie in it. Makes the file one of the chunk's images.
    pub(super) fn absolute(&mut self, dictionary: &Dictionary, mapping: MappingId, address: u64) -> Option<u64> {
        let number = match self.by_mapping.get(mapping.index()) {
            Some(number) => number,
            None => {
                let number = self.place(dictionary, mapping).unwrap_or(NO_IMAGE);
                self.by_mapping.set(mapping.index(), number);
                number
            }
        };
        let image = self.images.get(number as usize)?;
        let linked = address.checked_sub(dictionary.mapping(mapping).moved_by())?;
        let offset = linked.checked_sub(image.vmaddr).filter(|&offset| offset < image.size)?;
        Some(base(number) + offset)
    }

    fn place(&mut self, dictionary: &Dictionary, id: MappingId) -> Option<u32> {
        let mapping = dictionary.mapping(id);
        let build_id = match dictionary.find(mapping.attributes, "process.executable.build_id.gnu")? {
            Value::String(text) => dictionary.string(*text),
            _ => return None,
        };
        let debug_id = debug_id(build_id)?;
        let vmaddr = load_address(mapping);
        let end = mapping.memory_limit.checked_sub(mapping.moved_by())?;
        let size = end.checked_sub(vmaddr).filter(|&size| size > 0 && size <= STRIDE)?;
        if mapping.memory_limit <= mapping.memory_start {
            // The kernel's: it has no range, and its frames have names already.
            return None;
        }
        let next = self.images.len() as u32;
        let number = *self.by_id.entry((debug_id, vmaddr)).or_insert(next);
        match self.images.get_mut(number as usize) {
            // Another part of the same file.
            Some(image) => image.size = image.size.max(size),
            None => self.images.push(Image { mapping: id, debug_id, vmaddr, size }),
        }
        Some(number)
    }

    /// Makes the file of a mapping one of the images of a chunk that is kept as it was.
    pub(super) fn keep(&mut self, mapping: MappingId) {
        if self.by_mapping.get(mapping.index()).is_none() {
            self.by_mapping.set(mapping.index(), NO_IMAGE);
            self.kept.push(mapping);
        }
    }

    /// Appends the images as the inside of a JSON array.
    pub(super) fn write(&self, dictionary: &Dictionary, out: &mut Vec<u8>, notes: &mut Notes) {
        for (number, image) in (0..).zip(&self.images) {
            let debug_id = uuid::Uuid::from_bytes_le(image.debug_id).hyphenated().to_string();
            let file = dictionary.string_bytes(dictionary.mapping(image.mapping).filename);
            let shown = Shown {
                kind: "symbolic",
                debug_id: Some(&debug_id),
                code_file: Some(json::cut(file, MAX_STRING_BYTES)),
                uuid: None,
                addr: base(number),
                vmaddr: Some(image.vmaddr),
                size: image.size,
            };
            shown.put(out, false, notes);
        }
    }

    /// The same of a chunk that is kept as it was: of the mappings that frames lie in, and of the images that an
    /// attribute of the profile kept. Those that would make Relay refuse the chunk are left out and counted.
    pub(super) fn write_kept(
        &self,
        dictionary: &Dictionary,
        profile: Option<AttributeSetId>,
        out: &mut Vec<u8>,
        notes: &mut Notes,
    ) {
        for &mapping in &self.kept {
            // Then the chunk is not written as it was.
            if out.len() > MAX_BYTES {
                return;
            }
            match Shown::kept(dictionary, mapping) {
                Some(shown) => shown.put(out, true, notes),
                None => notes.left_out += 1,
            }
        }
        let Some(Value::Array(others)) = dictionary.find(profile, "sentry.images") else { return };
        for other in others.iter().take(MAX_ENTRIES) {
            if out.len() > MAX_BYTES {
                return;
            }
            match dictionary.text(other).filter(|json| is_valid(json)) {
                Some(json) => {
                    comma(out);
                    put_json(out, json);
                }
                None => notes.left_out += 1,
            }
        }
    }
}

/// What a chunk says of an image.
struct Shown<'a> {
    kind: &'a str,
    debug_id: Option<&'a str>,
    code_file: Option<&'a [u8]>,
    uuid: Option<&'a str>,
    addr: u64,
    vmaddr: Option<u64>,
    size: u64,
}

impl<'a> Shown<'a> {
    /// The image that a mapping was; `None` where Sentry would not take it.
    fn kept(dictionary: &'a Dictionary, id: MappingId) -> Option<Self> {
        let mapping = dictionary.mapping(id);
        let text = |key| dictionary.find(mapping.attributes, key).and_then(|value| dictionary.text(value));
        let kind = text("sentry.image_type").filter(|kind| TYPES.contains(kind))?;
        let address = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
        let vmaddr = match text("sentry.image_vmaddr") {
            Some(text) => Some(address(text)?),
            None => None,
        };
        let debug_id = text("sentry.debug_id");
        debug_id.is_none_or(is_debug_id).then_some(Self {
            kind,
            debug_id,
            code_file: Some(dictionary.string_bytes(mapping.filename)).filter(|file| !file.is_empty()),
            uuid: text("sentry.image_uuid"),
            addr: mapping.memory_start,
            vmaddr,
            size: mapping.memory_limit.saturating_sub(mapping.memory_start),
        })
    }

    fn put(&self, out: &mut Vec<u8>, kept: bool, notes: &mut Notes) {
        comma(out);
        let mut object = Object::open(out, kept, notes);
        object.text("type", Some(self.kind.as_bytes()));
        object.text("debug_id", self.debug_id.map(str::as_bytes));
        object.text("code_file", self.code_file);
        object.text("uuid", self.uuid.map(str::as_bytes));
        object.address("image_addr", Some(self.addr));
        object.address("image_vmaddr", self.vmaddr);
        object.number("image_size", Some(self.size));
        object.close();
    }
}

/// Separates the elements of a list.
fn comma(out: &mut Vec<u8>) {
    if !out.is_empty() {
        out.push(b',');
    }
}

/// Types of images that Relay knows. Another one makes it refuse the chunk (getsentry/relay
/// `relay-profiling/src/debug_image.rs`).
const TYPES: [&str; 5] = ["macho", "symbolic", "sourcemap", "proguard", "jvm"];

/// The keys of an image of which Relay takes no `null`.
const NEVER_NULL: [&str; 5] = ["debug_id", "id", "image_addr", "image_vmaddr", "image_size"];

/// Whether the JSON of an image is one that Relay takes.
fn is_valid(json: &str) -> bool {
    let image = serde_json::from_str::<sampled::model::Image<'_>>(json);
    let is_image = image.is_ok_and(|image| {
        TYPES.contains(&Text::of(&image.kind)) && image.debug_id.is_none_or(|id| is_debug_id(id.as_str()))
    });
    is_image
        && serde_json::from_str::<Entries<'_, &RawValue, MAX_ENTRIES>>(json).is_ok_and(|keys| {
            !keys.0.iter().any(|(key, value)| value.get() == "null" && NEVER_NULL.contains(&key.as_str()))
        })
}

/// Whether a text is a UUID, perhaps with an age behind it (Sentry's debug identifiers).
fn is_debug_id(text: &str) -> bool {
    uuid::Uuid::try_parse(text.get(..36).unwrap_or(text)).is_ok()
}

/// Where an image starts. Nothing lies below the first, so that no address looks like a small number.
fn base(number: u32) -> u64 {
    (u64::from(number) + 1) * STRIDE
}

/// The address that the file's first byte was linked for.
///
/// A mapping says where a part of the file lies, and symbol servers count from the file's start. The start is as far
/// before the part as the part is into the file. LLD links each part a page further behind its place in the file than
/// the part before, which rounding down undoes: 4 KiB on x86-64, 64 KiB on arm64. Where the part is the file's first,
/// none of that stands before it.
///
/// Only addresses that the file was linked for are rounded: what was moved was moved by any number of pages, and linked
/// from 0 on.
fn load_address(mapping: &Mapping) -> u64 {
    if mapping.moved_by() > 0 {
        return 0;
    }
    let start = mapping.memory_start.saturating_sub(mapping.file_offset);
    let first = mapping.file_offset == 0 && start < LOAD_ALIGN;
    start & !(if first { LOW_LOAD_ALIGN } else { LOAD_ALIGN } - 1)
}

/// The first sixteen bytes of a GNU build id, zeroes behind a shorter one. Read as the fields of a GUID in
/// little-endian order they are Sentry's `debug_id` (getsentry/symbolic `symbolic-debuginfo/src/elf.rs`). `None` for
/// anything but hexadecimal digits of whole bytes.
fn debug_id(build_id: &str) -> Option<[u8; 16]> {
    let digits = build_id.as_bytes();
    if digits.is_empty() || !digits.len().is_multiple_of(2) || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let mut id = [0; 16];
    for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |digit: u8| (digit as char).to_digit(16).unwrap_or(0) as u8;
        *byte = digit(pair[0]) << 4 | digit(pair[1]);
    }
    (id != [0; 16]).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: a build id becomes the debug id of Relay's own test vector (facts of getsentry/relay: the GNU build
    /// id b03e4a7f... is 7f4a3eb0-885e-8d4c-a04b-05fa32cc4cbd).
    /// rule: event-schema#image-debug-id, otep-0239#build-id
    #[test]
    fn debug_ids() {
        let id = |text: &str| debug_id(text).map(|id| uuid::Uuid::from_bytes_le(id).to_string());
        let relay = "7f4a3eb0-885e-8d4c-a04b-05fa32cc4cbd";
        assert_eq!(id("b03e4a7f5e884c8da04b05fa32cc4cbd69faff51").as_deref(), Some(relay));
        assert_eq!(id("B03E4A7F").as_deref(), Some("7f4a3eb0-0000-0000-0000-000000000000"));
        for bad in ["", "abc", "xyz1", "b03e4a7f-5e88", "00000000"] {
            assert_eq!(id(bad), None, "{bad}");
        }
    }

    /// Guarantees: the start of a file is found for position-independent and fixed executables of GNU ld and LLD.
    /// rule: event-schema#image-vmaddr, otep-0239#mapping-range
    #[test]
    fn load_addresses() {
        let start =
            |memory_start, file_offset| load_address(&Mapping { memory_start, file_offset, ..Mapping::default() });
        assert_eq!(start(0x26000, 0x26000), 0, "libc, GNU ld");
        assert_eq!(start(0x401000, 0x1000), 0x400000, "fixed, GNU ld");
        assert_eq!(start(0x345000, 0x344000), 0, "LLD, a page further");
        assert_eq!(start(0x212340, 0x11340), 0x200000, "fixed, LLD");
        assert_eq!(start(0, 0x1000), 0, "never below nothing");
        assert_eq!(start(0x10000, 0), 0x10000, "fixed, Go on arm64");
        assert_eq!(start(0x1000, 0), 0, "LLD, the first page of a small file mapped a second time");
        assert_eq!(start(0x7f12_3456_7000, 0x26000), 0, "moved");
    }
}
