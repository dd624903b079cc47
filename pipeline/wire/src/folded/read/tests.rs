use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::folded::{Folded, Threads};

fn text(read: &FoldedProfile, threads: Threads) -> String {
    let mut folded = Folded::new(threads);
    folded.add(&read.profiles);
    let mut out = Vec::new();
    folded.write(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Guarantees: lines are stacks with their counts, and equal stacks are added up; white space around names, empty lines
/// and Windows line breaks are ignored; a frame without a name is unknown.
#[test]
fn lines() {
    let read = read(
        b"main;parse 3\r\n\n main;parse;lex 40\nmain; a b ;\tc  2\nmain;;x 1\nmain;parse\t4\n",
        CountUnit::default(),
    )
    .unwrap();
    assert_eq!((read.refused, read.refused_lines, read.replaced_lines), (vec![], 0, 0));
    assert_eq!(read.profiles.observations(), 4);
    let again = super::read(b"main;parse 3\nmain;parse 4\nmain;;x 1", CountUnit::default()).unwrap();
    assert_eq!(text(&again, Threads::Apart), "main;[unknown];x 1\nmain;parse 7\n");
    let values: Vec<i64> = again
        .profiles
        .samples(again.profiles.profiles().next().unwrap())
        .flat_map(|s| s.values().collect::<Vec<_>>())
        .collect();
    assert_eq!(values, [7, 1]);
}

/// Guarantees: the numbers are samples by default, otherwise the given unit is the profile's.
#[test]
fn units() {
    for (counted, kind, unit) in [
        (CountUnit::Samples, "samples", "count"),
        (CountUnit::Nanoseconds, "time", "nanoseconds"),
        (CountUnit::Microseconds, "time", "microseconds"),
        (CountUnit::Milliseconds, "time", "milliseconds"),
        (CountUnit::Bytes, "space", "bytes"),
    ] {
        let read = read(b"a;b 2", counted).unwrap();
        let profile = read.profiles.profiles().next().unwrap();
        let dictionary = read.profiles.dictionary();
        let said = (dictionary.string(profile.sample_type.kind), dictionary.string(profile.sample_type.unit));
        assert_eq!(said, (kind, unit));
    }
    let mut folded = Folded::new(Threads::Merged);
    folded.add(&read(b"a;b 2", CountUnit::Milliseconds).unwrap().profiles);
    assert_eq!((folded.shown_type(), folded.lines().next()), (None, Some(("a;b".into(), 2_000_000))));
}

/// Guarantees: a line without an integer is rejected with its number and the rule, and the other lines are read; in
/// invalid UTF-8 only the invalid bytes are replaced.
#[test]
fn refusals() {
    let text = b"a;b 1\na;b\n12\na;b 1.5\na;b -1\na;b 99999999999999999999\nc\xff;d 2\na;b 9223372036854775807\n";
    let read = read(text, CountUnit::default()).unwrap();
    let said: Vec<String> = read.refused.iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            "line 2: it has no number behind a stack",
            "line 3: it has no number behind a stack",
            "line 4: it does not end with an integer",
            "line 5: it does not end with an integer",
            "line 6: its number is too large",
            "line 8: the sum of its stack is too large",
        ]
    );
    assert_eq!((read.refused_lines, read.replaced_lines), (6, 1));
    assert_eq!(super::tests::text(&read, Threads::Merged), "a;b 1\nc\u{fffd};d 2\n");
    // One stack with an excessive count is still recognised.
    assert!(is_folded(b"main;a 99999999999999999999\n"));
    let huge = super::read(b"main;a 99999999999999999999\nmain;b 1\n", CountUnit::default()).unwrap();
    assert_eq!(huge.refused, [RefusedLine { line: 1, rule: "its number is too large" }]);
    assert_eq!(super::tests::text(&huge, Threads::Merged), "main;b 1\n");
    let many = super::read("x\n".repeat(5_000).as_bytes(), CountUnit::default()).unwrap();
    assert_eq!((many.refused_lines, many.refused.len()), (5_000, MOST_NAMED));
}

/// Guarantees: collapsed stacks are recognised, and other text is not.
#[test]
fn known_by_their_lines() {
    for text in [
        &b"main;handle;parse 42\nmain 1\n"[..],
        b"main 1\nmain;a 2",
        b"\n[running];main 7\n",
        b"a;b 1\nno number\n",
        "größe;b 3".as_bytes(),
        b"<x>a;b 1",
        b"<module> (app.py:3);handle (app.py:7) 12\n",
        b"<main>;<top (required)> 2\n<cfunc>;b 3\n",
        b"# comment\n\n#another\na;b 5\n",
        b"#<Class:Shop>#open;b 1\n",
        b"a;b 1.5\nc 1\n",
        b"a;b -1\n",
    ] {
        assert!(is_folded(text), "{}", String::from_utf8_lossy(text));
    }
    for text in [
        &b""[..],
        b"main 42\n",
        b"a;b;c\nd;e;f\n",
        b"{\"a;b\": 12\n",
        b"[\n 1\n]",
        b"<?xml version=\"1.0\"?>\na;b 1",
        b"<!-- a;b 1",
        b"<svg width=\"1\">\na;b 1",
        b"<HTML>;a 1",
        b"# a;b 1",
        b"a;b 1\nx\ny\nz\n",
        b"a;b 1.5 ms\n",
        b"a;b nan\n",
        b"# a\n{\"a;b\": 1",
        b"\x0a\x02a;b 1\x01",
    ] {
        assert!(!is_folded(text), "{}", String::from_utf8_lossy(text));
    }
}

