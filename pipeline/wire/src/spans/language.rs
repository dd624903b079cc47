//! The programming language of a span's program, in OpenTelemetry's terms.

use super::{SpanContent, SpanValue, SpanView};

/// Sentry's names of platforms that differ from OpenTelemetry's (Sentry developer documentation, "Event Payloads",
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
    /// The language of the program, as in `telemetry.sdk.language`: that resource attribute of an OTLP span, the
    /// `platform` of a transaction, or the language in the SDK's name of a span of version 2. `None` for a child of a
    /// transaction, because only the transaction has it.
    pub fn language(&self) -> Option<String> {
        match &self.content {
            SpanContent::Otlp(_) => self.resource_attribute("telemetry.sdk.language").and_then(SpanValue::into_text),
            SpanContent::Transaction(object) => {
                object.find(&["platform"]).and_then(SpanValue::into_text).map(|platform| of_platform(&platform))
            }
            SpanContent::V2(_) => {
                let platform = self.attribute("sentry.platform").and_then(SpanValue::into_text);
                let sdk = || self.attribute("sentry.sdk.name").and_then(SpanValue::into_text);
                platform.map(|platform| of_platform(&platform)).or_else(|| of_sdk(&sdk()?))
            }
            SpanContent::Child(_) => None,
        }
    }
}

fn of_platform(platform: &str) -> String {
    OTHER_NAMES.iter().find(|(name, _)| *name == platform).map_or(platform, |(_, language)| language).to_owned()
}

/// The language in an SDK's name, `sentry.LANGUAGE` with optional suffixes: `sentry.javascript.node`,
/// `sentry.python.django`.
fn of_sdk(name: &str) -> Option<String> {
    let mut parts = name.split('.').skip_while(|part| *part != "sentry").skip(1);
    match (parts.next()?, parts.next()) {
        ("javascript", Some("node")) => Some("nodejs".to_owned()),
        (language, _) => Some(of_platform(language)),
    }
}
