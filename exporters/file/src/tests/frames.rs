use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use profbridge_model::{Envelope, Quantities, Reason, View};
use profbridge_testkit::profcheck::assert_valid;
use profbridge_wire::otlp::{self, EncodeOptions, Limits, delimited};
use prost::Message as _;

use super::*;
use crate::config::FileRotation;
use crate::frames::Appended;
use profbridge_codec::otlp::Framing;

fn at(second: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_225_600 + second)
}

fn kept(bytes: u64, backups: usize) -> FileRotation {
    FileRotation { bytes, backups, asked_for: true }
}

fn messages(path: &Path) -> Vec<bytes::Bytes> {
    delimited::frames(std::fs::read(path).unwrap().into()).map(Result::unwrap).collect()
}

/// The messages in a file, which keep the rules of OTLP.
fn valid_messages(path: &Path) -> Vec<bytes::Bytes> {
    let messages = messages(path);
    messages.iter().for_each(|message| assert_valid(message));
    messages
}

fn frame(message: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    delimited::put_frame(&mut frame, message).unwrap();
    frame
}

/// Guarantees: requests are appended as frames: what came unchanged as it came, anything else encoded, an envelope as
/// its profiles, over restarts.
#[tokio::test]
async fn appends() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("made/profiles.otlp");
    // With a field that nobody knows, which only what is written as it came still has.
    let mut message = otlp::encode(&chunk(1, 0), &EncodeOptions::default());
    message.extend([0x7a, 1, 1]);
    let received = otlp::decode(message.into(), &Limits::default()).unwrap().profiles;
    for _ in 0..2 {
        let exporter = exporter(&path, "format: otlp");
        exporter.start(&context()).await.unwrap();
        write(&exporter, received.clone()).await.unwrap();
        let views = vec![View::profiles(0, chunk(2, 0)), View::profiles(1, chunk(3, 0))];
        write(&exporter, Envelope { views, ..Envelope::default() }).await.unwrap();
    }
    let messages = valid_messages(&path);
    assert_eq!(messages.len(), 6);
    assert_eq!(Some(&messages[0]), received.received.as_ref());
    for message in messages {
        assert_eq!(otlp::decode(message, &Limits::default()).unwrap().profiles.observations(), 20);
    }
}

/// Guarantees: what nothing was read of in an envelope has no place in a frame, and is counted as lost.
#[test]
fn unread_items_are_counted() {
    let exporter = exporter(Path::new("profiles.otlp"), "format: otlp");
    let items = vec![profbridge_wire::sentry::envelope::item("event", None, &b"{}"[..]); 3];
    let envelope = Envelope { items, views: vec![View::profiles(0, chunk(1, 0))], ..Envelope::default() };
    let prepared = exporter.prepare(&envelope.into(), ManualClock::default().now());
    assert_eq!((prepared.requests.len(), prepared.requests[0].quantities), (1, Quantities::observations(20)));
    assert_eq!(prepared.losses.get(Reason::Unroutable), Quantities::items(2));
    assert_eq!(prepared.losses.total(), Quantities::items(2));
}

/// Guarantees: attributes that refer to the string table are written out, since nobody knows who will read the file.
#[tokio::test]
async fn references_are_resolved() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("profiles.otlp");
    let options = EncodeOptions { references: true, ..EncodeOptions::default() };
    let part = otlp::split(&chunk(1, 0), 1, &options).next().unwrap();
    let received = otlp::decode(otlp::encode(&part, &options).into(), &Limits::default()).unwrap().profiles;
    assert!(received.dictionary().tables().references);
    let exporter = exporter(&path, "format: otlp");
    exporter.start(&context()).await.unwrap();
    write(&exporter, received).await.unwrap();
    let written = otlp::decode(valid_messages(&path).remove(0), &Limits::default()).unwrap().profiles;
    assert!(!written.dictionary().tables().references);
}

/// Guarantees: each message is compressed by itself.
/// rule: otep-0239#gzip-on-disk
#[tokio::test]
async fn compressed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("profiles.otlp");
    let exporter = exporter(&path, "format: otlp, compression: zstd");
    exporter.start(&context()).await.unwrap();
    write(&exporter, chunk(1, 0)).await.unwrap();
    write(&exporter, chunk(2, 0)).await.unwrap();
    for message in messages(&path) {
        let message = zstd::stream::decode_all(&message[..]).unwrap();
        assert_valid(&message);
        assert_eq!(otlp::decode(message.into(), &Limits::default()).unwrap().profiles.observations(), 20);
    }
}

