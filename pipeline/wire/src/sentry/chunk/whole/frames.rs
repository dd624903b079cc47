//! The frames and stacks of a chunk that is written as it is.

use hashbrown::HashMap;
use profbridge_model::{AttributeSetId, Dictionary, Line, Location, LocationId, MappingId, StackId, Value};

use super::MAX_BYTES;
use crate::json::{self, Index};

/// The frames and stacks, as JSON without their brackets.
#[derive(Default)]
pub(super) struct Frames {
    pub(super) stacks: Vec<u8>,
    pub(super) text: Vec<u8>,
    /// Which stacks are empty.
    idle: Vec<bool>,
    by_stack: HashMap<Option<StackId>, u32>,
    /// The first frame of a location, and how many it has, where they are known; by the location's number on the wire.
    by_location: Vec<(u32, u32)>,
    /// The text of a location's only frame, where it is known and short enough.
    texts: Vec<Index>,
    by_set: HashMap<Option<AttributeSetId>, Kept>,
    mappings: Vec<MappingId>,
    known_mappings: HashMap<MappingId, ()>,
    frames: u32,
}

/// What attributes kept of a frame that OTLP has no field for.
#[derive(Debug, Clone, Copy, Default)]
struct Kept {
    module: Option<Text>,
    package: Option<Text>,
    platform: Option<Text>,
    filename: Option<Text>,
    abs_path: Option<Text>,
    in_app: Option<bool>,
    lineno: bool,
    colno: bool,
    instruction_addr: bool,
}

type Text = Option<profbridge_model::StringId>;

impl Kept {
    fn of(dictionary: &Dictionary, set: Option<AttributeSetId>) -> Self {
        let mut kept = Self::default();
        for attribute in dictionary.attributes(set) {
            let Some(key) = dictionary.string_bytes(attribute.key).strip_prefix(b"sentry.frame.") else { continue };
            match (key, &attribute.value) {
                (b"module", Value::String(text)) => kept.module = Some(*text),
                (b"package", Value::String(text)) => kept.package = Some(*text),
                (b"platform", Value::String(text)) => kept.platform = Some(*text),
                (b"filename", Value::String(text)) => kept.filename = Some(*text),
                (b"abs_path", Value::String(text)) => kept.abs_path = Some(*text),
                (b"in_app", Value::Bool(flag)) => kept.in_app = Some(*flag),
                (b"lineno", Value::Int(0)) => kept.lineno = true,
                (b"colno", Value::Int(0)) => kept.colno = true,
                (b"instruction_addr", Value::Int(0)) => kept.instruction_addr = true,
                _ => {}
            }
        }
        kept
    }
}

impl Frames {
    pub(super) fn bytes(&self) -> usize {
        self.stacks.len() + self.text.len()
    }

    /// How many stacks there are.
    pub(super) fn stack_count(&self) -> usize {
        self.idle.len()
    }

    /// The mappings that frames lie in.
    pub(super) fn mappings(&self) -> &[MappingId] {
        &self.mappings
    }

    pub(super) fn is_idle(&self, stack: u32) -> bool {
        self.idle[stack as usize]
    }

    /// The number of a stack; `None` where there is more than a chunk can hold.
    pub(super) fn stack(&mut self, dictionary: &Dictionary, id: Option<StackId>) -> Option<u32> {
        if let Some(&known) = self.by_stack.get(&id) {
            return Some(known);
        }
        if self.by_location.is_empty() {
            let locations = dictionary.tables().locations.len();
            self.by_location.resize(locations + 1, (0, 0));
            self.texts.resize(locations + 1, Index::default());
        }
        let number = self.idle.len() as u32;
        self.stacks.extend_from_slice(if number > 0 { b",[" } else { b"[" });
        let start = self.stacks.len();
        for location in dictionary.stack(id) {
            let text = self.texts[LocationId::wire(location) as usize];
            if text.len() > 0 {
                let at = self.stacks.len();
                self.stacks.extend_from_slice(&[0; 8]);
                text.write(&mut self.stacks, at);
                self.stacks.truncate(at + text.len());
            } else {
                let (first, len) = self.location(dictionary, location)?;
                for frame in first..first + len {
                    json::number(&mut self.stacks, frame.into());
                    self.stacks.push(b',');
                }
            }
            if self.bytes() > MAX_BYTES {
                return None;
            }
        }
        let is_idle = self.stacks.len() == start;
        // In place of the last comma.
        self.stacks.truncate(self.stacks.len() - usize::from(!is_idle));
        self.stacks.push(b']');
        self.idle.push(is_idle);
        self.by_stack.insert(id, number);
        Some(number)
    }

