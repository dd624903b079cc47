//! The real capture of an eBPF profiler (189 observations, four containers, `process.*` on samples), read from the
//! folder of shared data beside the project. Skipped with a note if that is missing.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

use profbridge_relay_rules::validate_json;
use serde_json::Value;

use crate::backend::sentry::split_envelope;
use crate::process::run;

/// A readable summary of a chunk.
fn describe(chunk: &Value) -> String {
    let profile = &chunk["profile"];
    let (frames, stacks) = (&profile["frames"], &profile["stacks"]);
    let mut threads: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    let mut leaves: BTreeMap<String, usize> = BTreeMap::new();
    for sample in profile["samples"].as_array().unwrap() {
        let stack = stacks[sample["stack_id"].as_u64().unwrap() as usize].as_array().unwrap();
        let entry = threads.entry(sample["thread_id"].as_str().unwrap()).or_default();
        match stack.first() {
            Some(leaf) => {
                entry.0 += 1;
                let frame = &frames[leaf.as_u64().unwrap() as usize];
                *leaves.entry(frame["function"].as_str().unwrap_or("?").to_owned()).or_default() += 1;
            }
            None => entry.1 += 1,
        }
    }
    let mut text = format!(
        "platform {}, release {}, {} images, {} stacks, {} frames\n",
        chunk["platform"].as_str().unwrap(),
        chunk["release"].as_str().unwrap_or("none"),
        chunk["debug_meta"]["images"].as_array().map_or(0, Vec::len),
        stacks.as_array().unwrap().len(),
        frames.as_array().unwrap().len(),
    );
    for (thread, (observed, idle)) in threads {
        let name = profile["thread_metadata"][thread]["name"].as_str().unwrap_or("");
        writeln!(text, "  thread {thread} {name}: {observed} samples, {idle} idle").unwrap();
    }
    let mut leaves: Vec<_> = leaves.into_iter().collect();
    leaves.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), name.clone()));
    for (name, count) in leaves.into_iter().take(3) {
        writeln!(text, "  on top {count}x {name}").unwrap();
    }
    text
}

/// Guarantees: the capture becomes one chunk per process, each satisfies Relay's rules, and their contents equal the
/// snapshot beside this file.
/// rule: otlp-profiles#timestamps-only
#[test]
fn the_real_capture() {
    let input =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures/otlp/ebpf-profiler.wire-1.10.otlp");
    if !input.exists() {
        std::io::Write::write_fmt(
            &mut std::io::stderr(),
            format_args!("untested here: ../shared/fixtures/otlp/ebpf-profiler.wire-1.10.otlp is absent\n"),
        )
        .ok();
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // The capture's processes are weakly identified: their ids, and so the start of their windows, depend on the path
    // given to `convert`. This path is the same wherever the project is.
    std::fs::copy(&input, folder.path().join("capture.otlp")).unwrap();
    let finished = run(folder.path(), &["convert", "capture.otlp", "-o", "out"]);
    assert!(finished.status.success(), "{}", finished.stderr);
    assert!(finished.stderr.contains("read 189 observations"), "{}", finished.stderr);
    let chunks: Vec<Value> = std::fs::read_dir(folder.path().join("out"))
        .unwrap()
        .map(|entry| {
            let (_, items) = split_envelope(&std::fs::read(entry.unwrap().path()).unwrap());
            validate_json(&items[0].1).unwrap();
            serde_json::from_slice(&items[0].1).unwrap()
        })
        .collect();
    // Files are listed in random order.
    let mut text: Vec<String> = chunks.iter().map(describe).collect();
    text.sort();
    let summary = finished.stderr.lines().filter(|line| !line.contains(" s")).collect::<Vec<_>>().join("\n");
    insta::assert_snapshot!("the_real_capture", format!("{}\n{summary}", text.join("\n")));
}
