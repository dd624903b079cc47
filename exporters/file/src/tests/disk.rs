use std::fs::{File, Permissions};
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::time::SystemTime;

use profbridge_engine::component::Retry;
use profbridge_model::Reason;

use super::*;
use crate::config::FileRotation;
use crate::frames::MessageFile;
use profbridge_codec::otlp::Framing;

/// Guarantees: a full disk is counted under a reason of its own, and the write is retried.
#[tokio::test]
async fn full_device() {
    let exporter = exporter(Path::new("/dev/full"), "format: otlp");
    exporter.start(&context()).await.unwrap();
    let requests = requests(&exporter, chunk(1, 0));
    for _ in 0..2 {
        let error = exporter.send(&requests[0]).await.unwrap_err();
        assert_eq!((error.retry, error.reason), (Retry::Later, Reason::WriteFailed));
        assert!(error.message.starts_with("/dev/full cannot be written: No space left on device"), "{error}");
    }
}

/// Guarantees: with either format, an unwritable path fails the start, and the message names it.
#[tokio::test]
async fn bad_paths_fail_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    for more in ["", "format: otlp"] {
        let error = exporter(&file.join("below"), more).start(&context()).await.unwrap_err().to_string();
        assert!(error.starts_with(&format!("{} cannot be written: ", file.join("below").display())), "{error}");
    }
    let error = exporter(folder.path(), "format: otlp").start(&context()).await.unwrap_err().to_string();
    assert!(error.contains("cannot be written: it is a folder, and this `format` writes one file"), "{error}");
}

/// Guarantees: with either format, a folder that was removed while profbridge runs is created again, and writing
/// continues. The removed files no longer count.
#[tokio::test]
async fn a_folder_that_was_removed() {
    let folder = tempfile::tempdir().unwrap();
    for (more, name) in [("rotation: {max_files: 2}", "envelopes"), ("format: otlp", "frames/profiles.otlp")] {
        let path = folder.path().join(name);
        let exporter = exporter(&path, more);
        exporter.start(&context()).await.unwrap();
        let removed = path.ancestors().find(|above| above.parent() == Some(folder.path())).unwrap();
        for n in 0..2 {
            write(&exporter, chunk(n, 0)).await.unwrap();
        }
        std::fs::remove_dir_all(removed).unwrap();
        for n in 2..4 {
            write(&exporter, chunk(n, 0)).await.unwrap();
        }
        assert_eq!(names(removed).len(), if more.contains("otlp") { 1 } else { 2 }, "{more}");
    }
}

/// Guarantees: new files and folders are writable for the owner, readable for the group, and inaccessible to others,
/// unless the umask removes more. Existing ones keep their permissions.
#[tokio::test]
async fn rights() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let umask = status.lines().find_map(|line| line.strip_prefix("Umask:")).unwrap();
    let umask = u32::from_str_radix(umask.trim(), 8).unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let folder = tempfile::tempdir().unwrap();
    let (envelopes, file) = (folder.path().join("a/envelopes"), folder.path().join("b/profiles.otlp"));
    for (path, more) in [(&envelopes, ""), (&file, "format: otlp")] {
        let exporter = exporter(path, more);
        exporter.start(&context()).await.unwrap();
        write(&exporter, chunk(1, 0)).await.unwrap();
    }
    let envelope = envelopes.join(names(&envelopes).remove(0));
    for (path, expected) in [
        (folder.path().join("a"), 0o750),
        (envelopes, 0o750),
        (envelope, 0o640),
        (folder.path().join("b"), 0o750),
        (file.clone(), 0o640),
    ] {
        assert_eq!(mode(&path), expected & !umask, "{}", path.display());
    }
    std::fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    exporter(&file, "format: otlp").start(&context()).await.unwrap();
    assert_eq!(mode(&file), 0o600);
}

fn pipe(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("pipe");
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    path
}

/// The reading end of a pipe, opened without waiting for a writer.
fn reader(path: &Path) -> File {
    let nonblock = nix::fcntl::OFlag::O_NONBLOCK.bits();
    let file = File::options().read(true).custom_flags(nonblock).open(path).unwrap();
    nix::fcntl::fcntl(&file, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::empty())).unwrap();
    file
}

/// Guarantees: a named pipe does not block the start. Without a reader, an attempt fails with a clear message, and the
/// data arrives once a reader opens the pipe. Nothing is stored for a later reader.
#[tokio::test]
async fn a_pipe_that_nobody_reads() {
    let folder = tempfile::tempdir().unwrap();
    let path = pipe(folder.path());
    let exporter = exporter(&path, "format: otlp");
    exporter.start(&context()).await.unwrap();
    let requests = requests(&exporter, chunk(1, 0));
    let error = exporter.send(&requests[0]).await.unwrap_err();
    assert_eq!((error.retry, error.reason), (Retry::Later, Reason::WriteFailed));
    assert!(error.message.ends_with("no process reads the named pipe"), "{error}");
    let mut reader = reader(&path);
    exporter.send(&requests[0]).await.unwrap();
    let mut read = vec![0; requests[0].body.len()];
    reader.read_exact(&mut read).unwrap();
    assert_eq!(read, requests[0].body);
    // The reader is closed, and another one opens the pipe.
    drop(reader);
    let again = self::requests(&exporter, chunk(2, 0));
    exporter.send(&again[0]).await.unwrap_err();
    let mut reader = self::reader(&path);
    exporter.send(&again[0]).await.unwrap();
    let mut read = vec![0; again[0].body.len()];
    reader.read_exact(&mut read).unwrap();
    assert_eq!(read, again[0].body);
    assert_eq!(names(folder.path()), ["pipe"]);
}

