//! The tables that the samples of a batch refer to: OTLP's `ProfilesDictionary` in columns.
//!
//! Same tables, same words, same indices as on the wire (opentelemetry-proto `profiles.proto`), so that what was
//! decoded can be encoded again with every index as it came. Element 0 of each table is its zero value.
//!
//! A [`Dictionary`] is made from [`Tables`] by checking every index in them once. After that an id is valid by its
//! type, and nobody checks again.

use std::fmt;

use crate::buffer::{Buffer, ByteRange};
use crate::id::{AttributeId, AttributeSetId, FunctionId, LinkId, LocationId, MappingId, StackId, StringId};
use crate::varint;

/// An element of `mapping_table`: a file mapped into a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Mapping {
    /// The address at which the mapping starts.
    pub memory_start: u64,
    /// The first address after the mapping.
    pub memory_limit: u64,
    /// The offset in the file that corresponds to the start, in bytes.
    pub file_offset: u64,
    /// The file's name.
    pub filename: Option<StringId>,
    /// Its attributes, such as `process.executable.build_id.gnu`.
    pub attributes: Option<AttributeSetId>,
}

impl Mapping {
    /// Whether an address lies in it.
    pub fn contains(&self, address: u64) -> bool {
        (self.memory_start..self.memory_limit).contains(&address)
    }

    /// How far its addresses were moved when the file was loaded, in bytes; 0 where they are those that the file was
    /// linked for.
    ///
    /// OTLP has both. The eBPF profiler sends virtual addresses of the ELF file, whatever the process has it mapped to
    /// (open-telemetry/opentelemetry-ebpf-profiler `processmanager/manager.go`). pprof has the addresses of the
    /// process's memory (google/pprof `proto/profile.proto`, `Mapping`): they are the file's own where it was linked
    /// for a fixed place (`ET_EXEC`), and moved where it may lie anywhere (`ET_DYN`). Which of them was meant is not
    /// said, but no file is linked for an address of 4 GiB or more (the medium code model ends at 2 GiB), and Linux
    /// maps what may lie anywhere above 4 GiB on every 64-bit machine (the lowest are those of 39-bit address spaces,
    /// at 0x2a_aaaa_a000).
    ///
    /// A file that may lie anywhere is linked from 0 on. So what lies at an offset of the file lies at that address,
    /// and the difference is how far it was moved. That is exact for GNU ld and for Go. LLD links each part one page
    /// further behind its place in the file than the part before, which nothing in a mapping tells: there it is exact
    /// for the file's first part, and one page too much for each part before this one.
    pub fn moved_by(&self) -> u64 {
        Some(self.memory_start.saturating_sub(self.file_offset)).filter(|&by| by >= MOVED).unwrap_or(0)
    }

    /// The 4 KiB page of an address in it, as an address that the file was linked for: another process has it
    /// elsewhere, and what is called by it shall be the same.
    ///
    /// Without the file nothing says where a function starts. By each address apart, a loop would be as many functions
    /// as it has instructions. A page holds about ten functions, and is small enough to be looked up
    /// (`objdump --start-address`).
    pub fn page_of(&self, address: u64) -> Option<u64> {
        self.contains(address).then(|| address.saturating_sub(self.moved_by()) & !(PAGE - 1))
    }

    /// The place in the file of an address in it, in bytes from the file's start. Exact whichever linker made the file.
    pub fn offset_of(&self, address: u64) -> Option<u64> {
        self.contains(address).then(|| address - self.memory_start)?.checked_add(self.file_offset)
    }
}

/// How much code shares a name where nobody knows where functions start, in bytes.
const PAGE: u64 = 4096;

/// From here on, mappings are of files that were moved.
const MOVED: u64 = 1 << 32;

/// An element of `function_table`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Function {
    /// The name, human-readable where possible.
    pub name: Option<StringId>,
    /// The name as the system knows it, for instance mangled.
    pub system_name: Option<StringId>,
    /// The source file.
    pub filename: Option<StringId>,
    /// The line on which the function starts, 0 where it is not known.
    pub start_line: i64,
}

/// An element of `Location.lines`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Line {
    /// The function.
    pub function: Option<FunctionId>,
    /// The line, 1-based, 0 where it is not known.
    pub line: i64,
    /// The column, 1-based, 0 where it is not known.
    pub column: i64,
}

