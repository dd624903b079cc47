//! Recordings of one program in each version of V8.

use super::*;
use crate::runtime::recording::{self, CountingTarget, recorded};
use crate::runtime::word;

/// Recordings of the stack of `tests/recordings/program.js` in each Node version.
const NODE: [&str; 4] = ["node-18", "node-20", "node-22", "node-24"];

const FILE: &str = "/tmp/recorded/program.js";
const EVALUATED: &str = "/tmp/recorded/evaluated.js";

/// The functions and lines of the recorded stack, innermost first, as in the program's source.
const STACK: [(&str, &str, u32); 17] = [
    ("waits", FILE, 11),
    ("innermost", FILE, 16),
    ("inner", FILE, 22),
    ("optimized", FILE, 26),
    ("get größe", FILE, 31),
    ("<anonymous>", FILE, 34),
    ("map", "", 0),
    ("Σumme", FILE, 34),
    ("Σumme", FILE, 33),
    ("Σumme", FILE, 33),
    ("within", FILE, 39),
    ("middle", FILE, 43),
    ("steps", FILE, 54),
    ("next", "", 0),
    ("baseline", FILE, 48),
    ("evaluated", EVALUATED, 2),
    ("main", FILE, 80),
];

/// Maglev, which Node 24 has, records no positions: functions that it inlined are missing from the stack, and are
/// counted.
const INTO_MAGLEV: (&str, &str, u32) = ("middle", FILE, 0);

/// The expected stack in a recording.
fn stack_of(name: &str) -> Vec<(&'static str, &'static str, u32)> {
    let mut stack = STACK.to_vec();
    if name == "node-24" {
        stack.splice(10..12, [INTO_MAGLEV]);
    }
    stack
}

type FunctionRow = (usize, Function, u32);

/// The functions that were read: native frame, function and line of each.
struct RecordedFunctions {
    rows: Vec<FunctionRow>,
    named: NativelyNamed,
    reads: usize,
}

/// Reads a stack without its `inner` innermost frames.
fn read(reader: &mut recording::Reader, recording: &mut Recording, inner: usize) -> RecordedFunctions {
    read_with(reader, recording, &mut recording.clone(), inner)
}

/// The same as [`read`], with the stack words of another recording.
fn read_with(
    reader: &mut recording::Reader,
    recording: &mut Recording,
    words: &mut Recording,
    inner: usize,
) -> RecordedFunctions {
    let native = recording.native().without(inner);
    let place = |address| native.place(address);
    let stack = NativeStack { frames: &native.frames, place: &place };
    let mut named = NativelyNamed::default();
    let mut counted = CountingTarget { target: recording, reads: 0 };
    reader.instance.name_native(stack, words, &mut counted, &mut reader.functions, &mut named);
    let reads = counted.reads;
    let rows = named.locations.iter().filter_map(|(at, location)| match location {
        Location::Interpreted { line, .. } => Some((*at, reader.function(*location), *line)),
        Location::Native { .. } | Location::Compiled { .. } => None,
    });
    RecordedFunctions { rows: rows.collect(), named: named.clone(), reads }
}

fn plain(rows: &[FunctionRow]) -> Vec<(&str, &str, u32)> {
    rows.iter().map(|(_, function, line)| (function.name.as_str(), function.file.as_str(), *line)).collect()
}

/// Guarantees: in each version, functions of every tier are named, with file and line: interpreted ones, those of
/// Sparkplug, Maglev (24) and TurboFan with inlined functions; also across built-in functions, getters, generators,
/// evaluated text and names beyond ASCII. A second read gives the same functions with fewer reads.
#[test]
fn known_stack() {
    for (name, mut recording, mut reader) in recorded(&NODE) {
        let first = read(&mut reader, &mut recording, 0);
        assert_eq!(plain(&first.rows), stack_of(name), "{name}");
        let counts = (first.named.positioned, first.named.named, first.named.inlined, first.named.unknown);
        assert_eq!(counts, if name == "node-24" { (13, 2, 1, 0) } else { (15, 2, 0, 0) }, "{name}");
        assert_eq!(first.rows.iter().find(|row| row.1.name == "optimized").unwrap().1.line, 25);
        let second = read(&mut reader, &mut recording, 0);
        assert_eq!(plain(&second.rows), stack_of(name), "{name}");
        assert!(second.reads < first.reads && first.reads < 1500, "{name}: {}, {}", first.reads, second.reads);
        assert_eq!(reader.known.len(), if name == "node-24" { 15 } else { 16 }, "{name}: {:?}", reader.known);
    }
}

/// Guarantees: functions that TurboFan inlined into each other share one native frame, and no other functions do.
#[test]
fn inlined() {
    for (name, mut recording, mut reader) in recorded(&NODE) {
        let rows = read(&mut reader, &mut recording, 0).rows;
        let frames: Vec<usize> = rows.iter().map(|row| row.0).collect();
        assert!(frames[1] == frames[2] && frames[2] == frames[3], "{name}: {frames:?}");
        let others = [&frames[..2], &frames[4..]].concat();
        assert!(others.is_sorted_by(|one, other| one < other), "{name}: {frames:?}");
    }
}

