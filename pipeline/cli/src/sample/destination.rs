//! Where the result goes, and as what: the file's ending says it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::Failure;

/// The endings and what each stands for.
const ENDINGS: [(&str, Format); 5] = [
    ("svg", Format::Svg),
    ("folded", Format::Folded),
    ("otlp", Format::Otlp),
    ("pb", Format::Otlp),
    ("envelope", Format::Envelope),
];

/// What is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// A flame graph.
    Svg,
    /// Collapsed stacks.
    Folded,
    /// OTLP profiles as protobuf.
    Otlp,
    /// Sentry envelopes.
    Envelope,
}

impl Format {
    /// What it is, and what to do with it.
    pub(crate) fn what(self) -> &'static str {
        match self {
            Self::Svg => "a flame graph; a browser shows it",
            Self::Folded => "collapsed stacks; flame graph tools and speedscope read them",
            Self::Otlp => "OTLP profiles; `profbridge convert` and OTLP backends read them",
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

impl Destination {
    /// Where a result goes if nobody said: a flame graph in the current folder, named for the process.
    pub(crate) fn of_process(pid: u32) -> Self {
        Self { path: PathBuf::from(format!("profile-{pid}.svg")), format: Format::Svg }
    }

    /// Finds out whether the file can be written before anything is sampled for it.
    ///
    /// # Errors
    ///
    /// Says what is in the way.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let outcome = (|| {
            if let Some(folder) = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
                fs::create_dir_all(folder)?;
            }
            if self.path.is_dir() {
                return Err(std::io::Error::from(std::io::ErrorKind::IsADirectory));
            }
            let mut probe = self.path.as_os_str().to_owned();
            probe.push(".part");
            File::create(&probe)?;
            fs::remove_file(&probe)
        })();
        outcome.map_err(|error| Failure::new(self.path.display(), &error))
    }

    /// The file of a part: `x.envelope`, then `x-2.envelope`, `x-3.envelope`.
    pub(crate) fn part(&self, number: u64) -> PathBuf {
        if number < 2 {
            return self.path.clone();
        }
        let stem = self.path.file_stem().unwrap_or_default().to_string_lossy();
        let ending = self.path.extension().unwrap_or_default().to_string_lossy();
        self.path.with_file_name(format!("{stem}-{number}.{ending}"))
    }
}

/// Reads a destination from the command line.
///
/// # Errors
///
/// Names the endings that there are.
pub(crate) fn parse(text: &str) -> Result<Destination, String> {
    let path = PathBuf::from(text);
    let ending = Path::new(text).extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    match ENDINGS.iter().find(|(known, _)| *known == ending) {
        Some(&(_, format)) => Ok(Destination { path, format }),
        None => {
            let what =
                if ending.is_empty() { "no ending".to_owned() } else { format!("an unknown ending `.{ending}`") };
            Err(format!(
                "it has {what}, and the ending says what is written: .svg (flame graph), .folded (collapsed stacks), \
                 .otlp or .pb (OTLP profiles), .envelope (Sentry envelope)"
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: the ending decides, whatever its case, and only the last one counts.
    #[test]
    fn endings() {
        let format = |text: &str| parse(text).map(|destination| destination.format);
        assert_eq!(format("a.svg"), Ok(Format::Svg));
        assert_eq!(format("out/a.b.FOLDED"), Ok(Format::Folded));
        assert_eq!(format("a.otlp"), Ok(Format::Otlp));
        assert_eq!(format("a.pb"), Ok(Format::Otlp));
        assert_eq!(format("a.envelope"), Ok(Format::Envelope));
    }

    /// Guarantees: an unknown ending, or none, is refused with all that there are.
    #[test]
    fn unknown_endings() {
        for (text, what) in [("a.txt", "`.txt`"), ("svg", "no ending"), (".svg", "no ending"), ("a.svg.gz", "`.gz`")] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(what), "{error}");
            assert!([".svg", ".folded", ".otlp", ".pb", ".envelope"].iter().all(|ending| error.contains(ending)));
        }
    }

    /// Guarantees: further envelopes stand beside the first, under its name with a number.
    #[test]
    fn parts() {
        let destination = parse("out/a.b.envelope").unwrap();
        let parts = [1, 2, 3].map(|number| destination.part(number));
        assert_eq!(parts, ["out/a.b.envelope", "out/a.b-2.envelope", "out/a.b-3.envelope"].map(PathBuf::from));
    }

    /// Guarantees: what cannot be written is known beforehand, and finding out leaves nothing behind.
    #[test]
    fn check() {
        let folder = tempfile::tempdir().unwrap();
        let inside = |name: &str| Destination { path: folder.path().join(name), format: Format::Svg };
        inside("new/a.svg").check().unwrap();
        assert_eq!(fs::read_dir(folder.path().join("new")).unwrap().count(), 0);
        let Failure(why) = inside("new").check().unwrap_err();
        assert!(why.contains("directory"), "{why}");
        fs::write(folder.path().join("file"), "").unwrap();
        assert!(inside("file/a.svg").check().is_err());
    }
}
