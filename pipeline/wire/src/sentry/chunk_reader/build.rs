//! Converts a chunk's keys to a batch.

use profbridge_model::builder::Any;
use profbridge_model::whole_chunk::CHUNK_SAMPLES;
use profbridge_model::{Builder, Profile};
use uuid::Uuid;

use super::model::{ChunkJson, SampleTuple};
use crate::sentry::sampled::text::Text;
use crate::sentry::sampled::{
    OriginalProcess, ProfileError, ProfileImages, ProfileStacks, SampledProfile, TimedSample, check_version, finish,
};

pub(super) fn build(mut chunk: ChunkJson<'_>) -> Result<SampledProfile, ProfileError> {
    check_version(chunk.version.as_str(), super::VERSION)?;
    let chunk_id = uuid("chunk_id", &chunk.chunk_id)?;
    let profiler_id = uuid("profiler_id", &chunk.profiler_id)?;
    let images = std::mem::take(&mut chunk.debug_meta.images.0);
    let data = &chunk.profile;
    let threads = &data.samples.threads;
    let observations = observations(&data.samples.all)?;
    let mut images = ProfileImages::read(images)?;
    let mut stacks = ProfileStacks::new(&data.frames.0, &data.stacks, chunk.platform.as_str(), &mut images)?;
    let samples = stacks.samples(observations, threads)?;
    let (first, last) = samples.range();

    let mut builder = Builder::new();
    let process = OriginalProcess {
        profiler_id,
        platform: chunk.platform.as_str(),
        release: Text::of(&chunk.release),
        environment: Text::of(&chunk.environment),
    };
    process.write(&mut builder, &[]);
    let sdk = chunk.client_sdk.as_ref();
    builder.scope(sdk.map_or("", |sdk| Text::of(&sdk.name)), sdk.map_or("", |sdk| Text::of(&sdk.version)));
    let sample_type = builder.value_type("wall", "nanoseconds");
    builder.profile(Profile {
        sample_type,
        time_unix_nano: first,
        // The end of the profile is after its last sample.
        duration_nano: last - first + 1,
        profile_id: (!chunk_id.is_nil()).then(|| chunk_id.into_bytes()),
        ..Profile::default()
    });
    let unused = samples.write(&mut builder, &mut stacks, threads, &data.thread_metadata, None);
    let attributes = vec![(CHUNK_SAMPLES, Any::Int(samples.len() as i64))];
    let measurements = chunk.measurements.map(|measurements| measurements.get());
    let profiles = finish(builder, attributes, measurements, &images, profiler_id, (first, last))?;
    Ok(SampledProfile { profiles, left_out: 0, unused })
}

fn uuid(place: &str, text: &Text<'_>) -> Result<Uuid, ProfileError> {
    Uuid::try_parse(text.as_str()).map_err(|_| ProfileError::rule(place, "is not a UUID"))
}

/// The samples, in nanoseconds since the Unix epoch.
fn observations(samples: &[SampleTuple]) -> Result<Vec<TimedSample>, ProfileError> {
    let mut all = Vec::with_capacity(samples.len());
    for (i, &(seconds, stack, thread)) in samples.iter().enumerate() {
        let nanos = (seconds * 1e9).round();
        // After 2262 the difference of two times would not fit into a value.
        if !(0.0..i64::MAX as f64).contains(&nanos) {
            let place = format!("profile.samples[{i}].timestamp");
            return Err(ProfileError::rule(place, "is not a time between 1970 and 2262 in seconds"));
        }
        all.push(TimedSample { time: nanos as u64, stack, thread });
    }
    Ok(all)
}
