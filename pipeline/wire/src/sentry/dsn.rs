//! The DSN: the project that receives envelopes, and the credentials to send them.
//!
//! This replaces `sentry-types`: that crate accepts project ids and keys that Relay rejects, which would only show in
//! the first response; its errors do not name the wrong part, and its `Debug` prints the key. Here every [`Dsn`] is
//! valid for Relay, and no formatting of it or of an error shows a key.
//!
//! Source: Sentry developer documentation, "Authentication"; getsentry/relay `relay-base-schema/src/project`
//! (`ProjectId` is a `u64`, `ProjectKey` is 32 hexadecimal digits).

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

/// A validated `{scheme}://{public_key}[:{secret_key}]@{host}[:{port}][/{path}]/{project_id}`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Dsn {
    scheme: Scheme,
    public_key: String,
    secret_key: Option<String>,
    /// The host as in a URL: an IPv6 address is in brackets.
    host: String,
    port: Option<u16>,
    /// The path in front of the project, empty or with a leading slash.
    path: String,
    project_id: u64,
}

/// The protocol of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// Plain text, for example to a local Relay.
    Http,
    /// TLS.
    Https,
}

/// The wrong part of a DSN. Never contains its text, because a DSN is a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DsnError {
    /// The DSN is empty.
    #[error("the DSN is empty")]
    Empty,
    /// The DSN is in quotes that a shell or YAML would have removed.
    #[error("the DSN stands in quotes, and they are part of it; take them away where it is set")]
    Quoted,
    /// The scheme is missing or unknown.
    #[error("the DSN does not start with http:// or https://")]
    Scheme,
    /// The `@` is missing.
    #[error("the DSN has no public key: expected KEY@ in front of the host")]
    NoKey,
    /// The public key does not have Sentry's format.
    #[error("the DSN's public key is not 32 hexadecimal digits")]
    Key,
    /// The secret key contains other characters than letters and digits.
    #[error("the DSN's secret key holds characters that are neither letters nor digits")]
    Secret,
    /// The host is missing or malformed.
    #[error("the DSN's host is missing or malformed")]
    Host,
    /// The port is invalid.
    #[error("the DSN's port is not a number from 1 to 65535")]
    Port,
    /// The path contains an invalid character.
    #[error("the DSN's path holds a character that must not stand there")]
    Path,
    /// The project id after the last slash is missing.
    #[error("the DSN has no project id: expected /NUMBER at the end")]
    NoProject,
    /// The project id is not a number.
    #[error("the DSN's project id, its last part, is not a number")]
    Project,
    /// The DSN contains a `?` or a `#`.
    #[error("the DSN has a query or a fragment, which belongs to no DSN")]
    Query,
}

impl Dsn {
    /// The protocol of the connection.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The host, with the port if the DSN has one. Identifies the server without any secret.
    pub fn authority(&self) -> String {
        match self.port {
            Some(port) => format!("{}:{port}", self.host),
            None => self.host.clone(),
        }
    }

    /// The DSN without its secret key, as clients write it into envelopes. It still contains the public key: do not log
    /// it.
    pub fn without_secret(&self) -> String {
        format!("{}://{}@{}{}/{}", self.scheme, self.public_key, self.authority(), self.path, self.project_id)
    }

    /// The project id.
    pub fn project_id(&self) -> u64 {
        self.project_id
    }

    /// The public key. Keep it secret from everybody but the server: its holder can write to the project.
    pub fn public_key(&self) -> &str {
        &self.public_key
    }

    /// The secret key, which only servers from before 2018 require.
    pub fn secret_key(&self) -> Option<&str> {
        self.secret_key.as_deref()
    }

    /// The URL for envelopes: `{scheme}://{host}{path}/api/{project_id}/envelope/`. It contains no key.
    pub fn envelope_url(&self) -> String {
        format!("{}://{}{}/api/{}/envelope/", self.scheme, self.authority(), self.path, self.project_id)
    }

    /// The URL that spans in OTLP are posted to (Sentry documentation, "OTLP").
    pub fn otlp_traces_url(&self) -> String {
        let path = "integration/otlp/v1/traces/";
        format!("{}://{}{}/api/{}/{path}", self.scheme, self.authority(), self.path, self.project_id)
    }

