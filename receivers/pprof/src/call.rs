//! Processes one profile, pushed or scraped: decompresses it, decodes it, and passes it to the pipelines.

use std::sync::Arc;

use bytes::Bytes;
use profbridge_engine::body::{self, ReceivedBody};
use profbridge_engine::budget::Permit;
use profbridge_engine::clock::Clock;
use profbridge_engine::intake::Intake;
use profbridge_model::skew::Plausible;
use profbridge_model::{Insertion, Profiles};
use profbridge_net::compression::Coding;
use profbridge_wire::otlp::{Limits, memory};
use profbridge_wire::pprof::{DecodeError, DecodedProfile, decode};
use profbridge_wire::sentry::timestamp::Timestamp;
use tokio::sync::Semaphore;

use crate::fault::{self, Fault};
use crate::ingest::ProfileMetadata;
use crate::multipart;

/// The memory limits of the successive decoding attempts, in bytes per byte of the profile. Real profiles need one to
/// two.
const MEMORY_FACTORS: [usize; 2] = [3, 8];

/// Counts strings in which invalid UTF-8 was replaced.
const REPLACED: &str = "pprof_strings_replaced";

/// Counts labels' numbers that were dropped because the label also has a text.
const LABEL_NUMBERS_DROPPED: &str = "pprof_label_numbers_left_out";

/// Counts references to missing mappings and functions.
const REFERENCES_DROPPED: &str = "pprof_references_left_out";

/// The magic number of gzip (RFC 1952).
const GZIP: &[u8] = &[0x1f, 0x8b];

/// State shared by all profiles of a receiver. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ProfileHandler {
    pub(crate) intake: Intake,
    /// Limits the number of profiles that are decompressed and decoded at the same time.
    pub(crate) slots: Arc<Semaphore>,
    /// The attributes that are added to every resource without them.
    pub(crate) insert: Arc<[(String, String)]>,
    /// The source of arrival times.
    pub(crate) clock: Clock,
}

pub(crate) struct ReceivedProfile {
    pub(crate) received: ReceivedBody,
    pub(crate) coding: Coding,
    /// The boundary of the multipart form that contains the profile, if any.
    pub(crate) boundary: Option<String>,
    pub(crate) metadata: ProfileMetadata,
    /// The sender.
    pub(crate) peer: Arc<str>,
    /// The maximum size in bytes.
    pub(crate) max_bytes: usize,
}

impl ProfileHandler {
    /// Passes a profile to the pipelines, and returns the number of samples (`Sample` messages of OTLP) that they
    /// accepted.
    pub(crate) async fn accept_profile(&self, received: ReceivedProfile) -> Result<u64, Fault> {
        let job =
            DecodeJob { intake: self.intake.clone(), clock: self.clock.clone(), insert: Arc::clone(&self.insert) };
        let done = body::run_in(&self.slots, &self.intake, move || job.run(received)).await;
        let (profiles, permit) = done.ok_or_else(fault::internal)??;
        let samples = profiles.profiles().map(|profile| profile.samples.len() as u64).sum();
        if samples > 0 {
            self.intake.consume(profiles, permit).await?;
        }
        Ok(samples)
    }
}

/// The CPU work of decoding a profile.
struct DecodeJob {
    intake: Intake,
    clock: Clock,
    insert: Arc<[(String, String)]>,
}

impl DecodeJob {
    fn run(&self, received: ReceivedProfile) -> Result<(Profiles, Permit), Fault> {
        let ReceivedProfile {
            received: ReceivedBody { bytes, mut permit },
            coding,
            boundary,
            metadata,
            peer,
            max_bytes,
        } = received;
        let mut bytes = body::unpack_instead(bytes, coding, max_bytes, &self.intake, &mut permit)?;
        if let Some(boundary) = boundary {
            bytes = from_form(&bytes, &boundary)?;
        }
        if bytes.starts_with(GZIP) {
            bytes = body::unpack_instead(bytes, Coding::Gzip, max_bytes, &self.intake, &mut permit)?;
        }
        let decoded = self.decode(bytes, max_bytes, &mut permit)?;
        self.intake.note(REPLACED, decoded.replaced_strings);
        self.intake.note(LABEL_NUMBERS_DROPPED, decoded.left_out_numbers);
        self.intake.note(REFERENCES_DROPPED, decoded.left_out_references);
        let plausible = Plausible::at_arrival(self.clock.now().unix_nano).with_stated(metadata.stated);
        if let Some(wrong) = plausible.wrong_times(&decoded.profiles) {
            self.intake.note_wrong_times(&peer, wrong.observations, &Timestamp(wrong.example).rfc3339(3));
        }
        let mut profiles = self.complete(plausible.correct(decoded.profiles), metadata)?;
        profiles.peer = Some(peer);
        Ok((profiles, permit))
    }

    fn decode(&self, profile: Bytes, max_bytes: usize, permit: &mut Permit) -> Result<DecodedProfile, Fault> {
        let held = permit.bytes();
        let mut limits = Limits { max_request: max_bytes, ..Limits::default() };
        let mut factors = MEMORY_FACTORS.into_iter().peekable();
        loop {
            limits.memory_factor = factors.next().unwrap_or(limits.memory_factor);
            let most = profile.len().saturating_mul(limits.memory_factor).saturating_add(limits.memory_base) as u64;
            let more = (held + most).saturating_sub(permit.bytes());
            self.intake.grow(permit, more)?;
            match decode(profile.clone(), &limits) {
                Ok(decoded) => {
                    // The size of the profile is added once more, for encoding the data again while the profile is in
                    // memory.
                    let all = held + memory(&decoded.profiles) as u64 + profile.len() as u64;
                    let more = all.saturating_sub(permit.bytes());
                    self.intake.grow(permit, more)?;
                    permit.set(all);
                    return Ok(decoded);
                }
                // The limit was the memory for this attempt, so the next attempt may succeed.
                Err(DecodeError::LimitExceeded { limit, .. }) if limit == most && factors.peek().is_some() => {}
                Err(error) => return Err(fault::unreadable(&error, &profile)),
            }
        }
    }

    /// Adds attributes to the resource: the sender's, and then the configured ones.
    fn complete(&self, profiles: Profiles, metadata: ProfileMetadata) -> Result<Profiles, Fault> {
        let said = |key: &str| metadata.attributes.iter().any(|(metadata, _)| metadata == key);
        let inserted = self.insert.iter().filter(|(key, _)| !said(key));
        let all: Vec<(&str, &str)> =
            metadata.attributes.iter().chain(inserted).map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let places: Vec<Insertion> =
            (0..all.len() as u32).map(|attribute| Insertion { resource: 0, attribute }).collect();
        profiles.insert(&all, &places).map_err(|invalid| Fault::malformed(invalid.to_string()))
    }
}

/// Extracts the profile from a multipart form.
fn from_form(body: &Bytes, boundary: &str) -> Result<Bytes, Fault> {
    let [profile, before] = multipart::parts(body, boundary, ["profile", "prev_profile"])?;
    if before.is_some_and(|before| !before.is_empty()) {
        let message = "prev_profile: the profile counts since the program's start, and only changes are read; let the \
                       client send those";
        return Err(Fault::malformed(message));
    }
    profile.ok_or_else(|| Fault::malformed("the form has no part `profile`"))
}
