//! The tables that the samples of a batch refer to: OTLP's `ProfilesDictionary` in columns.
//!
//! The tables, names and indices are those on the wire (opentelemetry-proto `profiles.proto`), so a decoded dictionary
//! can be encoded again with unchanged indices. Element 0 of each table is its zero value.
//!
//! A [`Dictionary`] is created from [`Tables`] by checking every index once. After that the type of an id guarantees
//! that it is valid, and it is not checked again.

mod check;
mod elements;

pub use self::check::Invalid;
use self::check::check;
pub(crate) use self::check::{IdCheck, check_attribute, check_index};
pub use self::elements::{Attribute, Function, Line, Link, Location, Mapping, Value};
use crate::buffer::{Buffer, ByteRange};
use crate::id::{AttributeId, AttributeSetId, FunctionId, LinkId, LocationId, MappingId, StackId, StringId};
use crate::varint;

/// The tables of a dictionary before they are checked.
///
/// Every table must contain its element 0. Offsets and byte ranges refer to `buffer`.
#[derive(Debug, Clone, Default)]
pub struct Tables {
    /// The bytes to which the ranges refer.
    pub buffer: Buffer,
    /// `string_table`, followed by inline strings: UTF-8 in the buffer.
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
    /// The distinct lists of attributes: ranges of `attribute_set_items`.
    pub attribute_sets: Vec<ByteRange>,
    /// The attributes of all lists, one after the other. `None` is index 0.
    pub attribute_set_items: Vec<Option<AttributeId>>,
    /// `stack_table`: for each stack, a packed run of location indices in the buffer, leaf first.
    pub stacks: Vec<ByteRange>,
    /// The number of `strings` that came from `string_table`; the others were inline.
    pub table_strings: u32,
    /// Whether attributes arrived as references to `string_table` (`key_strindex` of a `KeyValue`,
    /// `string_value_strindex`), which readers older than opentelemetry-proto 1.10 do not know.
    pub references: bool,
}

impl Tables {
    /// Tables that contain only their zero elements.
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

    /// The memory of the columns in bytes: used, and allocated.
    pub(crate) fn column_bytes(&self) -> (usize, usize) {
        fn of<T>(column: &Vec<T>) -> (usize, usize) {
            (size_of_val(&column[..]), column.capacity() * size_of::<T>())
        }
        let Self {
            buffer: _,
            strings,
            mappings,
            functions,
            locations,
            lines,
            links,
            attributes,
            attribute_sets,
            attribute_set_items,
            stacks,
            table_strings: _,
            references: _,
        } = self;
        let ranges = [strings, attribute_sets, stacks].map(of);
        let frames = [of(mappings), of(functions), of(locations), of(lines), of(links)];
        let all = ranges.into_iter().chain(frames).chain([of(attributes), of(attribute_set_items)]);
        all.fold((0, 0), |(used, allocated), of| (used + of.0, allocated + of.1))
    }

    /// The lines of a location, the innermost callee first.
    #[inline]
    pub(crate) fn lines(&self, location: &Location) -> &[Line] {
        &self.lines[location.lines_start as usize..][..location.lines_len as usize]
    }

    /// The ids of a list of attributes; empty if `id` is not set. `None` is index 0.
    #[inline]
    pub(crate) fn attribute_set(&self, id: Option<AttributeSetId>) -> &[Option<AttributeId>] {
        let span = id.map(|id| self.attribute_sets[id.index()]).unwrap_or_default();
        &self.attribute_set_items[span.start as usize..][..span.len as usize]
    }

    /// The attributes of a list.
    #[inline]
    pub(crate) fn attributes(&self, id: Option<AttributeSetId>) -> impl Iterator<Item = &Attribute> + '_ {
        self.attribute_set(id).iter().flatten().map(|item| &self.attributes[item.index()])
    }

    /// Replaces invalid UTF-8 in strings by U+FFFD. Returns the number of replaced strings. `grant` decides first
    /// whether that many more bytes may be allocated; if not, returns `None`.
    pub fn replace_invalid_text(&mut self, grant: impl FnOnce(usize) -> bool) -> Option<u64> {
        let bytes = |span: &ByteRange| self.buffer.get(*span).unwrap_or_default();
        let invalid = |span: &ByteRange| std::str::from_utf8(bytes(span)).is_err();
        let broken: Vec<usize> = (0..self.strings.len()).filter(|&i| invalid(&self.strings[i])).collect();
        // An invalid byte becomes the three bytes of U+FFFD.
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

impl Dictionary {
    /// Checks the tables, each index once.
    ///
    /// # Errors
    ///
    /// The error names the first element with a dangling reference.
    pub fn new(tables: Tables) -> Result<Self, Invalid> {
        check(&tables)?;
        Ok(Self(tables))
    }

    /// Like [`Dictionary::new`], but returns the tables if they are invalid.
    ///
    /// # Errors
    ///
    /// The tables, and the first element with a dangling reference.
    pub fn try_new(tables: Tables) -> Result<Self, Box<(Tables, Invalid)>> {
        match check(&tables) {
            Ok(()) => Ok(Self(tables)),
            Err(invalid) => Err(Box::new((tables, invalid))),
        }
    }

    /// Creates a dictionary from checked tables with additions that were checked separately: see
    /// [`crate::symbol_overlay`]. Debug builds check again.
    pub(crate) fn from_checked(tables: Tables) -> Self {
        debug_assert_eq!(Self::new(tables.clone()).err(), None);
        Self(tables)
    }

    pub(crate) fn into_tables(self) -> Tables {
        self.0
    }

    /// The tables themselves.
    pub fn tables(&self) -> &Tables {
        &self.0
    }

    /// A string; empty if `id` is not set.
    #[inline]
    pub fn string(&self, id: Option<StringId>) -> &str {
        let bytes = id.and_then(|id| self.0.buffer.get(self.0.strings[id.index()])).unwrap_or_default();
        // The bytes were checked to be UTF-8 when the dictionary was created.
        std::str::from_utf8(bytes).unwrap_or_default()
    }

    /// The bytes of a string, which are UTF-8. Avoids the check that a `&str` needs.
    #[inline]
    pub fn string_bytes(&self, id: Option<StringId>) -> &[u8] {
        id.and_then(|id| self.0.buffer.get(self.0.strings[id.index()])).unwrap_or_default()
    }

    /// The bytes of a range of the buffer; empty if the range is outside.
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
        self.0.lines(location)
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

    /// The ids of a list of attributes; empty if `id` is not set. `None` is index 0.
    #[inline]
    pub fn attribute_set(&self, id: Option<AttributeSetId>) -> &[Option<AttributeId>] {
        self.0.attribute_set(id)
    }

    /// The attributes of a list.
    #[inline]
    pub fn attributes(&self, id: Option<AttributeSetId>) -> impl Iterator<Item = &Attribute> + '_ {
        self.0.attributes(id)
    }

    /// The text of a string value.
    pub fn text(&self, value: &Value) -> Option<&str> {
        match value {
            Value::String(text) => Some(self.string(*text)),
            _ => None,
        }
    }

    /// The first attribute of a list with this key.
    pub fn find<'a>(&'a self, id: Option<AttributeSetId>, key: &str) -> Option<&'a Value> {
        self.attributes(id).find(|attribute| self.string(attribute.key) == key).map(|attribute| &attribute.value)
    }

    /// An element of `stack_table`: location ids, leaf first; empty if `id` is not set.
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
