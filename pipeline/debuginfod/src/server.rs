//! A debuginfod server: its URL, its credentials, and whether it is available.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderValue, Uri};
use percent_encoding::percent_decode_str;

use crate::hex;

/// The time after a failure in which a server is not contacted.
const DOWN: Duration = Duration::from_secs(60);

pub(crate) struct DebuginfodServer {
    scheme: Scheme,
    authority: Authority,
    path: String,
    /// The header `Authorization`, from the user information in the URL.
    pub(crate) authorization: Option<HeaderValue>,
    down_until: Mutex<Option<Instant>>,
}

// Omits the path, which may be a secret like the user information.
impl fmt::Debug for DebuginfodServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for DebuginfodServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.authority)
    }
}

impl DebuginfodServer {
    /// Parses a URL. Returns `None` if it is not supported.
    pub(crate) fn parse(url: &str) -> Option<Self> {
        let uri = url.parse::<Uri>().ok()?;
        let scheme = uri.scheme().filter(|scheme| **scheme == Scheme::HTTP || **scheme == Scheme::HTTPS)?;
        let authority = uri.authority()?.as_str();
        let (user, authority) = authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
        let authorization = user.map(|user| {
            let user: Vec<u8> = percent_decode_str(user).collect();
            let mut value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(user))).ok()?;
            value.set_sensitive(true);
            Some(value)
        });
        let authorization = match authorization {
            Some(value) => Some(value?),
            None => None,
        };
        let authority = authority.parse().ok()?;
        let path = uri.path().trim_end_matches('/').to_owned();
        Some(Self { scheme: scheme.clone(), authority, path, authorization, down_until: Mutex::new(None) })
    }

    /// Whether the URL is an `https` one.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.scheme == Scheme::HTTPS
    }

    /// The URL of the debug file with a build id.
    pub(crate) fn url(&self, build_id: &[u8]) -> Option<Uri> {
        let path = PathAndQuery::try_from(format!("{}/buildid/{}/debuginfo", self.path, hex(build_id))).ok()?;
        let uri = Uri::builder().scheme(self.scheme.clone()).authority(self.authority.clone()).path_and_query(path);
        uri.build().ok()
    }

    /// Whether the server failed within the last [`DOWN`].
    pub(crate) fn is_down(&self) -> bool {
        self.down_until.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|until| Instant::now() < until)
    }

    /// Records a failure.
    pub(crate) fn fail(&self) {
        *self.down_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + DOWN);
    }
}
