use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use profbridge_model::{Envelope, ItemView, Quantities, Reason};
use profbridge_testkit::profcheck::assert_valid;
use profbridge_wire::otlp::{self, EncodeOptions, Limits, delimited};

use super::*;
use crate::config::FileRotation;
use crate::frames::MessageFile;
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

/// The messages in a file, after a check against the rules of OTLP.
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

/// Guarantees: requests are appended as frames, also after restarts: unchanged data as it was received, other data
/// encoded again, and envelopes as the profiles in them.
#[tokio::test]
async fn appends() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("made/profiles.otlp");
    // The message has an unknown field, which is lost if the message is encoded again.
    let mut message = otlp::encode(&chunk(1, 0), &EncodeOptions::default());
    message.extend([0x7a, 1, 1]);
    let received = otlp::decode(message.into(), &Limits::default()).unwrap().profiles;
    for _ in 0..2 {
        let exporter = exporter(&path, "format: otlp");
        exporter.start(&context()).await.unwrap();
        write(&exporter, received.clone()).await.unwrap();
        let views = vec![ItemView::profiles(0, chunk(2, 0)), ItemView::profiles(1, chunk(3, 0))];
        write(&exporter, Envelope { views, ..Envelope::default() }).await.unwrap();
    }
    let messages = valid_messages(&path);
    assert_eq!(messages.len(), 6);
    assert_eq!(Some(&messages[0]), received.received.as_ref());
    for message in messages {
        assert_eq!(otlp::decode(message, &Limits::default()).unwrap().profiles.observations(), 20);
    }
}

/// Guarantees: items of an envelope that were not parsed cannot be written to a frame, and are counted as lost.
#[test]
fn unread_items_are_counted() {
    let exporter = exporter(Path::new("profiles.otlp"), "format: otlp");
    let items = vec![profbridge_wire::sentry::envelope::item("event", None, &b"{}"[..]); 3];
    let envelope = Envelope { items, views: vec![ItemView::profiles(0, chunk(1, 0))], ..Envelope::default() };
    let prepared = exporter.prepare(&envelope.into(), ManualClock::default().now());
    assert_eq!((prepared.requests.len(), prepared.requests[0].quantities), (1, Quantities::observations(20)));
    assert_eq!(prepared.losses.get(Reason::Unroutable), Quantities::items(2));
    assert_eq!(prepared.losses.total(), Quantities::items(2));
}

/// Guarantees: each message is compressed separately.
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

/// Guarantees: with `format: json` each request is a JSON line, also after restarts. With compression, each request is
/// a frame.
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

/// Guarantees: a file that a killed process left with a partial line, or that is not JSON lines, is moved to a backup
/// unchanged, and a new file is started.
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
        let mut file = MessageFile::open(path.clone(), Framing::Line, kept(1 << 20, 5), at(3)).unwrap();
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

/// Guarantees: a file that would become too large is moved to a backup whose name contains the time, and which has only
/// complete frames. The oldest backups are removed, but no foreign files.
#[test]
fn rotation() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("profiles.otlp");
    for other in ["profiles-old.otlp", "other-20260101T000000.000Z.otlp", "profiles-20260101T000000.000Z.txt"] {
        std::fs::write(folder.path().join(other), "mine").unwrap();
    }
    let mut file = MessageFile::open(path.clone(), Framing::Length, kept(30, 2), at(0)).unwrap();
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

/// Guarantees: a file that a killed process left with a partial frame, or with a block of zeros at its end, is moved to
/// a backup unchanged, and a new file is started.
#[test]
fn torn_files_are_set_aside() {
    for torn in [&b"\0\0\0"[..], b"\0\0\0\x09ab", &[0; 64]] {
        let folder = tempfile::tempdir().unwrap();
        let path: PathBuf = folder.path().join("profiles.otlp");
        let before = [&frame(b"whole")[..], torn].concat();
        std::fs::write(&path, &before).unwrap();
        let mut file = MessageFile::open(path.clone(), Framing::Length, kept(1 << 20, 5), at(3)).unwrap();
        file.append(&frame(b"next"), at(4)).unwrap();
        assert_eq!(messages(&path), [&b"next"[..]]);
        let backup = folder.path().join("profiles-20260101T000003.000Z.otlp");
        assert_eq!(std::fs::read(backup).unwrap(), before);
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("profiles.otlp");
    std::fs::write(&path, frame(b"whole")).unwrap();
    MessageFile::open(path.clone(), Framing::Length, kept(1 << 20, 5), at(3))
        .unwrap()
        .append(&frame(b"next"), at(4))
        .unwrap();
    assert_eq!(messages(&path), [&b"whole"[..], b"next"]);
}

/// Guarantees: a timed-out attempt and its retry write only one frame.
#[tokio::test]
async fn dropped_attempts_do_not_write_twice() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("profiles.otlp");
    let exporter = exporter(&path, "format: otlp");
    exporter.start(&context()).await.unwrap();
    let requests = requests(&exporter, chunk(1, 0));
    for _ in 0..20 {
        // Polled once, so that the write has started, then dropped.
        let mut attempt = exporter.send(&requests[0]);
        let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(attempt.as_mut().poll(cx).is_ready())).await;
        drop((polled, attempt));
    }
    exporter.send(&requests[0]).await.unwrap();
    assert_eq!(messages(&path).len(), 1);
}

/// Guarantees: if the file was moved or removed, a new one is created, so that data is not written to a file that has
/// no name any more.
#[test]
fn a_file_that_was_moved_away() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("profiles.otlp");
    let mut file = MessageFile::open(path.clone(), Framing::Length, kept(1 << 20, 5), at(0)).unwrap();
    file.append(&frame(b"one"), at(1)).unwrap();
    std::fs::rename(&path, folder.path().join("moved.otlp")).unwrap();
    file.append(&frame(b"two"), at(2)).unwrap();
    assert_eq!(messages(&folder.path().join("moved.otlp")), [&b"one"[..]]);
    assert_eq!(messages(&path), [&b"two"[..]]);
    std::fs::remove_file(&path).unwrap();
    file.append(&frame(b"three"), at(3)).unwrap();
    assert_eq!(messages(&path), [&b"three"[..]]);
}

/// Guarantees: if the path is a symbolic link, its target is written and rotated, backups are next to the target, and
/// the link stays.
#[test]
fn links() {
    let (links, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (link, target) = (links.path().join("link.otlp"), folder.path().join("profiles.otlp"));
    std::os::unix::fs::symlink(&target, &link).unwrap();
    let mut file = MessageFile::open(link.clone(), Framing::Length, kept(30, 5), at(0)).unwrap();
    for n in 0..3_u8 {
        file.append(&frame(&[n; 10]), at(u64::from(n))).unwrap();
    }
    assert!(link.is_symlink());
    assert_eq!(names(links.path()), ["link.otlp"]);
    assert_eq!(names(folder.path()), ["profiles-20260101T000002.000Z.otlp", "profiles.otlp"]);
    assert_eq!(messages(&target), [&[2; 10][..]]);
}
