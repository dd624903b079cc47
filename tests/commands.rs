//! The commands other than `run`: validate, config, components, convert, demo.

use std::io::{BufRead as _, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use profbridge_relay_rules::validate_json;
use profbridge_testkit::releases::{earlier, plain};
use profbridge_testkit::{RequestBuilder, T0, fixture, ms};
use prost::Message;

use crate::backend::sentry::{KEY, split_envelope};
use crate::process::{command, run};

/// A captured envelope of a real SDK.
fn captured(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../wire/testdata/sentry").join(name)
}

/// The payloads in a folder of envelope files, which have one item each except for transactions.
fn payloads(folder: &Path) -> Vec<Vec<u8>> {
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let items = files.iter().map(|file| split_envelope(&std::fs::read(file).unwrap()).1.remove(0));
    items.filter(|(header, _)| header["type"] != "transaction").map(|(_, payload)| payload).collect()
}

/// Guarantees: help lists every command, and each has its own help, without lines wider than 100 columns.
#[test]
fn help() {
    let folder = tempfile::tempdir().unwrap();
    let help = run(folder.path(), &["--help"]).stdout;
    for command in ["run", "validate", "config", "components", "demo", "convert", "sample", "profiler"] {
        assert!(help.contains(command), "{help}");
        assert!(run(folder.path(), &[command, "--help"]).status.success());
    }
    for of in ["", "run", "convert", "demo", "sample", "top", "dump", "profiler", "profiler start"] {
        let arguments: Vec<&str> = of.split_whitespace().chain(["--help"]).collect();
        let help = run(folder.path(), &arguments).stdout;
        let wide: Vec<&str> = help.lines().filter(|line| line.chars().count() > 100).collect();
        assert!(!help.is_empty() && wide.is_empty(), "{of:?}: {wide:#?}");
    }
    assert!(run(folder.path(), &["convert", "--help"]).stdout.contains("exporters.sentry.environment=prod"));
    assert!(run(folder.path(), &["--version"]).stdout.starts_with("profbridge "));
    let unknown = run(folder.path(), &["convrt"]);
    assert!(!unknown.status.success() && unknown.stderr.contains("convert"), "{}", unknown.stderr);
}

/// Guarantees: components are listed as YAML, each with a description.
#[test]
fn components() {
    let folder = tempfile::tempdir().unwrap();
    let list = run(folder.path(), &["components"]).stdout;
    for kind in ["otlp", "dedup", "chunk", "sentry", "file", "debug"] {
        assert!(list.contains(&format!("- name: {kind}\n    does: ")), "{list}");
    }
}

/// Guarantees: without a configuration, the error tells how to get one.
#[test]
fn no_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let finished = run(folder.path(), &[]);
    assert!(!finished.status.success());
    assert!(finished.stderr.contains("config.yaml") && finished.stderr.contains("hint"), "{}", finished.stderr);
}

/// Guarantees: a valid file is reported as valid; `config` shows the merged result without the secret.
#[test]
fn validate_and_config() {
    let folder = tempfile::tempdir().unwrap();
    let good = format!(
        "receivers: {{otlp: }}
processors: {{chunk: }}
exporters:
  sentry: {{dsn: 'https://{KEY}@sentry.example/1'}}
service:
  pipelines:
    profiles: {{receivers: [otlp], processors: [chunk], exporters: [sentry]}}
"
    );
    std::fs::write(folder.path().join("config.yaml"), &good).unwrap();
    let finished = run(folder.path(), &["validate"]);
    assert!(finished.status.success() && finished.stdout.contains("is valid"), "{}", finished.stderr);
    let shown = run(folder.path(), &["config", "--set", "service.identity.window=30s"]).stdout;
    assert!(shown.contains("30s") && !shown.contains(KEY), "{shown}");
}

