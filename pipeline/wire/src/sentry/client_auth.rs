//! Reads a client's credentials from a request: the counterpart of [`auth`](super::auth).
//!
//! Source: Sentry developer documentation, "Authentication"; getsentry/relay
//! `relay-server/src/extractors/request_meta.rs`: exactly one of the forms, two are refused with 401; without any, the
//! DSN in the envelope's header counts.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use percent_encoding::percent_decode_str;
use profbridge_model::envelope::PublicKey;

use super::Dsn;
use super::auth::VERSION;

/// Base64 as in HTTP Basic authentication (RFC 7617), with or without padding.
const BASIC: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The sender's credentials in a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientAuth {
    /// The public key: 32 hexadecimal digits, in lower case.
    pub key: PublicKey,
    /// The client's name for itself.
    pub client: Option<Box<str>>,
}

/// Why the credentials of a request are invalid. No message contains a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ClientAuthError {
    /// There are no credentials.
    #[error("no authentication: neither X-Sentry-Auth, Authorization, sentry_key nor the envelope's dsn")]
    Missing,
    /// There are several forms of credentials.
    #[error("multiple authorization payloads: X-Sentry-Auth, Authorization and sentry_key exclude each other")]
    Several,
    /// The credentials are not of the form `Sentry key=value, ...`, or have no `sentry_key`.
    #[error("the authentication is not of the form `Sentry sentry_key=..., sentry_version=7`")]
    Malformed,
    /// `sentry_version` is higher than the supported one.
    #[error("the protocol's version (sentry_version) is higher than {VERSION}")]
    Version,
    /// The key does not have Sentry's format.
    #[error("the public key is not 32 hexadecimal digits")]
    Key,
}

impl ClientAuthError {
    /// The HTTP status of the response, as Relay returns it.
    pub fn status(self) -> u16 {
        match self {
            Self::Missing | Self::Several | Self::Malformed => 401,
            Self::Version | Self::Key => 400,
        }
    }
}

/// The parts of a request that may contain credentials.
#[derive(Debug, Clone, Copy, Default)]
pub struct Forms<'a> {
    /// The value of `X-Sentry-Auth`.
    pub header: Option<&'a str>,
    /// The value of `Authorization`. Schemes other than `Sentry` and `Basic` are ignored.
    pub authorization: Option<&'a str>,
    /// The query of the URL, without its `?`.
    pub query: Option<&'a str>,
}

/// Reads the credentials of a request; `None` if only the envelope can contain them.
///
/// # Errors
///
/// There are several forms of credentials, or an invalid one.
pub fn read(forms: Forms<'_>) -> Result<Option<ClientAuth>, ClientAuthError> {
    let basic = forms.authorization.and_then(|value| after_scheme(value, "basic"));
    let sentry = forms.authorization.and_then(|value| after_scheme(value, "sentry"));
    let query = forms.query.filter(|query| pairs(query, '&').any(|(key, _)| key == "sentry_key"));
    let present = [forms.header.is_some(), basic.is_some(), sentry.is_some(), query.is_some()];
    if present.into_iter().filter(|present| *present).count() > 1 {
        return Err(ClientAuthError::Several);
    }
    if let Some(header) = forms.header {
        let rest = after_scheme(header, "sentry").ok_or(ClientAuthError::Malformed)?;
        return of_pairs(pairs(rest, ',')).map(Some);
    }
    if let Some(rest) = sentry {
        return of_pairs(pairs(rest, ',')).map(Some);
    }
    if let Some(rest) = basic {
        let user = BASIC.decode(rest.trim()).map_err(|_| ClientAuthError::Malformed)?;
        let user = String::from_utf8(user).map_err(|_| ClientAuthError::Malformed)?;
        let key = user.split(':').next().unwrap_or_default();
        return Ok(Some(ClientAuth { key: public_key(key)?, client: None }));
    }
    query.map(|query| of_pairs(pairs(query, '&').map(|(key, value)| (key, unescaped(value))))).transpose()
}

/// The credentials and the project in the DSN of an envelope's header.
///
/// # Errors
///
/// The DSN is invalid.
pub fn of_dsn(dsn: &str) -> Result<(ClientAuth, u64), ClientAuthError> {
    let dsn: Dsn = dsn.parse().map_err(|_| ClientAuthError::Key)?;
    Ok((ClientAuth { key: public_key(dsn.public_key())?, client: None }, dsn.project_id()))
}

/// The text after the name of the scheme, case-insensitive.
fn after_scheme<'a>(value: &'a str, scheme: &str) -> Option<&'a str> {
    let value = value.trim_start();
    let (name, rest) = value.split_at_checked(scheme.len())?;
    (name.eq_ignore_ascii_case(scheme) && rest.starts_with([' ', '\t'])).then(|| rest.trim_start())
}

/// Splits a list of `key=value`.
fn pairs(text: &str, separator: char) -> impl Iterator<Item = (&str, &str)> {
    text.split(separator).filter_map(|pair| pair.split_once('=')).map(|(key, value)| (key.trim(), value.trim()))
}

