//! Converts samples of the releases up to 1.7: ranges of locations, one value for each type, times as plain integers.
//!
//! In these releases a value is the sample's total, in addition to its times (`profiles.proto` up to 1.7: "All samples
//! must have the same number of values, the same as the length of Profile.sample_type"). Since 1.8 each time has its
//! own value or counts 1. So a total that equals the number of times is dropped, and any other total is divided among
//! the times with its sum preserved. Two peculiarities of the eBPF profiler (`reporter/internal/pdata/generate.go`
//! until 2025-09) are handled: a count of 1 with several times means one per time, and a profile with a single type may
//! have one value for each time.

use std::collections::HashMap;
use std::ops::Range;

use profbridge_model::varint;

use super::super::super::encode::put::{bytes, head, int};
use super::super::super::error::{Fault, Result};
use super::super::super::reader::ProtobufReader;
use super::fields::{FieldConversion, Table, TablePlace};
use super::{Draft, Rewriter, put_list, put_nested};

/// Nanoseconds in a millisecond.
const MILLISECOND: u64 = 1_000_000;

/// How far a time may be outside of its container's range, as a factor. Milliseconds and nanoseconds differ by a factor
/// of a million.
const FAR: u64 = 10;

/// The samples of one profile; their values and times are in shared lists.
#[derive(Debug, Default)]
pub(super) struct SampleRows {
    rows: Vec<SampleRow>,
    fields: Vec<u8>,
    values: Vec<u64>,
    times: Vec<u64>,
    /// The unit of times, in nanoseconds.
    unit: u64,
}

#[derive(Debug)]
struct SampleRow {
    fields: Range<usize>,
    values: Range<usize>,
    times: Range<usize>,
}

