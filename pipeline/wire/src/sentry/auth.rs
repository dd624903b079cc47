//! The credentials in a request to Sentry.
//!
//! Source: Sentry developer documentation, "Authentication"; getsentry/relay
//! `relay-server/src/extractors/request_meta.rs`: exactly one form per request, two are refused with 401.

use std::fmt;

use super::Dsn;

/// The name of the header.
pub const HEADER: &str = "x-sentry-auth";

/// The supported version of the protocol.
pub const VERSION: u8 = 7;

/// The `X-Sentry-Auth` header of a request. Its `Debug` does not show the key.
#[derive(Clone, PartialEq, Eq)]
pub struct Auth(String);

impl Auth {
    /// The header for a DSN. `client` is the sender's name, such as `profbridge/1.0.0`, if it has one.
    pub fn new(dsn: &Dsn, client: Option<&str>) -> Self {
        let key = dsn.public_key();
        let mut value = format!("Sentry sentry_key={key}, sentry_version={VERSION}");
        if let Some(client) = client {
            value.push_str(", sentry_client=");
            value.push_str(client);
        }
        if let Some(secret) = dsn.secret_key() {
            // Only servers from before 2018 require the secret key, and they reject a request without it.
            value.push_str(", sentry_secret=");
            value.push_str(secret);
        }
        Self(value)
    }

    /// The header's value. Contains a key.
    pub fn header_value(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Auth(***)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: Relay can parse the header, and its `Debug` shows no key.
    #[test]
    fn header() {
        let dsn: Dsn = "https://0123456789abcdef0123456789abcdef@h/1".parse().unwrap();
        let auth = Auth::new(&dsn, Some("profbridge/1.2.3"));
        assert_eq!(
            auth.header_value(),
            "Sentry sentry_key=0123456789abcdef0123456789abcdef, sentry_version=7, sentry_client=profbridge/1.2.3"
        );
        assert_eq!(format!("{auth:?}"), "Auth(***)");
        let dsn: Dsn = "https://0123456789abcdef0123456789abcdef:5ec2e7@h/1".parse().unwrap();
        assert!(Auth::new(&dsn, None).header_value().ends_with("sentry_version=7, sentry_secret=5ec2e7"));
        assert!(Auth::new(&dsn, Some("c")).header_value().ends_with(", sentry_client=c, sentry_secret=5ec2e7"));
    }
}
