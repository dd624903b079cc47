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

/// Guarantees: links that somebody planted, under the result's name and under one with `.part`, lead nowhere and are
/// not replaced: what they point to stays as it is, and the way out is said.
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

/// Guarantees: no file is created through a link, neither one that leads to a file nor one that leads nowhere.
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

/// Guarantees: somebody's own file that ends with `.part` survives, whether the result is written or fails, and a
/// failure leaves nothing behind, nor harms the result from before.
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
    // Whoever panics while writing leaves nothing either.
    drop(Unfinished::beside(&inside("b.svg")).unwrap());
    assert_eq!(names(folder.path()), ["a.svg", "a.svg.part"]);
}

/// Guarantees: a result has the mode of any new file: 0666 without what the umask takes.
#[test]
fn mode() {
    let folder = tempfile::tempdir().unwrap();
    let mode = |name: &str| fs::metadata(folder.path().join(name)).unwrap().permissions().mode();
    File::create(folder.path().join("usual")).unwrap();
    write(&folder.path().join("a.svg"), "graph").unwrap();
    assert_eq!(mode("a.svg"), mode("usual"));
}

/// Guarantees: a pipe gets the result and stays the pipe it was, also behind a link, whose own name stays as well.
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

/// Guarantees: a device gets the result and stays the device it was. Needs the right to make one; without it the test
/// says so.
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

/// Guarantees: a folder and a socket are refused in words, and stay.
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