impl<'a> Rewriter<'a> {
    /// Reads the samples of a profile from these pieces, with its list of locations.
    pub(super) fn rows(
        &mut self,
        pieces: &[ProtobufReader<'a>],
        locations: &[u64],
        [start, duration]: [u64; 2],
    ) -> Result<SampleRows> {
        self.held.charge::<u32>(locations.len())?;
        let listed = locations.iter().enumerate().map(|(i, &index)| {
            let found = self.parts.ids[Table::Location as usize].get(index as usize).copied();
            found.unwrap_or_else(|| self.index(index, Table::Location, &format!("location_indices[{i}]")))
        });
        let listed: Vec<u32> = listed.collect();
        let mut rows = SampleRows { unit: 1, ..SampleRows::default() };
        let (mut sample, mut stacks) = (Draft::default(), HashMap::new());
        self.each_part(pieces, self.release.profile, FieldConversion::Sample, |this, _, reader| {
            this.read(reader, this.release.sample, &mut sample)?;
            let [start, length, ..] = sample.numbers;
            let [one_by_one, values, times] = &sample.lists;
            let stack = match length {
                0 => {
                    let ids = one_by_one.iter().map(|&index| this.index(index, Table::Location, "location_index"));
                    let ids: Vec<u32> = ids.collect();
                    this.stack(&ids)?
                }
                _ => match stacks.get(&(start, length)) {
                    Some(&known) => known,
                    None => {
                        let stack = this.range([start, length], &listed)?;
                        this.held.charge::<[u64; 3]>(1)?;
                        stacks.insert((start, length), stack);
                        stack
                    }
                },
            };
            int(&mut sample.fields, 0x08, stack.into());
            put_list(&mut sample.fields, 0x12, &sample.attributes);
            this.held.charge::<SampleRow>(1)?;
            this.held.charge::<u8>(sample.fields.len())?;
            rows.rows.push(SampleRow {
                fields: append(&mut rows.fields, &sample.fields),
                values: append(&mut rows.values, values),
                times: append(&mut rows.times, times),
            });
            sample.fields.clear();
            sample.attributes.clear();
            sample.numbers = [0; 4];
            sample.lists.iter_mut().for_each(Vec::clear);
            Ok(())
        })?;
        if self.release.home == TablePlace::Container {
            self.unit_of_times(&mut rows, [start, duration]);
        }
        Ok(rows)
    }

    /// Determines the unit of times in a profile of 1.3: nanoseconds as in the release, or milliseconds as in OTEP
    /// 0239. They differ by a factor of a million, and all times are near the profile's start. Times that fit neither
    /// unit are rejected.
    fn unit_of_times(&mut self, rows: &mut SampleRows, [start, duration]: [u64; 2]) {
        let (Some(&least), Some(&most)) = (rows.times.iter().min(), rows.times.iter().max()) else { return };
        let range = start / FAR..=start.saturating_add(duration).saturating_mul(FAR);
        let fits = |unit: u64| {
            let counted = |time: u64| time.checked_mul(unit).is_some_and(|time| range.contains(&time));
            start > 0 && counted(least) && counted(most)
        };
        match [fits(1), fits(MILLISECOND)] {
            [true, false] => {}
            [false, true] => rows.unit = MILLISECOND,
            _ => self.note("sample.timestamps_unix_nano", || {
                format!(
                    "{least} to {most} are neither nanoseconds (opentelemetry-proto 1.3) nor milliseconds (OTEP 0239) \
                     near the profile's start, {start} ns"
                )
            }),
        }
    }

    /// The stack of a range of the profile's locations.
    fn range(&mut self, [start, length]: [u64; 2], listed: &[u32]) -> Result<u32> {
        // In 1.3, samples of a profile without a list of locations refer to the location table itself.
        let list = if listed.is_empty() { &self.parts.ids[Table::Location as usize] } else { listed };
        let end = start.saturating_add(length);
        match list.get(start as usize..end as usize).map(<[u32]>::to_vec) {
            Some(locations) => self.stack(&locations),
            None => {
                let len = list.len();
                let rule = || format!("{length} locations from {start} on, there are {len}");
                self.note("locations_start_index", rule);
                Ok(0)
            }
        }
    }

    /// Returns the stack of these locations; equal stacks are stored once.
    fn stack(&mut self, locations: &[u32]) -> Result<u32> {
        let depth = self.limits.max_stack_depth;
        if locations.len() > depth {
            return Err(Fault::limit("locations of one stack", depth as u64));
        }
        let mut stack = Vec::new();
        put_list(&mut stack, 0x0a, locations);
        self.add(Table::Stack, &stack)
    }

    /// Writes the samples with their values of the `k`th type.
    pub(super) fn samples(
        &mut self,
        rows: &SampleRows,
        [k, types]: [usize; 2],
        counts: bool,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        for (i, row) in rows.rows.iter().enumerate() {
            let (fields, values) = (&rows.fields[row.fields.clone()], &rows.values[row.values.clone()]);
            let times = &rows.times[row.times.clone()];
            let values = match (values, times.len()) {
                ([], _) if types == 1 => Vec::new(),
                (_, times) if types == 1 && times > 1 && values.len() == times => {
                    self.packed(values.iter().copied())?
                }
                _ if values.len() != types => {
                    let rule = || format!("there are {} values for {types} types", values.len());
                    self.within("sample", i, |this| {
                        this.note("value", rule);
                        Ok(Vec::new())
                    })?
                }
                (_, 0) => self.packed([values[k]].into_iter())?,
                (_, times) if values[k] == times as u64 || (counts && values[k] == 1) => Vec::new(),
                (_, times) => self.packed(divided(values[k] as i64, times))?,
            };
            // The charge includes keys and lengths.
            self.budget.charge::<u8>(fields.len() + 8 * times.len() + 20)?;
            put_nested(out, 0x12, |out| {
                out.extend_from_slice(fields);
                bytes(out, 0x22, &values);
                if !times.is_empty() {
                    head(out, 0x2a, 8 * times.len());
                }
                times.iter().for_each(|time| out.extend(time.saturating_mul(rows.unit).to_le_bytes()));
                Ok(())
            })?;
        }
        Ok(())
    }

    fn packed(&mut self, values: impl Iterator<Item = u64> + Clone) -> Result<Vec<u8>> {
        self.budget.charge::<u8>(values.clone().map(varint::len).sum())?;
        let mut packed = Vec::new();
        values.for_each(|value| varint::put(&mut packed, value));
        Ok(packed)
    }
}

fn append<T: Copy>(list: &mut Vec<T>, more: &[T]) -> Range<usize> {
    let start = list.len();
    list.extend_from_slice(more);
    start..list.len()
}

/// Divides a total into parts that differ by at most 1.
fn divided(total: i64, parts: usize) -> impl Iterator<Item = u64> + Clone {
    let count = parts as i64;
    let (each, left) = (total.div_euclid(count), total.rem_euclid(count));
    (0..count).map(move |part| (each + i64::from(part < left)) as u64)
}
