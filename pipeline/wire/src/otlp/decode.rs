//! Decodes OTLP profiles from protobuf into a batch, in one pass.
//!
//! The decoder copies as little as possible: strings, stacks, timestamps and values are byte ranges of the request.
//! Only integer lists that are not packed in one piece are rewritten, into the buffer's spill.
//!
//! Three rules hold:
//!
//! * Before a column is allocated, its elements are counted on the wire and charged to a budget that is proportional to
//!   the request ([`Limits`]).
//! * An error in the encoding or in the dictionary rejects the whole request. An error in one profile, scope or
//!   resource rejects only that part, and is listed in [`Decoded::refused`]. Text that is not UTF-8 rejects nothing:
//!   the invalid bytes are replaced by U+FFFD, and [`Decoded::replaced_strings`] counts the strings. Because protobuf
//!   requires such a message to be rejected as a whole, the batch then drops the received bytes, so that they are never
//!   forwarded.
//! * The layouts of opentelemetry-proto before 1.10 share a path with the current one. The sibling module `layout`
//!   detects them. 1.8 and 1.9 only differ in some field numbers; the submodule `older` first rewrites earlier layouts,
//!   within the same limits. An ambiguous request is rejected, and the error names the possible layouts.
//!
//! One rule of the protocol is deliberately not enforced: the keys of an `attribute_indices` list must be unique
//! (opentelemetry-proto `profiles.proto`). A list with duplicate keys is accepted unchanged, and a lookup finds the
//! first entry. Producers concatenate lists from several sources, the duplicates make nothing ambiguous, and rejecting
//! the profile would lose data that every reader can use.
//!
//! A dictionary that arrives in several parts is merged, as protobuf specifies. By the same rule two concatenated
//! requests decode as one, in which the indices of the second refer to the tables of the first. Code that reads files,
//! which may have been joined by `cat`, calls [`has_second_dictionary`](super::sniff::has_second_dictionary) first.
//!
//! The decoder is stricter than protobuf in two points: an index list of the dictionary may not contain integers beyond
//! 32 bits (protobuf truncates them), and nesting is limited.

pub(crate) mod census;
mod dictionary;
mod older;
mod profile;
mod resource;
pub(crate) mod run;
pub(crate) mod sets;
mod value;

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use profbridge_model::dictionary::Invalid;
use profbridge_model::profiles::{Refusal, RequestPart};
use profbridge_model::{Buffer, ByteRange, Dictionary, Profiles, Samples, StringId, Tables};

use self::census::Census;
use self::run::Spill;
use self::sets::Sets;
use super::error::{DecodeError, Fault, Result};
use super::json;
use super::layout::{self, Layout, Verdict};
use super::limits::{Budget, Limits};
use super::reader::ProtobufReader;
use super::sniff::is_pprof;

/// A decoded request.
#[derive(Debug, Clone)]
pub struct Decoded {
    /// The valid profiles.
    pub profiles: Profiles,
    /// The rejected parts, for OTLP's partial success; empty if everything is valid.
    pub refused: Vec<Refusal>,
    /// Number of strings that were not valid UTF-8 and had bytes replaced by U+FFFD.
    pub replaced_strings: u64,
    /// The layout of the request.
    pub layout: Layout,
    /// Fields of an older layout that the current one cannot represent: the field's name, and how often it was dropped.
    pub left_out: Vec<(&'static str, u64)>,
}

impl Decoded {
    /// Number of rejected profiles: `rejected_profiles` of the response.
    pub fn refused_profiles(&self) -> u64 {
        self.refused.iter().map(|refusal| refusal.profiles).sum()
    }

    /// Number of observations in the rejected profiles.
    pub fn refused_observations(&self) -> u64 {
        self.refused.iter().map(|refusal| refusal.observations).sum()
    }

