//! Tests of clients with real sockets: one file per client, and one for proxies.

mod grpc;
mod http;
mod proxy;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use ::http::{HeaderMap, StatusCode, Uri};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::{Request, Response as HttpResponse};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::*;
use crate::body::{self, BodyLimits};
use crate::testing::text;

/// A client without TLS and proxies, with short timeouts.
fn plain() -> HttpClientConfig {
    HttpClientConfig { tls: None, proxies: Proxies::none(), ..HttpClientConfig::default() }
}

async fn post(config: &HttpClientConfig, url: &str) -> Result<Response, Failure> {
    let url = url.parse::<Uri>().unwrap();
    HttpClient::new(config).unwrap().post(&url, HeaderMap::new(), Bytes::from_static(b"payload")).await
}

/// Answers with the received method, authority, user agent and body.
async fn echo(request: Request<Incoming>) -> Result<HttpResponse<Full<Bytes>>, Infallible> {
    let header =
        |name: &str| request.headers().get(name).map_or_else(String::new, |value| value.to_str().unwrap().to_owned());
    let head = format!("{} {} {}", request.method(), request.uri(), header("user-agent"));
    let body = body::read(request.into_body(), BodyLimits::new(1000)).await.unwrap();
    Ok(text(format!("{head} {}", String::from_utf8_lossy(&body))))
}

/// Reads one request head.
async fn head(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8(head).unwrap()
}

/// A server that reads a head, sends `answer` and closes. With an empty answer it only closes.
async fn server_that_answers(answer: impl Into<String>) -> SocketAddr {
    let answer = answer.into();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            head(&mut stream).await;
            drop(stream.write_all(answer.as_bytes()).await);
        }
    });
    addr
}

/// A server that accepts connections and never answers.
async fn silent() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            open.push(stream);
        }
    });
    addr
}
