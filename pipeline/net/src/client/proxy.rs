//! Chooses the proxy for a destination.

use std::fmt;
use std::sync::Arc;

use http::Uri;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};

use super::no_proxy::NoProxy;

/// The proxies that environment variables configure, as a value that a test or an embedder can supply.
#[derive(Clone)]
pub struct Proxies {
    chosen: Option<Arc<(Matcher, NoProxy)>>,
}

impl Proxies {
    /// The proxies of `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`, in upper or lower case.
    pub fn from_env() -> Proxies {
        Proxies::from_variables(|name| std::env::var(name).ok())
    }

    /// Reads the same variables through `value`. If both cases of a name are set, the upper case takes precedence, as
    /// in Go; an empty string counts as unset.
    fn from_variables(value: impl Fn(&str) -> Option<String>) -> Proxies {
        // In a CGI script, the header `Proxy` of a request can set HTTP_PROXY (CVE-2016-5385).
        if value("REQUEST_METHOD").is_some() {
            return Proxies::none();
        }
        let read = |name: &str| {
            let set = |name: &str| value(name).filter(|value| !value.trim().is_empty());
            set(name).or_else(|| set(&name.to_ascii_lowercase())).unwrap_or_default().trim().to_owned()
        };
        let proxies = Matcher::builder().all(read("ALL_PROXY")).https(read("HTTPS_PROXY")).http(read("HTTP_PROXY"));
        Proxies { chosen: Some(Arc::new((proxies.build(), NoProxy::parse(&read("NO_PROXY"))))) }
    }

    /// No proxy, whatever the environment says.
    pub fn none() -> Proxies {
        Proxies { chosen: None }
    }

    /// The proxies for these values of the variables; an empty string counts as unset.
    pub fn new(https_proxy: &str, http_proxy: &str, no_proxy: &str) -> Proxies {
        let proxies = Matcher::builder().https(https_proxy).http(http_proxy).build();
        Proxies { chosen: Some(Arc::new((proxies, NoProxy::parse(no_proxy)))) }
    }

    /// The proxy for `destination`, which has a scheme and a host.
    pub(super) fn intercept(&self, destination: &Uri) -> Option<Intercept> {
        let (proxies, no_proxy) = self.chosen.as_deref()?;
        if no_proxy.contains(destination) {
            return None;
        }
        proxies.intercept(destination)
    }
}

impl fmt::Debug for Proxies {
    // Does not print the matcher, which contains passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.chosen.is_some() { "Proxies(set)" } else { "Proxies(none)" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: the variables are read in upper and in lower case; an empty variable is ignored, and so are all
    /// variables in a CGI script.
    #[test]
    fn variables() {
        let proxy = |variables: &[(&str, &str)], url: &str| {
            let find =
                |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
            let found = Proxies::from_variables(find).intercept(&url.parse().unwrap());
            found.and_then(|proxy| proxy.uri().host().map(str::to_owned))
        };
        let (http, https) = ("http://example.com/", "https://example.com/");
        assert_eq!(proxy(&[], http), None);
        for name in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
            assert_eq!(proxy(&[(name, "http://p:1")], http).as_deref(), Some("p"), "{name}");
        }
        for name in ["HTTPS_PROXY", "https_proxy", "ALL_PROXY"] {
            assert_eq!(proxy(&[(name, " http://p:1 ")], https).as_deref(), Some("p"), "{name}");
        }
        assert_eq!(proxy(&[("HTTPS_PROXY", "http://p:1")], http), None);
        assert_eq!(proxy(&[("HTTP_PROXY", ""), ("http_proxy", "http://p:1")], http).as_deref(), Some("p"));
        for name in ["NO_PROXY", "no_proxy"] {
            assert_eq!(proxy(&[("HTTP_PROXY", "http://p:1"), (name, "example.com")], http), None, "{name}");
        }
        assert_eq!(proxy(&[("HTTP_PROXY", "http://p:1"), ("REQUEST_METHOD", "POST")], http), None);
    }
}
