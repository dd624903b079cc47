//! Tables with the conversion of each field of the releases up to 1.7, and the code that reads a message by such a
//! table.
//!
//! | release | tables | peculiarities |
//! |---|---|---|
//! | [`V1_7`] | in a dictionary | no zero elements, ranges of locations, several types in a profile |
//! | [`V1_6`] | beside the resources | |
//! | [`V1_4`] | in each profile | 1.4 has the profile's attributes in place, 1.5 as indices |
//! | [`V1_3`] | in each profile | containers, which have the times and the attributes; labels, build ids, frame types |

use self::FieldConversion::*;
use super::super::super::error::{Fault, Result};
use super::super::super::reader::{FIXED64, LEN, ProtobufReader, VARINT};

/// The known fields of a message: number, name, and conversion. Other fields are skipped.
pub(super) type KnownFields = &'static [(u32, &'static str, FieldConversion)];

/// How a field is converted to 1.10.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum FieldConversion {
    /// The same integer, in the field with this number.
    Int(u8),
    /// The index of an element of this table, in the field with this number.
    Index(u8, Table),
    /// Like `Index`, for a release in which index 0 means none.
    IndexUnlessZero(u8, Table),
    /// The string of a unit, in the field with this number.
    Unit(u8),
    /// An id of this many bytes, in the field with this number.
    Id(u8, usize),
    /// A message, in the field with this number.
    Message(u8, KnownFields),
    /// Indices into the attribute table.
    Attributes,
    /// An attribute that is embedded in the message.
    Attribute,
    /// An attribute with this key and the value `true`, if the flag is set.
    Flag(&'static str),
    /// An attribute with this key and a string of the table.
    Text(&'static str),
    /// A label, which becomes an attribute.
    Label,
    /// The id of a profile.
    ProfileId,
    /// The profiler's own data or its format, in the field with this number.
    Payload(u8),
    /// Not written; the temporality must be delta.
    Temporality,
    /// Not written, but counted if it is set.
    LeftOut,
    /// A number for the message's conversion, stored at this index of [`Draft::numbers`](super::Draft::numbers).
    Number(usize),
    /// Like `Number`, for eight-byte integers.
    Fixed(usize),
    /// Like `Number`, for a time as a signed integer.
    Time(usize),
    /// A list of numbers for the message's conversion, stored at this index of [`Draft::lists`](super::Draft::lists).
    List(usize),
    /// Messages that are read separately from their parent: elements of a table or of `attribute_units`, and others.
    Element(Table),
    AttributeUnit,
    Profile,
    SampleType,
    Sample,
}

/// The tables of 1.10, in the order of their fields.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Table {
    Mapping,
    Location,
    Function,
    Link,
    String,
    Attribute,
    Stack,
}

impl Table {
    pub(super) const ALL: [Self; 7] =
        [Self::Mapping, Self::Location, Self::Function, Self::Link, Self::String, Self::Attribute, Self::Stack];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Mapping => "mapping_table",
            Self::Location => "location_table",
            Self::Function => "function_table",
            Self::Link => "link_table",
            Self::String => "string_table",
            Self::Attribute => "attribute_table",
            Self::Stack => "stack_table",
        }
    }
}

/// The place of the tables in a release.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum TablePlace {
    /// In each `ProfileContainer.profile`.
    Container,
    /// In each `Profile`.
    Profile,
    /// Beside the resources.
    Request,
    /// In a `ProfilesDictionary` beside the resources.
    Dictionary,
}

/// A release.
#[derive(Debug)]
pub(in super::super) struct Release {
    pub(super) home: TablePlace,
    /// The fields of the message that contains the tables.
    pub(super) tables: KnownFields,
    pub(super) profile: KnownFields,
    pub(super) sample: KnownFields,
    pub(super) mapping: KnownFields,
    pub(super) location: KnownFields,
    pub(super) function: KnownFields,
}

