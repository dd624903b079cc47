use std::sync::Arc;

use super::*;
use crate::names::FileId;

fn finder(hosts: &[&str]) -> Finder {
    Finder { processes: true, fuse: true, hosts: hosts.iter().map(|&host| host.to_owned()).collect() }
}

/// Guarantees: a process is searched for if its host is this machine or, without a host, if its peer is on this
/// machine.
#[test]
fn processes_of_this_machine() {
    let finder = finder(&["Node-1", "0123456789abcdef"]);
    let process = |hosts: &[&str], peer: Option<&str>| MappingProcess {
        hosts: hosts.iter().map(|&host| Arc::from(host)).collect(),
        peer: peer.map(Arc::from),
        ..MappingProcess::default()
    };
    let rows: [(&[&str], Option<&str>, bool); 9] = [
        (&["node-1"], Some("192.0.2.1"), true),
        (&["unknown", "0123456789abcdef"], Some("192.0.2.1"), true),
        (&["node-2"], Some("127.0.0.1"), false),
        (&[], Some("127.0.0.9"), true),
        (&[], Some("::1"), true),
        (&[], Some("::ffff:127.0.0.1"), true),
        (&[], Some("192.0.2.1"), false),
        (&[], Some("capture.otlp"), true),
        (&[], None, true),
    ];
    for (hosts, peer, expected) in rows {
        assert_eq!(finder.is_here(&process(hosts, peer)), expected, "{hosts:?} {peer:?}");
    }
}

/// Guarantees: lines of a memory map are parsed, including paths with spaces and deleted files; other lines are
/// ignored.
#[test]
fn lines_of_a_memory_map() {
    let found = |line: &str| mapping(line.as_bytes());
    let pair = |range: &str, path: &str| Some((range.to_owned(), path.to_owned()));
    let line = "55d0c0a00000-55d0c0a2a000 r-xp 0002a000 08:01 1835 /opt/my app/bin/app";
    assert_eq!(found(line), pair("55d0c0a00000-55d0c0a2a000", "/opt/my app/bin/app"));
    assert_eq!(found("1000-2000 r-xp 0 08:01 7 /app (deleted)"), pair("1000-2000", "/app"));
    assert_eq!(found("1000-2000 r-xp 0 00:00 0 [vdso]"), None);
    assert_eq!(found("1000-2000 rw-p 0 00:00 0"), None);
}

/// Guarantees: a link cannot lead out of a root, and only regular files are opened: a pipe would block.
#[test]
fn nothing_leads_out_of_a_root() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    std::fs::create_dir_all(root.join("bin")).unwrap();
    std::fs::write(folder.path().join("secret"), "outside").unwrap();
    std::fs::write(root.join("bin/app"), "inside").unwrap();
    let link = |to: &Path, at: &str| std::os::unix::fs::symlink(to, root.join(at)).unwrap();
    link(&folder.path().join("secret"), "absolute");
    link(Path::new("../../secret"), "relative");
    link(Path::new("/bin/app"), "inside");
    link(Path::new("/proc/self/exe"), "magic");
    nix::unistd::mkfifo(&root.join("pipe"), nix::sys::stat::Mode::S_IRUSR).unwrap();
    let opened = root_folder(&root).unwrap();
    for path in ["/absolute", "/relative", "../secret", "/../../secret", "/magic", "/pipe", "/bin", "/dev/null"] {
        assert!(open_in_root(&opened, Path::new(path), true).is_err(), "{path}");
    }
    for path in ["/bin/app", "/inside"] {
        let mut text = String::new();
        open_in_root(&opened, Path::new(path), true).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "inside");
    }
}

/// Guarantees: this process finds its own executable by base name and id, through its memory map. With another id, or
/// if the use of processes is disabled, nothing is found.
#[test]
fn finds_a_mapped_file() {
    let own = std::env::current_exe().unwrap();
    let name = own.file_name().unwrap().to_str().unwrap();
    let executable = File::open(&own).unwrap();
    let hash = identify::id_of(&executable);
    let process = MappingProcess { pid: Some(std::process::id()), ..MappingProcess::default() };
    let file = |id: FileId| MappedFile { id, filename: name.into(), processes: vec![process.clone()] };
    let found = finder(&[]).find(&file(hash.clone())).unwrap();
    assert_eq!(Path::new(&found.path), own);
    assert!(identify::has_id(&found.file, &hash));
    assert!(finder(&[]).find(&file(FileId::Htlhash("00".repeat(16).into()))).is_none());
    assert!(Finder { processes: false, ..finder(&[]) }.find(&file(hash)).is_none());
}
