//! Where the result goes, and as what: the file's ending says it.

use std::path::{Path, PathBuf};

#[cfg(target_os = "linux")]
use crate::Failure;
#[cfg(target_os = "linux")]
use crate::{files, terminal::shown};

/// The endings and what each stands for.
const ENDINGS: [(&str, Format); 8] = [
    ("svg", Format::Svg),
    ("folded", Format::Folded),
    ("otlp", Format::Otlp),
    ("pb", Format::Otlp),
    ("json", Format::OtlpJson),
    ("pprof", Format::Pprof),
    ("pb.gz", Format::Pprof),
    ("envelope", Format::Envelope),
];

/// The same for a person.
pub(crate) const ENDINGS_IN_WORDS: &str = "\
    .svg (flame graph), .folded (collapsed stacks), .otlp or .pb (OTLP), .json (the same as JSON), \
    .pprof or .pb.gz (pprof), .envelope (Sentry envelope)";

/// What is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// A flame graph.
    Svg,
    /// Collapsed stacks.
    Folded,
    /// OTLP profiles as protobuf.
    Otlp,
    /// OTLP profiles as JSON.
    OtlpJson,
    /// pprof profiles, gzipped.
    Pprof,
    /// Sentry envelopes.
    Envelope,
}

#[cfg(target_os = "linux")]
impl Format {
    /// What it is, and what to do with it.
    pub(crate) fn what(self) -> &'static str {
        match self {
            Self::Svg => "a flame graph; a browser shows it",
            Self::Folded => "collapsed stacks; flame graph tools and speedscope read them",
            Self::Otlp => "OTLP profiles; `profbridge convert` and OTLP backends read them",
            Self::OtlpJson => "OTLP profiles in JSON; `profbridge convert` and OTLP backends read them",
            Self::Pprof => "pprof; `go tool pprof` and others read it",
            Self::Envelope => "a Sentry envelope",
        }
    }
}

/// A file to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Destination {
    /// Where.
    pub(crate) path: PathBuf,
    /// What.
    pub(crate) format: Format,
}

#[cfg(target_os = "linux")]
impl Destination {
    /// Where a result goes if nobody said: a flame graph in the current folder, named for the process.
    pub(crate) fn of_process(pid: u32) -> Self {
        Self { path: PathBuf::from(format!("profile-{pid}.svg")), format: Format::Svg }
    }

    /// Finds out whether the file can be written before anything is sampled for it.
    ///
    /// # Errors
    ///
    /// Says what is in the way, and how to write elsewhere.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        files::check(&self.path).map_err(|error| {
            let Failure(why) = Failure::new(shown(&self.path), &error);
            Failure(format!("{why}\nhint: the result cannot be written there; `-o FILE` names another place"))
        })
    }
}

impl Destination {
    /// The file of a part: `x.envelope`, then `x-2.envelope`, `x-3.envelope`.
    pub(crate) fn part(&self, number: u64) -> PathBuf {
        if number < 2 {
            return self.path.clone();
        }
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let (stem, ending) = match ending_of(&name) {
            Some((ending, _)) => name.split_at(name.len() - ending.len() - 1),
            None => name.split_at(name.rfind('.').unwrap_or(name.len())),
        };
        self.path.with_file_name(format!("{stem}-{number}{ending}"))
    }
}

/// What a path's ending says; `None` where it says nothing.
pub(crate) fn format_of(path: &Path) -> Option<Format> {
    ending_of(&path.file_name()?.to_string_lossy()).map(|(_, format)| format)
}

/// The ending of a file's name that is known, without its dot.
fn ending_of(name: &str) -> Option<(&'static str, Format)> {
    let name = name.to_ascii_lowercase();
    let ends = |ending: &str| name.strip_suffix(ending).is_some_and(|stem| stem.len() > 1 && stem.ends_with('.'));
    ENDINGS.into_iter().find(|(ending, _)| ends(ending))
}

