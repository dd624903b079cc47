//! Pushed profiles.

use super::*;

/// A multipart form as pyroscope-go sends it.
fn form(parts: &[(&str, &[u8])]) -> Bytes {
    let mut body = Vec::new();
    for (name, content) in parts {
        let head = format!("--xyz\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"{name}.pprof\"\r\n");
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(b"Content-Type: application/octet-stream\r\n\r\n");
        body.extend_from_slice(content);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"--xyz--\r\n");
    body.into()
}

const FORM: (&str, &str) = ("content-type", "multipart/form-data; boundary=xyz");
const INGEST: &str = "/ingest?name=shop%7Bregion%3Deu%7D&from=1760000000&until=1760000010&spyName=gospy&sampleRate=100";

/// Guarantees: a profile in a form, as Pyroscope's clients send it, arrives with its types, name, labels and time,
/// whether the profile, the body, both or neither are gzipped; and its memory is released.
#[tokio::test]
async fn ingest() {
    let mut rig = PprofRig::start(&format!("{{{LOOPBACK}, resource: {{insert: {{zone: a, region: b}}}}}}")).await;
    for profile in [cpu(0), gzip(&cpu(0)).into(), cpu(TIME + 5)] {
        let said = if profile == cpu(TIME + 5) { TIME + 5 } else { TIME };
        let body = form(&[("sample_type_config", b"{}"), ("profile", &profile), ("prev_profile", b"")]);
        let plain = post(INGEST, body.clone()).header(FORM.0, FORM.1);
        let packed = post(INGEST, gzip(&body)).header(FORM.0, FORM.1).header("content-encoding", "gzip");
        let bare = post(INGEST, profile).header("content-type", "application/octet-stream");
        for request in [plain, packed, bare] {
            let batch = rig.taken(request).await;
            assert_eq!(attributes(&batch), [("region", "eu"), ("service.name", "shop"), ("zone", "a")]);
            assert_eq!((batch.observations(), batch.peer.as_deref()), (2, Some("127.0.0.1")));
            let times: Vec<_> = batch.profiles().map(|one| (one.time_unix_nano, one.duration_nano)).collect();
            assert_eq!(times, [(said, 10_000_000_000); 2]);
        }
    }
    assert_eq!((rig.requests("success", "http"), rig.requests("failure", "http")), (9, 0));
    rig.0.stop().await;
}

/// Guarantees: a profile with an impossible time, before 2000 or more than a day from its arrival, gets the `from` of
/// its request; if that is missing or impossible too, the profile ends at its arrival.
#[tokio::test]
async fn times_that_cannot_be() {
    const DAY: u64 = 86_400_000_000_000;
    let mut rig = PprofRig::start(LOOPBACK).await;
    let bare = |query: &str| format!("/ingest?name=shop{query}");
    for (query, own, expected) in [
        ("&from=1760000000&until=1760000010", TIME / 1_000, (TIME, 10_000_000_000)),
        ("&from=1760000000&until=1760000010", TIME + 2 * DAY, (TIME, 10_000_000_000)),
        ("&from=1760000000", TIME - DAY / 2, (TIME - DAY / 2, 0)),
        ("", TIME / 1_000_000, (ARRIVAL, 0)),
        ("&from=5&until=15", 0, (ARRIVAL - 10_000_000_000, 10_000_000_000)),
        ("", 0, (0, 0)),
    ] {
        let batch = rig.taken(post(&bare(query), cpu(own))).await;
        let first = batch.profiles().next().unwrap();
        assert_eq!((first.time_unix_nano, first.duration_nano), expected, "{query} {own}");
    }
    rig.0.stop().await;
}

/// Guarantees: if a profile has another format, the error names that format.
#[tokio::test]
async fn foreign_formats() {
    let rig = PprofRig::start(LOOPBACK).await;
    for (body, said) in [
        ("<!DOCTYPE html><html></html>", "a page of HTML"),
        ("{\"nodes\":[],\"startTime\":1,\"endTime\":2}", ".cpuprofile"),
        ("heap profile: 1: 2 [3: 4] @ heap/1048576\n", "as text"),
    ] {
        let (status, why) = rig.refused(post("/api/pprof", body)).await;
        assert!(status == 400 && why.contains(said), "{why}");
    }
    rig.0.stop().await;
}

