//! The attributes of a process, from a batch of profiles or a resource of spans: explicit attributes, the process's
//! environment variables, and its executable.
//!
//! The OpenTelemetry eBPF profiler does not evaluate the environment variables that configure an SDK, but sends them
//! unmodified as `process.environment_variable.<NAME>` (OpenTelemetry semantic conventions, registry, `process`). Of
//! these, `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` describe the service (opentelemetry-specification
//! `specification/configuration/sdk-environment-variables.md`); the former wins.

use std::cell::OnceCell;

use profbridge_model::spans::SpanResource;
use profbridge_model::{Attribute, CLAIMED_ATTRIBUTE, Dictionary, Profiles, Spans, Value};

use crate::otlp::environment::resource_attributes;
use crate::otlp::traces::{AnyValue, read};

/// The prefix of the name that SDKs give to an unnamed service (semantic conventions, `service.name`).
const UNKNOWN: &str = "unknown_service";

/// The attributes of a process.
pub struct ResourceAttributes<'a> {
    by: SelectedBy<'a>,
    environment: OnceCell<Vec<(String, String)>>,
    /// Whether attributes count that only the profiled program itself has stated.
    claims: bool,
}

/// The source of the attributes.
enum SelectedBy<'a> {
    Profiles(&'a Profiles),
    Resource(&'a Spans, &'a SpanResource),
}

impl<'a> ResourceAttributes<'a> {
    /// The attributes of the process of this batch.
    pub fn of(batch: &'a Profiles) -> Self {
        Self { by: SelectedBy::Profiles(batch), environment: OnceCell::new(), claims: true }
    }

    /// The attributes of the process that a resource of spans describes.
    pub fn of_resource(spans: &'a Spans, resource: &'a SpanResource) -> Self {
        Self { by: SelectedBy::Resource(spans, resource), environment: OnceCell::new(), claims: true }
    }

    /// Ignores attributes that only the profiled program itself has stated ([`CLAIMED_ATTRIBUTE`]).
    #[must_use]
    pub fn without_claims(self) -> Self {
        Self { claims: false, ..self }
    }

    /// The first non-empty value of an attribute, as text. For profiles, the batch's resources are searched, then its
    /// profiles, then their first samples; for a resource of spans, the received attributes, then those added later.
    pub fn attribute(&self, key: &str) -> Option<String> {
        let batch = match self.by {
            SelectedBy::Profiles(batch) => batch,
            SelectedBy::Resource(spans, resource) => {
                let came = read::resource_attributes(spans, resource).filter(|(found, _)| *found == key);
                let added = || resource.added.iter().find(|(found, value)| **found == *key && !value.is_empty());
                return came
                    .filter_map(|(_, value)| text_of(value))
                    .next()
                    .or_else(|| added().map(|(_, value)| value.to_string()));
            }
        };
        let dictionary = batch.dictionary();
        let resources = || batch.resources().iter().flat_map(|resource| &resource.resource.attributes);
        if !self.claims && resources().any(|attribute| claims(dictionary, attribute, key)) {
            return None;
        }
        resources()
            .chain(batch.profiles().flat_map(|profile| dictionary.attributes(profile.attributes)))
            .chain(first_samples(batch))
            .filter(|attribute| dictionary.string(attribute.key) == key)
            .find_map(|attribute| text(dictionary, &attribute.value))
    }

    /// The value of an attribute according to the process's environment. The last of several wins; a malformed list is
    /// ignored.
    pub fn environment(&self, key: &str) -> Option<String> {
        let variable = |name: &str| self.attribute(&format!("process.environment_variable.{name}"));
        if key == "service.name"
            && let Some(name) = variable("OTEL_SERVICE_NAME")
        {
            return Some(name);
        }
        let list = || variable("OTEL_RESOURCE_ATTRIBUTES").and_then(|list| resource_attributes(&list).ok());
        let all = self.environment.get_or_init(|| list().unwrap_or_default());
        let found = all.iter().rev().find(|(known, value)| known == key && !value.is_empty());
        found.map(|(_, value)| value.clone())
    }

    /// The value of an attribute: explicit, or else from the environment.
    pub fn text(&self, key: &str) -> Option<String> {
        self.attribute(key).or_else(|| self.environment(key))
    }

    /// The service's name: its attribute, or else the environment's name, or else the executable's. A placeholder for
    /// an unnamed service is the last resort.
    pub fn service(&self) -> Option<String> {
        self.named_service().or_else(|| self.attribute("service.name"))
    }

    /// The same without placeholders.
    pub(super) fn named_service(&self) -> Option<String> {
        let is_name = |name: &String| !name.starts_with(UNKNOWN);
        let said = self.attribute("service.name").filter(is_name);
        said.or_else(|| self.environment("service.name").filter(is_name)).or_else(|| self.executable_name())
    }

    /// The main executable: its path, or else its name.
    pub fn executable(&self) -> Option<String> {
        self.attribute("process.executable.path").or_else(|| self.attribute("process.executable.name"))
    }

    /// The main executable's name, or else the last part of its path.
    fn executable_name(&self) -> Option<String> {
        let path = || self.attribute("process.executable.path");
        let last = |path: String| path.rsplit('/').next().map(str::to_owned).filter(|name| !name.is_empty());
        self.attribute("process.executable.name").or_else(|| path().and_then(last))
    }
}

