//! Rewrites requests of opentelemetry-proto before 1.8 in the layout of 1.10, which the decoder then reads.
//!
//! [`fields`] has a table for each release with the conversion of each field. In those releases tables have no zero
//! element: index 0 is the first element, and a profile may have its own tables. The rewritten tables are deduplicated
//! and begin with a zero element. A reference to an element that is all zero carries no information, so it becomes 0.
//!
//! A field that later became an attribute is written as that attribute. A profile with several sample types becomes
//! several profiles, one for each type. The first one keeps the profile's id. Each further one gets the first 16 bytes
//! of a hash of that id and of the type's position, so that ids are unique and stay the same when the profile is sent
//! again. If the profile has no id, neither do the new ones. The profiler's own data (`original_payload`) stays in the
//! first.
//!
//! Temporary memory is charged to one budget and output to another, which the decoder then continues to use. Each is
//! proportional to the size of the received request.

mod fields;
mod sample;
mod tables;

use std::collections::VecDeque;

use profbridge_model::dictionary::Invalid;
use profbridge_model::profiles::RequestPart;
use profbridge_model::varint;
use xxhash_rust::xxh3::xxh3_128;

use super::super::encode::put::{bytes, encoded, fixed64, int};
use super::super::error::{Fault, Result};
use super::super::layout::Layout;
use super::super::limits::{Budget, Limits};
use super::super::reader::ProtobufReader;
use super::Decoder;
use super::profile::not_delta;

use self::fields::{CONTAINER, FieldConversion, KnownFields, Release, Table, TablePlace, VALUE_TYPE, each, each_at};
use self::tables::{Elements, TableIds, reference};