/// Guarantees: a plain profile arrives with the attributes in its query; a profile without samples is accepted and
/// leaves no data or memory behind.
#[tokio::test]
async fn plain() {
    let mut rig = PprofRig::start(LOOPBACK).await;
    let batch = rig.taken(post("/api/pprof?service.name=shop&service.instance.id=1", gzip(&cpu(TIME)))).await;
    assert_eq!(attributes(&batch), [("service.name", "shop"), ("service.instance.id", "1")]);
    assert_eq!(attributes(&rig.taken(post("/api/pprof", cpu(TIME))).await), []);
    // There is a sample type, but no sample.
    let empty = b"\x0a\x04\x08\x01\x10\x01\x32\x00\x32\x01x";
    assert_eq!(rig.send(post("/api/pprof", &empty[..])).await.status, 200);
    assert_eq!(rig.consumer.memory_used(), 0);
    rig.0.stop().await;
}

/// Guarantees: each refused request, such as a gzip bomb, gets the right status and reason, is counted, and leaves no
/// data or memory behind.
#[tokio::test]
async fn refusals() {
    let rig = PprofRig::start("push: {endpoint: '127.0.0.1:0', max_request_body_size: 1MiB}").await;
    let with_form = |parts: &[(&str, &[u8])]| post(INGEST, form(parts)).header(FORM.0, FORM.1);
    let profile = cpu(TIME);
    let bomb = gzip(&vec![0; 8 << 20]);
    assert!(bomb.len() < 1 << 20);
    let damaged = [&profile[..], b"\x22\x00"].concat();
    for (request, status, said) in [
        (post("/api/pprof", ""), 400, "the body is empty"),
        (post("/api/pprof", damaged), 400, "location[2].id: is 0, which stands for none"),
        (post("/api/pprof", "some text"), 400, "malformed pprof profile"),
        (post("/api/pprof", bomb.clone()), 413, "1048576"),
        (post("/api/pprof", bomb).header("content-encoding", "gzip"), 413, "1048576"),
        (post("/api/pprof", vec![0; (1 << 20) + 1]), 413, "larger than 1048576 bytes"),
        (post("/api/pprof", profile.clone()).header("content-encoding", "lzma"), 415, "lzma"),
        (post("/api/pprof", "x").header("content-encoding", "gzip"), 400, ""),
        (post("/ingest?format=jfr", profile.clone()), 415, "only pprof is read"),
        (post("/ingest?from=then", profile.clone()), 400, "from: "),
        (with_form(&[("other", b"x")]), 400, "no part `profile`"),
        (with_form(&[("profile", &profile), ("prev_profile", b"x")]), 400, "only changes are read"),
        (post(INGEST, form(&[])).header("content-type", "multipart/form-data"), 400, "needs a boundary"),
    ] {
        let (answered, why) = rig.refused(request).await;
        assert_eq!(answered, status, "{why}");
        assert!(why.contains(said), "{why}");
    }
    assert_eq!((rig.requests("success", "http"), rig.requests("failure", "http")), (0, 13));
    let (status, why) = rig.refused(post("/v1development/profiles", profile.clone())).await;
    assert!(status == 404 && why.contains("sent to /ingest or /api/pprof"), "{why}");
    let get = rig.send(Post { method: Method::GET, ..post("/ingest", "") }).await;
    assert_eq!((get.status, &get.headers["allow"]), (405, &"POST".parse().unwrap()));
    rig.0.stop().await;
}

/// Guarantees: if memory is short, the answer says when to retry; if the profile can never fit, it is refused
/// permanently.
#[tokio::test]
async fn memory() {
    let rig = PprofRig::start_with(LOOPBACK, 100_000).await;
    let (status, why) = rig.refused(post("/api/pprof", cpu(TIME))).await;
    assert_eq!(status, 413, "{why}");
    assert_eq!(rig.requests("refused", "http"), 1);
    rig.0.stop().await;
}