/// Guarantees: stacks of one frame are recognised if each line has a number, or if the file is named like stacks; JSON,
/// documents, binary data, and lists with comments are not.
#[test]
fn flat() {
    for text in [&b"a 5\nb 6\n"[..], b"c 1", b"std::vector<int> 5\n", b"[unknown] 5\n<module> 1\n"] {
        assert!(is_flat(text, false) && is_flat(text, true), "{}", String::from_utf8_lossy(text));
    }
    for text in [&b"# five\na 5\n"[..], b"a 5\nb\n", b"a 1.5\nb 6\n", b"a;b 1\nx\ny\nz\n"] {
        assert!(!is_flat(text, false) && is_flat(text, true), "{}", String::from_utf8_lossy(text));
    }
    for text in [
        &b""[..],
        b"\n",
        b"a\n",
        b"5\n",
        b"a 1.5\n",
        b"{\"a\": 5\n",
        b"[\n 1\n]\n",
        b"<svg 5\n",
        b"a\x01 5\n",
        b"# a 5\n",
    ] {
        assert!(!is_flat(text, false) && !is_flat(text, true), "{}", String::from_utf8_lossy(text));
    }
    let long = [&b"a 5\n".repeat(100)[..], b"]\n"].concat();
    assert!(!is_flat(&long, false), "the last line counts as well");
}

/// Guarantees: comments before the first stack are neither stacks nor errors, and line numbers count them; after the
/// first stack, a line that looks like a comment is an ordinary line.
#[test]
fn comments() {
    let read = read(b"# cpu\n\n# of 3 s 7\na;b 5\n# c\n#d 2\n", CountUnit::default()).unwrap();
    assert_eq!(read.refused, [RefusedLine { line: 5, rule: "it does not end with an integer" }]);
    assert_eq!(super::tests::text(&read, Threads::Merged), "#d 2\na;b 5\n");
}

/// Amplification: a new name of three bytes takes fifty times its size. Ceiling: sixteen times the text plus a
/// megabyte. Outcome: lines beyond the memory limit are rejected and counted.
#[test]
fn attack_short_names() {
    let mut text = Vec::new();
    for n in 0..200_000_u32 {
        let name: String = (0..4).map(|digit| char::from(b'a' + (n / 26_u32.pow(digit) % 26) as u8)).collect();
        text.extend_from_slice(format!("{name} 1\n").as_bytes());
    }
    let read = read(&text, CountUnit::default()).unwrap();
    let kept = read.profiles.observations();
    assert_eq!(kept + read.refused_lines, 200_000);
    assert!(kept as usize * (BYTES_OF_FRAME + BYTES_OF_STACK) <= MEMORY_FACTOR * text.len() + MEMORY_BASE);
    assert!(read.refused[0].rule.contains("memory"));
}

/// Amplification: none, but code that uses the result writes out each stack. Ceiling: the maximum depth in a request.
/// Outcome: the line is rejected.
#[test]
fn attack_deep_stack() {
    let deep = |frames: usize| read(("a;".repeat(frames - 1) + "a 1").as_bytes(), CountUnit::default()).unwrap();
    assert_eq!(deep(65_536).profiles.observations(), 1);
    assert!(deep(65_537).refused[0].rule.contains("deeper"));
}

proptest! {
    /// Guarantees: stacks that are read and written again are the same stacks, sorted and added up.
    #[test]
    fn round_trip(stacks in vec((vec("[a-z(<*:.é]{1,6}( [a-z]{1,3})?", 1..5), 1..1000_i64), 1..20)) {
        let mut sums = std::collections::BTreeMap::new();
        let mut file = String::new();
        for (frames, value) in &stacks {
            let stack = frames.join(";");
            file += &format!("{stack} {value}\n");
            *sums.entry(stack).or_insert(0) += value;
        }
        let read = read(file.as_bytes(), CountUnit::default()).unwrap();
        prop_assert_eq!(read.refused_lines, 0);
        let expected: String = sums.iter().map(|(stack, value)| format!("{stack} {value}\n")).collect();
        prop_assert_eq!(text(&read, Threads::Apart), expected);
    }

    /// Guarantees: no bytes cause a panic, and each line is either part of the profile or rejected.
    #[test]
    fn any_bytes(bytes in vec(prop_oneof![any::<u8>(), Just(b';'), Just(b' '), Just(b'1'), Just(b'\n')], 0..200)) {
        is_folded(&bytes);
        is_flat(&bytes, true);
        let read = read(&bytes, CountUnit::default()).unwrap();
        let lines = stacks(&bytes).count() as u64;
        prop_assert!(read.profiles.observations() + read.refused_lines <= lines);
        prop_assert_eq!(read.profiles.observations() == 0, read.refused_lines == lines);
    }
}