/// Whether this attribute is the list of claimed attributes and contains the key.
fn claims(dictionary: &Dictionary, attribute: &Attribute, key: &str) -> bool {
    let is_it = |value: &Value| matches!(value, Value::String(id) if dictionary.string(*id) == key);
    dictionary.string(attribute.key) == CLAIMED_ATTRIBUTE
        && matches!(&attribute.value, Value::Array(keys) if keys.iter().any(is_it))
}

fn first_samples(batch: &Profiles) -> impl Iterator<Item = &Attribute> {
    let firsts = batch.profiles().filter_map(|profile| batch.samples(profile).next());
    firsts.flat_map(|sample| batch.dictionary().attributes(sample.attributes))
}

fn text(dictionary: &Dictionary, value: &Value) -> Option<String> {
    match value {
        Value::String(id) => Some(dictionary.string(*id)).filter(|text| !text.is_empty()).map(str::to_owned),
        Value::Int(number) => Some(number.to_string()),
        Value::Bool(value) => Some(value.to_string()),
        _ => None,
    }
}

fn text_of(value: AnyValue<'_>) -> Option<String> {
    match value {
        AnyValue::Text(text) => Some(text).filter(|text| !text.is_empty()).map(str::to_owned),
        AnyValue::Int(number) => Some(number.to_string()),
        AnyValue::Bool(value) => Some(value.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use profbridge_model::Builder;
    use profbridge_model::builder::Any;

    use super::*;

    const NAME: &str = "process.environment_variable.OTEL_SERVICE_NAME";
    const LIST: &str = "process.environment_variable.OTEL_RESOURCE_ATTRIBUTES";
    const EXE: &str = "process.executable.name";
    const PATH: &str = "process.executable.path";

    fn batch(attributes: &[(&str, &str)]) -> Profiles {
        let mut builder = Builder::new();
        let attributes: Vec<_> = attributes.iter().map(|&(key, value)| (key, value.into())).collect();
        builder.resource(&attributes);
        builder.sample(None, None, None, &[1], &[]);
        builder.finish().unwrap()
    }

    /// Guarantees: a service gets the name of its resource, or else of its environment, or else of its executable; a
    /// placeholder name is the last resort.
    #[test]
    fn names_of_services() {
        let list = (LIST, "service.name=listed,service.version=2");
        for (attributes, name) in [
            (&[("service.name", "shop"), (NAME, "named"), list][..], Some("shop")),
            (&[("service.name", "unknown_service:python"), (NAME, "named"), list], Some("named")),
            (&[("service.name", "unknown_service"), list, (EXE, "python")], Some("listed")),
            (&[("service.name", ""), (NAME, ""), (EXE, "python")], Some("python")),
            (&[("service.name", "unknown_service:x"), (NAME, "unknown_service"), (PATH, "/usr/bin/app")], Some("app")),
            (&[("service.name", "unknown_service:x")], Some("unknown_service:x")),
            (&[(LIST, "service.name=a%2Cb")], Some("a,b")),
            (&[(LIST, "service.name=a,broken"), (EXE, "python")], Some("python")),
            (&[(PATH, "/")], None),
            (&[], None),
        ] {
            assert_eq!(ResourceAttributes::of(&batch(attributes)).service().as_deref(), name, "{attributes:?}");
        }
    }

    /// Guarantees: attributes missing in the batch come from the environment, the last of several.
    #[test]
    fn what_the_environment_says() {
        let list = (LIST, "service.version=1,k=,service.version=2,k8s.pod.name=p");
        let batch = batch(&[list, ("k8s.pod.name", "own")]);
        let attributes = ResourceAttributes::of(&batch);
        let texts = ["service.version", "k8s.pod.name", "k", "other"].map(|key| attributes.text(key));
        assert_eq!(texts.each_ref().map(Option::as_deref), [Some("2"), Some("own"), None, None]);
    }

    /// Guarantees: on request, attributes that only the profiled program has stated are ignored, in the resource and in
    /// samples; all others count.
    #[test]
    fn without_claims() {
        let claimed = [Any::Str("service.name"), Any::Str("team")];
        let mut builder = Builder::new();
        let resource = [
            ("service.name", "claimed".into()),
            ("tier", "set".into()),
            (EXE, "python".into()),
            (CLAIMED_ATTRIBUTE, Any::Array(&claimed)),
        ];
        builder.resource(&resource);
        let attributes = builder.attributes(&[("team", "claimed".into()), ("route", "sampled".into())]);
        builder.sample(None, attributes, None, &[1], &[]);
        let batch = builder.finish().unwrap();
        let all = ResourceAttributes::of(&batch);
        assert_eq!((all.service().as_deref(), all.text("team").as_deref()), (Some("claimed"), Some("claimed")));
        let attributes = ResourceAttributes::of(&batch).without_claims();
        assert_eq!(attributes.service().as_deref(), Some("python"));
        let texts = ["team", "tier", "route"].map(|key| attributes.text(key));
        assert_eq!(texts.each_ref().map(Option::as_deref), [None, Some("set"), Some("sampled")]);
    }
}
