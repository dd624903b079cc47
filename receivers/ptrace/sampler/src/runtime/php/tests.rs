use std::collections::HashSet;
use std::time::Duration;

use super::*;
use crate::message::FunctionKind;
use crate::runtime::recording::{Counted, Reader};
use crate::runtime::{MAX_FRAMES, Recording};

macro_rules! recordings {
    ($($name:literal),+) => {
        [$(($name, include_bytes!(concat!("../../../tests/recordings/php-", $name, ".bin")) as &[u8])),+]
    };
}

/// The same stack of `tests/recordings/program.php`, recorded in each PHP version.
const RECORDINGS: [(&str, &[u8]); 6] = recordings!("7.4", "8.2", "8.2-opcache", "8.3", "8.4", "8.5");

const FILE: &str = "/tmp/recorded/program.php";

/// The functions and lines of that stack, innermost first, as in the program's source. Up to 7.4 the line of a call is
/// its last line.
fn stack(minor: u32, major: u32) -> Vec<(String, String, u32)> {
    let (is_old, says_place) = (major < 8, major >= 8 && minor >= 4);
    let closure =
        if says_place { r"Läden\Korb::{closure:Läden\Korb::summe():11}" } else { r"Läden\Korb::Läden\{closure}" };
    let called = |line: u32, end: u32| if is_old { end } else { line };
    let evaluated = format!("{FILE}(32) : eval()'d code");
    let frames = [
        ("sleep", "", 0),
        (r"Läden\Korb::warten", FILE, called(19, 20)),
        ("eval", &evaluated, 1),
        (r"Läden\innen", FILE, 32),
        (r"Läden\außen", FILE, 27),
        ("iterator_to_array", "", 0),
        (closure, FILE, 12),
        ("array_map", "", 0),
        (r"Läden\Korb::summe", FILE, called(11, 13)),
        (r"Läden\Korb::summe", FILE, 9),
        (r"Läden\Korb::summe", FILE, 9),
        ("{main}", FILE, 35),
    ];
    frames.iter().map(|(name, file, line)| ((*name).to_owned(), (*file).to_owned(), *line)).collect()
}

fn expected(recording: &Recording) -> Vec<(String, String, u32)> {
    stack(recording.version >> 8 & 0xff, recording.version >> 16)
}

fn all() -> impl Iterator<Item = (&'static str, Recording, Reader)> {
    RECORDINGS.into_iter().map(|(name, bytes)| {
        let mut recording = Recording::parse(bytes).unwrap();
        let reader = Reader::new(&mut recording).unwrap();
        (name, recording, reader)
    })
}

/// Guarantees: the layouts of all versions are read: functions, files and current lines, through methods, closures,
/// delegating generators, `eval` and native functions. Reading again gives the same functions.
#[test]
fn known_stack() {
    for (name, mut recording, mut reader) in all() {
        for stands in [true, false] {
            let wanted = expected(&recording);
            assert_eq!(reader.read(&mut recording, stands), wanted, "{name}");
        }
        assert!(reader.resolved.iter().all(|frame| !frame.unknown));
        assert!(reader.told.iter().all(|function| function.kind == FunctionKind::Php));
        let mut told = HashSet::new();
        assert!(reader.told.iter().all(|function| told.insert(function.clone())), "{name}");
        assert_eq!(reader.told.iter().find(|function| function.name.ends_with("summe")).unwrap().line, 6);
        // The instruction of a frame is within those of its function.
        let instruction = reader.captured.frames[1].instruction;
        assert!(reader.resolved[1].code.contains(&instruction), "{name}");
    }
}

/// Guarantees: frames that one native call of the evaluation function executes belong together: those of a callback,
/// of a generator with the ones that delegate to it, and of a script.
#[test]
fn calls() {
    for (name, mut recording, mut reader) in all() {
        reader.read(&mut recording, true);
        let ends: Vec<usize> = reader.captured.segments.iter().map(|segment| segment.end).collect();
        assert_eq!(ends, [5, 7, 12], "{name}");
        assert!(!reader.captured.cut);
        let held = reader.instance.held().unwrap();
        // A recording contains no code.
        assert_eq!((held.evaluation, held.registers), (0..0, None));
    }
}

