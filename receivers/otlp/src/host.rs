//! The host that runs profbridge, as OpenTelemetry's attributes.
//!
//! opentelemetry semantic conventions, `docs/resource/host.md`: `host.id` of a machine that is not a container is the
//! content of `/etc/machine-id` or `/var/lib/dbus/machine-id`; `host.name` is the output of `hostname`.

use std::fs;
use std::path::Path;

/// The id and name of this host. In a container they are the container's, see [`ThisHost::read`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ThisHost {
    /// `host.id`; `None` if no valid id can be read.
    pub id: Option<String>,
    /// `host.name`.
    pub name: Option<String>,
}

/// The files that may contain the id, the preferred one first.
const MACHINE_ID: [&str; 2] = ["etc/machine-id", "var/lib/dbus/machine-id"];

/// Files that container runtimes create in a container (Docker, podman, systemd-nspawn).
const CONTAINER_MARKS: [&str; 3] = [".dockerenv", "run/.containerenv", "run/systemd/container"];

impl ThisHost {
    /// Reads id and name from the files below `root`, which is `/` outside of tests.
    ///
    /// A container has no machine id. If its image contains `/etc/machine-id`, all containers of that image share the
    /// id, so the id is only used if the file is a mount, through which the machine's own id was passed in.
    pub fn read(root: &Path) -> Self {
        let mounts = fs::read_to_string(root.join("proc/self/mountinfo")).unwrap_or_default();
        let mounted = |path: &str| mount_of(&mounts, &format!("/{path}")).is_some();
        let overlay = mount_of(&mounts, "/").is_some_and(|kind| kind == "overlay" || kind == "fuse-overlayfs");
        let contained = overlay || CONTAINER_MARKS.iter().any(|mark| root.join(mark).exists());
        let id = |path: &&str| machine_id(&fs::read_to_string(root.join(path)).ok()?);
        let mut paths = MACHINE_ID.iter().filter(|path| !contained || mounted(path));
        let name = fs::read_to_string(root.join("proc/sys/kernel/hostname")).unwrap_or_default();
        let name = name.trim();
        Self { id: paths.find_map(id), name: (!name.is_empty()).then(|| name.to_owned()) }
    }
}

/// The file system type mounted at a path. If several are mounted there, the last one hides the others (proc(5),
/// mountinfo: the fifth field is the path, the first after the dash is the type).
fn mount_of<'a>(mounts: &'a str, path: &str) -> Option<&'a str> {
    let at = |line: &&str| line.split(' ').nth(4) == Some(path);
    mounts.lines().rfind(at)?.split(" - ").nth(1)?.split(' ').next()
}

/// The id in machine-id(5) format: 32 digits. Before the first boot the file contains `uninitialized`.
fn machine_id(text: &str) -> Option<String> {
    let id = text.trim();
    let digits = id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    (digits && id.bytes().any(|byte| byte != b'0')).then(|| id.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef";
    const DISK: &str = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n";
    const OVERLAY: &str = "633 545 0:56 / / rw,relatime master:273 - overlay overlay rw,lowerdir=/a\n";
    const HANDED_IN: &str = "650 633 8:1 /etc/machine-id /etc/machine-id ro,relatime - ext4 /dev/sda1 rw\n";

    /// The host as read from files with these contents.
    fn read(files: &[(&str, &str)]) -> ThisHost {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        ThisHost::read(root.path())
    }

    /// Guarantees: the id is the machine's, from the first file that has a valid one; the name is the kernel's. An
    /// invalid id is ignored, and no input is an error.
    #[test]
    fn names_of_a_machine() {
        let name = ("proc/sys/kernel/hostname", "web-1\n");
        let mounts = ("proc/self/mountinfo", DISK);
        let host = read(&[name, mounts, ("etc/machine-id", &format!("{ID}\n"))]);
        assert_eq!((host.id.as_deref(), host.name.as_deref()), (Some(ID), Some("web-1")));
        let host = read(&[name, mounts, ("etc/machine-id", ""), ("var/lib/dbus/machine-id", ID)]);
        assert_eq!(host.id.as_deref(), Some(ID));
        for none in ["", "uninitialized\n", "0123", &ID.to_uppercase(), &"0".repeat(32), &format!("{ID}0")] {
            assert_eq!(read(&[name, mounts, ("etc/machine-id", none)]).id, None, "{none:?}");
        }
        assert_eq!(read(&[]), ThisHost::default());
    }

    /// Guarantees: an id in a container's image is ignored; an id that is mounted into the container is used.
    #[test]
    fn containers_have_no_id_of_their_own() {
        let (name, id) = (("proc/sys/kernel/hostname", "pod-7\n"), ("etc/machine-id", ID));
        for mark in [(".dockerenv", ""), ("run/.containerenv", ""), ("proc/self/mountinfo", OVERLAY)] {
            let host = read(&[name, id, mark]);
            assert_eq!((host.id, host.name.as_deref()), (None, Some("pod-7")), "{mark:?}");
        }
        let mounts = ("proc/self/mountinfo", &*format!("{OVERLAY}{HANDED_IN}"));
        assert_eq!(read(&[name, id, mounts, (".dockerenv", "")]).id.as_deref(), Some(ID));
    }
}
