mod belongs;
mod changed_code;
mod running;
mod thread_names;
mod threads;

use std::time::Duration;

use super::layout::{Current, Instructions};
use super::threads::InterpreterThread;
use super::*;
use crate::message::FunctionKind;
use crate::runtime::recording::{Changing, CountingTarget, PYTHON, Reader, recorded, recording};
use crate::runtime::target::word;
use crate::runtime::{Executed, Recording};

/// The versions whose frames are objects, and whose functions may share instructions.
const UP_TO_3_10: &[&str] = PYTHON.first_chunk::<3>().unwrap();

/// The functions and lines of the recorded stack, innermost first, as in the program's source.
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

fn minor(recording: &Recording) -> u32 {
    recording.version >> 16 & 0xff
}

fn place(recording: &mut Recording) -> PythonPlace {
    PythonPlace::at(recording.runtime, recording.version, recording).unwrap()
}

fn state(recording: &mut Recording) -> InterpreterThread {
    let (place, mut states) = (place(recording), InterpreterThreads::default());
    states.walk(&place, recording);
    states.of_thread(&place, ThreadKey { id: recording.thread, pointer: 0 }).next().unwrap()
}

/// Guarantees: the layouts of all versions are read: functions, their modules, files and current lines, through
/// methods, generators, `eval` and calls from C. Reading again gives the same functions.
#[test]
fn known_stack() {
    for (name, mut recording, mut reader) in recorded(&PYTHON) {
        let has_qualified_names = minor(&recording) >= 11;
        let expected = STACK.map(|(function, file, line)| {
            // Before 3.11, methods show the name of their class, taken from their first argument.
            let short = function.rsplit('.').next().filter(|short| !has_qualified_names && *short != "methode");
            (short.unwrap_or(function).to_owned(), file.to_owned(), line)
        });
        assert_eq!(reader.read(&mut recording, true), expected, "{name}");
        let functions = reader.known.len();
        assert_eq!(reader.read(&mut recording, false), expected, "{name}");
        assert_eq!(reader.known.len(), functions, "{name}");
        assert!(reader.resolved.iter().all(|frame| !frame.unknown));
        assert!(reader.known.iter().all(|function| function.kind == FunctionKind::CPython));
        assert!(reader.known.iter().any(|function| (function.name.as_str(), function.line) == ("wait", 19)));
        let modules: Vec<&str> = reader.known.iter().map(|function| function.module.as_str()).collect();
        assert!(modules.iter().filter(|module| **module == "__main__").count() >= 7, "{name}: {modules:?}");
        assert!(modules.iter().all(|module| ["__main__", ""].contains(module)), "{name}: {modules:?}");
        let instruction = reader.captured.frames[0].instruction;
        assert!(!has_qualified_names || reader.resolved[0].code.contains(&instruction), "{name}");
    }
}

/// Guarantees: a function that was never read is found if an address in its instructions and, among other words, the
/// address of its frame are given; without its frame, or with an address in another function, none is found.
#[test]
fn functions_by_their_frames() {
    for (name, mut recording, mut reader) in recorded(&PYTHON) {
        let expected = reader.read(&mut recording, true);
        let mut seen = Vec::new();
        for ((frame, resolved), (function, file, _)) in
            reader.captured.frames.iter().zip(&reader.resolved).zip(&expected)
        {
            // Up to 3.10 the class was looked up, and recorded, only for the first frame of each method.
            let short = function.rsplit('.').next().filter(|_| minor(&recording) < 11 && seen.contains(&frame.code));
            let function = short.unwrap_or(function);
            seen.push(frame.code);
            let code = &resolved.code;
            // An address in the middle of the instruction being executed.
            let inside =
                if code.contains(&frame.instruction) { frame.instruction } else { code.start + frame.instruction };
            let mut new = Reader::new(&mut recording).unwrap();
            let mut meet = |address, words: &[u64]| {
                let met = new.instance.find_by_frames(address, words, &mut recording, &mut new.functions)?;
                let function = new.function(met.resolved.location?);
                Some((function.name, function.file))
            };
            let words = [0x1000, frame.address, frame.address ^ 4, u64::MAX];
            assert_eq!(meet(inside, &words[..1]), None, "{name}");
            assert_eq!(meet(code.end, &words), None, "{name}");
            assert_eq!(meet(inside, &words), Some((function.to_owned(), file.clone())), "{name}");
        }
    }
}

/// Guarantees: each frame belongs to the native call that executes it: one frame per call up to 3.10; later, frames
/// called by Python code share a call. From 3.10 on each call has an anchor on the native stack, at a higher address
/// for callers.
#[test]
fn calls() {
    for (name, mut recording, mut reader) in recorded(&PYTHON) {
        reader.read(&mut recording, true);
        let minor = minor(&recording);
        let ends: Vec<usize> = reader.captured.segments.iter().map(|segment| segment.end).collect();
        let expected: &[usize] = match minor {
            ..=10 => &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10],
            // Each resumption of a generator is a separate call.
            11 => &[2, 3, 4, 5, 10],
            _ => &ends,
        };
        assert_eq!(reader.instance.has_calls_of_one(), minor <= 10, "{name}");
        assert_eq!((ends.as_slice(), ends.last()), (expected, Some(&10)), "{name}");
        let anchors: Vec<u64> = reader.captured.segments.iter().filter_map(|segment| segment.anchor).collect();
        assert_eq!(anchors.len(), if minor >= 10 { ends.len() } else { 0 }, "{name}");
        assert!(anchors.is_sorted_by(|inner, outer| inner < outer), "{name}");
    }
}