/// Guarantees: every input format is recognised by its content, gzipped or not, and becomes envelopes that satisfy
/// Relay's rules; everything that was read is written.
/// rule: otep-0239#gzip-on-disk, otep-0239#same-layout
#[test]
fn convert_to_sentry() {
    let folder = tempfile::tempdir().unwrap();
    let request = fixture::request().encode_to_vec();
    let mut frames = Vec::new();
    for pid in 1..=2 {
        let one = RequestBuilder::new().process("frames", pid).on_cpu(20).sample(&["go!f", "go!g"], pid, &ms([0, 50]));
        let one = one.encode();
        frames.extend_from_slice(&(one.len() as u32).to_be_bytes());
        frames.extend_from_slice(&one);
    }
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&request).unwrap();
    for (name, bytes) in [("raw", request), ("frames", frames), ("gzip", gzip.finish().unwrap())] {
        std::fs::write(folder.path().join(name), bytes).unwrap();
        let out = format!("{name}-out");
        let finished = run(folder.path(), &["convert", name, "-o", &out]);
        assert!(finished.status.success(), "{name}: {}", finished.stderr);
        let payloads = payloads(&folder.path().join(&out));
        assert!(payloads.len() >= 2, "{name}: {}", finished.stdout);
        for payload in payloads {
            validate_json(&payload).unwrap_or_else(|violations| panic!("{name}: {violations:?}"));
        }
    }
    let raw = payloads(&folder.path().join("raw-out"));
    assert_eq!(raw, payloads(&folder.path().join("gzip-out")), "gzip makes no difference");
}

/// Guarantees: OTLP becomes JSON, which reads back as the same profiles.
#[test]
fn convert_json() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("in"), fixture::request().encode_to_vec()).unwrap();
    for arguments in [["in", "x.otlp"], ["in", "x.json"], ["x.otlp", "from-otlp.otlp"], ["x.json", "from-json.otlp"]] {
        let finished = run(folder.path(), &["convert", arguments[0], "-o", arguments[1]]);
        assert!(finished.status.success(), "{arguments:?}: {}", finished.stderr);
    }
    let read = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
    assert!(read("x.json").starts_with(b"{\"resourceProfiles\":[{"));
    assert_eq!(read("from-json.otlp"), read("from-otlp.otlp"));
    let finished = run(folder.path(), &["convert", "x.otlp", "-o", "-", "--to", "otlp-json"]);
    assert!(finished.stdout.ends_with("}\n") && finished.stdout.lines().count() == 1);
}

/// Guarantees: collapsed stacks become OTLP and convert back unchanged, in the given unit; an invalid line is reported
/// and the others are kept.
#[test]
fn convert_collapsed_stacks() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("in"), "main;parse 40\nmain 2\nno number\nmain;parse 2\n").unwrap();
    for (unit, expected) in [("count", "main 2\nmain;parse 42\n"), ("us", "main 2000\nmain;parse 42000\n")] {
        let finished = run(folder.path(), &["convert", "in", "-o", "x.otlp", "--folded-unit", unit]);
        assert!(finished.status.success(), "{}", finished.stderr);
        assert!(finished.stderr.contains("in: line 3: it does not end with an integer"), "{}", finished.stderr);
        let finished = run(folder.path(), &["convert", "x.otlp", "-o", "-", "--to", "folded"]);
        assert_eq!(finished.stdout, expected);
    }
}