pub(super) const V1_7: Release = Release {
    home: TablePlace::Dictionary,
    tables: &[
        (1, "mapping_table", Element(Table::Mapping)),
        (2, "location_table", Element(Table::Location)),
        (3, "function_table", Element(Table::Function)),
        (4, "link_table", Element(Table::Link)),
        (5, "string_table", Element(Table::String)),
        (6, "attribute_table", Element(Table::Attribute)),
        (7, "attribute_units", AttributeUnit),
    ],
    profile: &[
        (1, "sample_type", SampleType),
        (2, "sample", Sample),
        (3, "location_indices", List(0)),
        (4, "time_nanos", Time(0)),
        (5, "duration_nanos", Time(1)),
        (6, "period_type", Message(5, PERIOD_TYPE)),
        (7, "period", Int(6)),
        (8, "comment_strindices", List(1)),
        (9, "default_sample_type", LeftOut),
        (10, "profile_id", ProfileId),
        (11, "dropped_attributes_count", Int(8)),
        (12, "original_payload_format", Payload(9)),
        (13, "original_payload", Payload(10)),
        (14, "attribute_indices", Attributes),
    ],
    sample: &[
        (1, "locations_start_index", Number(0)),
        (2, "locations_length", Number(1)),
        (3, "value", List(1)),
        (4, "attribute_indices", Attributes),
        (5, "link_index", Index(3, Table::Link)),
        (6, "timestamps_unix_nano", List(2)),
    ],
    mapping: &[
        (1, "memory_start", Int(1)),
        (2, "memory_limit", Int(2)),
        (3, "file_offset", Int(3)),
        (4, "filename_strindex", Index(4, Table::String)),
        (5, "attribute_indices", Attributes),
        (6, "has_functions", Flag("pprof.mapping.has_functions")),
        (7, "has_filenames", Flag("pprof.mapping.has_filenames")),
        (8, "has_line_numbers", Flag("pprof.mapping.has_line_numbers")),
        (9, "has_inline_frames", Flag("pprof.mapping.has_inline_frames")),
    ],
    location: &[
        (1, "mapping_index", Index(1, Table::Mapping)),
        (2, "address", Int(2)),
        (3, "line", Message(3, LINE)),
        (4, "is_folded", Flag("pprof.location.is_folded")),
        (5, "attribute_indices", Attributes),
    ],
    function: &[
        (1, "name_strindex", Index(1, Table::String)),
        (2, "system_name_strindex", Index(2, Table::String)),
        (3, "filename_strindex", Index(3, Table::String)),
        (4, "start_line", Int(4)),
    ],
};

pub(super) const V1_6: Release = Release {
    home: TablePlace::Request,
    tables: &[
        (2, "mapping_table", Element(Table::Mapping)),
        (3, "location_table", Element(Table::Location)),
        (4, "function_table", Element(Table::Function)),
        (5, "link_table", Element(Table::Link)),
        (6, "string_table", Element(Table::String)),
        (7, "attribute_table", Element(Table::Attribute)),
        (8, "attribute_units", AttributeUnit),
    ],
    ..V1_7
};

pub(super) const V1_4: Release =
    Release { home: TablePlace::Profile, tables: PROFILE_1_4, profile: PROFILE_1_4, ..V1_7 };

const PROFILE_1_4: KnownFields = &[
    (1, "sample_type", SampleType),
    (2, "sample", Sample),
    (3, "mapping_table", Element(Table::Mapping)),
    (4, "location_table", Element(Table::Location)),
    (5, "location_indices", List(0)),
    (6, "function_table", Element(Table::Function)),
    (7, "attribute_table", Element(Table::Attribute)),
    (8, "attribute_units", AttributeUnit),
    (9, "link_table", Element(Table::Link)),
    (10, "string_table", Element(Table::String)),
    (11, "time_nanos", Time(0)),
    (12, "duration_nanos", Time(1)),
    (13, "period_type", Message(5, PERIOD_TYPE)),
    (14, "period", Int(6)),
    (15, "comment_strindices", List(1)),
    (16, "default_sample_type", LeftOut),
    (17, "profile_id", ProfileId),
    (18, "attributes", Attribute),
    (19, "dropped_attributes_count", Int(8)),
    (20, "original_payload_format", Payload(9)),
    (21, "original_payload", Payload(10)),
    (22, "attribute_indices", Attributes),
];

