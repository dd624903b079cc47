//! Converts locations to frames, and stacks to lists of frame numbers.
//!
//! Each chunk numbers its frames and stacks in the order of first use. The text of a location's frame number is stored,
//! so that writing a stack copies eight bytes per location.

use profbridge_model::{Dictionary, Location, LocationId, Mapping, StackId, Value, varint};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::called::{self, Called};
use super::images::Images;
use super::in_app::{FrameOrigin, in_app};
use super::limits::{MAX_FRAMES, MAX_STACK_FRAMES, MAX_STRING_BYTES};
use super::module::{self, Roots};
use super::naming::SplitName;
use super::path::{basename, is_absolute};
use super::program::Program;
use super::report::Notes;
use super::runtime::Runtime;
use super::settings::InApp;
use super::source::FrameSource;
use super::stamped::Stamped;
use super::write::ObjectWriter;
use crate::json::{self, Index};

/// The state of a location in the current chunk.
#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    /// The chunk to which this state belongs.
    stamp: u32,
    /// The number of the location's first frame in the low bits, the [`Runtime`] above.
    first: u32,
    /// The text of the location's frame number; none if the location has several frames.
    text: Index,
}

/// Number of bits of a frame number.
const FIRST_BITS: u32 = 24;

/// A frame of the chunk: a line of a location, or the location itself if it has no lines.
#[derive(Debug, Clone, Copy)]
struct FrameRef {
    location: LocationId,
    line: u32,
    /// The line number, if it depends on the caller.
    lineno: Option<u32>,
}

/// The first frame number of a location whose frames depend on their callers and so have no fixed numbers.
const CALLED: u32 = (1 << FIRST_BITS) - 1;

/// The frames and stacks of one chunk.
#[derive(Debug, Default)]
pub(super) struct Frames {
    slots: Vec<Slot>,
    stamp: u32,
    frames: Vec<FrameRef>,
    /// The numbers of frames that depend on their callers.
    called: Called,
    /// For each frame, Sentry's identity of its function (see [`group`]); 0 if Sentry does not list the function.
    groups: Vec<u64>,
    /// Buffer for the text of the stacks, of which `written` bytes are used. Text is written eight bytes at a time.
    room: Vec<u8>,
    written: usize,
    /// The frames, without the brackets of the JSON array.
    pub(super) text: Vec<u8>,
    pub(super) images: Images,
    /// The runtime in each attribute set.
    by_set: Stamped,
    /// The text of each frame number, the same in every chunk.
    texts: Vec<Index>,
    /// The Python program of the process.
    program: Option<Program>,
    /// Whether frames are written from the attributes of an earlier chunk.
    kept: bool,
    /// The maximum number of frames in a stack.
    most: usize,
}

/// Marks an attribute set that names no runtime.
const NO_RUNTIME: u32 = u32::MAX;

