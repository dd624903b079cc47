//! Where to write a result, and in which format. The file's extension decides.

use std::path::{Path, PathBuf};

use clap::ValueEnum;

use crate::terminal::{STANDARD, shown};
use crate::views::flamegraph::GraphStyle;
use crate::{Failure, files};

/// The extensions and their formats, shared by `sample` and `convert`. The first match decides.
const ENDINGS: [(&str, Format); 11] = [
    ("svg", Format::Svg),
    ("html", Format::Html),
    ("folded", Format::Folded),
    ("speedscope.json", Format::Speedscope),
    ("firefox.json", Format::Firefox),
    ("pprof", Format::Pprof),
    ("pb.gz", Format::Pprof),
    ("otlp", Format::Otlp),
    ("otlp.json", Format::OtlpJson),
    ("json", Format::OtlpJson),
    ("envelope", Format::Sentry),
];

/// The extensions as a list for messages.
pub(crate) const ENDINGS_IN_WORDS: &str = "\
    .svg (flame graph), .html (page), .folded (collapsed stacks), .speedscope.json (speedscope), .firefox.json (Firefox Profiler), \
    .pprof or .pb.gz (pprof), .otlp (OTLP), .otlp.json or .json (the same as JSON), .envelope (Sentry envelope)";

/// The values of `--to` as a list for messages.
pub(crate) const FORMATS_IN_WORDS: &str = "`--to svg|html|folded|speedscope|firefox|pprof|otlp|otlp-json|sentry`";

/// An output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A flame graph, which a browser shows.
    Svg,
    /// A page that needs no network: flame graph, time line and table, with filters.
    Html,
    /// Collapsed stacks, one line each, for flame graph tools.
    Folded,
    /// JSON for speedscope (speedscope.app), a profile of each thread.
    Speedscope,
    /// JSON for the Firefox Profiler (profiler.firefox.com), with the times of samples.
    Firefox,
    /// pprof profiles, gzipped, without spans. Consecutive profiles of the same samples share one.
    Pprof,
    /// OTLP: one ProfilesData or TracesData as protobuf; frames if there are both.
    Otlp,
    /// The same as JSON, a line for each message.
    OtlpJson,
    /// Sentry envelopes, one profile_chunk, transaction or container of spans each.
    Sentry,
}

impl Format {
    /// What the format is, and how to use the file.
    pub(crate) fn what(self) -> &'static str {
        match self {
            Self::Svg => "a flame graph; a browser shows it",
            Self::Html => "a page; a browser opens it, without a network",
            Self::Folded => "collapsed stacks; flame graph tools and speedscope read them",
            Self::Speedscope => "for speedscope; drop it on speedscope.app, or run `speedscope FILE`",
            Self::Firefox => "for the Firefox Profiler; drop it on profiler.firefox.com",
            Self::Pprof => "pprof; `go tool pprof` and others read it",
            Self::Otlp => "OTLP profiles; `profbridge convert` and OTLP backends read them",
            Self::OtlpJson => "OTLP profiles in JSON; `profbridge convert` and OTLP backends read them",
            Self::Sentry => "a Sentry envelope",
        }
    }
}

/// Why an extension does not decide.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Undecided {
    /// The name has no extension.
    #[error("it has no ending that says what to write")]
    NoEnding,
    /// The extension is unknown.
    #[error("the ending does not say what to write: there is no `.{0}`")]
    Unknown(String),
    /// The extension stands for several incompatible formats.
    #[error("`.pb` stands for pprof and for OTLP, and who reads the one does not read the other")]
    Pb,
}

impl Undecided {
    /// What to do instead.
    pub(crate) fn hint(&self) -> String {
        match self {
            Self::Pb => "`.pb.gz` or `.pprof` is pprof, `.otlp` is OTLP; or add `--to pprof` or `--to otlp`".to_owned(),
            Self::NoEnding | Self::Unknown(_) => format!("{ENDINGS_IN_WORDS}; or add {FORMATS_IN_WORDS}"),
        }
    }
}

/// A file to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Destination {
    /// The file's path.
    pub(crate) path: PathBuf,
    /// The file's format.
    pub(crate) format: Format,
    /// How a flame graph is drawn.
    pub(crate) graph: GraphStyle,
}

impl Destination {
    /// The default destination: a flame graph in the current folder, named after the process.
    pub(crate) fn of_process(pid: u32) -> Self {
        Self { path: PathBuf::from(format!("profile-{pid}.svg")), format: Format::Svg, graph: GraphStyle::default() }
    }

    /// Whether this is standard output.
    pub(crate) fn is_standard(&self) -> bool {
        self.path.as_os_str() == STANDARD
    }

    /// Checks whether the file can be written before anything is sampled for it.
    ///
    /// # Errors
    ///
    /// The obstacle, and how to write elsewhere.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        files::has_folder(&self.path).and_then(|()| files::check(&self.path)).map_err(|error| {
            let Failure(why) = Failure::new(shown(&self.path), &error);
            Failure(format!("{why}\nhint: the result cannot be written there; `-o FILE` names another place"))
        })
    }

    /// Path of one of several parts: `x.envelope`, then `x-2.envelope`, `x-3.envelope`.
    pub(crate) fn part(&self, number: u64) -> PathBuf {
        if number < 2 {
            return self.path.clone();
        }
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let (stem, ending) = match ending_of(&name) {
            Some((ending, _)) if name.len() > ending.len() => name.split_at(name.len() - ending.len() - 1),
            // The name is only a format's name, or has no known extension.
            _ => name.split_at(name.rfind('.').unwrap_or(name.len())),
        };
        self.path.with_file_name(format!("{stem}-{number}{ending}"))
    }
}

