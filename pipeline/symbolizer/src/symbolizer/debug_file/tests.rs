use super::*;

/// Guarantees: whatever path a target claims, the place below a debug folder is below it.
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
