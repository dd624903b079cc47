use std::io::Read as _;
use std::time::{Duration, SystemTime};

use profbridge_model::{Envelope, Quantities, Reason};
use profbridge_testkit as testing;
use profbridge_wire::sentry::envelope::{self, ItemHeader};

use super::*;
use crate::envelopes::EnvelopeFolder;
use crate::name;

/// Guarantees: each chunk is a separate file with a descriptive name, which a parser of envelopes accepts.
#[tokio::test]
async fn one_file_per_chunk() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("made/on/the/way");
    let exporter = exporter(&path, "environment: test");
    exporter.start(&context()).await.unwrap();
    write(&exporter, chunk(1, 0)).await.unwrap();
    write(&exporter, chunk(2, 61)).await.unwrap();
    let names = names(&path);
    assert_eq!(names.len(), 2);
    assert!(
        names[0].starts_with("20260101T000000.000Z-") && names[1].starts_with("20260101T000101.000Z-"),
        "{names:?}"
    );
    for name in names {
        assert!(name::is_envelope(&name), "{name}");
        let parsed = envelope::read(std::fs::read(path.join(&name)).unwrap().into()).unwrap();
        let [item] = &parsed.envelope.items[..] else { panic!("{:?}", parsed.envelope) };
        let header = ItemHeader::read(&item.header).unwrap();
        assert!(header.is_profile_chunk());
        let chunk = String::from_utf8(item.payload.plain().unwrap().to_vec()).unwrap();
        let profiler = name.split('-').nth(1).unwrap();
        assert!(chunk.contains(&format!(r#""profiler_id":"{profiler}"#)), "{chunk}");
        assert!(chunk.contains(r#""environment":"test""#), "{chunk}");
    }
}

/// Guarantees: nothing is lost without being counted, in either format.
#[test]
fn conserves() {
    let folder = tempfile::tempdir().unwrap();
    let windowed = |mut batch: Profiles| {
        batch.window.clone_from(&chunk(1, 0).window);
        batch
    };
    let envelopes = exporter(&folder.path().join("envelopes"), "compression: gzip");
    testing::check_prepare(&envelopes, 3, |random, now| windowed(testing::profiles(random, 50, now)).into());
    let frames = exporter(&folder.path().join("frames"), "format: otlp, compression: zstd");
    testing::check_prepare(&frames, 3, |random, now| testing::telemetry(random, 50, now));
    let lines = exporter(&folder.path().join("lines"), "format: json");
    testing::check_prepare(&lines, 3, |random, now| testing::telemetry(random, 50, now));
}

/// Guarantees: a batch that was not split by process and window is counted and not written.
#[test]
fn uncut() {
    let folder = tempfile::tempdir().unwrap();
    let mut batch = chunk(1, 0);
    batch.window = None;
    let prepared = exporter(folder.path(), "").prepare(&batch.into(), ManualClock::default().now());
    assert!(prepared.requests.is_empty());
    assert_eq!(prepared.losses.get(Reason::ChunkRule).total(), 20);
}

/// Guarantees: a retry, or preparing the same chunk again, replaces the file instead of adding one.
#[tokio::test]
async fn the_same_chunk_is_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let exporter = exporter(folder.path(), "");
    exporter.start(&context()).await.unwrap();
    let first = requests(&exporter, chunk(1, 0));
    exporter.send(&first[0]).await.unwrap();
    exporter.send(&first[0]).await.unwrap();
    write(&exporter, chunk(1, 0)).await.unwrap();
    assert_eq!(names(folder.path()).len(), 1);
}

/// Guarantees: names of compressed envelopes show the compression, and the content is the same.
/// rule: otep-0239#gzip-on-disk
#[tokio::test]
async fn compressed() {
    let folder = tempfile::tempdir().unwrap();
    let mut unpacked = Vec::new();
    for (compression, ending) in [("none", ".envelope"), ("gzip", ".envelope.gz"), ("zstd", ".envelope.zst")] {
        let path = folder.path().join(compression);
        let exporter = exporter(&path, &format!("compression: {compression}"));
        exporter.start(&context()).await.unwrap();
        write(&exporter, chunk(1, 0)).await.unwrap();
        let name = names(&path).remove(0);
        assert!(name.ends_with(ending), "{name}");
        let bytes = std::fs::read(path.join(name)).unwrap();
        let mut text = String::new();
        match compression {
            "gzip" => flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut text).unwrap(),
            "zstd" => zstd::stream::read::Decoder::new(&bytes[..]).unwrap().read_to_string(&mut text).unwrap(),
            _ => (&bytes[..]).read_to_string(&mut text).unwrap(),
        };
        unpacked.push(text);
    }
    assert!(unpacked[0].contains("profile_chunk"));
    assert_eq!(unpacked[0], unpacked[1]);
    assert_eq!(unpacked[0], unpacked[2]);
}

/// Guarantees: a received envelope is written unchanged, including unknown items, and counted in items.
#[tokio::test]
async fn forwarded_envelopes() {
    let folder = tempfile::tempdir().unwrap();
    let exporter = exporter(folder.path(), "");
    exporter.start(&context()).await.unwrap();
    let items = vec![envelope::item("transaction", None, &b"{}"[..]), envelope::item("novelty", None, &b"\x00\n"[..])];
    let envelope = Envelope { header: br#"{"event_id":"a"}"#[..].into(), items, ..Envelope::default() };
    let request = &requests(&exporter, envelope.clone())[0];
    assert_eq!(request.quantities, Quantities::items(2));
    write(&exporter, envelope.clone()).await.unwrap();
    let name = names(folder.path()).remove(0);
    assert!(name::is_envelope(&name), "{name}");
    let parsed = envelope::read(std::fs::read(folder.path().join(name)).unwrap().into()).unwrap();
    assert_eq!((parsed.envelope.header, parsed.envelope.items), (envelope.header, envelope.items));
}

/// Guarantees: the oldest envelopes are removed first, by number and by size, including those from before the start.
/// Foreign files stay and do not count.
#[test]
fn rotation() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let at = |second: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + second);
    let name =
        |n: u64| name::envelope(n, &format!("{n:08x}"), "00000000", profbridge_net::compression::Compression::None);
    std::fs::write(path.join("notes.txt"), "mine").unwrap();
    std::fs::create_dir(path.join(name(99))).unwrap();
    let mut by_number = EnvelopeFolder::open(path.to_owned(), 3, 1 << 20, at(0)).unwrap();
    for n in 1..=5 {
        // The names are sorted in the opposite order of the files' ages.
        by_number.write(&name(10 - n), b"0123456789", at(n)).unwrap();
    }
    let expected = |kept: &[u64]| {
        let mut expected: Vec<_> = kept.iter().map(|&n| name(n)).chain(["notes.txt".to_owned(), name(99)]).collect();
        expected.sort_unstable();
        expected
    };
    assert_eq!(names(path), expected(&[7, 6, 5]));

    // For the same folder opened with other limits, ages are read from the files.
    for (n, second) in [(7, 3), (6, 1), (5, 2)] {
        let file = std::fs::File::options().write(true).open(path.join(name(n))).unwrap();
        file.set_modified(at(second)).unwrap();
    }
    let mut by_size = EnvelopeFolder::open(path.to_owned(), 100, 25, at(10)).unwrap();
    assert_eq!(names(path), expected(&[7, 5]));
    by_size.write(&name(20), b"01234", at(11)).unwrap();
    assert_eq!(names(path), expected(&[7, 5, 20]));
    // A file above the limit is kept if it is the only one, and a missing file causes no error.
    std::fs::remove_file(path.join(name(5))).unwrap();
    by_size.write(&name(21), &[b'x'; 100], at(12)).unwrap();
    assert_eq!(names(path), expected(&[21]));
}

/// Guarantees: a replaced file is not counted twice.
#[test]
fn replacing_is_not_adding() {
    let folder = tempfile::tempdir().unwrap();
    let now = SystemTime::now();
    let mut files = EnvelopeFolder::open(folder.path().to_owned(), 10, 25, now).unwrap();
    let [a, b] =
        [1, 2].map(|n| name::envelope(n, "00000000", "00000000", profbridge_net::compression::Compression::None));
    let [a, b] = [a.replace(".000Z", ".001Z"), b.replace(".000Z", ".002Z")];
    files.write(&a, b"0123456789", now).unwrap();
    for _ in 0..10 {
        files.write(&b, b"0123456789", now).unwrap();
    }
    assert_eq!(names(folder.path()), [a, b]);
}

/// Guarantees: a partial file of a killed process never has an envelope's name, and is removed at a later start.
/// Unfinished files of running processes and foreign files stay.
#[tokio::test]
async fn leftovers_of_a_killed_process() {
    let folder = tempfile::tempdir().unwrap();
    let name = |n: u64| {
        name::temporary(&name::envelope(
            n,
            "00000000",
            &format!("{n:08x}"),
            profbridge_net::compression::Compression::None,
        ))
    };
    let (old, fresh, other) = (name(1), name(2), ".notes.tmp".to_owned());
    for name in [&old, &fresh, &other] {
        std::fs::write(folder.path().join(name), "half").unwrap();
        assert!(!name::is_envelope(name));
    }
    let hour_ago = SystemTime::now() - Duration::from_secs(3600);
    for name in [&old, &other] {
        std::fs::File::options().write(true).open(folder.path().join(name)).unwrap().set_modified(hour_ago).unwrap();
    }
    exporter(folder.path(), "").start(&context()).await.unwrap();
    let mut expected = vec![fresh, other];
    expected.sort_unstable();
    assert_eq!(names(folder.path()), expected);
}

/// Guarantees: a reader sees only complete envelopes, at any time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_see_whole_envelopes() {
    let folder = tempfile::tempdir().unwrap();
    let exporter = exporter(folder.path(), "rotation: {max_files: 5}");
    exporter.start(&context()).await.unwrap();
    let path = folder.path().to_owned();
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let reader = std::thread::spawn(move || {
        let mut read = 0;
        loop {
            // The last iteration checks the final state.
            let last = stopped.try_recv() != Err(std::sync::mpsc::TryRecvError::Empty);
            for name in names(&path).into_iter().filter(|name| name.ends_with(".envelope")) {
                // The rotation may have removed the file meanwhile.
                let Ok(bytes) = std::fs::read(path.join(name)) else { continue };
                assert!(bytes.ends_with(b"}\n"), "{}", String::from_utf8_lossy(&bytes));
                read += 1;
            }
            if last {
                break;
            }
        }
        read
    });
    for n in 0..200 {
        write(&exporter, chunk(n, n as u64)).await.unwrap();
    }
    drop(stop);
    assert!(reader.join().unwrap() > 0);
    assert_eq!(names(folder.path()).len(), 5);
}
