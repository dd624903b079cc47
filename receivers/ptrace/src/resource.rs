//! The resource of a process: the attributes that describe it.
//!
//! The configuration takes precedence, then the variables that the process's environment has for OpenTelemetry and
//! Sentry SDKs (`OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`: opentelemetry-specification
//! `specification/resource/sdk.md`; `SENTRY_RELEASE`, `SENTRY_ENVIRONMENT`: Sentry's SDK options). Arguments are left
//! out, since they often contain secrets.

use std::borrow::Cow;

use profbridge_identity::{Identity, Rules};
use profbridge_model::{Builder, CLAIMED_ATTRIBUTE};
use profbridge_sampler::message::{AttributeValue, Process};
use profbridge_wire::otlp::environment;
use profbridge_wire::sentry::timestamp::Timestamp;

use crate::assemble::{Attribute, ResourceValue, begin_resource};
use crate::config::ServiceNames;
use crate::session::{ProfilerSession, SESSION_ATTRIBUTE};

/// The environment variables of a target that the sampler process is to read.
pub const ENVIRONMENT: [&str; 4] =
    ["OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES", "SENTRY_RELEASE", "SENTRY_ENVIRONMENT"];

/// The longest value of an attribute, in bytes: Sentry's limit for a string.
const MAX_TEXT: usize = 4096;

/// The longest key that is passed on from a process's environment, in bytes; no sensible name is longer.
const MAX_KEY: usize = 256;

/// How many attributes of a process's environment are passed on besides those with a special meaning.
const MAX_PASSED: usize = 64;

/// The maximum size of all these attributes, keys and values, in bytes. Each batch contains them.
const MAX_PASSED_BYTES: usize = 16 << 10;

/// Attributes, and prefixes of attributes, that are observed by profbridge itself. A process's environment cannot set
/// them, even if profbridge does not know them. `deployment.environment` is the former name of
/// `deployment.environment.name`.
const OWN: [&str; 9] = [
    "process.",
    "container.id",
    "telemetry.",
    "thread.",
    "profile.",
    "profbridge.",
    "host.name",
    "os.type",
    "deployment.environment",
];

/// Prefixes of keys that are not accepted from the context that a program publishes: attributes observed here, those
/// that decide the identity of a process, and those to which Sentry gives a special meaning.
const NOT_CLAIMED: [&str; 10] =
    ["process.", "container.", "telemetry.", "thread.", "profile.", "profbridge.", "host.", "k8s.", "os.", "sentry."];

/// The prefix of the service name that SDKs use if none was configured (semantic conventions, `service.name`).
const UNKNOWN_SERVICE: &str = "unknown_service";

/// The resource of a process, and the error in the process's environment, if any.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DescribedProcess {
    /// The attributes, each key once.
    pub attributes: Vec<Attribute>,
    /// For the log: why an environment variable was discarded as malformed.
    pub complaint: Option<String>,
}

/// Describes a process on the host named `host`. `insert` are attributes, as keys and values, that the configuration
/// adds if they are missing; they take precedence over variables of the process's environment that have no special
/// meaning.
#[must_use]
pub fn describe(
    host: &str,
    process: &Process,
    names: &ServiceNames,
    session: ProfilerSession,
    insert: &[(String, String)],
) -> DescribedProcess {
    let variable = |name: &str| {
        let found = process.environment.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        found.filter(|value| !value.is_empty())
    };
    let (variables, complaint) = match variable("OTEL_RESOURCE_ATTRIBUTES").map(environment::resource_attributes) {
        // A malformed entry discards the whole variable (opentelemetry-specification `specification/resource/sdk.md`).
        Some(Err(fault)) => (Vec::new(), Some(format!("OTEL_RESOURCE_ATTRIBUTES is ignored: {fault}"))),
        Some(Ok(variables)) => (variables, None),
        None => (Vec::new(), None),
    };
    let all = &variables;
    let listed = |key: &str| all.iter().rev().find(|(known, _)| known == key).map(|(_, value)| value.as_str());
    let mut resource = ResourceBuilder::default();
    resource.text("service.name", names.name.as_deref().or(variable("OTEL_SERVICE_NAME")).or(listed("service.name")));
    resource.text("service.version", names.version.as_deref().or(listed("service.version")));
    resource.text("service.namespace", listed("service.namespace"));
    resource.text("service.instance.id", listed("service.instance.id"));
    let environment = names.environment.as_deref().or(variable("SENTRY_ENVIRONMENT"));
    let deployment = listed("deployment.environment.name").or(listed("deployment.environment"));
    resource.text("deployment.environment.name", environment.or(deployment));
    // Sentry's own attribute for the release, which may differ from the service's name and version
    // (sentry-conventions, `sentry.release`).
    resource.text("sentry.release", names.release.as_deref().or(variable("SENTRY_RELEASE")));
    resource.int("process.pid", process.pid.into());
    if process.namespace_pid != process.pid && process.namespace_pid != 0 {
        resource.int("process.vpid", process.namespace_pid.into());
    }
    resource.text("process.executable.name", process.executable.rsplit('/').next());
    resource.text("process.executable.path", Some(&process.executable));
    resource.text("process.creation.time", Some(&Timestamp(process.start_unix_nano).rfc3339(9)));
    resource.text("container.id", process.container.as_deref());
    resource.text("host.name", Some(host));
    resource.text("os.type", Some("linux"));
    resource.text(SESSION_ATTRIBUTE, Some(&session.attribute()));
    resource.insert(insert);
    let left_out = resource.pass_on_all(all);
    let complaint = complaint.or_else(|| {
        (left_out > 0).then(|| {
            format!(
                "{left_out} attributes of OTEL_RESOURCE_ATTRIBUTES are left out: at most {MAX_PASSED} are passed on, with \
                 {MAX_PASSED_BYTES} bytes together and keys of at most {MAX_KEY}"
            )
        })
    });
    DescribedProcess { attributes: resource.attributes, complaint }
}

