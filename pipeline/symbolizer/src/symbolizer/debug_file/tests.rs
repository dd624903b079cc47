use super::*;

/// Guarantees: for any path from the profiled process, the result is inside the debug folder.
#[test]
fn paths_stay_below() {
    for (path, expected) in [
        ("/usr/bin", "/debug/usr/bin"),
        ("../../etc", "/debug/etc"),
        ("/../..", "/debug"),
        ("", "/debug"),
        ("./a/./b/..", "/debug/a/b"),
    ] {
        assert_eq!(below(Path::new("/debug"), Path::new(path)), Path::new(expected), "{path}");
    }
}
