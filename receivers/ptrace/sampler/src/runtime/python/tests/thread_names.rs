//! Python's names of its threads.

use super::*;
use crate::runtime::target::word_at;

/// Recordings from which the names of three threads are read (`tests/recordings/named.py`).
const NAMED: [&str; 7] =
    ["3.8-named", "3.9-named", "3.10-named", "3.11-named", "3.12-named", "3.13-named", "3.14-named"];

/// The ids of all threads.
fn ids(recording: &mut Recording) -> Vec<u32> {
    let (place, mut states) = (place(recording), InterpreterThreads::default());
    states.walk(&place, recording);
    // The recorded thread is the last one.
    (recording.thread - 64..=recording.thread)
        .filter(|id| states.knows(&place, ThreadKey { id: *id, pointer: 0 }))
        .collect()
}

fn name(reader: &mut Reader, id: u32, is_first: bool, target: &mut dyn TargetMemory) -> Option<String> {
    reader.now += Duration::from_secs(1);
    reader.instance.thread_name(ThreadKey { id, pointer: 0 }, is_first, reader.now, target)
}

/// Guarantees: threads of all versions have the names that `threading` gives them, whether their objects have a
/// dictionary or not; a thread unknown to Python has none.
#[test]
fn names() {
    for (version, mut recording, mut reader) in recorded(&NAMED) {
        let ids = ids(&mut recording);
        let mut names: Vec<_> =
            ids.into_iter().map(|id| name(&mut reader, id, false, &mut recording).unwrap()).collect();
        names.sort();
        assert_eq!(names, ["MainThread", "Wörker-1", "plain"], "{version}");
        assert_eq!(name(&mut reader, 1 << 30, true, &mut recording), None, "{version}");
        let named = name(&mut reader, recording.thread, false, &mut recording);
        assert_eq!(named.as_deref(), Some("Wörker-1"), "{version}");
    }
}

/// Guarantees: without `threading` the first thread has the name that `threading` would give it, and others have none.
#[test]
fn without_threading() {
    for (version, mut recording, mut reader) in recorded(&PYTHON) {
        let id = recording.thread;
        assert_eq!(name(&mut reader, id, true, &mut recording).as_deref(), Some("MainThread"), "{version}");
        assert_eq!(name(&mut reader, id, false, &mut recording), None, "{version}");
    }
}

/// Guarantees: if the key of a thread object in the dictionary is not the object's own ident, because another object
/// has replaced it, there is no name.
#[test]
fn another_thread() {
    for (version, mut recording, mut reader) in recorded(&NAMED) {
        let id = recording.thread;
        assert!(name(&mut reader, id, false, &mut recording).is_some(), "{version}");
        // Swap the objects of the two threads.
        let (place, mut states) = (place(&mut recording), InterpreterThreads::default());
        states.walk(&place, &mut recording);
        let ids = ids(&mut recording).into_iter();
        let idents: Vec<u64> =
            ids.map(|id| states.of_thread(&place, ThreadKey { id, pointer: 0 }).next().unwrap().thread_id).collect();
        let parts = recording.parts.iter();
        let entries: Vec<(u64, u64)> = parts
            .flat_map(|(start, part)| (0..part.len().saturating_sub(23)).step_by(8).map(move |at| (*start, part, at)))
            .filter(|(_, part, at)| idents.contains(&word_at(part, *at)) && word_at(part, at + 16) != 0)
            .map(|(start, part, at)| (start + at as u64 + 16, word_at(part, at + 16)))
            .collect();
        assert!(entries.len() >= 3, "{version}");
        for ((at, _), (_, next)) in entries.iter().zip(entries.iter().cycle().skip(1)) {
            recording.add(*at, &next.to_le_bytes());
        }
        assert_eq!(name(&mut reader, id, false, &mut recording), None, "{version}");
    }
}

/// Guarantees: if any word that is read is flipped, zeroed, huge or points at itself, nothing panics, and the number
/// of reads and the length of names are bounded.
#[test]
fn attack_words() {
    for (_, mut recording) in recording(NAMED[4]).hostile() {
        let Some(mut reader) = Reader::new(&mut recording) else { continue };
        let id = recording.thread;
        let mut counted = CountingTarget { target: &mut recording, reads: 0 };
        let name = name(&mut reader, id, false, &mut counted);
        assert!(name.is_none_or(|name| name.chars().count() <= 128));
        assert!(counted.reads < 20_000, "{}", counted.reads);
    }
}
