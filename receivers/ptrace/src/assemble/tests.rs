use profbridge_model::{AttributeSetId, Dictionary, Sample};
use profbridge_sampler::message::{Context, Location, ProcessId, SpanLink, Stack, Thread};
use profbridge_symbolizer::SymbolFrame;
use proptest::prelude::*;

use super::runs::{MAX_PIECES, MIN_RUN, SEAM, TimedObservation, join_runs};
use super::*;

const MS: u64 = 1_000_000;
const T0: u64 = 1_767_225_600_000_000_000;

/// Finds names for a single address.
struct OneAddress;

impl SymbolNames for OneAddress {
    fn symbols(&self, location: Location) -> Option<Arc<Symbols>> {
        let frame = |function: &str, system: &str, line| SymbolFrame {
            function: function.into(),
            system_name: system.into(),
            file: Some("/src/a.rs".into()),
            line,
            column: 5,
        };
        let frames = [frame("inner", "inner", 10), frame("outer", "_ZN5outer", 20)];
        (location.address() == 0x1100).then(|| Arc::new(Vec::from(frames).into()))
    }
}

fn batch() -> Batch {
    let sample = |thread, stack, ms: u64, weight: u64| message::Sample {
        thread,
        stack,
        context: None,
        time_unix_nano: T0 + ms * MS,
        weight_nano: weight * MS,
        observations: 1,
        blocked: false,
    };
    Batch {
        process: ProcessId(1),
        period_nano: 10 * MS,
        mode: Mode::Wall,
        threads: vec![
            Thread { id: 100, namespace_id: 7, name: "main".into(), pointer: 0x7f00 },
            Thread { id: 101, namespace_id: 0, name: String::new(), pointer: 0 },
        ],
        locations: vec![
            Location::Native { mapping: Some(0), address: 0x1100 },
            Location::Native { mapping: Some(0), address: 0x1200 },
            Location::Native { mapping: None, address: 0x7fff_0000 },
        ],
        stacks: vec![
            Stack { trust: Trust::Complete, locations: vec![0, 1] },
            Stack { trust: Trust::Guessed, locations: vec![2] },
        ],
        contexts: Vec::new(),
        samples: vec![sample(0, 0, 20, 10), sample(0, 0, 10, 10), sample(1, 1, 10, 30), sample(0, 0, 0, 10)],
    }
}

fn mapping() -> Mapping {
    Mapping {
        path: "/usr/bin/app".into(),
        start: 0x1000,
        end: 0x2000,
        file_offset: 0x1000,
        build_id: Some(vec![0xab, 0x01]),
        htlhash: Some([0x0f; 16]),
        ..Mapping::default()
    }
}

fn assembled(batches: &[Batch], names: &dyn SymbolNames) -> Assembled {
    let resource = [
        Attribute { key: "service.name".into(), value: ResourceValue::Text("app".into()) },
        Attribute { key: "process.pid".into(), value: ResourceValue::Int(100) },
    ];
    assembled_as(AssembledProcess { resource: &resource, mappings: &[mapping()], names, ..NO_PROCESS }, batches)
}

const NO_PROCESS: AssembledProcess<'static> =
    AssembledProcess { resource: &[], mappings: &[], functions: &[], thread_attributes: &[], names: &Nameless };

fn assembled_as(process: AssembledProcess<'_>, batches: &[Batch]) -> Assembled {
    let mut assembler = Assembler::default();
    assembler.process(process, batches);
    assembler.finish().unwrap()
}

/// A batch with one sample, whose stack has these locations.
fn one_stack(locations: Vec<Location>) -> Batch {
    Batch {
        stacks: vec![Stack { trust: Trust::Complete, locations: (0..locations.len() as u32).collect() }],
        locations,
        samples: vec![message::Sample { time_unix_nano: T0, weight_nano: MS, ..message::Sample::default() }],
        threads: vec![Thread::default()],
        ..batch()
    }
}

/// The text value of an attribute.
fn text(dictionary: &Dictionary, set: Option<AttributeSetId>, key: &str) -> Option<String> {
    match dictionary.find(set, key)? {
        profbridge_model::Value::String(id) => Some(dictionary.string(*id).to_owned()),
        profbridge_model::Value::Int(number) => Some(number.to_string()),
        other => panic!("{key}: {other:?}"),
    }
}

