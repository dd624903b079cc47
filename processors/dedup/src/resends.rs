//! Stores hashes of profiles to detect resends.
//!
//! A profile is a resend if its whole content is equal by value, including its time, and that time is not zero. An
//! equal `profile_id` is not enough, because the parts of a split profile share it. Profiles of different peers are
//! never compared, since two unidentified peers may well send equal data.

use std::collections::{HashMap, VecDeque};

use profbridge_engine::component::{Now, Outbox};
use profbridge_model::content_hash::content_hashes;
use profbridge_model::{Profile, Profiles, Reason};
use xxhash_rust::xxh3::xxh3_128;

/// The recently received profiles.
#[derive(Debug)]
pub(crate) struct Resends {
    /// How long profiles are stored, in nanoseconds.
    memory: u64,
    max_entries: usize,
    /// The time at which each profile is dropped, by the profile's hash.
    known: HashMap<u128, u64>,
    /// Profiles in order of arrival, with duplicates for resends. At least as long as `known`.
    order: VecDeque<(u64, u128)>,
}

/// Size of a hash map entry including control bytes and unused capacity, in eighths of an entry.
const SPARE: usize = 10;

impl Resends {
    pub(crate) fn new(memory: u64, max_entries: usize) -> Self {
        Self { memory, max_entries, known: HashMap::new(), order: VecDeque::new() }
    }

    /// Approximate heap size in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let entry = size_of::<(u128, u64)>() + 1;
        let map = self.known.capacity() * entry * SPARE / 8;
        (map + self.order.capacity() * size_of::<(u64, u128)>()) as u64
    }

    /// Removes resends from a batch and counts them. `None` if nothing is left.
    pub(crate) fn filter(&mut self, profiles: Profiles, now: Now, out: &mut Outbox) -> Option<Profiles> {
        self.forget(now, out);
        if !profiles.profiles().any(|profile| may_be_resent(&profiles, profile)) {
            return Some(profiles);
        }
        let peer = xxh3_128(profiles.peer.as_deref().unwrap_or_default().as_bytes());
        let mut resent = Vec::new();
        let mut any = false;
        for (profile, hash) in profiles.profiles().zip(content_hashes(&profiles)) {
            let again = may_be_resent(&profiles, profile) && self.is_resend(u128::from_le_bytes(hash) ^ peer, now);
            if again {
                out.drop_observations(Reason::Resent, profiles.observations_of(profile));
            }
            any |= again;
            resent.push(again);
            self.bound(out);
        }
        if any { without(&profiles, &resent) } else { Some(profiles) }
    }

    /// Whether this profile was received before. Stores the profile's hash.
    fn is_resend(&mut self, hash: u128, now: Now) -> bool {
        let until = now.monotonic_nano.saturating_add(self.memory);
        let again = self.known.insert(hash, until).is_some();
        self.order.push_back((until, hash));
        again
    }

    fn forget_oldest(&mut self) {
        if let Some((until, hash)) = self.order.pop_front()
            && self.known.get(&hash) == Some(&until)
        {
            self.known.remove(&hash);
        }
    }

    fn forget(&mut self, now: Now, out: &mut Outbox) {
        while self.order.front().is_some_and(|&(until, _)| until <= now.monotonic_nano) {
            self.forget_oldest();
        }
        self.bound(out);
        // Releases the memory that a burst needed.
        if self.order.len() < self.order.capacity() / 4 {
            self.order.shrink_to(self.order.len() * 2);
            self.known.shrink_to(self.known.len() * 2);
        }
    }

    fn bound(&mut self, out: &mut Outbox) {
        let over = self.order.len().saturating_sub(self.max_entries);
        for _ in 0..over {
            self.forget_oldest();
        }
        out.note(crate::FORGOTTEN, over as u64);
    }
}

/// Whether a profile can be a resend: without a time, it cannot be distinguished from another profile with equal
/// content.
fn may_be_resent(profiles: &Profiles, profile: &Profile) -> bool {
    profile.time_unix_nano != 0 && profiles.observations_of(profile) > 0
}

/// A copy of the batch without some profiles; `None` if no observation is left.
fn without(profiles: &Profiles, resent: &[bool]) -> Option<Profiles> {
    let mut resent = resent.iter();
    let left = |_, profile: &Profile| (!resent.next().copied().unwrap_or(false)).then(|| profile.clone());
    profiles.map_profiles(left).filter(|left| left.observations() > 0)
}