/// Guarantees: envelopes of real SDKs and bare chunks become OTLP, and OTLP becomes stacks, with the hot functions in
/// it.
#[test]
fn convert_from_sentry() {
    let folder = tempfile::tempdir().unwrap();
    let envelope = captured("python-2.75-profile_chunk.envelope");
    let bare = folder.path().join("chunk.json");
    let (_, items) = split_envelope(&std::fs::read(&envelope).unwrap());
    std::fs::write(&bare, &items[0].1).unwrap();
    let mut stacks = Vec::new();
    for (number, input) in [envelope.to_str().unwrap(), bare.to_str().unwrap()].into_iter().enumerate() {
        let otlp = format!("{number}.otlp");
        let folded = format!("{number}.folded");
        let finished = run(folder.path(), &["convert", input, "--to", "otlp", "-o", &otlp]);
        assert!(finished.status.success(), "{}", finished.stderr);
        let finished = run(folder.path(), &["convert", &otlp, "--to", "folded", "-o", &folded]);
        assert!(finished.status.success(), "{}", finished.stderr);
        stacks.push(std::fs::read_to_string(folder.path().join(&folded)).unwrap());
    }
    assert_eq!(stacks[0], stacks[1], "an envelope and the chunk in it say the same");
    assert!(stacks[0].contains("ContinuousScheduler.run"), "{}", stacks[0]);
}

/// Guarantees: an SDK's chunk that was converted to OTLP and back is the same chunk, of the same profiler, with each of
/// its samples; an envelope with a V1 profile becomes OTLP, and then a chunk with its transaction.
/// rule: round-trip#content
#[test]
fn convert_there_and_back() {
    let folder = tempfile::tempdir().unwrap();
    for (name, profiler, samples, transaction) in [
        ("python-2.75-profile_chunk.envelope", None, 298, ""),
        ("node-11.1-profile_chunk.envelope", None, 79, ""),
        (
            "node-10.75-v1-transaction+profile.envelope",
            Some("899366251bb2401fbdfc7f94d71a64dc"),
            89,
            " and 1 transaction with 2 spans",
        ),
    ] {
        let envelope = captured(name);
        let finished = run(folder.path(), &["convert", envelope.to_str().unwrap(), "-o", "there.otlp"]);
        assert!(finished.status.success(), "{name}: {}", finished.stderr);
        let back = format!("{samples}-back");
        let finished = run(folder.path(), &["convert", "there.otlp", "-o", &back]);
        let made = format!("wrote 1 envelope with {samples} samples (0 of them synthesized){transaction} to {back}\n");
        assert_eq!(finished.stdout, made, "{}", finished.stderr);
        let [payload] = &payloads(&folder.path().join(&back))[..] else { panic!("{name}: one chunk") };
        let chunk: serde_json::Value = serde_json::from_slice(payload).unwrap();
        match profiler {
            Some(profiler) => assert_eq!(chunk["profiler_id"], profiler),
            None => {
                let (_, items) = split_envelope(&std::fs::read(&envelope).unwrap());
                let before: serde_json::Value = serde_json::from_slice(&items[0].1).unwrap();
                for key in ["profiler_id", "chunk_id", "client_sdk", "release", "environment", "measurements"] {
                    assert_eq!(chunk[key], before[key], "{name}: {key}");
                }
            }
        }
    }
}