/// Guarantees: an address in a function's instructions finds the function and the line, the start address of a native
/// function finds that, and other addresses find nothing.
#[test]
fn executed() {
    for (name, mut recording, mut reader) in all() {
        // Functions seen for the first time are not accepted yet.
        reader.read(&mut recording, true);
        reader.read(&mut recording, true);
        let wanted = expected(&recording);
        for index in [1, 2, 8, 11] {
            let instruction = reader.captured.frames[index].instruction;
            let found = reader.executed(instruction, &mut recording);
            assert_eq!(found, Some((wanted[index].clone(), false)), "{name}");
        }
        let native = reader.resolved[7].code.clone();
        assert_eq!(native.end - native.start, 1);
        assert_eq!(reader.executed(native.start, &mut recording), Some((wanted[7].clone(), false)), "{name}");
        let behind = reader.resolved[1].code.end;
        for address in [0, native.start + 1, behind, u64::MAX] {
            assert_eq!(reader.executed(address, &mut recording).map(|found| found.0.0), None, "{name}");
        }
    }
}

/// Guarantees: if another function has replaced one, it is unknown for a thread that has run since and never shows the
/// other's name; the next sample shows the new name, and a stopped thread shows it at once.
#[test]
fn replaced_code() {
    for (name, whole, _) in all() {
        for stands in [false, true] {
            let mut recording = whole.clone();
            let mut reader = Reader::new(&mut recording).unwrap();
            let before = reader.read(&mut recording, true);
            // `summe` takes the name of `innen`.
            let at = |frame: usize| reader.captured.frames[frame].code + layout::function::NAME as u64;
            let (to, from) = (at(8), at(3));
            let mut pointer = [0; 8];
            assert!(recording.read(from, &mut pointer));
            recording.add(to, &pointer);
            let instruction = reader.captured.frames[8].instruction;
            let now = reader.read(&mut recording, stands);
            let renamed = r"Läden\Korb::Läden\innen";
            for frame in 8..11 {
                let wanted = if stands { renamed } else { "[unknown function]" };
                // The change is detected once; after that the function has its new name.
                assert!(now[frame].0 == wanted || (frame > 8 && now[frame].0 == renamed), "{name}: {now:?}");
            }
            assert_eq!((&now[..8], &now[11]), (&before[..8], &before[11]));
            assert_eq!(reader.read(&mut recording, false)[8].0, renamed, "{name}");
            assert_eq!(reader.executed(instruction, &mut recording).unwrap().0.0, renamed, "{name}");
        }
    }
}

/// Guarantees: the text of a name is compared, not only its address: a string replaced in place is noticed.
#[test]
fn replaced_text() {
    for (name, mut recording, mut reader) in all() {
        reader.read(&mut recording, true);
        let mut pointer = [0; 8];
        assert!(recording.read(reader.captured.frames[8].code + layout::function::NAME as u64, &mut pointer));
        let text = u64::from_le_bytes(pointer);
        recording.add(text + layout::string::HASH, &[7; 8]);
        recording.add(text + layout::string::TEXT, b"zahle");
        assert_eq!(reader.read(&mut recording, false)[8].0, "[unknown function]", "{name}");
        assert_eq!(reader.read(&mut recording, false)[8].0, r"Läden\Korb::zahle", "{name}");
    }
}

/// Guarantees: code that may be freed at any time (closures, scripts, `eval`) is accepted for a thread that has run
/// since only if it was known before: code seen for the first time may have replaced the executed code.
#[test]
fn fleeting_code() {
    for (name, mut recording, mut reader) in all() {
        let first = reader.read(&mut recording, false);
        let wanted = expected(&recording);
        let fleeting = [2, 6, 11];
        for (index, frame) in first.iter().enumerate() {
            let name = if fleeting.contains(&index) { "[unknown function]" } else { wanted[index].0.as_str() };
            assert_eq!(frame.0, name);
        }
        let instruction = reader.captured.frames[2].instruction;
        assert_eq!(reader.executed(instruction, &mut recording), None, "{name}");
        assert_eq!(reader.read(&mut recording, false), wanted, "{name}");
        assert!(reader.executed(instruction, &mut recording).is_some(), "{name}");
    }
}

/// Guarantees: such code counts as known only for samples taken after it was read, also if samples are processed long
/// after they were taken; another closure from the same source position is not new.
#[test]
fn fleeting_code_of_earlier_samples() {
    for (name, mut recording, mut reader) in all() {
        let start = reader.now;
        let wanted = expected(&recording);
        let at = |seconds| start + Duration::from_secs(seconds);
        for (now, sampled, is_known) in [(10, 9, false), (12, 9, false), (13, 11, false), (14, 13, true)] {
            reader.now = at(now);
            let read = reader.read_of(&mut recording, Some(at(sampled)));
            for index in [2, 6, 11] {
                let expected = if is_known { wanted[index].0.as_str() } else { "[unknown function]" };
                assert_eq!(read[index].0, expected, "{name}, at {now}");
                let instruction = reader.captured.frames[index].instruction;
                assert_eq!(reader.executed(instruction, &mut recording).is_some(), is_known, "{name}, at {now}");
            }
            assert_eq!((&read[0], &read[1]), (&wanted[0], &wanted[1]), "{name}");
        }
    }
}