/// Guarantees: up to 3.10, among functions that share their instructions, the function whose code object is among the
/// words is found, and none without such a word; instructions that unknown functions may share are not attributed to
/// the known one.
#[test]
fn shared_instructions() {
    for (name, mut recording, mut reader) in recorded(UP_TO_3_10) {
        reader.read(&mut recording, true);
        let layout = place(&mut recording).layout;
        let Instructions::Object { at } = layout.code.instructions else { panic!("{name}") };
        let (one, other) = (reader.captured.frames[0].code, reader.captured.frames[2].code);
        let start = reader.resolved[0].code.start;
        let (address, object) = (start + 2, start - u64::from(layout.object.bytes_data));
        let hit = |hit: Option<Executed>| hit.map(|hit| (hit.code, hit.shared));
        for (references, shared) in [(1, false), (2, true)] {
            recording.add(object, &u64::to_le_bytes(references));
            let found = reader.instance.executed(address, &mut recording, &mut reader.functions);
            assert_eq!(hit(found), Some((one, shared)), "{name}");
        }
        // The other function has the same instructions.
        recording.add(other + u64::from(at), &object.to_le_bytes());
        let mut reader = Reader::new(&mut recording).unwrap();
        reader.read(&mut recording, true);
        for (words, found) in [([5, one], Some(one)), ([other, 7], Some(other)), ([one, other], None), ([5, 7], None)] {
            let among = reader.instance.executed_among(address, &words, &mut recording, &mut reader.functions);
            assert_eq!(hit(among), found.map(|code| (code, false)), "{name}");
        }
    }
}

/// Adds `count` callers of the same function to the outermost frame of a recording.
fn add_callers(recording: &mut Recording, outermost: u64, count: u64) {
    const MORE: u64 = 0x7abc_0000_0000;
    let layout = place(recording).layout.frame;
    let at = layout.previous as usize;
    let mut frame = vec![0; layout.size as usize];
    assert!(recording.read(outermost, &mut frame));
    for index in 0..count {
        let next = MORE + (index + 1) * u64::from(layout.size);
        frame[at..at + 8].copy_from_slice(&(if index + 1 < count { next } else { 0 }).to_le_bytes());
        recording.add(next - u64::from(layout.size), &frame);
    }
    recording.add(outermost + at as u64, &MORE.to_le_bytes());
}

/// Guarantees: of a stack with more frames than may be read, the innermost are returned, the result says that there are
/// more, and nothing is read twice; reading chains that are circular or lead to unreadable memory terminates, and they
/// are not mistaken for many frames.
#[test]
fn too_many_frames() {
    for (name, mut recording, mut reader) in recorded(&PYTHON) {
        reader.capture(&mut recording, MAX_FRAMES).unwrap();
        let whole = reader.captured.clone();
        assert!(!whole.cut && !whole.too_many, "{name}");
        let previous = u64::from(place(&mut recording).layout.frame.previous);
        let [.., first, second] = whole.frames[..] else { panic!() };
        add_callers(&mut recording, second.address, 1100);
        // From 3.11 on adjacent frames are read at once, and each other frame by itself.
        for (limit, most) in [(MAX_FRAMES, MAX_FRAMES), (64, 10 + 64 + 32)] {
            let reads = reader.capture(&mut recording, limit).unwrap();
            let deep = &reader.captured;
            assert!(deep.cut && deep.too_many, "{name}");
            assert!((limit.min(64)..=most).contains(&deep.frames.len()), "{name}: {}", deep.frames.len());
            assert!(reads <= most + 100, "{name}: {reads}");
            assert_eq!(deep.frames[..9], whole.frames[..9], "{name}");
            // The outermost frame points back to itself or to another frame, or to unreadable memory.
            for back in [first.address, second.address, 0x1000, 0x7abc_0000_0004] {
                let mut recording = recording.clone();
                recording.add(second.address + previous, &back.to_le_bytes());
                let reads = reader.capture(&mut recording, limit).unwrap();
                assert!(reader.captured.cut && !reader.captured.too_many, "{name}: {back:#x}");
                assert!(reader.captured.frames.len() <= MAX_FRAMES && reads <= most + 100, "{name}: {reads}");
            }
        }
    }
}

/// Guarantees: reading a circular list of threads terminates.
#[test]
fn attack_circles() {
    for (name, mut recording, _) in recorded(&PYTHON) {
        let (place, state) = (place(&mut recording), state(&mut recording));
        recording.add(state.address + u64::from(place.layout.thread.next), &state.address.to_le_bytes());
        let key = ThreadKey { id: recording.thread, pointer: 0 };
        let (mut counted, mut states) =
            (CountingTarget { target: &mut recording, reads: 0 }, InterpreterThreads::default());
        states.walk(&place, &mut counted);
        assert!(counted.reads < 4 * 8192 + 1024, "{name}: {}", counted.reads);
        assert!(states.knows(&place, key));
    }
}
