//! Rule 9: what a chunk says about its process.

use profbridge_model::{Attribute, Dictionary, Profiles, Value};

use super::limits::MAX_STRING_BYTES;

/// The process, as Sentry files it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct About {
    /// `sentry.release`, else `service.name@service.version`, or `service.name`. The first is what a process told Sentry's SDKs
    /// (sentry-conventions, `sentry.release`).
    pub(super) release: Option<String>,
    /// `deployment.environment.name`, the older `deployment.environment`, or the configured one.
    pub(super) environment: String,
    /// The main executable: `process.executable.path`, or `process.executable.name`; empty where neither is known.
    pub(super) executable: String,
}

impl About {
    /// Reads the attributes of a batch's resources, of its profiles, and of their first samples, in this order.
    pub(super) fn of(batch: &Profiles, default_environment: &str) -> Self {
        let find = |key: &str| {
            let resources = batch.resources().iter().flat_map(|resource| &resource.resource.attributes);
            resources
                .chain(batch.profiles().flat_map(|profile| batch.dictionary().attributes(profile.attributes)))
                .chain(first_samples(batch))
                .filter(|attribute| batch.dictionary().string(attribute.key) == key)
                .find_map(|attribute| text(batch.dictionary(), &attribute.value))
        };
        let release = find("sentry.release").or_else(|| {
            find("service.name").map(|name| match find("service.version") {
                Some(version) => format!("{name}@{version}"),
                None => name,
            })
        });
        let environment = find("deployment.environment.name").or_else(|| find("deployment.environment"));
        let executable = find("process.executable.path").or_else(|| find("process.executable.name"));
        let environment = environment.unwrap_or_else(|| default_environment.to_owned());
        Self { release, environment, executable: executable.unwrap_or_default() }
    }
}

fn first_samples(batch: &Profiles) -> impl Iterator<Item = &Attribute> {
    let firsts = batch.profiles().filter_map(|profile| batch.samples(profile).next());
    firsts.flat_map(|sample| batch.dictionary().attributes(sample.attributes))
}

fn text(dictionary: &Dictionary, value: &Value) -> Option<String> {
    match value {
        Value::String(id) => match dictionary.string(*id) {
            "" => None,
            text => Some(text.chars().take(MAX_STRING_BYTES / 4).collect()),
        },
        Value::Int(number) => Some(number.to_string()),
        _ => None,
    }
}
