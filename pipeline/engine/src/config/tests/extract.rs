use std::collections::BTreeMap;

use serde::Deserialize;

use super::{config, messages, settings};
use crate::config::{Optional, Problems, Section, Source, keys};

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Scalars {
    text: String,
    maybe: Option<String>,
    whole: i64,
    real: f64,
    flag: bool,
    letter: Option<char>,
    list: Vec<String>,
    map: BTreeMap<String, String>,
}

/// Guarantees: where text is expected, every scalar keeps its written form, whatever type YAML would give it.
#[test]
fn text_stays_as_written() {
    let all = "0123|1.10|1e3|yes|no|on|true|2024-01-01|12:30:45|0x1F|1_000|.5|+1|-0|1.0|.inf|007|localhost:4317|a b|é";
    for written in all.split('|').chain(["123456789012345678901234567890"]) {
        let settings: Scalars =
            settings(&format!("text: {written}\nlist: [{written}]\nmap: {{k: {written}}}")).unwrap();
        assert_eq!(settings.text, written);
        assert_eq!(settings.list, [written]);
        assert_eq!(settings.map["k"], written);
    }
}

/// Guarantees: null in any spelling is not text, unless it is quoted.
#[test]
fn null_is_no_text() {
    for null in ["", "~", "null", "Null", "NULL"] {
        let settings_of = |yaml: String| settings::<Scalars>(&yaml);
        assert_eq!(settings_of(format!("maybe: {null}")).unwrap().maybe, None);
        let problems = settings_of(format!("text: {null}")).unwrap_err();
        assert_eq!(messages(&problems), ["expected text, found nothing"]);
        assert_eq!(settings_of(format!("text: '{null}'")).unwrap().text, null);
    }
}

/// Guarantees: numbers are read in the spellings of YAML 1.2's core schema, without losing digits.
#[test]
fn numbers_are_read_exactly() {
    for (written, expected) in [
        ("0", 0),
        ("-0", 0),
        ("+7", 7),
        ("0x1F", 31),
        ("0o17", 15),
        ("9223372036854775807", i64::MAX),
        ("-9223372036854775808", i64::MIN),
    ] {
        assert_eq!(settings::<Scalars>(&format!("whole: {written}")).unwrap().whole, expected, "{written}");
    }
    for wrong in ["1.0", "0123", "1e3", "1_000", "0x", "0b1", "'1'", "9223372036854775808", "--1", "1 "] {
        let problems = settings::<Scalars>(&format!("whole: {wrong}"));
        assert_eq!(problems.is_err(), wrong != "1 ", "{wrong}");
    }
    for (written, expected) in [("1", 1.0), ("1.10", 1.1), ("-1e3", -1000.0), (".5", 0.5), (".inf", f64::INFINITY)] {
        assert_eq!(settings::<Scalars>(&format!("real: {written}")).unwrap().real, expected, "{written}");
    }
    for wrong in ["inf", "nan", "1e999", "abc", "1.2.3", "+-1"] {
        assert!(settings::<Scalars>(&format!("real: {wrong}")).is_err(), "{wrong}");
    }
}

