mod changed;
mod recordings;

use super::frames::{BYTECODE, CONTEXT, FUNCTION, OFFSET};
use super::functions::{count_ends, known_ends};
use super::layout::{CodeFields, Constants, Kinds, Types};
use super::*;
use crate::message::{Function, Location};
use crate::runtime::{MAX_FILE, MAX_NAME, Recording};
use crate::unwind::{FRAME_POINTER, Frame, Registers, StackCopy};

/// The layout of V8 13.6, as in Node 24.
fn layout() -> V8Layout {
    let types = Types {
        function: 2065,
        shared: 282,
        scope_info: 280,
        script: 167,
        oddball: 131,
        debug_info: 154,
        code: 187,
        bytecode: 186,
        byte_array: 217,
        trusted_bytes: 196,
        fixed_array: 205,
        shared_wrapper: 195,
    };
    let code = CodeFields { deoptimization: 8, positions: 16, instructions: Some((32, 40)), flags: 52, size: 56 };
    V8Layout {
        types,
        kinds: Kinds { baseline: 10, last: 12 },
        code,
        shared: 32,
        name: 24,
        script: 40,
        source_url: 112,
        head: 32,
        first_local: 5,
        positions_first: true,
        bytecode_positions: 24,
        bytecode_start: 64,
        literals: 3,
        optimized: 7,
        inlined: 8,
        sizes: None,
        constants: Constants { version: (13, 6), numbers: [None; 8], types: [0; 12], sizes: None },
    }
}

const MAPS: u64 = 0x10_0000;
const HEAP: u64 = 0x20_0000;
const CODE: u64 = 0x30_0000;
const STACK: u64 = 0x7000_0000;
/// A small integer in V8's encoding.
const fn small(value: u64) -> u64 {
    value << 32
}

/// Builds the memory of a process from objects, each with its type.
#[derive(Default)]
struct HeapBuilder {
    memory: Recording,
    next: u64,
    maps: Vec<u16>,
    /// The script of all functions, and the last function that was added.
    script: u64,
    shared: u64,
    /// The strings, and the number of words of each.
    texts: Vec<(u64, u64)>,
}

impl HeapBuilder {
    fn map(&mut self, kind: u16) -> u64 {
        let index = self.maps.iter().position(|known| *known == kind).unwrap_or_else(|| {
            self.maps.push(kind);
            self.maps.len() - 1
        });
        let address = MAPS + 64 * index as u64;
        let mut bytes = [0; 64];
        bytes[12..14].copy_from_slice(&kind.to_le_bytes());
        self.memory.add(address, &bytes);
        address + 1
    }

    /// Adds an object in which these words follow the map.
    fn object(&mut self, kind: u16, words: &[u64]) -> u64 {
        let map = self.map(kind);
        let address = HEAP + self.next;
        let bytes: Vec<u8> = std::iter::once(&map).chain(words).flat_map(|word| word.to_le_bytes()).collect();
        self.next += (bytes.len() as u64).next_multiple_of(8);
        self.memory.add(address, &bytes);
        address + 1
    }

    /// Adds an object that consists of a length and these bytes.
    fn bytes(&mut self, kind: u16, bytes: &[u8]) -> u64 {
        let mut words = vec![small(bytes.len() as u64)];
        words.extend(bytes.chunks(8).map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(word)
        }));
        self.object(kind, &words)
    }

    fn text(&mut self, text: &str) -> u64 {
        let object = self.bytes(40, text.as_bytes());
        self.texts.push((object, 2 + text.len().div_ceil(8) as u64));
        object
    }
}

