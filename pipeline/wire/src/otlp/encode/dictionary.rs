//! Encodes `ProfilesDictionary`.

use profbridge_model::{Attribute, Function, FunctionId, Line, Link, Location, Mapping, MappingId, StringId, Tables};

use super::RequestEncoder;
use super::put::{FieldSink, bytes, encoded, int, message};

/// Number of strings that the `string_table` must contain: those of the original table or, if an element that needs a
/// table index uses a later string, all of them.
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

impl<'a> RequestEncoder<'a> {
    /// Writes the content of the dictionary.
    pub(super) fn dictionary(&self, out: &mut impl FieldSink) {
        let tables: &'a Tables = self.dictionary.tables();
        for mapping in &tables.mappings {
            message(out, 0x0a, |size| self.mapping(size, mapping), |out| self.mapping(out, mapping));
        }
        for location in &tables.locations {
            message(out, 0x12, |size| self.location(size, location), |out| self.location(out, location));
        }
        for of in &tables.functions {
            message(out, 0x1a, |size| function(size, of), |out| function(out, of));
        }
        for of in &tables.links {
            message(out, 0x22, |size| link(size, of), |out| link(out, of));
        }
        for &string in tables.strings.iter().take(self.strings) {
            encoded(out, 0x2a, self.dictionary.bytes(string));
        }
        for attribute in &tables.attributes {
            message(
                out,
                0x32,
                |size| self.key_value_and_unit(size, attribute),
                |out| self.key_value_and_unit(out, attribute),
            );
        }
        for &stack in &tables.stacks {
            let locations = self.dictionary.bytes(stack);
            message(out, 0x3a, |size| bytes(size, 0x0a, locations), |out| bytes(out, 0x0a, locations));
        }
    }

    fn mapping(&self, out: &mut impl FieldSink, mapping: &Mapping) {
        let &Mapping { memory_start, memory_limit, file_offset, filename, attributes } = mapping;
        int(out, 0x08, memory_start);
        int(out, 0x10, memory_limit);
        int(out, 0x18, file_offset);
        int(out, 0x20, StringId::wire(filename).into());
        bytes(out, 0x2a, self.sets.get(attributes));
    }

    fn location(&self, out: &mut impl FieldSink, location: &Location) {
        let &Location { mapping, address, attributes, lines_start: _, lines_len: _ } = location;
        int(out, 0x08, MappingId::wire(mapping).into());
        int(out, 0x10, address);
        for of in self.dictionary.lines(location) {
            message(out, 0x1a, |size| line(size, of), |out| line(out, of));
        }
        bytes(out, 0x22, self.sets.get(attributes));
    }
}

fn line(out: &mut impl FieldSink, &Line { function, line, column }: &Line) {
    int(out, 0x08, FunctionId::wire(function).into());
    int(out, 0x10, line as u64);
    int(out, 0x18, column as u64);
}

fn function(out: &mut impl FieldSink, &Function { name, system_name, filename, start_line }: &Function) {
    int(out, 0x08, StringId::wire(name).into());
    int(out, 0x10, StringId::wire(system_name).into());
    int(out, 0x18, StringId::wire(filename).into());
    int(out, 0x20, start_line as u64);
}

fn link(out: &mut impl FieldSink, Link { trace_id, span_id }: &Link) {
    bytes(out, 0x0a, unless_zero(trace_id));
    bytes(out, 0x12, unless_zero(span_id));
}

/// An id, or nothing if it is all zero: element 0 of `link_table` is `Link{}` (open-telemetry/sig-profiling,
/// profcheck).
fn unless_zero(id: &[u8]) -> &[u8] {
    if id.iter().all(|&byte| byte == 0) { &[] } else { id }
}