    /// Replaces this DSN's keys in `text`, because a server's error may quote the request.
    pub fn redact(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for key in [Some(&self.public_key), self.secret_key.as_ref()].into_iter().flatten() {
            text = replace_ignoring_case(&text, key);
        }
        text
    }
}

fn replace_ignoring_case(text: &str, key: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let mut clean = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(found) = lower[at..].find(&key.to_ascii_lowercase()) {
        clean.push_str(&text[at..at + found]);
        clean.push_str("***");
        at += found + key.len();
    }
    clean.push_str(&text[at..]);
    clean
}

impl FromStr for Dsn {
    type Err = DsnError;

    fn from_str(text: &str) -> Result<Self, DsnError> {
        // A value read from a file often ends with a line break.
        let text = text.trim();
        if text.is_empty() {
            return Err(DsnError::Empty);
        }
        let (scheme, rest) = text.split_once("://").ok_or(DsnError::Scheme)?;
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            _ if text.starts_with(['"', '\'']) => return Err(DsnError::Quoted),
            _ => return Err(DsnError::Scheme),
        };
        if rest.contains(['?', '#']) {
            return Err(DsnError::Query);
        }
        let (keys, rest) = rest.split_once('@').ok_or(DsnError::NoKey)?;
        let (public_key, secret_key) = match keys.split_once(':') {
            Some((public, secret)) => (public, Some(secret).filter(|secret| !secret.is_empty())),
            None => (keys, None),
        };
        if public_key.is_empty() {
            return Err(DsnError::NoKey);
        }
        if public_key.len() != 32 || !public_key.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(DsnError::Key);
        }
        if secret_key.is_some_and(|secret| !secret.bytes().all(|byte| byte.is_ascii_alphanumeric())) {
            return Err(DsnError::Secret);
        }
        let (authority, path) = match rest.find('/') {
            Some(slash) => rest.split_at(slash),
            None => (rest, ""),
        };
        let (host, port) = authority_parts(authority)?;
        let path = path.trim_end_matches('/');
        let (path, project) = path.rsplit_once('/').ok_or(DsnError::NoProject)?;
        if !project.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(DsnError::Project);
        }
        let project_id = project.parse().map_err(|_| DsnError::Project)?;
        let path = path.trim_end_matches('/');
        if !path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:@".contains(&byte)) {
            return Err(DsnError::Path);
        }
        Ok(Self {
            scheme,
            public_key: public_key.to_owned(),
            secret_key: secret_key.map(str::to_owned),
            host: host.to_ascii_lowercase(),
            port,
            path: path.to_owned(),
            project_id,
        })
    }
}

/// Splits into the host (an IPv6 address with its brackets) and the port.
fn authority_parts(authority: &str) -> Result<(&str, Option<u16>), DsnError> {
    let (host, port) = match authority.rfind(']') {
        Some(bracket) => {
            let (host, rest) = authority.split_at(bracket + 1);
            let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).ok_or(DsnError::Host)?;
            address.parse::<Ipv6Addr>().map_err(|_| DsnError::Host)?;
            let port = match rest {
                "" => None,
                rest => Some(rest.strip_prefix(':').ok_or(DsnError::Host)?),
            };
            (host, port)
        }
        None => {
            let (host, port) = match authority.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            };
            let valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
            if host.is_empty() || !host.bytes().all(valid) {
                return Err(DsnError::Host);
            }
            (host, port)
        }
    };
    let port = match port {
        None => None,
        Some(port) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => {
            Some(port.parse().ok().filter(|&port| port != 0).ok_or(DsnError::Port)?)
        }
        Some(_) => return Err(DsnError::Port),
    };
    Ok((host, port))
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
        })
    }
}

impl fmt::Display for Dsn {
    /// Formats the DSN with its keys masked.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://***@{}{}/{}", self.scheme, self.authority(), self.path, self.project_id)
    }
}