/// Guarantees: code that accepts any type gets numbers as numbers and everything ambiguous as text.
#[test]
fn untyped_values_keep_what_is_ambiguous() {
    let value: serde_json::Value =
        settings("a: 1\nb: -1\nc: 1.5\nd: true\ne: 0123\nf: yes\ng: ~\nh: '1'\ni: [x, {}]").unwrap();
    let expected = serde_json::json!({
        "a": 1, "b": -1, "c": 1.5, "d": true, "e": "0123", "f": "yes", "g": null, "h": "1", "i": ["x", {}]
    });
    assert_eq!(value, expected);
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Needs {
    must: u8,
    inner: Inner,
    pair: (u8, u8),
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Inner {
    also: u8,
}

/// Guarantees: a key whose value was wrong is not reported as missing too; other missing keys are.
#[test]
fn consequences_are_not_reported() {
    let problems = settings::<Needs>("must: x\ninner: {also: y}\npair: [1, z]").unwrap_err();
    assert_eq!(
        messages(&problems),
        [
            "expected an integer from 0 to 255, found the text `x`",
            "expected an integer from 0 to 255, found the text `y`",
            "expected an integer from 0 to 255, found the text `z`",
        ]
    );
    let problems = settings::<Needs>("inner: {}\npair: [1, 2, 3]").unwrap_err();
    assert!(messages(&problems).contains(&"the key `also` is missing"), "{problems}");
    assert!(messages(&problems).contains(&"the key `must` is missing"), "{problems}");
    let right = Needs { must: 1, inner: Inner { also: 2 }, pair: (3, 4) };
    assert_eq!(settings::<Needs>("must: 1\ninner: {also: 2}\npair: [3, 4]").unwrap(), right);
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct InnerProtocols {
    grpc: Optional<Inner2>,
    http: Optional<Inner2>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Inner2 {
    port: u16,
}

impl Default for Inner2 {
    fn default() -> Self {
        Self { port: 4317 }
    }
}

/// Guarantees: a key with nothing under it is present with its defaults; a key that is not written is absent.
#[test]
fn part_without_settings_is_present() {
    let protocols: InnerProtocols = settings("grpc:").unwrap();
    assert_eq!(protocols.grpc, Optional::Present(Inner2 { port: 4317 }));
    assert_eq!(protocols.http.into_option(), None);
}

/// Guarantees: an empty section has the defaults, for whatever reason it is empty.
#[test]
fn nothing_means_defaults() {
    let config = config("receivers:\n  a:\n  b: {}\n  c: ~\n");
    for (_, section) in config.receivers.iter() {
        assert_eq!(section.extract::<Scalars>().unwrap(), Scalars::default());
    }
    assert_eq!(Section::defaults().extract::<Scalars>().unwrap(), Scalars::default());
    assert_eq!(Section::from_yaml("").unwrap().extract::<Scalars>().unwrap(), Scalars::default());
    assert_eq!(Section::from_yaml("whole: 3").unwrap().extract::<Scalars>().unwrap().whole, 3);
    assert!(Section::from_yaml("whole: [").is_err());
    assert_eq!(config.telemetry.extract::<Scalars>().unwrap(), Scalars::default());
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Way {
    Plain,
    Sized(u32),
    Both { a: u8, b: u8 },
    Pair(u8, u8),
}

#[derive(Debug, PartialEq, Deserialize)]
struct Ways {
    ways: Vec<Way>,
}

/// Guarantees: an enum is written as a word, or as a map with one key.
#[test]
fn enums_are_words_or_maps() {
    let ways: Ways = settings("ways: [plain, {plain: }, {sized: 3}, {both: {a: 1, b: 2}}, {pair: [1, 2]}]").unwrap();
    let both = Way::Both { a: 1, b: 2 };
    assert_eq!(ways.ways, [Way::Plain, Way::Plain, Way::Sized(3), both, Way::Pair(1, 2)]);
    let problems = settings::<Ways>("ways: [palin, sized, {sized: x}, {a: 1, b: 2}, [], {both: {a: 1}}]").unwrap_err();
    assert_eq!(problems.as_slice().len(), 6, "{problems}");
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(untagged)]
enum Either {
    Number(u8),
    Map { a: u8 },
}

/// Guarantees: a value that matches no variant of an untagged enum is reported at its position.
#[test]
fn untagged_enums_have_a_place() {
    let either: Vec<Either> = settings("[1, {a: 2}]").unwrap();
    assert_eq!(either, [Either::Number(1), Either::Map { a: 2 }]);
    let problems = settings::<Vec<Either>>("[1, [x], 3, text]").unwrap_err();
    assert_eq!(problems.as_slice().len(), 2, "{problems}");
    assert_eq!(problems.as_slice()[1].position.column, 17);
}

/// Guarantees: a problem found by a component is reported at the value, or at the nearest existing key.
#[test]
fn problems_of_components_have_places() {
    let config = config("receivers:\n  x:\n    a:\n      'b.c': 1\n    l: [u, v]\n");
    let section = config.receivers.get(&"x".parse().unwrap()).unwrap();
    let position = |path: &str| {
        let problem = section.problem(path, "wrong", "");
        (problem.position.line, problem.position.column, problem.key_path, problem.hint)
    };
    assert_eq!(position("a.\"b.c\""), (4, 14, "receivers.x.a.\"b.c\"".to_owned(), None));
    assert_eq!(position("a.\"b.c\".d"), (4, 7, "receivers.x.a.\"b.c\".d".to_owned(), None));
    assert_eq!(position("a.z"), (3, 5, "receivers.x.a.z".to_owned(), None));
    assert_eq!(position("l.1"), (5, 12, "receivers.x.l.1".to_owned(), None));
    assert_eq!(position("none"), (2, 3, "receivers.x.none".to_owned(), None));
    assert_eq!(position(""), (2, 3, "receivers.x".to_owned(), None));
    assert!(section.has("l.1") && !section.has("l.2"));
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Extra {
    volume: u8,
    #[serde(alias = "tone")]
    pitch: String,
    nested: Nested,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Nested {
    depth: u8,
}

/// Guarantees: two types that share a section behave like one type with the keys of both: each value goes to the type
/// that has its key, and every problem is reported once and at its position, an unknown key with the keys of both as
/// valid ones.
#[test]
fn parts_share_a_section() {
    let section = Section::from_yaml("whole: 7\nvolume: 3\ntone: 1.10\ntext: 0123").unwrap();
    let (first, second): (Scalars, Extra) = section.extract_parts().unwrap();
    assert_eq!((first.whole, first.text.as_str()), (7, "0123"));
    assert_eq!((second.volume, second.pitch.as_str()), (3, "1.10"));
    assert_eq!(Section::defaults().extract_parts::<Scalars, Extra>().unwrap(), Default::default());

    let wrong = "whole: x\nvolume: loud\nvolum: 3\nnested: {dept: 1}\nflag: 2";
    let problems = Section::from_yaml(wrong).unwrap().extract_parts::<Scalars, Extra>().unwrap_err();
    let found: Vec<_> = problems.as_slice().iter().map(|problem| (&*problem.key_path, &*problem.message)).collect();
    assert_eq!(
        found,
        [
            ("whole", "expected an integer, found the text `x`"),
            ("volume", "expected an integer from 0 to 255, found the text `loud`"),
            ("volum", "unknown key `volum`"),
            ("nested.dept", "unknown key `dept`"),
            ("flag", "expected `true` or `false`, found the number `2`"),
        ]
    );
    let hint = problems.as_slice()[2].hint.as_deref().unwrap();
    assert!(hint.starts_with("did you mean `volume`?") && hint.contains("`whole`"), "{hint}");
    assert_eq!(problems.as_slice()[3].hint.as_deref(), Some("did you mean `depth`?"));

    let twice = Section::from_yaml("whole: 1\npitch: a\ntone: b").unwrap();
    let problems = twice.extract_parts::<Scalars, Extra>().unwrap_err();
    assert_eq!(messages(&problems), ["`pitch` is given twice, under two names"]);
}

/// Guarantees: rules are checked beside what cannot be read, so that one run names all that is wrong, except rules
/// about keys that cannot be read themselves, which would speak of the default.
#[test]
fn all_at_once() {
    let section = Section::from_yaml("whole: x\ntext: short\nvolume: 3\nvolum: 4").unwrap();
    let rules =
        [(true, "whole", "must be positive", ""), (true, "text", "is too short", ""), (true, "", "has no pitch", "")];
    let checked = section.extract_checked_parts(|_: Scalars, extra: Extra, section| {
        assert_eq!(extra.volume, 3);
        Problems::check(section.broken_rules(&rules))
    });
    let expected = ["expected an integer, found the text `x`", "is too short", "unknown key `volum`"];
    assert_eq!(messages(&checked.unwrap_err()), expected);
    let good = Section::from_yaml("whole: 7").unwrap();
    let checked = good.extract_checked(|of: Scalars, section| {
        Problems::check(section.broken_rules(&[(of.whole == 7, "whole", "must not be 7", "")]))
    });
    assert_eq!(messages(&checked.unwrap_err()), ["must not be 7"]);
}

/// Guarantees: the keys of a type are those of its fields and their aliases; a type that is not a struct has none.
#[test]
fn keys_of_a_type() {
    assert_eq!(keys::<Extra>(), ["volume", "pitch", "tone", "nested"]);
    assert_eq!((keys::<u8>(), keys::<BTreeMap<String, u8>>()), (&[][..], &[][..]));
}

/// Guarantees: sources that are not a whole configuration load as one section, later sources take precedence, and
/// subsections keep the positions of problems; the subsection of an unwritten key is empty.
#[test]
fn sections_of_sources() {
    let sets = ["a.b.whole=7", "a.b.text=${env:NAME}", "a.b.whole=x"].map(|set| Source::Set(set.to_owned()));
    let env = |name: &str| (name == "NAME").then(|| "0123".to_owned());
    let section = Section::load(&sets[..2], &env).unwrap();
    let scalars: Scalars = section.below("a.b").extract().unwrap();
    assert_eq!((scalars.whole, scalars.text.as_str()), (7, "0123"));
    let section = Section::load(&sets, &env).unwrap().below("a");
    let problems = section.below("b").extract::<Scalars>().unwrap_err();
    let paths: Vec<_> = problems.as_slice().iter().map(|problem| &*problem.key_path).collect();
    assert_eq!(paths, ["a.b.whole"]);
    assert_eq!(section.below("c.d").extract::<Scalars>().unwrap(), Scalars::default());
    assert_eq!(section.below("c.d").key_path(), "a.c.d");
    assert_eq!(messages(&Section::load(&sets, &|_| None).unwrap_err()), ["environment variable `NAME` is not set"]);
    assert_eq!(Section::load(&[], &|_| None).unwrap().extract::<Scalars>().unwrap(), Scalars::default());
}