fn only(profiles: &Profiles) -> &Profile {
    let mut all = profiles.profiles();
    let first = all.next().unwrap();
    assert!(all.next().is_none());
    first
}

fn times(sample: &Sample<'_>) -> Vec<(u64, i64)> {
    sample.timestamps().map(|time| (time - T0) / MS).zip(sample.values()).collect()
}

/// Guarantees: a batch becomes one profile of its mode with period and range; observations of one thread and stack
/// become one sample, in order of time, each with its weight.
/// rule: sample-format-v2#collecting-sample
#[test]
fn one_profile() {
    let Assembled { profiles, malformed, .. } = assembled(&[batch()], &Nameless);
    let (profile, dictionary) = (only(&profiles), profiles.dictionary());
    assert_eq!(malformed, 0);
    let name = |value: profbridge_model::ValueType| (dictionary.string(value.kind), dictionary.string(value.unit));
    assert_eq!(name(profile.sample_type), ("wall", "nanoseconds"));
    assert_eq!(profile.period_type, profile.sample_type);
    assert_eq!((profile.period, profile.time_unix_nano, profile.duration_nano), (10_000_000, T0, 40 * MS));
    let samples: Vec<_> = profiles.samples(profile).collect();
    assert_eq!(samples.len(), 2);
    assert_eq!(times(&samples[0]), [(0, 10_000_000), (10, 10_000_000), (20, 10_000_000)]);
    assert_eq!(times(&samples[1]), [(10, 30_000_000)]);
    let resource = &profiles.resources()[0].resource.attributes;
    assert_eq!(profiles.find(resource, "process.pid"), Some(&profbridge_model::Value::Int(100)));
}

/// Guarantees: threads are named by the id and the name that they have in their own process; an incomplete stack is
/// marked as such.
/// rule: sample-format-v2#collecting-sample
#[test]
fn threads_and_trust() {
    let Assembled { profiles, .. } = assembled(&[batch()], &Nameless);
    let dictionary = profiles.dictionary();
    let samples: Vec<_> = profiles.samples(only(&profiles)).collect();
    let text = |sample: &Sample<'_>, key: &str| text(dictionary, sample.attributes, key).unwrap_or_default();
    assert_eq!(text(&samples[0], "thread.id"), "7");
    assert_eq!(text(&samples[0], "thread.name"), "main");
    assert_eq!(text(&samples[0], POINTER_ATTRIBUTE), 0x7f00.to_string());
    assert_eq!(text(&samples[0], TRUST_ATTRIBUTE), "");
    assert_eq!(text(&samples[1], "thread.id"), "101");
    assert_eq!(text(&samples[1], "thread.name"), "");
    assert_eq!(text(&samples[1], TRUST_ATTRIBUTE), "guessed");
}

/// Guarantees: locations are native frames at addresses of their file, whose mapping has its range and both build ids;
/// lines have the innermost function first, and a mangled name only if there is one.
#[test]
fn locations() {
    let Assembled { profiles, .. } = assembled(&[batch()], &OneAddress);
    let dictionary = profiles.dictionary();
    let samples: Vec<_> = profiles.samples(only(&profiles)).collect();
    let of = |sample: &Sample<'_>| -> Vec<profbridge_model::Location> {
        dictionary.stack(sample.stack).map(|id| *dictionary.location(id.unwrap())).collect()
    };
    let [leaf, root] = of(&samples[0]).try_into().unwrap();
    assert_eq!((leaf.address, root.address, leaf.mapping), (0x1100, 0x1200, root.mapping));
    let lines: Vec<_> = dictionary
        .lines(&leaf)
        .iter()
        .map(|line| {
            let function = dictionary.function(line.function.unwrap());
            let system = dictionary.string(function.system_name);
            (dictionary.string(function.name), system, dictionary.string(function.filename), line.line, line.column)
        })
        .collect();
    assert_eq!(lines, [("inner", "", "/src/a.rs", 10, 5), ("outer", "_ZN5outer", "/src/a.rs", 20, 5)]);
    assert!(dictionary.lines(&root).is_empty());
    let text = |set, key: &str| text(dictionary, set, key).unwrap_or_default();
    assert_eq!(text(leaf.attributes, "profile.frame.type"), "native");
    let mapping = dictionary.mapping(leaf.mapping.unwrap());
    assert_eq!((mapping.memory_start, mapping.memory_limit, mapping.file_offset), (0x1000, 0x2000, 0x1000));
    assert_eq!(dictionary.string(mapping.filename), "/usr/bin/app");
    assert_eq!(text(mapping.attributes, "process.executable.build_id.gnu"), "ab01");
    assert_eq!(text(mapping.attributes, "process.executable.build_id.htlhash"), "0f".repeat(16));
    let [jit] = of(&samples[1]).try_into().unwrap();
    assert_eq!((jit.mapping, jit.address), (None, 0x7fff_0000));
}

