//! Encodings and transfer of bodies.

use profbridge_model::ByteRange;
use profbridge_model::envelope::Payload;

use super::*;

/// An envelope, and the same compressed by Google's brotli 1.2.
const PLAIN: &[u8] =
    b"{\"event_id\":\"9ec79c33ec9942ab8353589fcb2e04dc\"}\n{\"type\":\"attachment\",\"length\":10}\nhelloworld\n";
const BROTLI: &[u8] = b"\
    \x1b\x5c\x00\x50\x44\x75\xd3\xcf\xc8\x6a\x04\x30\x08\x74\xce\x3c\x67\xec\xc9\x85\x26\xc0\
    \x06\x1c\x38\x64\xeb\xba\xd8\x26\x3b\x0f\x1b\x70\x46\x69\xdb\x32\xef\x03\x78\x3e\xff\x86\
    \x81\xe1\x83\xae\x1a\x4e\xb6\xfa\xae\xa9\x5d\xfb\xe4\xe7\xab\x46\x6e\xdb\x71\xe5\x60\x6b\
    \x60\xe8\x05\x09\x69\xc1\x4a\xbe\x72\x05\x21\x01";

/// 1 MiB of the byte 7, compressed by Google's brotli 1.2.
const BROTLI_BOMB: &[u8] = b"\x5b\xff\xff\x8f\x5f\xe2\x20\x1e\x0b\x04\x72\xef\x1f\x00";

fn zstandard(data: &[u8]) -> Vec<u8> {
    zstd::encode_all(data, 1).unwrap()
}

/// Guarantees: every coding that SDKs use is decompressed, and such an envelope is held as the received body and its
/// headers, once.
/// rule: transport#compression
#[tokio::test]
async fn codings() {
    let mut rig = SentryRig::start(LOOPBACK).await;
    for (coding, known, body) in [
        ("gzip", "gzip", gzip(PLAIN)),
        ("X-GZIP", "gzip", gzip(PLAIN)),
        ("deflate", "deflate", zlib(PLAIN)),
        ("zstd", "zstd", zstandard(PLAIN)),
        ("br", "br", BROTLI.to_vec()),
    ] {
        let (answer, taken) = rig.taken(post(body.clone()).header("content-encoding", coding)).await;
        assert_eq!(json(&answer), serde_json::json!({"id": "9ec79c33ec9942ab8353589fcb2e04dc"}));
        assert_eq!(taken.items[0].payload, Payload::Packed(ByteRange { start: 82, len: 10 }));
        assert_eq!(taken.items[0].header, "{\"type\":\"attachment\",\"length\":10}");
        assert_eq!(taken.size_bytes(), (48 + 32 + body.len()) as u64);
        let received = taken.received.unwrap();
        assert_eq!((received.body, received.content_encoding), (body.into(), Some(known)));
    }
}

/// Guarantees: a coding that is empty or `UTF-8` is ignored, as in Relay; an unknown or stacked coding is refused with
/// 415 and the supported ones.
/// rule: transport#compression
#[tokio::test]
async fn names_of_codings() {
    let mut rig = SentryRig::start(LOOPBACK).await;
    for none in ["", " ", "UTF-8", "utf-8", "identity"] {
        let (answer, taken) = rig.taken(post(PLAIN).header("content-encoding", none)).await;
        assert_eq!((answer.status, taken.received.unwrap().content_encoding), (200, None), "{none:?}");
    }
    for unknown in ["lzma", "gzip, br", "aes128gcm"] {
        let answer = rig.refused(post(PLAIN).header("content-encoding", unknown)).await;
        assert_eq!(answer.status, 415, "{unknown}");
        assert_eq!(answer.header("accept-encoding"), Some("zstd, gzip, deflate, br, identity"));
    }
    for (coding, body) in
        [("gzip", PLAIN.to_vec()), ("zstd", gzip(PLAIN)), ("br", BROTLI[..50].to_vec()), ("gzip", vec![])]
    {
        assert_eq!(rig.refused(post(body).header("content-encoding", coding)).await.status, 400, "{coding}");
    }
    let nothing = rig.refused(post(gzip(b"")).header("content-encoding", "gzip")).await;
    assert_eq!((nothing.status, detail(&nothing).as_str()), (400, "the envelope is empty"));
}

