use std::path::PathBuf;

use serde::Deserialize;

use super::{config, from, messages, text};
use crate::config::{KnownComponents, Section, Source, check_references};

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Settings {
    a: String,
    b: String,
    list: Vec<String>,
    sub: Sub,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Sub {
    x: Option<u8>,
    y: Option<u8>,
}

fn set(assignment: &str) -> Source {
    Source::Set(assignment.to_owned())
}

fn merged(sources: &[Source]) -> Settings {
    from(sources).unwrap().receivers.get(&"r/a.b".parse().unwrap()).unwrap().extract().unwrap()
}

/// Guarantees: later sources take precedence, maps are merged, lists are replaced, null clears a value, assignments are
/// applied last.
#[test]
fn later_sources_win() {
    let base = text("receivers:\n  r/a.b: {a: one, b: one, list: [1, 2], sub: {x: 1, y: 1}}");
    let over = text("receivers: {r/a.b: {b: two, list: [3], sub: {y: 2}}}");
    let both =
        Settings { a: "one".into(), b: "two".into(), list: vec!["3".into()], sub: Sub { x: Some(1), y: Some(2) } };
    assert_eq!(merged(&[base.clone(), over.clone()]), both);
    let last = merged(&[base.clone(), over, set("receivers.\"r/a.b\".b=007"), set("receivers.'r/a.b'.sub.x=")]);
    assert_eq!((last.b.as_str(), last.sub), ("007", Sub { x: None, y: Some(2) }));
    assert_eq!(merged(&[base.clone(), text("receivers: {r/a.b: }")]), Settings::default());
    assert_eq!(merged(&[base.clone(), text("receivers: {r/a.b: {sub: {}}}")]).sub, Sub { x: Some(1), y: Some(1) });
    assert_eq!(
        merged(&[base, set("receivers.\"r/a.b\".list=[x: y, z]".replace("x: y", "'x: y'").as_str())]).list,
        ["x: y", "z"]
    );
}

/// Guarantees: components and pipelines keep the order in which they first appear.
#[test]
fn order_is_kept() {
    let config = from(&[text("receivers: {z: , m: , a: }"), text("receivers: {b: , a: {}, z: }")]).unwrap();
    let order: Vec<String> = config.receivers.keys().map(ToString::to_string).collect();
    assert_eq!(order, ["z", "m", "a", "b"]);
}

fn setting(yaml: &str) -> String {
    let config = config(&format!("receivers: {{x: {{a: {yaml}}}}}"));
    config.receivers.get(&"x".parse().unwrap()).unwrap().extract::<Settings>().unwrap().a
}

/// Guarantees: references are expanded as in the Collector, also in quoted scalars, and `$$` is a dollar sign.
#[test]
fn references_are_replaced() {
    for (written, expected) in [
        ("\"${env:HOST}:${PORT}\"", "localhost:4317"),
        ("'${env:HOST}'", "localhost"),
        ("'${env:NONE:-fall:-back}'", "fall:-back"),
        ("'${env:NONE:-${HOST}-${PORT}}'", "localhost-4317"),
        ("'${env:EMPTY:-unused}'", ""),
        ("'${env:NONE:-}'", ""),
        ("$$HOST", "$HOST"),
        ("'$${env:HOST}'", "${env:HOST}"),
        ("$$$$", "$$"),
        ("$HOST", "$HOST"),
        ("'100$'", "100$"),
    ] {
        assert_eq!(setting(written), expected, "{written}");
    }
}

/// Guarantees: expanded text is typed like a plain scalar, unless the scalar was quoted.
#[test]
fn replaced_text_is_typed() {
    #[derive(Deserialize)]
    struct Port {
        port: Option<u16>,
    }
    let port = |yaml: &str| {
        let config = config(&format!("receivers:\n  x:\n    port: {yaml}\n"));
        config.receivers.get(&"x".parse().unwrap()).unwrap().extract::<Port>().map(|port| port.port)
    };
    assert_eq!(port("${env:PORT}").unwrap(), Some(4317));
    assert_eq!(port("1${env:EMPTY}0").unwrap(), Some(10));
    assert_eq!(port("${env:EMPTY}").unwrap(), None);
    assert!(port("\"${env:PORT}\"").is_err());
}

const KNOWN: KnownComponents<'_> = KnownComponents { receivers: &["r"], processors: &[], exporters: &["e"] };

/// Guarantees: an unset variable is reported once, although both the check and the component notice it.
#[test]
fn a_missing_variable_is_reported_once() {
    let yaml = "receivers: {r: {a: '${env:NONE}'}}\nexporters: {e: }\n\
                service: {pipelines: {profiles: {receivers: [r], exporters: [e]}}}";
    let config = config(yaml);
    let mut problems = check_references(&config, &KNOWN);
    assert_eq!(problems.len(), 1);
    let section: &Section = config.receivers.get(&"r".parse().unwrap()).unwrap();
    problems.extend(section.extract::<Settings>().unwrap_err());
    let problems = crate::config::Problems::new(problems).unwrap();
    assert_eq!(messages(&problems), ["environment variable `NONE` is not set"]);
}

/// Guarantees: every unreadable file is named, with the reason.
#[test]
fn unreadable_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        Source::File(path)
    };
    let missing = Source::File(PathBuf::from("/does/not/exist.yaml"));
    let sources = [
        write("good.yaml", b"receivers:\n"),
        missing,
        Source::File(folder.path().to_owned()),
        write("latin1.yaml", b"a: 1\nb: gr\xf6n\n"),
        write("long.yaml", &vec![b'#'; 1024 * 1024 + 1]),
    ];
    let problems = from(&sources).unwrap_err();
    let shown = problems.to_string();
    assert_eq!(problems.as_slice().len(), 4, "{shown}");
    for part in ["/does/not/exist.yaml", "cannot read the configuration", "line 2 is not UTF-8", "too long"] {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
    assert!(from(&[write("fine.yaml", b"\xef\xbb\xbfreceivers: {r: }")]).is_ok());
    assert_eq!(messages(&from(&[]).unwrap_err()), ["no configuration is given"]);
}

