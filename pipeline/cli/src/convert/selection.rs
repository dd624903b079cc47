//! Selects from the inputs: values of the type of `--type`. Sets the time of `--at` on profiles without a plausible
//! time.

use std::collections::BTreeSet;

use profbridge_codec::EncodingReport;
use profbridge_model::envelope::Viewed;
use profbridge_model::skew::{Plausible, StatedTime, WrongTimes};
use profbridge_model::{Profile, Profiles, Reason, Telemetry};
use profbridge_wire::folded::choice::{NotShown, ShownType};
use profbridge_wire::sentry::timestamp::Timestamp;

use crate::Failure;
use crate::terminal;

/// The most types that are listed if the requested one does not exist.
const MOST_TYPES: usize = 32;

/// What to select, and what was found.
#[derive(Debug)]
pub(crate) struct Selection {
    /// Name of the requested type.
    kind: Option<String>,
    /// Which times can be right, and with `--at` that of profiles without one.
    plausible: Plausible,
    /// Whether `--at` was given.
    is_stated: bool,
    types: BTreeSet<ShownType>,
    is_met: bool,
    not_shown: NotShown,
    wrong: Option<WrongTimes>,
}

impl Selection {
    /// Nothing has been found yet.
    pub(crate) fn new(kind: Option<String>, at: Option<u64>, now: u64) -> Self {
        let stated = StatedTime { time_unix_nano: at.unwrap_or(0), duration_nano: 0 };
        let plausible = Plausible::in_files(now).with_stated(stated);
        let (types, not_shown) = (BTreeSet::new(), NotShown::default());
        Self { kind, plausible, is_stated: at.is_some(), types, is_met: false, not_shown, wrong: None }
    }

    /// Applies the selection to telemetry; `None` if nothing is left.
    pub(crate) fn take(&mut self, telemetry: Telemetry, report: &mut EncodingReport) -> Option<Telemetry> {
        Some(match telemetry {
            Telemetry::Profiles(profiles) => self.profiles(profiles, report)?.into(),
            Telemetry::Envelope(mut envelope) => {
                envelope.views.retain_mut(|view| match &mut view.what {
                    Viewed::Profiles(profiles) => {
                        self.profiles(profiles.clone(), report).map(|left| *profiles = left).is_some()
                    }
                    Viewed::Spans(_) => true,
                });
                envelope.into()
            }
            other => other,
        })
    }

    fn profiles(&mut self, batch: Profiles, report: &mut EncodingReport) -> Option<Profiles> {
        let batch = self.of_type(batch, report)?;
        if let Some(WrongTimes { observations, example }) = self.plausible.wrong_times(&batch) {
            self.wrong.get_or_insert(WrongTimes { observations: 0, example }).observations += observations;
        }
        Some(if self.is_stated { self.plausible.correct(batch) } else { batch })
    }

    fn of_type(&mut self, batch: Profiles, report: &mut EncodingReport) -> Option<Profiles> {
        let Some(kind) = &self.kind else { return Some(batch) };
        let is_it = |profile: &Profile| batch.dictionary().string(profile.sample_type.kind) == kind;
        for profile in batch.profiles() {
            if is_it(profile) {
                self.is_met = true;
            } else {
                let observations = self.not_shown.add(&batch, profile);
                report.losses.add_observations(Reason::OtherType, observations);
            }
            if self.types.len() < MOST_TYPES {
                self.types.insert(ShownType::of(&batch, profile).0);
            }
        }
        batch.retain(|_, profile, _, _| is_it(profile))
    }

    /// Checks that the requested type was found.
    ///
    /// # Errors
    ///
    /// If it was not, with a list of the types that exist.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let Some(kind) = self.kind.as_ref().filter(|_| !self.is_met && !self.types.is_empty()) else { return Ok(()) };
        let types: Vec<String> = self.types.iter().map(ShownType::to_string).collect();
        let what = format!("error: --type {kind}: no profile has values of this type; nothing was written");
        Err(Failure(format!("{what}\nhint: there are: {}", types.join(", "))))
    }

    /// Adds what was left out to a report, and the implausible times.
    pub(crate) fn say(&self, report: &mut EncodingReport) {
        report.not_shown.extend(self.not_shown.in_words());
        let Some(WrongTimes { observations, example }) = self.wrong else { return };
        let noun = if observations == 1 { "observation has" } else { "observations have" };
        let time = Timestamp(example).rfc3339(0).replace(".Z", "Z");
        let what = format!("time_skew: {observations} {noun} a time that cannot be, such as {time}");
        let advice =
            if self.is_stated { "they are taken at that of `--at`" } else { "`--at` says when they were made" };
        terminal::say(format!("{what}: {advice}"));
    }
}

/// Parses a time: RFC 3339 (`2026-01-31T08:00:00Z`), or a number of seconds since 1970.
pub(crate) fn unix_nano(text: &str) -> Result<u64, String> {
    const WRONG: &str = "it must be a time such as 2026-01-31T08:00:00Z, or a number of seconds since 1970";
    let nano = match text.parse::<u64>() {
        Ok(seconds) => seconds.checked_mul(1_000_000_000),
        Err(_) => Timestamp::parse(text).map(|time| time.0),
    };
    nano.filter(|&nano| nano > 0).ok_or_else(|| WRONG.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: times are parsed in both formats, and invalid dates are refused.
    #[test]
    fn times() {
        for (text, seconds) in [
            ("1760000000", 1_760_000_000),
            ("2025-10-09T08:53:20Z", 1_760_000_000),
            ("2000-02-29T00:00:00Z", 951_782_400),
        ] {
            assert_eq!(unix_nano(text), Ok(seconds * 1_000_000_000), "{text}");
        }
        for text in ["", "0", "now", "2025-02-30T00:00:00Z", "2025-10-09", "2025-10-09T24:00:00Z", "-5", "1e9"] {
            assert!(unix_nano(text).is_err(), "{text}");
        }
    }
}