/// Guarantees: each mode has its own profile, and batches of one mode are one profile.
#[test]
fn modes() {
    let cpu = Batch { mode: Mode::Cpu, ..batch() };
    let Assembled { profiles, .. } = assembled(&[batch(), cpu, batch()], &Nameless);
    let dictionary = profiles.dictionary();
    let kinds: Vec<_> = profiles
        .profiles()
        .map(|profile| (dictionary.string(profile.sample_type.kind), profiles.observations_of(profile)))
        .collect();
    assert_eq!(kinds, [("wall", 8), ("cpu", 4)]);
}

/// Guarantees: every invalid reference is counted and its observation left out, wherever the reference is.
#[test]
fn malformed_is_counted() {
    let mut broken = batch();
    broken.samples[0].thread = 9;
    broken.samples[1].stack = 9;
    broken.stacks[1].locations = vec![99];
    broken.locations[1] = Location::Native { mapping: Some(77), address: broken.locations[1].address() };
    let Assembled { profiles, malformed, .. } = assembled(&[broken], &Nameless);
    assert_eq!((malformed, profiles.observations()), (3, 1));
}

proptest! {
    /// Guarantees: a run of any length is divided at multiples of half a second and nowhere else; the pieces follow
    /// each other and are as long as the run, up to an hour. Short observations stay whole.
    #[test]
    fn runs(time in 0..2_000_000_000u64, weight in 0..3_600_000_000_000u64) {
        let (cuts, short) = (CUTS.as_nanos() as u64, weight < MIN_RUN.as_nanos() as u64);
        let all: Vec<_> = pieces(time, weight).collect();
        prop_assert_eq!(all.iter().map(|(_, weight)| weight).sum::<u64>(), weight);
        let mut next = time;
        for (time, weight) in &all {
            prop_assert_eq!(*time, next);
            next = time + weight;
            prop_assert!(short || time / cuts == (next - 1) / cuts);
        }
        prop_assert!(all.iter().skip(1).all(|(time, _)| time.is_multiple_of(cuts)));
        prop_assert!(!short || all.len() == 1);
    }

    /// Guarantees: a run that the sampler reported in parts is divided as if it had been reported at once, even if the
    /// sampler read the clock again in between, and is as long as its parts; runs with a pause between them, and short
    /// observations, stay apart.
    #[test]
    fn parts_of_runs(lengths in prop::collection::vec(100..700u64, 1..20), drift in 0..SEAM.as_nanos() as u64) {
        let mut parts = Vec::new();
        let mut time = T0;
        for &length in &lengths {
            parts.push(observed(0, time, length * MS));
            time += length * MS + drift;
        }
        let mut joined = parts.clone();
        join_runs(&mut joined);
        prop_assert_eq!(&joined, &[observed(0, T0, lengths.iter().sum::<u64>() * MS)]);
        let mut apart = vec![
            observed(0, T0, 200 * MS),
            observed(0, T0 + 202 * MS, 200 * MS),
            observed(0, T0 + 402 * MS, 10 * MS),
            observed(0, T0 + 412 * MS, 10 * MS),
        ];
        let before = apart.clone();
        join_runs(&mut apart);
        prop_assert_eq!(apart, before);
    }

    /// Guarantees: whatever sequence of observations a thread has, and however short some are, no run overlaps another
    /// observation of its thread, and each row keeps its total time.
    #[test]
    fn no_run_reaches_over_another_observation(
        course in prop::collection::vec((0..2u32, 0..3u32, prop_oneof![0..1_500u64, 90_000..300_000u64]), 1..60),
    ) {
        let mut all = Vec::new();
        let mut times = [T0; 2];
        for (thread, row, micros) in course {
            let time = &mut times[thread as usize];
            // The other thread's observations have other rows.
            all.push(TimedObservation { thread, row: row + 3 * thread, time: *time, weight: micros * 1_000 });
            *time += micros * 1_000;
        }
        let sums = |all: &[TimedObservation]| {
            let mut sums = [0; 6];
            all.iter().for_each(|one| sums[one.row as usize] += one.weight);
            sums
        };
        let before = sums(&all);
        join_runs(&mut all);
        prop_assert_eq!(sums(&all), before);
        for pair in all.windows(2).filter(|pair| pair[0].thread == pair[1].thread) {
            prop_assert!(pair[0].time + pair[0].weight <= pair[1].time, "{:?}", pair);
        }
    }
}

