use std::collections::HashSet;

use super::*;
use crate::message::FunctionKind;
use crate::runtime::recording::{PHP, check_replaced_code, recorded};
use crate::runtime::target::word;
use crate::runtime::{MAX_FRAMES, Recording, UNKNOWN_FUNCTION};

const FILE: &str = "/tmp/recorded/program.php";

/// The functions and lines of the recorded stack, innermost first, as in the program's source. Up to 7.4 the line of a
/// call is its last line.
fn expected(recording: &Recording) -> Vec<(String, String, u32)> {
    let (minor, major) = (recording.version >> 8 & 0xff, recording.version >> 16);
    let closure = if major >= 8 && minor >= 4 {
        r"Läden\Korb::{closure:Läden\Korb::summe():11}"
    } else {
        r"Läden\Korb::Läden\{closure}"
    };
    let called = |line: u32, end: u32| if major < 8 { end } else { line };
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

/// Guarantees: the layouts of all versions are read: functions, files and current lines, through methods, closures,
/// delegating generators, `eval` and native functions. Reading again gives the same functions. Frames that one native
/// call of the evaluation function executes belong together: those of a callback, of a generator together with the
/// generators that delegate to it, and of a script.
#[test]
fn known_stack() {
    for (name, mut recording, mut reader) in recorded(&PHP) {
        for has_not_run in [true, false] {
            assert_eq!(reader.read(&mut recording, has_not_run), expected(&recording), "{name}");
        }
        assert!(reader.resolved.iter().all(|frame| !frame.unknown));
        assert!(reader.known.iter().all(|function| function.kind == FunctionKind::Php));
        let mut known = HashSet::new();
        assert!(reader.known.iter().all(|function| known.insert(function.clone())), "{name}");
        assert_eq!(reader.known.iter().find(|function| function.name.ends_with("summe")).unwrap().line, 6);
        let ends: Vec<usize> = reader.captured.segments.iter().map(|segment| segment.end).collect();
        assert_eq!((ends.as_slice(), reader.captured.cut), (&[5, 7, 12][..], false), "{name}");
    }
}

/// Guarantees: an address in a function's instructions finds the function and the line, the start address of a native
/// function finds that function, and other addresses find nothing.
#[test]
fn executed() {
    for (name, mut recording, mut reader) in recorded(&PHP) {
        // Functions that are seen for the first time are not accepted yet.
        reader.read(&mut recording, true);
        reader.read(&mut recording, true);
        let wanted = expected(&recording);
        for index in [1, 2, 8, 11] {
            let instruction = reader.captured.frames[index].instruction;
            assert!(reader.resolved[index].code.contains(&instruction), "{name}");
            assert_eq!(reader.executed(instruction, &mut recording), Some((wanted[index].clone(), false)), "{name}");
        }
        let native = reader.resolved[7].code.clone();
        assert_eq!(native.end - native.start, 1);
        assert_eq!(reader.executed(native.start, &mut recording), Some((wanted[7].clone(), false)), "{name}");
        for address in [0, native.start + 1, reader.resolved[1].code.end, u64::MAX] {
            assert_eq!(reader.executed(address, &mut recording), None, "{name}");
        }
    }
}

/// Guarantees: see [`check_replaced_code`]. Here `summe` gets the name of `innen`.
#[test]
fn replaced_code() {
    check_replaced_code(&PHP, (8, 3), |_, code| code + layout::function::NAME as u64);
}

/// Guarantees: the text of a name is compared, not only its address: a string replaced in place is noticed.
#[test]
fn replaced_text() {
    for (name, mut recording, mut reader) in recorded(&PHP) {
        reader.read(&mut recording, true);
        let text = word(&mut recording, reader.captured.frames[8].code + layout::function::NAME as u64).unwrap();
        recording.add(text + layout::string::HASH, &[7; 8]);
        recording.add(text + layout::string::TEXT, b"zahle");
        assert_eq!(reader.read(&mut recording, false)[8].0, UNKNOWN_FUNCTION, "{name}");
        assert_eq!(reader.read(&mut recording, false)[8].0, r"Läden\Korb::zahle", "{name}");
    }
}

/// Guarantees: code that may be freed at any time (closures, scripts, `eval`) is accepted for a thread that has run
/// since the sample only if the code was known before: code seen for the first time may have replaced the executed
/// code. A closure counts as known if another one from the same source position was known, since each closure object
/// has its own copy of the function.
#[test]
fn fleeting_code() {
    for (name, mut recording, mut reader) in recorded(&PHP) {
        let wanted = expected(&recording);
        for (index, frame) in reader.read(&mut recording, false).iter().enumerate() {
            let function = if [2, 6, 11].contains(&index) { UNKNOWN_FUNCTION } else { &wanted[index].0 };
            assert_eq!(frame.0, function, "{name}");
        }
        let frame = reader.captured.frames[6];
        assert_eq!(reader.executed(frame.instruction, &mut recording), None, "{name}");
        assert_eq!(reader.read(&mut recording, false), wanted, "{name}");
        assert!(reader.executed(frame.instruction, &mut recording).is_some(), "{name}");
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
    for (name, mut recording, mut reader) in recorded(&PHP) {
        let wanted = reader.read(&mut recording, true);
        let (foreign, own) = (0x1234, recording.runtime + 1000);
        for (frame, instruction, function) in
            [(1, foreign, wanted[1].0.as_str()), (8, foreign, UNKNOWN_FUNCTION), (8, own, wanted[8].0.as_str())]
        {
            recording.add(reader.captured.frames[frame].address, &instruction.to_le_bytes());
            let frames = reader.read(&mut recording, true);
            assert_eq!((frames[frame].0.as_str(), frames[frame].2), (function, 0), "{name}");
        }
    }
}

/// Guarantees: reading a circular chain of frames terminates; of a stack with more frames than may be read one by one,
/// the innermost are returned, and the result is marked as cut.
#[test]
fn attack_circles() {
    for (name, mut recording, mut reader) in recorded(&PHP) {
        reader.read(&mut recording, true);
        let frames: Vec<u64> = reader.captured.frames.iter().map(|frame| frame.address).collect();
        let last = frames[frames.len() - 1];
        for back in [last, frames[0]] {
            recording.add(last + layout::frame::PREVIOUS as u64, &back.to_le_bytes());
            for limit in [64, MAX_FRAMES] {
                let reads = reader.capture(&mut recording, limit).unwrap();
                assert!(reader.captured.cut && reader.captured.frames.len() <= MAX_FRAMES, "{name}");
                assert!(reads <= 2 * (limit + 32), "{name}: {reads}");
            }
        }
    }
}