/// Guarantees: anchors and merge keys expand to their values; keys in the map itself take precedence.
#[test]
fn anchors_and_merge_keys_work() {
    let yaml = "receivers:\n  r: &r {a: one, sub: {x: 1}}\n  r/a.b: {<<: *r, a: two}\n  r/c: *r\n";
    let settings = |id: &str| config(yaml).receivers.get(&id.parse().unwrap()).unwrap().extract::<Settings>().unwrap();
    assert_eq!((settings("r/a.b").a.as_str(), settings("r/a.b").sub.x), ("two", Some(1)));
    assert_eq!(settings("r/c"), settings("r"));
}

/// Guarantees: the report stays short, however many values or faults a file has.
#[test]
fn large_files_get_short_answers() {
    let many: String = (0..60_000).map(|i| format!("key{i}: v\n")).collect();
    assert_eq!(messages(&from(&[text(&many)]).unwrap_err()), ["too many values"]);
    let same = "key: v\n".repeat(60_000);
    assert_eq!(from(&[text(&same)]).unwrap_err().as_slice().len(), 101);
    let mut yaml = "receivers:\n  r/a.b:\n".to_owned();
    (0..5_000).for_each(|i| yaml.push_str(&format!("    key{i}: v\n")));
    let config = from(&[text(&yaml)]).unwrap();
    let section = config.receivers.get(&"r/a.b".parse().unwrap()).unwrap();
    assert_eq!(section.extract::<Settings>().unwrap_err().as_slice().len(), 100);
}

/// Guarantees: aliases cannot make the tree deeper than maps may be nested.
#[test]
fn aliases_cannot_make_depth() {
    let mut yaml = "a0: &a0 [x]\n".to_owned();
    for i in 1..200 {
        yaml.push_str(&format!("a{i}: &a{i} [*a{}]\n", i - 1));
    }
    assert_eq!(messages(&from(&[text(&yaml)]).unwrap_err()), ["values are nested too deeply"]);
    let path = vec!["k"; 100_000].join(".");
    assert_eq!(messages(&from(&[set(&format!("{path}=1"))]).unwrap_err()), ["the path has too many keys"]);
}
