//! Parses control groups from `/proc/PID/cgroup` (`cgroups(7)`).

/// The paths of a process's groups in all hierarchies. The path in the unified hierarchy (version 2) comes first, if
/// there is one.
pub(crate) fn paths(text: &str) -> Vec<&str> {
    let mut paths = Vec::new();
    for line in text.lines() {
        // `0::/path` in the unified hierarchy, `NUMBER:CONTROLLERS:/path` in others; a path may contain colons.
        let mut fields = line.splitn(3, ':');
        let (Some(number), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        if !path.starts_with('/') {
            continue;
        }
        if number == "0" && controllers.is_empty() { paths.insert(0, path) } else { paths.push(path) }
    }
    paths
}

/// The control group that is reported: the one in the unified hierarchy, or in the first hierarchy if the unified one
/// is not used.
pub(crate) fn name(text: &str) -> Option<&str> {
    let paths = paths(text);
    paths.iter().find(|path| **path != "/").or(paths.first()).copied()
}

/// The path of the group in the version 1 hierarchy of a controller.
pub(crate) fn of_controller<'a>(text: &'a str, controller: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        controllers.split(',').any(|name| name == controller).then_some(path)
    })
}

/// Whether a process with this `/proc/PID/cgroup` is in the group or in a group below it.
pub(crate) fn is_within(text: &str, group: &str) -> bool {
    let group = group.trim_end_matches('/');
    paths(text).iter().any(|path| path.strip_prefix(group).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIFIED: &str = "0::/user.slice/user-1000.slice/session-2.scope\n";
    const HYBRID: &str = "12:cpu,cpuacct:/docker/a\n3:freezer:/frozen/x\n1:name=systemd:/init:1\n0::/\n";

    /// Guarantees: the reported name is the path in the unified hierarchy, or in another one if the unified one is not
    /// used.
    #[test]
    fn names() {
        assert_eq!(name(UNIFIED), Some("/user.slice/user-1000.slice/session-2.scope"));
        assert_eq!(name(HYBRID), Some("/docker/a"));
        assert_eq!(name("0::/\n"), Some("/"));
        assert_eq!(name(""), None);
        assert_eq!(name("nonsense\n1:2\n::\n"), None);
        assert_eq!(of_controller(HYBRID, "freezer"), Some("/frozen/x"));
        assert_eq!(of_controller(HYBRID, "cpuacct"), Some("/docker/a"));
        assert_eq!(of_controller(UNIFIED, "freezer"), None);
        assert_eq!(paths(HYBRID), ["/", "/docker/a", "/frozen/x", "/init:1"]);
    }

    /// Guarantees: a group includes the processes below it, but not those of another group whose name begins with the
    /// same letters.
    #[test]
    fn within() {
        assert!(is_within(UNIFIED, "/user.slice"));
        assert!(is_within(UNIFIED, "/user.slice/"));
        assert!(is_within(UNIFIED, "/user.slice/user-1000.slice/session-2.scope"));
        assert!(!is_within(UNIFIED, "/user.slice/user-1000"));
        assert!(!is_within(UNIFIED, "/system.slice"));
        assert!(is_within(HYBRID, "/docker/a"));
    }
}