fn observed(row: u32, time: u64, weight: u64) -> TimedObservation {
    TimedObservation { thread: 1, row, time, weight }
}

/// Guarantees: a thread that wakes up briefly and waits again at the same place has two runs, with the observation
/// between them; observations of another thread divide nothing.
#[test]
fn a_moment_between_two_runs() {
    let moment = MS / 2;
    let mut woken = vec![observed(0, T0, 200 * MS), observed(1, T0 + 200 * MS, moment)];
    woken.push(observed(0, T0 + 200 * MS + moment, 200 * MS));
    let before = woken.clone();
    join_runs(&mut woken);
    assert_eq!(woken, before);
    woken[1].thread = 2;
    join_runs(&mut woken);
    assert_eq!(woken[0], observed(0, T0, 400 * MS));
}

/// Guarantees: in wall mode each sample has the state of its thread, running or waiting, and a stack with both states
/// becomes two samples; in cpu mode there is no state.
#[test]
fn states() {
    let both = |mode| {
        let mut batch = Batch { mode, ..batch() };
        batch.samples[1].blocked = true;
        let Assembled { profiles, .. } = assembled(&[batch], &Nameless);
        let said =
            |sample: Sample<'_>| (ThreadState::of(profiles.dictionary(), sample.attributes), times(&sample).len());
        profiles.samples(only(&profiles)).map(said).collect::<Vec<_>>()
    };
    assert_eq!(
        both(Mode::Wall),
        [(Some(ThreadState::Running), 2), (Some(ThreadState::Waiting), 1), (Some(ThreadState::Running), 1)]
    );
    assert_eq!(both(Mode::Cpu), [(None, 3), (None, 1)]);
}

/// Guarantees: an implausible weight does not fill memory, and an invalid time is counted and left out.
#[test]
fn absurd_numbers() {
    assert_eq!(pieces(0, u64::MAX).count() as u64, MAX_PIECES);
    assert_eq!(pieces(u64::MAX, u64::MAX).collect::<Vec<_>>(), [(u64::MAX, 0)]);
    let mut absurd = batch();
    absurd.samples[0].weight_nano = u64::MAX / 4;
    absurd.samples[1].time_unix_nano = u64::MAX;
    absurd.samples[2].weight_nano = u64::MAX;
    absurd.period_nano = u64::MAX;
    let Assembled { profiles, malformed, .. } = assembled(&[absurd], &Nameless);
    assert_eq!((malformed, profiles.observations()), (2, MAX_PIECES + 1));
}

/// Guarantees: if a sampler claims hours for each of many samples, they do not fill memory; pieces that are left out
/// are counted.
#[test]
fn many_absurd_numbers() {
    let hour = 3_600_000 * MS;
    let claimed = 2000;
    let mut absurd = batch();
    absurd.samples = (0..claimed)
        .map(|n| message::Sample {
            time_unix_nano: T0 + n * 2 * hour,
            weight_nano: hour,
            observations: 1,
            ..message::Sample::default()
        })
        .collect();
    let Assembled { profiles, malformed, excessive } = assembled(&[absurd], &Nameless);
    assert_eq!((malformed, profiles.observations()), (0, MAX_ALL_PIECES + claimed));
    // An hour is 7200 pieces or more, of which the first is not counted.
    assert_eq!(excessive, claimed - MAX_ALL_PIECES / 7199);
}

/// Finds one function, and its file if it has one, for every address.
struct Called(&'static str, Option<&'static str>);

impl SymbolNames for Called {
    fn symbols(&self, _location: Location) -> Option<Arc<Symbols>> {
        let (function, file) = (self.0.into(), self.1.map(Into::into));
        let frame = SymbolFrame { function, system_name: self.0.into(), file, line: 0, column: 0 };
        Some(Arc::new(vec![frame].into()))
    }
}

