mod belongs;
mod changed_code;
mod copies;
mod deep;
mod running;
mod thread_names;
mod threads;

use std::time::{Duration, Instant};

use super::layout::Instructions;
use super::*;
use crate::message::{Function, FunctionKind, Location};
use crate::runtime::recording::{Changing, Counted, Reader};
use crate::runtime::{Functions, MAX_FRAMES, Recording};

macro_rules! recordings {
    ($($name:literal),+) => {
        [$(($name, include_bytes!(concat!("../../../tests/recordings/", $name, ".bin")) as &[u8])),+]
    };
}

/// The same stack of `tests/recordings/program.py`, recorded in each Python version.
const RECORDINGS: [(&str, &[u8]); 11] =
    recordings!("3.8", "3.9", "3.10", "3.11", "3.11-static", "3.12", "3.13", "3.13t", "3.14", "3.14t", "3.14t-thread");

/// Recordings from which the names of three threads are read (`tests/recordings/named.py`).
const NAMED: [(&str, &[u8]); 7] =
    recordings!("3.8-named", "3.9-named", "3.10-named", "3.11-named", "3.12-named", "3.13-named", "3.14-named");

/// The functions and lines of that stack, innermost first, as in the program's source.
const STACK: [(&str, &str, u32); 10] = [
    ("wait", "/tmp/recorded/program.py", 21),
    ("<module>", "<string>", 1),
    ("inner", "/tmp/recorded/program.py", 16),
    ("outer", "/tmp/recorded/program.py", 12),
    ("Späte.methode.<locals>.<lambda>", "/tmp/recorded/program.py", 8),
    ("Späte.methode", "/tmp/recorded/program.py", 8),
    ("Späte.methode", "/tmp/recorded/program.py", 7),
    ("Späte.methode", "/tmp/recorded/program.py", 7),
    ("Späte.methode", "/tmp/recorded/program.py", 7),
    ("<module>", "/tmp/recorded/program.py", 26),
];

fn recording(name: &str) -> Recording {
    let (_, bytes) = RECORDINGS.into_iter().find(|(known, _)| *known == name).unwrap();
    Recording::parse(bytes).unwrap()
}

/// Guarantees: the layouts of all versions are read: functions, their modules, files and current lines, through
/// methods, generators, `eval` and calls from C. Reading again gives the same functions.
#[test]
fn known_stack() {
    for (name, bytes) in RECORDINGS {
        let mut recording = Recording::parse(bytes).unwrap();
        let mut reader = Reader::new(&mut recording).unwrap();
        let minor = recording.version >> 16 & 0xff;
        let expected: Vec<(String, String, u32)> = STACK
            .iter()
            .map(|&(function, file, line)| {
                // Qualified names are available from 3.11 on.
                let short = function.rsplit('.').next().unwrap();
                // Before, methods show the name of their class, taken from their first argument.
                let short = if short == "methode" { function } else { short };
                (if minor >= 11 { function } else { short }.to_owned(), file.to_owned(), line)
            })
            .collect();
        for stands in [true, false] {
            assert_eq!(reader.read(&mut recording, stands), expected, "{name}");
        }
        assert!(reader.resolved.iter().all(|frame| !frame.unknown));
        let modules: Vec<&str> = reader.told.iter().map(|function| function.module.as_str()).collect();
        assert!(modules.iter().filter(|module| **module == "__main__").count() >= 7, "{name}: {modules:?}");
        assert!(modules.iter().all(|module| ["__main__", ""].contains(module)), "{name}: {modules:?}");
        // The instruction of a frame is within those of its function.
        let first = &reader.captured.frames[0];
        if minor >= 11 {
            assert!(reader.resolved[0].code.contains(&first.instruction), "{name}");
        }
    }
}

/// Guarantees: a function that was never read is found by an address in its instructions and the address of its frame
/// among other words; without its frame, or with an address of another function, none is found.
#[test]
fn functions_by_their_frames() {
    for (name, bytes) in RECORDINGS {
        let mut recording = Recording::parse(bytes).unwrap();
        let mut reader = Reader::new(&mut recording).unwrap();
        let expected = reader.read(&mut recording, true);
        let frames = reader.captured.frames.clone();
        let codes: Vec<_> = reader.resolved.iter().map(|frame| frame.code.clone()).collect();
        let mut seen = Vec::new();
        for ((frame, code), (function, file, _)) in frames.iter().zip(&codes).zip(&expected) {
            // Up to 3.10 the class was looked up, and recorded, only for the first frame of each method.
            let is_first = !seen.contains(&frame.code);
            let function = if is_first { function } else { function.rsplit('.').next().unwrap() };
            let function = if recording.version >> 16 & 0xff > 10 { &expected[seen.len()].0 } else { function };
            seen.push(frame.code);
            // In the middle of the instruction being executed.
            let inside =
                if code.contains(&frame.instruction) { frame.instruction } else { code.start + frame.instruction };
            let mut new = Reader::new(&mut recording).unwrap();
            let (mut functions, mut told) = (Functions::default(), Vec::new());
            let mut meet = |address, words: &[u64]| {
                let met = new.instance.meet(address, words, &mut recording, &mut functions)?;
                let Location::Interpreted { function, .. } = met.resolved.location? else { return None };
                told.extend(functions.take_fresh().into_iter().flat_map(|(_, told)| told));
                Some((told[function as usize].name.clone(), told[function as usize].file.clone()))
            };
            let words = [0x1000, frame.address, frame.address ^ 4, u64::MAX];
            assert_eq!(meet(inside, &words[..1]), None, "{name}");
            assert_eq!(meet(code.end, &words), None, "{name}");
            assert_eq!(meet(inside, &words), Some((function.to_owned(), file.clone())), "{name}");
        }
    }
}

