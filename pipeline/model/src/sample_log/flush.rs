//! Builds one batch of all held samples, with only the arena elements that they refer to.
//!
//! The log is read twice: the first pass finds the records of each sample and its length, the second writes each
//! timestamp and value to its final place. Both take linear time.

use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher;

use super::log::{RecordHead, RecordReader};
use super::{LoggedResource, LoggedScope, SampleLayout, SampleLog, Series};
use crate::arena::{Arena, Carry, Full, TableSource, TableStore, Transfer};
use crate::buffer::ByteRange;
use crate::builder::Assembly;
use crate::id::AttributeSetId;
use crate::profiles::{Profile, Profiles, Resource, ResourceProfiles, Scope, ScopeProfiles};
use crate::varint;

/// A sample being assembled.
#[derive(Debug)]
struct MergedSample {
    head: RecordHead,
    times: u32,
    values: u32,
}

/// The write positions of a row for timestamps and values.
#[derive(Debug, Clone, Copy, Default)]
struct Cursor {
    times: usize,
    values: usize,
}

impl SampleLog {
    /// Builds a batch of all held samples. Samples of equal identity are merged, in order of first appearance.
    ///
    /// # Errors
    ///
    /// The batch would be larger than 4 GiB.
    pub fn flush(&self, arena: &Arena, transfer: &mut Transfer) -> Result<Profiles, Full> {
        let (rows, row_of_record) = self.rows();
        let series = self.order();
        let order = by_series(&rows, &series);
        let mut store = TableStore::default();
        let (spans, mut cursors) = places(&rows, &order, &mut store)?;
        let mut reader = self.log.reader();
        for &row in &row_of_record {
            write(&mut reader, &mut store.data, &mut cursors[row as usize]);
        }

        transfer.begin();
        let mut out =
            BatchWriter { source: arena.source(), transfer, store, assembly: Assembly::with_samples(rows.len()) };
        let mut next = order.iter().zip(&spans).peekable();
        let mut parents = None;
        for &at in &series {
            let key = &self.series.values()[at as usize];
            if parents.map(|(resource, _)| resource) != Some(key.resource) {
                out.resource(self, key.resource)?;
            }
            if parents != Some((key.resource, key.scope)) {
                out.scope(self, key.scope)?;
            }
            parents = Some((key.resource, key.scope));
            out.profile(self, at, key)?;
            while let Some((&row, &(timestamps, values))) =
                next.next_if(|&(&row, _)| rows[row as usize].head.series == at)
            {
                out.row(&rows[row as usize].head, timestamps, values)?;
            }
        }
        // All elements come from the arena and were checked on arrival.
        Ok(out.assembly.finish_checked(out.store.into_tables()))
    }

    /// Returns the merged samples, and for each record the number of its sample.
    fn rows(&self) -> (Vec<MergedSample>, Vec<u32>) {
        let state = DefaultHashBuilder::default();
        let hash = |head: &RecordHead| state.hash_one(head.packed());
        // A window usually has a few records per stack.
        let mut index: HashTable<u32> = HashTable::with_capacity(self.log.len() / 4);
        let mut reader = self.log.reader();
        let mut rows: Vec<MergedSample> = Vec::new();
        let mut row_of_record = Vec::with_capacity(self.log.len());
        while let Some(record) = reader.head() {
            reader.skip_timestamps(&record);
            let (times, values) = (record.count as u32, reader.values(&record).len() as u32);
            let hashed = hash(&record.head);
            // A sample without timestamps is one observation and is never merged.
            let known = if times == 0 {
                None
            } else {
                index.find(hashed, |&row| rows[row as usize].head == record.head).copied()
            };
            let row = known.unwrap_or_else(|| {
                let row = rows.len() as u32;
                rows.push(MergedSample { head: record.head, times: 0, values: 0 });
                if times > 0 {
                    index.insert_unique(hashed, row, |&row| hash(&rows[row as usize].head));
                }
                row
            });
            rows[row as usize].times = rows[row as usize].times.saturating_add(times);
            rows[row as usize].values = rows[row as usize].values.saturating_add(values);
            row_of_record.push(row);
        }
        (rows, row_of_record)
    }

    /// Returns the series, sorted so that those of a resource and scope are adjacent.
    fn order(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.series.values().len() as u32).collect();
        order.sort_by_key(|&at| {
            let series = &self.series.values()[at as usize];
            (series.resource, series.scope)
        });
        order
    }
}

/// Returns the rows in the order of their series, and in each series in order of first appearance.
fn by_series(rows: &[MergedSample], series: &[u32]) -> Vec<u32> {
    let mut starts = vec![0usize; series.len()];
    rows.iter().for_each(|row| starts[row.head.series as usize] += 1);
    let mut start = 0;
    for &at in series {
        start += std::mem::replace(&mut starts[at as usize], start);
    }
    let mut order = vec![0; rows.len()];
    for (at, row) in rows.iter().enumerate() {
        let place = &mut starts[row.head.series as usize];
        order[*place] = at as u32;
        *place += 1;
    }
    order
}

