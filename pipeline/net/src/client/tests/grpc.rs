use std::sync::Arc;

use hyper::service::service_fn;
use tonic::body::Body;
use tonic::transport::Channel;
use tower_service::Service as _;

use super::proxy::proxy;
use super::*;
use crate::error_chain;
use crate::server::ServerLimits;
use crate::testing::{Authority, start};
use crate::tls::{HttpVersions, TlsClientConfig};

fn config(endpoint: impl Into<String>) -> GrpcClientConfig {
    GrpcClientConfig { proxies: Proxies::none(), ..GrpcClientConfig::new(endpoint) }
}

/// Makes one call on a channel, without message framing, because only the connection matters here.
async fn call(mut channel: Channel) -> Result<String, String> {
    let ready = std::future::poll_fn(|cx| channel.poll_ready(cx)).await;
    ready.map_err(|error| error_chain(&error))?;
    let request = Request::post("/service/Method").body(Body::empty()).unwrap();
    let response = channel.call(request).await.map_err(|error| error_chain(&error))?;
    let body = body::read(response.into_body(), BodyLimits::new(1000)).await.unwrap();
    Ok(String::from_utf8(body.to_vec()).unwrap())
}

/// Guarantees: an insecure endpoint without a scheme, and one with `http://`, use HTTP/2 in plaintext.
#[tokio::test]
async fn plaintext_is_http2() {
    let limits = ServerLimits { versions: HttpVersions::Http2, ..ServerLimits::default() };
    let server = start(service_fn(echo), None, limits).await;
    let mut insecure = config(server.addr.to_string());
    insecure.tls.insecure = true;
    for config in [insecure, config(format!("http://{}", server.addr))] {
        let answer = call(grpc_channel(&config).unwrap()).await.unwrap();
        let start = format!("POST http://{}/service/Method {} tonic/", server.addr, crate::USER_AGENT);
        assert!(answer.starts_with(&start), "{answer}");
    }
}

/// Guarantees: TLS is verified, uses the https scheme, and presents the client's certificate.
#[tokio::test]
async fn tls_is_verified_both_ways() {
    let authority = Authority::new();
    let mut tls = authority.server("localhost");
    tls.client_ca_file = Some(authority.path("ca.pem"));
    let tls = tls.load(HttpVersions::Http2).unwrap();
    let server = start(service_fn(echo), Some(tls), ServerLimits::default()).await;
    let (cert, key) = authority.sign("client", "agent");
    let mut config = config(server.addr.to_string());
    config.tls = TlsClientConfig {
        cert_file: Some(cert),
        key_file: Some(key),
        server_name_override: Some("localhost".to_owned()),
        ..authority.client()
    };
    let answer = call(grpc_channel(&config).unwrap()).await.unwrap();
    assert!(answer.starts_with(&format!("POST https://{}/service/Method", server.addr)), "{answer}");

    config.tls.server_name_override = None;
    let error = call(grpc_channel(&config).unwrap()).await.unwrap_err();
    assert!(error.contains("certificate not valid for name"), "{error}");
}

/// Guarantees: a TLS server without HTTP/2 gives a clear error instead of a failure in the first frame.
#[tokio::test]
async fn a_server_without_http2_is_named() {
    let authority = Authority::new();
    let tls = authority.server("127.0.0.1").load(HttpVersions::Http1).unwrap();
    let mut tls = Arc::unwrap_or_clone(tls);
    tls.alpn_protocols.clear();
    let server = start(service_fn(echo), Some(Arc::new(tls)), ServerLimits::default()).await;
    let mut config = config(server.addr.to_string());
    config.tls = authority.client();
    let error = call(grpc_channel(&config).unwrap()).await.unwrap_err();
    assert!(error.contains(&format!("{} does not offer HTTP/2 (ALPN h2)", server.addr)), "{error}");
}

/// Guarantees: gRPC tunnels through HTTPS_PROXY also in plaintext, and through HTTP_PROXY if only that is set.
#[tokio::test]
async fn plaintext_goes_through_a_tunnel() {
    let server = start(service_fn(echo), None, ServerLimits::default()).await;
    let backend = format!("backend.invalid:{}", server.addr.port());
    for https in [true, false] {
        let (proxy, mut asked) = proxy(None).await;
        let proxy = format!("http://{proxy}");
        let proxies = if https { Proxies::new(&proxy, "", "") } else { Proxies::new("", &proxy, "") };
        let config = GrpcClientConfig { proxies, ..config(format!("http://{backend}")) };
        assert!(call(grpc_channel(&config).unwrap()).await.is_ok());
        let connect = asked.recv().await.unwrap();
        assert!(connect.starts_with(&format!("CONNECT {backend} HTTP/1.1")), "{connect}");
    }
}

/// Guarantees: a channel whose peer was unreachable connects at a later call.
#[tokio::test]
async fn a_channel_comes_back() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    drop(listener);
    let channel = grpc_channel(&config(format!("http://{addr}"))).unwrap();
    let error = call(channel.clone()).await.unwrap_err();
    assert!(error.contains(&format!("cannot connect to {addr}")), "{error}");
    let listener = crate::server::Listener::bind(&addr.to_string()).await.unwrap();
    let (_trigger, shutdown) = crate::Shutdown::pair();
    let serving =
        crate::server::serve(listener, None, service_fn(echo), ServerLimits::default(), Default::default(), shutdown);
    tokio::select! {
        answer = call(channel) => assert!(answer.is_ok(), "{answer:?}"),
        _ = serving => unreachable!("the server runs until it is told to stop"),
    }
}

/// Guarantees: if the client uses no TLS but the server does, or the client HTTP/1 and the server gRPC, the error says
/// what to change.
#[tokio::test]
async fn a_server_of_another_protocol_is_named() {
    let limits = ServerLimits { versions: HttpVersions::Http2, ..ServerLimits::default() };
    let tls = Authority::new().server("localhost").load(HttpVersions::Both).unwrap();
    let with_tls = start(service_fn(echo), Some(tls), ServerLimits::default()).await;
    let grpc = start(service_fn(echo), None, limits).await;
    let [with_tls, grpc] = [&with_tls, &grpc].map(|server| server.addr);
    let says_tls = "the server speaks TLS: use https://";
    let error = call(grpc_channel(&config(format!("http://{with_tls}"))).unwrap()).await.unwrap_err();
    assert!(error.contains(says_tls), "{error}");
    for (server, says) in [(with_tls, says_tls), (grpc, "the server speaks only HTTP/2, as for gRPC")] {
        let error = super::post(&plain(), &format!("http://{server}/")).await.unwrap_err();
        assert!(error_chain(&error).contains(says), "{error}");
    }
    let prior = HttpClientConfig { http2_prior_knowledge: true, ..plain() };
    assert_eq!(super::post(&prior, &format!("http://{grpc}/")).await.unwrap().status, 200);
}

/// Guarantees: if a client uses TLS and the server does not, the error says what to change.
#[tokio::test]
async fn a_server_without_tls_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.read_u8().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        // Does not read the rest of the request.
        stream.shutdown().await.ok();
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await.ok();
    });
    let authority = Authority::new();
    let with_tls = HttpClientConfig { tls: Some(authority.client()), ..plain() };
    let error = super::post(&with_tls, &format!("https://{addr}/")).await.unwrap_err();
    assert!(error_chain(&error).contains("the server speaks no TLS: use http://"), "{error}");
}
