//! Checks that every index of the tables refers to an existing element. Each index is checked once.

use std::fmt;

use super::{Attribute, Tables, Value};
use crate::buffer::{Buffer, ByteRange};
use crate::id::{AttributeId, AttributeSetId, FunctionId, MapIds, MappingId, StringId};
use crate::varint;

/// A rule that a dictionary or a profile broke, and the place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid {
    /// The place in the terms of the protocol, such as `location_table[5].mapping_index`.
    pub place: String,
    /// The rule, and the value that broke it.
    pub rule: String,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.rule)
    }
}

impl std::error::Error for Invalid {}

/// Checks an index against the length of its table. The error names the place of the index.
#[inline(always)]
pub(crate) fn check_index(index: u32, table: &str, len: usize, place: impl FnOnce() -> String) -> Result<(), Invalid> {
    if (index as usize) < len || index == 0 {
        return Ok(());
    }
    Err(out_of_range(index, table, len, place()))
}

#[cold]
fn out_of_range(index: u32, table: &str, len: usize, place: String) -> Invalid {
    // On the wire indices are signed.
    Invalid { place, rule: format!("index {} is out of range, {table} has {len} elements", index as i32) }
}

/// Checks ids against their tables. `place` describes the element that contains them.
pub(crate) struct IdCheck<'a> {
    pub(crate) tables: &'a Tables,
    pub(crate) place: &'a dyn Fn() -> String,
}

impl IdCheck<'_> {
    #[inline(always)]
    fn check(&self, index: u32, table: &str, len: usize, field: &str) -> Result<(), Invalid> {
        if (index as usize) < len || index == 0 { Ok(()) } else { Err(self.refused(index, table, len, field)) }
    }

    #[cold]
    fn refused(&self, index: u32, table: &str, len: usize, field: &str) -> Invalid {
        out_of_range(index, table, len, format!("{}.{field}", (self.place)()))
    }
}

impl MapIds for IdCheck<'_> {
    type Error = Invalid;

    #[inline(always)]
    fn string(&mut self, id: Option<StringId>, field: &str) -> Result<Option<StringId>, Invalid> {
        self.check(StringId::wire(id), "string_table", self.tables.strings.len(), field).map(|()| id)
    }

    #[inline(always)]
    fn attribute_set(&mut self, id: Option<AttributeSetId>) -> Result<Option<AttributeSetId>, Invalid> {
        let (index, sets) = (AttributeSetId::wire(id), self.tables.attribute_sets.len());
        self.check(index, "the attribute sets", sets, "attribute_indices").map(|()| id)
    }

    #[inline(always)]
    fn mapping(&mut self, id: Option<MappingId>) -> Result<Option<MappingId>, Invalid> {
        self.check(MappingId::wire(id), "mapping_table", self.tables.mappings.len(), "mapping_index").map(|()| id)
    }

    #[inline(always)]
    fn function(&mut self, id: Option<FunctionId>) -> Result<Option<FunctionId>, Invalid> {
        self.check(FunctionId::wire(id), "function_table", self.tables.functions.len(), "function_index").map(|()| id)
    }
}

