//! Sequences, classes and C functions that change, possibly while they are read, or are unreadable for a moment.

use super::*;
use crate::runtime::recording::{Hidden, check_code_replaced_during_reads, check_replaced_code};

fn layout(recording: &Recording) -> layout::RubyLayout {
    RubyPlace::at(0, 0, recording.version).unwrap().layout
}

/// The address of the body of the sequence that a frame executes.
fn body(reader: &Reader, frame: usize, recording: &mut Recording) -> u64 {
    word(recording, reader.captured.frames[frame].code + 16).unwrap()
}

/// Guarantees: see [`check_replaced_code`]. The second frame gets the label of another method.
#[test]
fn replaced_code() {
    check_replaced_code(&RUBY, (1, 4), |recording, code| word(recording, code + 16).unwrap() + 64 + 16);
}

/// Guarantees: see [`check_code_replaced_during_reads`]. Another text also replaces the label.
#[test]
fn code_replaced_during_reads() {
    check_code_replaced_during_reads(&RUBY, 1, None, |reader, recording| {
        let [inner, outer] = [1, 4].map(|frame| body(reader, frame, recording));
        let [inner_label, outer_label] = [inner, outer].map(|body| word(recording, body + 80).unwrap());
        let mut text = [0; 40];
        assert!(recording.read(outer_label, &mut text));
        recording.add(inner_label, &text);
        recording.add(reader.captured.frames[1].code + 16, &outer.to_le_bytes());
    });
}

/// Guarantees: a line that could not be read is read again later.
#[test]
fn lines_that_cannot_be_read() {
    for (name, mut recording, mut reader) in recorded(&RUBY) {
        let layout = layout(&recording);
        let expected = reader.read(&mut recording, true);
        let body = body(&reader, 1, &mut recording);
        let info = word(&mut recording, body + u64::from(layout.info)).unwrap();
        let mut reader = Reader::new(&mut recording).unwrap();
        reader.capture(&mut recording, MAX_FRAMES);
        let mut hidden = Hidden { recording: &mut recording, hidden: info..info + 0x100 };
        let without = reader.resolve(&mut hidden, true);
        assert_eq!((&without[1].0, without[1].2), (&expected[1].0, 0), "{name}");
        assert_eq!(reader.read(&mut recording, false), expected, "{name}");
    }
}

/// The address of the class whose method a frame executes.
fn class(reader: &Reader, frame: usize, recording: &mut Recording) -> u64 {
    let raw = reader.captured.frames[frame];
    let mut method = if raw.instruction == 0 { raw.code } else { raw.owner };
    if !objects::is_internal(word(recording, method).unwrap(), objects::METHOD) {
        method = word(recording, method + 8).unwrap();
    }
    word(recording, method + 32).unwrap()
}

/// Guarantees: a method whose class is unknown is shown without a class until the class is known; if another class has
/// replaced it, the method is shown with the new class.
#[test]
fn names_of_classes() {
    for (name, whole, mut reader) in recorded(&RUBY[3..]) {
        let path = u64::from(layout(&whole).class.unwrap().path);
        let expected = reader.read(&mut whole.clone(), true);
        let is_method = |frame: &usize| expected[*frame].0.contains('#') && !expected[*frame].0.contains(' ');
        let frames: Vec<usize> = (0..expected.len()).filter(is_method).collect();
        let is_native = |frame: &&usize| reader.captured.frames[**frame].instruction == 0;
        assert!(frames.iter().any(|frame| is_native(&frame)) && !frames.iter().all(|frame| is_native(&frame)));
        for frame in frames {
            let mut recording = whole.clone();
            let class = class(&reader, frame, &mut recording);
            let text = word(&mut recording, class + path).unwrap();
            let short = expected[frame].0.split_once('#').unwrap().1;
            let mut late = Reader::new(&mut recording).unwrap();
            late.capture(&mut recording, MAX_FRAMES);
            let mut hidden = Hidden { recording: &mut recording, hidden: text..text + 40 };
            assert_eq!(late.resolve(&mut hidden, true)[frame].0, short, "{name}");
            // The fingerprint of the class has changed, so a thread that has run since may have executed another
            // method.
            late.read(&mut recording, false);
            assert_eq!(late.read(&mut recording, false)[frame].0, expected[frame].0, "{name}");
            // Another class has replaced the class.
            let other = 0x7000_0000u64;
            let mut string = [0; 64];
            assert!(recording.read(text, &mut string[..40]));
            string[16..24].copy_from_slice(&5u64.to_le_bytes());
            string[24..29].copy_from_slice(b"Other");
            let flags = word_at(&string, 0) & !(1 << 13);
            string[..8].copy_from_slice(&flags.to_le_bytes());
            recording.add(other, &string);
            recording.add(class + path, &other.to_le_bytes());
            late.read(&mut recording, false);
            for has_not_run in [false, true] {
                assert_eq!(late.read(&mut recording, has_not_run)[frame].0, format!("Other#{short}"), "{name}");
            }
        }
    }
}

/// Guarantees: checking known functions again costs a few reads for each function, no matter how deep a recursion is,
/// and no reads of symbol names.
#[test]
fn few_reads_of_what_is_known() {
    for (name, mut recording, mut reader) in recorded(&RUBY) {
        reader.read(&mut recording, false);
        let expected = reader.read(&mut recording, false);
        let symbols = recording.pointer;
        let mut distinct: Vec<u64> = reader.captured.frames.iter().map(|frame| frame.code).collect();
        distinct.sort_unstable();
        distinct.dedup();
        for depth in [0, 500] {
            // The innermost method calls itself.
            let at = expected.iter().position(|(name, ..)| name.ends_with("wait_here")).unwrap();
            let frame = reader.captured.frames[at];
            reader.captured.frames.splice(at..at, vec![frame; depth]);
            reader.instance.sampled(Some(reader.now), reader.now);
            let mut without = Hidden { recording: &mut recording, hidden: symbols..symbols + 8 };
            let mut counted = CountingTarget { target: &mut without, reads: 0 };
            let now = reader.resolve(&mut counted, false);
            assert_eq!((&now[..at], &now[at + depth..]), (&expected[..at], &expected[at..]), "{name}");
            // For a sequence: header, body and two texts; for a method: the entry, definition, class and class name.
            let (reads, count) = (counted.reads, distinct.len());
            assert!(reads <= 8 * count, "{name}: {reads} reads of {count}, {depth} times");
        }
    }
}
