//! Code objects that are freed, replaced or do not match a frame, possibly while they are read.

use super::*;

/// Guarantees: if another code object has replaced one, the function is unknown for a thread that has run since and
/// never shows the other's name; the next sample shows the new name, and a stopped thread shows it at once.
#[test]
fn replaced_code() {
    for (name, bytes) in RECORDINGS {
        for stands in [false, true] {
            let mut recording = Recording::parse(bytes).unwrap();
            let mut reader = Reader::new(&mut recording).unwrap();
            let before = reader.read(&mut recording, true);
            let place = Place::at(recording.runtime, recording.version, &mut recording.clone()).unwrap();
            // The innermost function takes the name of its caller's caller.
            let at = |frame: usize| reader.captured.frames[frame].code + u64::from(place.layout.code.name);
            let (inner, outer) = (at(0), at(2));
            let mut pointer = [0; 8];
            assert!(recording.read(outer, &mut pointer));
            recording.add(inner, &pointer);
            let now = reader.read(&mut recording, stands);
            if stands {
                assert_eq!(now[0].0, before[2].0, "{name}");
            } else {
                assert_eq!((now[0].0.as_str(), now[0].2), ("[unknown function]", 0), "{name}");
                assert!(reader.resolved[0].unknown);
            }
            assert_eq!(now[1..], before[1..]);
            assert_eq!(reader.read(&mut recording, false)[0].0, before[2].0, "{name}");
        }
    }
}

/// Guarantees: if another code object replaces one while it is read, name, file and line are all from one of the two,
/// or the function is unknown.
#[test]
fn code_that_is_replaced_while_it_is_read() {
    for (name, bytes) in RECORDINGS {
        let before = Recording::parse(bytes).unwrap();
        let mut reader = Reader::new(&mut before.clone()).unwrap();
        let whole = reader.read(&mut before.clone(), true);
        let place = Place::at(before.runtime, before.version, &mut before.clone()).unwrap();
        // The code object of `wait` becomes that of the text for `eval`, which is from another file.
        let (inner, outer) = (reader.captured.frames[0].code, reader.captured.frames[1].code);
        let mut other = vec![0; place.layout.code.size()];
        let mut after = before.clone();
        assert!(after.read(outer, &mut other));
        after.add(inner, &other);
        let mut met = [false; 3];
        for at in 0.. {
            let mut new = Reader::new(&mut before.clone()).unwrap();
            assert!(new.instance.capture(
                ThreadKey { id: before.thread, pointer: 0 },
                MAX_FRAMES,
                new.now,
                &mut before.clone(),
                &mut new.captured
            ));
            let mut changing = Changing { before: before.clone(), after: after.clone(), reads: 0, at };
            new.instance.resolve(&new.captured, false, &mut changing, &mut new.functions, &mut new.resolved);
            let told = new.functions.take_fresh().unwrap().1;
            let Some(Location::Interpreted { function, line }) = new.resolved[0].location else { panic!("{name}") };
            let Function { name: said, file, .. } = &told[function as usize];
            let which = if new.resolved[0].unknown {
                0
            } else if *said == whole[0].0 {
                assert_eq!((file, line), (&whole[0].1, whole[0].2), "{name}, at {at}");
                1
            } else {
                assert_eq!((said, file.as_str()), (&whole[1].0, "<string>"), "{name}, at {at}");
                2
            };
            met[which] = true;
            if changing.reads < at {
                break;
            }
        }
        assert!(met[0] && met[1], "{name}: {met:?}");
    }
}

/// Guarantees: a freed code object yields an unknown function, whether it was known before or not: its reference count
/// is 0, or was overwritten with the address of another free block.
#[test]
fn freed_code() {
    for (name, bytes) in RECORDINGS {
        for head in [0, 0x7f12_3456_7890, 0x5566_7788_9900u64] {
            for is_known in [false, true] {
                let mut recording = Recording::parse(bytes).unwrap();
                let mut reader = Reader::new(&mut recording).unwrap();
                let before = reader.read(&mut recording, true);
                let code = reader.captured.frames[0].code;
                if !is_known {
                    reader = Reader::new(&mut recording).unwrap();
                }
                let place = Place::at(recording.runtime, recording.version, &mut recording).unwrap();
                recording.add(code, &head.to_le_bytes());
                if let Some((own, others)) = place.layout.object.references {
                    recording.add(code + u64::from(own), &[0; 4]);
                    recording.add(code + u64::from(others), &[3, 0, 0, 0, 0, 0, 0, 0]);
                }
                let now = reader.read(&mut recording, false);
                assert_eq!(now[0].0, "[unknown function]", "{name}, {head:#x}");
                assert_eq!(now[1..], before[1..], "{name}");
            }
        }
    }
}

/// Guarantees: a code object counts as known before a sample only if it was read before the sample was taken, also if
/// samples are processed long after they were taken.
#[test]
fn code_that_is_known_before_a_sample() {
    for (name, bytes) in RECORDINGS {
        let mut recording = Recording::parse(bytes).unwrap();
        let mut reader = Reader::new(&mut recording).unwrap();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut is_fresh = |sampled: Option<u64>, now| {
            reader.now = at(now);
            reader.read_of(&mut recording, sampled.map(at));
            reader.instance.is_fresh(reader.captured.frames[0].code)
        };
        assert!(is_fresh(Some(9), 10), "{name}");
        // Two more samples that were taken before it was read; one of them was processed late.
        assert!(is_fresh(Some(9), 12) && is_fresh(Some(11), 13), "{name}");
        assert!(!is_fresh(Some(13), 14) && !is_fresh(None, 15), "{name}");
    }
}

/// Guarantees: a frame is of an unknown function if its instruction is outside of the function's code and of threads'
/// copies of it.
#[test]
fn foreign_instruction() {
    for name in ["3.12", "3.13t", "3.14t", "3.14t-thread"] {
        let mut recording = recording(name);
        let mut reader = Reader::new(&mut recording).unwrap();
        reader.read(&mut recording, true);
        let (frame, code) = (reader.captured.frames[0].address, reader.resolved[0].code.clone());
        for foreign in [0x1234, code.start - 4, code.end] {
            recording.add(frame + 56, &foreign.to_le_bytes());
            let read = reader.read(&mut recording, true);
            assert_eq!((read[0].0.as_str(), read[0].2), ("[unknown function]", 0), "{name}: {foreign:#x}");
        }
    }
}

/// Guarantees: without the global lock, a freed function is unknown although its memory is unchanged, since its copies
/// of instructions may belong to another function by now.
#[test]
fn freed_code_without_the_global_lock() {
    for name in ["3.13t", "3.14t", "3.14t-thread"] {
        let mut recording = recording(name);
        let mut reader = Reader::new(&mut recording).unwrap();
        let before = reader.read(&mut recording, true);
        let (code, next) = (reader.captured.frames[0].code, reader.captured.frames[0].instruction + 2);
        let executed = |reader: &mut Reader, recording: &mut Recording| {
            reader.instance.executed(next, recording, &mut reader.functions).is_some()
        };
        assert!(executed(&mut reader, &mut recording), "{name}");
        // The owning thread holds no references, and the count of the others has only its flag.
        recording.add(code + 12, &[0; 4]);
        recording.add(code + 16, &3u64.to_le_bytes());
        for stands in [true, false] {
            let now = reader.read(&mut recording, stands);
            assert_eq!((now[0].0.as_str(), &now[1..]), ("[unknown function]", &before[1..]), "{name}");
            assert!(!executed(&mut reader, &mut recording), "{name}");
        }
    }
}
