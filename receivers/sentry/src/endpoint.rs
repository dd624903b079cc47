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
    /// Anything else that Sentry's server has for whoever has a DSN: minidumps, security reports, check-ins, uploads, the
    /// page for users' reports, the loader of the browser's SDK. The server's own path begins at this byte.
    Unread(usize),
    /// The part of the path that should be the project is no project.
    NoProject,
    /// Nothing that Sentry has.
    Unknown,
}

/// The folder of the loaders of the browser's SDK, `/js-sdk-loader/KEY.min.js`.
const LOADERS: &str = "js-sdk-loader";

impl Endpoint {
    /// The endpoint of a path. A DSN may have a path of its own in front of the server's.
    pub(crate) fn of(path: &str) -> Self {
        let start = |part: &str| part.as_ptr() as usize - path.as_ptr() as usize;
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let Some(first) = parts.iter().position(|part| matches!(*part, "api" | LOADERS)) else { return Self::Unknown };
        // The slash in front of it; a path without one is none that HTTP has.
        let unread = Self::Unread(start(parts[first]).saturating_sub(1));
        match parts[first + 1..] {
            [] => Self::Unknown,
            [project, name @ ("envelope" | "store")] if parts[first] == "api" => {
                // Relay takes digits only; `parse` would take a sign.
                let digits = project.bytes().all(|byte| byte.is_ascii_digit());
                let Some(project) = project.parse::<u64>().ok().filter(|_| digits) else { return Self::NoProject };
                if name == "store" { Self::Store(project) } else { Self::Envelope(project) }
            }
            // The server's own path may be left by none.
            _ if parts.iter().any(|part| matches!(*part, "." | "..")) => Self::Unknown,
            _ => unread,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: the paths that SDKs use are found, however many slashes they have and whatever path of the DSN's is in
    /// front of them, and no other.
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
            ("/api/42/integration/otlp/v1/traces", Endpoint::Unread(0)),
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
