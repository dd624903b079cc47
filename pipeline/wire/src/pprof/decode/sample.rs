//! Decodes samples, where most of the time is spent.

use std::hash::BuildHasher as _;

use profbridge_model::{ByteRange, SampleIds, StackId, varint};

use super::Decoder;
use crate::otlp::decode::run::Run;
use crate::otlp::error::{Fault, Result};
use crate::otlp::reader::ProtobufReader;

impl<'a> Decoder<'a> {
    /// Decodes a sample with one value for each of `types`, and appends its row of the first type.
    pub(super) fn sample(&mut self, mut reader: ProtobufReader<'a>, types: usize) -> Result<()> {
        let mut locations = Run::default();
        let mut found = 0;
        while let Some(key) = reader.key()? {
            match key {
                0x0a => locations.add(reader.span()?, self.profile, &mut self.scratch[0])?,
                0x12 => {
                    let mut packed = reader.message()?;
                    while !packed.rest().is_empty() {
                        self.value(packed.varint_bytes()?, &mut found, types);
                    }
                }
                0x1a => self.label(reader.message()?)?,
                0x08 => locations.add(reader.varint_bytes()?, self.profile, &mut self.scratch[0])?,
                0x10 => self.value(reader.varint_bytes()?, &mut found, types),
                _ => reader.other(key, 3)?,
            }
        }
        if found != types {
            return Err(Fault::value("value", format!("there are {found} values for {types} types")));
        }
        let stack = self.stack(locations)?;
        let (attributes, link) = self.labelled()?;
        self.samples.push(SampleIds::new(stack, attributes, link), ByteRange::default(), ByteRange::default());
        Ok(())
    }

    /// The error for the first missing location of a sample.
    pub(super) fn missing_location(&self, samples: &[ByteRange]) -> Result<()> {
        for (number, &sample) in samples.iter().enumerate() {
            let (mut reader, mut depth) = (ProtobufReader::at(self.profile, sample), 0usize);
            let mut check = |reader: &mut ProtobufReader<'a>| {
                let found = reader.varint().and_then(|id| self.locations.require(id, ""));
                let found = found.map_err(|fault| fault.within(format_args!("sample[{number}].location_id[{depth}]")));
                depth += 1;
                found.map(drop)
            };
            while let Some(key) = reader.key()? {
                match key {
                    0x08 => check(&mut reader)?,
                    0x0a => {
                        let mut packed = reader.message()?;
                        while !packed.rest().is_empty() {
                            check(&mut packed)?;
                        }
                    }
                    _ => reader.skip(key)?,
                }
            }
        }
        Ok(())
    }

    #[inline]
    fn value(&mut self, place: ByteRange, found: &mut usize, types: usize) {
        // There is only room for one value per type. A sample with more values is rejected.
        if *found < types {
            self.values.push(place);
        }
        *found += 1;
    }

    /// Returns the stack of a list of locations; equal stacks are stored once.
    fn stack(&mut self, list: Run) -> Result<Option<StackId>> {
        let [pieces, moved] = &mut self.scratch;
        let packed = list.bytes(self.profile, pieces);
        if packed.is_empty() {
            return Ok(None);
        }
        let in_order = self.locations.in_order();
        moved.clear();
        // If ids equal positions, the dictionary later checks all of them. Only the id 0 has another meaning there
        // ("not set"), but a list without zero bytes has no 0. `missing_location` then names the invalid id.
        let is_plain = in_order && packed.len() <= self.limits.max_stack_depth && !packed.contains(&0);
        let (mut rest, mut depth) = (if is_plain { &[][..] } else { packed }, 0usize);
        while !rest.is_empty() {
            let place = || format!("location_id[{depth}]");
            let Some(id) = varint::take(&mut rest) else {
                return Err(Fault::value(place(), "an integer is cut off or too long"));
            };
            let position = self.locations.require(id, "").map_err(|fault| fault.within(place()))?;
            if !in_order {
                varint::put(moved, position.into());
            }
            depth += 1;
        }
        if depth > self.limits.max_stack_depth {
            return Err(Fault::limit("locations of one sample", self.limits.max_stack_depth as u64));
        }
        let packed = if in_order { packed } else { &moved[..] };
        let hash = self.state.hash_one(packed);
        let (tables, spill, profile) = (&mut self.tables, &mut self.spill, self.profile);
        let of = |stacks: &[ByteRange], spill: &crate::otlp::decode::run::Spill, stack: u32| {
            spill.bytes(profile, stacks[stack as usize]) == packed
        };
        if let Some(&known) = self.stacks.find(hash, |&stack| of(&tables.stacks, spill, stack)) {
            pieces.clear();
            return Ok(StackId::new(known));
        }
        let place = if in_order { list.finish(pieces, spill) } else { spill.put(packed) };
        pieces.clear();
        // Room for one stack per sample is reserved, also in the hash table.
        let stack = tables.stacks.len() as u32;
        tables.stacks.push(place);
        let state = &self.state;
        self.stacks
            .insert_unique(hash, stack, |&stack| state.hash_one(spill.bytes(profile, tables.stacks[stack as usize])));
        Ok(StackId::new(stack))
    }
}
