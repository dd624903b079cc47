//! Container ids, as runtimes write them into control group paths and mounts.

use super::control_group;

/// The shortest prefix of an id that selects a container: as long as `docker ps` prints.
pub(crate) const SHORTEST_PREFIX: usize = 12;

/// The container's id from `/proc/PID/cgroup`.
///
/// Known forms are `/docker/ID`, `docker-ID.scope`, `cri-containerd-ID.scope`, `crio-ID.scope`, `libpod-ID.scope`,
/// `/kubepods/.../ID`, containerd's `SLICE:cri-containerd:ID` (runtimes that write systemd's form without systemd),
/// `garden` and ECS (`TASK-NUMBER`). The innermost one counts. A container's monitor (`crio-conmon-ID.scope`,
/// `libpod-conmon-ID.scope`) is outside of the container.
pub(crate) fn from_control_groups(text: &str) -> Option<String> {
    control_group::paths(text).into_iter().find_map(from_path)
}

fn from_path(path: &str) -> Option<String> {
    path.rsplit('/').find_map(|part| {
        let part = part.strip_suffix(".scope").or(part.strip_suffix(".service")).unwrap_or(part);
        if part.contains("conmon") {
            return None;
        }
        if is_ecs(part) {
            return Some(part.to_owned());
        }
        let id = part.rsplit(['-', ':']).next().unwrap_or(part);
        is_id(id).then(|| id.to_owned())
    })
}

/// The container's id from `/proc/PID/mountinfo`: runtimes mount files of their own into each container. This is
/// needed if the path of the control group is relative to the container's own group and has no id. Files of pods are
/// ignored, since a pod is not a container.
pub(crate) fn from_mounts(text: &str) -> Option<String> {
    text.lines().find_map(|line| {
        // ID PARENT DEVICE ROOT MOUNTPOINT ..., see proc_pid_mountinfo(5).
        let mut fields = line.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        if !matches!(point, "/etc/hostname" | "/etc/hosts" | "/etc/resolv.conf" | "/run/.containerenv") {
            return None;
        }
        let mut parts = root.split('/');
        // Docker has `/var/lib/docker/containers/ID/hostname`, podman `.../overlay-containers/ID/userdata/hostname`.
        parts.find(|part| *part == "containers" || part.ends_with("-containers"))?;
        // `containers/storage/overlay-containers/ID` contains the word twice.
        parts.find(|part| is_id(part)).map(str::to_owned)
    })
}

/// Whether this is long enough to select a container: enough hexadecimal digits, or the id of an ECS task.
pub(crate) fn is_selection(prefix: &str) -> bool {
    prefix.len() >= SHORTEST_PREFIX && prefix.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

fn is_id(part: &str) -> bool {
    part.len() == 64 && part.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// An id of Amazon ECS on Fargate: 32 hexadecimal digits, and a number.
fn is_ecs(part: &str) -> bool {
    part.split_once('-').is_some_and(|(task, number)| {
        task.len() == 32
            && task.bytes().all(|byte| byte.is_ascii_hexdigit())
            && (1..=20).contains(&number.len())
            && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    const OTHER: &str = "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff";

    /// Guarantees: the id is found in every form that runtimes write, and nowhere else.
    #[test]
    fn control_groups() {
        for path in [
            "/docker/{}",
            "/system.slice/docker-{}.scope",
            "/system.slice/docker-{}.scope/init.scope",
            "/kubepods/besteffort/pod9b0a3c1e-0000-4000-8000-000000000000/{}",
            "/kubepods.slice/kubepods-pod9b0a.slice/cri-containerd-{}.scope",
            "/kubepods.slice/kubepods-pod9b0a.slice/crio-{}.scope",
            "/machine.slice/libpod-{}.scope",
            "/machine.slice/libpod-{}.scope/container",
            "/system.slice/containerd.service/kubepods-burstable-pod9b0a.slice:cri-containerd:{}",
            "/../{}",
            "/default/{}",
        ] {
            let line = format!("0::{}\n", path.replace("{}", ID));
            assert_eq!(from_control_groups(&line).as_deref(), Some(ID), "{line}");
        }
        let nested = format!("0::/docker/{OTHER}/docker/{ID}\n");
        assert_eq!(from_control_groups(&nested).as_deref(), Some(ID));
        let older = format!("11:memory:/docker/{ID}\n0::/\n");
        assert_eq!(from_control_groups(&older).as_deref(), Some(ID));
        let task = "9:cpu:/ecs/0123456789abcdef0123456789abcdef-1234567890\n";
        assert_eq!(from_control_groups(task).as_deref(), Some("0123456789abcdef0123456789abcdef-1234567890"));
        for line in [
            "0::/\n".to_owned(),
            "0::/user.slice/user-1000.slice/session-2.scope\n".to_owned(),
            format!("0::/machine.slice/libpod-conmon-{ID}.scope\n"),
            format!("0::/system.slice/crio-conmon-{ID}.scope\n"),
            format!("0::/docker/{}\n", &ID[1..]),
            format!("0::/docker/{}\n", ID.to_uppercase()),
            format!("0::/docker/{ID}0\n"),
        ] {
            assert_eq!(from_control_groups(&line), None, "{line}");
        }
    }

    /// Guarantees: inside a container, whose control group has no path, the id is found in the mounts; a pod's id is
    /// not mistaken for it.
    #[test]
    fn mounts() {
        for root in [
            "/var/lib/docker/containers/{}/hostname",
            "/containers/storage/overlay-containers/{}/userdata/hostname",
            "/home/user/.local/share/containers/storage/vfs-containers/{}/userdata/hostname",
        ] {
            let line = format!(
                "1 0 8:1 / / rw\n727 717 254:1 {} /etc/hostname rw - ext4 /dev/vda1 rw\n",
                root.replace("{}", ID)
            );
            assert_eq!(from_mounts(&line).as_deref(), Some(ID), "{line}");
        }
        let pod = "/var/lib/containerd/io.containerd.grpc.v1.cri/sandboxes/{}/hostname".replace("{}", ID);
        assert_eq!(from_mounts(&format!("7 7 2:1 {pod} /etc/hostname rw - ext4 x rw\n")), None);
        let elsewhere = format!("7 7 2:1 /var/lib/docker/containers/{ID}/data /data rw - ext4 x rw\n");
        assert_eq!(from_mounts(&elsewhere), None);
        assert_eq!(from_mounts("\n \n1 2 3\n"), None);
    }

    /// Guarantees: a prefix that is too short to be unambiguous in practice selects nothing.
    #[test]
    fn selections() {
        assert!(is_selection(ID));
        assert!(is_selection(&ID[..12]));
        assert!(!is_selection(&ID[..11]));
        assert!(!is_selection("not-hexadecimal"));
        assert!(!is_selection(""));
    }
}
