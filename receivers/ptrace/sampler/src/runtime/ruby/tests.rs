mod changed_code;

use std::time::{Duration, Instant};

use super::*;
use crate::message::FunctionKind;
use crate::runtime::Recording;
use crate::runtime::recording::{Counted, Reader};
use crate::runtime::target::{word, word_at};

macro_rules! recordings {
    ($($name:literal),+) => {
        [$((
            $name,
            include_bytes!(concat!("../../../tests/recordings/ruby-", $name, ".bin")) as &[u8],
            include_str!(concat!("../../../tests/recordings/ruby-", $name, ".txt")),
        )),+]
    };
}

/// The same stack of `tests/recordings/program.rb`, recorded in each Ruby version, and Ruby's own backtrace of it.
const RECORDINGS: [(&str, &[u8], &str); 5] = recordings!("3.0", "3.1", "3.2", "3.3", "3.4");

/// Ruby's own backtrace: path, line and label of each frame.
fn own(text: &str) -> Vec<(&str, u32, &str)> {
    text.lines()
        .map(|line| {
            let mut parts = line.split('\t');
            let mut next = || parts.next().unwrap();
            (next(), next().parse().unwrap(), next())
        })
        .collect()
}

/// Guarantees: in all versions every frame equals Ruby's own backtrace in path, line and label: through methods,
/// blocks, C functions, a method made of a block, evaluated text and a rescue. From 3.3 on names show the class before
/// the method, as the labels of 3.4 do. Up to 3.3 Ruby reports the caller's location for C functions, and from 3.4 on
/// it omits the method behind its rescue.
#[test]
fn known_stack() {
    for (name, bytes, text) in RECORDINGS {
        let mut recording = Recording::parse(bytes).unwrap();
        let mut reader = Reader::new(&mut recording).unwrap();
        for stands in [true, false] {
            let mut frames = reader.read(&mut recording, stands);
            assert_eq!(frames.remove(0).0.rsplit('#').next(), Some("read"), "{name}: what prints has not read yet");
            // The program prints its backtrace from another line of the same method.
            assert_eq!(frames[0].2, 38, "{name}");
            frames[0].2 = 33;
            if name == "3.4" {
                let behind = frames.iter().position(|(label, ..)| label.starts_with("rescue in ")).unwrap() + 1;
                assert_eq!(frames.remove(behind).0, "Outer::Späte.make");
                frames[behind - 1].0 = "Outer::Späte.make".to_owned();
            }
            let own = own(text);
            assert_eq!(frames.len(), own.len(), "{name}: {frames:?}");
            for ((label, path, line), (own_path, own_line, own_label)) in frames.iter().zip(own) {
                if path != "<cfunc>" {
                    assert_eq!((path.as_str(), *line), (own_path, own_line), "{name}: {label}");
                }
                let class = label.rsplit_once(['#', '.']).filter(|_| name == "3.3" && !label.contains('<'));
                let label = class.map_or(label.as_str(), |(_, method)| method);
                // 3.3 puts "block in " and the like before the class.
                let own_label = if name == "3.3" { own_label.rsplit(" in ").next().unwrap() } else { own_label };
                let label = if name == "3.3" { label.rsplit(" in ").next().unwrap() } else { label };
                assert_eq!(label, own_label, "{name}");
            }
        }
        assert!(reader.resolved.iter().all(|frame| !frame.unknown), "{name}");
        let c_functions = reader.told.iter().filter(|function| function.file == "<cfunc>").count();
        // read, eval, gsub, each, sort_by.
        assert_eq!(c_functions, 5, "{name}");
        assert!(reader.told.iter().all(|function| function.kind == FunctionKind::Ruby));
    }
}

/// Guarantees: frames that one native call executes belong together: those between two calls of C functions that call
/// back.
#[test]
fn calls() {
    for (name, bytes, _) in RECORDINGS {
        let mut recording = Recording::parse(bytes).unwrap();
        let mut reader = Reader::new(&mut recording).unwrap();
        let frames = reader.read(&mut recording, true);
        let label = |at: usize| frames[at].0.rsplit(['#', '.']).next().unwrap();
        let ends: Vec<&str> = reader.captured.segments.iter().map(|segment| label(segment.end - 1)).collect();
        assert_eq!(ends.last(), Some(&"<main>"), "{name}");
        for inner in ["wait_here", "block (2 levels) in <class:Späte>", "run"] {
            assert!(ends.iter().any(|end| end.contains(inner)), "{name}: {inner} in {ends:?}");
        }
    }
}

/// Guarantees: an instruction is found by its address in a known sequence, with the line of the instruction before it;
/// nothing is found elsewhere, or in a sequence that has been replaced.
#[test]
fn executed() {
    for (name, bytes, _) in RECORDINGS {
        let mut recording = Recording::parse(bytes).unwrap();
        let mut reader = Reader::new(&mut recording).unwrap();
        reader.read(&mut recording, true);
        let frame = reader.captured.frames[1];
        let Reader { instance, functions, resolved, .. } = &mut reader;
        let hit = instance.executed(frame.instruction, &mut recording, functions).unwrap();
        assert_eq!((hit.code, hit.resolved.location), (frame.code, resolved[1].location), "{name}");
        let end = hit.resolved.code.end;
        assert!(instance.executed(end + 8, &mut recording, functions).is_none_or(|other| other.code != frame.code));
        assert_eq!(instance.executed(frame.instruction + 1, &mut recording, functions), None);
        // The object is no longer a sequence when the next stack is read.
        recording.add(frame.code, &5u64.to_le_bytes());
        reader.read(&mut recording, false);
        let Reader { instance, functions, .. } = &mut reader;
        assert_eq!(instance.executed(frame.instruction, &mut recording, functions), None, "{name}");
    }
}