/// An element of `location_table`: an instruction, or a place in an interpreted program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Location {
    /// The mapping the address lies in.
    pub mapping: Option<MappingId>,
    /// The address. For native frames of the eBPF profiler an address in the ELF file's address space.
    pub address: u64,
    /// The attributes, such as `profile.frame.type`.
    pub attributes: Option<AttributeSetId>,
    /// Where its lines start in [`Tables::lines`].
    pub lines_start: u32,
    /// How many lines it has. More than one says that functions were inlined: the first is the innermost callee.
    pub lines_len: u32,
}

/// An element of `link_table`: the span in which time was spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Link {
    /// The trace.
    pub trace_id: [u8; 16],
    /// The span.
    pub span_id: [u8; 8],
}

/// OTLP's `AnyValue`. Strings are elements of the string table whether they stood inline or as a reference.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Value {
    /// No value is set.
    #[default]
    Empty,
    /// A string; `None` is the empty string.
    String(Option<StringId>),
    /// A boolean.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Double(f64),
    /// Bytes, in the buffer.
    Bytes(ByteRange),
    /// An array.
    Array(Box<[Value]>),
    /// A list of keys and values.
    KeyValueList(Box<[Attribute]>),
}

/// An element of `attribute_table` (`KeyValueAndUnit`), or an attribute of a resource or scope (`KeyValue`).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Attribute {
    /// The key.
    pub key: Option<StringId>,
    /// The value.
    pub value: Value,
    /// The unit, in UCUM; never set on attributes of resources and scopes.
    pub unit: Option<StringId>,
}

/// The tables of a dictionary before they are checked.
///
/// Every table must hold its element 0. Offsets and spans refer to `buffer`.
#[derive(Debug, Clone, Default)]
pub struct Tables {
    /// The bytes that the spans refer to.
    pub buffer: Buffer,
    /// `string_table`, then the strings that stood inline: UTF-8 in the buffer.
    pub strings: Vec<ByteRange>,
    /// `mapping_table`.
    pub mappings: Vec<Mapping>,
    /// `function_table`.
    pub functions: Vec<Function>,
    /// `location_table`.
    pub locations: Vec<Location>,
    /// The lines of all locations, one after the other.
    pub lines: Vec<Line>,
    /// `link_table`.
    pub links: Vec<Link>,
    /// `attribute_table`.
    pub attributes: Vec<Attribute>,
    /// The distinct lists of attributes: places in `attribute_set_items`.
    pub attribute_sets: Vec<ByteRange>,
    /// The attributes of all lists, one after the other. `None` stands for index 0.
    pub attribute_set_items: Vec<Option<AttributeId>>,
    /// `stack_table`: each a packed run of location indices in the buffer, leaf first.
    pub stacks: Vec<ByteRange>,
    /// How many of `strings` came from `string_table`; the others stood inline.
    pub table_strings: u32,
    /// Whether attributes came as references to `string_table` (`key_strindex` of a `KeyValue`,
    /// `string_value_strindex`), which readers older than opentelemetry-proto 1.10 do not know.
    pub references: bool,
}

impl Tables {
    /// Tables that hold nothing but their zero elements.
    pub fn empty() -> Self {
        Self {
            strings: vec![ByteRange::default()],
            mappings: vec![Mapping::default()],
            functions: vec![Function::default()],
            locations: vec![Location::default()],
            links: vec![Link::default()],
            attributes: vec![Attribute::default()],
            attribute_sets: vec![ByteRange::default()],
            stacks: vec![ByteRange::default()],
            table_strings: 1,
            ..Self::default()
        }
    }

