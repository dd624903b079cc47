//! Arbitrary chunks that Relay accepts.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn text() -> impl Strategy<Value = String> {
    "[a-z./ @\"\\\\\n\u{e9}\u{1f600}]{0,6}"
}

/// A key with a value, a key with null, or no key.
fn maybe(
    key: &'static str,
    value: impl Strategy<Value = Value> + 'static,
) -> BoxedStrategy<Vec<(&'static str, Value)>> {
    prop_oneof![
        2 => value.prop_map(move |value| vec![(key, value)]),
        1 => Just(vec![]),
        1 => Just(vec![(key, Value::Null)]),
    ]
    .boxed()
}

fn object(keys: Vec<BoxedStrategy<Vec<(&'static str, Value)>>>) -> impl Strategy<Value = Value> {
    keys.prop_map(|keys| {
        Value::Object(keys.into_iter().flatten().map(|(key, value)| (key.to_owned(), value)).collect())
    })
}

fn string() -> impl Strategy<Value = Value> {
    text().prop_map(Value::from)
}

fn address() -> impl Strategy<Value = Value> {
    // Images are in the first three hundred thousand bytes of the address space.
    prop_oneof![
        (0..0x50000_u64).prop_map(|at| json!(format!("{at:#x}"))),
        any::<u64>().prop_map(|at| json!(at.to_string()))
    ]
}

fn frame() -> impl Strategy<Value = Value> {
    let small = || prop_oneof![Just(0), 1..50_u32, Just(u32::MAX)].prop_map(Value::from);
    let path = || prop::sample::select(vec!["", "/app/a.py", "a.py", "b.js"]).prop_map(Value::from);
    object(vec![
        maybe("function", string()),
        maybe("module", string()),
        maybe("filename", path()),
        maybe("abs_path", path()),
        maybe("package", string()),
        maybe("platform", prop::sample::select(vec!["python", "native", "x", ""]).prop_map(Value::from)),
        maybe("lineno", small()),
        maybe("colno", small()),
        maybe("in_app", any::<bool>().prop_map(Value::from)),
        maybe("instruction_addr", address()),
    ])
}

fn image(position: u64) -> impl Strategy<Value = Value> {
    let start = position * 0x10000;
    let size = prop_oneof![Just(json!(0)), Just(json!("4096")), Just(json!(0x10000))];
    let debug_id = json!("b03e4a7f-5e88-4c8d-a04b-05fa32cc4cbd");
    object(vec![
        prop::sample::select(vec!["symbolic", "macho", "sourcemap"])
            .prop_map(|kind| vec![("type", json!(kind))])
            .boxed(),
        maybe("code_file", string()),
        prop_oneof![Just(vec![("debug_id", debug_id)]), Just(vec![])].boxed(),
        prop_oneof![Just(vec![("image_addr", json!(format!("{start:#x}")))]), Just(vec![])].boxed(),
        prop_oneof![Just(vec![("image_vmaddr", json!("0x400000"))]), Just(vec![])].boxed(),
        prop_oneof![size.prop_map(|size| vec![("image_size", size)]), Just(vec![])].boxed(),
        prop_oneof![Just(vec![("arch", json!("x86_64"))]), Just(vec![])].boxed(),
    ])
}

fn measurements() -> impl Strategy<Value = Value> {
    let value =
        prop_oneof![any::<f32>().prop_filter("a number", |n| n.is_finite()).prop_map(|n| json!(n)), Just(json!("1e3"))];
    let values = prop::collection::vec(value.prop_map(|value| json!({"timestamp": 1000.25, "value": value})), 0..3);
    let unit = prop::sample::select(vec!["ns", "byte", "percent", "nj"]);
    prop::collection::btree_map(text(), (unit, values), 0..3).prop_map(|all| {
        all.into_iter()
            .map(|(name, (unit, values))| (name, json!({"unit": unit, "values": values})))
            .collect::<Map<_, _>>()
            .into()
    })
}

/// A time within 60 s. Some times are equal, or less than a microsecond apart.
fn time() -> impl Strategy<Value = f64> {
    let start = 1_795_228_720.0;
    prop_oneof![
        (0..60_000_000_u64).prop_map(move |micros| start + micros as f64 / 1e6),
        (0..4_u32).prop_map(move |quarter| start + 7.0 + f64::from(quarter) * 2.4e-7),
    ]
}

fn samples(stacks: usize) -> impl Strategy<Value = Vec<Value>> {
    let thread = prop::sample::select(vec!["1", "0x7", "007", "", "-3", "140735888986880", "9223372036854775808"]);
    let sample = (time(), thread, 0..stacks);
    prop::collection::vec(sample, 0..40).prop_map(|samples| {
        // The first stack has frames, so one thread always has two samples with frames.
        let own = [(1_795_228_721.0, "main", 0), (1_795_228_721.5, "main", 0)];
        let all = own.into_iter().chain(samples);
        all.map(|(time, thread, stack)| json!({"timestamp": time, "thread_id": thread, "stack_id": stack})).collect()
    })
}

fn profile() -> impl Strategy<Value = Value> {
    let frames = prop::collection::vec(frame(), 1..8);
    frames
        .prop_flat_map(|frames| {
            let stacks = prop::collection::vec(prop::collection::vec(0..frames.len(), 0..5), 0..5);
            (Just(frames), stacks)
        })
        .prop_flat_map(|(frames, mut stacks)| {
            stacks.insert(0, vec![0]);
            let metadata = prop::collection::btree_map(
                prop::sample::select(vec!["1", "main", "0x7", "unused"]),
                object(vec![maybe("name", string()), maybe("priority", any::<u32>().prop_map(Value::from))]),
                0..3,
            );
            (Just(frames), samples(stacks.len()), Just(stacks), metadata)
        })
        .prop_map(|(frames, samples, stacks, metadata)| {
            json!({"frames": frames, "stacks": stacks, "samples": samples, "thread_metadata": metadata})
        })
}

fn id() -> impl Strategy<Value = Value> {
    (1..=u128::MAX).prop_map(|id| {
        let id = uuid::Uuid::from_u128(id);
        json!(if id.as_u128().is_multiple_of(2) {
            id.simple().to_string()
        } else {
            id.hyphenated().to_string().to_uppercase()
        })
    })
}

/// Generates chunks.
pub(crate) fn chunk() -> impl Strategy<Value = Value> {
    let platform = prop::sample::select(vec!["python", "node", "native", "cocoa", "other", ""]);
    let always =
        |key: &'static str, value: BoxedStrategy<Value>| value.prop_map(move |value| vec![(key, value)]).boxed();
    let images = (0..4_u64).map(|position| image(position).boxed()).collect::<Vec<_>>();
    object(vec![
        always("version", Just(json!("2")).boxed()),
        always("platform", platform.prop_map(Value::from).boxed()),
        always("chunk_id", id().boxed()),
        always("profiler_id", id().boxed()),
        always(
            "client_sdk",
            ("[a-z.]{1,8}", text()).prop_map(|(name, version)| json!({"name": name, "version": version})).boxed(),
        ),
        maybe("release", string()),
        maybe("environment", string()),
        prop_oneof![images.prop_map(|images| vec![("debug_meta", json!({"images": images}))]), Just(vec![]),].boxed(),
        maybe("measurements", measurements()),
        always("profile", profile().boxed()),
    ])
}
