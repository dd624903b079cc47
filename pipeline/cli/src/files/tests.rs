use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;

use super::*;

/// The names in a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn write(path: &Path, text: &str) -> Result<u64, Failure> {
    write_file(path, |file| file.write_all(text.as_bytes()))
}

/// Guarantees: links planted under the result's name, or under a name with `.part`, are neither followed nor replaced:
/// their targets are unchanged, and the message says what to do.
#[test]
fn planted_links() {
    let folder = tempfile::tempdir().unwrap();
    let inside = |name: &str| folder.path().join(name);
    fs::write(inside("passwd"), "root").unwrap();
    for (link, leads_to) in [("a.svg", "passwd"), ("a.svg.part", "passwd"), ("b.svg", "nothing")] {
        symlink(leads_to, inside(link)).unwrap();
    }
    for (link, leads_to) in [("a.svg", "passwd"), ("b.svg", "nothing")] {
        let Failure(why) = write(&inside(link), "graph").unwrap_err();
        assert!(why.contains("symbolic link") && why.ends_with(leads_to), "{why}");
        assert!(inside(link).is_symlink() && check(&inside(link)).is_err());
    }
    assert_eq!(fs::read_to_string(inside("passwd")).unwrap(), "root");
    assert!(inside("a.svg.part").is_symlink(), "not ours to remove");
    assert_eq!(names(folder.path()), ["a.svg", "a.svg.part", "b.svg", "passwd"]);
}

/// Guarantees: no file is created through a link, whether it leads to a file or to nothing.
#[test]
fn links_are_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    let inside = |name: &str| folder.path().join(name);
    fs::write(inside("passwd"), "root").unwrap();
    for (link, leads_to) in [("there", "passwd"), ("nowhere", "new")] {
        symlink(leads_to, inside(link)).unwrap();
        assert_eq!(create(&inside(link)).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }
    assert_eq!(fs::read_to_string(inside("passwd")).unwrap(), "root");
    assert_eq!(names(folder.path()), ["nowhere", "passwd", "there"]);
}

/// Guarantees: a foreign file with the extension `.part` survives, whether writing succeeds or fails. A failure leaves
/// no partial file, and keeps the existing result.
#[test]
fn nothing_else_is_touched() {
    let folder = tempfile::tempdir().unwrap();
    let inside = |name: &str| folder.path().join(name);
    fs::write(inside("a.svg.part"), "mine").unwrap();
    assert_eq!(write(&inside("a.svg"), "graph").unwrap(), 5);
    let Failure(why) = write_file(&inside("a.svg"), |file| {
        file.write_all(b"half")?;
        Err(io::Error::other("no more"))
    })
    .unwrap_err();
    assert!(why.contains("a.svg") && why.contains("no more"), "{why}");
    assert_eq!(fs::read_to_string(inside("a.svg")).unwrap(), "graph");
    assert_eq!(fs::read_to_string(inside("a.svg.part")).unwrap(), "mine");
    assert_eq!(names(folder.path()), ["a.svg", "a.svg.part"]);
    // A panic while writing leaves no partial file either.
    drop(Unfinished::beside(&inside("b.svg")).unwrap());
    assert_eq!(names(folder.path()), ["a.svg", "a.svg.part"]);
}

/// Guarantees: a result has the mode of any new file: 0666 minus the umask.
#[test]
fn mode() {
    let folder = tempfile::tempdir().unwrap();
    let mode = |name: &str| fs::metadata(folder.path().join(name)).unwrap().permissions().mode();
    File::create(folder.path().join("usual")).unwrap();
    write(&folder.path().join("a.svg"), "graph").unwrap();
    assert_eq!(mode("a.svg"), mode("usual"));
}

/// Guarantees: a result is written to a pipe in place, also through a link, which stays as well.
#[test]
fn pipes() {
    use nix::sys::stat::Mode;
    let folder = tempfile::tempdir().unwrap();
    let inside = |name: &str| folder.path().join(name);
    nix::unistd::mkfifo(&inside("pipe"), Mode::S_IRWXU).unwrap();
    symlink("pipe", inside("link")).unwrap();
    let before = fs::symlink_metadata(inside("pipe")).unwrap();
    for name in ["pipe", "link"] {
        let path = inside(name);
        check(&path).unwrap();
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            File::open(path).unwrap().read_to_string(&mut text).unwrap();
            text
        });
        assert_eq!(write(&inside(name), "graph").unwrap(), 5);
        assert_eq!(reader.join().unwrap(), "graph");
    }
    let after = fs::symlink_metadata(inside("pipe")).unwrap();
    assert_eq!((before.ino(), before.file_type()), (after.ino(), after.file_type()));
    assert_eq!(names(folder.path()), ["link", "pipe"]);
}

