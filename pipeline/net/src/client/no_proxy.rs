//! Decides which destinations are reached without a proxy: those in `NO_PROXY`, and this machine itself.
//!
//! There is no standard for the variable. Entries that curl, Go's `golang.org/x/net/http/httpproxy` or Python's
//! `urllib` understand are supported, because programs of all three share one environment. Where they disagree, the
//! proxy is not used: for example a name with a leading dot also matches the domain itself, as in curl.

use std::net::IpAddr;

use http::Uri;
use http::uri::Scheme;
use ipnet::IpNet;

/// The entries of a `NO_PROXY`.
#[derive(Clone, Debug, Default)]
pub(super) struct NoProxy {
    /// Whether an entry was `*`.
    all: bool,
    entries: Vec<NoProxyEntry>,
}

#[derive(Clone, Debug)]
struct NoProxyEntry {
    hosts: Hosts,
    /// Matches only this port, if set.
    port: Option<u16>,
}

#[derive(Clone, Debug)]
enum Hosts {
    /// Matches subdomains, and the domain itself unless the entry began with `*.`.
    Domain { name: String, itself: bool },
    /// Matches the addresses of a network.
    Network(IpNet),
}

impl NoProxy {
    /// Parses the variable. Entries are separated by commas or spaces; invalid ones are ignored.
    pub(super) fn parse(text: &str) -> NoProxy {
        let mut parsed = NoProxy::default();
        for entry in text.split(|c: char| c == ',' || c.is_whitespace()).filter(|entry| !entry.is_empty()) {
            match entry {
                "*" => parsed.all = true,
                entry => parsed.entries.extend(NoProxyEntry::parse(entry)),
            }
        }
        parsed
    }

    /// Whether `destination`, which has a scheme and a host, is reached without a proxy.
    pub(super) fn contains(&self, destination: &Uri) -> bool {
        let Some(host) = destination.host() else { return true };
        let host = unbracketed(host).trim_end_matches('.').to_ascii_lowercase();
        let address = host.parse::<IpAddr>().ok().map(|address| address.to_canonical());
        if self.all || host == "localhost" || address.is_some_and(|address| address.is_loopback()) {
            return true;
        }
        let usual = if destination.scheme() == Some(&Scheme::HTTPS) { 443 } else { 80 };
        let port = destination.port_u16().unwrap_or(usual);
        self.entries.iter().any(|entry| {
            entry.port.is_none_or(|wanted| wanted == port)
                && match (&entry.hosts, address) {
                    (Hosts::Domain { name, itself }, None) => match host.strip_suffix(&**name) {
                        Some("") => *itself,
                        Some(below) => below.ends_with('.'),
                        None => false,
                    },
                    (Hosts::Network(network), Some(address)) => network.contains(&address),
                    _ => false,
                }
        })
    }
}

impl NoProxyEntry {
    fn parse(entry: &str) -> Option<NoProxyEntry> {
        if entry.contains('/') {
            return Some(NoProxyEntry { hosts: Hosts::Network(entry.parse().ok()?), port: None });
        }
        // An IPv6 address without brackets has no port.
        let (host, port) = match entry.rsplit_once(':') {
            Some((host, port)) if address_of(entry).is_none() => (host, Some(port.parse().ok()?)),
            _ => (entry, None),
        };
        if let Some(address) = address_of(host) {
            return Some(NoProxyEntry { hosts: Hosts::Network(address.into()), port });
        }
        let name = host.trim_end_matches('.').to_ascii_lowercase();
        let (name, itself) = match name.strip_prefix("*.") {
            Some(name) => (name, false),
            None => (name.strip_prefix('.').unwrap_or(&name), true),
        };
        (!name.is_empty()).then(|| NoProxyEntry { hosts: Hosts::Domain { name: name.to_owned(), itself }, port })
    }
}

fn unbracketed(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

fn address_of(host: &str) -> Option<IpAddr> {
    unbracketed(host).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: the forms that curl, Go and Python accept match the intended destinations and no others; this
    /// machine is never behind a proxy; invalid entries are ignored.
    #[test]
    fn forms() {
        let table: [(&str, &[&str], &[&str]); 19] = [
            ("", &["http://localhost/", "http://LOCALHOST:4318/", "https://127.0.0.1/", "http://127.8.8.8:1/"], &[]),
            ("", &["http://[::1]:4318/", "http://[::ffff:127.0.0.1]/"], &["http://example.com/", "http://10.0.0.1/"]),
            ("*", &["http://example.com/", "https://10.0.0.1/", "http://[2001:db8::1]/"], &[]),
            ("other.org, *", &["http://example.com/"], &[]),
            (
                "example.com",
                &["http://example.com/", "https://a.b.example.com:8443/", "http://EXAMPLE.com./"],
                &["http://notexample.com/", "http://example.com.org/", "http://example.org/"],
            ),
            (
                ".example.com",
                &["http://example.com/", "http://a.example.com/"],
                &["http://notexample.com/", "http://com/"],
            ),
            ("*.example.com", &["http://a.example.com/"], &["http://example.com/", "http://notexample.com/"]),
            ("EXAMPLE.com.", &["http://example.com/"], &["http://example.org/"]),
            (
                "example.com:8080",
                &["http://example.com:8080/", "http://a.example.com:8080/"],
                &["http://example.com/", "https://example.com:443/"],
            ),
            ("example.com:443", &["https://example.com/"], &["http://example.com/"]),
            (" a.org ,b.org\tc.org,, ", &["http://a.org/", "http://b.org/", "http://c.org/"], &["http://d.org/"]),
            ("10.1.2.3", &["http://10.1.2.3:1/", "http://[::ffff:10.1.2.3]/"], &["http://10.1.2.4/"]),
            ("10.1.2.3:80", &["http://10.1.2.3/"], &["https://10.1.2.3/"]),
            (
                "10.0.0.0/8,192.168.1.128/25",
                &["http://10.255.0.1/", "http://192.168.1.129/"],
                &["http://11.0.0.1/", "http://192.168.1.127/", "http://ten.example/"],
            ),
            ("0.0.0.0/0", &["http://8.8.8.8/"], &["http://[2001:db8::1]/", "http://example.com/"]),
            ("2001:db8::1", &["http://[2001:db8::1]:4318/"], &["http://[2001:db8::2]/"]),
            ("[2001:db8::1]", &["https://[2001:DB8::1]/"], &["https://[2001:db8::2]/"]),
            ("[2001:db8::1]:4318", &["http://[2001:db8::1]:4318/"], &["http://[2001:db8::1]/"]),
            ("2001:db8::/32", &["http://[2001:db8:1::1]/"], &["http://[2001:db9::1]/", "http://10.0.0.1/"]),
        ];
        for (text, direct, proxied) in table {
            let no_proxy = NoProxy::parse(text);
            for url in direct {
                assert!(no_proxy.contains(&url.parse().unwrap()), "{text:?} {url} is direct");
            }
            for url in proxied {
                assert!(!no_proxy.contains(&url.parse().unwrap()), "{text:?} {url} is not");
            }
        }
        for nonsense in ["10.0.0.0/33", "10.0.0.0/x", "example.com:port", ".", "*.", ":80", "/8", "[::1"] {
            assert!(!NoProxy::parse(nonsense).contains(&"http://example.com/".parse().unwrap()), "{nonsense}");
        }
    }
}
