//! HTTP from a peer that breaks the protocol's rules.

use profbridge_net::body::BodyLimits;

use super::*;

/// Sends raw bytes and reads until the peer closes.
pub(super) async fn exchange(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    // A reset counts as an end.
    drop(patiently(stream.read_to_end(&mut answer)).await);
    String::from_utf8_lossy(&answer).into_owned()
}

fn head(extra: &str) -> String {
    let auth = auth(KEY);
    format!("POST /api/42/envelope/ HTTP/1.1\r\nhost: localhost\r\nx-sentry-auth: {auth}\r\n{extra}\r\n\r\n")
}

async fn quick() -> SentryRig {
    let mut settings = settings(LOOPBACK);
    settings.body = BodyLimits { timeout: Duration::from_millis(200), ..settings.body };
    SentryRig::start_with(settings, PLENTY).await
}

/// Attack: a client that is too slow gets 408 and is disconnected.
#[tokio::test]
async fn a_slow_client_is_cut() {
    let rig = quick().await;
    let answer = exchange(rig.http(), (head("content-length: 100") + "{}\n").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert_eq!((rig.requests("failure", "http"), rig.consumer.memory_used()), (1, 0));
}

/// Attack: a length above the limit is refused although no body follows, and a body with broken framing is 400.
/// rule: transport#size
#[tokio::test]
async fn lying_lengths_and_broken_chunks() {
    let rig = quick().await;
    for length in [(200_u64 << 20) + 1, 1 << 63] {
        let answer = exchange(rig.http(), head(&format!("content-length: {length}")).as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 413 "), "{length}: {answer}");
    }
    let answer = exchange(rig.http(), (head("transfer-encoding: chunked") + "zz\r\nx\r\n").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
}

/// Attack: an announced length holds only memory for received bytes; a client that disconnects leaves nothing behind.
#[tokio::test]
async fn a_claim_holds_no_memory() {
    let rig = SentryRig::start(LOOPBACK).await;
    let mut stream = TcpStream::connect(rig.http()).await.unwrap();
    stream.write_all(head("content-length: 60000000").as_bytes()).await.unwrap();
    stream.write_all(b"{").await.unwrap();
    until(|| rig.consumer.memory_used() > 0).await;
    assert_eq!(rig.consumer.memory_used(), 64 * 1024);
    drop(stream);
    until(|| rig.consumer.memory_used() == 0 && rig.requests("failure", "http") == 1).await;
}

/// Guarantees: a client that sends all of a refused body before it reads gets the answer, and can reuse the connection.
#[tokio::test]
async fn who_sends_all_first_sees_the_answer() {
    let mut rig = SentryRig::start(&format!("{{{LOOPBACK}, max_request_body_size: 1MiB}}")).await;
    let mut stream = TcpStream::connect(rig.http()).await.unwrap();
    // More than the socket buffers of both sides.
    let body = vec![0; 32 << 20];
    stream.write_all(head(&format!("content-length: {}", body.len())).as_bytes()).await.unwrap();
    patiently(stream.write_all(&body)).await.unwrap();
    let again = head(&format!("connection: close\r\ncontent-length: {}", SMALL.len())) + SMALL;
    stream.write_all(again.as_bytes()).await.unwrap();
    let mut answers = Vec::new();
    let (read, taken) = tokio::join!(patiently(stream.read_to_end(&mut answers)), patiently(rig.consumer.take()));
    read.unwrap();
    assert_eq!(envelope(taken).items.len(), 1);
    let answers = String::from_utf8_lossy(&answers);
    assert!(answers.starts_with("HTTP/1.1 413 ") && answers.contains("HTTP/1.1 200 OK"), "{answers}");
}
