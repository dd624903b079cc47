//! The first decision about a profile: whether its profiling session is sampled (Sentry's profiles specification 2.5.0,
//! "profileSessionSampleRate").
//!
//! A session has one profiler id: it is a process, identified by `service.identity`, during one
//! `service.identity.session`. The decision is derived from the id, so replicas agree without any state.

use profbridge_engine::component::{Now, Outbox};
use profbridge_identity::{Processes, RequestId, Rules, sampling};
use profbridge_model::{Profiles, Reason};

/// The key of the attribute that marks a profile of sample format V1, which belongs to a transaction.
const OF_TRANSACTION: &str = "sentry.transaction.id";

/// Whether all profiles of a batch have Sentry's format V1.
pub(crate) fn is_v1(profiles: &Profiles) -> bool {
    let dictionary = profiles.dictionary();
    let mut all = profiles.profiles().peekable();
    all.peek().is_some() && all.all(|profile| dictionary.find(profile.attributes, OF_TRANSACTION).is_some())
}

/// Makes decisions about sessions.
#[derive(Debug)]
pub(crate) struct Sessions {
    rules: Rules,
    rate: f64,
    requests: u64,
    has_warned: bool,
}

impl Sessions {
    pub(crate) fn new(rules: &Rules, rate: f64) -> Self {
        Self { rules: rules.clone(), rate, requests: 0, has_warned: false }
    }

    /// Whether every session is sampled.
    pub(crate) fn keeps_all(&self) -> bool {
        self.rate >= 1.0
    }

    /// The part of a batch that belongs to sampled sessions; `None` if nothing is left.
    pub(crate) fn filter(&mut self, profiles: Profiles, now: Now, out: &mut Outbox) -> Option<Profiles> {
        if self.keeps_all() {
            return Some(profiles);
        }
        if is_v1(&profiles) {
            out.note(crate::V1_EXEMPT, 1);
            if !self.has_warned {
                self.has_warned = true;
                tracing::warn!(
                    "`profile_session_sample_rate` has no effect on profiles of sample format V1, which are sampled with \
                     their transactions; this is said once, and counted as {}",
                    crate::V1_EXEMPT
                );
            }
            return Some(profiles);
        }
        self.requests += 1;
        let request = RequestId { arrival: now.unix_nano, number: self.requests };
        let mut processes = Processes::new(&profiles, &self.rules, request);
        let mut last = None;
        let left = profiles.retain(|resource, profile, sample, time| {
            // `chunk` drops and counts processes beyond the limit.
            let Some(at) = processes.of(resource, sample.attributes) else { return true };
            let identity = processes.get(at).identity;
            let known = [profile.time_unix_nano, now.unix_nano];
            let time = time.or_else(|| known.into_iter().find(|time| *time > 0)).unwrap_or(0);
            let session = if self.rules.session == 0 { 0 } else { self.rules.cell(identity, time).start };
            match last {
                Some((of, kept)) if of == (at, session) => kept,
                _ => {
                    let id = self.rules.profiler_id(identity, self.rules.cell(identity, time));
                    let kept = sampling::session(id) < self.rate;
                    last = Some(((at, session), kept));
                    kept
                }
            }
        });
        let kept = left.as_ref().map_or(0, Profiles::observations);
        out.drop_observations(Reason::SampleRate, profiles.observations() - kept);
        left
    }
}