/// A rewritten request.
#[derive(Debug)]
pub(super) struct Rewritten {
    pub(super) request: Vec<u8>,
    /// The remaining budget for the decoder.
    pub(super) budget: Budget,
    /// Errors of single profiles, in order.
    pub(super) faults: VecDeque<(RequestPart, Invalid)>,
    /// The dropped data: field name, and number of times.
    pub(super) left_out: Vec<(&'static str, u64)>,
}

/// Rewrites a request of a release up to 1.7; `None` for a later one.
pub(super) fn rewrite(request: &[u8], limits: &Limits, layout: Layout) -> Option<Result<Rewritten>> {
    let release = match layout {
        Layout::V1_3 => &fields::V1_3,
        Layout::V1_4 => &fields::V1_4,
        Layout::V1_6 => &fields::V1_6,
        Layout::V1_7 => &fields::V1_7,
        Layout::V1_8 | Layout::V1_9 | Layout::V1_10 => return None,
    };
    let mut rewriter = Rewriter {
        release,
        limits,
        held: Budget::new(limits, request.len()),
        budget: Budget::new(limits, request.len()),
        checker: Decoder::new(request, limits, layout),
        tables: Default::default(),
        keys: vec![0],
        parts: TableIds::default(),
        path: Vec::new(),
        invalid: None,
        executables: Vec::new(),
        faults: VecDeque::new(),
        left_out: Vec::new(),
    };
    let written = rewriter.request(ProtobufReader::new(request));
    let place = rewriter.place("");
    let Rewriter { budget, faults, left_out, .. } = rewriter;
    Some(match written {
        Ok(request) => Ok(Rewritten { request, budget, faults, left_out }),
        Err(fault) if place.is_empty() => Err(fault),
        Err(fault) => Err(fault.within(place)),
    })
}

/// A message that is being rewritten.
#[derive(Debug, Default)]
struct Draft {
    /// The rewritten fields so far.
    fields: Vec<u8>,
    attributes: Vec<u32>,
    /// Values that are needed later, at the positions that `fields` defines.
    numbers: [u64; 4],
    lists: [Vec<u64>; 3],
    /// A profile's id and its `original_payload`.
    id: [u8; 16],
    payload: Vec<u8>,
    /// Whether the unit is a count.
    counts: bool,
}

struct Rewriter<'a> {
    release: &'static Release,
    limits: &'a Limits,
    /// The remaining budgets for temporary memory and for output.
    held: Budget,
    budget: Budget,
    /// A decoder that only checks whether attributes are valid.
    checker: Decoder<'a>,
    tables: [Elements; Table::ALL.len()],
    /// The keys of the attributes.
    keys: Vec<u32>,
    parts: TableIds,
    /// Path of the current message.
    path: Vec<(&'static str, Option<usize>)>,
    /// The first error in the current tables or profile.
    invalid: Option<Invalid>,
    /// The main executable of each profile of the current resource; 0 if unknown.
    executables: Vec<u32>,
    faults: VecDeque<(RequestPart, Invalid)>,
    left_out: Vec<(&'static str, u64)>,
}

impl<'a> Rewriter<'a> {
    fn request(&mut self, request: ProtobufReader<'a>) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        // All fields that are not rewritten are copied.
        self.budget.charge::<u8>(request.rest().len())?;
        match self.release.home {
            TablePlace::Request => self.read_tables(&[request])?,
            TablePlace::Dictionary => {
                let dictionaries = self.messages(request, &[2])?;
                self.path.push(("dictionary", None));
                self.read_tables(&dictionaries)?;
            }
            TablePlace::Container | TablePlace::Profile => {}
        }
        if let Some(Invalid { place, rule }) = self.invalid.take() {
            self.path.clear();
            return Err(Fault::value(place, rule));
        }
        self.path.clear();
        let mut r = 0;
        each_at(request, &[1], &mut |resource| {
            self.within("resource_profiles", r, |this| {
                put_nested(&mut out, 0x0a, |out| this.resource_profiles(resource, r, out))
            })?;
            r += 1;
            Ok(())
        })?;
        let written: usize = self.tables.iter().map(|table| table.bytes.len() + 8 * table.ends.len()).sum();
        self.budget.charge::<u8>(written)?;
        put_nested(&mut out, 0x12, |out| {
            for (table, elements) in Table::ALL.into_iter().zip(&self.tables) {
                for id in 0..elements.ends.len() as u32 {
                    encoded(out, (table as u8 + 1) << 3 | 2, elements.get(id));
                }
            }
            Ok(())
        })?;
        match out.len() > i32::MAX as usize {
            true => Err(Fault::limit("bytes of the request, rewritten as of 1.10", i32::MAX as u64)),
            false => Ok(out),
        }
    }

    /// Copies the fields of a message, except that `inner` rewrites each field 2.
    fn copy_around(
        &mut self,
        mut reader: ProtobufReader<'a>,
        name: &'static str,
        out: &mut Vec<u8>,
        mut inner: impl FnMut(&mut Self, usize, ProtobufReader<'a>, &mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        let mut i = 0;
        loop {
            let rest = reader.rest();
            match reader.key()? {
                None => return Ok(()),
                Some(0x12) => {
                    let message = reader.message()?;
                    self.within(name, i, |this| inner(this, i, message, out))?;
                    i += 1;
                }
                Some(key) => {
                    reader.skip(key)?;
                    out.extend_from_slice(&rest[..rest.len() - reader.rest().len()]);
                }
            }
        }
    }

    fn resource_profiles(&mut self, reader: ProtobufReader<'a>, r: usize, out: &mut Vec<u8>) -> Result<()> {
        self.executables.clear();
        self.copy_around(reader, "scope_profiles", out, |this, s, scope, out| {
            let mut written = 0;
            put_nested(out, 0x12, |out| {
                this.copy_around(scope, "profiles", out, |this, _, profile, out| {
                    this.profile(profile, [r, s], &mut written, out)
                })
            })
        })?;
        if self.release.home == TablePlace::Container { self.give_executable(reader, out) } else { Ok(()) }
    }

    /// Reads a profile and writes one profile for each of its sample types.
    fn profile(
        &mut self,
        reader: ProtobufReader<'a>,
        [r, s]: [usize; 2],
        written: &mut usize,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let release = self.release;
        let mut draft = Draft::default();
        let pieces = match release.home {
            TablePlace::Container => self.messages(reader, &[8])?,
            _ => vec![reader],
        };
        if matches!(release.home, TablePlace::Container | TablePlace::Profile) {
            self.read_tables(&pieces)?;
        }
        if release.home == TablePlace::Container {
            self.read(reader, CONTAINER, &mut draft)?;
            self.executables.push(if self.parts.of_process { 0 } else { self.parts.main_file });
        }
        for &piece in &pieces {
            self.read(piece, release.profile, &mut draft)?;
        }
        let mut types = Vec::new();
        self.each_part(&pieces, release.profile, FieldConversion::SampleType, |this, _, reader| {
            this.held.charge::<Draft>(1)?;
            let mut sample_type = Draft::default();
            this.read(reader, VALUE_TYPE, &mut sample_type)?;
            types.push(sample_type);
            Ok(())
        })?;
        if types.is_empty() {
            types.push(Draft::default());
        }
        let [mut time, mut duration, start, end] = draft.numbers;
        if start != 0 {
            (time, duration) = (start, end.saturating_sub(start));
            if end < start && end != 0 {
                self.note("end_time_unix_nano", || format!("{end} is before start_time_unix_nano, {start}"));
            }
        }
        fixed64(&mut draft.fields, 0x19, time);
        int(&mut draft.fields, 0x20, duration);
        let [locations, comments, _] = std::mem::take(&mut draft.lists);
        let rows = self.rows(&pieces, &locations, [time, duration])?;
        draft.attributes.extend(self.comments(&comments)?);
        put_list(&mut draft.fields, 0x5a, &draft.attributes);

        let (first, mut after_first) = (*written, out.len());
        for (k, sample_type) in types.iter().enumerate() {
            // The sample type, the id, and the bytes before the profile.
            let payload = if k == 0 { draft.payload.len() } else { 0 };
            let more = sample_type.fields.len() + draft.fields.len() + payload + 32;
            self.budget.charge::<u8>(more)?;
            put_nested(out, 0x12, |out| {
                bytes(out, 0x0a, &sample_type.fields);
                out.extend_from_slice(&draft.fields);
                match (draft.id, k) {
                    ([0, ..], _) if draft.id == [0; 16] => {}
                    (id, 0) => encoded(out, 0x3a, &id),
                    (id, _) => encoded(out, 0x3a, &id_of_type(id, k)),
                }
                if k == 0 {
                    out.extend_from_slice(&draft.payload);
                }
                self.samples(&rows, [k, types.len()], sample_type.counts, out)
            })?;
            *written += 1;
            if k == 0 {
                after_first = out.len();
            }
        }
        if let Some(invalid) = self.invalid.take() {
            // The error counts for one profile, since the sender sent one.
            out.truncate(after_first);
            *written = first + 1;
            self.faults.push_back((RequestPart::Profile(r, s, first), invalid));
        }
        Ok(())
    }

    /// Reads a message according to its field table.
    fn read(&mut self, reader: ProtobufReader<'a>, fields: KnownFields, draft: &mut Draft) -> Result<()> {
        each(reader, fields, |name, to, wire| {
            match to {
                FieldConversion::Int(field) => int(&mut draft.fields, field << 3, wire.number()?),
                FieldConversion::Index(field, table) => {
                    let id = self.index(wire.number()?, table, name);
                    int(&mut draft.fields, field << 3, id.into());
                }
                FieldConversion::IndexUnlessZero(field, table) => {
                    let index = wire.number()?;
                    let id = if index == 0 { 0 } else { self.index(index, table, name) };
                    int(&mut draft.fields, field << 3, id.into());
                }
                FieldConversion::Unit(field) => {
                    let id = self.index(wire.number()?, Table::String, name);
                    draft.counts = self.text(id) == b"count";
                    int(&mut draft.fields, field << 3, id.into());
                }
                FieldConversion::Id(field, len) => {
                    let id = self.id(wire.message()?.rest(), len, name);
                    bytes(&mut draft.fields, field << 3 | 2, id);
                }
                FieldConversion::ProfileId => {
                    let id = self.id(wire.message()?.rest(), 16, name);
                    draft.id = id.try_into().unwrap_or_default();
                }
                FieldConversion::Payload(field) => bytes(&mut draft.payload, field << 3 | 2, wire.message()?.rest()),
                FieldConversion::Message(field, fields) => {
                    let (inner, mut message) = (wire.message()?, Draft::default());
                    self.at((name, None), |this| this.read(inner, fields, &mut message))?;
                    encoded(&mut draft.fields, field << 3 | 2, &message.fields);
                }
                FieldConversion::Attributes => wire.list(|index| {
                    self.held.charge::<u32>(1)?;
                    draft.attributes.push(self.index(index, Table::Attribute, name));
                    Ok(())
                })?,
                FieldConversion::Attribute => {
                    let (inner, i) = (wire.message()?, draft.attributes.len());
                    draft.attributes.push(self.within(name, i, |this| this.attribute_in_place(inner))?);
                }
                FieldConversion::Flag(key) => {
                    if wire.number()? != 0 {
                        draft.attributes.push(self.attribute(key, &[0x10, 1])?);
                    }
                }
                FieldConversion::Text(key) => {
                    let text = self.index(wire.number()?, Table::String, name);
                    if text != 0 {
                        draft.attributes.push(self.attribute(key, &reference(text))?);
                    }
                }
                FieldConversion::Label => {
                    let inner = wire.message()?;
                    draft.attributes.push(self.at((name, None), |this| this.label(inner))?);
                }
                FieldConversion::Temporality => {
                    let temporality = wire.number()?;
                    if let Some(rule) = not_delta(temporality) {
                        self.note(name, || rule);
                    }
                }
                FieldConversion::LeftOut => self.leave_out(name, wire.number()?),
                FieldConversion::Number(place) => draft.numbers[place] = wire.number()?,
                FieldConversion::Fixed(place) => draft.numbers[place] = wire.fixed64()?,
                FieldConversion::Time(place) => {
                    let time = wire.number()?;
                    if time > i64::MAX as u64 {
                        self.note(name, || format!("{} ns is no time", time as i64));
                    }
                    draft.numbers[place] = time;
                }
                FieldConversion::List(place) => wire.list(|number| {
                    self.held.charge::<u64>(1)?;
                    draft.lists[place].push(number);
                    Ok(())
                })?,
                FieldConversion::Element(_)
                | FieldConversion::AttributeUnit
                | FieldConversion::Profile
                | FieldConversion::SampleType
                | FieldConversion::Sample => drop(wire.message()?),
            }
            Ok(())
        })
    }

    /// Calls `visit` with each message of this kind and its position.
    fn each_part(
        &mut self,
        pieces: &[ProtobufReader<'a>],
        fields: KnownFields,
        part: FieldConversion,
        mut visit: impl FnMut(&mut Self, usize, ProtobufReader<'a>) -> Result<()>,
    ) -> Result<()> {
        let mut i = 0;
        for &piece in pieces {
            each(piece, fields, |name, to, wire| {
                if to == part {
                    let message = wire.message()?;
                    let position = (part != FieldConversion::SampleType).then_some(i);
                    self.at((name, position), |this| visit(this, i, message))?;
                    i += 1;
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// The messages at a path of field numbers.
    fn messages(&mut self, reader: ProtobufReader<'a>, path: &[u32]) -> Result<Vec<ProtobufReader<'a>>> {
        let mut messages = Vec::new();
        each_at(reader, path, &mut |message| {
            self.held.charge::<ProtobufReader<'_>>(1)?;
            messages.push(message);
            Ok(())
        })?;
        Ok(messages)
    }

    /// An id of `len` bytes. Empty if it is all zero, or if it has another length, which is recorded as an error.
    fn id<'i>(&mut self, id: &'i [u8], len: usize, name: &str) -> &'i [u8] {
        if !id.is_empty() && id.len() != len {
            self.note(name, || format!("has {} bytes, not {len}", id.len()));
            return &[];
        }
        if id.iter().all(|&byte| byte == 0) { &[] } else { id }
    }

    /// Adds the executable to a resource without one, if all its profiles have the same. A profile with process
    /// attributes prevents this: it covers several processes or names its own executable (the eBPF profiler's first
    /// mapping is only the one that it saw first).
    fn give_executable(&mut self, resource: ProtobufReader<'a>, out: &mut Vec<u8>) -> Result<()> {
        let Some(&file) = self.executables.first().filter(|&&file| file != 0) else { return Ok(()) };
        let mut has = false;
        each_at(resource, &[1, 1, 1], &mut |key| {
            has |= key.rest().starts_with(b"process.executable.");
            Ok(())
        })?;
        if has || self.executables.iter().any(|&other| other != file) {
            return Ok(());
        }
        let path = self.tables[Table::String as usize].get(file);
        let slash = path.iter().rposition(|&byte| byte == b'/');
        let name = &path[slash.map_or(0, |slash| slash + 1)..];
        self.budget.charge::<u8>(2 * path.len() + 80)?;
        for (key, value) in
            [("process.executable.path", slash.map_or(&[][..], |_| path)), ("process.executable.name", name)]
        {
            if !value.is_empty() {
                // Protobuf merges a repeated message field, so this field adds to the resource.
                put_nested(out, 0x0a, |out| {
                    put_nested(out, 0x0a, |out| {
                        encoded(out, 0x0a, key.as_bytes());
                        put_nested(out, 0x12, |out| {
                            encoded(out, 0x0a, value);
                            Ok(())
                        })
                    })
                })?;
            }
        }
        Ok(())
    }

    fn leave_out(&mut self, field: &'static str, number: u64) {
        match self.left_out.iter_mut().find(|(known, _)| *known == field) {
            _ if number == 0 => {}
            Some((_, count)) => *count += 1,
            None => self.left_out.push((field, 1)),
        }
    }

    /// Records an error in a field of the current message, unless there is one already.
    fn note(&mut self, name: &str, rule: impl FnOnce() -> String) {
        if self.invalid.is_none() {
            self.invalid = Some(Invalid { place: self.place(name), rule: rule() });
        }
    }

    /// The path of a field of the current message.
    fn place(&self, name: &str) -> String {
        let mut place = String::new();
        for (step, index) in self.path.iter().chain([&(name, None)]).filter(|(step, _)| !step.is_empty()) {
            if !place.is_empty() {
                place.push('.');
            }
            place.push_str(step);
            if let Some(index) = index {
                place.push_str(&format!("[{index}]"));
            }
        }
        place
    }

    fn within<T>(&mut self, name: &'static str, i: usize, inner: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.at((name, Some(i)), inner)
    }

    /// Reads a nested message. On failure the path is kept, because it is the location of the error.
    fn at<T>(&mut self, step: (&'static str, Option<usize>), inner: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.path.push(step);
        let read = inner(self)?;
        self.path.pop();
        Ok(read)
    }
}

/// Writes a message whose length is not known in advance.
fn put_nested(out: &mut Vec<u8>, key: u8, write: impl FnOnce(&mut Vec<u8>) -> Result<()>) -> Result<()> {
    out.push(key);
    let start = out.len();
    write(out)?;
    let mut len = Vec::with_capacity(varint::MAX_LEN);
    varint::put(&mut len, (out.len() - start) as u64);
    out.splice(start..start, len);
    Ok(())
}

/// Writes a packed list of ids, unless it is empty.
fn put_list(out: &mut Vec<u8>, key: u8, list: &[u32]) {
    let mut packed = Vec::with_capacity(list.len() * 2);
    list.iter().for_each(|&id| varint::put(&mut packed, id.into()));
    bytes(out, key, &packed);
}

/// The id of the profile for the `k`th sample type.
fn id_of_type(id: [u8; 16], k: usize) -> [u8; 16] {
    let mut text = id.to_vec();
    text.extend_from_slice(b"sample_type");
    text.extend_from_slice(&(k as u64).to_le_bytes());
    xxh3_128(&text).to_be_bytes()
}
