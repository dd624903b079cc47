//! Converts a profile's keys to a batch.

use hashbrown::HashMap;
use profbridge_model::builder::Any;
use profbridge_model::whole_chunk::CHUNK_SAMPLES;
use profbridge_model::{Builder, LinkId};
use uuid::Uuid;

use super::companion::{Companion, CompanionContexts};
use super::device::{self, Device};
use super::model::{V1Profile, V1Sample, V1Transaction};
use super::number::Whole;
use super::{SampledProfile, measurements, rules};
use crate::sentry::sampled::model::FrameJson;
use crate::sentry::sampled::text::Text;
use crate::sentry::sampled::{
    OriginalProcess, ProfileError, ProfileImages, ProfileStacks, ThreadIds, TimedSample, finish,
};

pub(super) fn build(mut profile: V1Profile<'_>, companion: &Companion<'_>) -> Result<SampledProfile, ProfileError> {
    let id = uuid("event_id", &profile.event_id)?;
    let device = Device::read(&profile.device)?;
    device::check(&profile, &device)?;
    let listed = profile.transactions.take().into_iter().flat_map(|list| list.0).flatten().next();
    let Some(transaction) = profile.transaction.take().or(listed) else {
        return Err(ProfileError::rule("transaction", "is missing (profiling_no_transaction_associated)"));
    };
    let ids = Ids::read(&transaction)?;
    let start = profile.timestamp.0;
    let measured = profile.measurements.as_ref().map(|all| measurements::absolute(all, start)).transpose()?;

    let frames = frames(&mut profile, device.architecture.as_str());
    let data = &profile.profile;
    let all = data.samples.len();
    let mut samples: Vec<V1Sample> = data.samples.iter().flatten().copied().collect();
    let frames_of = |stack: u64| {
        let stack = usize::try_from(stack).ok().filter(|&stack| stack < data.stacks.len());
        stack.map(|stack| data.stacks.at(stack).len())
    };
    rules::apply(&mut samples, &transaction, frames_of)?;
    let left_out = (all - samples.len()) as u64;

    let images = profile.debug_meta.as_ref().map(|meta| meta.images.0.iter().flatten().copied().collect());
    let mut images = ProfileImages::read(images.unwrap_or_default())?;
    let platform = profile.platform.as_str();
    let mut stacks = ProfileStacks::new(&frames, &data.stacks, platform, &mut images)
        .map_err(|error| with_reason(error, "profiling_malformed_stacks"))?;
    let names = ThreadNames::of(&samples);
    let mut threads = ThreadIds::default();
    let observations = names.observations(&samples, start, &mut threads)?;
    let samples = stacks.samples(observations, &threads)?;
    let (first, last) = samples.range();

    let mut builder = Builder::new();
    let sent = &companion.transaction;
    let or = |first: &'_ Option<Text<'_>>, second: &'_ Option<Text<'_>>| {
        let first = Text::of(first);
        if first.is_empty() { Text::of(second).to_owned() } else { first.to_owned() }
    };
    let release = or(&profile.release, &sent.release);
    let (environment, dist) = (or(&sent.environment, &profile.environment), or(&sent.dist, &profile.dist));
    let name = or(&sent.name, &Some(transaction.name.clone()));
    let mut attributes = device::attributes(&profile, &device);
    if !dist.is_empty() {
        attributes.push(("sentry.dist", dist.as_str().into()));
    }
    let process = OriginalProcess { profiler_id: id, platform, release: &release, environment: &environment };
    process.write(&mut builder, &attributes);
    let sdk = sent.sdk.as_ref();
    builder.scope(sdk.map_or("", |sdk| Text::of(&sdk.name)), sdk.map_or("", |sdk| Text::of(&sdk.version)));
    let sample_type = builder.value_type("wall", "nanoseconds");
    builder.profile(profbridge_model::Profile {
        sample_type,
        time_unix_nano: first,
        // The end of the profile is after its last sample.
        duration_nano: last - first + 1,
        profile_id: (!id.is_nil()).then(|| id.into_bytes()),
        ..profbridge_model::Profile::default()
    });
    let active = transaction.active_thread_id.and_then(|Whole(thread)| names.number(thread));
    let link = active.map(|thread| (thread, link(&mut builder, &ids, &profile, companion)));
    let empty = Default::default();
    let unused =
        samples.write(&mut builder, &mut stacks, &threads, data.thread_metadata.as_ref().unwrap_or(&empty), link);

    let (transaction_id, trace_id) = (ids.transaction.simple().to_string(), ids.trace.simple().to_string());
    let mut attributes: Vec<(&str, Any<'_>)> = vec![
        ("sentry.transaction.id", transaction_id.as_str().into()),
        ("sentry.transaction.name", name.as_str().into()),
        ("sentry.trace_id", trace_id.as_str().into()),
        (CHUNK_SAMPLES, Any::Int(samples.len() as i64)),
    ];
    let thread = transaction.active_thread_id.map(|Whole(thread)| thread.to_string());
    if let Some(thread) = &thread {
        attributes.push(("sentry.active_thread_id", thread.parse().map_or(Any::Str(thread), Any::Int)));
    }
    let profiles = finish(builder, attributes, measured.as_deref(), &images, id, (first, last))?;
    Ok(SampledProfile { profiles, left_out, unused })
}