impl Frames {
    /// Heap size in bytes.
    pub(super) fn heap_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>()
            + self.frames.capacity() * size_of::<FrameRef>()
            + self.groups.capacity() * size_of::<u64>()
            + self.room.capacity()
            + self.text.capacity()
            + self.by_set.heap_bytes()
            + self.texts.capacity() * size_of::<Index>()
            + self.called.heap_bytes()
    }

    /// Starts a chunk. `kept` means that the batch was itself a Sentry chunk, whose frames are preserved.
    pub(super) fn begin(&mut self, dictionary: &Dictionary, kept: bool) {
        (self.kept, self.most) = (kept, if kept { MAX_FRAMES } else { MAX_STACK_FRAMES });
        let locations = dictionary.tables().locations.len();
        if self.slots.len() < locations {
            self.slots.resize(locations, Slot::default());
        }
        self.stamp = self.stamp.wrapping_add(1);
        if self.stamp == 0 {
            self.slots.fill(Slot::default());
            self.stamp = 1;
        }
        self.frames.clear();
        self.groups.clear();
        self.called.clear();
        self.text.clear();
        self.program = None;
        self.by_set.begin(dictionary.tables().attribute_sets.len());
        make_room(&mut self.room, 2);
        self.room[..2].copy_from_slice(b"[]");
        self.written = 2;
        self.images.begin(dictionary);
    }

    /// The number of frames.
    pub(super) fn len(&self) -> usize {
        self.frames.len()
    }

    /// The stacks, without the brackets of the JSON array. The first is empty.
    pub(super) fn stacks(&self) -> &[u8] {
        &self.room[..self.written]
    }

    /// Appends a stack. Returns the runtime of the innermost frame that is not native code.
    pub(super) fn stack(&mut self, dictionary: &Dictionary, stack: StackId, notes: &mut Notes) -> Runtime {
        let mut packed = dictionary.stack_bytes(Some(stack));
        // Local variables avoid accessing the fields again for each location.
        let mut room = std::mem::take(&mut self.room);
        let mut slots = std::mem::take(&mut self.slots);
        // A location takes at least one byte, and its text is usually at most eight bytes.
        make_room(&mut room, self.written + 3 + packed.len() * 8);
        room[self.written..self.written + 2].copy_from_slice(b",[");
        let mut at = self.written + 2;
        let mut runtime = 0;
        let mut left = self.most;
        while let Some(index) = take_index(&mut packed) {
            let Some(id) = LocationId::new(index) else { continue };
            if left == 0 {
                notes.truncated_stacks += 1;
                break;
            }
            let mut slot = slots[id.index()];
            if slot.stamp != self.stamp {
                slot = self.number(dictionary, id);
                slots[id.index()] = slot;
            }
            if runtime < Runtime::Go as u32 {
                runtime = slot.first >> FIRST_BITS;
            }
            if slot.text.len() > 0 {
                slot.text.write(&mut room, at);
                at += slot.text.len();
                left -= 1;
                continue;
            }
            let lines = dictionary.location(id).lines_len as usize;
            let frames = lines.min(left);
            make_room(&mut room, at + (frames + packed.len()) * 8);
            if slot.first & CALLED == CALLED {
                for line in 0..frames {
                    let number = self.called_number(dictionary, id, line, packed, &mut slots);
                    let text = self.texts[number as usize];
                    text.write(&mut room, at);
                    at += text.len();
                }
                left -= frames;
                if frames < lines {
                    notes.truncated_stacks += 1;
                    break;
                }
                continue;
            }
            let first = (slot.first & ((1 << FIRST_BITS) - 1)) as usize;
            for text in &self.texts[first..first + frames] {
                text.write(&mut room, at);
                at += text.len();
            }
            left -= frames;
            if frames < lines {
                notes.truncated_stacks += 1;
                break;
            }
        }
        // The closing bracket replaces the last comma.
        at -= usize::from(room[at - 1] == b',');
        room[at] = b']';
        self.written = at + 1;
        (self.room, self.slots) = (room, slots);
        Runtime::from_number(runtime as u8)
    }

    /// Assigns numbers to the frames of a location.
    #[cold]
    fn number(&mut self, dictionary: &Dictionary, id: LocationId) -> Slot {
        let location = dictionary.location(id);
        let runtime = self.runtime(dictionary, location);
        let first = self.frames.len() as u32;
        if !self.kept && runtime == Runtime::Node && called::depends(dictionary, location) {
            let first = CALLED | (runtime as u32) << FIRST_BITS;
            return Slot { stamp: self.stamp, first, text: Index::default() };
        }
        // Lines beyond the maximum number of frames are never written.
        let lines = location.lines_len.clamp(1, self.most as u32);
        self.frames.extend((0..lines).map(|line| FrameRef { location: id, line, lineno: None }));
        self.make_texts();
        let mut slot =
            Slot { stamp: self.stamp, first: first | (runtime as u32) << FIRST_BITS, text: Index::default() };
        if lines == 1 && (first as usize) < MAX_FRAMES {
            slot.text = Index::new(first);
        }
        slot
    }

    fn make_texts(&mut self) {
        while self.texts.len() < self.frames.len() {
            // The modulo is safe: a chunk whose frame numbers exceed six digits is too large to be written anyway.
            self.texts.push(Index::new((self.texts.len() % Index::END) as u32));
        }
    }

    /// The number of a frame that depends on its caller. The caller is one of the location's other lines, or in the
    /// rest of the stack.
    #[cold]
    fn called_number(
        &mut self,
        dictionary: &Dictionary,
        id: LocationId,
        line: usize,
        mut rest: &[u8],
        slots: &mut [Slot],
    ) -> u32 {
        let lines = dictionary.lines(dictionary.location(id));
        let mut caller = lines.get(line + 1);
        // Skips built-in functions in between, which the SDK does not see. If there is other native code in between,
        // the caller has no line.
        while caller.is_none()
            && let Some(index) = take_index(&mut rest)
        {
            let Some(other) = LocationId::new(index) else { continue };
            let slot = &mut slots[other.index()];
            if slot.stamp != self.stamp {
                *slot = self.number(dictionary, other);
            }
            let runtime = slot.first >> FIRST_BITS;
            if runtime == Runtime::Native as u32 && called::is_foreign(dictionary, dictionary.location(other)) {
                break;
            }
            if runtime == Runtime::Node as u32 {
                let line = dictionary.lines(dictionary.location(other)).first();
                caller = line.filter(|line| called::is_executed(dictionary, line));
            }
        }
        let lineno = lines.get(line).map_or(0, |line| called::lineno(dictionary, line, caller));
        let frames = &mut self.frames;
        let line = line as u32;
        let number = self.called.number(id, line, lineno, || {
            frames.push(FrameRef { location: id, line, lineno: Some(lineno) });
            frames.len() as u32 - 1
        });
        self.make_texts();
        number
    }

    fn runtime(&mut self, dictionary: &Dictionary, location: &Location) -> Runtime {
        match self.declared_runtime(dictionary, location) {
            Runtime::Native => Runtime::compiled(dictionary, location).unwrap_or(Runtime::Native),
            runtime => runtime,
        }
    }

    /// The runtime according to the location's attributes, or else to its source file.
    fn declared_runtime(&mut self, dictionary: &Dictionary, location: &Location) -> Runtime {
        let Some(set) = location.attributes else { return Runtime::guessed(dictionary, location) };
        let number = match self.by_set.get(set.index()) {
            Some(number) => number,
            None => {
                let number = Runtime::named(dictionary, set).map_or(NO_RUNTIME, |runtime| runtime as u32);
                self.by_set.set(set.index(), number);
                number
            }
        };
        if number == NO_RUNTIME { Runtime::guessed(dictionary, location) } else { Runtime::from_number(number as u8) }
    }

    /// The function, as an identity from [`group`], to which Sentry attributes the time of a stack: that of the
    /// innermost in-app frame. 0 if there is none, or if it is the root frame, which Sentry never lists. The frames
    /// must have been written.
    pub(super) fn owner(&self, dictionary: &Dictionary, stack: StackId) -> u64 {
        let mut packed = dictionary.stack_bytes(Some(stack));
        let (mut owner, mut left) = (0, self.most);
        while let Some(index) = take_index(&mut packed) {
            let Some(id) = LocationId::new(index) else { continue };
            let slot = self.slots[id.index()];
            let first = (slot.first & ((1 << FIRST_BITS) - 1)) as usize;
            let lines = if slot.text.len() > 0 { 1 } else { dictionary.location(id).lines_len as usize };
            let called = first == CALLED as usize;
            for line in 0..lines.min(left) {
                let number = if called { self.called.any(id, line as u32) } else { Some((first + line) as u32) };
                let group = number.and_then(|number| self.groups.get(number as usize));
                let Some(group) = group else { continue };
                if owner != 0 {
                    return owner;
                }
                owner = *group;
            }
            left -= lines.min(left);
        }
        0
    }

    /// Whether the chunk has more frames than can be numbered.
    pub(super) fn is_full(&self) -> bool {
        self.frames.len() >= MAX_FRAMES
    }

    /// Finds the Python program of the process from stacks that have been written.
    pub(super) fn find_program(&mut self, dictionary: &Dictionary, stacks: impl Iterator<Item = StackId>) {
        let runtime = |id: LocationId| self.slots[id.index()].first >> FIRST_BITS;
        self.program = Program::find(dictionary, stacks, |id| runtime(id) == Runtime::Python as u32);
    }

    /// Writes the frames of a chunk with this platform and main executable. Stops above `limit` bytes, and returns
    /// whether all frames were written.
    pub(super) fn write(
        &mut self,
        dictionary: &Dictionary,
        platform: &str,
        (rules, executable): (&InApp, &str),
        limit: usize,
        notes: &mut Notes,
    ) -> bool {
        for position in 0..self.frames.len() {
            if self.text.len() > limit {
                return false;
            }
            if position > 0 {
                self.text.push(b',');
            }
            match self.kept {
                true => self.kept_frame(dictionary, position, notes),
                false => self.frame(dictionary, position, platform, (rules, executable), notes),
            }
        }
        true
    }

    fn frame(
        &mut self,
        dictionary: &Dictionary,
        position: usize,
        platform: &str,
        (rules, executable): (&InApp, &str),
        notes: &mut Notes,
    ) {
        let FrameRef { location: id, line, lineno } = self.frames[position];
        let location = dictionary.location(id);
        let slot = self.slots[id.index()];
        let runtime = Runtime::from_number((slot.first >> FIRST_BITS) as u8);
        let line = dictionary.lines(location).get(line as usize).copied().unwrap_or_default();
        let source = FrameSource::of(dictionary, runtime, location, &line);
        let path = source.path();
        let program = self.program.as_ref().filter(|_| runtime == Runtime::Python);
        let roots = Roots { configured: &rules.source_roots, program };
        let mut name = module::qualified_name(runtime, &source, roots);
        let place = FrameOrigin {
            function: &name.function,
            module: &name.module,
            path: &path,
            package: source.package,
            executable: executable.as_bytes(),
        };
        let own = in_app(rules, roots, runtime, &place);
        // Sentry lists Java functions only if the module contains a dot, and the module of the default package contains
        // none.
        if runtime == Runtime::Java && !name.module.is_empty() && !name.module.contains(&b'.') {
            name.module = [b"(default).", &*name.module].concat().into();
        }
        // A frame without a name needs a file, because Sentry rejects frames with neither.
        let has_place = !path.is_empty() && !name.module.is_empty();
        let is_anonymous = runtime == Runtime::Node && has_place && is_anonymous(&name.function);
        if is_anonymous {
            name.function = b"".into();
        } else if name.function.is_empty() {
            let place = location.mapping.map(|mapping| (dictionary.mapping(mapping), location.address));
            name.function = unnamed(runtime, source.package, place, notes).into();
        }
        // Sentry accepts our in-app flag only if the frame has the chunk's platform, as a frame without a platform
        // does.
        let says_none = runtime.platform() == platform || (own && runtime.is_managed());
        let listed = own && says_none && !is_anonymous;
        self.groups.push(if listed { group(&name, source.package) } else { 0 });
        let mapping = location.mapping.filter(|_| runtime.has_machine_address());
        let shown = ShownFrame {
            function: Some(&name.function),
            module: some(&name.module),
            abs_path: Some(&*path).filter(|path| is_absolute(path)),
            filename: some(&path).map(|path| FrameSource::shown(runtime, &name.module, path)),
            package: some(source.package),
            lineno: lineno.map_or(source.line, i64::from),
            colno: source.column,
            instruction_addr: mapping.and_then(|id| self.images.absolute(dictionary, id, location.address)),
            platform: Some(runtime.platform().as_bytes()).filter(|_| !says_none),
            in_app: Some(own),
            ..ShownFrame::default()
        };
        shown.put(ObjectWriter::open(&mut self.text, false, notes));
    }

    /// Writes a frame from the attributes that preserve it from an earlier chunk.
    fn kept_frame(&mut self, dictionary: &Dictionary, position: usize, notes: &mut Notes) {
        let FrameRef { location: id, line, .. } = self.frames[position];
        let location = dictionary.location(id);
        let line = dictionary.lines(location).get(line as usize).copied().unwrap_or_default();
        let function = line.function.map(|id| dictionary.function(id));
        let name = function.map_or(&b""[..], |function| {
            let name = dictionary.string_bytes(function.name);
            if name.is_empty() { dictionary.string_bytes(function.system_name) } else { name }
        });
        // File name and path are equal, unless an attribute has the other one (see `sampled/frames.rs`).
        let file = function.and_then(|function| some(dictionary.string_bytes(function.filename)));
        let mut shown = ShownFrame {
            function: some(name),
            filename: file,
            abs_path: file,
            lineno: line.line,
            colno: line.column,
            instruction_addr: Some(location.address).filter(|address| *address != 0),
            ..ShownFrame::default()
        };
        for attribute in dictionary.attributes(location.attributes) {
            let Some(key) = dictionary.string_bytes(attribute.key).strip_prefix(b"sentry.frame.") else { continue };
            match (key, &attribute.value) {
                (b"module", Value::String(text)) => shown.module = Some(dictionary.string_bytes(*text)),
                (b"package", Value::String(text)) => shown.package = Some(dictionary.string_bytes(*text)),
                (b"platform", Value::String(text)) => shown.platform = Some(dictionary.string_bytes(*text)),
                (b"filename", Value::String(text)) => shown.filename = some(dictionary.string_bytes(*text)),
                (b"abs_path", Value::String(text)) => shown.abs_path = some(dictionary.string_bytes(*text)),
                (b"in_app", Value::Bool(flag)) => shown.in_app = Some(*flag),
                (b"lineno", Value::Int(0)) => shown.has_lineno = true,
                (b"colno", Value::Int(0)) => shown.has_colno = true,
                (b"instruction_addr", Value::Int(0)) => shown.instruction_addr = Some(location.address),
                _ => {}
            }
        }
        if let Some(mapping) = location.mapping {
            self.images.keep(mapping);
        }
        shown.put(ObjectWriter::open(&mut self.text, true, notes));
    }
}