/// The timestamps and values of each row, and where to write them.
type RowRanges = (Vec<(ByteRange, ByteRange)>, Vec<Cursor>);

/// Reserves room for the timestamps and values of all rows.
fn places(rows: &[MergedSample], order: &[u32], store: &mut TableStore) -> Result<RowRanges, Full> {
    let total: u64 = rows.iter().map(|row| u64::from(row.times) * 8 + u64::from(row.values)).sum();
    store.put_zeros(total)?;
    let mut spans = Vec::with_capacity(rows.len());
    let mut cursors = vec![Cursor::default(); rows.len()];
    let mut start = 0;
    for &at in order {
        let row = &rows[at as usize];
        let timestamps = ByteRange { start, len: row.times * 8 };
        let values = ByteRange { start: start + timestamps.len, len: row.values };
        cursors[at as usize] = Cursor { times: timestamps.start as usize, values: values.start as usize };
        start = values.start + values.len;
        spans.push((timestamps, values));
    }
    Ok((spans, cursors))
}

/// Writes the next record of a log.
fn write(reader: &mut RecordReader<'_>, data: &mut [u8], cursor: &mut Cursor) {
    let Some(record) = reader.head() else { return };
    let (places, _) = data[cursor.times..][..8 * record.count].as_chunks_mut::<8>();
    reader.timestamps(places.iter_mut());
    cursor.times += 8 * record.count;
    let values = reader.values(&record);
    data[cursor.values..][..values.len()].copy_from_slice(values);
    cursor.values += values.len();
}

struct BatchWriter<'a> {
    source: TableSource<'a>,
    transfer: &'a mut Transfer,
    store: TableStore,
    assembly: Assembly,
}

impl BatchWriter<'_> {
    fn resource(&mut self, held: &SampleLog, at: u32) -> Result<(), Full> {
        let LoggedResource { attributes, dropped_attributes_count, schema_url, entity_refs } =
            held.resources.values()[at as usize];
        let attributes = self.attributes(attributes)?;
        let mut entities = self.source.bytes(entity_refs);
        let mut entity_refs = Vec::new();
        while let Some(len) = varint::take(&mut entities) {
            let Some((message, rest)) = entities.split_at_checked(len as usize) else { break };
            entity_refs.push(self.store.put(message)?);
            entities = rest;
        }
        let schema_url = self.transfer.string(&self.source, &mut self.store, schema_url)?;
        let resource = Resource { attributes, dropped_attributes_count, entity_refs };
        self.assembly.resource(ResourceProfiles { resource, schema_url, scopes: Vec::new() });
        Ok(())
    }

    fn scope(&mut self, held: &SampleLog, at: u32) -> Result<(), Full> {
        let LoggedScope { name, version, attributes, dropped_attributes_count, schema_url } =
            held.scopes.values()[at as usize];
        let attributes = self.attributes(attributes)?;
        let mut string = |id| self.transfer.string(&self.source, &mut self.store, id);
        let (name, version, schema_url) = (string(name)?, string(version)?, string(schema_url)?);
        let scope = Scope { name, version, attributes, dropped_attributes_count };
        self.assembly.scope(ScopeProfiles { scope, schema_url, profiles: Vec::new() });
        Ok(())
    }

    /// Attributes stored with their resource or scope instead of in the attribute table.
    fn attributes(&mut self, set: Option<AttributeSetId>) -> Result<Vec<crate::Attribute>, Full> {
        let source = self.source;
        let carry = |attribute| self.transfer.key_value(&source, &mut self.store, attribute);
        source.tables.attributes(set).map(carry).collect()
    }

    fn profile(&mut self, held: &SampleLog, at: u32, series: &Series) -> Result<(), Full> {
        let joined = held.joined[at as usize];
        let (time_unix_nano, duration_nano, profile_id) = match series.shape {
            SampleLayout::Values { time_unix_nano, duration_nano, profile_id } => {
                (time_unix_nano, duration_nano, profile_id)
            }
            // Capped, so that the duration stays positive when read as signed.
            _ => (joined.start, (joined.end - joined.start).min(i64::MAX as u64), joined.profile_id),
        };
        let mut carry = Carry { transfer: self.transfer, from: &self.source, to: &mut self.store };
        let profile = series.profile.map_ids(&mut carry)?;
        let profile = Profile { time_unix_nano, duration_nano, profile_id, ..profile };
        self.assembly.profile(profile);
        Ok(())
    }

    fn row(&mut self, head: &RecordHead, timestamps: ByteRange, values: ByteRange) -> Result<(), Full> {
        let ids = head.ids.transfer(self.transfer, &self.source, &mut self.store)?;
        self.assembly.row(ids, timestamps, values);
        Ok(())
    }
}
