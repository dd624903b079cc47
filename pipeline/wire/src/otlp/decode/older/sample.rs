//! Samples of the releases up to 1.7: ranges of locations, one value for each type, times as plain integers.
//!
//! A value there is the sample's total, and times are beside it (`profiles.proto` up to 1.7: "All samples must have the
//! same number of values, the same as the length of Profile.sample_type"). Since 1.8 each time has a value of its own
//! or counts 1. So a total that is the number of times is dropped, and any other is divided among them, with its sum
//! kept. Two habits of the eBPF profiler (`reporter/internal/pdata/generate.go` until 2025-09) are known: 1 as the
//! value of a count beside several times, where each of them is one, and one value for each time in a profile of a
//! single type.

use std::collections::HashMap;

use profbridge_model::dictionary::Invalid;
use profbridge_model::{
    Attribute, AttributeId, AttributeSetId, ByteRange, LinkId, Location, StackId, Value, ValueType, varint,
};

use super::super::super::error::{Fault, Result};
use super::super::super::reader::Reader;
use super::super::Decoder;
use super::release::{ProfileField, Release, SampleField, each};
use super::tables::Parts;

/// Nanoseconds in a millisecond.
const MILLISECOND: u64 = 1_000_000;

/// How far from its container's range a time may lie, as a factor. Between milliseconds and nanoseconds lies a million.
const FAR: u64 = 10;

/// The samples of one profile while they are read.
#[derive(Debug, Default)]
pub(super) struct Rows {
    rows: Vec<Row>,
    /// The values of all of them.
    values: Vec<i64>,
    /// `location_indices`, as elements of the batch's table.
    locations: Vec<u32>,
    /// How many of those there were, of which some may not be there.
    listed: bool,
    /// The stacks by their range of locations.
    stacks: HashMap<(u64, u64), Option<StackId>>,
    /// The attributes by their labels.
    labels: HashMap<[u64; 4], Option<AttributeId>>,
    /// How many nanoseconds a time counts; 0 stands for 1.
    unit: u64,
}

#[derive(Debug)]
struct Row {
    stack: Option<StackId>,
    attributes: Option<AttributeSetId>,
    link: Option<LinkId>,
    timestamps: ByteRange,
    /// Where its values start, and how many it has.
    values: [u32; 2],
}

impl Rows {
    /// Finds out what the times of a profile of 1.3 count: nanoseconds as in the release, or milliseconds as OTEP 0239
    /// has it. They are a million apart, and all lie near the profile's start: what fits neither is refused.
    pub(super) fn unit_of_times(
        &mut self,
        release: &Release,
        pieces: &[Reader<'_>],
        [start, duration]: [u64; 2],
        fault: &mut Option<Invalid>,
    ) -> Result<()> {
        let (mut least, mut most) = (u64::MAX, 0);
        for &piece in pieces {
            each(piece, release.profile, |field, wire| {
                if field != ProfileField::Sample {
                    return Ok(());
                }
                each(wire.message()?, release.sample, |field, wire| {
                    if field != SampleField::Timestamps {
                        return Ok(());
                    }
                    wire.list(|time| {
                        (least, most) = (least.min(time), most.max(time));
                        Ok(())
                    })
                })
            })?;
        }
        if most == 0 && least == u64::MAX {
            return Ok(());
        }
        let range = start / FAR..=start.saturating_add(duration).saturating_mul(FAR);
        let fits = |unit: u64| {
            let counted = |time: u64| time.checked_mul(unit).is_some_and(|time| range.contains(&time));
            start > 0 && counted(least) && counted(most)
        };
        match [fits(1), fits(MILLISECOND)] {
            [true, false] => self.unit = 1,
            [false, true] => self.unit = MILLISECOND,
            _ => {
                let rule = format!(
                    "{least} to {most} are neither nanoseconds (opentelemetry-proto 1.3) nor milliseconds (OTEP 0239) \
                     near the profile's start, {start} ns"
                );
                fault.get_or_insert(Invalid { place: "sample.timestamps_unix_nano".to_owned(), rule });
            }
        }
        Ok(())
    }
}

impl<'a> Decoder<'a> {
    /// Appends an element of `location_indices`.
    pub(super) fn add_location(&mut self, index: u64, rows: &mut Rows, parts: &mut Parts) -> Result<()> {
        self.budget.charge::<u32>(1)?;
        rows.listed = true;
        let position = rows.locations.len();
        rows.locations.push(self.location_at(index, parts, || format!("location_indices[{position}]")));
        Ok(())
    }

