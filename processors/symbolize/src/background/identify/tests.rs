use std::io::Write;

use proptest::prelude::*;

use super::*;

fn file(content: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(content).unwrap();
    file
}

/// An ELF file with only these notes.
fn elf(notes: &[u8], big_endian: bool) -> Vec<u8> {
    let number = |value: u64, len: usize| {
        let mut bytes = value.to_le_bytes()[..len].to_vec();
        if big_endian {
            bytes.reverse();
        }
        bytes
    };
    let mut bytes = b"\x7fELF\x02".to_vec();
    bytes.push(if big_endian { 2 } else { 1 });
    bytes.resize(32, 0);
    bytes.extend(number(64, 8));
    bytes.resize(54, 0);
    bytes.extend(number(56, 2));
    bytes.extend(number(1, 2));
    bytes.resize(64, 0);
    for (value, len) in [(4, 4), (4, 4), (120, 8), (0, 8), (0, 8), (notes.len() as u64, 8), (0, 8), (4, 8)] {
        bytes.extend(number(value, len));
    }
    bytes.extend(notes);
    bytes
}

fn note(kind: u32, name: &[u8], content: &[u8]) -> Vec<u8> {
    let mut bytes = [(name.len() as u32), (content.len() as u32), kind].map(u32::to_le_bytes).concat();
    for part in [name, content] {
        bytes.extend(part);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    bytes
}

/// Guarantees: the htlhash matches the profiler's own tests: a known file has the known hash (`printf 'a%.0s'
/// {1..5000}` hashed as specified), and the two pages overlap in short files.
/// rule: otlp-profiles#build-ids
#[test]
fn htlhash_is_the_specified_one() {
    let expected = |text: &[u8]| {
        let size = text.len().min(4096);
        let mut all = text[..size].to_vec();
        all.extend(&text[text.len() - size..]);
        all.extend((text.len() as u64).to_be_bytes());
        hmac_sha256::Hash::hash(&all)[..16].iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    for length in [0, 1, 4095, 4096, 5000, 9000] {
        let text: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
        assert!(has_id(&file(&text), &FileId::Htlhash(expected(&text).into())), "{length}");
        assert!(!has_id(&file(&text), &FileId::Htlhash("00".repeat(16).into())));
    }
    // The output of `head -c 4096 FILE; tail -c 4096 FILE; printf '\0\0\0\0\0\0\x13\x88'`, through `sha256sum`.
    assert!(has_id(&file(&[b'a'; 5000]), &FileId::Htlhash("0cc60b04256c63b31fb61c375dbd6a56".into())));
    // For an empty file: the SHA-256 of eight zero bytes.
    assert!(has_id(&file(b""), &FileId::Htlhash("af5570f5a1810b7af78caf4bc70a660f".into())));
}

/// Guarantees: the build id is found after other notes, in files of either byte order. A file without a build id has
/// none.
#[test]
fn build_ids_are_found() {
    let mut notes = note(1, b"GNU\0", &[0; 16]);
    notes.extend(note(3, b"Go\0\0", b"go's own"));
    notes.extend(note(3, b"GNU\0", &[0xab, 0xcd, 0xef]));
    let id = FileId::Gnu("abcdef".into());
    assert!(has_id(&file(&elf(&notes, false)), &id));
    assert!(!has_id(&file(&elf(&notes[..notes.len() - 8], false)), &id));
    assert!(!has_id(&file(b"#!/bin/sh"), &id));
    let big: Vec<u8> = notes.chunks(4).flat_map(|word| word.to_vec()).collect();
    assert!(!has_id(&file(&elf(&big, true)), &id), "its numbers are in the other order");
    let mut big = [4_u32, 3, 3].map(u32::to_be_bytes).concat();
    big.extend(b"GNU\0\xab\xcd\xef\0");
    assert!(has_id(&file(&elf(&big, true)), &id));
}

proptest! {
    /// Guarantees: no bytes cause a panic.
    #[test]
    fn any_bytes_are_survived(notes in prop::collection::vec(any::<u8>(), 0..200), at in 0..120_usize, value: u8, big: bool) {
        let mut bytes = elf(&notes, big);
        bytes[at] = value;
        has_id(&file(&bytes), &FileId::Gnu("abcdef".into()));
    }
}