/// The fields of a frame in a chunk.
#[derive(Default)]
struct ShownFrame<'a> {
    function: Option<&'a [u8]>,
    module: Option<&'a [u8]>,
    abs_path: Option<&'a [u8]>,
    filename: Option<&'a [u8]>,
    package: Option<&'a [u8]>,
    lineno: i64,
    colno: i64,
    /// Whether a line or column of 0 is a number. In OTLP 0 means "not set".
    has_lineno: bool,
    has_colno: bool,
    instruction_addr: Option<u64>,
    platform: Option<&'a [u8]>,
    in_app: Option<bool>,
}

impl ShownFrame<'_> {
    fn put(&self, mut object: ObjectWriter<'_>) {
        object.text("function", self.function);
        object.text("module", self.module);
        object.text("abs_path", self.abs_path);
        object.text("filename", self.filename);
        object.text("package", self.package);
        object.number("lineno", unsigned(self.lineno, self.has_lineno));
        object.number("colno", unsigned(self.colno, self.has_colno));
        object.address("instruction_addr", self.instruction_addr);
        object.text("platform", self.platform);
        object.json("in_app", self.in_app.map(|own| if own { "true" } else { "false" }));
        object.close();
    }
}

/// The text, or `None` if it is empty.
fn some(text: &[u8]) -> Option<&[u8]> {
    Some(text).filter(|text| !text.is_empty())
}