/// Guarantees: with `format: json` each request is a line of JSON, over restarts; compressed it is a frame.
#[tokio::test]
async fn json_lines() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("profiles.json");
    for process in [1, 2] {
        let exporter = exporter(&path, "format: json");
        exporter.start(&context()).await.unwrap();
        write(&exporter, chunk(process, 0)).await.unwrap();
    }
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.ends_with("}\n") && text.lines().count() == 2);
    for line in text.lines() {
        let decoded = otlp::json::decode(line.as_bytes(), &Limits::default()).unwrap();
        assert_valid(&decoded.profiles.received.unwrap());
    }
    assert_eq!(names(folder.path()), ["profiles.json"]);

    let path = folder.path().join("profiles.frames");
    let exporter = exporter(&path, "format: json, compression: zstd");
    exporter.start(&context()).await.unwrap();
    write(&exporter, chunk(1, 0)).await.unwrap();
    let text = zstd::stream::decode_all(&messages(&path)[0][..]).unwrap();
    assert_eq!(otlp::json::decode(&text, &Limits::default()).unwrap().profiles.observations(), 20);
}

/// Guarantees: a file that a killed process left within a line, or one that holds something else than lines of JSON, is
/// set aside as it is, and the next one begins whole.
#[test]
fn torn_lines_are_set_aside() {
    for (before, aside) in [
        (&b"{}\n{}\n"[..], false),
        (b"", false),
        (b"{}\n{\"a\":", true),
        (b"{}\n\0\0\0\0", true),
        (b"\0\0\0\x01\n", true),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path: PathBuf = folder.path().join("profiles.json");
        std::fs::write(&path, before).unwrap();
        let mut file = Appended::open(path.clone(), Framing::Line, kept(1 << 20, 5), at(3)).unwrap();
        file.append(b"{}\n", at(4)).unwrap();
        let now = std::fs::read(&path).unwrap();
        assert_eq!(now, if aside { b"{}\n".to_vec() } else { [before, b"{}\n"].concat() });
        let names = names(folder.path());
        assert_eq!(names.len(), if aside { 2 } else { 1 });
        if aside {
            assert_eq!(std::fs::read(folder.path().join(&names[0])).unwrap(), before);
        }
    }
}

/// Guarantees: a file that would become too large is set aside under its time, whole frames in each; the oldest
/// backups go, and nobody else's files.
#[test]
fn rotation() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("profiles.otlp");
    for other in ["profiles-old.otlp", "other-20260101T000000.000Z.otlp", "profiles-20260101T000000.000Z.txt"] {
        std::fs::write(folder.path().join(other), "mine").unwrap();
    }
    let mut file = Appended::open(path.clone(), Framing::Length, kept(30, 2), at(0)).unwrap();
    for n in 0..8_u8 {
        // Two frames of 14 bytes fit.
        file.append(&frame(&[n; 10]), at(u64::from(n))).unwrap();
    }
    // Two backups at the same time have different names.
    file.append(&frame(&[9; 100]), at(6)).unwrap();
    assert_eq!(
        names(folder.path()),
        [
            "other-20260101T000000.000Z.otlp",
            "profiles-20260101T000000.000Z.txt",
            "profiles-20260101T000006.000Z.otlp",
            "profiles-20260101T000006.001Z.otlp",
            "profiles-old.otlp",
            "profiles.otlp",
        ]
    );
    assert_eq!(messages(&path), [&[9; 100][..]]);
    let backup = folder.path().join("profiles-20260101T000006.001Z.otlp");
    assert_eq!(messages(&backup), [&[6; 10][..], &[7; 10]]);
}

