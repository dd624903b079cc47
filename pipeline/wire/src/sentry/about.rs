//! The process metadata of chunks and transactions.

use super::chunk::limits::MAX_STRING_BYTES;
use super::resource_attributes::ResourceAttributes;

/// The process, as Sentry identifies it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct About {
    /// `sentry.release`, which a process configured for Sentry's SDKs (sentry-conventions, `sentry.release`); or else
    /// `SERVICE@service.version`, or `SERVICE`, from [`ResourceAttributes::named_service`].
    pub(super) release: Option<String>,
    /// `deployment.environment.name`, the older `deployment.environment`, or the configured one.
    pub(super) environment: String,
    /// The main executable: `process.executable.path`, or `process.executable.name`; empty if neither is known.
    pub(super) executable: String,
    /// `process.pid`, which is also the id of the first thread; empty if unknown.
    pub(super) pid: String,
}

impl About {
    /// Reads the metadata from the attributes of a process.
    pub(super) fn of(attributes: &ResourceAttributes<'_>, default_environment: &str) -> Self {
        let release = attributes.attribute("sentry.release").map(bounded).or_else(|| {
            attributes.named_service().map(bounded).map(|name| match attributes.text("service.version").map(bounded) {
                Some(version) => format!("{name}@{version}"),
                None => name,
            })
        });
        let keys = ["deployment.environment.name", "deployment.environment"];
        let environment = keys.iter().find_map(|key| attributes.attribute(key));
        let environment = environment.or_else(|| keys.iter().find_map(|key| attributes.environment(key))).map(bounded);
        let environment = environment.unwrap_or_else(|| default_environment.to_owned());
        let executable = attributes.executable().map(bounded).unwrap_or_default();
        let pid = attributes.attribute("process.pid").unwrap_or_default();
        Self { release, environment, executable, pid }
    }
}

/// The text, truncated so that two of them can be joined within the limit.
fn bounded(text: String) -> String {
    match text.char_indices().nth(MAX_STRING_BYTES / 4) {
        Some((end, _)) => text[..end].to_owned(),
        None => text,
    }
}
