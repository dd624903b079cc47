//! 1.4 and 1.5: as 1.6, with tables in each profile. 1.4 has the profile's attributes in place, 1.5 as indices.

use super::release::{Home, ProfileField, Release, Table};
use super::v1_7::V1_7;

pub(super) const V1_4: Release = Release {
    home: Home::Profile,
    tables: &[
        (3, Table::Mapping),
        (4, Table::Location),
        (6, Table::Function),
        (7, Table::Attribute),
        (8, Table::Unit),
        (9, Table::Link),
        (10, Table::String),
    ],
    profile: &[
        (1, ProfileField::SampleType),
        (2, ProfileField::Sample),
        (5, ProfileField::LocationIndices),
        (11, ProfileField::Time),
        (12, ProfileField::Duration),
        (13, ProfileField::PeriodType),
        (14, ProfileField::Period),
        (15, ProfileField::Comment),
        (16, ProfileField::DefaultSampleType),
        (17, ProfileField::Id),
        (18, ProfileField::Attributes),
        (19, ProfileField::DroppedAttributes),
        (20, ProfileField::PayloadFormat),
        (21, ProfileField::Payload),
        (22, ProfileField::AttributeIndices),
    ],
    ..V1_7
};
