//! 1.6: as 1.7, with the tables beside the resources.

use super::release::{Home, Release, Table};
use super::v1_7::V1_7;

pub(super) const V1_6: Release = Release {
    home: Home::Request,
    tables: &[
        (2, Table::Mapping),
        (3, Table::Location),
        (4, Table::Function),
        (5, Table::Link),
        (6, Table::String),
        (7, Table::Attribute),
        (8, Table::Unit),
    ],
    ..V1_7
};
