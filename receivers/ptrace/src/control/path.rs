//! The default path of the control socket.

use std::path::PathBuf;

/// `$XDG_RUNTIME_DIR/profbridge/control.sock`, or `/run/profbridge/control.sock` if that variable is not set, as for
/// system services (XDG base directory specification; hier(7)).
#[must_use]
pub fn default_path() -> PathBuf {
    in_folder(std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from))
}

fn in_folder(runtime: Option<PathBuf>) -> PathBuf {
    // A relative path has to be ignored (XDG base directory specification).
    let folder = runtime.filter(|folder| folder.is_absolute()).unwrap_or_else(|| PathBuf::from("/run"));
    folder.join("profbridge").join("control.sock")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: a user's runtime folder is preferred, and a relative one is ignored.
    #[test]
    fn chosen() {
        let of = |text: Option<&str>| in_folder(text.map(PathBuf::from)).to_str().unwrap().to_owned();
        assert_eq!(of(Some("/run/user/1000")), "/run/user/1000/profbridge/control.sock");
        assert_eq!(of(Some("relative")), "/run/profbridge/control.sock");
        assert_eq!(of(Some("")), "/run/profbridge/control.sock");
        assert_eq!(of(None), "/run/profbridge/control.sock");
    }
}
