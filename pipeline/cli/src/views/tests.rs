//! Checks common to all views: the weights of all stacks, in every format.

use std::collections::BTreeMap;

use profbridge_model::{Builder, Function, Line, Location, LocationId, Mapping, Profile, Profiles};
use profbridge_wire::folded::{CalledBy, Folded, Threads};
use profbridge_wire::otlp::Limits;
use profbridge_wire::pprof::{decode, encode, groups};
use proptest::prelude::*;
use serde_json::Value;

use super::flamegraph::{self, GraphStyle, Layout};
use super::reading::Reading;
use super::stacks::{Stacks, clean};
use super::sums::Sums;
use super::timeline::Timeline;
use super::{firefox, page, speedscope};

const T0: u64 = 1_790_000_000_000_000_000;
const MS: u64 = 1_000_000;

/// An observation of a thread, in a stack of functions given by number, outermost first.
#[derive(Debug, Clone)]
struct One {
    thread: u8,
    waits: bool,
    stack: Vec<u8>,
    time: u64,
    weight: u32,
}

fn ones() -> impl Strategy<Value = Vec<One>> {
    let stack = prop::collection::vec(0..6u8, 1..7);
    let one = (0..3u8, any::<bool>(), stack, 0..5_000u64, 1..20_000_000u32);
    let one =
        one.prop_map(|(thread, waits, stack, time, weight)| One { thread, waits, stack, time: time * MS, weight });
    prop::collection::vec(one, 1..60)
}

fn begin(builder: &mut Builder, kind: &str, unit: &str) {
    builder.resource(&[("service.name", "app".into()), ("process.pid", 7.into())]);
    let sample_type = builder.value_type(kind, unit);
    builder.profile(Profile { sample_type, time_unix_nano: T0, ..Profile::default() });
}

/// The profiles with either the waiting or the running observations.
fn profiles(ones: &[One], waits: bool) -> Profiles {
    let mut builder = Builder::new();
    begin(&mut builder, if waits { "off_cpu" } else { "cpu" }, "nanoseconds");
    for one in ones.iter().filter(|one| one.waits == waits) {
        let frames: Vec<_> = one.stack.iter().rev().map(|of| builder.frame(&format!("f{of}"), "app.c", 1)).collect();
        let stack = builder.stack(&frames);
        let (id, name) = (i64::from(one.thread) + 7, format!("t{}", one.thread));
        let thread = builder.attributes(&[("thread.id", id.into()), ("thread.name", name.as_str().into())]);
        builder.sample(stack, thread, None, &[T0 + one.time], &[i64::from(one.weight)]);
    }
    builder.finish().unwrap()
}

/// The weight of each stack in each track, in nanoseconds.
type ByTrack = BTreeMap<(String, String), u64>;

fn expected(ones: &[One]) -> ByTrack {
    let mut sums = ByTrack::new();
    for one in ones {
        let track = format!("t{} (thread {}){}", one.thread, one.thread + 7, if one.waits { " [waiting]" } else { "" });
        let stack = one.stack.iter().map(|of| format!("f{of}")).collect::<Vec<_>>().join(";");
        *sums.entry((track, stack)).or_default() += u64::from(one.weight);
    }
    sums
}

fn timeline(ones: &[One]) -> Timeline {
    let mut timeline = Timeline::default();
    timeline.add(&profiles(ones, false));
    timeline.add(&profiles(ones, true));
    timeline
}

fn json(timeline: &mut Timeline, write: fn(&mut Timeline, &str, &mut Vec<u8>) -> std::io::Result<()>) -> Value {
    let mut text = Vec::new();
    write(timeline, "title", &mut text).unwrap();
    serde_json::from_slice(&text).unwrap()
}