/// Guarantees: OTLP becomes one pprof profile per process, for both file extensions, and these become stacks and
/// envelopes again; several of them cannot go to standard output.
/// rule: otep-0239#pprof
#[test]
fn convert_pprof() {
    let folder = tempfile::tempdir().unwrap();
    let mut request = Vec::new();
    for (pid, frame) in [(1, "go!hot"), (2, "go!cold")] {
        let one = RequestBuilder::new().process("p", pid).on_cpu(20).sample(&[frame, "go!main"], 1, &ms([0, 50]));
        let one = one.encode();
        request.extend_from_slice(&(one.len() as u32).to_be_bytes());
        request.extend_from_slice(&one);
    }
    std::fs::write(folder.path().join("in"), request).unwrap();
    let convert = |arguments: &[&str]| {
        let finished = run(folder.path(), &[&["convert"], arguments].concat());
        assert!(finished.status.success(), "{}", finished.stderr);
        finished
    };
    let stacks = |input: &[&str], out: &str| {
        convert(&[input, &["-o", out]].concat());
        std::fs::read_to_string(folder.path().join(out)).unwrap()
    };
    let before = stacks(&["in"], "before.folded");
    for part in ["hot", "cold", "p (pid 1);", "p (pid 2);"] {
        assert!(before.contains(part), "no `{part}`: {before}");
    }
    // pprof has no process, and names the thread differently.
    let behind = |text: &str, roots: usize| {
        let mut lines: Vec<String> =
            text.lines().map(|line| line.splitn(roots + 1, ';').last().unwrap_or_default().to_owned()).collect();
        lines.sort();
        lines
    };
    for [first, second] in [["a.pprof", "a-2.pprof"], ["b.pb.gz", "b-2.pb.gz"]] {
        let finished = convert(&["in", "-o", first]);
        assert!(finished.stdout.contains(&format!("to 2 files, {first} and beside it")), "{}", finished.stdout);
        assert!(finished.stderr.contains("pprof_samples_without_their_times 2"), "{}", finished.stderr);
        let after = stacks(&[first, second], "after.folded");
        assert_eq!(behind(&after, 1), behind(&before, 2));
        convert(&[first, "-o", "envelopes"]);
    }
    for payload in payloads(&folder.path().join("envelopes")) {
        validate_json(&payload).unwrap_or_else(|violations| panic!("{violations:?}"));
    }
    let finished = run(folder.path(), &["convert", "in", "--to", "pprof", "-o", "-"]);
    assert!(finished.stderr.contains("2 pprof profiles are as many files"), "{}", finished.stderr);
    assert_eq!(finished.status.code(), Some(1));
}

/// Guarantees: a converted envelope is unchanged byte for byte, is not counted as a created one, and the last line
/// shows both counts.
#[test]
fn convert_counts_what_it_made() {
    let folder = tempfile::tempdir().unwrap();
    let one = RequestBuilder::new().process("p", 1).on_cpu(20).sample(&["go!f"], 1, &ms([0, 50, 100]));
    std::fs::write(folder.path().join("otlp"), one.encode()).unwrap();
    let envelope = captured("python-2.75-profile_chunk.envelope");
    let envelope = envelope.to_str().unwrap();
    let said = |inputs: &[&str], out: &str| {
        let finished = run(folder.path(), &[&["convert"], inputs, &["-o", out]].concat());
        assert!(finished.status.success(), "{}", finished.stderr);
        finished.stdout
    };
    let made = "wrote 1 envelope with 4 samples (1 of them synthesized)";
    assert_eq!(said(&["otlp"], "made"), format!("{made} to made\n"));
    assert_eq!(said(&[envelope], "forwarded"), "wrote 1 envelope, as it came in, to forwarded\n");
    assert_eq!(said(&[envelope, "otlp"], "both"), format!("{made}, and 1 as it came in, to both\n"));
    for folder in ["forwarded", "both"].map(|name| folder.path().join(name)) {
        let copy = std::fs::read(folder.join("input-0001.envelope")).unwrap();
        assert_eq!(split_envelope(&copy), split_envelope(&std::fs::read(envelope).unwrap()));
    }
    assert_eq!(std::fs::read_dir(folder.path().join("both")).unwrap().count(), 2);
}

/// Guarantees: sampled time that is not shown is reported, however little it is, in a fitting unit; if everything is
/// shown there is no such report.
#[test]
fn convert_says_what_time_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    // The period is 10 ms, but samples are taken at these distances, in nanoseconds.
    for (spacing, said) in [(5_000_000, Some("ms of time are not shown")), (9_999_000, None), (10_000_000, None)] {
        let times: Vec<u64> = (0..100).map(|n| T0 + n * spacing).collect();
        let request = RequestBuilder::new().process("p", 1).on_cpu(100).sample(&["go!f", "go!main"], 7, &times);
        std::fs::write(folder.path().join("in"), request.encode()).unwrap();
        let finished = run(folder.path(), &["convert", "in", "-o", "out"]);
        assert!(finished.status.success(), "{}", finished.stderr);
        assert_eq!(finished.stderr.contains("of time are not shown"), said.is_some(), "{}", finished.stderr);
        assert!(said.is_none_or(|said| finished.stderr.contains(said)), "{}", finished.stderr);
    }
}

