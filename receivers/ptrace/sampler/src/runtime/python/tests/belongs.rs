//! The modules and classes of Python functions.

use super::*;

/// The address of a frame's global variables, and of the entry with the module's name.
fn globals(recording: &mut Recording, frame: u64) -> (u64, u64) {
    let place = Place::at(recording.runtime, recording.version, recording).unwrap();
    let at = frame + u64::from(place.layout.frame.globals);
    let globals = crate::runtime::word(recording, at).unwrap();
    let [dict::Entry { value: name, .. }, ..] = dict::entries(&place.layout, globals, 1, recording).unwrap()[..] else {
        panic!()
    };
    (globals, name)
}

/// Guarantees: a function whose module cannot be read has none, is read again with later samples, and shows it then; a
/// function of a module without a name has none.
#[test]
fn modules() {
    for (name, bytes) in RECORDINGS {
        let mut recording = Recording::parse(bytes).unwrap();
        let mut reader = Reader::new(&mut recording).unwrap();
        let expected = reader.read(&mut recording, true);
        let (globals, text) = globals(&mut recording, reader.captured.frames[0].address);
        let module = |reader: &Reader| match reader.resolved[0].location {
            Some(Location::Interpreted { function, .. }) => reader.told[function as usize].module.clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!(module(&reader), "__main__", "{name}");
        // Not a dictionary; an empty one; a name that is not a string.
        let at = u64::from(Place::at(recording.runtime, recording.version, &mut recording).unwrap().layout.object.kind);
        let mut broken = recording.clone();
        broken.add(globals + at, &globals.to_le_bytes());
        let mut later = Reader::new(&mut broken).unwrap();
        assert_eq!(later.read(&mut broken, true), expected, "{name}");
        assert_eq!(module(&later), "", "{name}");
        assert_eq!(later.read(&mut recording, false), expected, "{name}");
        assert_eq!(module(&later), "__main__", "{name}");
        let mut nameless = recording.clone();
        nameless.add(text + 32, &[0; 4]);
        let mut reader = Reader::new(&mut nameless).unwrap();
        reader.read(&mut nameless, true);
        assert_eq!(module(&reader), "", "{name}");
    }
}

/// Guarantees: up to 3.10, a method whose class is unknown is shown without it, and nothing else changes.
#[test]
fn methods_without_a_class() {
    for name in ["3.8", "3.9", "3.10"] {
        let mut recording = recording(name);
        let mut reader = Reader::new(&mut recording).unwrap();
        let expected = reader.read(&mut recording, true);
        let place = Place::at(recording.runtime, recording.version, &mut recording).unwrap();
        let method = place.layout.method.unwrap();
        // In all four frames of the method, `self` is not set, or refers to the frame itself.
        for of in [|_: u64| 0, |frame: u64| frame] {
            let mut broken = recording.clone();
            for frame in &reader.captured.frames[5..9] {
                broken.add(frame.address + u64::from(method.first_variable), &of(frame.address).to_le_bytes());
            }
            let found = Reader::new(&mut broken).unwrap().read(&mut broken, true);
            let named: Vec<&str> = found.iter().map(|(name, ..)| name.as_str()).collect();
            assert_eq!(named[5..9], ["methode"; 4]);
            assert_eq!((&found[..5], &found[9..]), (&expected[..5], &expected[9..]));
        }
    }
}
