//! Which proxy stands in front of a destination.

use std::fmt;
use std::sync::Arc;

use http::Uri;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};

/// The proxies of an environment: a value, so that a test or an embedder can hand in its own.
#[derive(Clone)]
pub struct Proxies {
    matcher: Option<Arc<Matcher>>,
}

impl Proxies {
    /// HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY, in upper or lower case, as curl reads them.
    pub fn from_env() -> Proxies {
        Proxies { matcher: Some(Arc::new(Matcher::from_env())) }
    }

    /// No proxy, whatever the environment says.
    pub fn none() -> Proxies {
        Proxies { matcher: None }
    }

    /// The same variables with given values; an empty string is an unset variable.
    pub fn new(https_proxy: &str, http_proxy: &str, no_proxy: &str) -> Proxies {
        let matcher = Matcher::builder().https(https_proxy).http(http_proxy).no(no_proxy).build();
        Proxies { matcher: Some(Arc::new(matcher)) }
    }

    /// The proxy for `destination`, which has a scheme and a host.
    pub(super) fn intercept(&self, destination: &Uri) -> Option<Intercept> {
        self.matcher.as_ref()?.intercept(destination)
    }
}

impl fmt::Debug for Proxies {
    // The matcher knows passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.matcher.is_some() { "Proxies(set)" } else { "Proxies(none)" })
    }
}
