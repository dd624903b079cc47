//! In which language a span's program is written, in OpenTelemetry's words.

use super::{Said, SpanValue, SpanView};

/// What Sentry calls a platform where OpenTelemetry has another name (Sentry developer documentation, "Event Payloads",
/// `platform`; OpenTelemetry semantic conventions, `telemetry.sdk.language`).
const OTHER_NAMES: [(&str, &str); 7] = [
    ("node", "nodejs"),
    ("javascript", "webjs"),
    ("csharp", "dotnet"),
    ("elixir", "erlang"),
    ("groovy", "java"),
    ("cocoa", "swift"),
    ("objc", "swift"),
];

impl SpanView<'_> {
    /// The language of its program, as `telemetry.sdk.language` has it: of an OTLP span that attribute of its resource,
    /// of a transaction its `platform`, of a span of version 2 what the name of its SDK says. A child of a transaction
    /// says none: the transaction does.
    pub fn language(&self) -> Option<String> {
        match &self.said {
            Said::Otlp(_) => self.resource_attribute("telemetry.sdk.language").and_then(SpanValue::into_text),
            Said::Transaction(object) => {
                object.find(&["platform"]).and_then(SpanValue::into_text).map(|platform| of_platform(&platform))
            }
            Said::V2(_) => {
                let platform = self.attribute("sentry.platform").and_then(SpanValue::into_text);
                let sdk = || self.attribute("sentry.sdk.name").and_then(SpanValue::into_text);
                platform.map(|platform| of_platform(&platform)).or_else(|| of_sdk(&sdk()?))
            }
            Said::Child(_) => None,
        }
    }
}

fn of_platform(platform: &str) -> String {
    OTHER_NAMES.iter().find(|(name, _)| *name == platform).map_or(platform, |(_, language)| language).to_owned()
}

/// SDKs are called `sentry.LANGUAGE` and what follows: `sentry.javascript.node`, `sentry.python.django`.
fn of_sdk(name: &str) -> Option<String> {
    let mut parts = name.split('.').skip_while(|part| *part != "sentry").skip(1);
    match (parts.next()?, parts.next()) {
        ("javascript", Some("node")) => Some("nodejs".to_owned()),
        (language, _) => Some(of_platform(language)),
    }
}
