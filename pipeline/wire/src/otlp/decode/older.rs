//! The layouts of opentelemetry-proto before 1.10, read into the same tables.
//!
//! | layout | what is its own |
//! |---|---|
//! | [`v1_9`] | the numbers of a sample's fields |
//! | [`v1_8`] | the numbers of a profile's fields, comments, the temporality |

mod attributes;
mod v1_8;
mod v1_9;

use profbridge_model::StringId;

use super::super::error::DecodeError;
use super::super::layout::Layout;

/// What a decoder of an older layout remembers.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Texts that no request holds, and what they are called.
    texts: Vec<(&'static str, Option<StringId>)>,
}

/// What is said of a layout that is recognised and not read.
pub(super) fn not_read(layout: Layout) -> DecodeError {
    DecodeError::OlderLayout { generation: layout.name(), message: layout.advice().unwrap_or_default() }
}
