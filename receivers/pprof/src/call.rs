//! One profile, however it came: unpacked, read, handed to the pipelines.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use profbridge_engine::body::{self, Received};
use profbridge_engine::budget::Permit;
use profbridge_engine::clock::Clock;
use profbridge_engine::intake::Intake;
use profbridge_model::{Insertion, Profiles};
use profbridge_net::compression::Coding;
use profbridge_wire::otlp::{Limits, memory};
use profbridge_wire::pprof::{DecodeError, Decoded, Times, decode_with};
use profbridge_wire::sentry::timestamp::Timestamp;
use tokio::sync::Semaphore;

use crate::fault::{self, Fault};
use crate::ingest::Known;
use crate::multipart;

/// How many bytes of memory a byte of a profile may turn into, in the attempts to read it. Real ones take one to two.
const MEMORY_FACTORS: [usize; 2] = [3, 8];

/// Strings in which something that is not UTF-8 was replaced.
const REPLACED: &str = "pprof_strings_replaced";

/// Numbers of labels that have a text as well.
const LEFT_OUT: &str = "pprof_label_numbers_left_out";

/// References to mappings and functions that are not there.
const LEFT_OUT_REFERENCES: &str = "pprof_references_left_out";

/// Observations whose profile says a time that cannot be.
const TIME_SKEW: &str = "time_skew";

/// What gzip begins with (RFC 1952).
const GZIP: &[u8] = &[0x1f, 0x8b];

/// What all profiles of a receiver share. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) intake: Intake,
    /// How many profiles are unpacked and read at the same time.
    pub(crate) slots: Arc<Semaphore>,
    /// What resources get that they came without.
    pub(crate) insert: Arc<[(String, String)]>,
    /// Tells when a profile arrives.
    pub(crate) clock: Clock,
    pub(crate) senders: Senders,
}

/// Who was warned about for a time that cannot be. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Senders(Arc<Mutex<HashSet<Arc<str>>>>);

impl Senders {
    /// So many are known apart; further ones are not warned about.
    const MOST: usize = 1024;

    /// Warns about the time of a sender's profile, once for each sender.
    fn warn(&self, peer: &Arc<str>, time: u64) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() < Self::MOST && known.insert(Arc::clone(peer)) {
            let time = Timestamp(time).rfc3339(3);
            tracing::warn!(
                "{peer} sends profiles of {time}, which cannot be when they were made: they are taken at `from`, or when \
                 they arrive ({TIME_SKEW}). Correct its clock, or the unit of its times: nanoseconds in a profile"
            );
        }
    }
}

/// A profile as it came.
pub(crate) struct Arrived {
    pub(crate) received: Received,
    pub(crate) coding: Coding,
    /// The boundary of the form that it stands in.
    pub(crate) boundary: Option<String>,
    pub(crate) known: Known,
    /// Who sent it.
    pub(crate) peer: Arc<str>,
    /// The largest size, in bytes.
    pub(crate) max_bytes: usize,
}

impl Caller {
    /// Hands a profile to the pipelines, and returns how many samples (`Sample` messages of OTLP) they took.
    pub(crate) async fn take(&self, arrived: Arrived) -> Result<u64, Fault> {
        let work = Work {
            intake: self.intake.clone(),
            clock: self.clock.clone(),
            senders: self.senders.clone(),
            insert: Arc::clone(&self.insert),
        };
        let done = body::run_in(&self.slots, &self.intake, move || work.run(arrived)).await;
        let (profiles, permit) = done.ok_or_else(fault::internal)??;
        let samples = profiles.profiles().map(|profile| profile.samples.len() as u64).sum();
        if samples > 0 {
            self.intake.consume(profiles, permit).await?;
        }
        Ok(samples)
    }
}

/// The part that is computing.
struct Work {
    intake: Intake,
    clock: Clock,
    senders: Senders,
    insert: Arc<[(String, String)]>,
}

impl Work {
    fn run(&self, arrived: Arrived) -> Result<(Profiles, Permit), Fault> {
        let Arrived { received: Received { bytes, mut permit }, coding, boundary, known, peer, max_bytes } = arrived;
        let mut bytes = body::unpack_instead(bytes, coding, max_bytes, &self.intake, &mut permit)?;
        if let Some(boundary) = boundary {
            bytes = of_form(&bytes, &boundary)?;
        }
        if bytes.starts_with(GZIP) {
            bytes = body::unpack_instead(bytes, Coding::Gzip, max_bytes, &self.intake, &mut permit)?;
        }
        let times = Times { arrival_unix_nano: self.clock.now().unix_nano, ..known.times };
        let decoded = self.decode(bytes, times, max_bytes, &mut permit)?;
        self.intake.note(REPLACED, decoded.replaced_strings);
        self.intake.note(LEFT_OUT, decoded.left_out_numbers);
        self.intake.note(LEFT_OUT_REFERENCES, decoded.left_out_references);
        if let Some(time) = decoded.wrong_time {
            self.intake.note(TIME_SKEW, decoded.profiles.observations());
            self.senders.warn(&peer, time);
        }
        let mut profiles = self.complete(decoded.profiles, known)?;
        profiles.peer = Some(peer);
        Ok((profiles, permit))
    }

    fn decode(&self, profile: Bytes, times: Times, max_bytes: usize, permit: &mut Permit) -> Result<Decoded, Fault> {
        let held = permit.bytes();
        let mut limits = Limits { max_request: max_bytes, ..Limits::default() };
        let mut factors = MEMORY_FACTORS.into_iter().peekable();
        loop {
            limits.memory_factor = factors.next().unwrap_or(limits.memory_factor);
            let most = profile.len().saturating_mul(limits.memory_factor).saturating_add(limits.memory_base) as u64;
            let more = (held + most).saturating_sub(permit.bytes());
            self.intake.grow(permit, more)?;
            match decode_with(profile.clone(), &limits, times) {
                Ok(decoded) => {
                    // Once more as much as it came as, for what it is written as on its way out while it is still here.
                    let all = held + memory(&decoded.profiles) as u64 + profile.len() as u64;
                    let more = all.saturating_sub(permit.bytes());
                    self.intake.grow(permit, more)?;
                    permit.set(all);
                    return Ok(decoded);
                }
                // The limit that was met is the memory of this attempt.
                Err(DecodeError::LimitExceeded { limit, .. }) if limit == most && factors.peek().is_some() => {}
                Err(error) => return Err(fault::unreadable(&error, &profile)),
            }
        }
    }

    /// Gives the resource its attributes: what the sender said, and behind that what the configuration says.
    fn complete(&self, profiles: Profiles, known: Known) -> Result<Profiles, Fault> {
        let said = |key: &str| known.attributes.iter().any(|(known, _)| known == key);
        let inserted = self.insert.iter().filter(|(key, _)| !said(key));
        let all: Vec<(&str, &str)> =
            known.attributes.iter().chain(inserted).map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let places: Vec<Insertion> =
            (0..all.len() as u32).map(|attribute| Insertion { resource: 0, attribute }).collect();
        profiles.insert(&all, &places).map_err(|invalid| Fault::malformed(invalid.to_string()))
    }
}

/// The profile in a form.
fn of_form(body: &Bytes, boundary: &str) -> Result<Bytes, Fault> {
    let [profile, before] = multipart::parts(body, boundary, ["profile", "prev_profile"])?;
    if before.is_some_and(|before| !before.is_empty()) {
        let message = "prev_profile: the profile counts since the program's start, and only changes are read; let the \
                       client send those";
        return Err(Fault::malformed(message));
    }
    profile.ok_or_else(|| Fault::malformed("the form has no part `profile`"))
}