/// Guarantees: `--set` affects a conversion like `run`: how chunks are made, where windows end, and how resends in OTLP
/// are handled; a window that reached its bounds is written with all its observations.
#[test]
fn convert_follows_set() {
    let folder = tempfile::tempdir().unwrap();
    let one =
        RequestBuilder::new().process("p", 1).on_cpu(20).sample(&["shop!f", "go!main"], 1, &ms([0, 50, 4_000, 4_050]));
    std::fs::write(folder.path().join("in"), one.encode()).unwrap();
    let convert = |out: &str, sets: &[&str]| {
        let sets = sets.iter().flat_map(|set| ["--set", *set]);
        let arguments: Vec<&str> = ["convert", "in", "in", "-o", out].into_iter().chain(sets).collect();
        let finished = run(folder.path(), &arguments);
        assert!(finished.status.success(), "{}", finished.stderr);
        (folder.path().join(out), finished.stdout)
    };
    let chunks = |path: &Path| -> Vec<serde_json::Value> {
        payloads(path).iter().map(|payload| serde_json::from_slice(payload).unwrap()).collect()
    };
    let (plain, _) = convert("plain", &[]);
    let (set, _) = convert("set", &["exporters.sentry.environment=prod", "exporters.sentry.max_gap=1s"]);
    assert!(chunks(&plain).iter().all(|chunk| chunk["environment"] == "production"));
    assert!(chunks(&set).iter().all(|chunk| chunk["environment"] == "prod"));
    assert_eq!((chunks(&plain).len(), chunks(&set).len()), (1, 2));
    let (cut, _) = convert("cut", &["service.identity.window=2s"]);
    assert_eq!(chunks(&cut).len(), 2);

    assert!(convert("once.otlp", &[]).1.starts_with("wrote 4 observations"));
    assert!(convert("twice.otlp", &["processors.dedup.resends=keep"]).1.starts_with("wrote 8 observations"));
    let early = ["processors.dedup.resends=keep", "processors.dedup.max_observations=1"];
    assert!(convert("early.otlp", &early).1.starts_with("wrote 8 observations"));
    let finished = run(folder.path(), &["convert", "early.otlp", "-o", "early.folded"]);
    assert!(finished.stderr.contains("read 8 observations"), "{}", finished.stderr);
}

/// Guarantees: a key that `--set` cannot change in a conversion is refused with its place and the allowed keys, a DSN
/// is shown without its key, and nothing is written.
#[test]
fn convert_refuses_what_it_cannot_set() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("in"), fixture::request().encode_to_vec()).unwrap();
    let dsn = format!("exporters.sentry.dsn=https://{KEY}@sentry.example/1");
    for (set, said) in [
        (&*dsn, "`dsn` has no meaning for a conversion, which sends nothing"),
        ("exporters.sentry.enviroment=prod", "did you mean `environment`?"),
        ("exporters.otlp.endpoint=h:1", "the exporter `otlp` is no part of this conversion"),
        ("processors.dedup.window=1s", "the processor `dedup` is no part of this conversion"),
        ("service.limits.memory=1GiB", "`service.limits` has no meaning for this conversion"),
    ] {
        let finished = run(folder.path(), &["convert", "in", "-o", "out", "--set", set]);
        assert_eq!(finished.status.code(), Some(1));
        for part in [said, "--> --set", "= key: ", "= hint: ", "nothing was converted"] {
            assert!(finished.stderr.contains(part), "{set}: no `{part}`:\n{}", finished.stderr);
        }
        assert!(!finished.stderr.contains(KEY) && !folder.path().join("out").exists());
    }
}

