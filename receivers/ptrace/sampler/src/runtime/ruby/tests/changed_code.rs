//! Sequences, classes and C functions that change, possibly while they are read, or are unreadable for a moment.

use super::*;
use crate::runtime::recording::{Changing, Hidden};

fn layout(recording: &Recording) -> layout::Layout {
    Place::at(0, 0, recording.version).unwrap().layout
}

/// Guarantees: if another sequence has replaced one, the function is unknown for a thread that has run since and never
/// shows the other's name; the next sample shows the new name, and a stopped thread shows it at once.
#[test]
fn replaced_code() {
    for (name, bytes, _) in RECORDINGS {
        for stands in [false, true] {
            let mut recording = Recording::parse(bytes).unwrap();
            let mut reader = Reader::new(&mut recording).unwrap();
            let before = reader.read(&mut recording, true);
            let body = |frame: usize, recording: &mut Recording| {
                word(recording, reader.captured.frames[frame].code + 16).unwrap()
            };
            // The second frame takes the label of the third one, which belongs to another method.
            let (inner, outer) = (body(1, &mut recording), body(4, &mut recording));
            let label = word(&mut recording, outer + 64 + 16).unwrap();
            recording.add(inner + 64 + 16, &label.to_le_bytes());
            let now = reader.read(&mut recording, stands);
            if stands {
                assert!(now[1].0.ends_with("wait_here"), "{name}: {now:?}");
            } else {
                assert_eq!((now[1].0.as_str(), now[1].2), ("[unknown function]", 0), "{name}");
                assert!(reader.resolved[1].unknown);
            }
            assert_eq!(now[2..], before[2..], "{name}");
            assert!(reader.read(&mut recording, false)[1].0.ends_with("wait_here"), "{name}");
        }
    }
}

/// Guarantees: if another sequence replaces one while it is read, and another text replaces its label, name and line
/// are both from one of the two, or the function is unknown.
#[test]
fn code_that_is_replaced_while_it_is_read() {
    for (name, bytes, _) in RECORDINGS {
        let before = Recording::parse(bytes).unwrap();
        let mut reader = Reader::new(&mut before.clone()).unwrap();
        let whole = reader.read(&mut before.clone(), true);
        let mut after = before.clone();
        let (inner, outer) = (reader.captured.frames[1].code, reader.captured.frames[4].code);
        let [inner_body, outer_body] = [inner, outer].map(|code| word(&mut after, code + 16).unwrap());
        let [inner_label, outer_label] = [inner_body, outer_body].map(|body| word(&mut after, body + 80).unwrap());
        let mut text = [0; 40];
        assert!(after.read(outer_label, &mut text));
        after.add(inner_label, &text);
        after.add(inner + 16, &outer_body.to_le_bytes());
        let mut met = [false; 2];
        for at in 0.. {
            let mut new = Reader::new(&mut before.clone()).unwrap();
            let key = Reader::key(&before);
            assert!(new.instance.capture(key, MAX_FRAMES, new.now, &mut before.clone(), &mut new.captured));
            let mut changing = Changing { before: before.clone(), after: after.clone(), reads: 0, at };
            let read = new.resolve(&mut changing, false);
            let is_unknown = new.resolved[1].unknown;
            assert!(is_unknown || read[1] == whole[1], "{name}, at {at}: {:?}", read[1]);
            met[usize::from(is_unknown)] = true;
            if changing.reads < at {
                break;
            }
        }
        assert_eq!(met, [true; 2], "{name}");
    }
}

/// Guarantees: a sequence counts as known before a sample only if it was read before the sample was taken, also if
/// samples are processed long after they were taken.
#[test]
fn code_that_is_known_before_a_sample() {
    for (name, bytes, _) in RECORDINGS {
        let mut recording = Recording::parse(bytes).unwrap();
        let mut reader = Reader::new(&mut recording).unwrap();
        let start = reader.now;
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut is_fresh = |sampled: Option<u64>, now| {
            reader.now = at(now);
            reader.read_of(&mut recording, sampled.map(at));
            reader.instance.is_fresh(reader.captured.frames[1].code)
        };
        assert!(is_fresh(Some(59), 60), "{name}");
        assert!(is_fresh(Some(59), 62) && is_fresh(Some(61), 63), "{name}");
        assert!(!is_fresh(Some(63), 64) && !is_fresh(None, 65), "{name}");
    }
}

/// Guarantees: a line that could not be read is read again.
#[test]
fn lines_that_cannot_be_read() {
    for (name, bytes, _) in RECORDINGS {
        let mut recording = Recording::parse(bytes).unwrap();
        let layout = layout(&recording);
        let mut reader = Reader::new(&mut recording).unwrap();
        let expected = reader.read(&mut recording, true);
        let body = word(&mut recording, reader.captured.frames[1].code + 16).unwrap();
        let info = word(&mut recording, body + u64::from(layout.info)).unwrap();
        let mut reader = Reader::new(&mut recording).unwrap();
        reader.instance.capture(Reader::key(&recording), MAX_FRAMES, reader.now, &mut recording, &mut reader.captured);
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

/// Guarantees: a method whose class is unknown shows no class name, and shows it as soon as the class is known; if
/// another class has replaced it, the method shows the new one's name.
#[test]
fn names_of_classes() {
    for (name, bytes, _) in &RECORDINGS[3..] {
        let whole = Recording::parse(bytes).unwrap();
        let path = u64::from(layout(&whole).class.unwrap().path);
        let mut reader = Reader::new(&mut whole.clone()).unwrap();
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
            late.instance.capture(Reader::key(&recording), MAX_FRAMES, late.now, &mut recording, &mut late.captured);
            let mut hidden = Hidden { recording: &mut recording, hidden: text..text + 40 };
            assert_eq!(late.resolve(&mut hidden, true)[frame].0, short, "{name}");
            // Its fingerprint has changed, so a thread that has run since may not have executed it.
            late.read(&mut recording, false);
            assert_eq!(late.read(&mut recording, false)[frame].0, expected[frame].0, "{name}");
            // Another class has replaced it.
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
            assert_eq!(late.read(&mut recording, false)[frame].0, format!("Other#{short}"), "{name}");
            assert_eq!(late.read(&mut recording, true)[frame].0, format!("Other#{short}"), "{name}");
        }
    }
}

/// Guarantees: checking known functions again costs a few reads for each function, whatever the depth of a recursion,
/// and none for symbol names.
#[test]
fn few_reads_of_what_is_known() {
    for (name, bytes, _) in RECORDINGS {
        let mut recording = Recording::parse(bytes).unwrap();
        let mut reader = Reader::new(&mut recording).unwrap();
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
            let mut counted = Counting { target: &mut without, reads: 0 };
            let now = reader.resolve(&mut counted, false);
            let reads = counted.reads;
            assert_eq!((&now[..at], &now[at + depth..]), (&expected[..at], &expected[at..]), "{name}");
            // Head, body and two texts of a sequence; method, definition, class and its name.
            assert!(reads <= 8 * distinct.len(), "{name}: {reads} reads of {}, {depth} times", distinct.len());
        }
    }
}

struct Counting<'a> {
    target: &'a mut dyn Target,
    reads: usize,
}

impl Target for Counting<'_> {
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> bool {
        self.reads += 1;
        self.target.read(address, bytes)
    }
}
