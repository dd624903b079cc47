//! The tables of a rewritten request, and the conversion of their elements.

use std::collections::HashMap;
use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};
use profbridge_model::varint;

use super::super::super::encode::put::{bytes, encoded, int};
use super::super::super::error::{Fault, Result};
use super::super::super::limits::Budget;
use super::super::super::reader::ProtobufReader;
use super::super::profile::COMMENT;
use super::fields::{FieldConversion, KnownFields, LABEL, LINK, Table, UNIT, each, each_at};
use super::{Draft, Rewriter, put_list};

/// The attributes for the two kinds of `Mapping.build_id` in 1.3: the linker's id, and an id by the producer's own
/// algorithm.
const BUILD_IDS: [&str; 2] = ["process.executable.build_id.gnu", "process.executable.build_id.profiling"];

/// The distinct elements of a table, encoded, after the zero element.
#[derive(Debug)]
pub(super) struct Elements {
    pub(super) bytes: Vec<u8>,
    /// End offset of each element in `bytes`.
    pub(super) ends: Vec<usize>,
    index: HashTable<u32>,
    state: DefaultHashBuilder,
}

impl Default for Elements {
    fn default() -> Self {
        Self { bytes: Vec::new(), ends: vec![0], index: HashTable::new(), state: DefaultHashBuilder::default() }
    }
}

impl Elements {
    pub(super) fn get(&self, id: u32) -> &[u8] {
        let id = id as usize;
        &self.bytes[self.ends[id.saturating_sub(1)]..self.ends[id]]
    }

    /// Returns the id of an element, adding it if necessary; 0 if the element is empty.
    fn add(&mut self, element: &[u8], held: &mut Budget) -> Result<u32> {
        if element.is_empty() {
            return Ok(0);
        }
        let hash = self.state.hash_one(element);
        if let Some(&id) = self.index.find(hash, |&id| self.get(id) == element) {
            return Ok(id);
        }
        held.charge::<u8>(element.len())?;
        // Charges the end offset and the entry of the hash table.
        held.charge::<[usize; 2]>(1)?;
        // Each element takes at least a byte of the budget, which is far below 2^32, so the id fits.
        let id = self.ends.len() as u32;
        self.bytes.extend_from_slice(element);
        self.ends.push(self.bytes.len());
        let Self { bytes, ends, index, state } = self;
        index.insert_unique(hash, id, |&id| state.hash_one(&bytes[ends[id as usize - 1]..ends[id as usize]]));
        Ok(id)
    }
}

/// The tables to which the indices of a message refer.
#[derive(Debug, Default)]
pub(super) struct TableIds {
    /// For each table, the ids of its elements in the rewritten table.
    pub(super) ids: [Vec<u32>; Table::ALL.len()],
    /// `attribute_units`: the unit of each key.
    units: HashMap<u32, u32>,
    /// Whether some attribute describes a process.
    pub(super) of_process: bool,
    /// The file of the first mapping.
    pub(super) main_file: u32,
}