pub(super) const V1_3: Release = Release {
    home: TablePlace::Container,
    tables: PROFILE_1_3,
    profile: PROFILE_1_3,
    sample: &[
        (1, "location_index", List(0)),
        (2, "value", List(1)),
        (3, "label", Label),
        (7, "locations_start_index", Number(0)),
        (8, "locations_length", Number(1)),
        (9, "stacktrace_id_index", LeftOut),
        (10, "attribute_indices", Attributes),
        (12, "link_index", IndexUnlessZero(3, Table::Link)),
        (13, "timestamps_unix_nano", List(2)),
    ],
    mapping: &[
        (2, "memory_start", Int(1)),
        (3, "memory_limit", Int(2)),
        (4, "file_offset", Int(3)),
        (5, "filename_strindex", Index(4, Table::String)),
        (6, "build_id", Number(0)),
        (7, "has_functions", Flag("pprof.mapping.has_functions")),
        (8, "has_filenames", Flag("pprof.mapping.has_filenames")),
        (9, "has_line_numbers", Flag("pprof.mapping.has_line_numbers")),
        (10, "has_inline_frames", Flag("pprof.mapping.has_inline_frames")),
        (11, "build_id_kind", Number(1)),
        (12, "attribute_indices", Attributes),
    ],
    location: &[
        (2, "mapping_index", IndexUnlessZero(1, Table::Mapping)),
        (3, "address", Int(2)),
        (4, "line", Message(3, LINE)),
        (5, "is_folded", Flag("pprof.location.is_folded")),
        (6, "type_index", Number(0)),
        (7, "attribute_indices", Attributes),
    ],
    function: &[
        (2, "name_strindex", Index(1, Table::String)),
        (3, "system_name_strindex", Index(2, Table::String)),
        (4, "filename_strindex", Index(3, Table::String)),
        (5, "start_line", Int(4)),
    ],
};

const PROFILE_1_3: KnownFields = &[
    (1, "sample_type", SampleType),
    (2, "sample", Sample),
    (3, "mapping_table", Element(Table::Mapping)),
    (4, "location_table", Element(Table::Location)),
    (5, "function_table", Element(Table::Function)),
    (6, "string_table", Element(Table::String)),
    (7, "drop_frames", Text("pprof.profile.drop_frames")),
    (8, "keep_frames", Text("pprof.profile.keep_frames")),
    (9, "time_nanos", Time(0)),
    (10, "duration_nanos", Time(1)),
    (11, "period_type", Message(5, PERIOD_TYPE)),
    (12, "period", Int(6)),
    (13, "comment_strindices", List(1)),
    (14, "default_sample_type", LeftOut),
    (15, "location_indices", List(0)),
    (16, "attribute_table", Element(Table::Attribute)),
    (17, "attribute_units", AttributeUnit),
    (18, "link_table", Element(Table::Link)),
];

/// `ProfileContainer` of 1.3.
pub(super) const CONTAINER: KnownFields = &[
    (1, "profile_id", ProfileId),
    (2, "start_time_unix_nano", Fixed(2)),
    (3, "end_time_unix_nano", Fixed(3)),
    (4, "attributes", Attribute),
    (5, "dropped_attributes_count", Int(8)),
    (6, "original_payload_format", Payload(9)),
    (7, "original_payload", Payload(10)),
    (8, "profile", Profile),
];

pub(super) const VALUE_TYPE: KnownFields = &[
    (1, "type_strindex", Index(1, Table::String)),
    (2, "unit_strindex", Unit(2)),
    (3, "aggregation_temporality", Temporality),
];
const PERIOD_TYPE: KnownFields =
    &[(1, "type_strindex", Index(1, Table::String)), (2, "unit_strindex", Index(2, Table::String))];
