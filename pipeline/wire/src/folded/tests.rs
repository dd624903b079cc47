use profbridge_model::{Builder, Function, Location, Mapping, Profile, Profiles, Reason};

use super::choice::ShownType;
use super::{CalledBy, Folded, Threads};

fn text(folded: &Folded) -> String {
    let mut out = Vec::new();
    folded.write(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn profile(builder: &mut Builder, (kind, unit): (&str, &str), period: (&str, &str, i64)) {
    let sample_type = builder.value_type(kind, unit);
    let period_type = builder.value_type(period.0, period.1);
    builder.profile(Profile { sample_type, period_type, period: period.2, ..Profile::default() });
}

/// A profile of this type with a sample of each of these functions, with times and values.
fn typed(builder: &mut Builder, kind: (&str, &str), samples: &[(&str, &[u64], &[i64])]) {
    profile(builder, kind, ("", "", 0));
    for &(name, times, values) in samples {
        let frame = builder.frame(name, "", 0);
        let stack = builder.stack(&[frame]);
        builder.sample(stack, None, None, times, values);
    }
}

fn fold(build: impl FnOnce(&mut Builder)) -> Folded {
    fold_with(Threads::Merged, build)
}

fn fold_with(threads: Threads, build: impl FnOnce(&mut Builder)) -> Folded {
    let mut folded = Folded::new(threads);
    folded.add(&batch(build));
    folded
}

fn batch(build: impl FnOnce(&mut Builder)) -> Profiles {
    let mut builder = Builder::new();
    build(&mut builder);
    builder.finish().unwrap()
}

/// Guarantees: stacks are written root first, equal stacks as one line, and counts times the period as nanoseconds.
#[test]
fn time_from_a_period() {
    let folded = fold(|builder| {
        builder.on_cpu(20);
        let (leaf, root) = (builder.frame("leaf", "a", 1), builder.frame("root", "a", 2));
        let other = builder.frame("leaf", "a", 99);
        let (stack, same) = (builder.stack(&[leaf, root]), builder.stack(&[other, root]));
        let short = builder.stack(&[root]);
        builder.sample(stack, None, None, &[1, 2], &[]);
        builder.sample(same, None, None, &[3], &[3]);
        builder.sample(short, None, None, &[], &[2]);
    });
    assert_eq!(folded.shown_type(), None);
    assert_eq!(text(&folded), "root 100000000\nroot;leaf 250000000\n");
    assert!(folded.losses().is_none());
}

/// Guarantees: values in a unit of time are scaled to nanoseconds, and negative ones are counted.
#[test]
fn time_from_values() {
    for (unit, expected) in [("nanoseconds", 7), ("us", 7_000), ("milliseconds", 7_000_000), ("s", 7_000_000_000u64)] {
        let samples: [(&str, &[u64], &[i64]); 2] = [("f", &[5, 6], &[3, 4]), ("f", &[], &[-9])];
        let folded = fold(|builder| typed(builder, ("cpu", unit), &samples));
        assert_eq!(text(&folded), format!("f {expected}\n"));
        assert_eq!(folded.losses().to_string(), "1 negative_value");
    }
}

/// Guarantees: values of different types are never added: the first type is shown, the others are counted and named.
#[test]
fn different_types() {
    let of = |kind: &'static str, unit: &'static str, value: i64| {
        batch(move |builder| typed(builder, (kind, unit), &[(kind, &[1, 2], &[value, value])]))
    };
    let folded = |batches: &[Profiles]| {
        let mut folded = Folded::new(Threads::Merged);
        batches.iter().for_each(|batch| folded.add(batch));
        let shown = folded.shown_type().map(ShownType::to_string);
        (shown, text(&folded), folded.not_shown().in_words().collect::<Vec<_>>(), folded.losses().to_string())
    };
    let (cpu, bytes, objects) = (of("cpu", "ns", 5), of("alloc", "By", 3), of("alloc", "objects", 4));
    let not = |words: &str| vec![format!("{words}, 2 observations")];
    let lost = "2 other_type".to_owned();
    let expected = (None, "cpu 10\n".to_owned(), not("alloc (bytes)"), lost.clone());
    assert_eq!(folded(&[cpu.clone(), bytes.clone()]), expected);
    let expected = (Some("alloc (bytes)".to_owned()), "alloc 6\n".to_owned(), not("cpu (nanoseconds)"), lost.clone());
    assert_eq!(folded(&[bytes.clone(), cpu]), expected);
    let expected = (Some("alloc (bytes)".to_owned()), "alloc 6\n".to_owned(), not("alloc (objects)"), lost);
    assert_eq!(folded(&[bytes.clone(), objects]), expected);
    // `By` and `bytes` are spellings of the same unit.
    assert_eq!(folded(&[bytes, of("alloc", "bytes", 4)]).1, "alloc 14\n");
    for unit in ["", "1", "count", "counts", "sample", "samples", "{sample}", "{samples}"] {
        let (shown, text, ..) = folded(&[of("hits", unit, 3), of("hits", "count", 4)]);
        assert_eq!((shown.as_deref(), &*text), (Some("hits (count)"), "hits 14\n"));
    }
}

/// Guarantees: pprof's default type is shown, or else time, or else the last type with a non-zero value; blocked time
/// is shown in addition, below `[waiting]`.
#[test]
fn chosen_types() {
    let of = |default: &'static str, values: &[(&'static str, &'static str, i64)]| {
        let values = values.to_vec();
        let mut folded = Folded::new(Threads::Merged).with_states();
        folded.add(&batch(move |builder| {
            let default = builder.key_value("pprof.scope.default_sample_type", default.into());
            builder.resource(&[]);
            let scope = profbridge_model::Scope { attributes: vec![default], ..Default::default() };
            builder.scope_profiles(profbridge_model::ScopeProfiles { scope, ..Default::default() });
            values.iter().for_each(|&(kind, unit, value)| typed(builder, (kind, unit), &[(kind, &[], &[value])]));
        }));
        text(&folded)
    };
    let heap = [("alloc_objects", "count", 5), ("alloc_space", "bytes", 7), ("inuse_space", "bytes", 9)];
    assert_eq!(of("inuse_space", &heap), "inuse_space 9\n");
    assert_eq!(of("", &heap), "inuse_space 9\n");
    assert_eq!(of("", &heap[..2]), "alloc_space 7\n");
    assert_eq!(of("gone", &[("a", "count", 0), ("b", "count", 3)]), "b 3\n");
    assert_eq!(of("a", &[("a", "count", 0), ("cpu", "ns", 3)]), "cpu 3\n");
    assert_eq!(of("", &[("cpu", "ns", 5), ("off_cpu", "ns", 20)]), "[running];cpu 5\n[waiting];off_cpu 20\n");
    assert_eq!(of("", &[("contentions", "count", 5), ("delay", "ns", 20)]), "[waiting];delay 20\n");
    assert_eq!(of("", &[("cpu", "ns", 5)]), "cpu 5\n");
}

/// Guarantees: only the most informative type of a scope is folded, with all its profiles; off-CPU time only if there
/// is nothing else.
#[test]
fn one_type_of_a_scope() {
    let build = |kinds: &[(&'static str, &'static str)]| {
        let kinds = kinds.to_vec();
        fold(move |builder| {
            for (kind, unit) in kinds {
                profile(builder, (kind, unit), ("cpu", "nanoseconds", 10));
                let frame = builder.frame(kind, "", 0);
                let stack = builder.stack(&[frame]);
                builder.sample(stack, None, None, &[], &[1]);
            }
        })
    };
    let folded =
        build(&[("samples", "count"), ("wall", "nanoseconds"), ("cpu", "nanoseconds"), ("wall", "nanoseconds")]);
    assert_eq!(text(&folded), "wall 2\n");
    assert_eq!(folded.losses().get(Reason::OtherType).total(), 2);
    assert_eq!(text(&build(&[("off_cpu", "nanoseconds"), ("samples", "count")])), "samples 10\n");
    assert_eq!(text(&build(&[("off_cpu", "nanoseconds")])), "off_cpu 1\n");
    assert_eq!(text(&build(&[("alloc", "bytes"), ("cpu", "seconds")])), "cpu 1000000000\n");
}

/// Guarantees: no name can break its line, inlined frames are separate frames, and a frame without a function is named
/// by its file and page.
/// rule: otep-0239#system-name
#[test]
fn names() {
    let folded = fold(|builder| {
        builder.on_cpu(1);
        let inner = builder.string("a;b\nc ");
        let inner = builder.function(Function { system_name: inner, ..Function::default() });
        let outer = builder.string("outer");
        let outer = builder.function(Function { name: outer, ..Function::default() });
        let line = |function| profbridge_model::Line { function, line: 1, column: 0 };
        let inlined = builder.location(Location { address: 9, ..Location::default() }, &[line(inner), line(outer)]);
        let filename = builder.string("/usr/lib/libc.so.6");
        let mapping = builder.mapping(Mapping { filename, memory_limit: 5, ..Mapping::default() });
        let native = builder.location(Location { mapping, address: 3, ..Location::default() }, &[]);
        let outside = builder.location(Location { mapping, address: 7, ..Location::default() }, &[]);
        let filename = builder.string("[vdso]");
        let vdso = builder.mapping(Mapping { filename, memory_limit: 5, ..Mapping::default() });
        let vdso = builder.location(Location { mapping: vdso, address: 3, ..Location::default() }, &[]);
        let nothing = builder.location(Location { address: 4, ..Location::default() }, &[]);
        let long = builder.frame(&"é".repeat(3000), "", 0);
        let stack = builder.stack(&[inlined, native, vdso, outside, nothing]);
        builder.sample(stack, None, None, &[1], &[]);
        let stack = builder.stack(&[long]);
        builder.sample(stack, None, None, &[1], &[]);
    });
    let text = text(&folded);
    let mut lines = text.lines();
    let expected = "[unknown];[libc.so.6];[vdso]+0x0;[libc.so.6]+0x0;outer;a:b c 1000000000";
    assert_eq!(lines.next(), Some(expected));
    // A long name is truncated to leave room for its distinguishing suffix.
    let long = lines.next().and_then(|line| line.strip_suffix(" 1000000000")).unwrap();
    assert!(long.len() <= 1024 && long.starts_with(&format!("{}…", "é".repeat(502))), "{long}");
}

/// Guarantees: threads are kept separate only on request, by name or else by id.
#[test]
fn threads() {
    let build = |builder: &mut Builder| {
        builder.on_cpu(1);
        let frame = builder.frame("f", "", 0);
        let stack = builder.stack(&[frame]);
        let named = builder.attributes(&[("thread.id", 1.into()), ("thread.name", "ma;in".into())]);
        let numbered = builder.attributes(&[("thread.id", 2.into())]);
        for thread in [named, numbered, None, named] {
            builder.sample(stack, thread, None, &[1], &[]);
        }
    };
    assert_eq!(text(&fold(build)), "f 4000000000\n");
    let apart = text(&fold_with(Threads::Apart, build));
    assert_eq!(apart, "[unknown thread];f 1000000000\nma:in;f 2000000000\nthread 2;f 1000000000\n");
}

/// Guarantees: idle time is counted and not written as a stack.
#[test]
fn no_frames() {
    let folded = fold(|builder| {
        builder.on_cpu(1);
        builder.sample(None, None, None, &[1, 2, 3], &[]);
    });
    assert!(folded.is_empty());
    assert_eq!(folded.losses().get(Reason::NoFrames).total(), 3);
}

/// Attack: a stack of a million frames, which takes two megabytes on the wire.
/// Guarantees: the frames nearest the leaf are written, with a mark for the missing ones.
#[test]
fn attack_deep_stack() {
    let folded = fold(|builder| {
        builder.on_cpu(1);
        let (leaf, root) = (builder.frame("leaf", "", 0), builder.frame("r", "", 0));
        let mut frames = vec![root; 1_000_000];
        frames[0] = leaf;
        let stack = builder.stack(&frames);
        builder.sample(stack, None, None, &[1], &[]);
    });
    let text = text(&folded);
    assert!(text.starts_with("[deeper frames left out];r;r;"));
    assert!(text.ends_with(";r;leaf 1000000000\n"));
    assert!(text.len() < 20_000);
}

/// Attack: one long name in thousands of deep stacks: gigabytes of text from a few megabytes.
/// Guarantees: text is kept up to the limit, and stacks beyond it are counted.
#[test]
fn attack_long_names() {
    let mut folded = Folded { max_bytes: 64 << 10, ..Folded::new(Threads::Merged) };
    folded.add(&batch(|builder| {
        builder.on_cpu(1);
        let long = builder.frame(&"x".repeat(1 << 20), "", 0);
        for i in 0..80 {
            let leaf = builder.frame(&i.to_string(), "", 0);
            let stack = builder.stack(&[leaf, long, long]);
            builder.sample(stack, None, None, &[1], &[]);
            builder.sample(stack, None, None, &[2], &[]);
        }
    }));
    let held: usize = folded.lines().map(|(stack, _)| stack.len()).sum();
    assert!(held <= 64 << 10);
    let kept = folded.lines().count() as u64;
    assert_eq!(kept, 31);
    assert_eq!(2 * kept + folded.losses().get(Reason::LimitExceeded).total(), 160);
}

/// Guarantees: frames that the profile hides are omitted.
/// rule: otep-0239#drop-frames
#[test]
fn frames_that_are_not_shown() {
    let folded = fold(|builder| {
        builder.on_cpu(20);
        let attributes = builder.attributes(&[("pprof.profile.drop_frames", "m.*c".into())]);
        builder.open_profile().unwrap().attributes = attributes;
        let [grow, malloc, main] = ["grow", "malloc", "main"].map(|name| builder.frame(name, "", 0));
        let stack = builder.stack(&[grow, malloc, main]);
        builder.sample(stack, None, None, &[1, 2], &[]);
    });
    assert_eq!(text(&folded), "main 100000000\n");
}

/// Guarantees: on request, the thread's state is the root of its stacks if wall-clock samples have a state.
#[test]
fn states() {
    let build = |kind: &'static str| {
        batch(move |builder| {
            profile(builder, (kind, "nanoseconds"), ("", "", 0));
            for (name, state) in [("hot", Some("running")), ("park", Some("waiting")), ("park", None)] {
                let frame = builder.frame(name, "", 0);
                let stack = builder.stack(&[frame]);
                let mut attributes = vec![("thread.name", "t".into())];
                attributes.extend(state.map(|state| ("profbridge.thread.state", state.into())));
                let attributes = builder.attributes(&attributes);
                builder.sample(stack, attributes, None, &[5], &[3]);
            }
        })
    };
    let written = |folded: Folded, kind| {
        let mut folded = folded;
        folded.add(&build(kind));
        text(&folded)
    };
    let wall = written(Folded::new(Threads::Apart).with_states(), "wall");
    assert_eq!(wall, "[running or waiting];t;park 3\n[running];t;hot 3\n[waiting];t;park 3\n");
    assert_eq!(written(Folded::new(Threads::Merged).with_states(), "cpu"), "hot 3\npark 6\n");
    assert_eq!(written(Folded::new(Threads::Apart), "wall"), "t;hot 3\nt;park 6\n");
}

