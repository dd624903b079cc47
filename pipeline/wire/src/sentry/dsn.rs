//! The DSN: where a project's envelopes go, and as whom they are sent.
//!
//! Of our own and not `sentry-types`: that crate takes project ids and keys that Relay refuses, which would show only
//! in the first answer, its errors do not say which part is wrong, and its `Debug` prints the key. Here a [`Dsn`] that
//! exists is one that Relay can accept, and no formatting of it or of an error shows a key.
//!
//! Source: Sentry developer documentation, "Authentication"; getsentry/relay `relay-base-schema/src/project`
//! (`ProjectId` is a `u64`, `ProjectKey` is 32 hexadecimal digits).

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

/// `{scheme}://{public_key}[:{secret_key}]@{host}[:{port}][/{path}]/{project_id}`, checked.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Dsn {
    scheme: Scheme,
    public_key: String,
    secret_key: Option<String>,
    /// The host as a URL has it: an IPv6 address stands in brackets.
    host: String,
    port: Option<u16>,
    /// The path in front of the project, empty or with a leading slash.
    path: String,
    project_id: u64,
}

/// How to connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// Plain text, as in front of a local Relay.
    Http,
    /// TLS.
    Https,
}

/// Which part of a DSN is wrong. Says nothing of what stands there, since all of it is a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DsnError {
    /// There is nothing.
    #[error("the DSN is empty")]
    Empty,
    /// It stands in quotes, which a shell or YAML would have taken away.
    #[error("the DSN stands in quotes, and they are part of it; take them away where it is set")]
    Quoted,
    /// It has neither of the schemes.
    #[error("the DSN does not start with http:// or https://")]
    Scheme,
    /// There is no `@`.
    #[error("the DSN has no public key: expected KEY@ in front of the host")]
    NoKey,
    /// The public key is none that Sentry makes.
    #[error("the DSN's public key is not 32 hexadecimal digits")]
    Key,
    /// The secret key holds something else than letters and digits.
    #[error("the DSN's secret key holds characters that are neither letters nor digits")]
    Secret,
    /// The host is missing or malformed.
    #[error("the DSN's host is missing or malformed")]
    Host,
    /// The port is none.
    #[error("the DSN's port is not a number from 1 to 65535")]
    Port,
    /// The path holds something that no path does.
    #[error("the DSN's path holds a character that must not stand there")]
    Path,
    /// There is nothing after the last slash.
    #[error("the DSN has no project id: expected /NUMBER at the end")]
    NoProject,
    /// The project is no number.
    #[error("the DSN's project id, its last part, is not a number")]
    Project,
    /// There is a `?` or a `#`.
    #[error("the DSN has a query or a fragment, which belongs to no DSN")]
    Query,
}

impl Dsn {
    /// How to connect.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The host with its port where one is written: enough to tell servers apart, and no secret.
    pub fn authority(&self) -> String {
        match self.port {
            Some(port) => format!("{}:{port}", self.host),
            None => self.host.clone(),
        }
    }

    /// The DSN without its secret key, as clients write it into envelopes. It names the public key: not to be printed.
    pub fn without_secret(&self) -> String {
        format!("{}://{}@{}{}/{}", self.scheme, self.public_key, self.authority(), self.path, self.project_id)
    }

    /// The project.
    pub fn project_id(&self) -> u64 {
        self.project_id
    }

    /// The public key. A secret towards everybody but the server: it lets its holder write to the project.
    pub fn public_key(&self) -> &str {
        &self.public_key
    }

    /// The secret key, which only servers of the time before 2018 ask for.
    pub fn secret_key(&self) -> Option<&str> {
        self.secret_key.as_deref()
    }

    /// Where envelopes are posted: `{scheme}://{host}{path}/api/{project_id}/envelope/`. Holds no key.
    pub fn envelope_url(&self) -> String {
        format!("{}://{}{}/api/{}/envelope/", self.scheme, self.authority(), self.path, self.project_id)
    }

    /// `text` with this DSN's keys blotted out: a server may repeat in an error what it was sent.
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
        // A variable read from a file ends in a line's end more often than not.
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

/// The host, an IPv6 address in its brackets, and the port.
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
    /// The DSN with its keys blotted out.
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

    /// Guarantees: every form that a DSN may have leads to the URL that Sentry's SDKs would use.
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

    /// Guarantees: each wrong part is named as such.
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

    /// Guarantees: neither form of printing shows a key, and a server's words are cleaned of it.
    #[test]
    fn keys_are_not_printed() {
        let dsn: Dsn = format!("https://{KEY}:5ec2e75ec2e7@h:1/p/2").parse().unwrap();
        assert_eq!(dsn.to_string(), "https://***@h:1/p/2");
        assert_eq!(format!("{dsn:?}"), "Dsn(https://***@h:1/p/2)");
        assert_eq!(dsn.redact(&format!("bad {} é and 5EC2E75ec2e7!", KEY.to_uppercase())), "bad *** é and ***!");
    }

    proptest! {
        /// Guarantees: no text makes the parser panic, and no error repeats a part of it.
        #[test]
        fn arbitrary_text(text in "(https?://)?[0-9a-f]{0,32}[:@\\[\\]/?#a-z0-9é ]{0,40}") {
            if let Err(error) = text.parse::<Dsn>() {
                prop_assert!(text.len() < 12 || !error.to_string().contains(&text));
            }
        }
    }
}
