//! Counts the sending programs and their layouts, and logs each once.
//!
//! A program is identified by the scope of its profiles: name and version. The log shows operators which producers use
//! an earlier layout, which other receivers may not understand.

use std::net::IpAddr;

use profbridge_engine::telemetry::{Producer, TransportTelemetry};
use profbridge_model::Profiles;
use profbridge_wire::otlp::Layout;

/// The maximum number of distinct scopes that are counted per request.
const MAX_SCOPES: usize = 16;

/// Counts the scopes of a request in this layout, and logs those that are new.
pub(crate) fn note(telemetry: &TransportTelemetry, profiles: &Profiles, layout: Layout, sender: IpAddr) {
    let dictionary = profiles.dictionary();
    let mut seen: Vec<[&str; 2]> = Vec::new();
    for of in profiles.resources().iter().flat_map(|resource| &resource.scopes) {
        let scope = [of.scope.name, of.scope.version].map(|text| dictionary.string(text));
        if seen.len() >= MAX_SCOPES {
            break;
        }
        if !seen.contains(&scope) {
            seen.push(scope);
        }
    }
    for [name, version] in seen {
        let producer = Producer { format: layout.name(), name: name.to_owned(), version: version.to_owned() };
        let Some(Producer { name, version, format }) = telemetry.produced_by(producer) else { continue };
        match layout.advice() {
            None => tracing::info!("{sender} sends profiles of {name:?} {version:?} in the layout of {format}"),
            Some(advice) => tracing::warn!(
                "{sender} sends profiles of {name:?} {version:?} in the layout of opentelemetry-proto {format}, which is \
                 read; other receivers may not: {advice}"
            ),
        }
    }
}

/// The name of the counter for a field of an earlier layout that does not exist in the current one.
pub(crate) fn left_out(field: &str) -> &'static str {
    match field {
        "stacktrace_id_index" => "otlp_stacktrace_ids_left_out",
        "default_sample_type" => "otlp_default_sample_types_left_out",
        _ => "otlp_fields_left_out",
    }
}
