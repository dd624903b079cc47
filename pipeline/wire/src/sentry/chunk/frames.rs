//! Rules 7 and 8: locations become frames, and stacks become lists of their numbers.
//!
//! Frames and stacks are numbered for each chunk at their first use. The text of a location's number is kept with the
//! location, so that a stack is written by copying eight bytes for each of its locations.

use profbridge_model::{Dictionary, Line, Location, LocationId, StackId, varint};

use super::images::Images;
use super::in_app::{Place, in_app};
use super::json;
use super::limits::{MAX_FRAMES, MAX_STACK_FRAMES, MAX_STRING_BYTES};
use super::naming::{basename, is_absolute, split};
use super::report::Notes;
use super::runtime::Runtime;
use super::settings::InApp;

/// What is known of a location in the current chunk.
#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    /// The chunk this was written for.
    stamp: u32,
    /// The number of its first frame, and above it the [`Runtime`].
    first: u32,
    /// The number of its one frame and a comma, and in the last byte how long that is. The length is 0 where the
    /// location has several frames.
    text: [u8; 8],
}

/// The bits of a frame's number.
const FIRST_BITS: u32 = 24;

/// A frame of the chunk: a line of a location, or the location itself where it has none.
#[derive(Debug, Clone, Copy)]
struct FrameRef {
    location: LocationId,
    line: u32,
}

/// The frames and stacks of one chunk.
#[derive(Debug, Default)]
pub(super) struct Frames {
    slots: Vec<Slot>,
    stamp: u32,
    frames: Vec<FrameRef>,
    /// The stacks, as the inside of a JSON array. The first is empty.
    pub(super) stacks: Vec<u8>,
    /// The frames, as the inside of a JSON array.
    pub(super) text: Vec<u8>,
    pub(super) images: Images,
}

impl Frames {
    /// Starts a chunk.
    pub(super) fn begin(&mut self, dictionary: &Dictionary) {
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
        self.text.clear();
        self.stacks.clear();
        self.stacks.extend_from_slice(b"[]");
        self.images.begin(dictionary);
    }

    /// How many frames there are.
    pub(super) fn len(&self) -> usize {
        self.frames.len()
    }

    /// Appends a stack. Returns the runtime nearest to its leaf, machine code aside.
    pub(super) fn stack(&mut self, dictionary: &Dictionary, stack: StackId, notes: &mut Notes) -> Runtime {
        let packed = dictionary.stack_bytes(Some(stack));
        let mut at = self.stacks.len();
        // A location takes at least one byte and, as a rule, becomes at most eight.
        self.stacks.resize(at + 2 + packed.len() * 8 + 8, 0);
        self.stacks[at..at + 2].copy_from_slice(b",[");
        at += 2;
        let mut runtime = 0;
        let mut room = MAX_STACK_FRAMES;
        for index in varint::Packed::new(packed) {
            let Some(id) = LocationId::new(index as u32) else { continue };
            if room == 0 {
                notes.truncated_stacks += 1;
                break;
            }
            let mut slot = self.slots[id.index()];
            if slot.stamp != self.stamp {
                slot = self.number(dictionary, id);
            }
            if runtime < Runtime::Go as u32 {
                runtime = slot.first >> FIRST_BITS;
            }
            let len = usize::from(slot.text[7]);
            if len > 0 {
                self.stacks[at..at + 8].copy_from_slice(&slot.text);
                at += len;
                room -= 1;
                continue;
            }
            let lines = dictionary.location(id).lines_len as usize;
            let frames = lines.min(room);
            if frames < lines {
                notes.truncated_stacks += 1;
            }
            self.stacks.truncate(at);
            let first = slot.first & ((1 << FIRST_BITS) - 1);
            for frame in first..first + frames as u32 {
                json::number(&mut self.stacks, u64::from(frame));
                self.stacks.push(b',');
            }
            room -= frames;
            at = self.stacks.len();
            self.stacks.resize(at + packed.len() * 8 + 8, 0);
            if frames < lines {
                break;
            }
        }
        // The last comma becomes the bracket.
        if self.stacks[at - 1] == b',' {
            at -= 1;
        }
        self.stacks[at] = b']';
        self.stacks.truncate(at + 1);
        Runtime::from_number(runtime as u8)
    }

    /// Numbers the frames of a location.
    #[cold]
    fn number(&mut self, dictionary: &Dictionary, id: LocationId) -> Slot {
        let location = dictionary.location(id);
        let runtime = Runtime::of(dictionary, location);
        let first = self.frames.len() as u32;
        // More lines than a stack may have frames are never written.
        let lines = location.lines_len.clamp(1, MAX_STACK_FRAMES as u32);
        self.frames.extend((0..lines).map(|line| FrameRef { location: id, line }));
        let mut slot = Slot { stamp: self.stamp, first: first | (runtime as u32) << FIRST_BITS, text: [0; 8] };
        if lines == 1 && (first as usize) < MAX_FRAMES {
            let mut text = Vec::with_capacity(8);
            json::number(&mut text, u64::from(first));
            text.push(b',');
            slot.text[..text.len()].copy_from_slice(&text);
            slot.text[7] = text.len() as u8;
        }
        self.slots[id.index()] = slot;
        slot
    }

    /// Whether the chunk has more frames than can be numbered.
    pub(super) fn is_full(&self) -> bool {
        self.frames.len() >= MAX_FRAMES
    }

