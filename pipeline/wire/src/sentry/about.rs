//! What chunks and transactions say about their process.

use super::chunk::limits::MAX_STRING_BYTES;
use super::told::Told;

/// The process, as Sentry files it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct About {
    /// `sentry.release`, else `SERVICE@service.version`, or `SERVICE`, which is what [`Told::service`] finds. The first
    /// is what a process told Sentry's SDKs (sentry-conventions, `sentry.release`).
    pub(super) release: Option<String>,
    /// `deployment.environment.name`, the older `deployment.environment`, or the configured one.
    pub(super) environment: String,
    /// The main executable: `process.executable.path`, or `process.executable.name`; empty where neither is known.
    pub(super) executable: String,
    /// `process.pid`, which is the id of the first thread; empty where it is not known.
    pub(super) pid: String,
}

impl About {
    /// Reads what is said of a process.
    pub(super) fn of(told: &Told<'_>, default_environment: &str) -> Self {
        let release = told.attribute("sentry.release").map(bounded).or_else(|| {
            told.service().map(bounded).map(|name| match told.text("service.version").map(bounded) {
                Some(version) => format!("{name}@{version}"),
                None => name,
            })
        });
        let keys = ["deployment.environment.name", "deployment.environment"];
        let environment = keys.iter().find_map(|key| told.attribute(key));
        let environment = environment.or_else(|| keys.iter().find_map(|key| told.environment(key))).map(bounded);
        let environment = environment.unwrap_or_else(|| default_environment.to_owned());
        let executable = told.executable().map(bounded).unwrap_or_default();
        let pid = told.attribute("process.pid").unwrap_or_default();
        Self { release, environment, executable, pid }
    }
}

/// The beginning of a text that still fits where two of them are joined.
fn bounded(text: String) -> String {
    match text.char_indices().nth(MAX_STRING_BYTES / 4) {
        Some((end, _)) => text[..end].to_owned(),
        None => text,
    }
}
