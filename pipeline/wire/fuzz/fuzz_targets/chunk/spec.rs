//! Builds batches and settings from bytes: anything that a profiler may send, encoded in few bytes.

use std::time::Duration;

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use profbridge_model::builder::Any;
use profbridge_model::{
    AttributeSetId, Builder, Function, IdentityStrength, Line, Location, LocationId, Mapping, MappingId, ProcessWindow,
    Profile, ProfilerId, Profiles, StackId,
};
use profbridge_wire::sentry::chunk::{InApp, LoneSamples, Prefer, Settings};

/// Times are relative to this one: 2025-10-09T08:53:20Z.
const START: u64 = 1_760_000_000_000_000_000;

const WORDS: [&str; 20] = [
    "",
    "main",
    "void java.lang.Thread.run()",
    "Elixir.Shop.Cart:total/2",
    "net/http.(*conn).serve",
    "System.Thread..ctor()",
    "/usr/lib/python3/dist-packages/x.py",
    "/app/node_modules/y.js",
    "C:\\app\\z.dll",
    "src/main.rs",
    "[vdso]",
    "libc.so.6",
    "vmlinux",
    "\"\\\n\u{0}\u{7f}\u{2028}",
    "é…😀",
    ".",
    "/",
    "(",
    "7",
    "0123456789abcdef0123456789abcdef01234567",
];

const FRAME_TYPES: [&str; 10] =
    ["native", "kernel", "go", "cpython", "v8js", "jvm", "beam", "dotnet", "abort-marker", "something"];

const KINDS: [&str; 9] = ["samples", "cpu", "wall", "off_cpu", "delay", "inuse_space", "CPU", "", "events"];

const UNITS: [&str; 7] = ["count", "nanoseconds", "us", "ms", "seconds", "bytes", ""];

const KEYS: [&str; 9] = [
    "thread.id",
    "thread.name",
    "service.name",
    "service.version",
    "deployment.environment.name",
    "process.executable.build_id.gnu",
    "process.pid",
    "profile.frame.type",
    "cpu.logical_number",
];

/// Settings, including some that a configuration does not allow.
pub fn settings(bytes: &mut Unstructured<'_>) -> Result<Settings> {
    let word = |bytes: &mut Unstructured<'_>| Ok(vec![(*bytes.choose(&WORDS)?).to_owned()]);
    Ok(Settings {
        max_gap: Duration::from_nanos(*bytes.choose(&[5_000_000_000, 1, 1_000_000, u64::MAX])?),
        min_active_time: Duration::from_millis(*bytes.choose(&[0, 0, 0, 100])?),
        lone_samples: *bytes.choose(&[LoneSamples::Split, LoneSamples::Drop])?,
        off_cpu: bytes.arbitrary()?,
        target_bytes: *bytes.choose(&[10 << 20, 64 << 10, 2_000, 200])?,
        prefer: *bytes.choose(&[Prefer::Wall, Prefer::Cpu])?,
        in_app: if bytes.arbitrary()? {
            InApp { include: word(bytes)?, exclude: word(bytes)?, source_roots: word(bytes)? }
        } else {
            InApp::default()
        },
        ..Settings::default()
    })
}

/// A window around the first time of a batch.
pub fn window(bytes: &mut Unstructured<'_>, batch: &Profiles) -> Result<ProcessWindow> {
    let mut samples = batch.profiles().flat_map(|profile| batch.samples(profile));
    let first = samples.find_map(|sample| sample.timestamps().next()).unwrap_or(START);
    let start_unix_nano = first.saturating_sub(span(bytes)?);
    Ok(ProcessWindow {
        profiler_id: ProfilerId::from_hash(bytes.arbitrary::<u8>()?.into()),
        strength: IdentityStrength::Strong,
        start_unix_nano,
        end_unix_nano: start_unix_nano.saturating_add(span(bytes)?),
    })
}

/// A duration of any size, in nanoseconds.
fn span(bytes: &mut Unstructured<'_>) -> Result<u64> {
    let number = u64::from(bytes.arbitrary::<u8>()?);
    let unit = *bytes.choose(&[1_000_000_000, 1_000_000, 20_000_000, 1_000, 1, 1 << 54])?;
    Ok(number * unit)
}

/// A number that may be at the end of its range.
fn number(bytes: &mut Unstructured<'_>) -> Result<u64> {
    Ok(match bytes.arbitrary::<u8>()? {
        small @ 0..200 => small.into(),
        200..220 => u64::from(bytes.arbitrary::<u16>()?) << 12,
        220..230 => u64::MAX,
        230..240 => i64::MAX as u64,
        240..250 => u64::from(u32::MAX) + 1,
        _ => bytes.arbitrary()?,
    })
}

fn word<'a>(bytes: &mut Unstructured<'a>) -> Result<std::borrow::Cow<'a, str>> {
    Ok(match bytes.arbitrary::<u8>()? {
        short @ 0..200 => WORDS[usize::from(short) % WORDS.len()].into(),
        200..205 => "é".repeat(2_100).into(),
        _ => bytes.arbitrary::<&str>()?.into(),
    })
}