    /// Writes the frames, for a chunk of a platform. Stops above `limit` bytes, and says whether all are written.
    pub(super) fn write(
        &mut self,
        dictionary: &Dictionary,
        platform: &str,
        rules: &InApp,
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
            self.frame(dictionary, position, platform, rules, notes);
        }
        true
    }

    fn frame(&mut self, dictionary: &Dictionary, position: usize, platform: &str, rules: &InApp, notes: &mut Notes) {
        let FrameRef { location: id, line } = self.frames[position];
        let location = dictionary.location(id);
        let slot = self.slots[id.index()];
        let runtime = Runtime::from_number((slot.first >> FIRST_BITS) as u8);
        let line = dictionary.lines(location).get(line as usize).copied().unwrap_or_default();
        let source = Source::of(dictionary, runtime, location, &line);
        let name = split(runtime, source.name);
        let place = Place { function: name.function, module: name.module, path: source.path, package: source.package };
        let own = in_app(rules, runtime, &place);

        let out = &mut self.text;
        if name.function.is_empty() {
            unnamed(out, runtime, source.package, notes);
        } else {
            out.extend_from_slice(b"{\"function\":\"");
            text(out, name.function, notes);
            out.push(b'"');
        }
        if !name.module.is_empty() {
            out.extend_from_slice(b",\"module\":\"");
            text(out, name.module, notes);
            out.push(b'"');
        }
        if !source.path.is_empty() {
            if is_absolute(source.path) {
                out.extend_from_slice(b",\"abs_path\":\"");
                text(out, source.path, notes);
                out.push(b'"');
            }
            out.extend_from_slice(b",\"filename\":\"");
            text(out, source.path, notes);
            out.push(b'"');
        }
        if !source.package.is_empty() {
            out.extend_from_slice(b",\"package\":\"");
            text(out, source.package, notes);
            out.push(b'"');
        }
        if let Some(lineno) = unsigned(line.line) {
            out.extend_from_slice(b",\"lineno\":");
            json::number(out, lineno);
        }
        if let Some(colno) = unsigned(line.column) {
            out.extend_from_slice(b",\"colno\":");
            json::number(out, colno);
        }
        if runtime.has_machine_address()
            && let Some(mapping) = location.mapping
            && let Some(address) = self.images.absolute(dictionary, mapping, location.address)
        {
            out.extend_from_slice(b",\"instruction_addr\":");
            json::address(out, address);
        }
        if runtime.platform() != platform {
            out.extend_from_slice(b",\"platform\":\"");
            out.extend_from_slice(runtime.platform().as_bytes());
            out.push(b'"');
        }
        out.extend_from_slice(if own { b",\"in_app\":true}" } else { b",\"in_app\":false}" });
    }
}

/// Where a frame comes from, in the words of its producer.
#[derive(Debug, Clone, Copy)]
struct Source<'a> {
    name: &'a str,
    path: &'a str,
    package: &'a str,
}

impl<'a> Source<'a> {
    fn of(dictionary: &'a Dictionary, runtime: Runtime, location: &Location, line: &Line) -> Self {
        let function = line.function.map(|id| dictionary.function(id));
        let name = function.map_or("", |function| match dictionary.string(function.name) {
            "" => dictionary.string(function.system_name),
            name => name,
        });
        let path = function.map_or("", |function| dictionary.string(function.filename));
        let mapped = location.mapping.filter(|_| runtime.has_machine_address() || runtime == Runtime::Error);
        let package = mapped.map_or("", |id| dictionary.string(dictionary.mapping(id).filename));
        // The eBPF profiler has the assembly where others have the source.
        if runtime == Runtime::Dotnet && (path.ends_with(".dll") || path.ends_with(".exe")) {
            return Self { name, path: "", package: path };
        }
        Self { name, path, package }
    }
}

/// Sentry aggregates no frame without a function, so one without a name is called by the file it lies in.
fn unnamed(out: &mut Vec<u8>, runtime: Runtime, package: &str, notes: &mut Notes) {
    notes.unnamed_frames += 1;
    let name = match basename(package) {
        "" if runtime == Runtime::Error => "unwinding stopped",
        "" => "unknown",
        name => name,
    };
    out.extend_from_slice(b"{\"function\":\"[");
    text(out, name, notes);
    out.extend_from_slice(b"]\"");
}

/// Appends a text, cut where it is too long.
#[inline]
pub(super) fn text(out: &mut Vec<u8>, text: &str, notes: &mut Notes) {
    let text = text.as_bytes();
    if text.len() <= MAX_STRING_BYTES {
        json::escaped(out, text);
        return;
    }
    notes.truncated_strings += 1;
    json::escaped(out, json::cut(text, MAX_STRING_BYTES - ELLIPSIS.len()));
    out.extend_from_slice(ELLIPSIS.as_bytes());
}

/// Ends a text that was cut.
const ELLIPSIS: &str = "…";

/// Relay takes lines and columns as `u32` and rejects the whole chunk for one that is none (getsentry/relay
/// `relay-profiling/src/sample/mod.rs`). OTLP's 0 is "not set".
fn unsigned(number: i64) -> Option<u64> {
    u32::try_from(number).ok().filter(|&number| number > 0).map(u64::from)
}