/// Checks tables, each index once.
pub(super) fn check(tables: &Tables) -> Result<(), Invalid> {
    let present = |table: &str, len: usize| {
        if len > 0 {
            return Ok(());
        }
        Err(Invalid { place: table.to_owned(), rule: "element 0, the zero value, is missing".to_owned() })
    };
    if u32::try_from(tables.buffer.len()).is_err() {
        return Err(Invalid { place: "request".to_owned(), rule: "is not shorter than 4 GiB".to_owned() });
    }
    present("string_table", tables.strings.len())?;
    present("mapping_table", tables.mappings.len())?;
    present("function_table", tables.functions.len())?;
    present("location_table", tables.locations.len())?;
    present("link_table", tables.links.len())?;
    present("attribute_table", tables.attributes.len())?;
    present("attribute sets", tables.attribute_sets.len())?;
    present("stack_table", tables.stacks.len())?;

    for (i, &span) in tables.strings.iter().enumerate() {
        let bytes = tables.buffer.get(span).ok_or_else(|| outside(format!("string_table[{i}]")))?;
        if !bytes.is_ascii() && std::str::from_utf8(bytes).is_err() {
            return Err(Invalid { place: format!("string_table[{i}]"), rule: "is not valid UTF-8".to_owned() });
        }
    }
    for (i, mapping) in tables.mappings.iter().enumerate() {
        mapping.map_ids(&mut IdCheck { tables, place: &|| format!("mapping_table[{i}]") })?;
    }
    for (i, function) in tables.functions.iter().enumerate() {
        function.map_ids(&mut IdCheck { tables, place: &|| format!("function_table[{i}]") })?;
    }
    for (i, location) in tables.locations.iter().enumerate() {
        location.map_ids(&mut IdCheck { tables, place: &|| format!("location_table[{i}]") })?;
        let end = u64::from(location.lines_start) + u64::from(location.lines_len);
        if end > tables.lines.len() as u64 {
            return Err(outside(format!("location_table[{i}].lines")));
        }
        for (j, line) in tables.lines(location).iter().enumerate() {
            line.map_ids(&mut IdCheck { tables, place: &|| format!("location_table[{i}].lines[{j}]") })?;
        }
    }
    for (i, attribute) in tables.attributes.iter().enumerate() {
        check_attribute(attribute, &tables.strings, &tables.buffer, &|| format!("attribute_table[{i}]"))?;
    }
    for &item in &tables.attribute_set_items {
        check_index(AttributeId::wire(item), "attribute_table", tables.attributes.len(), || {
            "attribute_indices".to_owned()
        })?;
    }
    for (i, &span) in tables.attribute_sets.iter().enumerate() {
        if u64::from(span.start) + u64::from(span.len) > tables.attribute_set_items.len() as u64 {
            return Err(outside(format!("attribute set {i}")));
        }
    }
    for (i, &span) in tables.stacks.iter().enumerate() {
        check_stack(tables.buffer.get(span), i, tables.locations.len())?;
    }
    Ok(())
}

fn outside(place: String) -> Invalid {
    Invalid { place, rule: "lies outside of the data".to_owned() }
}

fn check_stack(packed: Option<&[u8]>, stack: usize, locations: usize) -> Result<(), Invalid> {
    let place = |position: usize| format!("stack_table[{stack}].location_indices[{position}]");
    let mut packed = packed.ok_or_else(|| outside(format!("stack_table[{stack}]")))?;
    let mut position = 0;
    while !packed.is_empty() {
        let Some(index) = varint::take(&mut packed) else {
            return Err(Invalid { place: place(position), rule: "is cut off or longer than ten bytes".to_owned() });
        };
        if index >= locations as u64 {
            let rule = format!("index {} is out of range, location_table has {locations} elements", index as i64);
            return Err(Invalid { place: place(position), rule });
        }
        position += 1;
    }
    Ok(())
}

/// Checks an attribute's strings and bytes, nested ones included. Decoders bound the depth.
pub(crate) fn check_attribute(
    attribute: &Attribute,
    strings: &[ByteRange],
    buffer: &Buffer,
    place: &dyn Fn() -> String,
) -> Result<(), Invalid> {
    let string = |id: Option<StringId>, field: &str| {
        check_index(StringId::wire(id), "string_table", strings.len(), || format!("{}.{field}", place()))
    };
    let Attribute { key, value, unit } = attribute;
    string(*key, "key_strindex")?;
    string(*unit, "unit_strindex")?;
    check_value(value, strings, buffer, place)
}

fn check_value(
    value: &Value,
    strings: &[ByteRange],
    buffer: &Buffer,
    place: &dyn Fn() -> String,
) -> Result<(), Invalid> {
    match value {
        Value::Empty | Value::Bool(_) | Value::Int(_) | Value::Double(_) => Ok(()),
        Value::String(id) => check_index(StringId::wire(*id), "string_table", strings.len(), || {
            format!("{}.value.string_value_strindex", place())
        }),
        Value::Bytes(span) => buffer.get(*span).map(|_| ()).ok_or_else(|| outside(format!("{}.value", place()))),
        Value::Array(values) => values.iter().try_for_each(|value| check_value(value, strings, buffer, place)),
        Value::KeyValueList(list) => list.iter().try_for_each(|item| check_attribute(item, strings, buffer, place)),
    }
}
