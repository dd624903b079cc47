//! The state of each component, for health checks.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The state of a component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ComponentState {
    /// The component acquires the resources that it needs.
    Starting,
    /// The component works.
    Running,
    /// The component finishes its work in progress.
    Stopping,
    /// The component ended normally.
    Stopped,
    /// The configuration gives the component nothing to do, for this reason.
    Disabled(String),
    /// The component ended unexpectedly, for this reason.
    Failed(String),
}

impl ComponentState {
    /// The name of the state in the answer to a health check.
    pub fn as_str(&self) -> &'static str {
        match self {
            ComponentState::Starting => "starting",
            ComponentState::Running => "running",
            ComponentState::Stopping => "stopping",
            ComponentState::Stopped => "stopped",
            ComponentState::Disabled(_) => "disabled",
            ComponentState::Failed(_) => "failed",
        }
    }

    /// The reason, for states that have one.
    pub fn detail(&self) -> Option<&str> {
        match self {
            ComponentState::Disabled(why) | ComponentState::Failed(why) => Some(why),
            _ => None,
        }
    }
}

/// How long an exporter may have problems before the process counts as unavailable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thresholds {
    /// How long all attempts have failed: from the first failure to the last.
    pub failing: Duration,
    /// How long the queue has been full.
    pub queue_full: Duration,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self { failing: Duration::from_secs(60), queue_full: Duration::from_secs(60) }
    }
}

/// The key of a component: its section (`receivers`, `exporters`, `pipelines`) and its id.
type ComponentKey = (&'static str, String);

/// The states of all components. Cheap to clone; clones share them.
#[derive(Debug, Clone, Default)]
pub struct Health {
    states: Arc<Mutex<BTreeMap<ComponentKey, ComponentState>>>,
}

impl Health {
    /// Sets the state of a component. A failed component stays failed.
    pub fn set(&self, section: &'static str, id: &str, state: ComponentState) {
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        let current = states.entry((section, id.to_owned())).or_insert(ComponentState::Starting);
        if !matches!(current, ComponentState::Failed(_)) {
            *current = state;
        }
    }

    /// All states, by section and id.
    pub fn states(&self) -> Vec<(&'static str, String, ComponentState)> {
        let states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        states.iter().map(|((section, id), state)| (*section, id.clone(), state.clone())).collect()
    }

    /// Whether there are components and each of them runs or is disabled.
    pub fn is_ready(&self) -> bool {
        let states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        !states.is_empty()
            && states.values().all(|state| matches!(state, ComponentState::Running | ComponentState::Disabled(_)))
    }

    /// Whether a component has failed.
    pub fn has_failed(&self, section: &'static str, id: &str) -> bool {
        let states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(states.get(&(section, id.to_owned())), Some(ComponentState::Failed(_)))
    }

    /// Returns the answer to a health check, and whether everything works: `{"status": "...", "components":
    /// {"receivers/otlp": {"state": "running"}}}`. `troubles` are the exporters with problems: id, what happened, and
    /// what to do.
    pub(crate) fn answer(&self, troubles: &[(String, String, &'static str)]) -> (bool, String) {
        let mut components = serde_json::Map::new();
        for (section, id, state) in self.states() {
            let mut entry = serde_json::json!({ "state": state.as_str() });
            if let Some(detail) = state.detail() {
                entry["detail"] = detail.into();
            }
            components.insert(format!("{section}/{id}"), entry);
        }
        for (id, error, remedy) in troubles {
            let entry = serde_json::json!({ "state": "failing", "error": error, "remedy": remedy });
            components.insert(format!("exporters/{id}"), entry);
        }
        let is_well = self.is_ready() && troubles.is_empty();
        let status = if is_well { "available" } else { "unavailable" };
        (is_well, serde_json::json!({ "status": status, "components": components }).to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: profbridge is ready when every component runs or is disabled, and otherwise names those that do not.
    #[test]
    fn ready_when_everything_runs() {
        let health = Health::default();
        assert!(!health.is_ready());
        health.set("receivers", "otlp", ComponentState::Running);
        health.set("exporters", "sentry", ComponentState::Disabled("the DSN is empty".to_owned()));
        assert!(health.is_ready());
        health.set("pipelines", "profiles", ComponentState::Failed("panicked".to_owned()));
        assert!(!health.is_ready());
        let expected = r#"{"status":"unavailable","components":{"exporters/sentry":{"state":"disabled","detail":"the DSN is empty"},"pipelines/profiles":{"state":"failed","detail":"panicked"},"receivers/otlp":{"state":"running"}}}"#;
        let parsed = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(parsed(&health.answer(&[]).1), parsed(expected));
    }

    /// Guarantees: the shutdown after a failure does not hide the failure.
    #[test]
    fn failure_stays() {
        let health = Health::default();
        health.set("pipelines", "profiles", ComponentState::Failed("panicked".to_owned()));
        health.set("pipelines", "profiles", ComponentState::Stopped);
        assert_eq!(health.states()[0].2, ComponentState::Failed("panicked".to_owned()));
    }
}
