//! The interpreters of this machine.

use std::{env, path::PathBuf, process::Command};

use super::super::Options;

/// What runs a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// CPython, 3.8 and later.
    Python,
    /// Node.
    Node,
    /// PHP without thread safety.
    Php,
    /// CRuby, 3.0 and later.
    Ruby,
}

/// An interpreter that is here.
#[derive(Clone, Debug)]
pub(super) struct Version {
    pub(super) kind: Kind,
    /// Its kind and version.
    pub(super) name: String,
    pub(super) program: PathBuf,
}

impl Kind {
    pub(super) const ALL: [Self; 4] = [Self::Python, Self::Node, Self::Php, Self::Ruby];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Python => "Python",
            Self::Node => "Node",
            Self::Php => "PHP",
            Self::Ruby => "Ruby",
        }
    }

    /// Arguments with which it says its version, or nothing where it is not read.
    fn question(self) -> [&'static str; 2] {
        match self {
            Self::Python => {
                ["-c", "import sys; print('%d.%d.%d' % sys.version_info[:3] if sys.version_info >= (3, 8) else '')"]
            }
            Self::Node => ["-p", "process.versions.node"],
            Self::Php => ["-r", "echo PHP_ZTS ? '' : PHP_VERSION;"],
            Self::Ruby => ["-e", "puts RUBY_ENGINE == 'ruby' && RUBY_VERSION >= '3.0' ? RUBY_VERSION : ''"],
        }
    }

    /// Where it may be: on the path, and where the environment names more (as for the tests of `profbridge sample`).
    fn candidates(self, options: &Options) -> Vec<PathBuf> {
        let (program, variable) = match self {
            Self::Python if !options.python.is_empty() => return options.python.clone(),
            Self::Python => {
                let versions = env::home_dir().and_then(|home| home.join(".pyenv/versions").read_dir().ok());
                let of_pyenv = versions.into_iter().flatten().flatten().map(|one| one.path().join("bin/python3"));
                return of_pyenv.chain(["/usr/bin/python3".into()]).collect();
            }
            Self::Node => ("node", "PROFBRIDGE_TEST_NODES"),
            Self::Php => ("php", "PROFBRIDGE_TEST_PHPS"),
            Self::Ruby => ("ruby", "PROFBRIDGE_TEST_RUBIES"),
        };
        let named = env::var_os(variable).unwrap_or_default();
        let named: Vec<_> = env::split_paths(&named).filter(|path| !path.as_os_str().is_empty()).collect();
        [vec![program.into()], named].concat()
    }
}

/// All of them, each version of Node, PHP and Ruby once, the oldest first.
pub(super) fn found(options: &Options) -> Vec<Version> {
    let mut found = Vec::new();
    for kind in Kind::ALL {
        let mut of_kind: Vec<_> = kind.candidates(options).into_iter().filter_map(|path| version(kind, path)).collect();
        of_kind.sort();
        if kind != Kind::Python {
            of_kind.dedup_by(|one, other| one.0 == other.0);
        }
        let versions = of_kind.into_iter().map(|(numbers, program)| {
            let said: Vec<_> = numbers.iter().map(u32::to_string).collect();
            let place = if program.starts_with("/usr/bin") && kind == Kind::Python { " (system)" } else { "" };
            Version { kind, name: format!("{} {}{place}", kind.name(), said.join(".")), program }
        });
        found.extend(versions);
    }
    found
}

/// Its version; `None` if it is not there, or not read.
fn version(kind: Kind, program: PathBuf) -> Option<(Vec<u32>, PathBuf)> {
    let output = Command::new(&program).args(kind.question()).output().ok().filter(|output| output.status.success())?;
    let said = String::from_utf8(output.stdout).ok()?;
    let numbers: Option<Vec<u32>> = said.trim().split('.').map(|number| number.parse().ok()).collect();
    Some((numbers?, program))
}

/// The minor version of Python 3.
impl Version {
    pub(super) fn minor(&self) -> u32 {
        let numbers = self.name.split(' ').nth(1).unwrap_or_default();
        numbers.split('.').nth(1).and_then(|minor| minor.parse().ok()).unwrap_or(0)
    }
}
