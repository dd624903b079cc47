use std::sync::Arc;

use hyper::service::service_fn;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::server::ServerLimits;
use crate::testing::{Authority, start};
use crate::tls::{HttpVersions, TlsClientConfig};

/// A proxy that reports the requests it gets. It connects every tunnel to this machine, whatever host is requested,
/// because clients use no proxy for this machine's own names. It answers forwarded requests itself. With `refusal`, it
/// answers every request with that text.
pub(super) async fn proxy(refusal: Option<&'static str>) -> (SocketAddr, mpsc::UnboundedReceiver<String>) {
    start_proxy(refusal, None).await
}

async fn start_proxy(
    refusal: Option<&'static str>,
    tls: Option<Arc<rustls::ServerConfig>>,
) -> (SocketAddr, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let (sender, asked) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (sender, tls) = (sender.clone(), tls.clone());
            tokio::spawn(async move {
                match tls {
                    None => stand_between(stream, refusal, sender).await,
                    Some(tls) => {
                        let stream = TlsAcceptor::from(tls).accept(stream).await.unwrap();
                        stand_between(stream, refusal, sender).await;
                    }
                }
            });
        }
    });
    (addr, asked)
}

async fn stand_between(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    refusal: Option<&'static str>,
    sender: mpsc::UnboundedSender<String>,
) {
    let request = head(&mut stream).await;
    let target = request.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next()).map(str::to_owned);
    drop(sender.send(request));
    match (refusal, target) {
        (Some(refusal), _) => drop(stream.write_all(refusal.as_bytes()).await),
        (None, Some(target)) => {
            let port = target.rsplit_once(':').unwrap().1;
            let mut peer = TcpStream::connect(format!("127.0.0.1:{port}")).await.unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
            drop(tokio::io::copy_bidirectional(&mut stream, &mut peer).await);
        }
        (None, None) => {
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nforwarded";
            drop(stream.write_all(answer).await);
        }
    }
}

/// Guarantees: a proxy with TLS is verified under its own name, even if the destination's name is overridden, and the
/// destination's TLS runs inside the proxy's TLS.
#[tokio::test]
async fn a_proxy_may_be_encrypted() {
    let authority = Authority::new();
    let for_proxy = authority.server("127.0.0.1").load(HttpVersions::Http1).unwrap();
    let for_server = authority.server("profiles.internal").load(HttpVersions::Both).unwrap();
    let server = start(service_fn(echo), Some(for_server), ServerLimits::default()).await;
    let (proxy, mut asked) = start_proxy(None, Some(for_proxy)).await;
    let name = Some("profiles.internal".to_owned());
    let tls = TlsClientConfig { server_name_override: name, ..authority.client() };
    let proxies = Proxies::new(&format!("https://{proxy}"), "", "");
    let config = HttpClientConfig { tls: Some(tls), proxies, ..plain() };
    let response = post(&config, &format!("https://backend.invalid:{}/", server.addr.port())).await.unwrap();
    assert_eq!(response.status, StatusCode::OK);
    assert!(asked.recv().await.unwrap().starts_with("CONNECT "));
}

/// Guarantees: https uses a tunnel, and only the CONNECT request contains the proxy's credentials.
#[tokio::test]
async fn https_goes_through_a_tunnel() {
    let authority = Authority::new();
    let tls = authority.server("backend.invalid").load(HttpVersions::Both).unwrap();
    let server = start(service_fn(echo), Some(tls), ServerLimits::default()).await;
    let backend = format!("backend.invalid:{}", server.addr.port());
    let (proxy, mut asked) = proxy(None).await;
    let proxies = Proxies::new(&format!("http://user:pass@{proxy}"), "", "");
    let config = HttpClientConfig { tls: Some(authority.client()), proxies, ..plain() };
    let response = post(&config, &format!("https://{backend}/path")).await.unwrap();
    // Inside the tunnel, client and server negotiate HTTP/2, in which a request contains its full address.
    let expected = format!("POST https://{backend}/path ");
    assert!(response.body.starts_with(expected.as_bytes()), "{:?}", response.body);
    let connect = asked.recv().await.unwrap();
    assert!(connect.starts_with(&format!("CONNECT {backend} HTTP/1.1\r\n")), "{connect}");
    assert!(connect.to_lowercase().contains("proxy-authorization: basic dxnlcjpwyxnz\r\n"), "{connect}");
}