/// The frame type, function, file, line and column of a location.
fn location_fields(
    location: Location,
    mappings: &[Mapping],
    names: &dyn SymbolNames,
) -> (String, String, String, i64, i64) {
    let process = AssembledProcess { mappings, names, ..NO_PROCESS };
    let profiles = assembled_as(process, &[one_stack(vec![location])]).profiles;
    let dictionary = profiles.dictionary();
    let sample = profiles.samples(only(&profiles)).next().unwrap();
    let location = dictionary.location(dictionary.stack(sample.stack).next().unwrap().unwrap());
    let kind = text(dictionary, location.attributes, "profile.frame.type").unwrap();
    let Some(line) = dictionary.lines(location).first() else {
        return (kind, String::new(), String::new(), 0, 0);
    };
    let function = dictionary.function(line.function.unwrap());
    assert_eq!(function.system_name, None);
    let [name, file] = [function.name, function.filename].map(|text| dictionary.string(text).to_owned());
    (kind, name, file, line.line, line.column)
}

/// Guarantees: an entry that a runtime wrote into its perf map becomes a frame of that runtime, with function, file,
/// line and column; so does an entry about the runtime itself, if the process shows which runtime it is; any other
/// name becomes a native frame.
#[test]
fn perf_maps() {
    let compiled = Location::Native { mapping: None, address: 0x7fff_0000 };
    let process = |path: &str| [Mapping { path: path.to_owned(), ..mapping() }];
    let row = |name: &'static str, path: &str| location_fields(compiled, &process(path), &Called(name, None));
    let expected =
        |kind: &str, name: &str, file: &str, line, column| (kind.into(), name.into(), file.into(), line, column);
    assert_eq!(row("JS:*handle /srv.js:2:16", "/usr/bin/node"), expected("v8js", "handle", "/srv.js", 2, 16));
    assert_eq!(row("JS:~handle /srv.js:2:16", "/opt/app"), expected("v8js", "handle", "/srv.js", 2, 16));
    assert_eq!(row("py::digest:/x/h.py", "/usr/bin/python3.12"), expected("cpython", "digest", "/x/h.py", 0, 0));
    assert_eq!(row("void com.x.Y.m(int)", "/jvm/lib/server/libjvm.so"), expected("jvm", "com.x.Y.m", "", 0, 0));
    assert_eq!(row("Lcom/x/Y;::m", "/usr/bin/java"), expected("jvm", "com.x.Y.m", "", 0, 0));
    assert_eq!(row("Interpreter", "/usr/bin/java"), expected("jvm", "Interpreter", "", 0, 0));
    assert_eq!(row("SomeNewBlob", "/jvm/lib/server/libjvm.so"), expected("jvm", "SomeNewBlob", "", 0, 0));
    assert_eq!(row("NewKind:x", "/usr/local/bin/node"), expected("v8js", "NewKind:x", "", 0, 0));
    assert_eq!(row("SomeNewBlob", "/opt/app"), expected("native", "SomeNewBlob", "", 0, 0));
    assert_eq!(location_fields(compiled, &process("/usr/bin/node"), &Nameless), expected("native", "", "", 0, 0));
    // Code of a file keeps its type, whatever its name looks like.
    let in_file = Location::Native { mapping: Some(0), address: 0x1100 };
    let file = location_fields(in_file, &process("/opt/app"), &Called("JS:*handle /srv.js:2:16", None));
    assert_eq!(file, expected("native", "JS:*handle /srv.js:2:16", "", 0, 0));
}

