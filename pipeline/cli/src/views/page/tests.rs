use profbridge_codec::decode::{DecodeOptions, Findings, decode};
use profbridge_model::{Builder, Profile, Profiles, Telemetry};
use profbridge_wire::folded::CountUnit;
use serde_json::json;

use super::*;
use crate::views::stacks::StackFunction;

const T0: u64 = 1_790_000_000_000_000_000;

/// The data in a page, whose only element for it nothing in the data ends.
fn data(page: &str) -> Value {
    let (_, rest) = page.split_once("<script type=\"application/json\" id=\"data\">").unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

fn written(batch: &Profiles, bounds: Bounds) -> Value {
    let mut timeline = Timeline::default();
    timeline.add(batch);
    written_of(&mut timeline, bounds)
}

fn written_of(timeline: &mut Timeline, bounds: Bounds) -> Value {
    let mut page = Vec::new();
    write_within(bounds, timeline, "title", GraphStyle::default(), &mut page).unwrap();
    data(&String::from_utf8(page).unwrap())
}

fn column(of: &Value) -> Vec<u64> {
    of.as_array().unwrap().iter().map(|one| one.as_u64().unwrap()).collect()
}

/// So many stacks, each with an own function below `main`, in a span, at a time and with a weight of its own.
fn many(stacks: u64) -> Profiles {
    let mut builder = Builder::new();
    let sample_type = builder.value_type("cpu", "nanoseconds");
    builder.profile(Profile { sample_type, time_unix_nano: T0, ..Profile::default() });
    for number in 0..stacks {
        let frames = [format!("f{number}"), "main".to_owned()].map(|name| builder.frame(&name, "shop.py", 7));
        let stack = builder.stack(&frames);
        let link = builder.link([7; 16], (1 + number % 40).to_be_bytes());
        let thread = builder.attributes(&[("thread.id", (number % 30).cast_signed().into())]);
        builder.sample(stack, thread, link, &[T0 + number * 1_000], &[1 + number.cast_signed()]);
    }
    builder.finish().unwrap()
}

/// Guarantees: whatever the number of stacks, threads, spans and times is, the page stays small, has all of the weight,
/// and names the heaviest stack; and it says that something is not told apart.
#[test]
fn bounds() {
    let stacks = 3_000;
    let bounds = Bounds { nodes: 800, rows: 1_000, slices: (60, 15), spans: 20, threads: 10 };
    let page = written(&many(stacks), bounds);
    let weights = column(&page["rows"]["weight"]);
    assert_eq!(weights.iter().sum::<u64>(), stacks * (stacks + 1) / 2);
    // Of the rows beyond the limit, those of a thread, a span and a slice are one.
    assert!((1_000..2_000).contains(&weights.len()), "{}", weights.len());
    assert_eq!(page["slices"], 15);
    let (parents, functions) = (column(&page["nodes"]["parent"]), column(&page["nodes"]["function"]));
    assert!(parents.len() <= 2 * bounds.nodes && parents.len() == functions.len(), "{}", parents.len());
    assert!((1..).zip(&parents[1..]).all(|(node, &parent)| parent < node), "callers come first");
    let count = |name: &str| page[name].as_array().unwrap().len();
    assert_eq!((count("threads"), count("spans")), (bounds.threads + 1, bounds.spans + 2));
    let names = page["functions"]["name"].as_array().unwrap();
    assert!(names.contains(&Value::from(format!("f{}", stacks - 1))) && !names.contains(&Value::from("f1")));
    assert!(page["notes"][1].as_str().unwrap().contains(RARE), "{}", page["notes"]);
    let rare: u64 = column(&page["rows"]["own"])
        .iter()
        .zip(weights)
        .filter(|(own, _)| functions[**own as usize] == 0)
        .map(|(_, weight)| weight)
        .sum();
    assert!(rare > 0 && rare < stacks * stacks / 2);
}

/// Guarantees: a row has the slice of its time and the span of its sample, and a function its hottest line.
#[test]
fn times_and_spans() {
    let page = written(&many(3), BOUNDS);
    let rows = &page["rows"];
    assert_eq!(
        (column(&rows["slice"]), column(&rows["span"])),
        (vec![222, 111, 0], vec![1, 2, 3]),
        "the busiest comes first"
    );
    assert_eq!(page["spans"][1], json!(["0000000000000003", ""]), "the heaviest span comes first");
    assert_eq!((page["slices"].as_u64(), page["slice_ns"].as_u64()), (Some(223), Some(9)));
    assert!(page["functions"]["place"].as_array().unwrap().contains(&Value::from("shop.py:7")), "{page}");
    assert!(page["notes"][0].as_str().unwrap().contains("only ids"), "{}", page["notes"]);
}

/// Guarantees: a span has the name and the times that traces beside the profile say, and the name and path of the
/// request that it belongs to; spans that no trace has keep their ids.
#[test]
fn names_of_spans() {
    let span = |id: u64, parent: &str, name: &str, more: &str| {
        let (start, end) = (T0 + 1_000_000, T0 + 3_000_000);
        format!(
            "{{\"traceId\":\"{:032x}\",\"spanId\":\"{id:016x}\",\"parentSpanId\":\"{parent}\",\"name\":\"{name}\",\
             \"startTimeUnixNano\":\"{start}\",\"endTimeUnixNano\":\"{end}\",{more}}}",
            7
        )
    };
    let path = "\"kind\":2,\"attributes\":[{\"key\":\"url.path\",\"value\":{\"stringValue\":\"/login\"}}]";
    let spans = [span(3, "0000000000000009", "SELECT", "\"kind\":3"), span(9, "0000000000000001", "GET", path)];
    let traces = format!("{{\"resourceSpans\":[{{\"scopeSpans\":[{{\"spans\":[{}]}}]}}]}}", spans.join(","));
    let mut timeline = Timeline::default();
    timeline.add(&many(3));
    let options = DecodeOptions { limit: usize::MAX, counted: CountUnit::default() };
    decode("traces", traces.into(), options, &mut Findings::default(), |telemetry| match telemetry {
        Telemetry::Spans(batch) => timeline.name_spans(&batch),
        other => panic!("{other:?}"),
    })
    .unwrap();
    let page = written_of(&mut timeline, BOUNDS);
    assert_eq!(page["spans"][1], json!(["SELECT: 2.0 ms, from 0.001 s", "GET (/login)"]));
    assert_eq!(page["spans"][2], json!(["0000000000000002", ""]));
    assert_eq!(page["notes"], json!([]));
}

/// Guarantees: the stacks of a slice have the order in which they ran, each again when it runs again, unless there are
/// too many rows.
#[test]
fn order_in_a_slice() {
    let mut builder = Builder::new();
    let sample_type = builder.value_type("cpu", "nanoseconds");
    builder.profile(Profile { sample_type, time_unix_nano: T0, ..Profile::default() });
    let [a, b] = ["a", "b"].map(|name| {
        let frame = builder.frame(name, "shop.py", 7);
        builder.stack(&[frame])
    });
    builder.sample(a, None, None, &[T0, T0 + 30], &[10, 10]);
    builder.sample(b, None, None, &[T0 + 10, T0 + 20], &[10, 10]);
    let batch = builder.finish().unwrap();
    let bounds = Bounds { slices: (1, 1), ..BOUNDS };
    let rows = |bounds| {
        let rows = &written(&batch, bounds)["rows"];
        (column(&rows["at"]), column(&rows["weight"]))
    };
    assert_eq!(rows(bounds), (vec![0, 322, 967], vec![10, 20, 10]));
    assert_eq!(rows(Bounds { rows: 2, ..bounds }), (vec![0, 0], vec![20, 20]));
}

/// Guarantees: a thread that waits for long is seen to wait in each slice of that time, and all of it is there.
#[test]
fn long_waits() {
    let mut builder = Builder::new();
    let sample_type = builder.value_type("off_cpu", "nanoseconds");
    builder.profile(Profile { sample_type, time_unix_nano: T0, ..Profile::default() });
    let frame = builder.frame("main", "shop.py", 7);
    let stack = builder.stack(&[frame]);
    builder.sample(stack, None, None, &[T0 + 50, T0 + 239], &[100, 1_000]);
    builder.sample(stack, None, None, &[T0], &[1]);
    let page = written(&builder.finish().unwrap(), BOUNDS);
    let (slices, weights) = (column(&page["rows"]["slice"]), column(&page["rows"]["weight"]));
    let expected: Vec<(u64, u64)> =
        [(0, 1)].into_iter().chain((50..150).map(|at| (at, 1))).chain([(239, 1_000)]).collect();
    assert_eq!(slices.into_iter().zip(weights).collect::<Vec<_>>(), expected);
}

/// Attack: times at both ends of the range, and a weight of 292 years, overflow nothing and stay whole.
#[test]
fn impossible_times() {
    let mut builder = Builder::new();
    let sample_type = builder.value_type("cpu", "nanoseconds");
    builder.profile(Profile { sample_type, ..Profile::default() });
    let frame = builder.frame("main", "shop.py", 7);
    let stack = builder.stack(&[frame]);
    builder.sample(stack, None, None, &[1, u64::MAX], &[i64::MAX - 1, 1]);
    let page = written(&builder.finish().unwrap(), BOUNDS);
    let weights = column(&page["rows"]["weight"]);
    assert_eq!(weights.iter().sum::<u64>(), i64::MAX.cast_unsigned());
    assert!(weights.len() > 100, "{weights:?}");
}

/// Guarantees: the policy has the hashes of what stands in the page, so that nothing else runs there, and neither the
/// script nor the style ends its element.
#[test]
fn policies() {
    assert_eq!(PAGE.matches("{policy}").count(), 1);
    for (text, tag) in [(SCRIPT, "</script"), (STYLE, "</style")] {
        assert!(!text.contains(tag), "{tag}");
        let hash = STANDARD.encode(hmac_sha256::Hash::hash(text.as_bytes()));
        assert!(policy().contains(&format!("'sha256-{hash}'")));
    }
    for addresses in ["http:", "https:", "src=", "url(", "import", "fetch", "innerHTML", "eval"] {
        let whole = [SCRIPT, STYLE, PAGE].concat().replace("http://www.w3.org/2000/svg", "").replace("!important", "");
        assert!(!whole.contains(addresses), "{addresses}");
    }
}

/// Guarantees: a difference has the weights of both files by what they are divided by, so that a file of twice the time
/// is no slower.
#[test]
fn differences() {
    let mut stacks = Stacks::default();
    let function = stacks.function(StackFunction::placeholder("f")).unwrap();
    let node = stacks.child(Node::ROOT, function).unwrap();
    let (before, after) = ([(node, 5_000_000_000)], [(node, 11_000_000_000)]);
    let difference = Difference {
        stacks: &stacks,
        name: "running",
        unit: &Unit::Nanoseconds,
        lines: HashMap::new(),
        sides: [(&before, 10e9), (&after, 20e9)],
        by: By::Second,
        why: "as asked for",
    };
    let mut page = Vec::new();
    write_difference(difference, "title", GraphStyle::default(), &mut page).unwrap();
    let page = data(&String::from_utf8(page).unwrap());
    let of = |name: &str| column(&page["rows"][name]);
    assert_eq!((of("before"), of("weight")), (vec![500_000_000], vec![550_000_000]));
    assert_eq!((&page["views"][0]["unit"], &page["difference"]["why"]), (&"ns".into(), &"as asked for".into()));
}
