//! Functions and strings that change while they are read.

use super::*;
use crate::runtime::recording::Changing;
use crate::runtime::word;

/// Reads the stack repeatedly, with a change of memory from `before` to this one before the first read, the second and
/// so on; returns the functions and lines of each run.
fn at_all_moments(
    (made, frames, stack): &(HeapBuilder, Vec<Frame>, StackCopy),
    after: &Recording,
) -> Vec<Vec<(Function, u32)>> {
    let mut all = Vec::new();
    Changing::at_all_moments(&made.memory, after, |changing| {
        let (named, functions) = read(changing, frames, &mut stack.clone());
        let rows = named.locations.iter().filter_map(|(_, location)| match location {
            Location::Interpreted { function, line } => Some((functions[*function as usize].clone(), *line)),
            Location::Native { .. } | Location::Compiled { .. } => None,
        });
        all.push(rows.collect());
    });
    all
}

/// Overwrites the characters of a string, but not its type and length.
fn overwrite(memory: &mut Recording, text: u64, words: u64) {
    memory.add(text - 1 + 16, &vec![b'X'; (words as usize - 2) * 8]);
}

/// Guarantees: if a garbage collector moves strings while a function is read, its name, file and lines are its own, or
/// the function is unknown: text of other objects is never shown.
#[test]
fn strings_that_are_moved() {
    let stack = made();
    let mut after = stack.0.memory.clone();
    for (index, (text, words)) in stack.0.texts.iter().enumerate() {
        let moved = 0x50_0000 + index as u64 * 0x1000;
        for at in 0..*words {
            let value = word(&mut after, text - 1 + at * 8).unwrap();
            after.add(moved + at * 8, &value.to_le_bytes());
        }
        for (start, part) in after.parts.clone() {
            let places = (0..part.len() as u64 / 8).map(|at| start + at * 8);
            for place in places {
                if word(&mut after, place) == Some(*text) {
                    after.add(place, &(moved + 1).to_le_bytes());
                }
            }
        }
        overwrite(&mut after, *text, *words);
    }
    let expected = [("inner", 3, 3), ("outer", 2, 2), ("main", 1, 2), ("outer [with inlined functions]", 2, 0)];
    let (mut whole, mut unknown) = (0, 0);
    for (at, rows) in at_all_moments(&stack, &after).iter().enumerate() {
        for (function, line) in rows {
            if function.name == "[unknown function]" {
                unknown += 1;
                continue;
            }
            let (_, first_line, now) = expected.into_iter().find(|(name, ..)| *name == function.name).unwrap();
            assert_eq!((function.file.as_str(), function.line), ("/srv/app.js", first_line), "at {at}: {rows:?}");
            assert!([0, now].contains(line), "at {at}: {rows:?}");
        }
        whole += usize::from(rows.len() == 3 && rows.iter().all(|(_, line)| *line > 0));
    }
    assert!(whole > 0 && unknown > 0, "{whole}, {unknown}");
}

/// Guarantees: if another function replaces a function while it is read, name and line are both from the same one of
/// the two, or the function is unknown.
#[test]
fn functions_that_are_replaced() {
    let mut stack = made();
    let (shared, before) = (stack.0.shared, stack.0.memory.clone());
    let name = stack.0.text("other");
    let nothing = stack.0.object(131, &[0; 4]);
    let scope = [small(1), small(0), small(0), small(17), small(20), name, small(1), nothing];
    let scope = stack.0.object(layout().types.scope_info, &scope);
    let mut after = stack.0.memory.clone();
    stack.0.memory = before;
    after.add(shared - 1 + 24, &scope.to_le_bytes());
    after.add(shared - 1 + 56, &(9u64 << 32).to_le_bytes());
    let (text, words) = stack.0.texts[4];
    overwrite(&mut after, text, words);
    let mut met = [0; 3];
    for (at, rows) in at_all_moments(&stack, &after).iter().enumerate() {
        // If the inlined function is unknown, the compiled one is shown instead.
        let (function, _) = &rows[0];
        let which = match (function.name.as_str(), function.line) {
            ("inner", 3) => 0,
            ("other", 4) => 1,
            ("outer [with inlined functions]", 2) => 2,
            _ => panic!("at {at}: {rows:?}"),
        };
        met[which] += 1;
    }
    assert!(met.iter().all(|count| *count > 0), "{met:?}");
}

/// Guarantees: a function whose script was moved is unknown until it refers to the script's new address; it is not
/// mistaken for a function of V8, which has no file.
#[test]
fn scripts_that_are_moved() {
    let (made, frames, mut stack) = made();
    for left_behind in [0, made.script + 0x8000, made.texts[0].0] {
        let mut memory = made.memory.clone();
        memory.add(made.script - 1, &u64::to_le_bytes(left_behind));
        let (named, functions) = read(&mut memory, &frames, &mut stack);
        assert!(!named.locations.is_empty());
        for (_, location) in &named.locations {
            let Location::Interpreted { function, line } = location else { continue };
            let function = &functions[*function as usize];
            assert_eq!((function.name.as_str(), function.file.as_str(), *line), ("[unknown function]", "", 0));
        }
    }
}