/// Guarantees: a file that a killed process left within a frame, or with a block of zeros at its end, is set aside as
/// it is, and the next one begins whole.
#[test]
fn torn_files_are_set_aside() {
    for torn in [&b"\0\0\0"[..], b"\0\0\0\x09ab", &[0; 64]] {
        let folder = tempfile::tempdir().unwrap();
        let path: PathBuf = folder.path().join("profiles.otlp");
        let before = [&frame(b"whole")[..], torn].concat();
        std::fs::write(&path, &before).unwrap();
        let mut file = Appended::open(path.clone(), Framing::Length, kept(1 << 20, 5), at(3)).unwrap();
        file.append(&frame(b"next"), at(4)).unwrap();
        assert_eq!(messages(&path), [&b"next"[..]]);
        let backup = folder.path().join("profiles-20260101T000003.000Z.otlp");
        assert_eq!(std::fs::read(backup).unwrap(), before);
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("profiles.otlp");
    std::fs::write(&path, frame(b"whole")).unwrap();
    Appended::open(path.clone(), Framing::Length, kept(1 << 20, 5), at(3))
        .unwrap()
        .append(&frame(b"next"), at(4))
        .unwrap();
    assert_eq!(messages(&path), [&b"whole"[..], b"next"]);
}

/// Guarantees: an attempt that nobody waited for any more and the one after it write one frame.
#[tokio::test]
async fn dropped_attempts_do_not_write_twice() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("profiles.otlp");
    let exporter = exporter(&path, "format: otlp");
    exporter.start(&context()).await.unwrap();
    let requests = requests(&exporter, chunk(1, 0));
    for _ in 0..20 {
        // Polled once, so that the write has begun, and dropped.
        let mut attempt = exporter.send(&requests[0]);
        let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(attempt.as_mut().poll(cx).is_ready())).await;
        drop((polled, attempt));
    }
    exporter.send(&requests[0]).await.unwrap();
    assert_eq!(messages(&path).len(), 1);
}

/// Guarantees: where somebody moves the file away or removes it, a new one is begun, so that nothing is written to
/// where nobody looks.
#[test]
fn a_file_that_was_moved_away() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("profiles.otlp");
    let mut file = Appended::open(path.clone(), Framing::Length, kept(1 << 20, 5), at(0)).unwrap();
    file.append(&frame(b"one"), at(1)).unwrap();
    std::fs::rename(&path, folder.path().join("moved.otlp")).unwrap();
    file.append(&frame(b"two"), at(2)).unwrap();
    assert_eq!(messages(&folder.path().join("moved.otlp")), [&b"one"[..]]);
    assert_eq!(messages(&path), [&b"two"[..]]);
    std::fs::remove_file(&path).unwrap();
    file.append(&frame(b"three"), at(3)).unwrap();
    assert_eq!(messages(&path), [&b"three"[..]]);
}

/// Guarantees: a payload is written where it is asked for and nobody changed the profile, and never otherwise; one in
/// pprof's format never is. What has none to leave out is written as it came.
/// rule: otep-0239#payload
#[tokio::test]
async fn payloads() {
    let came = |format: &str| {
        let encoded = otlp::encode(&chunk(1, 0), &EncodeOptions::default());
        let mut request = ExportProfilesServiceRequest::decode(&*encoded).unwrap();
        let profile = &mut request.resource_profiles[0].scope_profiles[0].profiles[0];
        (profile.original_payload, profile.original_payload_format) = (b"recording".to_vec(), format.to_owned());
        otlp::decode(request.encode_to_vec().into(), &Limits::default()).unwrap().profiles
    };
    let folder = tempfile::tempdir().unwrap();
    for (number, (format, more, written)) in [
        ("jfr", "format: otlp", false),
        ("jfr", "format: otlp, original_payload: true", true),
        ("pprof", "format: otlp, original_payload: true", false),
        ("", "format: otlp, original_payload: true", false),
    ]
    .into_iter()
    .enumerate()
    {
        let path = folder.path().join(number.to_string());
        let exporter = exporter(&path, more);
        exporter.start(&context()).await.unwrap();
        let batch = came(format);
        write(&exporter, batch.clone()).await.unwrap();
        let mut messages = valid_messages(&path);
        let request = ExportProfilesServiceRequest::decode(messages.remove(0)).unwrap();
        let profile = &request.resource_profiles[0].scope_profiles[0].profiles[0];
        let expected = if written { &b"recording"[..] } else { b"" };
        assert_eq!((&*profile.original_payload, profile.samples.len()), (expected, 1), "{format} {more}");
        assert_eq!(batch.observations(), 20);
    }
}

/// Guarantees: behind a link the file that it leads to is written and rotated, beside that file, and the link stays.
#[test]
fn links() {
    let (links, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (link, target) = (links.path().join("link.otlp"), folder.path().join("profiles.otlp"));
    std::os::unix::fs::symlink(&target, &link).unwrap();
    let mut file = Appended::open(link.clone(), Framing::Length, kept(30, 5), at(0)).unwrap();
    for n in 0..3_u8 {
        file.append(&frame(&[n; 10]), at(u64::from(n))).unwrap();
    }
    assert!(link.is_symlink());
    assert_eq!(names(links.path()), ["link.otlp"]);
    assert_eq!(names(folder.path()), ["profiles-20260101T000002.000Z.otlp", "profiles.otlp"]);
    assert_eq!(messages(&target), [&[2; 10][..]]);
}
