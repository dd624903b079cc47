//! Which of Sentry's endpoints a path names.
//!
//! Source: Sentry developer documentation, "Envelopes" and "Authentication"; getsentry/relay
//! `relay-server/src/endpoints/mod.rs` (the routes; several slashes count as one, one at the end is optional).

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// `/api/{project}/envelope/`: envelopes.
    Envelope(u64),
    /// `/api/{project}/store/`: one event as JSON, of SDKs from before 2020.
    Store(u64),
    /// An endpoint of Sentry's that takes something else than envelopes: its name.
    Other(&'static str),
    /// The part of the path that should be the project is no project.
    NoProject,
    /// Nothing that Sentry has.
    Unknown,
}

/// The endpoints that take neither envelopes nor events, by the part of the path behind the project.
const OTHERS: &[(&str, &str)] = &[
    ("minidump", "minidumps"),
    ("security", "security reports of browsers"),
    ("csp-report", "security reports of browsers"),
    ("nel", "network error reports of browsers"),
    ("unreal", "crash reports of the Unreal Engine"),
    ("attachments", "attachments"),
    ("upload", "uploads"),
    ("playstation", "crash dumps of consoles"),
    ("nintendo", "crash dumps of consoles"),
    ("xbox", "crash dumps of consoles"),
    ("cron", "check-ins by URL"),
    ("events", "attachments of events"),
    ("integration", "OTLP and other integrations"),
    ("otlp", "OTLP"),
];

impl Endpoint {
    /// The endpoint of a path.
    pub(crate) fn of(path: &str) -> Self {
        let mut parts = path.split('/').filter(|part| !part.is_empty());
        if parts.next() != Some("api") {
            return Self::Unknown;
        }
        let (Some(project), Some(name)) = (parts.next(), parts.next()) else { return Self::Unknown };
        if let Some((_, what)) = OTHERS.iter().find(|(part, _)| *part == name) {
            return Self::Other(what);
        }
        if !matches!(name, "envelope" | "store") || parts.next().is_some() {
            return Self::Unknown;
        }
        // Relay takes digits only; `parse` would take a sign.
        let digits = project.bytes().all(|byte| byte.is_ascii_digit());
        let Some(project) = project.parse::<u64>().ok().filter(|_| digits) else { return Self::NoProject };
        if name == "store" { Self::Store(project) } else { Self::Envelope(project) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: the paths that SDKs use are found, however many slashes they have, and no other.
    #[test]
    fn paths() {
        for (path, endpoint) in [
            ("/api/42/envelope/", Endpoint::Envelope(42)),
            ("/api/42/envelope", Endpoint::Envelope(42)),
            ("//api//42//envelope//", Endpoint::Envelope(42)),
            ("/api/42/store/", Endpoint::Store(42)),
            ("/api/42/minidump/", Endpoint::Other("minidumps")),
            ("/api/42/integration/otlp/v1/traces", Endpoint::Other("OTLP and other integrations")),
            ("/api/../envelope/", Endpoint::NoProject),
            ("/api/+42/envelope/", Endpoint::NoProject),
            ("/api/99999999999999999999/envelope/", Endpoint::NoProject),
            ("/api/42/../43/envelope/", Endpoint::Unknown),
            ("/api/42/envelope/x", Endpoint::Unknown),
            ("/api/42", Endpoint::Unknown),
            ("/envelope/", Endpoint::Unknown),
            ("", Endpoint::Unknown),
        ] {
            assert_eq!(Endpoint::of(path), endpoint, "{path}");
        }
    }
}