/// The format for a path's extension.
///
/// # Errors
///
/// If the extension is unknown or ambiguous.
pub(crate) fn format_of(path: &Path) -> Result<Format, Undecided> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if let Some((_, format)) = ending_of(&name) {
        return Ok(format);
    }
    Err(match path.extension() {
        None => Undecided::NoEnding,
        Some(pb) if pb.eq_ignore_ascii_case("pb") => Undecided::Pb,
        Some(other) => Undecided::Unknown(shown(Path::new(other))),
    })
}

/// The known extension of a file name, without its dot.
fn ending_of(name: &str) -> Option<(&'static str, Format)> {
    let name = name.to_ascii_lowercase();
    let ends = |ending: &str| {
        let stem = name.strip_suffix(ending);
        // A file name may consist of the extension alone: `speedscope.json`, `.speedscope.json`.
        let is_whole = || ending.ends_with(".json") && name.strip_prefix('.').unwrap_or(&name) == ending;
        stem.is_some_and(|stem| stem.len() > 1 && stem.ends_with('.')) || is_whole()
    };
    ENDINGS.into_iter().find(|(ending, _)| ends(ending))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn destination(path: &str) -> Destination {
        Destination { path: PathBuf::from(path), format: Format::Svg, graph: GraphStyle::default() }
    }

    /// Guarantees: the last extension decides, in upper or lower case. The message about an unknown one lists all of
    /// them.
    #[test]
    fn endings() {
        for (name, format) in [
            ("a.svg", Format::Svg),
            ("a.html", Format::Html),
            ("out/a.b.FOLDED", Format::Folded),
            ("a.speedscope.json", Format::Speedscope),
            ("out/speedscope.json", Format::Speedscope),
            ("a.Firefox.JSON", Format::Firefox),
            ("firefox.json", Format::Firefox),
            ("out/.firefox.json", Format::Firefox),
            ("a.pprof", Format::Pprof),
            ("a.b.PB.gz", Format::Pprof),
            ("a.otlp", Format::Otlp),
            ("a.otlp.json", Format::OtlpJson),
            ("a.json", Format::OtlpJson),
            ("myfirefox.json", Format::OtlpJson),
            ("a.envelope", Format::Sentry),
        ] {
            assert_eq!(format_of(Path::new(name)), Ok(format), "{name}");
        }
        let hint = Undecided::NoEnding.hint();
        for (ending, format) in ENDINGS {
            assert!(hint.contains(&format!(".{ending} ")), "{ending}: {hint}");
            let name = format.to_possible_value().unwrap();
            let name = name.get_name();
            assert!([format!("{name}|"), format!("{name}`")].iter().any(|one| hint.contains(one)), "{name}: {hint}");
        }
    }

    /// Guarantees: an unknown, missing or ambiguous extension is refused, and the message names it.
    #[test]
    fn unknown_endings() {
        for (text, what) in [
            ("a.txt", "no `.txt`"),
            ("svg", "no ending"),
            (".svg", "no ending"),
            ("-", "no ending"),
            ("a.svg.gz", "no `.gz`"),
            ("pb.gz", "no `.gz`"),
            ("a.pb", "`.pb` stands for pprof and for OTLP"),
        ] {
            let error = format_of(Path::new(text)).unwrap_err();
            assert!(error.to_string().contains(what), "{text}: {error}");
        }
        assert!(Undecided::Pb.hint().contains("`.pb.gz` or `.pprof` is pprof, `.otlp` is OTLP"));
    }

    /// Guarantees: further envelopes are next to the first, with a number in their names.
    #[test]
    fn parts() {
        let parts = [1, 2, 3].map(|number| destination("out/a.b.envelope").part(number));
        assert_eq!(parts, ["out/a.b.envelope", "out/a.b-2.envelope", "out/a.b-3.envelope"].map(PathBuf::from));
        assert_eq!(destination("a.pb.gz").part(2), PathBuf::from("a-2.pb.gz"));
        assert_eq!(destination("a.otlp.json").part(2), PathBuf::from("a-2.otlp.json"));
        assert_eq!(destination("speedscope.json").part(2), PathBuf::from("speedscope-2.json"));
        assert_eq!(destination("x/.speedscope.json").part(2), PathBuf::from("x/-2.speedscope.json"));
    }

    /// Guarantees: an unwritable path is detected beforehand, and the check leaves nothing behind.
    #[test]
    fn check() {
        let folder = tempfile::tempdir().unwrap();
        let inside = |name: &str| Destination { path: folder.path().join(name), ..destination("a.svg") };
        let Failure(why) = inside("new/a.svg").check().unwrap_err();
        assert!(why.contains("there is no folder") && fs::read_dir(folder.path()).unwrap().count() == 0, "{why}");
        fs::create_dir(folder.path().join("new")).unwrap();
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

    /// Guarantees: the check changes no existing file: not the previous result, not a foreign file next to it, and not
    /// the target of a link.
    #[test]
    fn check_touches_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let inside = |name: &str| folder.path().join(name);
        for name in ["a.svg", "a.svg.part", "passwd"] {
            fs::write(inside(name), name).unwrap();
        }
        std::os::unix::fs::symlink("passwd", inside("b.svg.part")).unwrap();
        for name in ["a.svg", "b.svg"] {
            Destination { path: inside(name), ..destination("a.svg") }.check().unwrap();
        }
        for name in ["a.svg", "a.svg.part", "passwd"] {
            assert_eq!(fs::read_to_string(inside(name)).unwrap(), name);
        }
        assert!(inside("b.svg.part").is_symlink());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4);
    }
}