    /// Heap size of the batch beyond the request itself, in bytes.
    pub fn memory(&self) -> usize {
        memory(&self.profiles)
    }
}

/// Heap size of a batch's tables and columns in bytes, without the request to which they point. Counts the allocated
/// capacity of vectors; nested attribute values count without unused capacity.
pub fn memory(profiles: &Profiles) -> usize {
    fn column_bytes<T>(column: &Vec<T>) -> usize {
        column.capacity() * size_of::<T>()
    }
    let tables = profiles.dictionary().tables();
    let mut sum = column_bytes(&tables.strings)
        + column_bytes(&tables.mappings)
        + column_bytes(&tables.functions)
        + column_bytes(&tables.locations);
    sum += column_bytes(&tables.lines)
        + column_bytes(&tables.links)
        + column_bytes(&tables.attributes)
        + column_bytes(&tables.attribute_sets);
    sum += column_bytes(&tables.attribute_set_items) + column_bytes(&tables.stacks);
    sum += profiles.columns().heap_bytes() + size_of_val(profiles.resources()) + tables.buffer.spill_len();
    sum += tables.attributes.iter().map(|attribute| value::heap(&attribute.value)).sum::<usize>();
    for resource in profiles.resources() {
        sum += column_bytes(&resource.resource.attributes)
            + column_bytes(&resource.resource.entity_refs)
            + column_bytes(&resource.scopes);
        sum += resource.resource.attributes.iter().map(|attribute| value::heap(&attribute.value)).sum::<usize>();
        for scope in &resource.scopes {
            sum += column_bytes(&scope.scope.attributes) + column_bytes(&scope.profiles);
            sum += scope.scope.attributes.iter().map(|attribute| value::heap(&attribute.value)).sum::<usize>();
        }
    }
    sum
}

/// Decodes an `ExportProfilesServiceRequest` or a `ProfilesData`, which have the same layout.
///
/// The batch points into `request` and keeps it alive. If nothing was rejected or replaced and the layout is the
/// current one, the batch also keeps the request as [`received`](Profiles::received).
///
/// # Errors
///
/// See [`DecodeError`]; no part of the request is usable then.
pub fn decode(request: Bytes, limits: &Limits) -> std::result::Result<Decoded, DecodeError> {
    in_limit(&request, limits)?;
    let first = layout::probe(&request).unwrap_or(Layout::V1_10);
    let outcome = attempt(&request, limits, first);
    let wrong = match &outcome {
        Err(DecodeError::LimitExceeded { .. }) => false,
        Err(_) => true,
        Ok((decoded, suspicious)) => *suspicious || !decoded.refused.is_empty(),
    };
    if wrong && is_pprof(&request) {
        // The fields of a pprof profile may look like one of the older layouts.
        let rule = "it is a pprof profile, not OTLP; let the sender export OTLP".to_owned();
        return Err(DecodeError::Malformed { place: "request".to_owned(), offset: None, rule });
    }
    if !wrong {
        return outcome.map(|(decoded, _)| decoded);
    }
    let layout = match layout::detect(&request, outcome.is_ok()) {
        Verdict::Unclear(error) => return Err(error),
        Verdict::Current => Layout::V1_10,
        Verdict::Older(older) => older,
    };
    let outcome = if layout == first { outcome } else { attempt(&request, limits, layout) };
    outcome.map(|(decoded, _)| decoded)
}

/// Decodes a request whose layout is known, for example from its path. Unlike [`decode`], it does not try other
/// layouts.
///
/// # Errors
///
/// See [`DecodeError`]; no part of the request is usable then.
pub fn decode_as(request: Bytes, layout: Layout, limits: &Limits) -> std::result::Result<Decoded, DecodeError> {
    in_limit(&request, limits)?;
    attempt(&request, limits, layout).map(|(decoded, _)| decoded)
}

fn in_limit(request: &Bytes, limits: &Limits) -> std::result::Result<(), DecodeError> {
    let most = limits.max_request.min(i32::MAX as usize);
    if request.len() > most {
        return Err(DecodeError::LimitExceeded { what: "bytes of the request", limit: most as u64 });
    }
    Ok(())
}

/// Decodes a request in the given layout. Also returns whether the content is unusual enough to check the other
/// layouts.
fn attempt(request: &Bytes, limits: &Limits, layout: Layout) -> std::result::Result<(Decoded, bool), DecodeError> {
    let Some(rewritten) = older::rewrite(request, limits, layout) else {
        let mut decoder = Decoder::new(request, limits, layout);
        let resources = decoder.run()?;
        return decoder.finish(resources, request);
    };
    let older::Rewritten { request, budget, faults, left_out } = rewritten?;
    let request = Bytes::from(request.into_boxed_slice());
    let mut decoder = Decoder { budget, known_faults: faults, left_out, ..Decoder::new(&request, limits, layout) };
    // Offsets would refer to the rewritten request, which the sender never saw.
    let resources = decoder.run().map_err(|fault| json::without_offset(fault.into()))?;
    decoder.finish(resources, &request)
}

/// Whether the samples may come from 1.9. A 1.9 sample with values, read as 1.10, has no link and no values, and either
/// no attributes or one 8-byte timestamp for each. At least one sample must have attributes. For most batches the first
/// sample decides.
fn has_shape_of_1_9(profiles: &Profiles) -> bool {
    let dictionary = profiles.dictionary();
    let samples = || (0..profiles.columns().len() as u32).map(|row| profiles.sample(row));
    let has_shape = samples().all(|sample| {
        let attributes = dictionary.attribute_set(sample.attributes).len();
        sample.link.is_none()
            && sample.values_bytes().is_empty()
            && (attributes == 0 || attributes * 8 == sample.timestamps_bytes().len())
    });
    has_shape && samples().any(|sample| sample.attributes.is_some())
}

/// The state of one request's decoding.
struct Decoder<'a> {
    request: &'a [u8],
    limits: &'a Limits,
    layout: Layout,
    budget: Budget,
    tables: Tables,
    /// Number of elements of `string_table` and `attribute_table`, known before they are decoded.
    table_strings: u32,
    table_attributes: u32,
    /// Whether attributes refer to the string table.
    references: bool,
    /// Number of strings in which invalid UTF-8 was replaced.
    replaced: u64,
    /// Strings that were inline in the request; their ids follow those of `string_table`.
    inline: Vec<ByteRange>,
    sets: Sets,
    spill: Spill,
    scratch: run::Scratches,
    samples: Samples,
    /// Errors of single resources, scopes and profiles, in order.
    faults: Vec<(RequestPart, Invalid)>,
    /// The pending reference to a missing string: the field and the index.
    dangling: Option<(&'static str, u32)>,
    /// Whether the content is unusual enough to check for an older layout.
    suspicious: bool,
    /// For a rewritten request, the errors found in single profiles so far, in order, and the dropped fields.
    known_faults: VecDeque<(RequestPart, Invalid)>,
    left_out: Vec<(&'static str, u64)>,
}

impl<'a> Decoder<'a> {
    fn new(request: &'a [u8], limits: &'a Limits, layout: Layout) -> Self {
        Self {
            request,
            limits,
            layout,
            budget: Budget::new(limits, request.len()),
            tables: Tables::default(),
            table_strings: 1,
            table_attributes: 1,
            references: false,
            replaced: 0,
            inline: Vec::new(),
            sets: Sets::default(),
            spill: Spill::behind(request),
            scratch: run::Scratches::default(),
            samples: Samples::default(),
            faults: Vec::new(),
            dangling: None,
            suspicious: false,
            known_faults: VecDeque::new(),
            left_out: Vec::new(),
        }
    }

    /// Decodes the request. The dictionary is decoded first, wherever it is, because the resources refer to its
    /// strings.
    fn run(&mut self) -> Result<Vec<profbridge_model::ResourceProfiles>> {
        let mut resources = Vec::new();
        let mut dictionaries = Vec::new();
        let mut reader = ProtobufReader::new(self.request);
        while let Some(key) = reader.key()? {
            match key {
                0x0a => {
                    self.budget.charge::<ByteRange>(1)?;
                    resources.push(reader.span()?);
                }
                0x12 => {
                    self.budget.charge::<ByteRange>(1)?;
                    dictionaries.push(reader.span()?);
                }
                _ => self.other(&mut reader, key, 2)?,
            }
        }
        let request = self.request;
        self.dictionary(&dictionaries).map_err(|fault| fault.within("dictionary"))?;

        let mut census = Census::default();
        for &span in &resources {
            census.resource_profiles(ProtobufReader::at(request, span))?;
        }
        self.budget.charge::<profbridge_model::ResourceProfiles>(resources.len())?;
        census.charge(&mut self.budget)?;
        self.samples = Samples::with_capacity(census.samples);

        let mut decoded = Vec::with_capacity(resources.len());
        for (r, &span) in resources.iter().enumerate() {
            let resource = self.resource_profiles(ProtobufReader::at(request, span), r);
            decoded.push(resource.map_err(|fault| fault.within(format_args!("resource_profiles[{r}]")))?);
        }
        Ok(decoded)
    }

    fn finish(
        &mut self,
        resources: Vec<profbridge_model::ResourceProfiles>,
        request: &Bytes,
    ) -> std::result::Result<(Decoded, bool), DecodeError> {
        let mut tables = std::mem::take(&mut self.tables);
        tables.strings.append(&mut self.inline);
        tables.table_strings = self.table_strings;
        // A rewritten request has references that the sender did not write, and its bytes count as memory of the batch.
        let rewritten = self.layout <= Layout::V1_7;
        tables.references = self.references && !rewritten;
        self.sets.finish(&mut tables);
        let spill = self.spill.take();
        tables.buffer = match rewritten {
            true if spill.is_empty() => Buffer::new(Bytes::new(), request.clone()),
            true => Buffer::new(Bytes::new(), [&request[..], &spill].concat().into()),
            false => Buffer::new(request.clone(), spill),
        };
        let within = |invalid: Invalid| Invalid { place: format!("dictionary.{}", invalid.place), ..invalid };
        let (dictionary, replaced) = checked(tables, &mut self.budget, within)?;
        self.replaced += replaced;
        let samples = std::mem::take(&mut self.samples);
        let mut faults = std::mem::take(&mut self.faults).into_iter().peekable();
        let (mut profiles, refused) = Profiles::new_refusing(Arc::new(dictionary), resources, samples, &mut |place| {
            faults.next_if(|(at, _)| *at == place).map(|(_, invalid)| invalid)
        })?;
        if refused.is_empty() && self.replaced == 0 && self.layout == Layout::V1_10 {
            profiles.received = Some(request.clone());
        }
        // Invalid UTF-8 in a string suggests that the layout may be an older one.
        let suspicious = self.suspicious || self.sets.odd || self.replaced > 0;
        let suspicious = suspicious || (self.layout == Layout::V1_10 && has_shape_of_1_9(&profiles));
        let (replaced_strings, layout, left_out) = (self.replaced, self.layout, std::mem::take(&mut self.left_out));
        Ok((Decoded { profiles, refused, replaced_strings, layout, left_out }, suspicious))
    }

    /// Handles an unknown field in a message whose known fields are numbered from 1 to `known`.
    #[cold]
    fn other(&mut self, reader: &mut ProtobufReader<'a>, key: u32, known: u32) -> Result<()> {
        self.suspicious = true;
        reader.other(key, known)
    }

    /// Returns the id of an element of `string_table`. An index out of range is stored in `dangling`.
    #[inline]
    fn table_string(&mut self, index: u64, field: &'static str) -> Option<StringId> {
        // Protobuf reads an int32 from the lower half of the integer.
        let index = index as u32;
        if index >= self.table_strings && index != 0 {
            self.dangling.get_or_insert((field, index));
            return None;
        }
        StringId::new(index)
    }

    /// Adds an inline string; `None` if it is empty.
    fn inline_string(&mut self, span: ByteRange) -> Result<Option<StringId>> {
        if span.is_empty() {
            return Ok(None);
        }
        self.budget.charge::<ByteRange>(1)?;
        self.inline.push(span);
        // There are fewer strings than bytes, of which there are fewer than 2^31.
        Ok(StringId::new(self.table_strings + self.inline.len() as u32 - 1))
    }

    /// Returns the error of the pending reference to a missing string, if any, and clears it.
    fn take_dangling(&mut self, place: impl FnOnce() -> String) -> Option<Invalid> {
        let (field, index) = self.dangling.take()?;
        let rule = format!("index {} is out of range, string_table has {} elements", index as i32, self.table_strings);
        let place = match place() {
            here if here.is_empty() => field.to_owned(),
            outer => format!("{outer}.{field}"),
        };
        Some(Invalid { place, rule })
    }

    /// Like [`take_dangling`](Self::take_dangling), for places where such a reference rejects the request.
    #[inline]
    fn no_dangling(&mut self, place: impl FnOnce() -> String) -> Result<()> {
        if self.dangling.is_none() {
            return Ok(());
        }
        match self.take_dangling(place) {
            Some(invalid) => Err(Fault::value(invalid.place, invalid.rule)),
            None => Ok(()),
        }
    }
}

/// Builds the dictionary. Also returns the number of strings in which invalid UTF-8 was replaced: text is scanned again
/// only if the check failed. `within` adds the outer path to an error.
pub(crate) fn checked(
    tables: Tables,
    budget: &mut Budget,
    within: impl Fn(Invalid) -> Invalid,
) -> std::result::Result<(Dictionary, u64), DecodeError> {
    let (mut tables, invalid) = match Dictionary::try_new(tables) {
        Ok(dictionary) => return Ok((dictionary, 0)),
        Err(back) => *back,
    };
    let mut room = Ok(());
    let replaced = tables.replace_invalid_text(|bytes| {
        room = budget.charge::<u8>(bytes);
        room.is_ok()
    });
    room?;
    match replaced {
        None | Some(0) => Err(within(invalid).into()),
        Some(replaced) => Ok((Dictionary::new(tables).map_err(within)?, replaced)),
    }
}
