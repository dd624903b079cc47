//! Decodes labels, which become attributes of a sample and its span.

use profbridge_model::{AttributeSetId, Link, LinkId, Value};

use super::super::span::{LabelValue, Role, SpanLabels, role};
use super::Decoder;
use crate::otlp::error::Result;
use crate::otlp::reader::ProtobufReader;

/// A label: key, text, number and unit as encoded, and its meaning for the span link.
#[derive(Debug)]
pub(super) struct Label {
    fields: [u64; 4],
    role: Option<Role>,
}

impl<'a> Decoder<'a> {
    /// Decodes a label of the current sample.
    pub(super) fn label(&mut self, mut reader: ProtobufReader<'a>) -> Result<()> {
        let mut fields = [0; 4];
        while let Some(field) = reader.key()? {
            match field {
                0x08 | 0x10 | 0x18 | 0x20 => fields[(field >> 3) as usize - 1] = reader.varint()?,
                _ => reader.other(field, 4)?,
            }
        }
        let [key, text, number, unit] = fields;
        let position = self.sample_labels.len();
        let string = |index, field| {
            let found = self.string(index, field);
            found.map_err(|fault| fault.within(format_args!("label[{position}]")))
        };
        let (key, text, unit) = (string(key, "key")?, string(text, "str")?, string(unit, "num_unit")?);
        if text.is_some() && number != 0 {
            self.left_out_numbers += 1;
            fields[2] = 0;
        }
        let held =
            if text.is_some() { LabelValue::Text(self.bytes_of(text)) } else { LabelValue::Number(number as i64) };
        let mut role = role(self.bytes_of(key), held);
        // The encoder writes these labels without a unit.
        if let Some(Role::Trace(_, exact) | Role::Span(_, exact)) = &mut role {
            *exact &= self.bytes_of(unit).is_empty();
        }
        if self.sample_labels.len() == self.sample_labels.capacity() {
            // The capacity is reused for each sample.
            self.budget.charge::<Label>(self.sample_labels.len().max(4))?;
        }
        self.sample_labels.push(Label { fields, role });
        Ok(())
    }

    /// Converts the labels of the current sample.
    pub(super) fn labelled(&mut self) -> Result<(Option<AttributeSetId>, Option<LinkId>)> {
        if self.sample_labels.is_empty() {
            return Ok((None, None));
        }
        let mut named = SpanLabels::default();
        self.sample_labels.iter().filter_map(|label| label.role).for_each(|role| named.add(role));
        let plain = named.is_plain();
        let labels = std::mem::take(&mut self.sample_labels);
        let mut ids = std::mem::take(&mut self.sample_attributes);
        ids.clear();
        for Label { fields, role } in &labels {
            if plain && matches!(role, Some(Role::Trace(..) | Role::Span(..))) {
                continue;
            }
            let id = match self.labels.get(fields) {
                Some(&known) => known,
                None => {
                    let [key, text, number, unit] = *fields;
                    let (key, text) = (self.string(key, "key")?, self.string(text, "str")?);
                    let unit = self.string(unit, "num_unit")?;
                    let value = if text.is_some() { Value::String(text) } else { Value::Int(number as i64) };
                    let id = self.attribute(key, value, unit)?;
                    // The charge includes the entry in the hash table.
                    self.budget.charge::<[u64; 6]>(1)?;
                    self.labels.insert(*fields, id);
                    id
                }
            };
            ids.push(id);
        }
        let attributes = self.set(&ids)?;
        (self.sample_labels, self.sample_attributes) = (labels, ids);
        self.sample_labels.clear();
        let link = named.link().map(|link| self.link(link)).transpose()?.flatten();
        Ok((attributes, link))
    }

    fn link(&mut self, link: Link) -> Result<Option<LinkId>> {
        if let Some(&known) = self.links.get(&link) {
            return Ok(known);
        }
        // The charge includes the entry in the hash table.
        self.budget.charge::<[Link; 3]>(1)?;
        let id = LinkId::new(self.tables.links.len() as u32);
        self.tables.links.push(link);
        self.links.insert(link, id);
        Ok(id)
    }
}