    /// Replaces what is not UTF-8 in strings by U+FFFD, and says in how many strings it did so. `grant` is asked first
    /// whether so many more bytes may be taken; `None` where not.
    pub fn replace_invalid_text(&mut self, grant: impl FnOnce(usize) -> bool) -> Option<u64> {
        let bytes = |span: &ByteRange| self.buffer.get(*span).unwrap_or_default();
        let invalid = |span: &ByteRange| std::str::from_utf8(bytes(span)).is_err();
        let broken: Vec<usize> = (0..self.strings.len()).filter(|&i| invalid(&self.strings[i])).collect();
        // A byte that is no text becomes the three of U+FFFD.
        let most = broken.iter().map(|&i| self.strings[i].len as usize).sum::<usize>().saturating_mul(3);
        if !grant(most) {
            return None;
        }
        let (mut text, mut start) = (Vec::new(), self.buffer.len());
        for &i in &broken {
            let replaced = String::from_utf8_lossy(bytes(&self.strings[i])).into_owned();
            text.extend_from_slice(replaced.as_bytes());
            // A buffer of more than 4 GiB is refused when the tables are checked.
            self.strings[i] = ByteRange { start: start as u32, len: replaced.len() as u32 };
            start += replaced.len();
        }
        self.buffer.append(&text);
        Some(broken.len() as u64)
    }
}

/// A rule that a dictionary or a profile broke, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid {
    /// The place, in the words of the protocol, such as `location_table[5].mapping_index`.
    pub place: String,
    /// The rule, and what broke it.
    pub rule: String,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.rule)
    }
}

impl std::error::Error for Invalid {}

/// Checks ids against the length of their table and names the place of the first that is out of range.
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

/// Tables whose every index is known to be valid. Immutable.
#[derive(Debug, Clone)]
pub struct Dictionary(Tables);

/// A stack: location ids from the leaf to the root; `None` is a location that is not set.
#[derive(Debug, Clone)]
pub struct Stack<'a>(varint::Packed<'a>);

impl Iterator for Stack<'_> {
    type Item = Option<LocationId>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|index| LocationId::new(index as u32))
    }
}

impl Default for Dictionary {
    fn default() -> Self {
        Self(Tables::empty())
    }
}