/// Whether a Node function has no name. Sentry's SDK sends an empty name for it, so Sentry attributes its time to the
/// caller.
fn is_anonymous(function: &[u8]) -> bool {
    matches!(function, b"" | b"<anonymous>" | b"(anonymous)")
}

/// Grows the buffer to `end` plus the eight bytes that a write may touch beyond `end`.
fn make_room(room: &mut Vec<u8>, end: usize) {
    if room.len() < end + 8 {
        room.resize((end + 8).max(2 * room.len()), 0);
    }
}

/// Removes a location index from the front of a stack. Most indices take one or two bytes.
#[inline]
fn take_index(packed: &mut &[u8]) -> Option<u32> {
    match **packed {
        [low, ref rest @ ..] if low < 0x80 => {
            *packed = rest;
            Some(u32::from(low))
        }
        [low, high, ref rest @ ..] if high < 0x80 => {
            *packed = rest;
            Some(u32::from(low & 0x7f) | u32::from(high) << 7)
        }
        _ => varint::take(packed).map(|index| index as u32),
    }
}

/// Sentry's identity of a function: its name, and its module or else the base name of its binary (observed with
/// `vroomrs` 0.1.24). Never 0.
fn group(name: &SplitName<'_>, package: &[u8]) -> u64 {
    let module = if name.module.is_empty() { basename(package) } else { &name.module };
    xxh3_64_with_seed(json::cut(&name.function, MAX_STRING_BYTES), xxh3_64(module)).max(1)
}

