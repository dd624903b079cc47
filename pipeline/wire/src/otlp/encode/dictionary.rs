//! `ProfilesDictionary`.

use profbridge_model::{Attribute, Function, FunctionId, Line, Link, Location, Mapping, MappingId, StringId, Tables};

use super::Encoder;
use super::put::{bytes, bytes_size, head, int, int_size, message_size};

/// How many strings the `string_table` has to hold: those that were in it, or all, if anything that can refer to the
/// table only refers to one behind it.
pub(super) fn strings(tables: &Tables, profiles: impl Iterator<Item = [Option<StringId>; 4]>) -> usize {
    let of_function = |&Function { name, system_name, filename, start_line: _ }: &_| [name, system_name, filename];
    let of_mapping =
        |&Mapping { filename, memory_start: _, memory_limit: _, file_offset: _, attributes: _ }: &_| filename;
    let functions = tables.functions.iter().flat_map(of_function);
    let mappings = tables.mappings.iter().map(of_mapping);
    let attributes = tables.attributes.iter().flat_map(|&Attribute { key, value: _, unit }| [key, unit]);
    let last = functions.chain(mappings).chain(attributes).chain(profiles.flatten()).map(StringId::wire).max();
    match last {
        Some(last) if last >= tables.table_strings => tables.strings.len(),
        _ => (tables.table_strings as usize).min(tables.strings.len()),
    }
}

impl<'a> Encoder<'a> {
    /// The size of the dictionary's contents.
    pub(super) fn dictionary_size(&self) -> usize {
        let tables: &'a Tables = self.dictionary.tables();
        let messages = |sizes: &mut dyn Iterator<Item = usize>| sizes.map(message_size).sum::<usize>();
        messages(&mut tables.mappings.iter().map(|mapping| self.mapping_size(mapping)))
            + messages(&mut tables.locations.iter().map(|location| self.location_size(location)))
            + messages(&mut tables.functions.iter().map(function_size))
            + messages(&mut tables.links.iter().map(link_size))
            + messages(&mut tables.strings.iter().take(self.strings).map(|string| string.len as usize))
            + messages(&mut tables.attributes.iter().map(|attribute| self.key_value_and_unit_size(attribute)))
            + messages(&mut tables.stacks.iter().map(|stack| bytes_size(stack.len as usize)))
    }

    /// Writes the dictionary's contents.
    pub(super) fn dictionary(&self, out: &mut Vec<u8>) {
        let tables: &'a Tables = self.dictionary.tables();
        for mapping in &tables.mappings {
            self.mapping(out, mapping);
        }
        for location in &tables.locations {
            self.location(out, location);
        }
        for function in &tables.functions {
            head(out, 0x1a, function_size(function));
            int(out, 0x08, StringId::wire(function.name).into());
            int(out, 0x10, StringId::wire(function.system_name).into());
            int(out, 0x18, StringId::wire(function.filename).into());
            int(out, 0x20, function.start_line as u64);
        }
        for link in &tables.links {
            head(out, 0x22, link_size(link));
            bytes(out, 0x0a, unless_zero(&link.trace_id));
            bytes(out, 0x12, unless_zero(&link.span_id));
        }
        for &string in tables.strings.iter().take(self.strings) {
            head(out, 0x2a, string.len as usize);
            out.extend_from_slice(self.dictionary.bytes(string));
        }
        for attribute in &tables.attributes {
            self.key_value_and_unit(out, 0x32, attribute);
        }
        for &stack in &tables.stacks {
            head(out, 0x3a, bytes_size(stack.len as usize));
            bytes(out, 0x0a, self.dictionary.bytes(stack));
        }
    }

    fn mapping_size(&self, mapping: &Mapping) -> usize {
        let &Mapping { memory_start, memory_limit, file_offset, filename, attributes } = mapping;
        int_size(memory_start)
            + int_size(memory_limit)
            + int_size(file_offset)
            + int_size(StringId::wire(filename).into())
            + bytes_size(self.sets.get(attributes).len())
    }

    fn mapping(&self, out: &mut Vec<u8>, mapping: &Mapping) {
        let size = self.mapping_size(mapping);
        head(out, 0x0a, size);
        int(out, 0x08, mapping.memory_start);
        int(out, 0x10, mapping.memory_limit);
        int(out, 0x18, mapping.file_offset);
        int(out, 0x20, StringId::wire(mapping.filename).into());
        bytes(out, 0x2a, self.sets.get(mapping.attributes));
    }

    fn location_size(&self, location: &Location) -> usize {
        let &Location { mapping, address, attributes, lines_start: _, lines_len: _ } = location;
        int_size(MappingId::wire(mapping).into())
            + int_size(address)
            + self.dictionary.lines(location).iter().map(|line| message_size(line_size(line))).sum::<usize>()
            + bytes_size(self.sets.get(attributes).len())
    }

    fn location(&self, out: &mut Vec<u8>, location: &Location) {
        let size = self.location_size(location);
        head(out, 0x12, size);
        int(out, 0x08, MappingId::wire(location.mapping).into());
        int(out, 0x10, location.address);
        for line in self.dictionary.lines(location) {
            head(out, 0x1a, line_size(line));
            int(out, 0x08, FunctionId::wire(line.function).into());
            int(out, 0x10, line.line as u64);
            int(out, 0x18, line.column as u64);
        }
        bytes(out, 0x22, self.sets.get(location.attributes));
    }
}

fn line_size(&Line { function, line, column }: &Line) -> usize {
    int_size(FunctionId::wire(function).into()) + int_size(line as u64) + int_size(column as u64)
}

fn function_size(&Function { name, system_name, filename, start_line }: &Function) -> usize {
    let strings = [name, system_name, filename].map(|string| int_size(StringId::wire(string).into()));
    strings.iter().sum::<usize>() + int_size(start_line as u64)
}

fn link_size(Link { trace_id, span_id }: &Link) -> usize {
    bytes_size(unless_zero(trace_id).len()) + bytes_size(unless_zero(span_id).len())
}

/// An id, left out where all of it is zero: element 0 of `link_table` is `Link{}` (open-telemetry/sig-profiling,
/// profcheck).
fn unless_zero(id: &[u8]) -> &[u8] {
    if id.iter().all(|&byte| byte == 0) { &[] } else { id }
}