    fn location(&mut self, dictionary: &Dictionary, id: Option<LocationId>) -> Option<(u32, u32)> {
        let number = LocationId::wire(id) as usize;
        let known = self.by_location[number];
        if known.1 > 0 {
            return Some(known);
        }
        let location = id.map(|id| *dictionary.location(id)).unwrap_or_default();
        let kept = *self.by_set.entry(location.attributes).or_insert_with(|| Kept::of(dictionary, location.attributes));
        let lines = dictionary.lines(&location);
        let nothing = [Line::default()];
        let first = self.frames;
        for line in if lines.is_empty() { &nothing } else { lines } {
            self.frame(dictionary, &location, line, &kept);
            if self.bytes() > MAX_BYTES {
                return None;
            }
        }
        if let Some(mapping) = location.mapping
            && self.known_mappings.insert(mapping, ()).is_none()
        {
            self.mappings.push(mapping);
        }
        let frames = (first, self.frames - first);
        self.by_location[number] = frames;
        if frames.1 == 1 && (first as usize) < Index::END {
            self.texts[number] = Index::new(first);
        }
        Some(frames)
    }

    fn frame(&mut self, dictionary: &Dictionary, location: &Location, line: &Line, kept: &Kept) {
        let mut object = Object { out: &mut self.text, dictionary, is_first: true };
        object.out.extend_from_slice(if self.frames > 0 { b",{" } else { b"{" });
        self.frames += 1;
        let function = line.function.map(|id| dictionary.function(id));
        if let Some(function) = function {
            let name =
                if dictionary.string_bytes(function.name).is_empty() { function.system_name } else { function.name };
            object.some_text("function", name);
        }
        if let Some(module) = kept.module {
            object.text("module", module);
        }
        let file = function.and_then(|function| function.filename);
        // See `sampled/frames.rs`: one name stands for both, unless an attribute says what the other one is.
        object.some_text("filename", kept.filename.unwrap_or(file));
        object.some_text("abs_path", kept.abs_path.unwrap_or(file));
        if let Some(package) = kept.package {
            object.text("package", package);
        }
        if let Some(platform) = kept.platform {
            object.text("platform", platform);
        }
        object.number("lineno", line.line, kept.lineno);
        object.number("colno", line.column, kept.colno);
        if let Some(in_app) = kept.in_app {
            object.key("in_app");
            object.out.extend_from_slice(if in_app { b"true" } else { b"false" });
        }
        if location.address != 0 || kept.instruction_addr {
            object.key("instruction_addr");
            json::address(object.out, location.address);
        }
        self.text.push(b'}');
    }
}

/// An object that is being written.
struct Object<'a> {
    out: &'a mut Vec<u8>,
    dictionary: &'a Dictionary,
    is_first: bool,
}

impl Object<'_> {
    fn key(&mut self, key: &str) {
        self.out.extend_from_slice(if self.is_first { b"\"" } else { b",\"" });
        self.out.extend_from_slice(key.as_bytes());
        self.out.extend_from_slice(b"\":");
        self.is_first = false;
    }

    fn text(&mut self, key: &str, text: Text) {
        self.key(key);
        self.out.push(b'"');
        json::escaped(self.out, self.dictionary.string_bytes(text));
        self.out.push(b'"');
    }

    /// A text, where there is one.
    fn some_text(&mut self, key: &str, text: Text) {
        if !self.dictionary.string_bytes(text).is_empty() {
            self.text(key, text);
        }
    }

    /// A line or column, where it is known and one that Relay takes.
    fn number(&mut self, key: &str, number: i64, may_be_zero: bool) {
        if let Ok(number) = u32::try_from(number)
            && (number > 0 || may_be_zero)
        {
            self.key(key);
            json::number(self.out, number.into());
        }
    }
}