/// Names a frame without a function, because Sentry does not aggregate it otherwise. The name is the binary's and, if
/// the address is within the mapping's range, the [page](Mapping::page_of): without the page, a whole binary would be a
/// single function, and most of its stacks one recursion. Sentry lists 100 functions of a chunk.
fn unnamed(runtime: Runtime, package: &[u8], place: Option<(&Mapping, u64)>, notes: &mut Notes) -> Vec<u8> {
    notes.unnamed_frames += 1;
    let name: &[u8] = match basename(package) {
        b"" if runtime == Runtime::Error => b"unwinding stopped",
        b"" => b"unknown",
        name => name,
    };
    let mut out = [b"[", name, b"]"].concat();
    let known = place.filter(|_| runtime.has_machine_address() && !package.is_empty());
    if let Some(page) = known.and_then(|(mapping, address)| mapping.page_of(address)) {
        out.push(b'+');
        json::hexadecimal(&mut out, page);
    }
    out
}

/// Relay parses lines and columns as `u32`, and rejects the whole chunk if one does not fit (getsentry/relay
/// `relay-profiling/src/sample/mod.rs`).
fn unsigned(number: i64, may_be_zero: bool) -> Option<u64> {
    u32::try_from(number).ok().filter(|&number| number > 0 || may_be_zero).map(u64::from)
}
