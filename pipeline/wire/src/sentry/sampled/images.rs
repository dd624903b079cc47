//! The images of a profile: an image with frames becomes a mapping, the others are kept as JSON.

use profbridge_model::builder::Any;
use profbridge_model::{Builder, Mapping, MappingId};
use serde_json::value::RawValue;

use super::ProfileError;
use super::model::ImageJson;
use super::text::Text;

/// The images of a profile, searchable by address.
#[derive(Default)]
pub(in crate::sentry) struct ProfileImages<'a> {
    /// Each image's JSON.
    all: Vec<&'a RawValue>,
    /// The images with an address range, sorted by start.
    ranges: Vec<Range<'a>>,
}

struct Range<'a> {
    start: u64,
    end: u64,
    /// Its index in `all`.
    position: usize,
    image: ImageJson<'a>,
    /// Its mapping, once a frame is in it.
    mapping: Option<MappingId>,
}

impl<'a> ProfileImages<'a> {
    /// Reads the images.
    ///
    /// # Errors
    ///
    /// A key has another type than Relay reads.
    pub(in crate::sentry) fn read(images: Vec<&'a RawValue>) -> Result<Self, ProfileError> {
        let mut ranges = Vec::new();
        for (position, raw) in images.iter().enumerate() {
            let image: ImageJson<'a> = serde_json::from_str(raw.get()).map_err(|error| ProfileError::json(&error))?;
            let (Some(start), Some(size)) = (image.image_addr, image.image_size) else { continue };
            if let Some(end) = start.0.checked_add(size.0).filter(|&end| end > start.0) {
                ranges.push(Range { start: start.0, end, position, image, mapping: None });
            }
        }
        ranges.sort_by_key(|range| range.start);
        Ok(Self { all: images, ranges })
    }

    /// The mapping of the image that contains an address.
    pub(super) fn find(&mut self, builder: &mut Builder, address: u64) -> Option<MappingId> {
        let after = self.ranges.partition_point(|range| range.start <= address);
        let range = self.ranges.get_mut(after.checked_sub(1)?).filter(|range| address < range.end)?;
        if range.mapping.is_none() {
            range.mapping = mapping(builder, range);
        }
        range.mapping
    }

    /// The JSON of the images without frames, in order.
    pub(in crate::sentry) fn others(&self) -> Vec<Any<'a>> {
        let mut mapped: Vec<usize> =
            self.ranges.iter().filter(|range| range.mapping.is_some()).map(|range| range.position).collect();
        mapped.sort_unstable();
        let other = |(position, raw): (usize, &&'a RawValue)| {
            mapped.binary_search(&position).is_err().then(|| Any::from(raw.get()))
        };
        self.all.iter().enumerate().filter_map(other).collect()
    }
}

fn mapping(builder: &mut Builder, range: &Range<'_>) -> Option<MappingId> {
    let image = &range.image;
    let vmaddr = image.image_vmaddr.map(|address| format!("{:#x}", address.0));
    let texts = [
        ("sentry.debug_id", image.debug_id.as_ref().map(Text::as_str)),
        ("sentry.image_type", image.kind.as_ref().map(Text::as_str)),
        ("sentry.image_uuid", image.uuid.as_ref().map(Text::as_str)),
        ("sentry.image_vmaddr", vmaddr.as_deref()),
    ];
    let attributes: Vec<(&str, Any<'_>)> =
        texts.iter().filter_map(|&(key, text)| text.map(|text| (key, text.into()))).collect();
    let attributes = builder.attributes(&attributes);
    let filename = builder.string(Text::of(&image.code_file));
    builder.mapping(Mapping {
        memory_start: range.start,
        memory_limit: range.end,
        file_offset: 0,
        filename,
        attributes,
    })
}