/// A stack of two frames: TurboFan code of `outer`, into which `inner` is inlined, called by the interpreted `main`.
fn made() -> (HeapBuilder, Vec<Frame>, StackCopy) {
    let mut made = HeapBuilder::default();
    let layout = layout();
    let types = layout.types;
    let (file, source) = (made.text("/srv/app.js"), made.text("main\nouter\ninner\nlast\n"));
    let nothing = made.object(131, &[0; 4]);
    let mut words = vec![source, file, 0, 0, 0, 0, 0, small(7)];
    words.resize(16, nothing);
    let script = made.object(types.script, &words);
    made.script = script;
    let shared = |made: &mut HeapBuilder, name: &str, start: u64, number: u64, code: u64| {
        let name = made.text(name);
        let scope = [small(1), small(0), small(0), small(start), small(start + 3), name, small(1), nothing];
        let scope = made.object(types.scope_info, &scope);
        made.object(types.shared, &[code, 0, scope, nothing, script, 1, number << 32])
    };
    // Byte code whose first instruction is at character 2 and whose next one is at 7.
    let positions = made.bytes(types.trusted_bytes, &[2, 2 * 2 * 3, 2, 2 * 2 * 5]);
    let bytecode = [small(8), nothing, positions, nothing, nothing, 0, 0, 0];
    let bytecode = made.object(types.bytecode, &bytecode);
    let main = shared(&mut made, "main", 0, 1, bytecode);
    let outer = shared(&mut made, "outer", 5, 2, nothing);
    let inner = shared(&mut made, "inner", 11, 3, nothing);
    made.shared = inner;
    // At offset 16 the code calls `inner`, which is at character 13; `outer` called it at character 8.
    let position = |offset: u64, inlining: u64| (offset + 1) << 1 | inlining << 31;
    let calls: Vec<u8> = [position(8, 0), 0].iter().flat_map(|word| word.to_le_bytes()).collect();
    let calls = made.bytes(types.trusted_bytes, &calls);
    let mut table = vec![34];
    let mut value = position(13, 1) << 1;
    while value >= 0x80 {
        table.push(value as u8 | 0x80);
        value >>= 7;
    }
    table.push(value as u8);
    let table = made.bytes(types.trusted_bytes, &table);
    let literals = made.object(199, &[small(1), inner | 2]);
    let wrapper = made.object(types.shared_wrapper, &[outer]);
    let data = [small(9), 0, small(1), 0, literals, 0, 0, 0, wrapper, calls];
    let data = made.object(193, &data);
    let start = CODE + 32;
    // The kind is TurboFan's, the size 64 bytes.
    let code = made.object(types.code, &[data, table, nothing, CODE + 1, start, 12 << 32, 64, 0, 0]);
    let stream = made.map(192);
    let holder: Vec<u8> = [stream, code, 0, 0, 0, 0, 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect();
    made.memory.add(CODE, &holder);
    let function = made.object(types.function, &[nothing, nothing, 0, main, nothing, nothing]);
    let mut stack = StackCopy { start: STACK, bytes: vec![0; 512], ..StackCopy::default() };
    let mut set = |address: u64, value: u64| {
        let at = (address - STACK) as usize;
        stack.bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    };
    let (first, second) = (STACK + 0x80, STACK + 0x100);
    for (at, word) in [
        (first - CONTEXT, nothing),
        (first - FUNCTION, function),
        (second - CONTEXT, nothing),
        (second - FUNCTION, function),
        (second - BYTECODE, bytecode),
        (second - OFFSET, small(63 + 1)),
    ] {
        set(at, word);
    }
    let frame = |pc: u64, sp: u64, pointer: u64| {
        let mut registers = Registers::passive(sp, pc);
        registers.set(FRAME_POINTER, pointer);
        Frame { pc, sp, location: Location::Native { mapping: None, address: pc }, registers }
    };
    let frames = vec![
        frame(0x5000, STACK, 0),
        frame(start + 20, STACK + 0x10, first),
        frame(0x6000, STACK + 0x90, second),
        frame(0x5000, STACK + 0x110, 0),
    ];
    (made, frames, stack)
}

/// Reads the stack with a new reader; returns the result and the functions that were found.
fn read(target: &mut dyn TargetMemory, frames: &[Frame], stack: &mut StackCopy) -> (NativelyNamed, Vec<Function>) {
    let mut engine = Engine::new(layout());
    let (mut functions, mut named) = (Functions::default(), NativelyNamed::default());
    let place = |address: u64| match address {
        0x6000.. if address >= CODE => CodePlace::Generated,
        0x5fff..0x7000 => CodePlace::Builtin,
        _ => CodePlace::Other,
    };
    engine.name_native(NativeStack { frames, place: &place }, stack, target, &mut functions, &mut named);
    let fresh: Vec<Function> = functions.take_fresh().map(|(_, fresh)| fresh).unwrap_or_default();
    assert!(fresh.iter().all(|one| one.name.len() <= MAX_NAME && one.file.len() <= MAX_FILE));
    (named, fresh)
}

/// The functions read for the stack: name and line of each.
fn rows(made: &mut HeapBuilder, frames: &[Frame], stack: &mut StackCopy) -> (Vec<(String, u32)>, NativelyNamed) {
    let (named, fresh) = read(&mut made.memory, frames, stack);
    let rows = named.locations.iter().filter_map(|(_, location)| match location {
        Location::Interpreted { function, line } => Some((fresh[*function as usize].name.clone(), *line)),
        Location::Native { .. } | Location::Compiled { .. } => None,
    });
    (rows.collect(), named)
}

/// Guarantees: if the code of the innermost frame has positions of calls only, its name says that it may be an inlined
/// function.
#[test]
fn leaf() {
    let (mut made, frames, mut stack) = made();
    let (rows, named) = rows(&mut made, &frames[1..], &mut stack);
    assert_eq!(rows[0], ("outer [with inlined functions]".to_owned(), 0));
    assert_eq!((named.inlined, named.positioned), (1, 1));
}

/// Guarantees: byte code that does not belong to the function in its frame yields no name.
#[test]
fn moved() {
    let (mut made, frames, mut stack) = made();
    let other = made.object(layout().types.bytecode, &[small(8), 0, 0, 0, 0, 0, 0, 0]);
    let at = 0x100 - BYTECODE as usize;
    stack.bytes[at..at + 8].copy_from_slice(&other.to_le_bytes());
    let (rows, named) = rows(&mut made, &frames, &mut stack);
    assert_eq!((rows[2].0.as_str(), named.unknown), ("[unknown function]", 1));
}

/// Guarantees: the search for code reaches the first word of mapped memory, and does not go beyond it.
#[test]
fn first_page() {
    let (layout, mut maps, mut memory) = (layout(), Maps::default(), Recording::default());
    memory.add(0, &[0; 4096]);
    let mut codes = Codes::default();
    codes.next_stack();
    let mut heap = Heap { layout: &layout, maps: &mut maps, target: Bounded::new(&mut memory, ALLOWANCE) };
    for address in [1, 8, 2000, 4095] {
        assert_eq!(codes.find(address, &mut heap), None);
    }
}

/// Guarantees: after the last known line end of a script the line is unknown, both for the current position and for the
/// start of a function.
#[test]
fn behind_the_known_ends() {
    for (ends, lines, counts, first_line) in [
        (&[4, 10, 16, 21, 22][..], [3, 2, 2], (3, 0), 3),
        (&[4, 10, 12], [0, 2, 2], (2, 1), 3),
        (&[4, 10], [0, 2, 2], (2, 1), 0),
        (&[4], [0, 0, 0], (0, 3), 0),
    ] {
        let (mut made, frames, mut stack) = made();
        let words: Vec<u64> = std::iter::once(ends.len() as u64).chain(ends.iter().copied()).map(small).collect();
        let table = made.object(layout().types.fixed_array, &words);
        made.memory.add(made.script - 1 + 56, &table.to_le_bytes());
        let (rows, named) = rows(&mut made, &frames, &mut stack);
        let found: Vec<u32> = rows.iter().map(|row| row.1).collect();
        assert_eq!((found.as_slice(), (named.positioned, named.named)), (&lines[..], counts), "{ends:?}");
        let (_, functions) = read(&mut made.memory, &frames, &mut stack);
        assert_eq!(functions.iter().find(|one| one.name == "inner").unwrap().line, first_line, "{ends:?}");
    }
}

/// Guarantees: lines end at ECMAScript's line terminators, recorded as V8 does: before the terminator, and at the end
/// of the source.
#[test]
fn ends_of_lines() {
    for (source, ends) in [("a\nb\r\nc\rd", &[1, 4, 6, 8][..]), ("a\n", &[1, 2]), ("a\r", &[1, 2]), ("", &[0])] {
        let mut made = HeapBuilder::default();
        let text = made.text(source);
        // The next object in memory.
        made.object(131, &[0; 4]);
        let (layout, mut maps) = (layout(), Maps::default());
        let mut heap = Heap { layout: &layout, maps: &mut maps, target: Bounded::new(&mut made.memory, ALLOWANCE) };
        assert_eq!(known_ends(text, &mut heap), None);
        assert_eq!(count_ends(text, &mut heap).unwrap(), ends, "{source:?}");
    }
}