/// Guarantees: if the innermost frame is in code with inlined functions, the inlined functions are shown, because Node
/// makes V8 record the positions of all instructions, and the reader detects that from the code.
#[test]
fn leaf() {
    for (name, mut recording, mut reader) in recorded(&NODE) {
        let rows = read(&mut reader, &mut recording, 0).rows;
        let reading = read(&mut reader, &mut recording, rows[1].0);
        // The next instruction to be executed is on the next line.
        assert_eq!(plain(&reading.rows)[0], ("innermost", FILE, 17), "{name}");
        assert_eq!(plain(&reading.rows)[1..], stack_of(name)[2..], "{name}");
        assert_eq!((reading.rows[0].0, reading.named.unknown), (0, 0), "{name}");
    }
}

/// Guarantees: even if memory has changed since the sample, the words of the stack determine which functions are shown:
/// those whose objects are gone become unknown, and others stay the same.
#[test]
fn gone() {
    for (name, mut recording, mut reader) in recorded(&NODE) {
        let rows = read(&mut reader, &mut recording, 0).rows;
        let native = recording.native();
        let frame = native.frames[rows[0].0];
        let pointer = frame.registers.get(FRAME_POINTER).unwrap();
        // Another object has replaced the function `waits`.
        let function = word(&mut recording, pointer - FUNCTION).unwrap();
        recording.add(function - 1, &[0; 8]);
        let reading = read(&mut recording::Reader::new(&mut recording).unwrap(), &mut recording, 0);
        assert_eq!(plain(&reading.rows)[0], ("[unknown function]", "", 0), "{name}");
        assert_eq!((plain(&reading.rows[1..]), reading.named.unknown), (stack_of(name)[1..].to_vec(), 1), "{name}");
    }
}

/// Guarantees: another function at the same address is shown as another function: names are not cached by address
/// alone.
#[test]
fn replaced() {
    for (name, mut recording, mut reader) in recorded(&NODE) {
        read(&mut reader, &mut recording, 0);
        // Memory contains the text of each name, and of the script's path, once.
        let mut count = 0;
        for (start, part) in recording.parts.clone() {
            let places = part.windows(5).enumerate().filter(|(_, bytes)| *bytes == b"waits");
            for (at, _) in places {
                recording.add(start + at as u64, b"other");
                count += 1;
            }
        }
        assert!(count > 0);
        let fresh = read(&mut recording::Reader::new(&mut recording).unwrap(), &mut recording, 0);
        assert_eq!(plain(&fresh.rows)[0], ("other", FILE, 11), "{name}");
    }
}

/// Guarantees: an unsupported version, and constants that contradict the known ones, are rejected with a message that
/// names them.
#[test]
fn refused() {
    let mut recording = recording::recording(NODE[0]);
    recording.version = 9 << 16 | 4;
    assert!(recording.found().unwrap_err().contains("V8 9.4"));
    for (_, recording, _) in recorded(&NODE) {
        for at in [0, 8, 16, 24, 32, 40, 56] {
            let mut recording = recording.clone();
            recording.add(recording.runtime + at, &u64::MAX.to_le_bytes());
            // Not all versions export the word size.
            assert!(at == 0 || recording.found().is_err(), "{at}");
        }
    }
}

/// Guarantees: reading takes at most the allowed number of reads and yields texts of limited length, whichever word of
/// memory, the stack or the constants is flipped, zeroed, huge, points to itself or is slightly off.
#[test]
fn attack_words() {
    for (name, mut recording, mut reader) in recorded(&NODE) {
        let leaf = read(&mut reader, &mut recording, 0).rows[1].0;
        let (mut reads, mut named, mut words) = (0, 0, recording.clone());
        for (start, part) in recording.parts.clone() {
            for at in (0..part.len().saturating_sub(7)).step_by(8) {
                let (address, bytes) = (start + at as u64, &part[at..at + 8]);
                let word = u64::from_le_bytes(*bytes.first_chunk().unwrap());
                for hostile in [0, !word, address + 1, word ^ 1 << 62, word.wrapping_add(8)] {
                    for one in [&mut recording, &mut words] {
                        one.parts.get_mut(&start).unwrap()[at..at + 8].copy_from_slice(&hostile.to_le_bytes());
                    }
                    // Innermost frames get a closer check.
                    let inner = if at % 16 == 0 { 0 } else { leaf };
                    let Some(mut reader) = recording::Reader::new(&mut recording) else { continue };
                    let reading = read_with(&mut reader, &mut recording, &mut words, inner);
                    assert!(reading.reads <= ALLOWANCE.reads as usize, "{name}: {}", reading.reads);
                    assert!(reader.known.iter().all(|one| one.name.len() <= MAX_NAME && one.file.len() <= MAX_FILE));
                    (reads, named) = (reading.reads.max(reads), named + reading.rows.len());
                }
                for one in [&mut recording, &mut words] {
                    one.parts.get_mut(&start).unwrap()[at..at + 8].copy_from_slice(bytes);
                }
            }
        }
        assert!(named > 0 && reads > 0, "{name}");
    }
}
