//! Maps a path to one of Sentry's endpoints.
//!
//! Source: Sentry developer documentation, "Envelopes" and "Authentication"; getsentry/relay
//! `relay-server/src/endpoints/mod.rs` (the routes; several slashes count as one, a trailing one is optional).

/// The endpoint of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// `/api/{project}/envelope/`: envelopes.
    Envelope(u64),
    /// `/api/{project}/store/`: one event as JSON, from SDKs before 2020.
    Store(u64),
    /// `/api/{project}/integration/otlp/v1/traces`, with or without a slash at the end: spans in OTLP.
    Traces(u64),
    /// Any other endpoint for holders of a DSN: minidumps, security reports, check-ins, uploads, logs in OTLP, the user
    /// report page, the loader of the browser SDK. Contains the byte offset at which the server's own path begins.
    Unread(usize),
    /// The project in the path is not a number.
    NoProject,
    /// No endpoint of Sentry.
    Unknown,
}

/// The folder with the loaders of the browser SDK, `/js-sdk-loader/KEY.min.js`.
const LOADERS: &str = "js-sdk-loader";

impl Endpoint {
    /// The endpoint of a path. A DSN may have a prefix in front of the server's own path.
    pub(crate) fn of(path: &str) -> Self {
        let start = |part: &str| part.as_ptr() as usize - path.as_ptr() as usize;
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let Some(first) = parts.iter().position(|part| matches!(*part, "api" | LOADERS)) else { return Self::Unknown };
        // Includes the slash in front; an HTTP path always begins with one.
        let unread = Self::Unread(start(parts[first]).saturating_sub(1));
        match parts[first + 1..] {
            [] => Self::Unknown,
            [project, name @ ("envelope" | "store")] | [project, "integration", "otlp", "v1", name @ "traces"]
                if parts[first] == "api" =>
            {
                // Relay accepts only digits; `parse` would accept a sign.
                let digits = project.bytes().all(|byte| byte.is_ascii_digit());
                let Some(project) = project.parse::<u64>().ok().filter(|_| digits) else { return Self::NoProject };
                match name {
                    "store" => Self::Store(project),
                    "traces" => Self::Traces(project),
                    _ => Self::Envelope(project),
                }
            }
            // The path must not lead out of the server's own.
            _ if parts.iter().any(|part| matches!(*part, "." | "..")) => Self::Unknown,
            _ => unread,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: the paths of SDKs are recognised with any number of slashes and any prefix from the DSN, and no
    /// others are.
    /// rule: transport#path-envelope
    #[test]
    fn paths() {
        for (path, endpoint) in [
            ("/api/42/envelope/", Endpoint::Envelope(42)),
            ("/api/42/envelope", Endpoint::Envelope(42)),
            ("//api//42//envelope//", Endpoint::Envelope(42)),
            ("/api/42/store/", Endpoint::Store(42)),
            ("/relay/eu/api/42/envelope/", Endpoint::Envelope(42)),
            ("/api/42/minidump/", Endpoint::Unread(0)),
            ("/relay/api/42/security/", Endpoint::Unread(6)),
            ("/api/42/integration/otlp/v1/traces", Endpoint::Traces(42)),
            ("/relay/api/42/integration/otlp/v1/traces/", Endpoint::Traces(42)),
            ("/api/x/integration/otlp/v1/traces/", Endpoint::NoProject),
            ("/api/42/integration/otlp/v1/logs/", Endpoint::Unread(0)),
            ("/api/42/cron/nightly/0123456789abcdef0123456789abcdef", Endpoint::Unread(0)),
            ("/api/embed/error-page/", Endpoint::Unread(0)),
            ("/api/store/", Endpoint::Unread(0)),
            ("/js-sdk-loader/0123456789abcdef0123456789abcdef.min.js", Endpoint::Unread(0)),
            ("/api/42/envelope/x", Endpoint::Unread(0)),
            ("/api/../envelope/", Endpoint::NoProject),
            ("/api/+42/envelope/", Endpoint::NoProject),
            ("/api/99999999999999999999/envelope/", Endpoint::NoProject),
            ("/api/42/../43/envelope/", Endpoint::Unknown),
            ("/api/42/minidump/../../43/minidump/", Endpoint::Unknown),
            ("/api/", Endpoint::Unknown),
            ("/envelope/", Endpoint::Unknown),
            ("", Endpoint::Unknown),
        ] {
            assert_eq!(Endpoint::of(path), endpoint, "{path}");
        }
    }
}