/// Reads a destination from the command line.
///
/// # Errors
///
/// Names the endings that there are.
#[cfg(target_os = "linux")]
pub(crate) fn parse(text: &str) -> Result<Destination, String> {
    let path = PathBuf::from(text);
    if let Some(format) = format_of(&path) {
        return Ok(Destination { path, format });
    }
    let what = match path.extension() {
        None => "no ending".to_owned(),
        Some(ending) => format!("an unknown ending `.{}`", ending.to_string_lossy()),
    };
    Err(format!("it has {what}, and the ending says what is written: {ENDINGS_IN_WORDS}"))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs;

    use super::*;

    /// Guarantees: the ending decides, whatever its case, and only the last one counts.
    #[test]
    fn endings() {
        let format = |text: &str| parse(text).map(|destination| destination.format);
        assert_eq!(format("a.svg"), Ok(Format::Svg));
        assert_eq!(format("out/a.b.FOLDED"), Ok(Format::Folded));
        assert_eq!(format("a.otlp"), Ok(Format::Otlp));
        assert_eq!(format("a.pb"), Ok(Format::Otlp));
        assert_eq!(format("a.json"), Ok(Format::OtlpJson));
        assert_eq!(format("a.envelope"), Ok(Format::Envelope));
        assert_eq!((format("a.pprof"), format("a.b.PB.gz")), (Ok(Format::Pprof), Ok(Format::Pprof)));
    }

    /// Guarantees: an unknown ending, or none, is refused with all that there are.
    #[test]
    fn unknown_endings() {
        for (text, what) in [
            ("a.txt", "`.txt`"),
            ("svg", "no ending"),
            (".svg", "no ending"),
            ("a.svg.gz", "`.gz`"),
            ("pb.gz", "`.gz`"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(what), "{error}");
            assert!(
                [".svg", ".folded", ".otlp", ".pb", ".json", ".pprof", ".pb.gz", ".envelope"]
                    .iter()
                    .all(|ending| error.contains(ending))
            );
        }
    }

    /// Guarantees: further envelopes stand beside the first, under its name with a number.
    #[test]
    fn parts() {
        let destination = parse("out/a.b.envelope").unwrap();
        let parts = [1, 2, 3].map(|number| destination.part(number));
        assert_eq!(parts, ["out/a.b.envelope", "out/a.b-2.envelope", "out/a.b-3.envelope"].map(PathBuf::from));
        assert_eq!(parse("a.pb.gz").unwrap().part(2), PathBuf::from("a-2.pb.gz"));
    }

    /// Guarantees: what cannot be written is known beforehand, and finding out leaves nothing behind.
    #[test]
    fn check() {
        let folder = tempfile::tempdir().unwrap();
        let inside = |name: &str| Destination { path: folder.path().join(name), format: Format::Svg };
        inside("new/a.svg").check().unwrap();
        assert_eq!(fs::read_dir(folder.path().join("new")).unwrap().count(), 0);
        let Failure(why) = inside("new").check().unwrap_err();
        assert!(why.contains("it is a folder"), "{why}");
        fs::write(folder.path().join("file"), "").unwrap();
        for name in ["file/a.svg".to_owned(), format!("{}.svg", "a".repeat(300))] {
            let Failure(why) = inside(&name).check().unwrap_err();
            assert!(why.contains(&name) && why.contains("hint: ") && why.contains("`-o FILE`"), "{why}");
        }
    }

    /// Guarantees: finding out harms nothing that is there: not the file from before, nor somebody's own beside it,
    /// nor what a link leads to.
    #[test]
    fn check_touches_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let inside = |name: &str| folder.path().join(name);
        for name in ["a.svg", "a.svg.part", "passwd"] {
            fs::write(inside(name), name).unwrap();
        }
        std::os::unix::fs::symlink("passwd", inside("b.svg.part")).unwrap();
        for name in ["a.svg", "b.svg"] {
            Destination { path: inside(name), format: Format::Svg }.check().unwrap();
        }
        for name in ["a.svg", "a.svg.part", "passwd"] {
            assert_eq!(fs::read_to_string(inside(name)).unwrap(), name);
        }
        assert!(inside("b.svg.part").is_symlink());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4);
    }
}