impl fmt::Debug for Dsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dsn({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEY: &str = "0123456789abcdef0123456789abcdef";

    fn url(dsn: &str) -> String {
        dsn.parse::<Dsn>().unwrap().envelope_url()
    }

    fn error(dsn: &str) -> DsnError {
        dsn.parse::<Dsn>().unwrap_err()
    }

    /// Guarantees: every valid form of a DSN gives the URL that Sentry's SDKs would use.
    #[test]
    fn urls() {
        assert_eq!(
            url(&format!("https://{KEY}@o1.ingest.sentry.io/42")),
            "https://o1.ingest.sentry.io/api/42/envelope/"
        );
        assert_eq!(url(&format!("http://{KEY}:5ec2e7@LOCALHOST:9000/7\n")), "http://localhost:9000/api/7/envelope/");
        assert_eq!(url(&format!("https://{KEY}@h/a/b/1/")), "https://h/a/b/api/1/envelope/");
        assert_eq!(url(&format!("https://{KEY}@[::1]:8443/p/1")), "https://[::1]:8443/p/api/1/envelope/");
        assert_eq!(url(&format!("HTTPS://{KEY}:@[2001:db8::1]/1")), "https://[2001:db8::1]/api/1/envelope/");
    }

    /// Guarantees: the error names the wrong part.
    #[test]
    fn wrong_parts() {
        assert_eq!(error(" "), DsnError::Empty);
        assert_eq!(error("sentry.io/1"), DsnError::Scheme);
        assert_eq!(error(&format!("ftp://{KEY}@h/1")), DsnError::Scheme);
        assert_eq!(error("https://h/1"), DsnError::NoKey);
        assert_eq!(error("https://@h/1"), DsnError::NoKey);
        assert_eq!(error("https://public@h/1"), DsnError::Key);
        assert_eq!(error(&format!("https://{KEY}:a b@h/1")), DsnError::Secret);
        assert_eq!(error(&format!("https://{KEY}@/1")), DsnError::Host);
        assert_eq!(error(&format!("https://{KEY}@a b/1")), DsnError::Host);
        assert_eq!(error(&format!("https://{KEY}@[::g]/1")), DsnError::Host);
        assert_eq!(error(&format!("https://{KEY}@[::1]x/1")), DsnError::Host);
        assert_eq!(error(&format!("https://{KEY}@h:0/1")), DsnError::Port);
        assert_eq!(error(&format!("https://{KEY}@h:65536/1")), DsnError::Port);
        assert_eq!(error(&format!("https://{KEY}@h:+1/1")), DsnError::Port);
        assert_eq!(error(&format!("https://{KEY}@h:/1")), DsnError::Port);
        assert_eq!(error(&format!("https://{KEY}@h/a b/1")), DsnError::Path);
        assert_eq!(error(&format!("https://{KEY}@h")), DsnError::NoProject);
        assert_eq!(error(&format!("https://{KEY}@h/")), DsnError::NoProject);
        assert_eq!(error(&format!("https://{KEY}@h/name")), DsnError::Project);
        assert_eq!(error(&format!("https://{KEY}@h/99999999999999999999")), DsnError::Project);
        assert_eq!(error(&format!("https://{KEY}@h/1?a=b")), DsnError::Query);
    }

    /// Guarantees: neither `Debug` nor `Display` shows a key, and keys are removed from a server's response.
    #[test]
    fn keys_are_not_printed() {
        let dsn: Dsn = format!("https://{KEY}:5ec2e75ec2e7@h:1/p/2").parse().unwrap();
        assert_eq!(dsn.to_string(), "https://***@h:1/p/2");
        assert_eq!(format!("{dsn:?}"), "Dsn(https://***@h:1/p/2)");
        assert_eq!(dsn.redact(&format!("bad {} é and 5EC2E75ec2e7!", KEY.to_uppercase())), "bad *** é and ***!");
    }

    proptest! {
        /// Guarantees: no text causes a panic, and no error quotes the text.
        #[test]
        fn arbitrary_text(text in "(https?://)?[0-9a-f]{0,32}[:@\\[\\]/?#a-z0-9é ]{0,40}") {
            if let Err(error) = text.parse::<Dsn>() {
                prop_assert!(text.len() < 12 || !error.to_string().contains(&text));
            }
        }
    }
}
