//! Decides which HTTP requests web pages may make.
//!
//! A browser sends the requests of any page, even to the loopback of its own machine. The page cannot forge two
//! headers: `Origin`, which names the server of the page, and `Host`, which is the name in the URL of the request. But
//! an attacker can make a name of their own resolve to the loopback (DNS rebinding).

use std::net::{IpAddr, SocketAddr};

use http::header::{HOST, ORIGIN};
use http::{Request, StatusCode, Version};

use crate::http_fault::HttpFault;

/// The names under which a listener may be reached, and the origins whose pages may access it.
#[derive(Debug, Clone, Copy)]
pub struct PageRules<'a> {
    /// Names in addition to those of the loopback and the connection's address (`service.allowed_hosts`).
    pub hosts: &'a [String],
    /// Origins of other servers' pages; `*` stands for any characters.
    pub origins: &'a [String],
}

impl PageRules<'_> {
    /// Checks a request that arrived at the address `own`.
    ///
    /// # Errors
    ///
    /// The request names no host or several, or it may come from a page that must not access the listener.
    pub fn check<B>(&self, request: &Request<B>, own: Option<SocketAddr>) -> Result<(), HttpFault> {
        let named = request.headers().get_all(HOST);
        let count = named.iter().count();
        let version_1_1 = request.version() == Version::HTTP_11;
        if count > 1 || (version_1_1 && count == 0) {
            return Err(HttpFault::new(StatusCode::BAD_REQUEST, "host", "the request names no Host, or several"));
        }
        let in_header = named.iter().next().and_then(|host| host.to_str().ok());
        let host = request.uri().authority().map(http::uri::Authority::as_str).or(in_header).unwrap_or_default();
        // On the loopback, a name of the loopback cannot mean another server.
        let of_loopback = own.is_some_and(|own| own.ip().to_canonical().is_loopback());
        if of_loopback && (version_1_1 || !host.is_empty()) && !self.is_own(host, own) {
            let message = format!("{host:?} is no name of this listener; add it to `service.allowed_hosts` if it is");
            return Err(HttpFault::new(StatusCode::FORBIDDEN, "foreign_host", message));
        }
        for origin in request.headers().get_all(ORIGIN) {
            let origin = origin.to_str().unwrap_or_default();
            let is_same = origin.split_once("://").is_some_and(|(_, authority)| authority.eq_ignore_ascii_case(host));
            if !is_same && !self.origins.iter().any(|pattern| matches(pattern, origin)) {
                let message = format!("pages of {origin:?} may not talk to this listener (cors_origins)");
                return Err(HttpFault::new(StatusCode::FORBIDDEN, "foreign_origin", message));
            }
        }
        Ok(())
    }

    /// Whether a host, with or without a port, means this listener: it is a name of the loopback, the connection's
    /// address, or in the list.
    pub fn is_own(&self, host: &str, own: Option<SocketAddr>) -> bool {
        let name = without_port(host);
        let listed = || self.hosts.iter().any(|known| known.eq_ignore_ascii_case(name));
        match name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
            Ok(address) => {
                let address = address.to_canonical();
                address.is_loopback() || own.is_some_and(|own| own.ip().to_canonical() == address) || listed()
            }
            Err(_) => {
                let name = name.trim_end_matches('.').to_ascii_lowercase();
                name == "localhost" || name.ends_with(".localhost") || listed()
            }
        }
    }
}

/// Returns the name or address without its port; an IPv6 address keeps its brackets.
fn without_port(host: &str) -> &str {
    let end_of_address = host.rfind(']').map_or(0, |bracket| bracket + 1);
    host[end_of_address..].find(':').map_or(host, |colon| &host[..end_of_address + colon])
}

/// Whether a text matches a pattern in which `*` stands for any characters. Ignores case.
fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.to_ascii_lowercase(), text.to_ascii_lowercase());
    let mut parts = pattern.split('*');
    let Some(mut rest) = text.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        let Some(found) = rest.find(part) else { return false };
        rest = &rest[found + part.len()..];
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(headers: &[(&str, &str)], own: &str, pages: PageRules<'_>) -> Option<(u16, &'static str)> {
        let mut request = Request::builder().uri("/metrics");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let fault = pages.check(&request.body(()).unwrap(), own.parse().ok()).err()?;
        Some((fault.status.as_u16(), fault.reason))
    }

    const NOBODY: PageRules<'static> = PageRules { hosts: &[], origins: &[] };

    /// Attack: a page whose own name resolves to the loopback is refused, whatever the port; the names of the loopback
    /// and of the list are accepted, and a listener that other hosts can reach accepts any name.
    #[test]
    fn hosts() {
        let hosts = ["relay.internal".to_owned()];
        let pages = PageRules { hosts: &hosts, ..NOBODY };
        for host in
            ["localhost", "LOCALHOST:8888", "a.localhost", "127.0.0.1:8888", "127.8.8.8", "[::1]:1", "relay.internal:1"]
        {
            assert_eq!(checked(&[("host", host)], "127.0.0.1:8888", pages), None, "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:8888",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.1.2.3",
            "",
            "[::2]",
            "]:",
        ] {
            let refused = Some((403, "foreign_host"));
            assert_eq!(checked(&[("host", host)], "127.0.0.1:8888", NOBODY), refused, "{host}");
            assert_eq!(checked(&[("host", host)], "[::ffff:127.0.0.1]:8888", NOBODY), refused, "{host}");
            assert_eq!(checked(&[("host", host)], "10.0.0.7:8888", NOBODY), None, "{host}");
        }
        assert_eq!(checked(&[], "10.0.0.7:8888", NOBODY), Some((400, "host")));
        assert_eq!(
            checked(&[("host", "localhost"), ("host", "localhost")], "127.0.0.1:1", NOBODY),
            Some((400, "host"))
        );
    }

    /// Attack: a page of another server is refused unless its origin is listed; a page of the same server is accepted.
    #[test]
    fn origins() {
        let origins = ["https://*.shop.example".to_owned(), "http://localhost:*".to_owned()];
        let pages = PageRules { origins: &origins, ..NOBODY };
        let of = |origin: &str| checked(&[("host", "localhost:9000"), ("origin", origin)], "127.0.0.1:9000", pages);
        for origin in
            ["http://localhost:9000", "https://www.shop.example", "HTTPS://a.b.shop.example", "http://localhost:3000"]
        {
            assert_eq!(of(origin), None, "{origin}");
        }
        for origin in [
            "https://evil.example",
            "null",
            "",
            "https://shop.example",
            "http://www.shop.example",
            "https://www.shop.example.evil",
            "https://evil.example/.shop.example.evil",
        ] {
            assert_eq!(of(origin), Some((403, "foreign_origin")), "{origin}");
        }
        let two = [("host", "localhost"), ("origin", "http://localhost"), ("origin", "https://evil.example")];
        assert_eq!(checked(&two, "127.0.0.1:9000", pages), Some((403, "foreign_origin")));
        assert!(matches("*", "https://anything") && matches("a*c*e", "abcde") && !matches("a*c*e", "abde"));
    }
}