/// Guarantees: each frame belongs to the native call that executes it: one frame per call up to 3.10; later, frames
/// called by Python code share a call. From 3.10 on each call has an address on the native stack, further outside for
/// callers.
#[test]
fn calls() {
    for (name, bytes) in RECORDINGS {
        let mut recording = Recording::parse(bytes).unwrap();
        let mut reader = Reader::new(&mut recording).unwrap();
        reader.read(&mut recording, true);
        let minor = recording.version >> 16 & 0xff;
        let ends: Vec<usize> = reader.captured.segments.iter().map(|segment| segment.end).collect();
        let expected: &[usize] = match minor {
            ..=10 => &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10],
            // Each resumption of a generator is a separate call.
            11 => &[2, 3, 4, 5, 10],
            _ => &ends,
        };
        assert_eq!(reader.instance.has_calls_of_one(), minor <= 10, "{name}");
        assert_eq!(ends, expected, "{name}");
        assert_eq!(ends.last(), Some(&10), "{name}");
        let anchors: Vec<u64> = reader.captured.segments.iter().filter_map(|segment| segment.anchor).collect();
        assert_eq!(anchors.len(), if minor >= 10 { ends.len() } else { 0 }, "{name}");
        assert!(anchors.is_sorted_by(|inner, outer| inner < outer), "{name}");
    }
}

/// Guarantees: a thread unknown to the interpreter has no frames, and neither has one whose thread state now belongs
/// to another thread.
#[test]
fn other_threads() {
    for (name, bytes) in RECORDINGS {
        let mut recording = Recording::parse(bytes).unwrap();
        let mut reader = Reader::new(&mut recording).unwrap();
        assert_eq!(reader.read(&mut recording, true).len(), 10, "{name}");
        let thread = recording.thread;
        recording.thread = 77;
        assert_eq!(reader.read(&mut recording, true), [], "{name}");
        // Another thread owns the state now: all its ids differ.
        recording.thread = thread;
        let (runtime, version) = (recording.runtime, recording.version);
        let place = Place::at(runtime, version, &mut recording).unwrap();
        let mut states = States::default();
        states.walk(&place, &mut recording);
        let state = states.of(&place, ThreadKey { id: thread, pointer: 0 }).next().unwrap();
        let thread = &place.layout.thread;
        for at in [thread.thread_id, thread.native_id.unwrap_or(thread.thread_id)] {
            recording.add(state.address + u64::from(at), &[0xaa; 8]);
        }
        assert_eq!(reader.read(&mut recording, true), [], "{name}");
    }
}

/// Guarantees: up to 3.10, among functions that share their instructions, the one whose code object is among the words
/// is found, and none without that; instructions that others may share are not attributed to the known function.
#[test]
fn shared_instructions() {
    for name in ["3.8", "3.9", "3.10"] {
        let mut recording = recording(name);
        let mut reader = Reader::new(&mut recording).unwrap();
        let before = reader.read(&mut recording, true);
        let place = Place::at(recording.runtime, recording.version, &mut recording).unwrap();
        let Instructions::Object { at } = place.layout.code.instructions else { panic!("{name}") };
        let (one, other) = (reader.captured.frames[0].code, reader.captured.frames[2].code);
        let instructions = reader.resolved[0].code.clone();
        let address = instructions.start + 2;
        let mut reader = Reader::new(&mut recording).unwrap();
        assert_eq!(reader.read(&mut recording, true), before);
        let owners = instructions.start - u64::from(place.layout.object.bytes_data);
        let mut told = |recording: &mut Recording, words: Option<&[u64]>| {
            let Reader { instance, functions, .. } = &mut reader;
            let hit = match words {
                None => instance.executed(address, recording, functions),
                Some(words) => instance.executed_among(address, words, recording, functions),
            };
            hit.map(|hit| (hit.code, hit.shared))
        };
        recording.add(owners, &1u64.to_le_bytes());
        assert_eq!(told(&mut recording, None), Some((one, false)), "{name}");
        recording.add(owners, &2u64.to_le_bytes());
        assert_eq!(told(&mut recording, None), Some((one, true)), "{name}");
        // The other function has the same instructions.
        recording.add(other + u64::from(at), &owners.to_le_bytes());
        let mut reader = Reader::new(&mut recording).unwrap();
        reader.read(&mut recording, true);
        let mut among = |words: &[u64]| {
            let Reader { instance, functions, .. } = &mut reader;
            instance.executed_among(address, words, &mut recording, functions).map(|hit| (hit.code, hit.shared))
        };
        assert_eq!(among(&[5, one]), Some((one, false)), "{name}");
        assert_eq!(among(&[other, 7]), Some((other, false)), "{name}");
        assert_eq!((among(&[one, other]), among(&[5, 7])), (None, None), "{name}");
    }
}