/// Attack: a body that exceeds the limit when decompressed is refused with 413, and so is one that announces or has
/// such a size uncompressed.
/// rule: transport#size
#[tokio::test]
async fn bombs() {
    let rig = SentryRig::start(&format!("{{{LOOPBACK}, max_request_body_size: 100KiB}}")).await;
    let zeros = vec![0; 1 << 20];
    for (coding, body) in [
        ("gzip", gzip(&zeros)),
        ("deflate", zlib(&zeros)),
        ("zstd", zstandard(&zeros)),
        ("br", BROTLI_BOMB.to_vec()),
        ("identity", zeros.clone()),
    ] {
        for request in [post(body.clone()), post(body).chunked()] {
            let answer = rig.refused(request.header("content-encoding", coding)).await;
            assert_eq!(answer.status, 413, "{coding}: {answer:?}");
        }
    }
}

/// Guarantees: a body without a length and a content type is accepted, as Sentry's Node SDK sends it, and holds no more
/// memory than it has bytes while the pipelines have it.
/// rule: transport#chunked
#[tokio::test]
async fn chunked() {
    let mut rig = SentryRig::start(LOOPBACK).await;
    let (_, first) = rig.taken(post(SMALL).chunked()).await;
    let bytes = first.size_bytes();
    assert!(bytes < SMALL.len() as u64);
    let body = first.received.as_ref().unwrap().body.clone();
    drop(first);
    assert_eq!((&body[..], Vec::from(body.clone()).capacity()), (SMALL.as_bytes(), SMALL.len()));
    let waiting = tokio::spawn(post(SMALL).chunked().send(rig.http()));
    until(|| rig.consumer.memory_used() == bytes).await;
    assert_eq!(envelope(rig.consumer.take().await).size_bytes(), bytes);
    assert_eq!((waiting.await.unwrap().status, rig.consumer.memory_used()), (200, 0));
}

/// Guarantees: the content type is ignored.
/// rule: transport#chunked
#[tokio::test]
async fn types_of_content() {
    let mut rig = SentryRig::start(LOOPBACK).await;
    for kind in ["application/x-sentry-envelope", "text/plain;charset=UTF-8", "multipart/form-data", "%"] {
        assert_eq!(rig.taken(post(SMALL).header("content-type", kind)).await.0.status, 200);
    }
}

/// Guarantees: information from the client and its proxies is forwarded, with all lines of a header and in any script.
/// rule: transport#proxy-headers
#[tokio::test]
async fn client_headers_are_forwarded() {
    let mut rig = SentryRig::start(&format!("{{{LOOPBACK}, cors_origins: ['https://shop.example']}}")).await;
    let request = post(SMALL)
        .header("x-forwarded-for", "203.0.113.7, 198.51.100.1")
        .header("x-forwarded-for", "192.0.2.9")
        .header("user-agent", "Käse/1.0")
        .header("origin", "https://shop.example")
        .header("referer", "https://shop.example/cart")
        .header("sec-ch-ua-platform", "\"Linux\"");
    let meta = rig.taken(request).await.1.meta;
    assert_eq!(meta.forwarded_for.as_deref(), Some("203.0.113.7, 198.51.100.1, 192.0.2.9"));
    let expected = [
        ("user-agent", "Käse/1.0"),
        ("origin", "https://shop.example"),
        ("referer", "https://shop.example/cart"),
        ("sec-ch-ua-platform", "\"Linux\""),
    ];
    assert_eq!(meta.headers, expected.map(|(name, value)| (name, value.into())));
    assert_eq!(meta.client_address, Some("127.0.0.1".parse().unwrap()));
    assert!(meta.arrival_unix_nano.is_some());
    let meta = rig.taken(post(SMALL)).await.1.meta;
    assert_eq!((meta.forwarded_for, meta.headers), (None, vec![]));
}