/// Guarantees: a flame graph is an SVG with the functions in it.
#[test]
fn convert_to_svg() {
    let folder = tempfile::tempdir().unwrap();
    let request = RequestBuilder::new().process("p", 1).on_cpu(20).sample(&["go!hot", "go!main"], 1, &ms([0, 50]));
    std::fs::write(folder.path().join("in"), request.encode()).unwrap();
    let finished = run(folder.path(), &["convert", "in", "--to", "svg", "-o", "graphs/out.svg"]);
    assert!(finished.status.success(), "{}", finished.stderr);
    let svg = std::fs::read_to_string(folder.path().join("graphs/out.svg")).unwrap();
    assert!(svg.contains("<svg") && svg.contains("hot"), "{svg}");
}

/// Guarantees: the file extensions of speedscope and of the Firefox Profiler select the format, and `--to` without one;
/// both contain every observation, and blocked time separately from running time.
#[test]
fn convert_to_viewers() {
    let folder = tempfile::tempdir().unwrap();
    let ran = RequestBuilder::new().process("p", 1).on_cpu(20).sample(&["go!hot", "go!main"], 1, &ms([0, 50, 100]));
    let blocked = RequestBuilder::new().process("p", 1).off_cpu();
    let blocked = blocked.blocked(&["go!park", "go!main"], 1, &[(ms([150])[0], 40_000_000)]);
    std::fs::write(folder.path().join("ran"), ran.encode()).unwrap();
    std::fs::write(folder.path().join("blocked"), blocked.encode()).unwrap();
    let convert = |more: &[&str]| {
        let finished = run(folder.path(), &[&["convert", "blocked", "ran"], more].concat());
        assert!(finished.status.success(), "{}", finished.stderr);
        finished
    };
    let file = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    let finished = convert(&["-o", "a.speedscope.json"]);
    assert!(finished.stdout.starts_with("wrote 2 tracks to a.speedscope.json ("), "{}", finished.stdout);
    let speedscope = json(&file("a.speedscope.json"));
    let tracks: Vec<_> =
        speedscope["profiles"].as_array().unwrap().iter().map(|of| (&of["name"], &of["endValue"])).collect();
    assert_eq!(tracks.len(), 2);
    assert!(
        !tracks[0].0.as_str().unwrap().contains("[waiting]") && tracks[1].0.as_str().unwrap().ends_with("[waiting]")
    );
    assert_eq!((tracks[0].1, tracks[1].1), (&150_000_000.into(), &40_000_000.into()));
    let standard = convert(&["-o", "-", "--to", "speedscope"]);
    assert_eq!(json(&standard.stdout), speedscope);
    convert(&["-o", "a.firefox.json"]);
    let firefox = json(&file("a.firefox.json"));
    let sum = |thread: &serde_json::Value| {
        thread["samples"]["weight"].as_array().unwrap().iter().map(|weight| weight.as_u64().unwrap()).sum::<u64>()
    };
    let mut sums: Vec<u64> = firefox["threads"].as_array().unwrap().iter().map(sum).collect();
    sums.sort_unstable();
    assert_eq!(sums, [40, 150]);
    convert(&["-o", "a.svg", "--graph", "flame"]);
    let svg = file("a.svg");
    assert!(svg.contains("class=\"flame\"") && svg.contains(">p (pid 1)</text>"), "{svg}");
    assert!(svg.contains("<title>running\n150.0 ms, 100.00 %") && svg.contains("<title>waiting\n40.0 ms, 100.00 %"));
}

/// Guarantees: an unknown file is named, the others are still converted, and the exit status shows the failure.
#[test]
fn convert_goes_on_after_a_bad_file() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("bad"), b"this is no profile\n").unwrap();
    std::fs::write(folder.path().join("good"), fixture::request().encode_to_vec()).unwrap();
    let finished = run(folder.path(), &["convert", "bad", "missing", "good", "-o", "out"]);
    assert!(!finished.status.success());
    assert!(finished.stderr.contains("bad: ") && finished.stderr.contains("missing: "), "{}", finished.stderr);
    assert!(!payloads(&folder.path().join("out")).is_empty());
}

