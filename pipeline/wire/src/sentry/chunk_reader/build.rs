//! A chunk's keys to a batch.

use std::collections::HashMap;

use profbridge_model::builder::Any;
use profbridge_model::{
    AttributeSetId, Builder, Function, IdentityStrength, Line, Location, LocationId, Mapping, MappingId, ProcessWindow,
    Profile, ProfilerId, Profiles, StackId,
};
use uuid::Uuid;

use super::model::{Chunk, Frame, Image};
use super::text::Text;
use super::{ChunkError, invalid, json};

pub(super) fn build(chunk: &Chunk<'_>) -> Result<Profiles, ChunkError> {
    match chunk.version.as_str() {
        "2" => {}
        "2.android-trace" => return Err(invalid("version", "an Android trace is not supported, only \"2\"")),
        _ => return Err(invalid("version", "is not \"2\"")),
    }
    let chunk_id = uuid("chunk_id", &chunk.chunk_id)?;
    let profiler_id = uuid("profiler_id", &chunk.profiler_id)?;
    let times = Times::of(chunk)?;

    let mut builder = Builder::new();
    resource(&mut builder, chunk, profiler_id);
    let sdk = chunk.client_sdk.as_ref();
    builder.scope(
        sdk.and_then(|sdk| sdk.name.as_ref()).map_or("", Text::as_str),
        sdk.and_then(|sdk| sdk.version.as_ref()).map_or("", Text::as_str),
    );
    let images = Images::build(&mut builder, chunk)?;
    let sample_type = builder.value_type("wall", "nanoseconds");
    let attributes = profile_attributes(&mut builder, chunk, &images);
    builder.profile(Profile {
        sample_type,
        time_unix_nano: times.start,
        duration_nano: times.end - times.start,
        profile_id: (!chunk_id.is_nil()).then(|| chunk_id.into_bytes()),
        attributes,
        ..Profile::default()
    });
    let stacks = stacks(&mut builder, chunk, &images)?;
    let threads = Threads::build(&mut builder, chunk);
    samples(&mut builder, chunk, &times, &stacks, &threads)?;

    let mut profiles = builder.finish()?;
    profiles.window = Some(ProcessWindow {
        profiler_id: ProfilerId::from_uuid(profiler_id),
        strength: IdentityStrength::Strong,
        start_unix_nano: times.start,
        end_unix_nano: times.end,
    });
    Ok(profiles)
}

fn uuid(place: &str, text: &Text<'_>) -> Result<Uuid, ChunkError> {
    Uuid::try_parse(text.as_str()).map_err(|_| invalid(place, "is not a UUID"))
}