/// Guarantees: http is forwarded in absolute form, with the proxy's credentials.
#[tokio::test]
async fn http_is_forwarded() {
    let (proxy, mut asked) = proxy(None).await;
    let proxies = Proxies::new("", &format!("http://user:pass@{proxy}"), "");
    let response = post(&HttpClientConfig { proxies, ..plain() }, "http://backend.invalid/path").await.unwrap();
    assert_eq!(response.body, "forwarded");
    let request = asked.recv().await.unwrap();
    assert!(request.starts_with("POST http://backend.invalid/path HTTP/1.1\r\n"), "{request}");
    assert!(request.to_lowercase().contains("proxy-authorization: basic dxnlcjpwyxnz\r\n"), "{request}");
}

/// Guarantees: NO_PROXY is honoured, and this machine is always reached directly.
#[tokio::test]
async fn no_proxy_goes_direct() {
    let server = start(service_fn(echo), None, ServerLimits::default()).await;
    let config = HttpClientConfig { proxies: Proxies::new("", "http://proxy.invalid:1", ""), ..plain() };
    assert_eq!(post(&config, &format!("http://{}/", server.addr)).await.unwrap().status, StatusCode::OK);

    let proxies = Proxies::new("", "http://proxy.invalid:1", "10.0.0.0/8, backend.invalid:80");
    let config = HttpClientConfig { proxies, ..plain() };
    let error = post(&config, "http://backend.invalid/").await.unwrap_err().to_string();
    assert!(error.starts_with("cannot connect to backend.invalid:80"), "{error}");
    let error = post(&config, "http://backend.invalid:81/").await.unwrap_err().to_string();
    assert!(error.starts_with("cannot connect to proxy.invalid:1"), "{error}");
}

/// Guarantees: if a proxy refuses, requires credentials, closes the connection or is of another kind, the error is
/// clear, the destination receives no data, and no credentials are shown.
#[tokio::test]
async fn proxy_failures_are_told() {
    let authority = Authority::new();
    let config = |proxy: String| HttpClientConfig {
        tls: Some(authority.client()),
        proxies: Proxies::new(&proxy, "", ""),
        ..plain()
    };
    for (refusal, says) in [
        ("HTTP/1.1 403 Forbidden\r\n\r\n", "unsuccessful"),
        ("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "proxy authorization required"),
        ("", "unexpected end of file"),
    ] {
        let (proxy, _asked) = proxy(Some(refusal)).await;
        let error = post(&config(format!("http://user:secret@{proxy}")), "https://backend.invalid/").await.unwrap_err();
        let says = format!("the proxy {proxy} does not open a tunnel to backend.invalid:443: tunnel error: {says}");
        assert_eq!(error.to_string(), says);
        assert!(matches!(error, Failure::Connect(_)), "{error:?}");
    }
    let socks = post(&config("socks5://user:secret@127.0.0.1:1".to_owned()), "https://backend.invalid/").await;
    let says = "the proxy 127.0.0.1:1 is of the kind socks5, only http and https proxies are supported";
    assert_eq!(socks.unwrap_err().to_string(), says);
}

/// Guarantees: the connect timeout ends a hanging proxy.
#[tokio::test]
async fn a_hanging_proxy_times_out() {
    let proxies = Proxies::new(&format!("http://{}", silent().await), "", "");
    let authority = Authority::new();
    let config = HttpClientConfig {
        tls: Some(authority.client()),
        proxies,
        connect_timeout: Duration::from_millis(50),
        ..plain()
    };
    let error = post(&config, "https://backend.invalid/").await.unwrap_err();
    assert_eq!(error.to_string(), "no connection to backend.invalid:443 within 50ms");
}

/// Guarantees: a printed proxy shows no credentials.
#[test]
fn proxies_are_printed_without_secrets() {
    let proxies = Proxies::new("http://user:secret@proxy:3128", "", "");
    assert_eq!(format!("{proxies:?}"), "Proxies(set)");
}