/// Guarantees: an attempt with a blocked write ends at its timeout, with a message. It delays neither later attempts
/// nor the end of the runtime. Once the pipe is read, the frame arrives exactly once, complete.
#[test]
fn a_pipe_that_is_full() {
    let folder = tempfile::tempdir().unwrap();
    let path = pipe(folder.path());
    let mut reader = reader(&path);
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let exporter = exporter(&path, "format: otlp, timeout: 50ms, compression: none");
    // The frame exceeds the capacity of any pipe that was not enlarged on purpose (pipe(7)).
    let mut builder = Builder::new();
    builder.resource(&[("padding", "x".repeat(1 << 20).as_str().into())]);
    builder.scope("test", "1");
    builder.on_cpu(20);
    let frame = builder.frame("parse", "main.rs", 7);
    let stack = builder.stack(&[frame]);
    builder.sample(stack, None, None, &[1], &[]);
    let requests = requests(&exporter, builder.finish().unwrap());
    let first = runtime();
    first.block_on(async {
        // The timeout applies to the start as well, and a busy machine may exceed it.
        while exporter.start(&context()).await.is_err() {}
        for _ in 0..3 {
            let error = exporter.send(&requests[0]).await.unwrap_err();
            assert_eq!((error.retry, error.reason), (Retry::Later, Reason::WriteFailed));
            assert!(error.message.contains("taken longer than 50ms"), "{error}");
        }
    });
    // Dropping the runtime would never end if the blocked thread belonged to it.
    drop(first);
    let mut read = vec![0; requests[0].body.len()];
    reader.read_exact(&mut read).unwrap();
    assert_eq!(read, requests[0].body);
    let settled = async {
        // The thread may need a moment to notice that its write has ended.
        while exporter.send(&requests[0]).await.is_err() {}
    };
    runtime().block_on(settled);
    drop(exporter);
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).unwrap();
    assert_eq!(rest.len(), 0, "it was written once");
}

/// Guarantees: pipes and devices are written to and never renamed, however much is written. If rotation is configured
/// for one, the start fails with an explanation. Needs the right to create a device; without it, the test prints a
/// message and uses only the pipe.
#[tokio::test]
async fn devices_are_never_renamed() {
    use nix::sys::stat::{Mode, SFlag, makedev, mknod};
    let folder = tempfile::tempdir().unwrap();
    let device = folder.path().join("null");
    // The device number of `/dev/null` (`Documentation/admin-guide/devices.txt` of Linux), under another name.
    let made = mknod(&device, SFlag::S_IFCHR, Mode::S_IRUSR | Mode::S_IWUSR, makedev(1, 3));
    let usable = made.is_ok() && File::options().append(true).open(&device).is_ok();
    let path = pipe(folder.path());
    let _reader = reader(&path);
    if !usable {
        eprintln!("partly untested: a device cannot be made here");
    }
    for (path, name) in [(&path, "named pipe"), (&device, "character device")] {
        if path == &device && !usable {
            continue;
        }
        let before = std::fs::symlink_metadata(path).unwrap();
        let rotation = FileRotation { bytes: 10, backups: 0, asked_for: false };
        let mut appended = MessageFile::open(path.clone(), Framing::Length, rotation, SystemTime::now()).unwrap();
        for _ in 0..5 {
            appended.append(b"0123456789", SystemTime::now()).unwrap();
        }
        let after = std::fs::symlink_metadata(path).unwrap();
        assert_eq!((before.ino(), before.file_type()), (after.ino(), after.file_type()));
        let error =
            exporter(path, "format: otlp, rotation: {max_size: 1MiB}").start(&context()).await.unwrap_err().to_string();
        assert!(error.contains(&format!("it is a {name}, which cannot be rotated; delete `rotation`")), "{error}");
    }
    let error = exporter(&path, "").start(&context()).await.unwrap_err().to_string();
    assert!(error.contains("it is no folder, and `format: sentry` writes a folder of files"), "{error}");
    let socket = folder.path().join("socket");
    let _listens = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let error = exporter(&socket, "format: otlp").start(&context()).await.unwrap_err().to_string();
    assert!(error.contains("it is a socket"), "{error}");
    let expected = [vec!["pipe", "socket"], vec!["null", "pipe", "socket"]];
    assert!(expected.iter().any(|expected| names(folder.path()) == *expected), "{:?}", names(folder.path()));
}

/// Guarantees: if the disk becomes full during a write, partial frames and envelopes are removed, and existing data
/// stays complete. Needs the right to mount a file system; without it, the test prints a message and ends.
#[tokio::test]
async fn full_within_a_write() {
    let folder = tempfile::tempdir().unwrap();
    let mount = |arguments: &[&str]| {
        let path = folder.path().to_str().unwrap();
        let status = std::process::Command::new(arguments[0]).args(&arguments[1..]).arg(path).output();
        status.is_ok_and(|output| output.status.success())
    };
    if !mount(&["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs"]) {
        std::io::Write::write_fmt(
            &mut std::io::stderr(),
            format_args!("untested here: a file system cannot be mounted here\n"),
        )
        .ok();
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
    frames.start(&context()).await.unwrap();
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
    let started = envelopes.start(&context()).await;
    let written = match started {
        Ok(()) => write(&envelopes, chunk(1, 0)).await.map_err(|error| error.message),
        Err(error) => Err(error.to_string()),
    };
    assert!(written.unwrap_err().contains("No space left on device"));
    assert_eq!(names(&folder.path().join("envelopes")), [""; 0]);

    // After space was freed, the same exporters can write again.
    std::fs::remove_file(&path).unwrap();
    write(&frames, chunk(1, 0)).await.unwrap();
    assert!(path.exists());
    envelopes.start(&context()).await.unwrap();
    write(&envelopes, chunk(1, 0)).await.unwrap();
    assert_eq!(names(&folder.path().join("envelopes")).len(), 1);
}