/// Adds the attributes from the context that a process publishes in its memory (OTEP 4719), if `known` does not have
/// them, and a list of the keys that only the program vouches for: the added ones, and `thread_attributes`, the keys of
/// its threads' attributes. Attributes that decide the identity of a process, and the destination of its profiles, are
/// not accepted from there.
#[must_use]
pub fn with_claims(
    known: &[Attribute],
    claims: &[(String, AttributeValue)],
    thread_attributes: &[String],
) -> Vec<Attribute> {
    let mut resource = ResourceBuilder { attributes: known.to_vec(), ..ResourceBuilder::default() };
    for (key, value) in claims {
        let key = if key == "deployment.environment" { "deployment.environment.name" } else { key };
        let value = match value {
            AttributeValue::Text(text) => ResourceValue::Text(cut(text)),
            AttributeValue::Int(number) => ResourceValue::Int(*number),
        };
        let is_nothing =
            matches!(&value, ResourceValue::Text(text) if text.is_empty() || text.starts_with(UNKNOWN_SERVICE));
        let is_own = NOT_CLAIMED.iter().any(|own| key.starts_with(own));
        if !is_nothing && !is_own && !resource.has(key) {
            resource.pass_on(key, value);
        }
    }
    let claimed = resource.attributes[known.len()..].iter().map(|attribute| attribute.key.to_string());
    let claimed: Vec<String> = claimed.chain(thread_attributes.iter().cloned()).collect();
    if !claimed.is_empty() {
        resource.attributes.push(Attribute { key: CLAIMED_ATTRIBUTE.into(), value: ResourceValue::List(claimed) });
    }
    resource.attributes
}

/// The identity that a process with these attributes has in chunks, as the processors derive it from its resource.
#[must_use]
pub fn identity(rules: &Rules, attributes: &[Attribute]) -> Option<Identity> {
    let mut builder = Builder::new();
    begin_resource(&mut builder, attributes);
    builder.sample(None, None, None, &[0], &[]);
    let batch = builder.finish().ok()?;
    let resource = &batch.resources().first()?.resource;
    Some(rules.identify(batch.dictionary(), resource.attributes.iter(), None))
}

/// The name of this host, as `host.name` (opentelemetry semantic conventions: the output of `hostname`).
#[must_use]
pub fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

#[derive(Default)]
struct ResourceBuilder {
    attributes: Vec<Attribute>,
    /// The number and the size of the attributes passed on from the process.
    passed: (usize, usize),
}

impl ResourceBuilder {
    fn has(&self, key: &str) -> bool {
        self.attributes.iter().any(|known| known.key == key)
    }

    fn text(&mut self, key: &'static str, text: Option<&str>) {
        let Some(text) = text.filter(|text| !text.is_empty()) else { return };
        self.attributes.push(Attribute { key: key.into(), value: ResourceValue::Text(cut(text)) });
    }

    fn int(&mut self, key: &'static str, number: i64) {
        self.attributes.push(Attribute { key: key.into(), value: ResourceValue::Int(number) });
    }

    /// Adds attributes whose keys are missing.
    fn insert(&mut self, attributes: &[(String, String)]) {
        for (key, value) in attributes {
            if !self.has(key) {
                self.attributes
                    .push(Attribute { key: Cow::Owned(key.clone()), value: ResourceValue::Text(value.clone()) });
            }
        }
    }

    /// Adds an attribute that only the process provides. Returns whether there was room for it.
    fn pass_on(&mut self, key: &str, value: ResourceValue) -> bool {
        let (count, bytes) = self.passed;
        let bytes =
            bytes + key.len() + if let ResourceValue::Text(text) = &value { text.len() } else { size_of::<i64>() };
        let fits = key.len() <= MAX_KEY && count < MAX_PASSED && bytes <= MAX_PASSED_BYTES;
        if fits {
            self.passed = (count + 1, bytes);
            self.attributes.push(Attribute { key: Cow::Owned(key.to_owned()), value });
        }
        fits
    }

    /// Adds the attributes that only the process's environment has. Returns how many did not fit.
    fn pass_on_all(&mut self, variables: &[(String, String)]) -> usize {
        let mut left_out = 0;
        for (position, (key, value)) in variables.iter().enumerate() {
            let is_own = OWN.iter().any(|own| key == own || (own.ends_with('.') && key.starts_with(own)));
            // If a key is repeated, the last one counts.
            let is_repeated = variables[position + 1..].iter().any(|(later, _)| later == key);
            if !is_own && !is_repeated && !value.is_empty() && !self.has(key) {
                left_out += usize::from(!self.pass_on(key, ResourceValue::Text(cut(value))));
            }
        }
        left_out
    }
}

/// The longest prefix of a text that fits the limit of values.
fn cut(text: &str) -> String {
    let end = (0..=MAX_TEXT.min(text.len())).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    text[..end].to_owned()
}

#[cfg(test)]
mod tests;