impl<'a> Rewriter<'a> {
    /// Reads the tables in these messages. A table is read after the tables that it refers to.
    pub(super) fn read_tables(&mut self, pieces: &[ProtobufReader<'a>]) -> Result<()> {
        self.parts = TableIds::default();
        use Table::{Attribute, Function, Link, Location, Mapping, String};
        self.elements(pieces, FieldConversion::Element(String))?;
        self.elements(pieces, FieldConversion::AttributeUnit)?;
        for table in [Attribute, Link, Function, Mapping, Location] {
            self.elements(pieces, FieldConversion::Element(table))?;
        }
        Ok(())
    }

    fn elements(&mut self, pieces: &[ProtobufReader<'a>], part: FieldConversion) -> Result<()> {
        self.each_part(pieces, self.release.tables, part, |this, i, reader| {
            this.held.charge::<u32>(1)?;
            let FieldConversion::Element(table) = part else { return this.unit(reader) };
            let id = match table {
                Table::String => this.add(table, reader.rest())?,
                Table::Attribute => this.attribute_in_place(reader)?,
                Table::Mapping => this.element(table, reader, this.release.mapping, 0x2a)?,
                Table::Location => this.element(table, reader, this.release.location, 0x22)?,
                Table::Function => this.element(table, reader, this.release.function, 0)?,
                Table::Link | Table::Stack => this.element(table, reader, LINK, 0)?,
            };
            if table == Table::String && i == 0 && id != 0 {
                this.note("", || "is not the empty string, which element 0 has to be".to_owned());
            }
            this.parts.ids[table as usize].push(id);
            Ok(())
        })
    }

    /// Reads an element of a table. `attributes` is the key of its attributes field.
    fn element(
        &mut self,
        table: Table,
        reader: ProtobufReader<'a>,
        fields: KnownFields,
        attributes: u8,
    ) -> Result<u32> {
        let mut draft = Draft::default();
        self.read(reader, fields, &mut draft)?;
        match table {
            Table::Mapping => {
                if self.parts.ids[table as usize].is_empty() {
                    self.note_main_file(reader)?;
                }
                self.build_id(&mut draft)?;
            }
            Table::Location => self.frame_type(&mut draft)?,
            _ => {}
        }
        put_list(&mut draft.fields, attributes, &draft.attributes);
        self.add(table, &draft.fields)
    }

    fn unit(&mut self, reader: ProtobufReader<'a>) -> Result<()> {
        let mut draft = Draft::default();
        self.read(reader, UNIT, &mut draft)?;
        let [key, unit, ..] = draft.numbers;
        let unit = self.index(unit, Table::String, "unit_strindex");
        let key = self.index(key, Table::String, "attribute_key_strindex");
        self.held.charge::<[u64; 3]>(1)?;
        self.parts.units.insert(key, unit);
        Ok(())
    }

    /// The new id of the element at an index. 0 if the element is empty, or if the index is out of range, which is
    /// recorded as an error.
    pub(super) fn index(&mut self, index: u64, table: Table, name: &str) -> u32 {
        let ids = &self.parts.ids[table as usize];
        match usize::try_from(index).ok().and_then(|index| ids.get(index)) {
            Some(&id) => id,
            // These fields have no presence, so 0 may mean "not set".
            None if index == 0 && matches!(table, Table::String | Table::Function) => 0,
            None => {
                let len = ids.len();
                self.note(name, || {
                    format!("index {} is out of range, {} has {len} elements", index as i64, table.name())
                });
                0
            }
        }
    }

    pub(super) fn add(&mut self, table: Table, element: &[u8]) -> Result<u32> {
        self.tables[table as usize].add(element, &mut self.held)
    }

    fn string(&mut self, text: &str) -> Result<u32> {
        self.add(Table::String, text.as_bytes())
    }

    pub(super) fn text(&self, string: u32) -> &[u8] {
        self.tables[Table::String as usize].get(string)
    }

    /// Adds an attribute that the request does not have.
    pub(super) fn attribute(&mut self, key: &str, value: &[u8]) -> Result<u32> {
        let key = self.string(key)?;
        self.new_attribute(key, value, 0)
    }

    fn new_attribute(&mut self, key: u32, value: &[u8], unit: u32) -> Result<u32> {
        let mut element = Vec::with_capacity(value.len() + 16);
        int(&mut element, 0x08, key.into());
        bytes(&mut element, 0x12, value);
        int(&mut element, 0x18, unit.into());
        let id = self.add(Table::Attribute, &element)?;
        if id as usize == self.keys.len() {
            self.held.charge::<u32>(1)?;
            self.keys.push(key);
        }
        Ok(id)
    }

    /// Reads a `KeyValue`, and adds the unit of its key from `attribute_units`.
    pub(super) fn attribute_in_place(&mut self, reader: ProtobufReader<'a>) -> Result<u32> {
        self.checker.key_value(reader, 0)?;
        self.checker.inline.clear();
        let (mut key, mut value): (&[u8], _) = (&[], Vec::new());
        each_at(reader, &[1], &mut |text| {
            key = text.rest();
            Ok(())
        })?;
        each_at(reader, &[2], &mut |part| {
            self.held.charge::<u8>(part.rest().len())?;
            value.extend_from_slice(part.rest());
            Ok(())
        })?;
        self.parts.of_process |= key.starts_with(b"process.");
        let key = self.add(Table::String, key)?;
        let unit = self.parts.units.get(&key).copied().unwrap_or(0);
        self.new_attribute(key, &value, unit)
    }

    pub(super) fn label(&mut self, reader: ProtobufReader<'a>) -> Result<u32> {
        let mut draft = Draft::default();
        self.read(reader, LABEL, &mut draft)?;
        let [key, text, number, unit] = draft.numbers;
        let mut string = |index, name| self.index(index, Table::String, name);
        let (key, string, unit) = (string(key, "key"), string(text, "str"), string(unit, "num_unit"));
        let value = if text != 0 { reference(string) } else { integer(0x18, number) };
        self.new_attribute(key, &value, unit)
    }

    /// Converts a mapping's build id to an attribute, unless the mapping already has that attribute.
    fn build_id(&mut self, mapping: &mut Draft) -> Result<()> {
        let [build_id, kind, ..] = mapping.numbers;
        let build_id = self.index(build_id, Table::String, "build_id");
        if build_id == 0 {
            return Ok(());
        }
        let Some(key) = BUILD_IDS.get(kind as usize) else {
            return Err(Fault::value("build_id_kind", format!("{kind} is no kind of a build id")));
        };
        let id = self.attribute(key, &reference(build_id))?;
        let key = self.keys[id as usize];
        if !mapping.attributes.iter().any(|&other| self.keys[other as usize] == key) {
            mapping.attributes.push(id);
        }
        Ok(())
    }

    /// Converts a location's type to an attribute. OTEP 0239 names the virtual machine ("hotspot"), the semantic
    /// conventions name the language ("jvm").
    fn frame_type(&mut self, location: &mut Draft) -> Result<()> {
        let frame_type = self.index(location.numbers[0], Table::String, "type_index");
        let frame_type = if self.text(frame_type) == b"hotspot" { self.string("jvm")? } else { frame_type };
        if frame_type != 0 {
            location.attributes.push(self.attribute("profile.frame.type", &reference(frame_type))?);
        }
        Ok(())
    }

    /// The attribute with the comments of a profile, if there are any.
    pub(super) fn comments(&mut self, comments: &[u64]) -> Result<Option<u32>> {
        if comments.is_empty() {
            return Ok(None);
        }
        let mut list = Vec::new();
        for &comment in comments {
            let comment = reference(self.index(comment, Table::String, "comment_strindices"));
            self.held.charge::<u8>(comment.len() + 2)?;
            encoded(&mut list, 0x0a, &comment);
        }
        let mut value = Vec::new();
        encoded(&mut value, 0x2a, &list);
        self.attribute(COMMENT, &value).map(Some)
    }

    /// Records the file of the profiled program: `mapping[0]` of 1.3 "will be the main binary" (`pprofextended.proto`).
    fn note_main_file(&mut self, mapping: ProtobufReader<'a>) -> Result<()> {
        let mut file = 0;
        each(mapping, self.release.mapping, |name, _, wire| {
            if name == "filename_strindex" {
                file = self.index(wire.number()?, Table::String, name);
            }
            Ok(())
        })?;
        // Names such as `[vdso]` or `//anon` are not files.
        let text = self.text(file);
        self.parts.main_file = if text.starts_with(b"[") || text.starts_with(b"//") { 0 } else { file };
        Ok(())
    }
}

/// An `AnyValue` that refers to a string of the table.
pub(super) fn reference(string: u32) -> Vec<u8> {
    integer(0x40, string.into())
}

fn integer(key: u8, value: u64) -> Vec<u8> {
    let mut field = vec![key];
    varint::put(&mut field, value);
    field
}
