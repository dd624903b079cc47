mod changed;
mod lines;
mod recordings;

use super::frames::{BYTECODE, CONTEXT, FUNCTION, OFFSET};
use super::layout::{CodeFields, Constants, Kinds, Types};
use super::*;
use crate::message::{Function, Location};
use crate::runtime::{MAX_FILE, MAX_NAME, Recording};
use crate::unwind::{FRAME_POINTER, Frame, Registers, StackCopy};

/// V8 13.6, as Node 24 has it.
fn layout() -> Layout {
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
    Layout {
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

/// A builder that places objects into memory, each with its type.
#[derive(Default)]
struct Made {
    memory: Recording,
    next: u64,
    maps: Vec<u16>,
    /// The script of all functions, and the last function that was added.
    script: u64,
    shared: u64,
    /// The strings, and the number of words of each.
    texts: Vec<(u64, u64)>,
}

impl Made {
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

    /// Adds an object with these words behind its map.
    fn object(&mut self, kind: u16, words: &[u64]) -> u64 {
        let map = self.map(kind);
        let address = HEAP + self.next;
        let bytes: Vec<u8> = std::iter::once(&map).chain(words).flat_map(|word| word.to_le_bytes()).collect();
        self.next += (bytes.len() as u64).next_multiple_of(8);
        self.memory.add(address, &bytes);
        address + 1
    }

    fn text(&mut self, text: &str) -> u64 {
        let mut words = vec![(text.len() as u64) << 32];
        words.extend(text.as_bytes().chunks(8).map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(word)
        }));
        let object = self.object(40, &words);
        self.texts.push((object, words.len() as u64 + 1));
        object
    }

    fn bytes(&mut self, kind: u16, bytes: &[u8]) -> u64 {
        let mut words = vec![small(bytes.len() as u64)];
        words.extend(bytes.chunks(8).map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(word)
        }));
        self.object(kind, &words)
    }
}

/// A stack of two frames: TurboFan code of `outer`, into which `inner` is inlined, called by the interpreted `main`.
fn made() -> (Made, Vec<Frame>, StackCopy) {
    let mut made = Made::default();
    let layout = layout();
    let types = layout.types;
    let (file, source) = (made.text("/srv/app.js"), made.text("main\nouter\ninner\nlast\n"));
    let nothing = made.object(131, &[0; 4]);
    let mut words = vec![source, file, 0, 0, 0, 0, 0, small(7)];
    words.resize(16, nothing);
    let script = made.object(types.script, &words);
    made.script = script;
    let shared = |made: &mut Made, name: &str, start: u64, number: u64, code: u64| {
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
fn read(target: &mut dyn Target, frames: &[Frame], stack: &mut StackCopy) -> (Named, Vec<Function>) {
    let mut engine = Engine::new(layout());
    let (mut functions, mut named) = (Functions::default(), Named::default());
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

/// The functions read for the stack: native frame, name, file and line of each.
fn told(target: &mut dyn Target, frames: &[Frame], stack: &mut StackCopy) -> (Vec<(usize, String, u32)>, Named) {
    let (named, fresh) = read(target, frames, stack);
    let rows = named.locations.iter().filter_map(|(at, location)| match location {
        Location::Interpreted { function, line } => Some((*at, fresh[*function as usize].name.clone(), *line)),
        Location::Native { .. } | Location::Compiled { .. } => None,
    });
    (rows.collect(), named)
}

/// Guarantees: compiled code shows the inlined function before the one it was inlined into, each with its own line,
/// and an interpreted function shows the line of its instruction.
#[test]
fn stack() {
    let (mut made, frames, mut stack) = made();
    let (rows, named) = told(&mut made.memory, &frames, &mut stack);
    let row = |at, name: &str, line| (at, name.to_owned(), line);
    assert_eq!(rows, [row(1, "inner", 3), row(1, "outer", 2), row(2, "main", 2)]);
    assert_eq!((named.positioned, named.named, named.inlined, named.unknown), (3, 0, 0, 0));
}

/// Guarantees: if the code of the innermost frame has positions of calls only, its name says that it includes inlined
/// functions.
#[test]
fn leaf() {
    let (mut made, frames, mut stack) = made();
    let (rows, named) = told(&mut made.memory, &frames[1..], &mut stack);
    assert_eq!(rows[0], (0, "outer [with inlined functions]".to_owned(), 0));
    assert_eq!((named.inlined, named.positioned), (1, 1));
}

/// Guarantees: byte code that does not belong to the function of its frame yields no name.
#[test]
fn moved() {
    let (mut made, frames, mut stack) = made();
    let types = layout().types;
    let other = made.object(types.bytecode, &[small(8), 0, 0, 0, 0, 0, 0, 0]);
    let at = 0x100 - BYTECODE as usize;
    stack.bytes[at..at + 8].copy_from_slice(&other.to_le_bytes());
    let (rows, named) = told(&mut made.memory, &frames, &mut stack);
    assert_eq!((rows[2].1.as_str(), named.unknown), ("[unknown function]", 1));
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

/// Guarantees: reading ends, with texts of limited length, even if a word of memory is replaced by its complement,
/// zero, all ones or its own address.
#[test]
fn hostile() {
    let (made, frames, stack) = made();
    let places: Vec<u64> = made
        .memory
        .parts
        .iter()
        .flat_map(|(start, part)| (0..part.len() as u64 / 8).map(move |index| start + index * 8))
        .collect();
    for place in places {
        let before = {
            let mut word = [0; 8];
            made.memory.clone().read(place, &mut word);
            u64::from_le_bytes(word)
        };
        for word in [!before, 0, u64::MAX, place, place + 1, before ^ 1 << 32, before.swap_bytes()] {
            let mut memory = made.memory.clone();
            memory.add(place, &word.to_le_bytes());
            told(&mut memory, &frames, &mut stack.clone());
        }
    }
}
