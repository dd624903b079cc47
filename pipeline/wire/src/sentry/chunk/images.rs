//! The images of a chunk: the executable files to which frames' addresses refer.
//!
//! Of the image types that Relay accepts, Sentry symbolises one for Linux: `symbolic`. Relay also drops a frame's
//! `addr_mode`, so addresses must be absolute (getsentry/relay `relay-event-schema/src/protocol/debug_image.rs`,
//! `relay-profiling/src/perfetto/convert`). OTLP addresses are relative to the file, or to the memory of a process that
//! mapped it ([`Mapping::moved_by`]). Symbolisers cannot handle overlapping images. So each file gets its own range in
//! an address space that exists only for one chunk, wherever and however often the file was mapped.

use hashbrown::HashMap;

use profbridge_model::{AttributeSetId, Dictionary, Mapping, MappingId, Value};
use serde_json::value::RawValue;

use super::limits::MAX_STRING_BYTES;
use super::report::Notes;
use super::stamped::Stamped;
use super::write::{ObjectWriter, put_json};
use crate::json;
use crate::sentry::sampled::text::{Entries, Text};
use crate::sentry::sampled::{self, MAX_BYTES, MAX_ENTRIES};

/// The distance between two images, and so the maximum size of an image: 4 GiB.
const STRIDE: u64 = 1 << 32;

/// Load addresses are multiples of this: 4 MiB for GNU ld, 2 MiB for LLD, 0 for position-independent files.
const LOAD_ALIGN: u64 = 2 << 20;

/// Load addresses below [`LOAD_ALIGN`] are multiples of this: 64 KiB, for Go on arm64, and GNU ld and LLD on RISC-V.
const LOW_LOAD_ALIGN: u64 = 64 << 10;

/// The images of one chunk.
#[derive(Debug, Default)]
pub(super) struct Images {
    images: Vec<Image>,
    by_mapping: Stamped,
    by_id: HashMap<([u8; 16], u64), u32>,
    /// The mappings of frames in a chunk that is preserved.
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

/// Marks a mapping without an image.
const NO_IMAGE: u32 = u32::MAX;

impl Images {
    /// Starts a chunk.
    pub(super) fn begin(&mut self, dictionary: &Dictionary) {
        self.images.clear();
        self.kept.clear();
        self.by_id.clear();
        self.by_mapping.begin(dictionary.tables().mappings.len());
    }

    /// Converts an address of a mapping's file to an absolute one, and adds the file to the chunk's images. `None` if
    /// the file has no GNU build id or the address is outside of the file.
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
            // The kernel's mapping has no range, and its frames already have names.
            return None;
        }
        let next = self.images.len() as u32;
        let number = *self.by_id.entry((debug_id, vmaddr)).or_insert(next);
        match self.images.get_mut(number as usize) {
            // Another mapping of the same file.
            Some(image) => image.size = image.size.max(size),
            None => self.images.push(Image { mapping: id, debug_id, vmaddr, size }),
        }
        Some(number)
    }

    /// Adds the file of a mapping to the images of a preserved chunk.
    pub(super) fn keep(&mut self, mapping: MappingId) {
        if self.by_mapping.get(mapping.index()).is_none() {
            self.by_mapping.set(mapping.index(), NO_IMAGE);
            self.kept.push(mapping);
        }
    }

    /// Appends the images, without the brackets of the JSON array.
    pub(super) fn write(&self, dictionary: &Dictionary, out: &mut Vec<u8>, notes: &mut Notes) {
        for (number, image) in (0..).zip(&self.images) {
            let debug_id = uuid::Uuid::from_bytes_le(image.debug_id).hyphenated().to_string();
            let file = dictionary.string_bytes(dictionary.mapping(image.mapping).filename);
            let shown = ShownImage {
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

    /// Like `write`, for a preserved chunk: the mappings of its frames, and the images in an attribute of the profile.
    /// Images for which Relay would reject the chunk are omitted and counted.
    pub(super) fn write_kept(
        &self,
        dictionary: &Dictionary,
        profile: Option<AttributeSetId>,
        out: &mut Vec<u8>,
        notes: &mut Notes,
    ) {
        for &mapping in &self.kept {
            // The chunk is then too large to be preserved.
            if out.len() > MAX_BYTES {
                return;
            }
            match ShownImage::kept(dictionary, mapping) {
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

/// The fields of an image in a chunk.
struct ShownImage<'a> {
    kind: &'a str,
    debug_id: Option<&'a str>,
    code_file: Option<&'a [u8]>,
    uuid: Option<&'a str>,
    addr: u64,
    vmaddr: Option<u64>,
    size: u64,
}

impl<'a> ShownImage<'a> {
    /// The original image of a mapping; `None` if Sentry would not accept it.
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
        let mut object = ObjectWriter::open(out, kept, notes);
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

/// The image types that Relay knows. It rejects the chunk for any other (getsentry/relay
/// `relay-profiling/src/debug_image.rs`).
const TYPES: [&str; 5] = ["macho", "symbolic", "sourcemap", "proguard", "jvm"];

/// The keys of an image that Relay does not accept as `null`.
const NEVER_NULL: [&str; 5] = ["debug_id", "id", "image_addr", "image_vmaddr", "image_size"];

/// Whether Relay accepts an image with this JSON.
fn is_valid(json: &str) -> bool {
    let image = serde_json::from_str::<sampled::model::ImageJson<'_>>(json);
    let is_image = image.is_ok_and(|image| {
        TYPES.contains(&Text::of(&image.kind)) && image.debug_id.is_none_or(|id| is_debug_id(id.as_str()))
    });
    is_image
        && serde_json::from_str::<Entries<'_, &RawValue, MAX_ENTRIES>>(json).is_ok_and(|keys| {
            !keys.0.iter().any(|(key, value)| value.get() == "null" && NEVER_NULL.contains(&key.as_str()))
        })
}

/// Whether a text is a UUID, optionally followed by an age (Sentry's debug identifiers).
fn is_debug_id(text: &str) -> bool {
    uuid::Uuid::try_parse(text.get(..36).unwrap_or(text)).is_ok()
}

/// The start of an image. The first image starts above zero, so that no address looks like a small number.
fn base(number: u32) -> u64 {
    (u64::from(number) + 1) * STRIDE
}

/// The address for which the file's first byte was linked.
///
/// A mapping gives the address of a part of the file, but symbol servers count from the start of the file: mapped
/// address minus file offset. LLD shifts each further part by one more page, which rounding down undoes: 4 KiB on
/// x86-64, 64 KiB on arm64. The file's first part is not shifted.
///
/// Only link-time addresses are rounded. A relocated file was moved by any number of pages, and was linked at 0.
fn load_address(mapping: &Mapping) -> u64 {
    if mapping.moved_by() > 0 {
        return 0;
    }
    let start = mapping.memory_start.saturating_sub(mapping.file_offset);
    let first = mapping.file_offset == 0 && start < LOAD_ALIGN;
    start & !(if first { LOW_LOAD_ALIGN } else { LOAD_ALIGN } - 1)
}

/// The first sixteen bytes of a GNU build id, padded with zeros. Read as the fields of a little-endian GUID, they are
/// Sentry's `debug_id` (getsentry/symbolic `symbolic-debuginfo/src/elf.rs`). `None` unless the text is an even number
/// of hexadecimal digits.
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

    /// Guarantees: a build id is converted to the debug id in Relay's own test vector (getsentry/relay: the GNU build
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