/// Guarantees: of a stack with more frames than may be read one by one, the innermost are returned, and it is marked
/// as cut.
#[test]
fn deep_stacks_are_cut() {
    for name in ["3.8", "3.9", "3.10"] {
        let mut recording = recording(name);
        let mut reader = Reader::new(&mut recording).unwrap();
        let whole = reader.read(&mut recording, true);
        let key = ThreadKey { id: recording.thread, pointer: 0 };
        // The outermost frame is its own caller.
        let last = reader.captured.frames.last().unwrap().address;
        recording.add(last + 24, &last.to_le_bytes());
        for (limit, most) in [(64, 64 + 32), (MAX_FRAMES, MAX_FRAMES)] {
            let Reader { instance, now, captured, .. } = &mut reader;
            assert!(instance.capture(key, limit, *now, &mut recording, captured));
            assert!(captured.cut && captured.frames.len() <= most, "{name}: {}", captured.frames.len());
            assert!(captured.frames.len() >= limit.min(64));
        }
        assert_eq!(whole.len(), 10);
    }
}

/// Guarantees: if any word that is read is flipped, zeroed, huge or points at itself, nothing panics, the numbers of
/// reads and frames are bounded, and texts are within their limits.
#[test]
fn attack_words() {
    for (name, bytes) in RECORDINGS {
        let whole = Recording::parse(bytes).unwrap();
        for (at, mut recording) in whole.hostile() {
            let Some(mut reader) = Reader::new(&mut recording) else { continue };
            let frames = reader.read(&mut recording, at % 16 == 0);
            assert!(frames.len() <= MAX_FRAMES, "{name}");
            assert!(frames.iter().all(|(function, file, _)| function.len() <= 512 && file.len() <= 1024));
        }
    }
}

/// Guarantees: circular lists of interpreters, threads and frames end.
#[test]
fn attack_circles() {
    for (name, bytes) in RECORDINGS {
        let mut recording = Recording::parse(bytes).unwrap();
        let place = Place::at(recording.runtime, recording.version, &mut recording).unwrap();
        let mut states = States::default();
        states.walk(&place, &mut recording);
        let key = ThreadKey { id: recording.thread, pointer: 0 };
        let state = states.of(&place, key).next().unwrap();
        recording.add(state.address + u64::from(place.layout.thread.next), &state.address.to_le_bytes());
        let mut counted = Counted { recording: &mut recording, reads: 0 };
        let mut states = States::default();
        states.walk(&place, &mut counted);
        assert!(counted.reads < 4 * 8192 + 1024, "{name}: {}", counted.reads);
        assert!(states.knows(&place, key));
    }
}

/// Guarantees: while its thread is stopped, one stack costs a handful of reads from 3.11 on, and one read per frame
/// before.
#[test]
fn few_reads() {
    for (name, bytes) in RECORDINGS {
        let mut recording = Recording::parse(bytes).unwrap();
        let mut reader = Reader::new(&mut recording).unwrap();
        reader.read(&mut recording, true);
        let key = ThreadKey { id: recording.thread, pointer: 0 };
        let Reader { instance, now, captured, .. } = &mut reader;
        let mut counted = Counted { recording: &mut recording, reads: 0 };
        assert!(instance.capture(key, MAX_FRAMES, *now, &mut counted, captured));
        let most = match counted.recording.version >> 16 & 0xff {
            8 | 9 => 11,
            10 => 22,
            // In practice the chain on the native stack is in the stack copy.
            11 => 10,
            _ => 10,
        };
        assert!(counted.reads <= most, "{name}: {} reads", counted.reads);
    }
}

/// Guarantees: the unknown function of a kind has one number, whatever else is read.
#[test]
fn functions_are_told_once() {
    let mut recording = recording("3.13");
    let mut reader = Reader::new(&mut recording).unwrap();
    reader.read(&mut recording, true);
    let told = reader.told.len();
    reader.read(&mut recording, false);
    assert_eq!(reader.told.len(), told);
    assert!(reader.told.iter().all(|function| function.kind == FunctionKind::CPython));
    let lines: Vec<u32> = reader.told.iter().map(|function| function.line).collect();
    assert!(lines.contains(&19), "{lines:?}");
}