fn attributes(builder: &mut Builder, bytes: &mut Unstructured<'_>, keys: &[&str]) -> Result<Option<AttributeSetId>> {
    let mut items = Vec::new();
    for _ in 0..bytes.int_in_range(0..=3)? {
        let key = *bytes.choose(keys)?;
        let word = word(bytes)?;
        let value = match bytes.arbitrary::<u8>()? % 8 {
            0..4 => Any::Int(i64::from(bytes.arbitrary::<u8>()?) % 4),
            4..6 if key == "profile.frame.type" => Any::Str(bytes.choose(&FRAME_TYPES)?),
            4..6 => Any::Str(&word),
            6 => Any::Int(number(bytes)? as i64),
            _ => Any::Bool(true),
        };
        let item = builder.attribute(key, value, "");
        // OTLP forbids repeated attributes, and the decoder would detect the layout 1.9 by them.
        if !items.contains(&item) {
            items.push(item);
        }
    }
    Ok(builder.attribute_set(&items))
}

fn mapping(builder: &mut Builder, bytes: &mut Unstructured<'_>) -> Result<Option<MappingId>> {
    let memory_start = number(bytes)?;
    let mapping = Mapping {
        memory_start,
        memory_limit: memory_start.saturating_add(number(bytes)? << 4),
        file_offset: number(bytes)?,
        filename: builder.string(&word(bytes)?),
        attributes: if bytes.arbitrary()? {
            builder.attributes(&[("process.executable.build_id.gnu", (*bytes.choose(&WORDS)?).into())])
        } else {
            attributes(builder, bytes, &KEYS)?
        },
    };
    Ok(builder.mapping(mapping))
}

fn location(
    builder: &mut Builder,
    bytes: &mut Unstructured<'_>,
    mappings: &[Option<MappingId>],
) -> Result<Option<LocationId>> {
    let mut lines = Vec::new();
    for _ in 0..bytes.int_in_range(0..=2)? {
        let function = Function {
            name: builder.string(&word(bytes)?),
            system_name: builder.string(bytes.choose(&WORDS)?),
            filename: builder.string(&word(bytes)?),
            start_line: number(bytes)? as i64,
        };
        let function = builder.function(function);
        lines.push(Line { function, line: number(bytes)? as i64, column: number(bytes)? as i64 });
    }
    if bytes.arbitrary::<u8>()? > 250 {
        lines = lines.repeat(600);
    }
    let location = Location {
        mapping: *bytes.choose(mappings)?,
        address: number(bytes)?,
        attributes: attributes(builder, bytes, &["profile.frame.type"])?,
        ..Location::default()
    };
    Ok(builder.location(location, &lines))
}

fn stack(
    builder: &mut Builder,
    bytes: &mut Unstructured<'_>,
    locations: &[Option<LocationId>],
) -> Result<Option<StackId>> {
    let mut stack = Vec::new();
    for _ in 0..bytes.int_in_range(0..=4)? {
        stack.push(*bytes.choose(locations)?);
    }
    if bytes.arbitrary::<u8>()? > 250 {
        stack = stack.repeat(400);
    }
    Ok(builder.stack(&stack))
}

/// A batch of at most a few hundred observations.
pub fn batch(bytes: &mut Unstructured<'_>) -> Result<Builder> {
    let mut builder = Builder::new();
    let mut mappings = vec![None];
    for _ in 0..bytes.int_in_range(0..=2)? {
        mappings.push(mapping(&mut builder, bytes)?);
    }
    let mut locations = vec![None];
    for _ in 0..bytes.int_in_range(1..=5)? {
        locations.push(location(&mut builder, bytes, &mappings)?);
    }
    let mut stacks = vec![None];
    for _ in 0..bytes.int_in_range(1..=5)? {
        stacks.push(stack(&mut builder, bytes, &locations)?);
    }
    let mut sets = vec![None];
    for _ in 0..bytes.int_in_range(0..=4)? {
        sets.push(attributes(&mut builder, bytes, &KEYS)?);
    }
    for _ in 0..bytes.int_in_range(1..=2)? {
        let (name, version, key) = (word(bytes)?, word(bytes)?, *bytes.choose(&KEYS)?);
        builder.resource(&[("service.name", Any::Str(&name)), (key, Any::Str(&version))]);
        builder.scope(bytes.choose(&WORDS)?, "1");
        for _ in 0..bytes.int_in_range(1..=3)? {
            profile(&mut builder, bytes, &stacks, &sets)?;
        }
    }
    Ok(builder)
}

fn profile(
    builder: &mut Builder,
    bytes: &mut Unstructured<'_>,
    stacks: &[Option<StackId>],
    sets: &[Option<AttributeSetId>],
) -> Result<()> {
    let sample_type = builder.value_type(bytes.choose(&KINDS)?, bytes.choose(&UNITS)?);
    let period_type = builder.value_type(bytes.choose(&KINDS)?, bytes.choose(&UNITS)?);
    builder.profile(Profile {
        sample_type,
        period_type,
        period: if bytes.arbitrary()? { 50_000_000 } else { number(bytes)? as i64 },
        time_unix_nano: if bytes.arbitrary()? { START } else { span(bytes)? },
        duration_nano: span(bytes)?.min(i64::MAX as u64),
        attributes: *bytes.choose(sets)?,
        ..Profile::default()
    });
    for _ in 0..bytes.int_in_range(0..=8)? {
        let (stack, set) = (*bytes.choose(stacks)?, *bytes.choose(sets)?);
        let mut at = START.wrapping_add(span(bytes)?);
        let mut times = Vec::new();
        for _ in 0..bytes.int_in_range(0..=8)? {
            times.push(at);
            at = at.wrapping_add(span(bytes)?);
        }
        let valued = times.is_empty() || bytes.arbitrary()?;
        let count = if !valued { 0 } else { times.len().max(1) };
        let values: Vec<i64> = (0..count).map(|_| Ok(number(bytes)? as i64)).collect::<Result<_>>()?;
        builder.sample(stack, set, None, &times, &values);
    }
    Ok(())
}