fn resource(builder: &mut Builder, chunk: &Chunk<'_>, profiler_id: Uuid) {
    let mut attributes: Vec<(&str, Any<'_>)> = Vec::new();
    let set = |text: &Option<Text<'_>>| text.as_ref().map(Text::as_str).unwrap_or_default().to_owned();
    let (release, environment) = (set(&chunk.release), set(&chunk.environment));
    match release.rsplit_once('@') {
        Some((name, version)) if !name.is_empty() && !version.is_empty() => {
            attributes.push(("service.name", name.into()));
            attributes.push(("service.version", version.into()));
        }
        _ if release.is_empty() => {}
        _ => attributes.push(("sentry.release", release.as_str().into())),
    }
    if !environment.is_empty() {
        attributes.push(("deployment.environment.name", environment.as_str().into()));
    }
    let profiler_id = profiler_id.simple().to_string();
    attributes.push(("sentry.platform", chunk.platform.as_str().into()));
    attributes.push(("sentry.profiler_id", profiler_id.as_str().into()));
    builder.resource(&attributes);
}

fn profile_attributes(builder: &mut Builder, chunk: &Chunk<'_>, images: &Images<'_>) -> Option<AttributeSetId> {
    let mut attributes: Vec<(&str, Any<'_>)> = Vec::new();
    if let Some(measurements) = chunk.measurements {
        attributes.push(("sentry.measurements", measurements.get().into()));
    }
    if !images.others.is_empty() {
        attributes.push(("sentry.images", Any::Array(&images.others)));
    }
    builder.attributes(&attributes)
}

/// The samples' times, in nanoseconds since the Unix epoch.
struct Times {
    /// One for each sample, in the chunk's order.
    samples: Vec<u64>,
    start: u64,
    end: u64,
}

impl Times {
    fn of(chunk: &Chunk<'_>) -> Result<Self, ChunkError> {
        let mut samples = Vec::with_capacity(chunk.profile.samples.len());
        for (i, sample) in chunk.profile.samples.iter().enumerate() {
            let nanos = (sample.timestamp * 1e9).round();
            // Beyond 2262 the difference of two times would not fit a value.
            if !(0.0..i64::MAX as f64).contains(&nanos) {
                let place = format!("profile.samples[{i}].timestamp");
                return Err(invalid(place, "is not a time between 1970 and 2262 in seconds"));
            }
            samples.push(nanos as u64);
        }
        let start = samples.iter().copied().min().unwrap_or_default();
        let end = samples.iter().copied().max().unwrap_or_default();
        Ok(Self { samples, start, end })
    }
}

/// The images that have an address, by which frames are found in them, and the JSON of the others.
struct Images<'a> {
    mapped: Vec<(u64, u64, Option<MappingId>)>,
    others: Vec<Any<'a>>,
}

impl<'a> Images<'a> {
    fn build(builder: &mut Builder, chunk: &Chunk<'a>) -> Result<Self, ChunkError> {
        let mut images = Self { mapped: Vec::new(), others: Vec::new() };
        for &raw in &chunk.debug_meta.images.0 {
            let image: Image<'_> = serde_json::from_str(raw.get()).map_err(|error| json(&error))?;
            let Some(start) = image.image_addr else {
                images.others.push(raw.get().into());
                continue;
            };
            let end = start.0.saturating_add(image.image_size.map_or(0, |size| size.0));
            let mut attributes: Vec<(&str, Any<'_>)> = Vec::new();
            if let Some(debug_id) = &image.debug_id {
                attributes.push(("sentry.debug_id", debug_id.as_str().into()));
            }
            if let Some(kind) = &image.kind {
                attributes.push(("sentry.image_type", kind.as_str().into()));
            }
            let vmaddr = image.image_vmaddr.map(|address| format!("{:#x}", address.0));
            if let Some(vmaddr) = &vmaddr {
                attributes.push(("sentry.image_vmaddr", vmaddr.into()));
            }
            let attributes = builder.attributes(&attributes);
            let filename = builder.string(image.code_file.as_ref().map_or("", Text::as_str));
            let mapping = Mapping { memory_start: start.0, memory_limit: end, file_offset: 0, filename, attributes };
            images.mapped.push((start.0, end, builder.mapping(mapping)));
        }
        images.mapped.sort_unstable_by_key(|&(start, ..)| start);
        Ok(images)
    }

    fn find(&self, address: u64) -> Option<MappingId> {
        let after = self.mapped.partition_point(|&(start, ..)| start <= address);
        let &(_, end, mapping) = self.mapped.get(after.checked_sub(1)?)?;
        mapping.filter(|_| address < end)
    }
}

/// The stacks by their position in the chunk.
fn stacks(builder: &mut Builder, chunk: &Chunk<'_>, images: &Images<'_>) -> Result<Vec<Option<StackId>>, ChunkError> {
    let frames = &chunk.profile.frames.0;
    let locations: Vec<_> =
        frames.iter().map(|frame| location(builder, frame, chunk.platform.as_str(), images)).collect();
    let mut stacks = Vec::with_capacity(chunk.profile.stacks.iter().len());
    let mut stack = Vec::new();
    for (i, indices) in chunk.profile.stacks.iter().enumerate() {
        stack.clear();
        for (j, &index) in indices.iter().enumerate() {
            let Some(&location) = locations.get(index as usize) else {
                let rule = format!("index {index} is out of range, there are {} frames", locations.len());
                return Err(invalid(format!("profile.stacks[{i}][{j}]"), rule));
            };
            stack.push(location);
        }
        stacks.push(builder.stack(&stack));
    }
    Ok(stacks)
}

fn location(builder: &mut Builder, frame: &Frame<'_>, platform: &str, images: &Images<'_>) -> Option<LocationId> {
    let text = |text: &Option<Text<'_>>| builder_text(text).to_owned();
    let (abs_path, filename) = (text(&frame.abs_path), text(&frame.filename));
    let mut attributes: Vec<(&str, Any<'_>)> = Vec::new();
    if let Some(kind) = frame_type(frame.platform.as_ref().map_or(platform, Text::as_str)) {
        attributes.push(("profile.frame.type", kind.into()));
    }
    // The absolute path is the file's name in OTLP. Where there is one, the short one is kept beside it.
    if !abs_path.is_empty() && !filename.is_empty() && abs_path != filename {
        attributes.push(("sentry.frame.filename", filename.as_str().into()));
    }
    for (key, value) in [
        ("sentry.frame.module", &frame.module),
        ("sentry.frame.package", &frame.package),
        ("sentry.frame.platform", &frame.platform),
    ] {
        if let Some(value) = value {
            attributes.push((key, value.as_str().into()));
        }
    }
    if let Some(in_app) = frame.in_app {
        attributes.push(("sentry.frame.in_app", in_app.into()));
    }
    let attributes = builder.attributes(&attributes);
    let function = Function {
        name: builder.string(builder_text(&frame.function)),
        filename: builder.string(if abs_path.is_empty() { &filename } else { &abs_path }),
        ..Function::default()
    };
    let known = function != Function::default() || frame.lineno.is_some() || frame.colno.is_some();
    let line = Line {
        function: builder.function(function),
        line: frame.lineno.map_or(0, i64::from),
        column: frame.colno.map_or(0, i64::from),
    };
    let address = frame.instruction_addr.map_or(0, |address| address.0);
    let mapping = frame.instruction_addr.and_then(|address| images.find(address.0));
    let location = Location { mapping, address, attributes, ..Location::default() };
    // An address alone is a location without lines: there is nothing to say about its function.
    let lines: &[Line] = if known { &[line] } else { &[] };
    builder.location(location, lines)
}

fn builder_text<'a>(text: &'a Option<Text<'_>>) -> &'a str {
    text.as_ref().map_or("", Text::as_str)
}

/// The `profile.frame.type` of a platform (OpenTelemetry semantic conventions, "Profiles attributes").
fn frame_type(platform: &str) -> Option<&'static str> {
    Some(match platform {
        "python" => "cpython",
        "node" | "javascript" => "v8js",
        "ruby" => "ruby",
        "php" => "php",
        "perl" => "perl",
        "java" | "android" => "jvm",
        "csharp" | "dotnet" => "dotnet",
        "elixir" => "beam",
        "go" => "go",
        "rust" => "rust",
        "native" | "c" | "cocoa" => "native",
        _ => return None,
    })
}

/// The attributes of a thread's samples.
struct Threads(HashMap<String, Option<AttributeSetId>>);

impl Threads {
    fn build(builder: &mut Builder, chunk: &Chunk<'_>) -> Self {
        let metadata: HashMap<&str, _> =
            chunk.profile.thread_metadata.0.iter().map(|(id, thread)| (id.as_str(), thread)).collect();
        let mut threads = HashMap::new();
        for sample in &chunk.profile.samples {
            let id = sample.thread_id.as_str();
            if threads.contains_key(id) {
                continue;
            }
            let thread = metadata.get(id);
            // The conventions' type is an integer, Sentry's a string: whichever gives the same string again.
            let number = id.parse::<i64>().ok().filter(|number| number.to_string() == id);
            let mut attributes = vec![("thread.id", number.map_or(Any::Str(id), Any::Int))];
            if let Some(name) = thread.and_then(|thread| thread.name.as_ref()) {
                attributes.push(("thread.name", name.as_str().into()));
            }
            if let Some(priority) = thread.and_then(|thread| thread.priority) {
                attributes.push(("sentry.thread.priority", i64::from(priority).into()));
            }
            threads.insert(id.to_owned(), builder.attributes(&attributes));
        }
        Self(threads)
    }

    fn get(&self, id: &str) -> Option<AttributeSetId> {
        self.0.get(id).copied().flatten()
    }
}

/// All samples of one thread with one stack.
struct Row {
    stack: Option<StackId>,
    thread: Option<AttributeSetId>,
    times: Vec<u64>,
    values: Vec<i64>,
}

/// One OTLP sample for each stack of each thread, with all its times.
fn samples(
    builder: &mut Builder,
    chunk: &Chunk<'_>,
    times: &Times,
    stacks: &[Option<StackId>],
    threads: &Threads,
) -> Result<(), ChunkError> {
    let samples = &chunk.profile.samples;
    let mut order: Vec<usize> = (0..samples.len()).collect();
    order.sort_by_key(|&i| times.samples[i]);
    // Backwards in time, so that the next sample of a thread is known.
    let mut next: HashMap<&str, u64> = HashMap::new();
    let mut values = vec![0; samples.len()];
    for &i in order.iter().rev() {
        let time = times.samples[i];
        let after = next.insert(samples[i].thread_id.as_str(), time).unwrap_or(time);
        values[i] = i64::try_from(after - time).unwrap_or(i64::MAX);
    }
    let mut groups: HashMap<(Option<StackId>, Option<AttributeSetId>), usize> = HashMap::new();
    let mut rows: Vec<Row> = Vec::new();
    for i in order {
        let sample = &samples[i];
        let Some(&stack) = stacks.get(sample.stack_id as usize) else {
            let rule = format!("index {} is out of range, there are {} stacks", sample.stack_id, stacks.len());
            return Err(invalid(format!("profile.samples[{i}].stack_id"), rule));
        };
        let thread = threads.get(sample.thread_id.as_str());
        let row = *groups.entry((stack, thread)).or_insert_with(|| {
            rows.push(Row { stack, thread, times: Vec::new(), values: Vec::new() });
            rows.len() - 1
        });
        rows[row].times.push(times.samples[i]);
        rows[row].values.push(values[i]);
    }
    for row in &rows {
        builder.sample(row.stack, row.thread, None, &row.times, &row.values);
    }
    Ok(())
}
