mod changed_code;

use std::time::{Duration, Instant};

use super::*;
use crate::message::FunctionKind;
use crate::runtime::Recording;
use crate::runtime::recording::{CountingTarget, RUBY, Reader, recorded, recorded_file};
use crate::runtime::target::{word, word_at};

/// Guarantees: in all versions every frame equals Ruby's own backtrace of the recorded stack in path, line and label:
/// through methods, blocks, C functions, a method made from a block, evaluated text and a rescue. From 3.3 on names
/// show the class before the method, as the labels of 3.4 do. Up to 3.3 Ruby reports the caller's location for C
/// functions, and from 3.4 on it omits the method behind its rescue.
#[test]
fn known_stack() {
    for (name, mut recording, mut reader) in recorded(&RUBY) {
        let backtrace = String::from_utf8(recorded_file(&format!("{name}.txt"))).unwrap();
        for has_not_run in [true, false] {
            let mut frames = reader.read(&mut recording, has_not_run);
            assert_eq!(frames.remove(0).0.rsplit('#').next(), Some("read"), "{name}: what prints has not read yet");
            // The program prints its backtrace from another line of the same method.
            assert_eq!(frames[0].2, 38, "{name}");
            frames[0].2 = 33;
            if name == "ruby-3.4" {
                let behind = frames.iter().position(|(label, ..)| label.starts_with("rescue in ")).unwrap() + 1;
                assert_eq!(frames.remove(behind).0, "Outer::Späte.make");
                frames[behind - 1].0 = "Outer::Späte.make".to_owned();
            }
            assert_eq!(frames.len(), backtrace.lines().count(), "{name}: {frames:?}");
            for ((label, path, line), own) in frames.iter().zip(backtrace.lines()) {
                let own: Vec<&str> = own.split('\t').collect();
                if path != "<cfunc>" {
                    assert_eq!((path.as_str(), line.to_string().as_str()), (own[0], own[1]), "{name}: {label}");
                }
                let class = label.rsplit_once(['#', '.']).filter(|_| name == "ruby-3.3" && !label.contains('<'));
                let label = class.map_or(label.as_str(), |(_, method)| method);
                // The labels of 3.3 have "block in " and the like before the class.
                let end = |label| if name == "ruby-3.3" { str::rsplit(label, " in ").next().unwrap() } else { label };
                assert_eq!(end(label), end(own[2]), "{name}");
            }
        }
        assert!(reader.resolved.iter().all(|frame| !frame.unknown), "{name}");
        let c_functions = reader.known.iter().filter(|function| function.file == "<cfunc>").count();
        // These are read, eval, gsub, each and sort_by.
        assert_eq!(c_functions, 5, "{name}");
        assert!(reader.known.iter().all(|function| function.kind == FunctionKind::Ruby));
    }
}

/// Guarantees: frames that one native call executes belong together: those between two calls of C functions that call
/// back.
#[test]
fn calls() {
    for (name, mut recording, mut reader) in recorded(&RUBY) {
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
    for (name, mut recording, mut reader) in recorded(&RUBY) {
        let frames = reader.read(&mut recording, true);
        let (frame, end) = (reader.captured.frames[1], reader.resolved[1].code.end);
        let found = reader.executed(frame.instruction, &mut recording);
        assert_eq!(found.unwrap().0, frames[1], "{name}");
        assert_ne!(reader.executed(end + 8, &mut recording).map(|found| found.0.0), Some(frames[1].0.clone()));
        assert_eq!(reader.executed(frame.instruction + 1, &mut recording), None);
        // At the next stack the object is no longer a sequence.
        recording.add(frame.code, &5u64.to_le_bytes());
        reader.read(&mut recording, false);
        assert_eq!(reader.executed(frame.instruction, &mut recording), None, "{name}");
    }
}

/// Guarantees: a thread whose Ruby thread object was reused has no frames.
#[test]
fn reused_thread() {
    for (name, mut recording, mut reader) in recorded(&RUBY) {
        reader.read(&mut recording, true);
        let machine = recording.runtime;
        if let Some(thread) = word(&mut recording, machine + 40) {
            recording.add(thread + 32, &8u64.to_le_bytes());
            assert_eq!(reader.read(&mut recording, true), [], "{name}");
        }
    }
}

/// Guarantees: reading circular lists of ractors terminates.
#[test]
fn attack_circles() {
    for (name, mut recording, mut reader) in recorded(&RUBY) {
        let machine = recording.runtime;
        let ractor = word(&mut recording, machine + 8).unwrap_or(0);
        recording.add(ractor, &ractor.to_le_bytes());
        recording.thread = 77;
        let mut counted = CountingTarget { target: &mut recording, reads: 0 };
        let key = ThreadKey { id: 77, pointer: 0 };
        assert!(!reader.instance.capture(key, MAX_FRAMES, reader.now, &mut counted, &mut reader.captured));
        assert!(counted.reads < 4 * 8192 + 1024, "{name}: {}", counted.reads);
    }
}

/// Guarantees: a walk through Ruby threads that no native thread executes terminates too, whether they point to
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
    for (name, whole, _) in recorded(&RUBY) {
        for (threads, ractors) in [(1, 1), (20_000, 1), (1, 300), (100, 300)] {
            let mut recording = whole.clone();
            let layout = RubyPlace::at(0, 0, recording.version).unwrap().layout;
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
            let mut counted = CountingTarget { target: &mut recording, reads: 0 };
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