/// Guarantees: a closure is known if another one from the same source position was, since each closure object has its
/// own copy of the function.
#[test]
fn another_closure() {
    for (name, mut recording, mut reader) in all() {
        reader.read(&mut recording, true);
        let wanted = reader.read(&mut recording, true);
        let frame = reader.captured.frames[6];
        let (start, bytes) = recording.parts.range(..=frame.code).next_back().unwrap();
        let function = bytes[(frame.code - start) as usize..].to_vec();
        let copy = 0x1000_0000;
        recording.add(copy, &function);
        recording.add(frame.address + layout::frame::FUNCTION as u64, &copy.to_le_bytes());
        assert_eq!(reader.read(&mut recording, false), wanted, "{name}");
        assert_eq!(reader.captured.frames[6].code, copy);
        let found = reader.executed(frame.instruction, &mut recording);
        assert_eq!(found, Some((wanted[6].clone(), false)), "{name}");
    }
}

/// Guarantees: a frame whose instruction is outside of its function's code is unknown, unless the instruction is one
/// of PHP's own; the innermost function may not have stored its position yet.
#[test]
fn foreign_instruction() {
    for (name, mut recording, mut reader) in all() {
        let wanted = reader.read(&mut recording, true);
        let (inner, outer) = (reader.captured.frames[1].address, reader.captured.frames[8].address);
        for (address, frame, expected) in [(inner, 1, wanted[1].0.as_str()), (outer, 8, "[unknown function]")] {
            recording.add(address, &0x1234u64.to_le_bytes());
            let frames = reader.read(&mut recording, true);
            assert_eq!((frames[frame].0.as_str(), frames[frame].2), (expected, 0), "{name}");
        }
        recording.add(outer, &(recording.runtime + 1000).to_le_bytes());
        assert_eq!(reader.read(&mut recording, true)[8], (wanted[8].0.clone(), wanted[8].1.clone(), 0), "{name}");
    }
}

/// Guarantees: circular chains of frames end; of a stack with more frames than may be read one by one, the innermost
/// are returned, and it is marked as cut.
#[test]
fn attack_circles() {
    for (name, mut recording, mut reader) in all() {
        reader.read(&mut recording, true);
        let frames: Vec<u64> = reader.captured.frames.iter().map(|frame| frame.address).collect();
        let last = frames[frames.len() - 1];
        for back in [last, frames[0]] {
            recording.add(last + layout::frame::PREVIOUS as u64, &back.to_le_bytes());
            for limit in [64, MAX_FRAMES] {
                let mut counted = Counted { recording: &mut recording, reads: 0 };
                let key = ThreadKey { id: 1, pointer: 0 };
                let Reader { instance, captured, .. } = &mut reader;
                assert!(instance.capture(key, limit, Instant::now(), &mut counted, captured));
                assert!(captured.cut && captured.frames.len() <= MAX_FRAMES, "{name}");
                assert!(counted.reads as usize <= 2 * (limit + 32), "{name}: {}", counted.reads);
            }
        }
    }
}

/// Guarantees: if any word that is read is flipped, zeroed, huge or points at itself, nothing panics, the number of
/// frames is bounded, and texts are within their limits.
#[test]
fn attack_words() {
    for (name, whole, _) in all() {
        for (at, mut recording) in whole.hostile() {
            let Some(mut reader) = Reader::new(&mut recording) else { continue };
            let frames = reader.read(&mut recording, at % 16 == 0);
            assert!(frames.len() <= MAX_FRAMES, "{name}");
            assert!(frames.iter().all(|(function, file, _)| function.len() <= 512 && file.len() <= 1024));
            let Some(frame) = reader.captured.frames.first().copied() else { continue };
            reader.executed(frame.instruction, &mut recording);
        }
    }
}

/// Guarantees: while its thread is stopped, one stack costs only a few reads, since frames are adjacent.
#[test]
fn few_reads() {
    for (name, mut recording, mut reader) in all() {
        let mut counted = Counted { recording: &mut recording, reads: 0 };
        let key = ThreadKey { id: 1, pointer: 0 };
        let Reader { instance, captured, .. } = &mut reader;
        assert!(instance.capture(key, MAX_FRAMES, Instant::now(), &mut counted, captured));
        assert_eq!(captured.frames.len(), 12);
        // A recording has only the memory that was read, so some windows are incomplete in it.
        assert!(counted.reads <= 16, "{name}: {} reads", counted.reads);
    }
}
