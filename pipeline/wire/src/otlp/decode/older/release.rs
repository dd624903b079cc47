//! What a release up to 1.7 numbers its fields, as tables: each release has a file with its own.

use super::super::super::error::{Fault, Result};
use super::super::super::reader::{FIXED64, LEN, Reader, VARINT};

/// The fields of a message that have a meaning, with their numbers. Others are skipped.
pub(super) type Fields<F> = &'static [(u32, F)];

/// A release.
#[derive(Debug)]
pub(in super::super) struct Release {
    pub(super) home: Home,
    /// Indices of mappings and links are plain numbers, of which 0 is none. Elsewhere they have presence, and 0 is the
    /// first element.
    pub(super) zero_is_none: bool,
    pub(super) tables: Fields<Table>,
    pub(super) profile: Fields<ProfileField>,
    pub(super) sample: Fields<SampleField>,
    pub(super) mapping: Fields<MappingField>,
    pub(super) location: Fields<LocationField>,
    pub(super) function: Fields<FunctionField>,
}

/// Where a release has its tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Home {
    /// In each `ProfileContainer.profile`.
    Container,
    /// In each `Profile`.
    Profile,
    /// Beside the resources.
    Request,
    /// In a `ProfilesDictionary` beside the resources.
    Dictionary,
}

impl Home {
    /// Whether each profile has tables of its own.
    pub(super) fn is_profile(self) -> bool {
        matches!(self, Self::Container | Self::Profile)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Table {
    Mapping,
    Location,
    Function,
    Link,
    String,
    Attribute,
    Unit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProfileField {
    SampleType,
    Sample,
    LocationIndices,
    Time,
    Duration,
    PeriodType,
    Period,
    Comment,
    /// Left out: which of several types to show first has no place in a profile since.
    DefaultSampleType,
    DropFrames,
    KeepFrames,
    Id,
    /// `KeyValue`s.
    Attributes,
    AttributeIndices,
    DroppedAttributes,
    PayloadFormat,
    Payload,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SampleField {
    /// Locations one by one.
    LocationIndex,
    /// The range of locations.
    Start,
    Length,
    /// Left out: the stack says the same.
    StacktraceId,
    Values,
    Label,
    Attributes,
    Link,
    Timestamps,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MappingField {
    Start,
    Limit,
    Offset,
    Filename,
    BuildId,
    BuildIdKind,
    Attributes,
    /// A flag, which is an attribute since.
    Flag(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LocationField {
    Mapping,
    Address,
    Line,
    Folded,
    Type,
    Attributes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FunctionField {
    Name,
    SystemName,
    Filename,
    StartLine,
}

/// A field as it stands.
#[derive(Debug)]
pub(super) struct Wire<'a> {
    key: u32,
    /// Where its value stands in the request.
    position: usize,
    value: WireValue<'a>,
}

#[derive(Debug)]
enum WireValue<'a> {
    Number(u64),
    Fixed(u64),
    Message(Reader<'a>),
}

impl<'a> Wire<'a> {
    /// Reads the value of a known field.
    pub(super) fn read(reader: &mut Reader<'a>, key: u32) -> Result<Self> {
        let position = reader.position();
        let value = match key & 7 {
            VARINT => WireValue::Number(reader.varint()?),
            FIXED64 => WireValue::Fixed(reader.fixed64()?),
            LEN => WireValue::Message(reader.message()?),
            _ => return Err(wrong_type(key, position)),
        };
        Ok(Self { key, position, value })
    }

    /// An integer of variable length.
    pub(super) fn number(self) -> Result<u64> {
        match self.value {
            WireValue::Number(number) => Ok(number),
            _ => Err(wrong_type(self.key, self.position)),
        }
    }

    /// An eight-byte integer.
    pub(super) fn fixed64(self) -> Result<u64> {
        match self.value {
            WireValue::Fixed(number) => Ok(number),
            _ => Err(wrong_type(self.key, self.position)),
        }
    }

    /// A message, a string or bytes.
    pub(super) fn message(self) -> Result<Reader<'a>> {
        match self.value {
            WireValue::Message(reader) => Ok(reader),
            _ => Err(wrong_type(self.key, self.position)),
        }
    }

    /// Calls `visit` with each integer of a list, of which this is one or a packed run.
    pub(super) fn list(self, mut visit: impl FnMut(u64) -> Result<()>) -> Result<()> {
        match self.value {
            WireValue::Number(number) => visit(number),
            WireValue::Message(mut packed) => {
                while !packed.rest().is_empty() {
                    visit(packed.varint()?)?;
                }
                Ok(())
            }
            WireValue::Fixed(_) => Err(wrong_type(self.key, self.position)),
        }
    }
}

#[cold]
fn wrong_type(key: u32, position: usize) -> Fault {
    Fault::wire(position, format!("field {} has wire type {}, which is not its own", key >> 3, key & 7))
}

/// Calls `visit` with each field of a message that has a meaning.
pub(super) fn each<'a, F: Copy>(
    mut reader: Reader<'a>,
    fields: Fields<F>,
    mut visit: impl FnMut(F, Wire<'a>) -> Result<()>,
) -> Result<()> {
    while let Some(key) = reader.key()? {
        match fields.iter().find(|(number, _)| *number == key >> 3) {
            Some(&(_, field)) => visit(field, Wire::read(&mut reader, key)?)?,
            None => reader.skip(key)?,
        }
    }
    Ok(())
}

/// How often a message has a field.
pub(super) fn count<F: Copy + PartialEq>(reader: Reader<'_>, fields: Fields<F>, wanted: F) -> Result<usize> {
    let mut found = 0;
    each(reader, fields, |field, _| {
        found += usize::from(field == wanted);
        Ok(())
    })?;
    Ok(found)
}
