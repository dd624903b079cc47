use hyper::service::service_fn;

use super::*;
use crate::server::ServerLimits;
use crate::testing::{Authority, CapturedLog, start};
use crate::tls::{HttpVersions, TlsClientConfig};

/// Guarantees: a payload arrives with our user agent, and the answer is returned completely.
#[tokio::test]
async fn a_post_arrives() {
    let server = start(service_fn(echo), None, ServerLimits::default()).await;
    let response = post(&plain(), &format!("http://{}/path?x=1", server.addr)).await.unwrap();
    assert_eq!(response.status, StatusCode::OK);
    assert_eq!(response.body, format!("POST /path?x=1 {} payload", crate::USER_AGENT));
    assert_eq!(response.headers["content-length"], response.body.len().to_string());
}

/// Guarantees: requests share a connection, and a connection that the server closed while idle is replaced without an
/// error.
#[tokio::test]
async fn connections_are_kept_and_replaced() {
    // Longer than a busy machine needs between two requests.
    let long = Duration::from_secs(3);
    let limits = ServerLimits { idle_timeout: long, header_timeout: long, ..ServerLimits::default() };
    let server = start(service_fn(echo), None, limits).await;
    let client = HttpClient::new(&plain()).unwrap();
    let url = format!("http://{}/", server.addr).parse::<Uri>().unwrap();
    for opened in 1..=2 {
        client.post(&url, HeaderMap::new(), Bytes::new()).await.unwrap();
        client.post(&url, HeaderMap::new(), Bytes::new()).await.unwrap();
        assert_eq!(server.stats.snapshot().opened, opened);
        if opened == 1 {
            let closed = async {
                while server.stats.snapshot().open > 0 {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(Duration::from_secs(120), closed).await.unwrap();
        }
    }
}

/// Guarantees: concurrent requests share one connection if the server supports HTTP/2: over TLS if HTTP/2 is
/// negotiated, and with prior knowledge. Otherwise each request has its own connection.
/// rule: otlp#send-concurrent
#[tokio::test]
async fn many_at_once() {
    const AT_ONCE: usize = 20;
    let authority = Authority::new();
    let client = |http2_prior_knowledge, tls| HttpClientConfig { tls, http2_prior_knowledge, ..plain() };
    for (versions, config, scheme, expected) in [
        (HttpVersions::Both, client(false, Some(authority.client())), "https", 1),
        (HttpVersions::Http1, client(false, Some(authority.client())), "https", AT_ONCE as u64),
        (HttpVersions::Both, client(true, None), "http", 1),
        (HttpVersions::Both, client(false, None), "http", AT_ONCE as u64),
    ] {
        let tls = config.tls.is_some().then(|| authority.server("127.0.0.1").load(versions).unwrap());
        // Answers once all requests have arrived.
        let all = std::sync::Arc::new(tokio::sync::Barrier::new(AT_ONCE));
        let service = move |request: Request<Incoming>| {
            let all = std::sync::Arc::clone(&all);
            async move {
                if request.uri().path() != "/first" {
                    all.wait().await;
                }
                Ok::<_, Infallible>(text(String::new()))
            }
        };
        let server = start(service_fn(service), tls, ServerLimits { versions, ..ServerLimits::default() }).await;
        let client = HttpClient::new(&config).unwrap();
        let send = |path: &str| {
            let url = format!("{scheme}://{}/{path}", server.addr).parse::<Uri>().unwrap();
            let client = client.clone();
            async move { client.post(&url, HeaderMap::new(), Bytes::new()).await.unwrap() }
        };
        // The protocol is known after the first request.
        send("first").await;
        let mut sent = tokio::task::JoinSet::new();
        (0..AT_ONCE).for_each(|_| drop(sent.spawn(send(""))));
        sent.join_all().await;
        assert_eq!(server.stats.snapshot().opened, expected, "{versions:?} {scheme}");
    }
}

/// Guarantees: the client verifies servers against `ca_file`; another authority or another name is refused before any
/// data is sent, and the error names the cause.
#[tokio::test]
async fn certificates_are_verified() {
    let authority = Authority::new();
    let tls = authority.server("127.0.0.1").load(HttpVersions::Both).unwrap();
    let server = start(service_fn(echo), Some(tls), ServerLimits::default()).await;
    let url = format!("https://{}/", server.addr);
    let with = |tls: TlsClientConfig| HttpClientConfig { tls: Some(tls), ..plain() };

    assert_eq!(post(&with(authority.client()), &url).await.unwrap().status, StatusCode::OK);

    let stranger = post(&with(Authority::new().client()), &url).await.unwrap_err();
    assert!(matches!(stranger, Failure::Connect(_)), "{stranger:?}");
    assert!(stranger.to_string().contains("tls handshake with 127.0.0.1"), "{stranger}");
    assert!(stranger.to_string().contains("invalid peer certificate"), "{stranger}");

    let port = server.addr.port();
    let name = post(&with(authority.client()), &format!("https://localhost:{port}/")).await.unwrap_err();
    assert!(name.to_string().contains("certificate not valid for name \"localhost\""), "{name}");
}

/// Guarantees: `server_name_override` is verified instead of the URL's host.
#[tokio::test]
async fn the_server_name_can_be_overridden() {
    let authority = Authority::new();
    let tls = authority.server("profiles.internal").load(HttpVersions::Both).unwrap();
    let server = start(service_fn(echo), Some(tls), ServerLimits::default()).await;
    let name = Some("profiles.internal".to_owned());
    let tls = TlsClientConfig { server_name_override: name, ..authority.client() };
    let config = HttpClientConfig { tls: Some(tls), ..plain() };
    assert_eq!(post(&config, &format!("https://{}/", server.addr)).await.unwrap().status, StatusCode::OK);
}

/// Guarantees: with `client_ca_file` only clients with a certificate of that authority are served; the first refusal is
/// logged with address and reason, and all are counted.
#[tokio::test]
async fn client_certificates_are_required() {
    let (log, _guard) = CapturedLog::start();
    let authority = Authority::new();
    let mut tls = authority.server("127.0.0.1");
    tls.client_ca_file = Some(authority.path("ca.pem"));
    let server = start(service_fn(echo), Some(tls.load(HttpVersions::Both).unwrap()), ServerLimits::default()).await;
    let url = format!("https://{}/", server.addr);
    let with = |authority: &Authority, cert: Option<(std::path::PathBuf, std::path::PathBuf)>| {
        let (cert_file, key_file) = cert.unzip();
        let tls = TlsClientConfig { cert_file, key_file, ..authority.client() };
        HttpClientConfig { tls: Some(tls), ..plain() }
    };

    let served = post(&with(&authority, Some(authority.sign("client", "agent"))), &url).await.unwrap();
    assert_eq!(served.status, StatusCode::OK);
    assert_eq!(log.text(), "");
    let stranger = Authority::new();
    for certificate in [None, Some(stranger.sign("client", "agent"))] {
        assert!(post(&with(&authority, certificate), &url).await.is_err());
    }
    assert_eq!(server.stats.snapshot().handshakes_failed, 2);
    let log = log.text();
    assert!(log.contains("tls handshake failed") && log.contains("WARN"), "{log}");
    assert!(log.contains(&format!("endpoint=\"{}\" peer=127.0.0.1:", server.addr)), "{log}");
    assert!(log.contains("reason=peer sent no certificates"), "{log}");
    assert_eq!(log.lines().count(), 1, "one line a minute: {log}");
}

/// Guarantees: a redirect is an error that names its target without path and query.
#[tokio::test]
async fn redirects_are_refused() {
    for (location, shown) in [
        ("https://other.example:8443/x?token=secret", "https://other.example:8443;"),
        ("/elsewhere?token=secret", "elsewhere on the same host"),
        ("no location", "an unreadable location"),
    ] {
        let answer = format!("HTTP/1.1 307 X\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n");
        let error = post(&plain(), &format!("http://{}/", server_that_answers(answer).await)).await.unwrap_err();
        assert!(matches!(error, Failure::Redirected { .. }), "{error:?}");
        assert!(error.to_string().contains(shown), "{error}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}

/// Guarantees: any status other than a redirect is a response.
#[tokio::test]
async fn other_statuses_are_responses() {
    for status in [304, 400, 413, 429, 503] {
        let answer = format!("HTTP/1.1 {status} X\r\nretry-after: 7\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
        let response = post(&plain(), &format!("http://{}/", server_that_answers(answer).await)).await.unwrap();
        assert_eq!(response.status, status);
        assert_eq!(response.headers["retry-after"], "7");
    }
}

/// Guarantees: an unreachable peer is distinguished from a broken connection, and the error contains neither path nor
/// query.
#[tokio::test]
async fn refused_connection_is_not_a_broken_one() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    drop(listener);
    let error = post(&plain(), &format!("http://{addr}/secret?secret")).await.unwrap_err();
    assert!(matches!(error, Failure::Connect(_)), "{error:?}");
    assert_eq!(
        error.to_string(),
        format!("cannot connect to {addr}: tcp connect error: Connection refused (os error 111)")
    );
}

/// Guarantees: if a peer closes without an answer, or answers with something else than HTTP, the connection counts as
/// broken.
#[tokio::test]
async fn exchange_without_an_answer_is_broken() {
    for answer in ["", "no http at all\r\n\r\n", "HTTP/1.1 200 OK\r\ncontent-le"] {
        let error = post(&plain(), &format!("http://{}/", server_that_answers(answer).await)).await.unwrap_err();
        assert!(matches!(error, Failure::Broken { .. }), "{error:?}");
    }
}

/// Guarantees: a response that is too large, announced or not, or is cut short, is reported with its status.
#[tokio::test]
async fn response_bodies_are_bounded() {
    let config = HttpClientConfig { max_response_bytes: 10, ..plain() };
    let large = "x".repeat(11);
    for (head, says) in [
        (format!("content-length: 11\r\n\r\n{large}"), "larger than 10 bytes"),
        (format!("connection: close\r\n\r\n{large}"), "larger than 10 bytes"),
        ("content-length: 9\r\n\r\nxxx".to_owned(), "broke off after 3 bytes"),
    ] {
        let addr = server_that_answers(format!("HTTP/1.1 200 OK\r\n{head}")).await;
        let error = post(&config, &format!("http://{addr}/")).await.unwrap_err();
        assert!(matches!(error, Failure::Response { status: StatusCode::OK, .. }), "{error:?}");
        assert!(error.to_string().contains(says), "{error}");
    }
}

/// Guarantees: the timeout ends a request that is never answered; the connect timeout ends an unfinished handshake.
#[tokio::test]
async fn a_hanging_peer_times_out() {
    let short = Duration::from_millis(300);
    let addr = silent().await;
    let error = post(&HttpClientConfig { timeout: short, ..plain() }, &format!("http://{addr}/")).await.unwrap_err();
    assert!(matches!(error, Failure::TimedOut { .. }), "{error:?}");

    let authority = Authority::new();
    let config = HttpClientConfig { tls: Some(authority.client()), connect_timeout: short, ..plain() };
    let error = post(&config, &format!("https://{addr}/")).await.unwrap_err();
    assert!(matches!(error, Failure::Connect(_)), "{error:?}");
    assert_eq!(error.to_string(), format!("no connection to {addr} within 300ms"));

    let config = HttpClientConfig { timeout: short, connect_timeout: Duration::from_secs(5), ..config };
    let error = post(&config, &format!("https://{addr}/")).await.unwrap_err();
    assert!(matches!(error, Failure::TimedOut { .. }), "{error:?}");
}

/// Guarantees: a URL to which nothing can be sent is refused with an error that does not quote it.
#[tokio::test]
async fn unsendable_urls_are_refused() {
    for (url, says) in [
        ("/path/secret", "does not begin with http:// or https://"),
        ("ftp://secret/", "does not begin with http:// or https://"),
        ("https://secret/", "configured for plaintext"),
        ("http://secret@127.0.0.1/", "user information"),
        ("http://127.0.0.1:secret/", "the port is not a number"),
    ] {
        let error = post(&plain(), url).await.unwrap_err();
        assert!(matches!(error, Failure::Unsendable(_)), "{error:?}");
        assert!(error.to_string().contains(says), "{error}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}

/// Guarantees: settings that cannot work are refused when the client is built.
#[test]
fn bad_tls_settings_fail_the_start() {
    let tls = TlsClientConfig { ca_file: Some("/missing/ca.pem".into()), ..TlsClientConfig::default() };
    let error = HttpClient::new(&HttpClientConfig { tls: Some(tls), ..plain() }).unwrap_err();
    assert!(error.to_string().starts_with("/missing/ca.pem: cannot be read"), "{error}");
}