const LINE: KnownFields =
    &[(1, "function_index", Index(1, Table::Function)), (2, "line", Int(2)), (3, "column", Int(3))];
pub(super) const LINK: KnownFields = &[(1, "trace_id", Id(1, 16)), (2, "span_id", Id(2, 8))];
pub(super) const UNIT: KnownFields = &[(1, "attribute_key_strindex", Number(0)), (2, "unit_strindex", Number(1))];
pub(super) const LABEL: KnownFields =
    &[(1, "key", Number(0)), (2, "str", Number(1)), (3, "num", Number(2)), (4, "num_unit", Number(3))];

/// An encoded field.
#[derive(Debug)]
pub(super) struct Wire<'a> {
    key: u32,
    /// Offset of the field's value in the request.
    position: usize,
    number: u64,
    message: ProtobufReader<'a>,
}

impl<'a> Wire<'a> {
    fn read(reader: &mut ProtobufReader<'a>, key: u32) -> Result<Self> {
        let mut wire = Self { key, position: reader.position(), number: 0, message: *reader };
        match key & 7 {
            VARINT => wire.number = reader.varint()?,
            FIXED64 => wire.number = reader.fixed64()?,
            LEN => wire.message = reader.message()?,
            _ => return Err(wire.wrong_type()),
        }
        Ok(wire)
    }

    #[cold]
    fn wrong_type(&self) -> Fault {
        let rule = format!("field {} has wire type {}, which is not its own", self.key >> 3, self.key & 7);
        Fault::wire(self.position, rule)
    }

    fn of_type(&self, wire_type: u32) -> Result<()> {
        if self.key & 7 == wire_type { Ok(()) } else { Err(self.wrong_type()) }
    }

    /// The value as a varint.
    pub(super) fn number(&self) -> Result<u64> {
        self.of_type(VARINT).map(|()| self.number)
    }

    /// The value as an eight-byte integer.
    pub(super) fn fixed64(&self) -> Result<u64> {
        self.of_type(FIXED64).map(|()| self.number)
    }

    /// The value as a message, a string or bytes.
    pub(super) fn message(&self) -> Result<ProtobufReader<'a>> {
        self.of_type(LEN).map(|()| self.message)
    }

    /// Calls `visit` with each integer of a list. The field is a single element or a packed run.
    pub(super) fn list(&self, mut visit: impl FnMut(u64) -> Result<()>) -> Result<()> {
        if self.key & 7 != LEN {
            return visit(self.number()?);
        }
        let mut packed = self.message;
        while !packed.rest().is_empty() {
            visit(packed.varint()?)?;
        }
        Ok(())
    }
}

/// Calls `visit` with the name and the conversion of each known field of a message.
pub(super) fn each<'a>(
    mut reader: ProtobufReader<'a>,
    fields: KnownFields,
    mut visit: impl FnMut(&'static str, FieldConversion, &Wire<'a>) -> Result<()>,
) -> Result<()> {
    while let Some(key) = reader.key()? {
        match fields.iter().find(|(number, ..)| *number == key >> 3) {
            Some(&(_, name, to)) => visit(name, to, &Wire::read(&mut reader, key)?)?,
            None => reader.skip(key)?,
        }
    }
    Ok(())
}

/// Calls `visit` with each message at a path of field numbers.
pub(super) fn each_at<'a>(
    mut reader: ProtobufReader<'a>,
    path: &[u32],
    visit: &mut dyn FnMut(ProtobufReader<'a>) -> Result<()>,
) -> Result<()> {
    let [field, inner @ ..] = path else { return visit(reader) };
    while let Some(key) = reader.key()? {
        match key == field << 3 | LEN {
            true => each_at(reader.message()?, inner, visit)?,
            false => reader.skip(key)?,
        }
    }
    Ok(())
}