/// Guarantees: on request, each of several processes is a frame before its stacks, from its resource or its samples; a
/// single process is not shown, and a process without weight does not count.
#[test]
fn processes() {
    let written = |resources: &[(&[(&str, &str)], i64)], samples: &[&str]| {
        let mut folded = Folded::new(Threads::Apart).with_states().with_processes(CalledBy::Service);
        folded.add(&batch(|builder| {
            for (attributes, value) in resources {
                let attributes: Vec<_> = attributes.iter().map(|&(key, value)| (key, value.into())).collect();
                builder.resource(&attributes);
                profile(builder, ("wall", "nanoseconds"), ("", "", 0));
                let frame = builder.frame("f", "", 0);
                let stack = builder.stack(&[frame]);
                for executable in samples {
                    let mut attributes = vec![("profbridge.thread.state", "waiting".into())];
                    attributes.push(("process.executable.name", (*executable).into()));
                    let attributes = builder.attributes(&attributes);
                    builder.sample(stack, attributes, None, &[5], &[*value]);
                }
            }
        }));
        text(&folded)
    };
    let (shop, api, none): (&[_], &[_], &[_]) = (&[("service.name", "sh;op")], &[("service.name", "api")], &[]);
    assert_eq!(written(&[(shop, 3), (api, 4)], &[""]), "[waiting];api;f 4\n[waiting];sh:op;f 3\n");
    assert_eq!(written(&[(shop, 3), (none, 4)], &[""]), "[waiting];[unknown process];f 4\n[waiting];sh:op;f 3\n");
    assert_eq!(written(&[(none, 3)], &["a", "b", "a"]), "[waiting];a;f 6\n[waiting];b;f 3\n");
    assert_eq!(written(&[(shop, 3), (shop, 4)], &[""]), "[waiting];f 7\n");
    assert_eq!(written(&[(shop, 3), (api, 0)], &[""]), "[waiting];f 3\n");
}

