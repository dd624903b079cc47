use super::*;
use crate::{Builder, Function, Line, Location, Mapping};

/// The properties in which the test batches differ.
#[derive(Clone)]
struct BatchProperties {
    service: &'static str,
    scope: &'static str,
    kind: &'static str,
    function: &'static str,
    line: i64,
    address: u64,
    file: &'static str,
    thread: i64,
    span: u8,
    times: Vec<u64>,
    values: Vec<i64>,
    time: u64,
    id: Option<[u8; 16]>,
    /// Whether tables, attributes and samples are in another order, with the same content.
    turned: bool,
}

impl Default for BatchProperties {
    fn default() -> Self {
        Self {
            service: "checkout",
            scope: "scope",
            kind: "samples",
            function: "work",
            line: 12,
            address: 0x1000,
            file: "libc.so.6",
            thread: 7,
            span: 1,
            times: vec![1, 2],
            values: vec![],
            time: 1,
            id: None,
            turned: false,
        }
    }
}

fn batch(plan: &BatchProperties) -> Profiles {
    let mut builder = Builder::new();
    if plan.turned {
        for text in ["something else", plan.function, "main", plan.kind] {
            builder.string(text);
        }
        builder.link([9; 16], [9; 8]);
        builder.attributes(&[("thread.name", "x".into()), ("other", true.into())]);
        let other = builder.frame("main", "main.rs", 3);
        builder.stack(&[other]);
    }
    let mut attributes = [("service.name", plan.service.into()), ("process.pid", 7.into())];
    let mut thread = [("thread.id", plan.thread.into()), ("thread.name", "worker".into())];
    if plan.turned {
        attributes.reverse();
        thread.reverse();
    }
    builder.resource(&attributes);
    builder.scope(plan.scope, "1.0");
    let sample_type = builder.value_type(plan.kind, "count");
    builder.profile(Profile { sample_type, time_unix_nano: plan.time, profile_id: plan.id, ..Profile::default() });
    let filename = builder.string(plan.file);
    let mapping = builder.mapping(Mapping { filename, memory_limit: 0x2000, ..Mapping::default() });
    let name = builder.string(plan.function);
    let function = builder.function(Function { name, ..Function::default() });
    let line = Line { function, line: plan.line, column: 0 };
    let leaf = builder.location(Location { mapping, address: plan.address, ..Location::default() }, &[line]);
    let root = builder.frame("main", "main.rs", 3);
    let stacks = [builder.stack(&[leaf, root]), builder.stack(&[root])];
    let thread = builder.attributes(&thread);
    let link = builder.link([plan.span; 16], [2; 8]);
    let mut rows = [(stacks[0], link, plan.times.clone(), plan.values.clone()), (stacks[1], None, vec![5], vec![])];
    if plan.turned {
        rows.reverse();
    }
    for (stack, link, times, values) in rows {
        builder.sample(stack, thread, link, &times, &values);
    }
    builder.finish().unwrap()
}

fn hash(plan: &BatchProperties) -> [u8; 16] {
    let batch = batch(plan);
    let hashes = content_hashes(&batch);
    assert_eq!(hashes.len(), 1);
    hashes[0]
}

/// Guarantees: the hash does not depend on the order of tables, attributes and samples, on unused table elements, or on
/// the profile's id, which is set from the hash.
#[test]
fn equal_content() {
    let plan = BatchProperties::default();
    assert_eq!(hash(&plan), hash(&BatchProperties { turned: true, ..plan.clone() }));
    assert_eq!(hash(&plan), hash(&BatchProperties { id: Some([3; 16]), ..plan }));
}

/// Guarantees: any other difference in a profile, its samples, its resource or its scope changes the hash.
#[test]
fn different_content() {
    let plan = BatchProperties::default();
    let all = [
        plan.clone(),
        BatchProperties { service: "cart", ..plan.clone() },
        BatchProperties { scope: "", ..plan.clone() },
        BatchProperties { kind: "events", ..plan.clone() },
        BatchProperties { function: "main", ..plan.clone() },
        BatchProperties { line: 13, ..plan.clone() },
        BatchProperties { address: 0x1001, ..plan.clone() },
        BatchProperties { file: "libm.so.6", ..plan.clone() },
        BatchProperties { thread: 8, ..plan.clone() },
        BatchProperties { span: 2, ..plan.clone() },
        BatchProperties { times: vec![1, 3], ..plan.clone() },
        BatchProperties { times: vec![1, 2, 3], ..plan.clone() },
        BatchProperties { values: vec![1, 1], ..plan.clone() },
        BatchProperties { times: vec![1], values: vec![2], ..plan.clone() },
        BatchProperties { time: 2, ..plan },
    ];
    let mut hashes: Vec<_> = all.iter().map(hash).collect();
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), all.len());
}

/// Guarantees: the hash is the same in every build, since profile ids and the detection of resends across replicas
/// depend on it.
#[test]
fn stable() {
    let hex: String = hash(&BatchProperties::default()).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, "aa246592ea7ecba04deb81660d2bcf04");
}
