//! 1.7: tables in a dictionary, whose element 0 is an element like any other; no stacks, but ranges of each profile's
//! list of locations; several sample types in a profile.

use super::release::{FunctionField, Home, LocationField, MappingField, ProfileField, Release, SampleField, Table};

pub(super) const V1_7: Release = Release {
    home: Home::Dictionary,
    zero_is_none: false,
    tables: &[
        (1, Table::Mapping),
        (2, Table::Location),
        (3, Table::Function),
        (4, Table::Link),
        (5, Table::String),
        (6, Table::Attribute),
        (7, Table::Unit),
    ],
    profile: &[
        (1, ProfileField::SampleType),
        (2, ProfileField::Sample),
        (3, ProfileField::LocationIndices),
        (4, ProfileField::Time),
        (5, ProfileField::Duration),
        (6, ProfileField::PeriodType),
        (7, ProfileField::Period),
        (8, ProfileField::Comment),
        (9, ProfileField::DefaultSampleType),
        (10, ProfileField::Id),
        (11, ProfileField::DroppedAttributes),
        (12, ProfileField::PayloadFormat),
        (13, ProfileField::Payload),
        (14, ProfileField::AttributeIndices),
    ],
    sample: &[
        (1, SampleField::Start),
        (2, SampleField::Length),
        (3, SampleField::Values),
        (4, SampleField::Attributes),
        (5, SampleField::Link),
        (6, SampleField::Timestamps),
    ],
    mapping: &[
        (1, MappingField::Start),
        (2, MappingField::Limit),
        (3, MappingField::Offset),
        (4, MappingField::Filename),
        (5, MappingField::Attributes),
        (6, MappingField::Flag("pprof.mapping.has_functions")),
        (7, MappingField::Flag("pprof.mapping.has_filenames")),
        (8, MappingField::Flag("pprof.mapping.has_line_numbers")),
        (9, MappingField::Flag("pprof.mapping.has_inline_frames")),
    ],
    location: &[
        (1, LocationField::Mapping),
        (2, LocationField::Address),
        (3, LocationField::Line),
        (4, LocationField::Folded),
        (5, LocationField::Attributes),
    ],
    function: &[
        (1, FunctionField::Name),
        (2, FunctionField::SystemName),
        (3, FunctionField::Filename),
        (4, FunctionField::StartLine),
    ],
};