    /// The location at an index; 0 where it is all zero, and where it is not there, which is noted.
    fn location_at(&self, index: u64, parts: &mut Parts, place: impl FnOnce() -> String) -> u32 {
        let Some(found) = parts.locations.get(index) else {
            parts.dangling(place(), index, "location_table", parts.locations.len());
            return 0;
        };
        let Location { mapping, address, attributes, lines_start: _, lines_len } =
            self.tables.locations[found as usize];
        let is_zero = (mapping, address, attributes, lines_len) == (None, 0, None, 0);
        if is_zero { 0 } else { found }
    }

    /// Reads the samples of a profile that stands in these pieces.
    pub(super) fn rows_of(
        &mut self,
        release: &'static Release,
        pieces: &[Reader<'a>],
        rows: &mut Rows,
        parts: &mut Parts,
        fault: &mut Option<Invalid>,
    ) -> Result<()> {
        for &piece in pieces {
            each(piece, release.profile, |field, wire| {
                if field != ProfileField::Sample {
                    return Ok(());
                }
                let row = rows.rows.len();
                let read = self.row(release, wire.message()?, rows, parts, fault);
                read.map_err(|fault| fault.within(format_args!("sample[{row}]")))
            })?;
        }
        Ok(())
    }

    fn row(
        &mut self,
        release: &'static Release,
        reader: Reader<'a>,
        rows: &mut Rows,
        parts: &mut Parts,
        fault: &mut Option<Invalid>,
    ) -> Result<()> {
        let row = rows.rows.len();
        let (mut start, mut length, mut link) = (0, 0, None);
        let first_value = rows.values.len();
        let (mut ids, mut times) = (std::mem::take(&mut self.older.ids), std::mem::take(&mut self.older.times));
        let mut one_by_one = std::mem::take(&mut self.older.locations);
        ids.clear();
        times.clear();
        one_by_one.clear();
        let unit = rows.unit.max(1);
        each(reader, release.sample, |field, wire| {
            match field {
                SampleField::LocationIndex => wire.list(|index| {
                    self.budget.charge::<u32>(1)?;
                    let place = || format!("sample[{row}].location_index");
                    one_by_one.push(self.location_at(index, parts, place));
                    Ok(())
                })?,
                SampleField::Start => start = wire.number()?,
                SampleField::Length => length = wire.number()?,
                SampleField::StacktraceId => {
                    let set = wire.number()? != 0;
                    self.older.leave_out("stacktrace_id_index", u64::from(set));
                }
                SampleField::Values => wire.list(|value| {
                    self.budget.charge::<i64>(1)?;
                    rows.values.push(value as i64);
                    Ok(())
                })?,
                SampleField::Label => {
                    let id = self.label(wire.message()?, &mut rows.labels, parts, row)?;
                    ids.push(id);
                }
                SampleField::Attributes => wire.list(|index| {
                    let place = || format!("sample[{row}].attribute_indices");
                    ids.push(self.attribute_at(index, parts, place));
                    Ok(())
                })?,
                SampleField::Link => {
                    let index = wire.number()?;
                    if index != 0 || !release.zero_is_none {
                        link = self.link_at(index, parts, || format!("sample[{row}].link_index"));
                    }
                }
                SampleField::Timestamps => wire.list(|time| {
                    self.budget.charge::<u64>(1)?;
                    times.extend_from_slice(&time.saturating_mul(unit).to_le_bytes());
                    Ok(())
                })?,
            }
            Ok(())
        })?;
        let stack = match (length, one_by_one.is_empty()) {
            (0, true) => None,
            (0, false) => self.stack_of(&one_by_one)?,
            _ => self.range([start, length], rows, parts, row, fault)?,
        };
        let timestamps = if times.is_empty() { ByteRange::default() } else { self.spill.put(&times) };
        let attributes = self.set_of(&ids)?;
        (self.older.ids, self.older.times, self.older.locations) = (ids, times, one_by_one);
        self.budget.charge::<Row>(1)?;
        let values = [first_value as u32, (rows.values.len() - first_value) as u32];
        rows.rows.push(Row { stack, attributes, link, timestamps, values });
        Ok(())
    }

    /// The stack of a range of the profile's locations.
    fn range(
        &mut self,
        [start, length]: [u64; 2],
        rows: &mut Rows,
        parts: &mut Parts,
        row: usize,
        fault: &mut Option<Invalid>,
    ) -> Result<Option<StackId>> {
        if let Some(&known) = rows.stacks.get(&(start, length)) {
            return Ok(known);
        }
        // Without a list of their own, samples of 1.3 refer to the table itself.
        let listed = if rows.listed { rows.locations.len() as u64 } else { u64::from(parts.locations.len()) };
        if start.checked_add(length).is_none_or(|end| end > listed) {
            let rule = format!("{length} locations from {start} on, there are {listed}");
            let place = format!("sample[{row}].locations_start_index");
            fault.get_or_insert(Invalid { place, rule });
            return Ok(None);
        }
        let stack = if rows.listed {
            self.stack_of(&rows.locations[start as usize..(start + length) as usize])?
        } else {
            self.budget.charge::<u32>(length as usize)?;
            let locations: Vec<u32> =
                (start..start + length).map(|index| self.location_at(index, parts, String::new)).collect();
            self.stack_of(&locations)?
        };
        self.budget.charge::<[u64; 3]>(1)?;
        rows.stacks.insert((start, length), stack);
        Ok(stack)
    }

    /// The stack of these locations, each different one stored once.
    fn stack_of(&mut self, locations: &[u32]) -> Result<Option<StackId>> {
        let depth = self.limits.max_stack_depth;
        if locations.len() > depth {
            return Err(Fault::limit("locations of one stack", depth as u64));
        }
        let mut packed = std::mem::take(&mut self.scratch.values);
        locations.iter().for_each(|&location| varint::put(&mut packed, location.into()));
        let id = match self.older.stacks.get(&*packed) {
            Some(&known) => known,
            None => self.new_stack(&packed)?,
        };
        packed.clear();
        self.scratch.values = packed;
        Ok(id)
    }

    fn new_stack(&mut self, packed: &[u8]) -> Result<Option<StackId>> {
        // Once in the spill and once in the hash table.
        self.budget.charge::<[u8; 2]>(packed.len())?;
        self.budget.charge::<[u64; 5]>(1)?;
        let place = self.spill.put(packed);
        let id = StackId::new(self.tables.stacks.len() as u32);
        self.tables.stacks.push(place);
        self.older.stacks.insert(packed.into(), id);
        Ok(id)
    }

    /// The attribute that a label of 1.3 is since.
    fn label(
        &mut self,
        reader: Reader<'a>,
        labels: &mut HashMap<[u64; 4], Option<AttributeId>>,
        parts: &mut Parts,
        row: usize,
    ) -> Result<Option<AttributeId>> {
        let mut label = [0; 4];
        each(reader, &[(1, 0), (2, 1), (3, 2), (4, 3)], |field: usize, wire| {
            label[field] = wire.number()?;
            Ok(())
        })?;
        if let Some(&known) = labels.get(&label) {
            return Ok(known);
        }
        let [key, text, number, unit] = label;
        let mut string = |index, name| self.string_at(index, parts, || format!("sample[{row}].label.{name}"));
        let (key, text, unit) = (string(key, "key"), string(text, "str"), string(unit, "num_unit"));
        let value = if label[1] != 0 { Value::String(text) } else { Value::Int(number as i64) };
        let id = self.add_attribute(Attribute { key, value, unit })?;
        self.budget.charge::<[u64; 6]>(1)?;
        labels.insert(label, id);
        Ok(id)
    }

    /// Appends the samples with the values that they have of the `k`th of so many types.
    pub(super) fn push_rows(
        &mut self,
        rows: &mut Rows,
        [k, types]: [usize; 2],
        sample_type: ValueType,
        fault: &mut Option<Invalid>,
    ) -> Result<()> {
        let counts = self.bytes_of(sample_type.unit) == b"count";
        for (i, row) in rows.rows.iter().enumerate() {
            let values = &rows.values[row.values[0] as usize..][..row.values[1] as usize];
            let times = (row.timestamps.len / 8) as usize;
            let place = match (values, times) {
                ([], _) if types == 1 => ByteRange::default(),
                _ if types == 1 && times > 1 && values.len() == times => self.put_values(values.iter().copied())?,
                _ if values.len() != types => {
                    let rule = format!("there are {} values for {types} types", values.len());
                    fault.get_or_insert(Invalid { place: format!("sample[{i}].value"), rule });
                    ByteRange::default()
                }
                (_, 0) => self.put_values([values[k]].into_iter())?,
                _ if values[k] == times as i64 || (counts && values[k] == 1) => ByteRange::default(),
                _ => self.put_values(divided(values[k], times))?,
            };
            self.samples.push(row.stack, row.attributes, row.link, row.timestamps, place);
        }
        Ok(())
    }

    fn put_values(&mut self, values: impl Iterator<Item = i64> + Clone) -> Result<ByteRange> {
        self.budget.charge::<u8>(values.clone().map(|value| varint::len(value as u64)).sum())?;
        let mut packed = std::mem::take(&mut self.scratch.values);
        values.for_each(|value| varint::put(&mut packed, value as u64));
        let place = self.spill.put(&packed);
        packed.clear();
        self.scratch.values = packed;
        Ok(place)
    }
}

/// A total in so many parts, which differ by 1 at most.
fn divided(total: i64, parts: usize) -> impl Iterator<Item = i64> + Clone {
    let count = parts as i64;
    let (each, left) = (total.div_euclid(count), total.rem_euclid(count));
    (0..count).map(move |part| each + i64::from(part < left))
}
