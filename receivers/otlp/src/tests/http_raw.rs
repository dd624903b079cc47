//! HTTP from a peer that breaks the protocol's rules.

use profbridge_net::body::BodyLimits;

use super::*;

fn head(extra: &str) -> String {
    format!(
        "POST /v1development/profiles HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-protobuf\r\n{extra}\r\n\r\n"
    )
}

async fn quick() -> OtlpRig {
    let mut settings = settings(LOOPBACK);
    let http = settings.http.as_mut().unwrap();
    http.body = BodyLimits { timeout: Duration::from_millis(200), ..http.body };
    http.linger = Duration::from_millis(100);
    OtlpRig::start_with(settings, PLENTY).await.unwrap()
}

/// Guarantees: a length above the limit is refused although no body follows, and a length of 2^63 is handled.
/// rule: otlp#size-http
#[tokio::test]
async fn lying_lengths_are_refused() {
    let rig = quick().await;
    for length in [(64_u64 << 20) + 1, 1 << 31, 1 << 63] {
        let answer = exchange(rig.http(), head(&format!("content-length: {length}")).as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 413 "), "{length}: {answer}");
    }
    assert_eq!(rig.consumer.memory_used(), 0);
}

/// Guarantees: an announced length within the limit occupies only memory for the received bytes.
#[tokio::test]
async fn a_claim_holds_no_memory() {
    let rig = OtlpRig::start(LOOPBACK).await;
    let mut stream = TcpStream::connect(rig.http()).await.unwrap();
    stream.write_all(head("content-length: 60000000").as_bytes()).await.unwrap();
    stream.write_all(b"x").await.unwrap();
    until(|| rig.consumer.memory_used() > 0).await;
    assert_eq!(rig.consumer.memory_used(), 64 * 1024);
    drop(stream);
    until(|| rig.consumer.memory_used() == 0).await;
    until(|| rig.requests("failure", "http") == 1).await;
}

/// Guarantees: a client that is too slow gets 504, which OTLP clients retry, and is disconnected.
#[tokio::test]
async fn a_slow_client_is_cut() {
    let rig = quick().await;
    let answer = exchange(rig.http(), (head("content-length: 100") + "half").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 504 "), "{answer}");
    assert_eq!((rig.requests("failure", "http"), rig.consumer.memory_used()), (1, 0));
}

/// Guarantees: a body with broken framing is 400.
#[tokio::test]
async fn broken_chunks_are_400() {
    let rig = quick().await;
    let answer = exchange(rig.http(), (head("transfer-encoding: chunked") + "zz\r\nx\r\n").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert_eq!(rig.requests("failure", "http"), 1);
}

/// Guarantees: a client that sends `Expect: 100-continue` is refused without having to send the body.
#[tokio::test]
async fn expect_continue_is_refused_at_once() {
    let rig = OtlpRig::start(SMALL).await;
    let request = head("expect: 100-continue\r\ncontent-length: 2000000");
    let answer = patiently(exchange(rig.http(), request.as_bytes())).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
}

/// Guarantees: a client that sends all of a far too large body before it reads is not disconnected, gets the answer,
/// and can reuse the connection.
#[tokio::test]
async fn sender_of_a_large_body_gets_the_answer() {
    let mut rig = OtlpRig::start(SMALL).await;
    let mut stream = TcpStream::connect(rig.http()).await.unwrap();
    // Exceeds the socket buffers of both sides.
    let body = vec![0; 32 << 20];
    stream.write_all(head(&format!("content-length: {}", body.len())).as_bytes()).await.unwrap();
    patiently(stream.write_all(&body)).await.unwrap();
    let small = small().encode_to_vec();
    let again = [head(&format!("connection: close\r\ncontent-length: {}", small.len())).into_bytes(), small].concat();
    stream.write_all(&again).await.unwrap();
    let mut answers = Vec::new();
    let (read, taken) = tokio::join!(patiently(stream.read_to_end(&mut answers)), rig.consumer.take());
    read.unwrap();
    assert_eq!(profiles(taken).observations(), 3);
    let answers = String::from_utf8_lossy(&answers);
    assert!(answers.starts_with("HTTP/1.1 413 ") && answers.contains("HTTP/1.1 200 OK"), "{answers}");
}

/// Guarantees: over HTTP/2, the rest of a refused body is read, instead of ending the stream while the client writes.
#[tokio::test]
async fn http2_takes_the_rest() {
    let rig = OtlpRig::start(SMALL).await;
    let request =
        Request::post("http://localhost/v1development/profiles").header("content-type", "application/x-protobuf");
    let (sender, body) = feed();
    let mut client = http2(rig.http()).await;
    let request = request.body(body).unwrap();
    let pending = tokio::spawn(async move { client.send_request(request).await });
    let piece = || sender.send(Ok(vec![0; 0x10000].into()));
    for _ in 0..32 {
        piece().unwrap();
    }
    until(|| rig.requests("failure", "http") == 1).await;
    for _ in 0..64 {
        // If the stream had ended, the client would drop its body within this time.
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        piece().unwrap();
    }
    drop(sender);
    let response = patiently(pending).await.unwrap().unwrap();
    assert_eq!(response.status(), 413);
}
