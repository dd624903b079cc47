use profbridge_engine::component::Retry;
use profbridge_model::Reason;

use super::*;

/// Guarantees: a full disk is told as such, under its own reason, and tried again.
#[tokio::test]
async fn full_device() {
    let exporter = exporter(Path::new("/dev/full"), "format: otlp");
    exporter.start().await.unwrap();
    let requests = requests(&exporter, chunk(1, 0));
    for _ in 0..2 {
        let error = exporter.send(&requests[0]).await.unwrap_err();
        assert_eq!((error.retry, error.reason), (Retry::Later, Reason::WriteFailed));
        assert!(error.message.starts_with("/dev/full cannot be written: No space left on device"), "{error}");
    }
}

/// Guarantees: a path that cannot be written fails the start and is named, by either format.
#[tokio::test]
async fn bad_paths_fail_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    for more in ["", "format: otlp"] {
        let error = exporter(&file.join("below"), more).start().await.unwrap_err().to_string();
        assert!(error.starts_with(&format!("{} cannot be written: ", file.join("below").display())), "{error}");
    }
    let error = exporter(folder.path(), "format: otlp").start().await.unwrap_err().to_string();
    assert!(error.contains("cannot be written: Is a directory"), "{error}");
}

/// Guarantees: a folder that somebody removed fails the attempts and nothing else; once it is back, writing goes on.
#[tokio::test]
async fn a_folder_that_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("envelopes");
    let exporter = exporter(&path, "");
    exporter.start().await.unwrap();
    std::fs::remove_dir(&path).unwrap();
    let requests = requests(&exporter, chunk(1, 0));
    let error = exporter.send(&requests[0]).await.unwrap_err();
    assert_eq!((error.retry, error.reason), (Retry::Later, Reason::WriteFailed));
    std::fs::create_dir(&path).unwrap();
    exporter.send(&requests[0]).await.unwrap();
    assert_eq!(names(&path).len(), 1);
}

/// Guarantees: on a disk that is full within a write, half a frame and half an envelope are taken back, and what was
/// there before stays whole. Needs the right to mount a file system; without it the test says so and ends.
#[tokio::test]
async fn full_within_a_write() {
    let folder = tempfile::tempdir().unwrap();
    let mount = |arguments: &[&str]| {
        let path = folder.path().to_str().unwrap();
        let status = std::process::Command::new(arguments[0]).args(&arguments[1..]).arg(path).output();
        status.is_ok_and(|output| output.status.success())
    };
    if !mount(&["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs"]) {
        eprintln!("skipped: a file system cannot be mounted here");
        return;
    }
    struct Unmount<'a>(&'a dyn Fn(&[&str]) -> bool);
    impl Drop for Unmount<'_> {
        fn drop(&mut self) {
            (self.0)(&["umount"]);
        }
    }
    let _unmount = Unmount(&mount);

    std::fs::create_dir(folder.path().join("envelopes")).unwrap();
    let path = folder.path().join("profiles.otlp");
    let frames = exporter(&path, "format: otlp");
    frames.start().await.unwrap();
    let mut whole = 0;
    let error = loop {
        match write(&frames, chunk(whole, 0)).await {
            Ok(()) => whole += 1,
            Err(error) => break error,
        }
    };
    assert_eq!((error.retry, error.reason), (Retry::Later, Reason::WriteFailed));
    assert!(error.message.contains("No space left on device"), "{error}");
    let file = std::fs::read(&path).unwrap();
    let found = profbridge_wire::otlp::delimited::frames(file.into()).map(Result::unwrap).count();
    assert!(whole > 0 && found as u128 == whole);

    let envelopes = exporter(&folder.path().join("envelopes"), "");
    let started = envelopes.start().await;
    let written = match started {
        Ok(()) => write(&envelopes, chunk(1, 0)).await.map_err(|error| error.message),
        Err(error) => Err(error.to_string()),
    };
    assert!(written.unwrap_err().contains("No space left on device"));
    assert_eq!(names(&folder.path().join("envelopes")), [""; 0]);

    // Room is made: the same exporters go on.
    std::fs::remove_file(&path).unwrap();
    write(&frames, chunk(1, 0)).await.unwrap();
    assert!(path.exists());
    envelopes.start().await.unwrap();
    write(&envelopes, chunk(1, 0)).await.unwrap();
    assert_eq!(names(&folder.path().join("envelopes")).len(), 1);
}