/// Guarantees: a thread unknown to Ruby has no frames, and neither has one whose thread object was reused.
#[test]
fn other_threads() {
    for (name, bytes, _) in RECORDINGS {
        let mut recording = Recording::parse(bytes).unwrap();
        let mut reader = Reader::new(&mut recording).unwrap();
        assert!(!reader.read(&mut recording, true).is_empty(), "{name}");
        let machine = recording.runtime;
        let thread = word(&mut recording, machine + 40);
        recording.thread = 77;
        assert_eq!(reader.read(&mut recording, true), [], "{name}");
        recording.thread = Recording::parse(bytes).unwrap().thread;
        if let Some(thread) = thread {
            recording.add(thread + 32, &8u64.to_le_bytes());
            assert_eq!(reader.read(&mut recording, true), [], "{name}");
        }
    }
}

/// Guarantees: while its thread is stopped, one stack costs a handful of reads, whatever its depth.
#[test]
fn few_reads() {
    for (name, bytes, _) in RECORDINGS {
        let mut recording = Recording::parse(bytes).unwrap();
        let mut reader = Reader::new(&mut recording).unwrap();
        reader.read(&mut recording, true);
        let key = ThreadKey { id: recording.thread, pointer: 0 };
        let Reader { instance, now, captured, .. } = &mut reader;
        let mut counted = Counted { recording: &mut recording, reads: 0 };
        assert!(instance.capture(key, MAX_FRAMES, *now, &mut counted, captured));
        // The thread, its id, the context, frames and values, and environments kept by closures.
        assert!(counted.reads <= 20, "{name}: {} reads", counted.reads);
    }
}

/// Guarantees: if any word that is read is flipped, zeroed, huge or points at itself, nothing panics, the number of
/// frames is bounded, and texts are within their limits.
#[test]
fn attack_words() {
    for (name, bytes, _) in RECORDINGS {
        let whole = Recording::parse(bytes).unwrap();
        for (at, mut recording) in whole.hostile() {
            let frames = Reader::new(&mut recording).unwrap().read(&mut recording, at % 16 == 0);
            assert!(frames.len() <= MAX_FRAMES, "{name}");
            assert!(frames.iter().all(|(name, file, _)| name.len() <= 512 && file.len() <= 1024));
        }
    }
}

/// Guarantees: circular lists of ractors and threads end, and so do chains of tags and environments.
#[test]
fn attack_circles() {
    for (name, bytes, _) in RECORDINGS {
        let mut recording = Recording::parse(bytes).unwrap();
        let machine = recording.runtime;
        let ractor = word(&mut recording, machine + 8).unwrap_or(0);
        recording.add(ractor, &ractor.to_le_bytes());
        let mut counted = Counted { recording: &mut recording, reads: 0 };
        let key = ThreadKey { id: 77, pointer: 0 };
        let found = counted.recording.found();
        let mut captured = Captured::default();
        assert!(!found.unwrap().instance().capture(key, MAX_FRAMES, Instant::now(), &mut counted, &mut captured));
        assert!(counted.reads < 4 * 8192 + 1024, "{name}: {}", counted.reads);
    }
}

/// Guarantees: a walk through threads that no thread of the process executes ends as well, whether they point to
/// themselves or form a long circle, in one ractor or in many; and it is not repeated at once.
#[test]
fn attack_threads_without_ids() {
    const NODES: u64 = 0x5000_0000;
    const THREADS: u64 = 0x6000_0000;
    // A circle of adjacent objects, each of which begins with the address of the next one.
    let circle = |start: u64, size: u64, count: u64| -> Vec<u8> {
        let next = |at: u64| (start + (at + 1) % count * size).to_le_bytes();
        (0..count).flat_map(|at| [&next(at)[..], &vec![0; size as usize - 8]].concat()).collect()
    };
    for (name, bytes, _) in RECORDINGS {
        for (threads, ractors) in [(1, 1), (20_000, 1), (1, 300), (100, 300)] {
            let mut recording = Recording::parse(bytes).unwrap();
            let layout = Place::at(0, 0, recording.version).unwrap().layout;
            recording.add(recording.runtime + 8, &NODES.to_le_bytes());
            let mut nodes = circle(NODES, 0x1000, ractors);
            let first = layout.ractor_threads.wrapping_sub(layout.ractor_node).cast_signed();
            for at in (0..nodes.len()).step_by(0x1000) {
                let first = at.wrapping_add_signed(first as isize);
                if let Some(link) = nodes.get_mut(first..first.wrapping_add(8)) {
                    link.copy_from_slice(&THREADS.to_le_bytes());
                }
            }
            recording.add(NODES, &nodes);
            recording.add(NODES.wrapping_add_signed(first.into()), &THREADS.to_le_bytes());
            recording.add(THREADS, &circle(THREADS, 0x100, threads));
            let mut instance = recording.found().unwrap().instance();
            let mut counted = Counted { recording: &mut recording, reads: 0 };
            let (key, now) = (ThreadKey { id: 77, pointer: 0 }, Instant::now());
            let mut captured = Captured::default();
            assert!(!instance.capture(key, MAX_FRAMES, now, &mut counted, &mut captured), "{name}");
            let reads = counted.reads;
            assert!(reads < 4 * 8192 + 1024, "{name}: {reads} reads of {threads} in {ractors}");
            // The pause grows with the number of objects read, not with those found.
            let soon = now + Duration::from_millis(500);
            assert!(!instance.capture(key, MAX_FRAMES, soon, &mut counted, &mut captured));
            assert_eq!(counted.reads, reads, "{name}");
        }
    }
}
