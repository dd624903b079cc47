//! Converts the origin of Sentry's spans to OTLP's resource and scope. The [module](super)'s documentation has the
//! table.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::otlp::traces::write::Origin;
use crate::sentry::{platform, splice};

/// The known data of the spans' origin; missing fields are empty.
#[derive(Default)]
struct OriginTexts {
    service: String,
    release: String,
    environment: String,
    server_name: String,
    platform: String,
    sdk_name: String,
    sdk_version: String,
}

/// The origin of a transaction and its spans.
pub(super) fn of_event(json: &str) -> Origin {
    #[derive(Deserialize, Default)]
    #[serde(bound(deserialize = "'de: 'a"))]
    struct EventJson<'a> {
        release: Option<&'a RawValue>,
        environment: Option<&'a RawValue>,
        server_name: Option<&'a RawValue>,
        platform: Option<&'a RawValue>,
        sdk: Option<&'a RawValue>,
    }
    let event: EventJson<'_> = serde_json::from_str(json).unwrap_or_default();
    let sdk = event.sdk.map_or("", RawValue::get);
    let resource = |key| text(splice::get(json, &["contexts", "otel", "resource", key]));
    // Node's SDK sends the same placeholder for every program.
    let is_sdk_itself = resource("service.namespace") == "sentry";
    let known = OriginTexts {
        service: if is_sdk_itself { String::new() } else { resource("service.name") },
        release: text(event.release.map(RawValue::get)),
        environment: text(event.environment.map(RawValue::get)),
        server_name: text(event.server_name.map(RawValue::get)),
        platform: text(event.platform.map(RawValue::get)),
        sdk_name: text(splice::get(sdk, &["name"])),
        sdk_version: text(splice::get(sdk, &["version"])),
    };
    known.origin()
}

/// The origin of a span of a container.
pub(super) fn of_span(json: &str) -> Origin {
    let attributes = splice::get(json, &["attributes"]).unwrap_or_default();
    let attribute = |key| text(splice::get(attributes, &[key, "value"]));
    let sdk_name = attribute("sentry.sdk.name");
    let platform = match &*sdk_name {
        "sentry.javascript.node" => "node",
        name => name.strip_prefix("sentry.").filter(|name| !name.contains('.')).unwrap_or_default(),
    };
    let known = OriginTexts {
        service: attribute("service.name"),
        release: attribute("sentry.release"),
        environment: attribute("sentry.environment"),
        server_name: attribute("host.name"),
        platform: platform.to_owned(),
        sdk_version: attribute("sentry.sdk.version"),
        sdk_name,
    };
    known.origin()
}

impl OriginTexts {
    fn origin(self) -> Origin {
        let parts = self.release.rsplit_once('@').filter(|(name, version)| !name.is_empty() && !version.is_empty());
        let (name, version) = parts.unwrap_or(("", &self.release));
        let service = match (&*self.service, name) {
            ("", "") if self.sdk_name.is_empty() => "unknown_service".to_owned(),
            ("", "") => format!("unknown_service:{}", self.sdk_name),
            ("", name) => name.to_owned(),
            (service, _) => service.to_owned(),
        };
        let release = if parts.is_none() { &*self.release } else { "" };
        let all = [
            ("service.name", &*service),
            ("service.version", version),
            ("sentry.release", release),
            ("deployment.environment.name", &self.environment),
            ("host.name", &self.server_name),
            ("sentry.platform", &self.platform),
            ("telemetry.sdk.name", &self.sdk_name),
            ("telemetry.sdk.version", &self.sdk_version),
            ("telemetry.sdk.language", platform::language(&self.platform)),
        ];
        let present = all.into_iter().filter(|(_, text)| !text.is_empty());
        Origin {
            resource: present.map(|(key, text)| (key, text.to_owned())).collect(),
            scope: self.sdk_name.clone(),
            scope_version: self.sdk_version.clone(),
        }
    }
}

/// A JSON text; empty if it is something else.
fn text(json: Option<&str>) -> String {
    json.and_then(|json| serde_json::from_str(json).ok()).unwrap_or_default()
}