/// Guarantees: a result is written to a device in place. Needs the right to create a device; without it, the test
/// prints a message.
#[test]
fn devices() {
    use nix::sys::stat::{Mode, SFlag, makedev, mknod};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("null");
    // The device that `/dev/null` is (`Documentation/admin-guide/devices.txt` of Linux), under another name.
    let made = mknod(&path, SFlag::S_IFCHR, Mode::S_IRUSR | Mode::S_IWUSR, makedev(1, 3));
    if made.is_err() || File::options().write(true).open(&path).is_err() {
        println!("untested: a device cannot be made here");
        return;
    }
    let before = fs::symlink_metadata(&path).unwrap();
    check(&path).unwrap();
    assert_eq!(write(&path, "graph").unwrap(), 5);
    let after = fs::symlink_metadata(&path).unwrap();
    assert_eq!((before.ino(), before.file_type()), (after.ino(), after.file_type()));
    assert_eq!(names(folder.path()), ["null"]);
}

/// Guarantees: it is no error if the reader of standard output stops early, as for printed lines, but it is one if
/// nothing can be written. The message then does not claim that the result was written.
#[test]
fn standard_output() {
    let text = vec![b'x'; 1 << 20];
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let writer = || std::os::fd::OwnedFd::from(writer.try_clone().unwrap()).into();
    let written = write_standard(writer(), |file| file.write_all(&text)).unwrap();
    assert!(written < 1 << 20, "{written}");
    assert_eq!(write_standard(writer(), |file| file.write_all(b"few")).unwrap(), 3);
    let said = |path| terminal::written(Path::new(path), || "wrote it".to_owned());
    assert_eq!(said(STANDARD), "standard output: the reader closed it after 0 B");
    assert_eq!(said("a.svg"), "wrote it");
    let full = File::options().write(true).open("/dev/full").unwrap();
    let error = write_standard(full, |file| file.write_all(b"few")).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
}

/// Guarantees: a folder and a socket are refused with a clear message, and stay.
#[test]
fn neither_file_nor_stream() {
    let folder = tempfile::tempdir().unwrap();
    let inside = |name: &str| folder.path().join(name);
    fs::create_dir(inside("folder")).unwrap();
    let _listens = UnixListener::bind(inside("socket")).unwrap();
    for (name, what) in [("folder", "it is a folder; name a file in it"), ("socket", "it is a socket")] {
        let Failure(why) = write(&inside(name), "graph").unwrap_err();
        assert!(why.contains(what), "{why}");
        assert!(check(&inside(name)).unwrap_err().to_string().contains(what));
    }
    assert_eq!(names(folder.path()), ["folder", "socket"]);
}

/// Guarantees: several results are renamed together: if one cannot be written or renamed, only the existing files
/// remain. A pipe is written at once.
#[test]
fn results() {
    let folder = tempfile::tempdir().unwrap();
    let inside = |name: &str| folder.path().join(name);
    let all = |names: &[&str], fails: bool| {
        let mut results = Results::default();
        for name in names {
            results.add(inside(name), |file| file.write_all(name.as_bytes()))?;
        }
        if fails {
            results.add(inside("broken"), |_| Err(io::Error::other("no more")))?;
        }
        results.finish()
    };
    fs::write(inside("a"), "before").unwrap();
    assert!(all(&["a", "b"], true).is_err());
    assert_eq!((fs::read_to_string(inside("a")).unwrap().as_str(), names(folder.path())), ("before", vec!["a".into()]));
    // The obstacle exists before writing, or appears afterwards.
    fs::create_dir(inside("c")).unwrap();
    let Failure(why) = all(&["a", "c"], false).unwrap_err();
    assert!(why.contains("c: it is a folder"), "{why}");
    let mut results = Results::default();
    for name in ["a", "d"] {
        results.add(inside(name), |file| file.write_all(b"after")).unwrap();
    }
    fs::create_dir(inside("d")).unwrap();
    assert!(results.finish().is_err());
    assert_eq!(fs::read_to_string(inside("a")).unwrap(), "before");
    assert_eq!(names(folder.path()), ["a", "c", "d"]);
    nix::unistd::mkfifo(&inside("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let pipe = inside("pipe");
    let reader = std::thread::spawn(move || fs::read_to_string(pipe).unwrap());
    let files = all(&["a", "pipe", "b"], false).unwrap();
    assert_eq!(files, [("a", 1), ("pipe", 4), ("b", 1)].map(|(name, size)| (inside(name), size)));
    assert_eq!(reader.join().unwrap(), "pipe");
    assert_eq!(["a", "b"].map(|name| fs::read_to_string(inside(name)).unwrap()), ["a", "b"]);
    assert_eq!(names(folder.path()), ["a", "b", "c", "d", "pipe"]);
}