/// Guarantees: the demo needs only the binary, and prints the paths of an envelope that satisfies Relay's rules and of
/// a flame graph that shows its functions.
#[test]
fn demo() {
    let folder = tempfile::tempdir().unwrap();
    let finished = run(folder.path(), &["demo", "--own", "--seconds", "2"]);
    assert!(finished.status.success(), "{}", finished.stderr);
    let path = |title: &str| {
        let line = finished.stdout.lines().find_map(|line| line.strip_prefix(title)).unwrap();
        folder.path().join(line.trim())
    };
    let (_, items) = split_envelope(&std::fs::read(path("envelope:")).unwrap());
    validate_json(&items[0].1).unwrap();
    assert!(std::fs::read_to_string(path("flame graph:")).unwrap().contains("Rule.matches"));
}

/// Guarantees: a conversion reports its changes: the number of strings that were not UTF-8.
#[test]
fn convert_says_what_it_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let one = RequestBuilder::new().process("p", 1).on_cpu(20).sample(&["go!caf\u{e9}"], 1, &ms([0, 50])).encode();
    let at = one.windows(2).position(|pair| pair == "\u{e9}".as_bytes()).unwrap();
    let mut broken = one.clone();
    broken[at..at + 2].copy_from_slice(b"\xff\xfe");
    for (name, bytes, says) in [("sound", one, false), ("broken", broken, true)] {
        std::fs::write(folder.path().join(name), bytes).unwrap();
        let finished = run(folder.path(), &["convert", name, "-o", &format!("{name}.folded")]);
        assert!(finished.status.success(), "{}", finished.stderr);
        let said = finished.stderr.contains("1 string is not UTF-8, what is not was replaced by U+FFFD");
        assert_eq!(said, says, "{name}: {}", finished.stderr);
    }
}

/// Guarantees: files in every OTLP layout are recognised by their content and give the same result, and earlier layouts
/// are reported.
#[test]
fn convert_reads_every_layout() {
    let folder = tempfile::tempdir().unwrap();
    let current = plain(RequestBuilder::new().process("p", 1).on_cpu(20).sample(&["go!f"], 1, &ms([0, 50])).build());
    let mut expected = None;
    for (layout, bytes) in [("1.10", current.encode_to_vec())].into_iter().chain(earlier(&current)) {
        std::fs::write(folder.path().join(layout), bytes).unwrap();
        let finished = run(folder.path(), &["convert", layout, "--to", "folded", "-o", "out.folded"]);
        assert!(finished.status.success(), "{layout}: {}", finished.stderr);
        let named = finished.stderr.contains(&format!("1 request is in the layout of opentelemetry-proto {layout}"));
        assert_eq!(named, layout != "1.10", "{layout}: {}", finished.stderr);
        let folded = std::fs::read_to_string(folder.path().join("out.folded")).unwrap();
        assert_eq!(&folded, expected.get_or_insert_with(|| folded.clone()), "{layout}");
    }
}

/// Guarantees: when a conversion waits for the reader of a pipe, it says so and names the pipe; once there is a reader
/// the result is written.
#[test]
fn convert_says_that_it_waits_for_a_reader() {
    let folder = tempfile::tempdir().unwrap();
    let one = RequestBuilder::new().process("p", 1).on_cpu(20).sample(&["go!f"], 1, &ms([0, 50]));
    std::fs::write(folder.path().join("otlp"), one.encode()).unwrap();
    let pipe = folder.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let mut child = command(folder.path(), &["convert", "otlp", "--to", "folded", "-o", "pipe"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.ends_with("waiting until somebody reads pipe")), "it ended without a word");
    let stacks = std::fs::read_to_string(&pipe).unwrap();
    assert!(stacks.ends_with("f 100000000\n"), "{stacks}");
    assert!(child.wait().unwrap().success());
}
