//! Encodes a batch as an `ExportProfilesServiceRequest`.
//!
//! The exact size is computed first, so that the request needs a single allocation. Stacks, timestamps and values are
//! copied unmodified, and all indices stay the same.

mod dictionary;
pub(crate) mod put;
mod resource;
mod value;

use profbridge_model::{AttributeId, AttributeSetId, ByteRange, Dictionary, Profile, Profiles, varint};

use self::put::{FieldSink, FieldSize, Sizes};

/// Options for encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EncodeOptions {
    /// Write `original_payload` and its format, if it [may be sent](payload_may_leave). It repeats the profile in
    /// another format, so it may only be sent with an unchanged profile (opentelemetry-proto `profiles.proto`: not sent
    /// by default).
    pub original_payload: bool,
    /// Write attribute keys and values from the string table as references (`key_strindex`, `string_value_strindex`).
    /// Collectors up to 0.159 do not resolve them, so by default they are written inline.
    pub references: bool,
}

/// Whether a profile's `original_payload` may be sent on request. Without a format a reader could not interpret it; a
/// payload in pprof's format only repeats the profile (open-telemetry/opentelemetry-specification
/// `oteps/profiles/0239-profiles-data-model.md`, message `ProfileContainer`: the format is required with a payload, and
/// a payload in pprof format should not be included).
pub fn payload_may_leave(dictionary: &Dictionary, profile: &Profile) -> bool {
    let format = dictionary.string_bytes(profile.original_payload_format);
    let pprof = format.windows(b"pprof".len()).any(|part| part.eq_ignore_ascii_case(b"pprof"));
    !format.is_empty() && !pprof
}

/// Encodes a batch. Non-canonical encodings of the sender (unpacked lists, unknown fields, empty messages) become
/// canonical.
pub fn encode(profiles: &Profiles, options: &EncodeOptions) -> Vec<u8> {
    let mut encoder = RequestEncoder::new(profiles, options);
    let mut size = FieldSize(0);
    encoder.request(&mut size);
    let mut out = Vec::with_capacity(size.0);
    encoder.request(&mut out);
    debug_assert_eq!(out.len(), size.0);
    out
}

/// The number of bytes that [`encode`] writes.
pub fn encoded_len(profiles: &Profiles, options: &EncodeOptions) -> usize {
    let mut size = FieldSize(0);
    RequestEncoder::new(profiles, options).request(&mut size);
    size.0
}

struct RequestEncoder<'a> {
    profiles: &'a Profiles,
    dictionary: &'a Dictionary,
    options: EncodeOptions,
    /// Number of strings in the encoded string table.
    strings: usize,
    sets: PackedSets,
    sizes: Sizes,
}

impl<'a> RequestEncoder<'a> {
    fn new(profiles: &'a Profiles, options: &EncodeOptions) -> Self {
        let dictionary = &**profiles.dictionary();
        let types = profiles.profiles().map(|profile| {
            [profile.sample_type.kind, profile.sample_type.unit, profile.period_type.kind, profile.period_type.unit]
        });
        Self {
            profiles,
            dictionary,
            options: *options,
            strings: dictionary::strings(dictionary.tables(), types),
            sets: PackedSets::new(dictionary),
            sizes: Sizes::default(),
        }
    }

    /// Writes the request; called first to count its size, then to write it.
    fn request(&mut self, out: &mut impl FieldSink) {
        let profiles = self.profiles;
        for resource in profiles.resources() {
            self.resource_profiles(out, resource);
        }
        let dictionary = out.open(0x12, &mut self.sizes);
        self.dictionary(out);
        out.close(dictionary, &mut self.sizes);
    }
}

/// All attribute lists in encoded form, so that each is encoded once and then copied.
struct PackedSets {
    packed: Vec<u8>,
    places: Vec<ByteRange>,
}

impl PackedSets {
    fn new(dictionary: &Dictionary) -> Self {
        let tables = dictionary.tables();
        let mut packed = Vec::with_capacity(tables.attribute_set_items.len() * 2);
        let mut places = Vec::with_capacity(tables.attribute_sets.len());
        for &set in &tables.attribute_sets {
            let start = packed.len();
            for &item in &tables.attribute_set_items[set.start as usize..][..set.len as usize] {
                varint::put(&mut packed, AttributeId::wire(item).into());
            }
            places.push(ByteRange { start: start as u32, len: (packed.len() - start) as u32 });
        }
        Self { packed, places }
    }

    #[inline]
    fn get(&self, id: Option<AttributeSetId>) -> &[u8] {
        match id {
            Some(id) => {
                let place = self.places[id.index()];
                &self.packed[place.start as usize..][..place.len as usize]
            }
            None => &[],
        }
    }
}