fn of_pairs<V: AsRef<str>>(pairs: impl Iterator<Item = (impl AsRef<str>, V)>) -> Result<ClientAuth, ClientAuthError> {
    let (mut key, mut client) = (None, None);
    for (name, value) in pairs {
        let value = value.as_ref();
        match name.as_ref() {
            "sentry_key" => key = Some(public_key(value)?),
            // Clients for old servers send `2.0` and the like.
            "sentry_version" => {
                let major = value.split('.').next().and_then(|major| major.parse::<u16>().ok());
                if major.ok_or(ClientAuthError::Malformed)? > u16::from(VERSION) {
                    return Err(ClientAuthError::Version);
                }
            }
            "sentry_client" => client = Some(value.into()),
            _ => {}
        }
    }
    Ok(ClientAuth { key: key.ok_or(ClientAuthError::Malformed)?, client })
}

/// Parses a public key, and converts it to lower case.
///
/// # Errors
///
/// The key does not have Sentry's format.
pub fn public_key(text: &str) -> Result<PublicKey, ClientAuthError> {
    let is_key = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_key { Ok(PublicKey(text.to_ascii_lowercase().into())) } else { Err(ClientAuthError::Key) }
}

/// Decodes `%XX` and `+` of a query value. Invalid UTF-8 is replaced.
fn unescaped(value: &str) -> String {
    percent_decode_str(&value.replace('+', " ")).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEY: &str = "0123456789abcdef0123456789ABCDEF";

    fn header(value: &str) -> Result<Option<ClientAuth>, ClientAuthError> {
        read(Forms { header: Some(value), ..Forms::default() })
    }

    /// Guarantees: all forms that SDKs use give the same credentials, with the client's name if they contain it.
    #[test]
    fn every_form() {
        let full = format!("sentry_key={KEY}, sentry_version=7, sentry_client=sentry.python/2.75.0");
        let query = format!("sentry_version=7&sentry_key={KEY}&sentry_client=sentry.javascript.node%2F10.75.3");
        let basic = "Basic MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlBQkNERUY6";
        let forms = [
            (Forms { header: Some(&format!("Sentry {full}")), ..Forms::default() }, Some("sentry.python/2.75.0")),
            (
                Forms { authorization: Some(&format!("sentry  {full}")), ..Forms::default() },
                Some("sentry.python/2.75.0"),
            ),
            (Forms { authorization: Some(basic), ..Forms::default() }, None),
            (Forms { query: Some(&query), ..Forms::default() }, Some("sentry.javascript.node/10.75.3")),
        ];
        for (form, client) in forms {
            let auth = read(form).unwrap().unwrap();
            assert_eq!(&*auth.key.0, KEY.to_ascii_lowercase());
            assert_eq!(auth.client.as_deref(), client);
            assert!(!format!("{auth:?}").contains("0123"), "{auth:?}");
        }
        let (auth, project) = of_dsn(&format!("https://{KEY}@o1.ingest.sentry.io/42")).unwrap();
        assert_eq!((&*auth.key.0, project), (&*KEY.to_ascii_lowercase(), 42));
    }

    /// Guarantees: a request without credentials is recognised, and two forms are rejected even if they agree.
    /// rule: transport#auth
    #[test]
    fn none_and_several() {
        let bearer = Forms { authorization: Some("Bearer abc"), query: Some("a=b&c"), ..Forms::default() };
        assert_eq!(read(bearer), Ok(None));
        let sentry = format!("Sentry sentry_key={KEY}");
        let query = format!("sentry_key={KEY}");
        let two = [
            Forms { header: Some(&sentry), query: Some(&query), ..Forms::default() },
            Forms { header: Some(&sentry), authorization: Some(&sentry), ..Forms::default() },
            Forms { authorization: Some(&sentry), query: Some(&query), ..Forms::default() },
        ];
        for forms in two {
            assert_eq!(read(forms).unwrap_err().status(), 401);
        }
    }

    /// Attack: keys not in Sentry's format, unsupported versions, headers of another scheme.
    /// rule: transport#auth-key
    #[test]
    fn wrong_forms() {
        for (value, error) in [
            ("", ClientAuthError::Malformed),
            ("Sentry", ClientAuthError::Malformed),
            ("Sentry sentry_version=7", ClientAuthError::Malformed),
            ("Bearer sentry_key=0123456789abcdef0123456789abcdef", ClientAuthError::Malformed),
            ("Sentry sentry_key=0123456789abcdef0123456789abcdef, sentry_version=seven", ClientAuthError::Malformed),
            ("Sentry sentry_key=0123456789abcdef0123456789abcdef, sentry_version=8", ClientAuthError::Version),
            ("Sentry sentry_key=0123456789abcdef0123456789abcde", ClientAuthError::Key),
            ("Sentry sentry_key=0123456789abcdef0123456789abcdeg", ClientAuthError::Key),
            ("Sentry sentry_key=../../../../../../../../../../et", ClientAuthError::Key),
        ] {
            assert_eq!(header(value), Err(error), "{value:?}");
        }
        assert!(header(&format!("Sentry sentry_key={KEY}, sentry_version=2.0")).is_ok());
    }

    proptest! {
        /// Guarantees: no header and no query causes a panic, and an accepted key is well-formed.
        #[test]
        fn arbitrary(text in "((sentry|basic|Sentry) )?([a-z_=,&%+0-9é ]|sentry_key=|[0-9a-f]{32}){0,20}") {
            for forms in [
                Forms { header: Some(&text), ..Forms::default() },
                Forms { authorization: Some(&text), ..Forms::default() },
                Forms { query: Some(&text), ..Forms::default() },
            ] {
                if let Ok(Some(auth)) = read(forms) {
                    prop_assert!(auth.key.0.len() == 32 && auth.key.0.bytes().all(|byte| byte.is_ascii_hexdigit()));
                }
            }
        }
    }
}
