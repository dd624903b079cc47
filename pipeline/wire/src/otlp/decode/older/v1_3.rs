//! 1.3, the package `v1experimental`: the messages of OTEP 0239. Profiles lie in containers, which have the times and
//! the attributes; samples have labels; build ids and the types of frames are fields.

use super::release::{
    Fields, FunctionField, Home, LocationField, MappingField, ProfileField, Release, SampleField, Table,
};

pub(super) const V1_3: Release = Release {
    home: Home::Container,
    zero_is_none: true,
    tables: &[
        (3, Table::Mapping),
        (4, Table::Location),
        (5, Table::Function),
        (6, Table::String),
        (16, Table::Attribute),
        (17, Table::Unit),
        (18, Table::Link),
    ],
    profile: &[
        (1, ProfileField::SampleType),
        (2, ProfileField::Sample),
        (7, ProfileField::DropFrames),
        (8, ProfileField::KeepFrames),
        (9, ProfileField::Time),
        (10, ProfileField::Duration),
        (11, ProfileField::PeriodType),
        (12, ProfileField::Period),
        (13, ProfileField::Comment),
        (14, ProfileField::DefaultSampleType),
        (15, ProfileField::LocationIndices),
    ],
    sample: &[
        (1, SampleField::LocationIndex),
        (2, SampleField::Values),
        (3, SampleField::Label),
        (7, SampleField::Start),
        (8, SampleField::Length),
        (9, SampleField::StacktraceId),
        (10, SampleField::Attributes),
        (12, SampleField::Link),
        (13, SampleField::Timestamps),
    ],
    mapping: &[
        (2, MappingField::Start),
        (3, MappingField::Limit),
        (4, MappingField::Offset),
        (5, MappingField::Filename),
        (6, MappingField::BuildId),
        (7, MappingField::Flag("pprof.mapping.has_functions")),
        (8, MappingField::Flag("pprof.mapping.has_filenames")),
        (9, MappingField::Flag("pprof.mapping.has_line_numbers")),
        (10, MappingField::Flag("pprof.mapping.has_inline_frames")),
        (11, MappingField::BuildIdKind),
        (12, MappingField::Attributes),
    ],
    location: &[
        (2, LocationField::Mapping),
        (3, LocationField::Address),
        (4, LocationField::Line),
        (5, LocationField::Folded),
        (6, LocationField::Type),
        (7, LocationField::Attributes),
    ],
    function: &[
        (2, FunctionField::Name),
        (3, FunctionField::SystemName),
        (4, FunctionField::Filename),
        (5, FunctionField::StartLine),
    ],
};

/// What a `ProfileContainer` has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ContainerField {
    Id,
    Start,
    End,
    Attributes,
    DroppedAttributes,
    PayloadFormat,
    Payload,
    Profile,
}

pub(super) const CONTAINER: Fields<ContainerField> = &[
    (1, ContainerField::Id),
    (2, ContainerField::Start),
    (3, ContainerField::End),
    (4, ContainerField::Attributes),
    (5, ContainerField::DroppedAttributes),
    (6, ContainerField::PayloadFormat),
    (7, ContainerField::Payload),
    (8, ContainerField::Profile),
];
