//! The modules and classes of Python functions.

use super::*;

/// The address of a frame's global variables, and of the entry in them with the module's name.
fn globals(recording: &mut Recording, frame: u64) -> (u64, u64) {
    let layout = place(recording).layout;
    let globals = word(recording, frame + u64::from(layout.frame.globals)).unwrap();
    let [dict::DictEntry { value: name, .. }, ..] = dict::entries(&layout, globals, 1, recording).unwrap()[..] else {
        panic!()
    };
    (globals, name)
}

/// Guarantees: a function whose module cannot be read is shown without a module, and its code is read again with later
/// samples until the module is known; a function of a module without a name is shown without one.
#[test]
fn modules() {
    for (name, mut recording, mut reader) in recorded(&PYTHON) {
        let expected = reader.read(&mut recording, true);
        let (globals, text) = globals(&mut recording, reader.captured.frames[0].address);
        let module = |reader: &mut Reader| reader.function(reader.resolved[0].location.unwrap()).module;
        assert_eq!(module(&mut reader), "__main__", "{name}");
        // The global variables are not a dictionary.
        let mut broken = recording.clone();
        broken.add(globals + u64::from(place(&mut recording).layout.object.kind), &globals.to_le_bytes());
        let mut later = Reader::new(&mut broken).unwrap();
        assert_eq!((later.read(&mut broken, true), module(&mut later).as_str()), (expected.clone(), ""), "{name}");
        assert_eq!(later.read(&mut recording, false), expected, "{name}");
        assert_eq!(module(&mut later), "__main__", "{name}");
        // The name is not a string.
        recording.add(text + 32, &[0; 4]);
        let mut reader = Reader::new(&mut recording).unwrap();
        reader.read(&mut recording, true);
        assert_eq!(module(&mut reader), "", "{name}");
    }
}

/// Guarantees: up to 3.10, a method whose class is unknown is shown without a class, and nothing else changes.
#[test]
fn methods_without_a_class() {
    for (_, mut recording, mut reader) in recorded(UP_TO_3_10) {
        let expected = reader.read(&mut recording, true);
        let method = place(&mut recording).layout.method.unwrap();
        // In all four frames of the method, `self` is not set, or refers to the frame itself.
        for of in [|_: u64| 0, |frame: u64| frame] {
            let mut broken = recording.clone();
            for frame in &reader.captured.frames[5..9] {
                broken.add(frame.address + u64::from(method.first_variable), &of(frame.address).to_le_bytes());
            }
            let found = Reader::new(&mut broken).unwrap().read(&mut broken, true);
            assert!(found[5..9].iter().all(|frame| frame.0 == "methode"));
            assert_eq!((&found[..5], &found[9..]), (&expected[..5], &expected[9..]));
        }
    }
}