/// Checks tables, each index once.
fn check(tables: &Tables) -> Result<(), Invalid> {
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

    let string = |id: Option<StringId>, place: &dyn Fn() -> String| {
        check_index(StringId::wire(id), "string_table", tables.strings.len(), place)
    };
    let set = |id: Option<AttributeSetId>, place: &dyn Fn() -> String| {
        check_index(AttributeSetId::wire(id), "the attribute sets", tables.attribute_sets.len(), place)
    };
    for (i, &span) in tables.strings.iter().enumerate() {
        let bytes = tables.buffer.get(span).ok_or_else(|| outside(format!("string_table[{i}]")))?;
        if !bytes.is_ascii() && std::str::from_utf8(bytes).is_err() {
            return Err(Invalid { place: format!("string_table[{i}]"), rule: "is not valid UTF-8".to_owned() });
        }
    }
    for (i, mapping) in tables.mappings.iter().enumerate() {
        string(mapping.filename, &|| format!("mapping_table[{i}].filename_strindex"))?;
        set(mapping.attributes, &|| format!("mapping_table[{i}].attribute_indices"))?;
    }
    for (i, function) in tables.functions.iter().enumerate() {
        string(function.name, &|| format!("function_table[{i}].name_strindex"))?;
        string(function.system_name, &|| format!("function_table[{i}].system_name_strindex"))?;
        string(function.filename, &|| format!("function_table[{i}].filename_strindex"))?;
    }
    for (i, location) in tables.locations.iter().enumerate() {
        check_index(MappingId::wire(location.mapping), "mapping_table", tables.mappings.len(), || {
            format!("location_table[{i}].mapping_index")
        })?;
        set(location.attributes, &|| format!("location_table[{i}].attribute_indices"))?;
        let end = u64::from(location.lines_start) + u64::from(location.lines_len);
        if end > tables.lines.len() as u64 {
            return Err(outside(format!("location_table[{i}].lines")));
        }
        let lines = &tables.lines[location.lines_start as usize..end as usize];
        for (j, line) in lines.iter().enumerate() {
            check_index(FunctionId::wire(line.function), "function_table", tables.functions.len(), || {
                format!("location_table[{i}].lines[{j}].function_index")
            })?;
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

impl Dictionary {
    /// Checks the tables, each index once.
    ///
    /// # Errors
    ///
    /// Names the first element that refers to something that is not there.
    pub fn new(tables: Tables) -> Result<Self, Invalid> {
        check(&tables)?;
        Ok(Self(tables))
    }

    /// As [`Dictionary::new`], and gives back what it was given where it is not valid.
    ///
    /// # Errors
    ///
    /// The tables, and the first element that refers to something that is not there.
    pub fn new_or_back(tables: Tables) -> Result<Self, Box<(Tables, Invalid)>> {
        match check(&tables) {
            Ok(()) => Ok(Self(tables)),
            Err(invalid) => Err(Box::new((tables, invalid))),
        }
    }

    /// Tables that were checked, with more appended that was checked on its own: see [`crate::symbol_overlay`]. Debug
    /// builds check again.
    pub(crate) fn of_checked(tables: Tables) -> Self {
        debug_assert_eq!(Self::new(tables.clone()).err(), None);
        Self(tables)
    }

    /// Gives the tables back.
    pub(crate) fn into_tables(self) -> Tables {
        self.0
    }

    /// The tables themselves.
    pub fn tables(&self) -> &Tables {
        &self.0
    }

    /// A string; the empty one where it is not set.
    #[inline]
    pub fn string(&self, id: Option<StringId>) -> &str {
        let bytes = id.and_then(|id| self.0.buffer.get(self.0.strings[id.index()])).unwrap_or_default();
        // It was found to be UTF-8 when the dictionary was made.
        std::str::from_utf8(bytes).unwrap_or_default()
    }

    /// A string's bytes, which spares the check that a `&str` costs; they are UTF-8.
    #[inline]
    pub fn string_bytes(&self, id: Option<StringId>) -> &[u8] {
        id.and_then(|id| self.0.buffer.get(self.0.strings[id.index()])).unwrap_or_default()
    }

    /// The bytes at a place of the buffer, none where it is outside.
    #[inline]
    pub fn bytes(&self, span: ByteRange) -> &[u8] {
        self.0.buffer.get(span).unwrap_or_default()
    }

    /// An element of `mapping_table`.
    #[inline]
    pub fn mapping(&self, id: MappingId) -> &Mapping {
        &self.0.mappings[id.index()]
    }

    /// An element of `function_table`.
    #[inline]
    pub fn function(&self, id: FunctionId) -> &Function {
        &self.0.functions[id.index()]
    }

    /// An element of `location_table`.
    #[inline]
    pub fn location(&self, id: LocationId) -> &Location {
        &self.0.locations[id.index()]
    }

    /// The lines of a location, the innermost callee first.
    #[inline]
    pub fn lines(&self, location: &Location) -> &[Line] {
        &self.0.lines[location.lines_start as usize..][..location.lines_len as usize]
    }

    /// An element of `link_table`.
    #[inline]
    pub fn link(&self, id: LinkId) -> &Link {
        &self.0.links[id.index()]
    }

    /// An element of `attribute_table`.
    #[inline]
    pub fn attribute(&self, id: AttributeId) -> &Attribute {
        &self.0.attributes[id.index()]
    }

    /// The ids of a list of attributes; empty where it is not set. `None` stands for index 0.
    #[inline]
    pub fn attribute_set(&self, id: Option<AttributeSetId>) -> &[Option<AttributeId>] {
        let span = id.map(|id| self.0.attribute_sets[id.index()]).unwrap_or_default();
        &self.0.attribute_set_items[span.start as usize..][..span.len as usize]
    }

    /// The attributes of a list.
    #[inline]
    pub fn attributes(&self, id: Option<AttributeSetId>) -> impl Iterator<Item = &Attribute> + '_ {
        self.attribute_set(id).iter().filter_map(|&item| item).map(|item| self.attribute(item))
    }

    /// The first attribute of a list with this key.
    pub fn find<'a>(&'a self, id: Option<AttributeSetId>, key: &str) -> Option<&'a Value> {
        self.attributes(id).find(|attribute| self.string(attribute.key) == key).map(|attribute| &attribute.value)
    }

    /// An element of `stack_table`: location ids, leaf first; empty where it is not set.
    #[inline]
    pub fn stack(&self, id: Option<StackId>) -> Stack<'_> {
        Stack(varint::Packed::new(self.stack_bytes(id)))
    }

    /// The packed location indices of a stack.
    #[inline]
    pub fn stack_bytes(&self, id: Option<StackId>) -> &[u8] {
        id.map(|id| self.bytes(self.0.stacks[id.index()])).unwrap_or_default()
    }
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
    string(attribute.key, "key_strindex")?;
    string(attribute.unit, "unit_strindex")?;
    check_value(&attribute.value, strings, buffer, place)
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