fn uuid(place: &str, text: &Text<'_>) -> Result<Uuid, ProfileError> {
    let wrong = |_| ProfileError::rule(place, "is not a UUID (profiling_invalid_json)");
    Uuid::try_parse(text.as_str()).map_err(wrong)
}

/// Adds Relay's name for the error.
fn with_reason(error: ProfileError, reason: &str) -> ProfileError {
    match error {
        ProfileError::Rule(invalid) => ProfileError::rule(invalid.place, format!("{} ({reason})", invalid.rule)),
        other => other,
    }
}

/// The ids in a profile's transaction.
struct Ids {
    transaction: Uuid,
    trace: Uuid,
}

impl Ids {
    fn read(transaction: &V1Transaction<'_>) -> Result<Self, ProfileError> {
        let ids = Self {
            transaction: uuid("transaction.id", &transaction.id)?,
            trace: uuid("transaction.trace_id", &transaction.trace_id)?,
        };
        let empty = [
            ("transaction.id", ids.transaction.is_nil()),
            ("transaction.name", transaction.name.as_str().is_empty()),
            ("transaction.trace_id", ids.trace.is_nil()),
        ];
        match empty.iter().find(|(_, empty)| *empty) {
            Some((place, _)) => {
                Err(ProfileError::rule(*place, "is nil or empty (profiling_invalid_transaction_metadata)"))
            }
            None => Ok(ids),
        }
    }
}

/// The link to the transaction's span; `None` if its id is unknown.
fn link(builder: &mut Builder, ids: &Ids, profile: &V1Profile<'_>, companion: &Companion<'_>) -> Option<LinkId> {
    let own = CompanionContexts::span_id(&profile.contexts);
    let text = if own.is_empty() { CompanionContexts::span_id(&companion.transaction.contexts) } else { own };
    let is_hex = text.len() == 16 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    let span = u64::from_str_radix(text, 16).ok().filter(|&span| is_hex && span != 0)?;
    builder.link(ids.trace.into_bytes(), span.to_be_bytes())
}

/// The frames. Apple's pointer authentication codes are removed from addresses, as Relay does.
fn frames<'a>(profile: &mut V1Profile<'a>, architecture: &str) -> Vec<FrameJson<'a>> {
    const ADDRESS: u64 = 0xf_ffff_ffff;
    let is_signed = profile.platform.as_str() == "cocoa" && matches!(architecture, "arm64" | "arm64e");
    let frames = std::mem::take(&mut profile.profile.frames).0.into_iter().map(Option::unwrap_or_default);
    let unsigned = frames.map(|mut frame| {
        if let Some(address) = frame.instruction_addr.as_mut().filter(|_| is_signed) {
            address.0 &= ADDRESS;
        }
        frame
    });
    unsigned.collect()
}

/// The threads of samples, in order of first appearance, with their ids as text.
struct ThreadNames {
    index: HashMap<u64, u32>,
    texts: Vec<String>,
}

impl ThreadNames {
    fn of(samples: &[V1Sample]) -> Self {
        let (mut index, mut texts) = (HashMap::default(), Vec::new());
        for &V1Sample { thread_id: Whole(thread), .. } in samples {
            index.entry(thread).or_insert_with(|| {
                texts.push(thread.to_string());
                (texts.len() - 1) as u32
            });
        }
        Self { index, texts }
    }

    fn number(&self, thread: u64) -> Option<u32> {
        self.index.get(&thread).copied()
    }

    /// The samples with absolute times and with the numbers of `threads`.
    fn observations<'a>(
        &'a self,
        samples: &[V1Sample],
        start: u64,
        threads: &mut ThreadIds<'a>,
    ) -> Result<Vec<TimedSample>, ProfileError> {
        for text in &self.texts {
            threads.number(Text::from(&**text));
        }
        let mut all = Vec::with_capacity(samples.len());
        for sample in samples {
            let time = start.checked_add(sample.elapsed_since_start_ns.0).filter(|&time| time < i64::MAX as u64);
            let Some(time) = time else {
                return Err(ProfileError::rule("profile.samples", "a time lies after 2262"));
            };
            // Cannot fail: the stack exists, and the thread is from these samples.
            let stack = u32::try_from(sample.stack_id.0).unwrap_or(u32::MAX);
            all.push(TimedSample { time, stack, thread: self.number(sample.thread_id.0).unwrap_or_default() });
        }
        Ok(all)
    }
}