fn firefox(timeline: &mut Timeline, title: &str, out: &mut Vec<u8>) -> std::io::Result<()> {
    let file = firefox::FirefoxFile::new(timeline, title);
    assert_eq!(file.lost, 0);
    file.write(out)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

fn number(value: &Value) -> usize {
    value.as_u64().unwrap() as usize
}

/// The profiles behind the first one, which shows own code.
fn raw_profiles(file: &Value) -> &[Value] {
    let profiles = list(&file["profiles"]);
    let is_own = profiles.first().is_some_and(|first| first["name"].as_str().unwrap().starts_with("own code"));
    &profiles[usize::from(is_own)..]
}

fn read_speedscope(file: &Value) -> ByTrack {
    let frames = list(&file["shared"]["frames"]);
    let mut sums = ByTrack::new();
    for profile in raw_profiles(file) {
        assert_eq!((&profile["type"], &profile["unit"]), (&"sampled".into(), &"nanoseconds".into()));
        let weights: Vec<u64> = list(&profile["weights"]).iter().map(|weight| weight.as_u64().unwrap()).collect();
        assert_eq!(weights.iter().sum::<u64>(), profile["endValue"].as_u64().unwrap());
        assert_eq!(list(&profile["samples"]).len(), weights.len());
        let track = profile["name"].as_str().unwrap().strip_prefix("app (pid 7), ").unwrap();
        for (stack, weight) in list(&profile["samples"]).iter().zip(weights) {
            let names = list(stack).iter().map(|frame| frames[number(frame)]["name"].as_str().unwrap());
            *sums.entry((track.to_owned(), names.collect::<Vec<_>>().join(";"))).or_default() += weight;
        }
    }
    sums
}

/// The sums of the tracks, in milliseconds.
fn read_firefox(file: &Value) -> ByTrack {
    let mut sums = ByTrack::new();
    for thread in list(&file["threads"]) {
        let strings = list(&thread["stringArray"]);
        let name_of = |stack: &Value| {
            let frame = number(&thread["stackTable"]["frame"][number(stack)]);
            let function = number(&thread["frameTable"]["func"][frame]);
            let name = strings[number(&thread["funcTable"]["name"][function])].as_str().unwrap();
            name.strip_suffix(" (app.c)").unwrap().to_owned()
        };
        let samples = &thread["samples"];
        assert_eq!(samples["weightType"], "tracing-ms");
        for (stack, weight) in list(&samples["stack"]).iter().zip(list(&samples["weight"])) {
            let (mut at, mut names) = (stack.clone(), Vec::new());
            while !at.is_null() {
                names.push(name_of(&at));
                at = thread["stackTable"]["prefix"][number(&at)].clone();
            }
            names.reverse();
            let track = thread["name"].as_str().unwrap().to_owned();
            *sums.entry((track, names.join(";"))).or_default() += weight.as_u64().unwrap();
        }
    }
    sums
}

proptest! {
    /// Guarantees: the speedscope file has each stack of each thread with its exact time, running time first.
    #[test]
    fn speedscope_has_everything(ones in ones()) {
        let file = json(&mut timeline(&ones), |timeline, title, out| speedscope::write(timeline, title, out));
        prop_assert_eq!(read_speedscope(&file), expected(&ones));
        let waits: Vec<bool> = list(&file["profiles"])
            .iter()
            .map(|profile| profile["name"].as_str().unwrap().ends_with("[waiting]"))
            .collect();
        prop_assert!(waits.is_sorted());
        prop_assert_eq!(&file["activeProfileIndex"], &Value::from(0));
    }

    /// Guarantees: the Firefox Profiler file has each stack of each thread. A thread's time is exact to a millisecond,
    /// that of a stack to a millisecond per sample. Samples have their own times.
    #[test]
    fn firefox_has_everything(ones in ones()) {
        let file = json(&mut timeline(&ones), firefox);
        let (read, expected) = (read_firefox(&file), expected(&ones));
        prop_assert!(read.keys().eq(expected.keys()));
        for (key, weight) in &expected {
            let samples = ones.iter().filter(|one| u64::from(one.thread) + 7 == key_thread(key)).count() as u64;
            prop_assert!(read[key].abs_diff(weight / MS) <= samples, "{:?}", key);
        }
        let by_track = |sums: &ByTrack| sums.iter().fold(BTreeMap::<String, u64>::new(), |mut by, ((track, _), sum)| {
            *by.entry(track.clone()).or_default() += sum;
            by
        });
        let exact = by_track(&expected).into_iter().map(|(track, sum)| (track, sum / MS)).collect();
        prop_assert_eq!(by_track(&read), exact);
        let first = ones.iter().map(|one| one.time).min().unwrap();
        prop_assert!((file["meta"]["startTime"].as_f64().unwrap() - (T0 + first) as f64 / MS as f64).abs() < 1e-3);
        for thread in list(&file["threads"]) {
            let deltas = list(&thread["samples"]["timeDeltas"]);
            let mut at = 0.0;
            let times: Vec<f64> = deltas.iter().map(|delta| { at += delta.as_f64().unwrap(); at }).collect();
            let name = thread["name"].as_str().unwrap();
            let of = ones.iter().filter(|one| name.starts_with(&format!("t{} ", one.thread)));
            let mut own: Vec<u64> =
                of.filter(|one| one.waits == name.ends_with("[waiting]")).map(|one| one.time - first).collect();
            own.sort_unstable();
            prop_assert_eq!(times.len(), own.len());
            prop_assert!(times.iter().zip(&own).all(|(time, own)| (time - *own as f64 / MS as f64).abs() < 1e-3));
        }
    }

    /// Guarantees: the page has each stack of each thread with its exact time, as it was sampled, and as much time in
    /// folded stacks.
    #[test]
    fn page_has_everything(ones in ones()) {
        let page = read_page(&page_of(&mut timeline(&ones)));
        let [raw, own] = ["raw", "own"].map(|form| by_track(&page, form));
        prop_assert_eq!(&raw, &expected(&ones));
        prop_assert_eq!(own.values().sum::<u64>(), raw.values().sum::<u64>());
        prop_assert!(own.keys().all(|(track, stack)| track.ends_with("[waiting]") == stack.contains("[waiting")));
    }

    /// Guarantees: a flame graph shows how long threads ran and waited, and each function's time is the sum of all
    /// stacks through it.
    #[test]
    fn flame_graph_has_everything(ones in ones()) {
        let mut sums = Sums::default();
        for waits in [false, true] {
            sums.add(&profiles(&ones, waits));
        }
        let svg = draw(&mut sums, Layout::Icicle);
        for (name, waits) in [("running", false), ("waiting", true)] {
            let sum: u64 = ones.iter().filter(|one| one.waits == waits).map(|one| u64::from(one.weight)).sum();
            let said = match sum as f64 / 1e6 {
                short if sum < 100_000 => format!("{short:.4} ms"),
                long if sum >= 1_000_000_000 => format!("{:.2} s", long / 1e3),
                usual => format!("{usual:.1} ms"),
            };
            let whole = format!("<title>{name}\n{said}, 100.00 %</title>");
            prop_assert_eq!(svg.contains(&whole), sum > 0, "{}", whole);
        }
        // Each outermost function occurs once per view.
        for (waits, root) in ones.iter().map(|one| (one.waits, one.stack[0])) {
            let of = ones.iter().filter(|one| one.waits == waits);
            let all: u64 = of.clone().map(|one| u64::from(one.weight)).sum();
            let sum: u64 = of.filter(|one| one.stack[0] == root).map(|one| u64::from(one.weight)).sum();
            let percent = format!("{:.2} %</title>", sum as f64 * 100.0 / all as f64);
            let start = format!("<title>f{root}\n");
            prop_assert!(svg.split(&*start).skip(1).any(|rest| rest.lines().next().unwrap().contains(&percent))
                || sum < all / 10_000 + 1);
        }
    }
}

fn key_thread((track, _): &(String, String)) -> u64 {
    track.split("(thread ").nth(1).unwrap().split(')').next().unwrap().parse().unwrap()
}

fn page_of(timeline: &mut Timeline) -> String {
    let mut page = Vec::new();
    page::write(timeline, "title", GraphStyle::default(), &mut page).unwrap();
    String::from_utf8(page).unwrap()
}

/// The data in a page.
fn read_page(page: &str) -> Value {
    let (_, rest) = page.split_once("id=\"data\">").unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

fn by_track(page: &Value, form: &str) -> ByTrack {
    let (nodes, rows) = (&page["nodes"], &page["rows"]);
    let mut sums = ByTrack::new();
    for (row, weight) in list(&rows["weight"]).iter().enumerate() {
        let at = |column: &str| number(&rows[column][row]);
        let mut node = at(form);
        let mut names = Vec::new();
        while node > 0 {
            names.push(page["functions"]["name"][number(&nodes["function"][node])].as_str().unwrap());
            node = number(&nodes["parent"][node]);
        }
        names.reverse();
        let view = if page["views"][at("view")]["name"] == "waiting" { " [waiting]" } else { "" };
        let track = page["threads"][at("thread")][1].as_str().unwrap().to_owned() + view;
        *sums.entry((track, names.join(";"))).or_default() += weight.as_u64().unwrap();
    }
    sums
}

fn draw(sums: &mut Sums, layout: Layout) -> String {
    let mut svg = Vec::new();
    flamegraph::draw(sums, "title", GraphStyle { layout: Some(layout), native: true, lines: false }, &mut svg).unwrap();
    String::from_utf8(svg).unwrap()
}

/// A location in a file, with a function.
fn frame(builder: &mut Builder, module: &str, name: &str, source: &str, kind: &str) -> Option<LocationId> {
    let filename = builder.string(module);
    let mapping = builder.mapping(Mapping { filename, memory_limit: 1 << 20, ..Mapping::default() });
    let (name, filename) = (builder.string(name), builder.string(source));
    let function = builder.function(Function { name, filename, start_line: 4, ..Function::default() });
    let attributes = builder.attributes(&[("profile.frame.type", kind.into())]);
    builder.location(Location { mapping, attributes, ..Location::default() }, &[Line { function, line: 9, column: 0 }])
}

/// Guarantees: code is coloured by its origin, and the legend lists exactly the kinds that occur.
#[test]
fn colours() {
    let mut builder = Builder::new();
    begin(&mut builder, "cpu", "nanoseconds");
    let main = frame(&mut builder, "/srv/shop", "main", "/srv/shop.c", "native");
    let copy = frame(&mut builder, "/lib/libc.so.6", "memcpy", "", "native");
    let kernel = frame(&mut builder, "[kernel]", "page_fault", "", "kernel");
    let stack = builder.stack(&[kernel, copy, main]);
    builder.sample(stack, None, None, &[T0], &[5 * MS as i64]);
    let mut sums = Sums::default();
    sums.add(&builder.finish().unwrap());
    let svg = draw(&mut sums, Layout::Icicle);
    let class = |name: &str| {
        let rest = svg.split(&format!("<title>{name}")).nth(1).unwrap();
        let class = rest.split("<rect class=\"").nth(1).unwrap().split('"').next().unwrap();
        class.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned()
    };
    assert_eq!((class("main\nshop.c:9, "), class("memcpy\nlibc.so.6, ")), ("own".to_owned(), "library".to_owned()));
    assert_eq!((class("page_fault"), class("running")), ("kernel".to_owned(), "whole".to_owned()));
    for (kind, there) in [("own code", true), ("library", true), ("kernel", true), ("interpreter", false)] {
        assert_eq!(svg.contains(&format!(">{kind}</text>")), there, "{kind}");
    }
}

/// Guarantees: an icicle has the outermost function at the top below the title, a flame graph at the bottom above it,
/// and neither leaves more than one row of the page empty.
#[test]
fn layouts() {
    let ones = [One { thread: 0, waits: false, stack: vec![0, 1, 2], time: 0, weight: 5_000_000 }];
    let mut sums = Sums::default();
    sums.add(&profiles(&ones, false));
    for (layout, root_first) in [(Layout::Icicle, true), (Layout::Flame, false)] {
        let svg = draw(&mut sums, layout);
        let y = |from: &str| {
            let rest = svg.split(from).nth(1).unwrap();
            rest.split(" y=\"").nth(1).unwrap().split('"').next().unwrap().parse::<u32>().unwrap()
        };
        let rows: Vec<u32> = ["running\n", "f0\n", "f1\n", "f2\n"].map(|name| y(&format!("<title>{name}"))).to_vec();
        let steps: Vec<i64> = rows.windows(2).map(|pair| i64::from(pair[1]) - i64::from(pair[0])).collect();
        assert_eq!(steps, [if root_first { 17 } else { -17 }; 3]);
        let highest = rows.iter().min().copied().unwrap().min(y("<text class=\"title\""));
        assert!(highest < 30, "{layout:?}: {rows:?}");
        let title = y("<text class=\"title\"");
        assert_eq!(title < rows[0], root_first);
    }
}

/// Guarantees: no name in a profile becomes markup or part of the script.
#[test]
fn hostile_names() {
    let hostile = "</title><script>alert(1)</script>]]>&amp;\"'\u{202e}\u{0}\u{ffff}";
    let mut builder = Builder::new();
    for service in [hostile, "other"] {
        builder.resource(&[("service.name", service.into())]);
        let sample_type = builder.value_type("cpu", "nanoseconds");
        builder.profile(Profile { sample_type, ..Profile::default() });
        let of = builder.frame(hostile, hostile, 1);
        let stack = builder.stack(&[of]);
        let thread = builder.attributes(&[("thread.name", hostile.into())]);
        builder.sample(stack, thread, None, &[T0], &[5]);
    }
    let batch = builder.finish().unwrap();
    let mut sums = Sums::default();
    sums.add(&batch);
    let mut svg = Vec::new();
    flamegraph::draw(&mut sums, hostile, GraphStyle::default(), &mut svg).unwrap();
    let svg = String::from_utf8(svg).unwrap();
    assert_eq!((svg.matches("<script>").count(), svg.matches("]]>").count()), (1, 1));
    assert!(svg.contains("&lt;script&gt;alert(1)") && !svg.contains(['\u{202e}', '\u{0}', '\u{ffff}']), "{svg}");
    let mut timeline = Timeline::default();
    timeline.add(&batch);
    let file = json(&mut timeline, |timeline, title, out| speedscope::write(timeline, title, out));
    assert!(file["shared"]["frames"][0]["name"].as_str().unwrap().contains("<script>alert(1)</script>"));
    let page = page_of(&mut timeline);
    assert_eq!(page.matches("</script>").count(), 2);
    assert!(!page.contains("alert(1)</script>") && !page.contains("<script>alert") && !page.contains('\u{202e}'));
    assert!(read_page(&page)["functions"]["name"][1].as_str().unwrap().contains("<script>alert(1)</script>"));
}

/// Guarantees: a frame has its source file and the function's first line, or else the line of its first frame. Without
/// a source file, it has the file of its code.
#[test]
fn places() {
    let mut builder = Builder::new();
    begin(&mut builder, "cpu", "nanoseconds");
    let [seen, earlier] = [31, 29].map(|line| builder.frame("seen", "a.py", line));
    let started = frame(&mut builder, "/srv/shop", "started", "/srv/shop.c", "native");
    let bare = frame(&mut builder, "/lib/libz.so.1", "bare", "", "native");
    let stack = builder.stack(&[seen, earlier, started, bare]);
    builder.sample(stack, None, None, &[T0], &[5]);
    let mut timeline = Timeline::default();
    timeline.add(&builder.finish().unwrap());
    let file = json(&mut timeline, |timeline, title, out| speedscope::write(timeline, title, out));
    let mut frames: Vec<String> = list(&file["shared"]["frames"]).iter().map(Value::to_string).collect();
    frames.sort();
    assert_eq!(
        frames,
        [
            r#"{"file":"/srv/shop.c","line":4,"name":"started"}"#,
            r#"{"file":"a.py","line":29,"name":"seen"}"#,
            r#"{"file":"libz.so.1","name":"bare"}"#,
        ]
    );
    assert_eq!(raw_profiles(&file)[0]["name"], "app (pid 7)");
}

/// Guarantees: values that are not time are not shown as time: bytes have the name of their type, next to time.
#[test]
fn units() {
    let of = |kind: &str, unit: &str| {
        let mut builder = Builder::new();
        begin(&mut builder, kind, unit);
        let frame = builder.frame("f", "a.c", 1);
        let stack = builder.stack(&[frame]);
        builder.sample(stack, None, None, &[], &[4096]);
        builder.finish().unwrap()
    };
    let (bytes, time) = (of("alloc_space", "bytes"), of("cpu", "nanoseconds"));
    let mut timeline = Timeline::default();
    timeline.add(&bytes);
    let file = json(&mut timeline, |timeline, title, out| speedscope::write(timeline, title, out));
    assert_eq!((&raw_profiles(&file)[0]["unit"], &raw_profiles(&file)[0]["endValue"]), (&"bytes".into(), &4096.into()));
    let file = json(&mut timeline, firefox);
    assert_eq!(file["threads"][0]["samples"]["weight"], Value::from(vec![4096]));
    let mut sums = Sums::default();
    sums.add(&bytes);
    assert!(draw(&mut sums, Layout::Icicle).contains("<title>alloc_space\n4.0 KiB, 100.00 %"));
    sums.add(&time);
    let svg = draw(&mut sums, Layout::Icicle);
    assert!(
        svg.contains("<title>alloc_space\n4.0 KiB, 100.00 %") && svg.contains("<title>running\n0.0041 ms, 100.00 %")
    );
}

/// Guarantees: the sum of each type is correct in every format. Formats for all types contain all of them, the others
/// contain the preferred ones and list the rest. Negative values are shown if the format allows, and counted otherwise.
#[test]
fn every_form_has_what_was_given() {
    let mut builder = Builder::new();
    begin(&mut builder, "samples", "count");
    let given = [("samples", "count"), ("cpu", "nanoseconds"), ("off_cpu", "ms"), ("alloc_space", "bytes")];
    for (kind, unit) in given {
        if kind != "samples" {
            let sample_type = builder.value_type(kind, unit);
            builder.profile(Profile { sample_type, time_unix_nano: T0, ..Profile::default() });
        }
        let frame = builder.frame("f", "app.c", 1);
        let stack = builder.stack(&[frame]);
        let values: &[i64] = match kind {
            "samples" => &[3],
            "cpu" => &[5 * MS as i64],
            "off_cpu" => &[20],
            _ => &[10, -4],
        };
        values.iter().for_each(|value| builder.sample(stack, None, None, &[], &[*value]));
    }
    let batch = builder.finish().unwrap();
    let mut timeline = Timeline::default();
    timeline.reading.reads_negative = true;
    timeline.add(&batch);
    let file = json(&mut timeline, firefox);
    let sum = |thread: &Value| {
        let weights = list(&thread["samples"]["weight"]).iter().map(|weight| weight.as_i64().unwrap());
        (thread["name"].as_str().unwrap().to_owned(), weights.sum::<i64>())
    };
    let all = |[running, waiting, samples, space]: [i64; 4]| {
        [("", running), (" [waiting]", waiting), (" [samples]", samples), (" [alloc_space]", space)]
    };
    let expected = all([5, 20, 3, 6]).map(|(suffix, sum)| (format!("all threads{suffix}"), sum));
    // The crate that writes these files sorts threads by name.
    let found: std::collections::BTreeMap<_, _> = list(&file["threads"]).iter().map(sum).collect();
    assert_eq!(found, expected.into());
    let mut timeline = Timeline::default();
    timeline.add(&batch);
    assert_eq!(timeline.reading.losses.to_string(), "1 negative_value");
    let file = json(&mut timeline, |timeline, title, out| speedscope::write(timeline, title, out));
    let sum = |profile: &Value| (profile["name"].as_str().unwrap().to_owned(), profile["endValue"].as_i64().unwrap());
    let expected = all([5 * MS as i64, 20 * MS as i64, 3, 10]);
    let expected = expected.map(|(suffix, sum)| (format!("app (pid 7){suffix}"), sum));
    assert_eq!(raw_profiles(&file).iter().map(sum).collect::<Vec<_>>(), expected);
    let page = read_page(&page_of(&mut timeline));
    let views: Vec<_> = list(&page["views"]).iter().map(|view| view["name"].as_str().unwrap()).collect();
    assert_eq!(views, ["running", "waiting", "samples", "alloc_space"]);
    assert_eq!(page["rows"]["weight"], serde_json::json!([5 * MS, 20 * MS, 3, 10]));
    let rest = ["alloc_space (bytes), 2 observations", "samples (count), 1 observation"];
    let mut sums = Sums::default();
    sums.add(&batch);
    let svg = draw(&mut sums, Layout::Icicle);
    assert!(svg.contains("<title>running\n5.0 ms, ") && svg.contains("<title>waiting\n20.0 ms, "), "{svg}");
    assert_eq!(sums.reading.not_shown.in_words().collect::<Vec<_>>(), rest);
    let mut folded = Folded::new(Threads::Apart).with_states().with_processes(CalledBy::Service);
    folded.add(&batch);
    let mut text = Vec::new();
    folded.write(&mut text).unwrap();
    assert_eq!(String::from_utf8(text).unwrap(), "[running];f 5000000\n[waiting];f 20000000\n");
    assert_eq!(folded.not_shown().in_words().collect::<Vec<_>>(), rest);
    let written: Vec<i64> = groups(&batch)
        .iter()
        .flat_map(|group| {
            let read = decode(encode(&batch, group).bytes.into(), &Limits::default()).unwrap().profiles;
            read.profiles()
                .map(|profile| read.samples(profile).flat_map(|one| one.values().collect::<Vec<_>>()).sum())
                .collect::<Vec<i64>>()
        })
        .collect();
    assert_eq!(written, [3, 5 * MS as i64, 20, 6]);
}

/// Guarantees: without room for more names or stacks, the lost observations are counted, and known stacks still grow.
#[test]
fn bounds() {
    let ones: Vec<One> = (0..6u8)
        .map(|of| One { thread: 0, waits: false, stack: vec![of, of], time: u64::from(of), weight: 1 })
        .collect();
    let batch = profiles(&ones, false);
    for stacks in [Stacks::bounded(500, usize::MAX), Stacks::bounded(usize::MAX, 5)] {
        let mut reading = Reading { stacks, ..Reading::default() };
        let mut taken = 0;
        for _ in 0..2 {
            reading.read(&batch, |observed| taken += observed.observed.len() as u64);
        }
        assert!(taken > 0 && taken < 12, "{taken}");
        assert_eq!(taken + reading.losses.total().observations, 12);
    }
}

/// Guarantees: text is cut between characters and has no invisible end. Two different texts stay different, however
/// long their common start is.
#[test]
fn clean_text() {
    assert_eq!(&*clean(" a\u{1b}b\u{202e}c\n"), "a b c");
    let long = clean(&"é".repeat(2000));
    assert!(long.len() <= 1024 && long.starts_with(&"é".repeat(500)), "{long}");
    assert_ne!(long, clean(&format!("{}x", "é".repeat(2000))));
    assert_eq!(clean(&"é".repeat(512)), "é".repeat(512).into());
    assert_eq!(&*clean("\0"), "");
}

/// Guarantees: wall-clock time is shown as running or waiting if samples have that state, running first. Without a
/// state, it is wall time. A profile of another type is shown as that type, whatever its attributes claim.
#[test]
fn told_states() {
    let told = |kind: &str| {
        let mut builder = Builder::new();
        begin(&mut builder, kind, "nanoseconds");
        for (name, state) in [("park", Some("waiting")), ("hot", Some("running")), ("else", Some("x")), ("none", None)]
        {
            let frame = builder.frame(name, "app.c", 1);
            let stack = builder.stack(&[frame]);
            let mut attributes = vec![("thread.id", 7.into())];
            attributes.extend(state.map(|state| ("profbridge.thread.state", state.into())));
            let attributes = builder.attributes(&attributes);
            builder.sample(stack, attributes, None, &[T0], &[5 * MS as i64]);
        }
        builder.finish().unwrap()
    };
    let shown = |kind: &str| {
        let mut timeline = Timeline::default();
        timeline.add(&told(kind));
        let file = json(&mut timeline, |timeline, title, out| speedscope::write(timeline, title, out));
        let of =
            |profile: &Value| (profile["name"].as_str().unwrap().to_owned(), profile["endValue"].as_u64().unwrap());
        raw_profiles(&file).iter().map(of).collect::<Vec<_>>()
    };
    let track = |state: &str, millis: u64| (format!("app (pid 7), thread 7{state}"), millis * MS);
    assert_eq!(shown("wall"), [track("", 5), track(" [running or waiting]", 10), track(" [waiting]", 5)]);
    assert_eq!(shown("cpu"), [track("", 20)]);
    let mut sums = Sums::default();
    sums.add(&told("wall"));
    let svg = draw(&mut sums, Layout::Icicle);
    let names: Vec<&str> = svg.split("data-name=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    assert_eq!(names, ["running", "running or waiting", "waiting"]);
}

/// Guarantees: samples without thread attributes belong to the thread of their profile, whatever other profiles the
/// process has.
#[test]
fn threads_of_profiles() {
    let mut builder = Builder::new();
    begin(&mut builder, "cpu", "nanoseconds");
    let frame = builder.frame("hot", "app.c", 1);
    let stack = builder.stack(&[frame]);
    for (at, name) in ["main", "pool"].into_iter().enumerate() {
        if at > 0 {
            let sample_type = builder.value_type("cpu", "nanoseconds");
            builder.profile(Profile { sample_type, time_unix_nano: T0, ..Profile::default() });
        }
        let attributes = builder.attributes(&[("thread.name", name.into())]);
        builder.open_profile().unwrap().attributes = attributes;
        builder.sample(stack, None, None, &[T0], &[5]);
    }
    let mut timeline = Timeline::default();
    timeline.add(&builder.finish().unwrap());
    let names: Vec<&str> = timeline.tracks().into_iter().map(|track| &*timeline.thread(track).0.name).collect();
    assert_eq!(names, ["main", "pool"]);
}

/// One function for each weight, all called by one function.
fn weighted(unit: &str, weights: &[(String, i64)]) -> Profiles {
    let mut builder = Builder::new();
    begin(&mut builder, if unit == "bytes" { "space" } else { "cpu" }, unit);
    let root = builder.frame("root", "app.c", 1);
    for (at, (name, weight)) in (0..).zip(weights) {
        let frame = builder.frame(name, "app.c", 1);
        let stack = builder.stack(&[frame, root]);
        builder.sample(stack, None, None, &[T0 + at], &[*weight]);
    }
    builder.finish().unwrap()
}

/// Guarantees: a flame graph shows the time of functions that are too narrow to draw, and nothing if all are drawn. A
/// short time is never shown as zero.
#[test]
fn what_is_too_narrow_is_said() {
    let mut weights: Vec<_> = (0..50).map(|n| (format!("f{n}"), 3)).collect();
    let drawn = |weights: &[(String, i64)]| {
        let mut sums = Sums::default();
        sums.add(&weighted("nanoseconds", weights));
        draw(&mut sums, Layout::Icicle)
    };
    assert!(!drawn(&weights).contains("too narrow"));
    weights.push(("hot".to_owned(), 1_000_000_000));
    let svg = drawn(&weights);
    let said = "1.00 s, of which 0.000150 ms (less than 0.01 %) are in functions too narrow to be drawn";
    assert!(
        svg.contains(&format!(">running: {said}</text>")) && svg.contains(&format!("data-whole=\"{said}\"")),
        "{svg}"
    );
    assert!(svg.contains("data-amount=\"1.00 s\"") && !svg.contains("0.0000 ms"), "{svg}");
}

/// Guarantees: with any number of functions of similar width, the picture stays small enough for browsers, and shows
/// how much is left out.
#[test]
fn too_many_cells() {
    let mut builder = Builder::new();
    begin(&mut builder, "cpu", "nanoseconds");
    for stack in 0..2_000 {
        let frames: Vec<_> = (0..100).map(|depth| builder.frame(&format!("f{stack}.{depth}"), "a.c", 1)).collect();
        let stack = builder.stack(&frames);
        builder.sample(stack, None, None, &[], &[MS as i64]);
    }
    let mut sums = Sums::default();
    sums.add(&builder.finish().unwrap());
    let svg = draw(&mut sums, Layout::Icicle);
    assert!(svg.len() < 40 << 20, "{} bytes", svg.len());
    assert!(svg.contains("2.00 s, of which 2.00 s (100.00 %) are in functions too narrow or too many to be drawn"));
    // The outermost functions of each are included.
    assert!(svg.contains("<title>f0.99\n") && svg.contains("<title>f1999.60\n") && !svg.contains("<title>f0.0\n"));
}

/// Guarantees: functions whose long names have the same start are drawn and listed separately.
#[test]
fn long_names_that_begin_in_the_same_way() {
    let long = |end: &str| format!("{}{end}", "vector<".repeat(300));
    let batch = weighted("nanoseconds", &[(long("int>"), 5), (long("char>"), 7)]);
    let mut sums = Sums::default();
    sums.add(&batch);
    let svg = draw(&mut sums, Layout::Icicle);
    assert_eq!(svg.matches("<title>vector").count(), 2, "{svg}");
    let mut timeline = Timeline::default();
    timeline.add(&batch);
    let file = json(&mut timeline, |timeline, title, out| speedscope::write(timeline, title, out));
    assert_eq!(list(&file["shared"]["frames"]).len(), 3);
}

/// Guarantees: a weight above the limit of a sample in the Firefox Profiler becomes several samples of the same stack,
/// up to a limit. The excess is counted, and the rest is there.
#[test]
fn heavy_weights_for_firefox() {
    let most = i64::from(i32::MAX);
    let weights = [("heavy", 3 * most + 1), ("more", most << 17), ("light", 5), ("edge", most)];
    let mut timeline = Timeline::default();
    timeline.add(&weighted("bytes", &weights.map(|(name, weight)| (name.to_owned(), weight))));
    let mut text = Vec::new();
    let made = firefox::FirefoxFile::new(&mut timeline, "title");
    made.write(&mut text).unwrap();
    let file: Value = serde_json::from_slice(&text).unwrap();
    let samples = &file["threads"][0]["samples"];
    let written: Vec<i64> = list(&samples["weight"]).iter().map(|weight| weight.as_i64().unwrap()).collect();
    assert_eq!((made.taken, made.lost, written), (3, 1, vec![most, most, most, 1, 5, most]));
    let stacks: Vec<usize> = list(&samples["stack"]).iter().map(number).collect();
    assert!(stacks[..4].iter().all(|stack| *stack == stacks[0]) && stacks[4] != stacks[0]);
}

/// Guarantees: weights whose sum would overflow are left out and counted, in every format.
#[test]
fn sums_that_overflow() {
    let weights = [("a", i64::MAX - 9), ("b", 5), ("c", i64::MAX), ("d", 4), ("e", 1)];
    let weights = weights.map(|(name, weight)| (name.to_owned(), weight));
    // In nanoseconds, these seconds would overflow.
    for (unit, left, lost) in
        [("nanoseconds", i64::MAX as u64, 2), ("bytes", i64::MAX as u64, 2), ("s", 10_000_000_000, 2)]
    {
        let batch = weighted(unit, &weights);
        let mut timeline = Timeline::default();
        timeline.add(&batch);
        let file = json(&mut timeline, |timeline, title, out| speedscope::write(timeline, title, out));
        let profile = &raw_profiles(&file)[0];
        let sum: u64 = list(&profile["weights"]).iter().map(|weight| weight.as_u64().unwrap()).sum();
        assert_eq!((sum, profile["endValue"].as_u64()), (left, Some(left)), "{unit}");
        assert_eq!(timeline.reading.losses.total().observations, lost);
        let mut sums = Sums::default();
        sums.add(&batch);
        assert_eq!(sums.reading.losses.total().observations, lost);
        draw(&mut sums, Layout::Flame);
    }
}

/// Guarantees: nothing to draw is an error that says so.
#[test]
fn nothing() {
    let error = flamegraph::draw(&mut Sums::default(), "title", GraphStyle::default(), &mut Vec::new()).unwrap_err();
    assert!(error.to_string().contains("not a single stack"));
    assert_eq!(Sums::default().stacks(), None);
    assert!(Timeline::default().is_empty());
}
