use std::os::unix::fs::{PermissionsExt, symlink};

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

/// Guarantees: links that somebody planted, under the result's name and under one with `.part`, lead nowhere: what they point
/// to stays as it is, and the result is a file.
#[test]
fn planted_links() {
    let folder = tempfile::tempdir().unwrap();
    let inside = |name: &str| folder.path().join(name);
    fs::write(inside("passwd"), "root").unwrap();
    for name in ["a.svg", "a.svg.part"] {
        symlink("passwd", inside(name)).unwrap();
    }
    assert_eq!(write(&inside("a.svg"), "graph").unwrap(), 5);
    assert_eq!(fs::read_to_string(inside("passwd")).unwrap(), "root");
    assert!(inside("a.svg").symlink_metadata().unwrap().is_file());
    assert!(inside("a.svg.part").is_symlink(), "not ours to remove");
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

/// Guarantees: somebody's own file that ends with `.part` survives, whether the result is written or fails, and a failure leaves
/// nothing behind, nor harms the result from before.
#[test]
fn nothing_else_is_touched() {
    let folder = tempfile::tempdir().unwrap();
    let inside = |name: &str| folder.path().join(name);
    fs::write(inside("a.svg.part"), "mine").unwrap();
    write(&inside("a.svg"), "graph").unwrap();
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
