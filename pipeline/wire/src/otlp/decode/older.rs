//! The layouts of opentelemetry-proto before 1.10, read into the same tables.
//!
//! | layout | what is its own |
//! |---|---|
//! | [`v1_9`] | the numbers of a sample's fields |
//! | [`v1_8`] | the numbers of a profile's fields, comments, the temporality |
//! | [`v1_7`] | tables without a zero element, ranges of locations, several types in a profile |
//! | [`v1_6`] | tables beside the resources |
//! | [`v1_4`] | tables in each profile |
//! | [`v1_3`] | containers, labels, build ids, types of frames |
//!
//! 1.8 and 1.9 have today's dictionary and are read by today's decoder with other numbers. The earlier ones have a
//! reader of their own, which is driven by tables of the releases' field numbers ([`mod@release`]): [`tables`] and
//! [`elements`] read the tables, [`profile`] and [`sample`] what refers to them.

mod attributes;
mod census;
mod elements;
mod executable;
mod profile;
mod release;
mod sample;
mod tables;
mod v1_3;
mod v1_4;
mod v1_6;
mod v1_7;
mod v1_8;
mod v1_9;

use std::collections::HashMap;

use profbridge_model::{AttributeId, ByteRange, ResourceProfiles, StackId, StringId};

use super::super::error::{Fault, Result};
use super::super::layout::Layout;
use super::super::reader::Reader;
use super::Decoder;
use super::census::Census;

use self::census::Counts;
use self::release::{Home, Release};
use self::tables::Parts;

/// What a decoder of an older layout remembers.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Texts that no request holds, and what they are called.
    texts: Vec<(&'static str, Option<StringId>)>,
    /// Attributes that say that something is so, by their key.
    flags: Vec<(&'static str, Option<AttributeId>)>,
    /// The tables that all profiles share.
    parts: Parts,
    /// The main executable of each profile of the resource at hand, as far as it is known.
    executables: Vec<Option<StringId>>,
    /// The stacks, by their packed locations.
    stacks: HashMap<Box<[u8]>, Option<StackId>>,
    /// What was left out, by the name of its field.
    left_out: Vec<(&'static str, u64)>,
    /// The lists of the message at hand: attributes, times, locations.
    ids: Vec<Option<AttributeId>>,
    times: Vec<u8>,
    locations: Vec<u32>,
}

impl State {
    fn leave_out(&mut self, field: &'static str, count: u64) {
        if count == 0 {
            return;
        }
        match self.left_out.iter_mut().find(|(known, _)| *known == field) {
            Some((_, known)) => *known += count,
            None => self.left_out.push((field, count)),
        }
    }

    pub(super) fn take_left_out(&mut self) -> Vec<(&'static str, u64)> {
        std::mem::take(&mut self.left_out)
    }
}

/// The field numbers of a layout that has a reader of its own.
pub(super) fn release(layout: Layout) -> Option<&'static Release> {
    match layout {
        Layout::V1_3 => Some(&v1_3::V1_3),
        Layout::V1_4 => Some(&v1_4::V1_4),
        Layout::V1_6 => Some(&v1_6::V1_6),
        Layout::V1_7 => Some(&v1_7::V1_7),
        Layout::V1_8 | Layout::V1_9 | Layout::V1_10 => None,
    }
}

impl<'a> Decoder<'a> {
    /// Reads a request of a release up to 1.7.
    pub(super) fn run_release(&mut self, release: &'static Release) -> Result<Vec<ResourceProfiles>> {
        let mut resources = Vec::new();
        let mut pieces = Vec::new();
        let mut reader = Reader::new(self.request);
        while let Some(key) = reader.key()? {
            match key {
                0x0a => {
                    self.budget.charge::<ByteRange>(1)?;
                    resources.push(reader.span()?);
                }
                0x12 if release.home == Home::Dictionary => {
                    self.budget.charge::<Reader<'_>>(1)?;
                    pieces.push(reader.message()?);
                }
                _ => reader.skip(key)?,
            }
        }
        if release.home == Home::Request {
            pieces.push(Reader::new(self.request));
        }

        let mut counts = Counts::default();
        for &span in &resources {
            counts.resource(release, Reader::at(self.request, span))?;
        }
        for &piece in &pieces {
            counts.strings += release::count(piece, release.tables, release::Table::String)?;
        }
        self.budget.charge::<ByteRange>(counts.strings)?;
        self.table_strings = 1 + counts.strings as u32;
        self.zero_elements()?;
        let mut parts = self.tables_of(release, &pieces)?;
        if let Some(invalid) = parts.invalid.take() {
            let table = Fault::value(invalid.place, invalid.rule);
            return Err(if release.home == Home::Dictionary { table.within("dictionary") } else { table });
        }
        self.older.parts = parts;
        self.all_resources(&resources, &Census::of(counts.scopes, counts.profiles, counts.samples))
    }
}
