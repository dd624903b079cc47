//! The mappings, functions and locations of a process, each added to the batch once.

use std::collections::HashMap;

use profbridge_model::builder::Any;
use profbridge_model::{AttributeSetId, Builder, Function, Line, LocationId, MappingId};
use profbridge_sampler::message::{self, FunctionKind};
use profbridge_symbolizer::SymbolFrame;
use profbridge_wire::perf_name::{self, PerfName};

use super::{AssembledProcess, explanation, frame_type};
use crate::symbols::NAMELESS_KERNEL;

/// The mappings and locations of one process that were already added to the batch.
#[derive(Default)]
pub(super) struct InternedProcess {
    mappings: HashMap<u32, Option<MappingId>>,
    locations: HashMap<message::Location, Option<LocationId>>,
    /// The location of kernel functions whose names are hidden.
    pub(super) nameless_kernel: Option<LocationId>,
    frame_types: HashMap<&'static str, Option<AttributeSetId>>,
}

impl InternedProcess {
    /// Returns a location of the process, after adding it to the batch if it is new.
    pub(super) fn location(
        &mut self,
        builder: &mut Builder,
        subject: AssembledProcess<'_>,
        location: message::Location,
    ) -> Option<LocationId> {
        if let Some(&known) = self.locations.get(&location) {
            return known;
        }
        if let message::Location::Interpreted { function, line } = location {
            let known = self.interpreted(builder, subject, function, line);
            self.locations.insert(location, known);
            return known;
        }
        let mapping = location.mapping().and_then(|index| self.mapping(builder, subject, index));
        let symbols = explanation(location).or_else(|| subject.names.symbols(location));
        let frames = symbols.as_deref().map(|symbols| &*symbols.frames).unwrap_or_default();
        let kind = frame_type::of_location(location, frames, subject.mappings);
        let lines: Vec<Line> = frames.iter().map(|frame| line(builder, frame, kind)).collect();
        let attributes = self.frame_type(builder, kind);
        let known = builder.location(
            profbridge_model::Location {
                mapping,
                // Kernel addresses are not passed on, since they would reveal where the kernel is in memory. Function
                // names are enough, and equal in every stack.
                address: if kind == frame_type::KERNEL { 0 } else { location.address() },
                attributes,
                ..profbridge_model::Location::default()
            },
            &lines,
        );
        if frames.first().is_some_and(|frame| &*frame.function == NAMELESS_KERNEL) {
            self.nameless_kernel = known;
        }
        self.locations.insert(location, known);
        known
    }

    fn frame_type(&mut self, builder: &mut Builder, kind: &'static str) -> Option<AttributeSetId> {
        let attributes = self.frame_types.entry(kind);
        *attributes.or_insert_with(|| builder.attributes(&[("profile.frame.type", kind.into())]))
    }

    /// Returns the line of an interpreted function, whose location has neither a mapping nor an address. If the
    /// interpreter knows the function's module, the system name begins with it, like `code.function.name` of the
    /// semantic conventions.
    fn interpreted(
        &mut self,
        builder: &mut Builder,
        subject: AssembledProcess<'_>,
        function: u32,
        line: u32,
    ) -> Option<LocationId> {
        // The sampler process left the function out, since there were too many.
        let nothing = message::Function {
            kind: FunctionKind::CPython,
            name: String::new(),
            module: String::new(),
            file: String::new(),
            line: 0,
        };
        let source = subject.functions.get(function as usize).unwrap_or(&nothing);
        let (name, filename) = (builder.string(&source.name), builder.string(&source.file));
        let start_line = source.line.into();
        let whole = (!source.module.is_empty()).then(|| format!("{}.{}", source.module, source.name));
        let system_name = whole.and_then(|whole| builder.string(&whole));
        let function = builder.function(Function { name, system_name, filename, start_line });
        let attributes = self.frame_type(builder, source.kind.frame_type());
        builder.location(
            profbridge_model::Location { attributes, ..profbridge_model::Location::default() },
            &[Line { function, line: line.into(), column: 0 }],
        )
    }

    fn mapping(&mut self, builder: &mut Builder, subject: AssembledProcess<'_>, index: u32) -> Option<MappingId> {
        if let Some(&known) = self.mappings.get(&index) {
            return known;
        }
        let file = subject.mappings.get(index as usize)?;
        let gnu = file.build_id.as_deref().map(hex);
        let htlhash = file.htlhash.as_ref().map(|hash| hex(hash));
        let ids = [("process.executable.build_id.gnu", &gnu), ("process.executable.build_id.htlhash", &htlhash)];
        let attributes = ids.into_iter().filter_map(|(key, id)| Some((key, Any::Str(id.as_deref()?))));
        let attributes: Vec<_> = attributes.collect();
        let attributes = if attributes.is_empty() { None } else { builder.attributes(&attributes) };
        let filename = builder.string(&file.path);
        let known = builder.mapping(profbridge_model::Mapping {
            memory_start: file.start,
            memory_limit: file.end,
            file_offset: file.file_offset,
            filename,
            attributes,
        });
        self.mappings.insert(index, known);
        known
    }
}

/// A function as a line. Names that a runtime wrote into a perf map are split like that runtime's symbols.
fn line(builder: &mut Builder, frame: &SymbolFrame, kind: &str) -> Line {
    let named = perf_name::parse(&frame.function).filter(|name| name.compiler.frame_type() == kind);
    if let Some(PerfName { function, file, line, column, .. }) = named {
        let (name, filename) = (builder.string(&function), builder.string(file));
        let function = builder.function(Function { name, system_name: None, filename, start_line: line.into() });
        return Line { function, line: line.into(), column: column.into() };
    }
    let name = builder.string(&frame.function);
    let system_name = if frame.system_name == frame.function { None } else { builder.string(&frame.system_name) };
    let filename = frame.file.as_deref().and_then(|file| builder.string(file));
    let function = builder.function(Function { name, system_name, filename, start_line: 0 });
    Line { function, line: frame.line.into(), column: frame.column.into() }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
