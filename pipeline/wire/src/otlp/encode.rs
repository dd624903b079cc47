//! A batch to an `ExportProfilesServiceRequest`.
//!
//! The exact size is computed first, so the request is written into one allocation. Stacks, timestamps and values are
//! copied as they are; every index stays what it is.

mod dictionary;
pub(crate) mod put;
mod resource;
mod value;

use profbridge_model::{AttributeId, AttributeSetId, ByteRange, Dictionary, Profile, Profiles, varint};

use self::put::{Sink, Size, Sizes};

/// What is written, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EncodeOptions {
    /// Write `original_payload` and its format, where it [may leave](payload_may_leave) at all. It repeats the profile
    /// in another form, so it may only go out with a profile that nobody changed (opentelemetry-proto `profiles.proto`:
    /// not sent by default).
    pub original_payload: bool,
    /// Write attribute keys and values that stand in the string table as references to it (`key_strindex`,
    /// `string_value_strindex`). Collectors up to 0.159 do not resolve them, so the default is to write them inline.
    pub references: bool,
}

/// Whether a profile's `original_payload` may go out where it is asked for. One without a format may not, since a
/// reader could not tell what it is; nor may one in the format of pprof, whose contents are in the profile itself
/// (open-telemetry/opentelemetry-specification `oteps/profiles/0239-profiles-data-model.md`, message
/// `ProfileContainer`: the format is required beside a payload, and a payload in pprof format should not be included).
pub fn payload_may_leave(dictionary: &Dictionary, profile: &Profile) -> bool {
    let format = dictionary.string_bytes(profile.original_payload_format);
    let pprof = format.windows(b"pprof".len()).any(|part| part.eq_ignore_ascii_case(b"pprof"));
    !format.is_empty() && !pprof
}

/// Encodes a batch. What the sender wrote in its own way (unpacked lists, unknown fields, empty messages) comes out in
/// the canonical one.
pub fn encode(profiles: &Profiles, options: &EncodeOptions) -> Vec<u8> {
    let mut encoder = Encoder::new(profiles, options);
    let mut size = Size(0);
    encoder.request(&mut size);
    let mut out = Vec::with_capacity(size.0);
    encoder.request(&mut out);
    debug_assert_eq!(out.len(), size.0);
    out
}

/// The number of bytes that [`encode`] writes.
pub fn encoded_len(profiles: &Profiles, options: &EncodeOptions) -> usize {
    let mut size = Size(0);
    Encoder::new(profiles, options).request(&mut size);
    size.0
}

struct Encoder<'a> {
    profiles: &'a Profiles,
    dictionary: &'a Dictionary,
    options: EncodeOptions,
    /// How many strings the string table gets.
    strings: usize,
    sets: PackedSets,
    sizes: Sizes,
}

impl<'a> Encoder<'a> {
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

    /// Counts everything, and then writes it.
    fn request(&mut self, out: &mut impl Sink) {
        let profiles = self.profiles;
        for resource in profiles.resources() {
            self.resource_profiles(out, resource);
        }
        let dictionary = out.open(0x12, &mut self.sizes);
        self.dictionary(out);
        out.close(dictionary, &mut self.sizes);
    }
}

/// All lists of attributes as they stand on the wire, so that each is encoded once and copied from then on.
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
