//! `service.identity`: the attributes that identify a process, and how its time is divided.

use std::time;

use profbridge_identity::{IdentityKind, MAX_WINDOW, Rules};
use serde::Deserialize;

use crate::config::{Duration, Problem, Section};

/// The section as written. Every key is optional.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct IdentityConfig {
    /// The length of a window in event time. With `0s` each request is cut by itself, and nothing is held.
    window: Duration,
    /// The length of a session: a process gets a new `profiler_id` in each. `0s` means one endless session.
    session: Duration,
    /// Sets of attributes that identify a process, best first.
    attributes: Vec<IdentityAttributes>,
}

/// A set of attributes, see [`IdentityKind`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum IdentityAttributes {
    Container,
    Host,
    Instance,
}

impl Default for IdentityConfig {
    fn default() -> Self {
        Self {
            window: Duration::from_secs(60),
            session: Duration::ZERO,
            attributes: vec![IdentityAttributes::Container, IdentityAttributes::Host, IdentityAttributes::Instance],
        }
    }
}

impl IdentityConfig {
    /// All broken rules, each at its key in `service`, the parent section.
    pub(super) fn problems(&self, service: &Section) -> Vec<Problem> {
        let attributes = &self.attributes;
        let twice = (1..attributes.len()).any(|n| attributes[..n].contains(&attributes[n]));
        service.broken_rules(&[
            (
                self.window.nanos() > MAX_WINDOW,
                "identity.window",
                "a window is at most 60s",
                "Sentry refuses chunks that are longer than 66 seconds",
            ),
            (
                !self.window.is_zero() && self.window.get() < time::Duration::from_secs(1),
                "identity.window",
                "a window is at least 1s, or 0s",
                "write `0s` to cut each request on its own",
            ),
            (
                !self.session.is_zero() && self.session < self.window,
                "identity.session",
                "a session is at least as long as a window, or 0s",
                "write `0s` for one session for ever",
            ),
            (attributes.is_empty(), "identity.attributes", "must name at least one of container, host, instance", ""),
            (twice, "identity.attributes", "names something twice", ""),
        ])
    }

    /// The rules of the checked section.
    pub(super) fn rules(self) -> Rules {
        let kinds = self.attributes.iter().map(|attributes| match attributes {
            IdentityAttributes::Container => IdentityKind::Container,
            IdentityAttributes::Host => IdentityKind::Host,
            IdentityAttributes::Instance => IdentityKind::Instance,
        });
        Rules { window: self.window.nanos(), session: self.session.nanos(), kinds: kinds.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::ServiceSettings;

    fn rules(yaml: &str) -> Result<Rules, Vec<String>> {
        let section = Section::from_yaml(&format!("identity: {{{yaml}}}")).unwrap();
        let text = |problem: &Problem| format!("{}: {}", problem.key_path, problem.message);
        match ServiceSettings::new(&section) {
            Ok(settings) => Ok(settings.identity),
            Err(problems) => Err(problems.as_slice().iter().map(text).collect()),
        }
    }

    /// Guarantees: all broken rules are reported at once.
    #[test]
    fn every_rule_is_checked() {
        let expected = [
            "identity.window: a window is at most 60s",
            "identity.session: a session is at least as long as a window, or 0s",
            "identity.attributes: must name at least one of container, host, instance",
        ];
        assert_eq!(rules("window: 61s, session: 1s, attributes: []"), Err(expected.map(str::to_owned).to_vec()));
        let one = |yaml: &str| rules(yaml).unwrap_err().concat();
        assert_eq!(one("window: 20ms"), "identity.window: a window is at least 1s, or 0s");
        assert_eq!(one("attributes: [host, host]"), "identity.attributes: names something twice");
        assert_eq!(one("windows: 5s"), "identity.windows: unknown key `windows`");
        assert_eq!(one("attributes: [service]"), "identity.attributes.0: unknown value `service`");
    }
}