/// Guarantees: a function of an interpreter becomes a frame of that interpreter, with its name (the system name
/// includes the module), file, first line and current line, without mapping and address; an unknown function has no
/// name.
#[test]
fn interpreted_functions() {
    let function = message::Function {
        kind: message::FunctionKind::CPython,
        name: "Späte.methode".to_owned(),
        module: "shop.main".to_owned(),
        file: "/app/main.py".to_owned(),
        line: 5,
    };
    let batch = one_stack([0, 1].map(|function| Location::Interpreted { function, line: 7 }).to_vec());
    let process = AssembledProcess { functions: &[function], ..NO_PROCESS };
    let profiles = assembled_as(process, &[batch]).profiles;
    let dictionary = profiles.dictionary();
    let sample = profiles.samples(only(&profiles)).next().unwrap();
    let frames: Vec<_> = dictionary.stack(sample.stack).map(|id| dictionary.location(id.unwrap())).collect();
    for frame in &frames {
        assert_eq!((frame.mapping, frame.address), (None, 0));
        assert_eq!(text(dictionary, frame.attributes, "profile.frame.type").as_deref(), Some("cpython"));
    }
    let said: Vec<_> = frames
        .iter()
        .map(|frame| {
            let line = dictionary.lines(frame).first().unwrap();
            let function = line.function.map(|function| dictionary.function(function));
            let texts = function.map(|one| [one.name, one.system_name, one.filename]);
            let texts = texts.map(|texts| texts.map(|text| dictionary.string(text).to_owned()));
            (texts, function.map(|function| function.start_line), line.line)
        })
        .collect();
    let texts = ["Späte.methode", "shop.main.Späte.methode", "/app/main.py"].map(str::to_owned);
    assert_eq!(said[0], (Some(texts), Some(5), 7));
    assert_eq!(said[1].0.clone().map(|[name, whole, _]| name + &whole).unwrap_or_default(), "");
}

/// Guarantees: code compiled by Go becomes Go frames, named or not; C code linked into the same file does not.
#[test]
fn go_frames() {
    let location = Location::Native { mapping: Some(0), address: 0x1100 };
    let kind = |go, names: &dyn SymbolNames| location_fields(location, &[Mapping { go, ..mapping() }], names).0;
    assert_eq!(kind(true, &Nameless), "go");
    assert_eq!(kind(true, &Called("main.work", Some("/src/main.go"))), "go");
    assert_eq!(kind(true, &Called("main.add", Some("/src/add_amd64.s"))), "go");
    assert_eq!(kind(true, &Called("main.(*T).Close", Some("<autogenerated>"))), "go");
    assert_eq!(kind(true, &Called("main.work", None)), "go");
    assert_eq!(kind(true, &Called("sqlite3_step", Some("/src/sqlite3.c"))), "native");
    assert_eq!(kind(false, &Called("main.work", None)), "native");
    assert_eq!(kind(false, &Nameless), "native");
}

/// Guarantees: a sample has the link and the attributes of its thread's context, under the keys that the configuration
/// gave; samples of one stack with different spans, or attributes, are different samples, and runs are joined only
/// within one.
/// rule: otlp-profiles#thread-context
#[test]
fn what_threads_worked_on() {
    let link = |id: u8| Some(SpanLink { trace_id: [id; 16], span_id: [id; 8] });
    let context = |id, attributes: &[(u32, &str)]| Context {
        link: link(id),
        attributes: attributes.iter().map(|&(key, value)| (key, value.to_owned())).collect(),
    };
    let sample = |context, ms: u64| message::Sample {
        context,
        time_unix_nano: T0 + ms * MS,
        weight_nano: 200 * MS,
        observations: 1,
        blocked: true,
        ..message::Sample::default()
    };
    let batch = Batch {
        contexts: vec![
            context(1, &[]),
            context(2, &[(1, "/a")]),
            context(2, &[(1, "/b"), (9, "x")]),
            Context::default(),
        ],
        samples: vec![
            sample(Some(0), 0),
            sample(Some(0), 200),
            sample(None, 400),
            sample(Some(1), 600),
            sample(Some(2), 800),
            sample(Some(3), 1000),
            sample(Some(99), 1200),
        ],
        ..batch()
    };
    let keys = ["zero", "http.route"].map(str::to_owned);
    let process = AssembledProcess { mappings: &[mapping()], thread_attributes: &keys, ..NO_PROCESS };
    let profiles = assembled_as(process, &[batch]).profiles;
    let dictionary = profiles.dictionary();
    let said: Vec<_> = profiles
        .samples(only(&profiles))
        .map(|sample| {
            let id = sample.link.map(|link| dictionary.link(link).span_id[0]);
            let route = text(dictionary, sample.attributes, "http.route");
            (id, route, sample.values().sum::<i64>() / MS as i64)
        })
        .collect();
    let route = |text: &str| Some(text.to_owned());
    assert_eq!(
        said,
        [(Some(1), None, 400), (None, None, 600), (Some(2), route("/a"), 200), (Some(2), route("/b"), 200),]
    );
}