/// Attack: one long process name with thousands of ids.
/// Guarantees: the limit covers all written text, including the prefixes of stacks.
#[test]
fn attack_long_processes() {
    let mut folded = Folded { max_bytes: 64 << 10, ..Folded::new(Threads::Merged) }.with_processes(CalledBy::Service);
    folded.add(&batch(|builder| {
        let name = "x".repeat(1_000);
        builder.resource(&[("service.name", name.as_str().into())]);
        builder.on_cpu(1);
        let frame = builder.frame("f", "", 0);
        let stack = builder.stack(&[frame]);
        for pid in 0..1_000 {
            let attributes = builder.attributes(&[("process.pid", pid.into())]);
            builder.sample(stack, attributes, None, &[1], &[]);
        }
    }));
    let held: usize = folded.lines().map(|(stack, _)| stack.len()).sum();
    let kept = folded.lines().count() as u64;
    assert!(held <= 64 << 10 && kept > 5, "{held} {kept}");
    assert_eq!(kept + folded.losses().get(Reason::LimitExceeded).total(), 1_000);
}

/// Guarantees: two functions whose long names have the same beginning stay distinct, and no name exceeds the limit.
#[test]
fn long_names() {
    let long = |end: &str| format!("{}{end}", "é".repeat(600));
    let samples: [(&str, &[u64], &[i64]); 2] = [(&long("a"), &[5], &[3]), (&long("b"), &[5], &[3])];
    let folded = fold(|builder| typed(builder, ("cpu", "nanoseconds"), &samples));
    let text = text(&folded);
    let names: Vec<&str> = text.lines().map(|line| line.strip_suffix(" 3").unwrap()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(names.iter().all(|name| name.len() <= super::MAX_NAME && name.starts_with(&"é".repeat(500))), "{names:?}");
    assert_ne!(names[0], names[1]);
}
