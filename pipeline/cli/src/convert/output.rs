//! Where the converted profiles go.

use std::io::Write;
use std::path::{Path, PathBuf};

use profbridge_engine::component::{Now, Outbox, Processor, flush_all, process_all};
use profbridge_engine::config::Section;
use profbridge_engine::registry::ProcessorFactory;
use profbridge_identity::Rules;
use profbridge_model::{Envelope, Profiles, Telemetry};
use profbridge_wire::folded::{Folded, Threads};
use profbridge_wire::otlp::delimited::put_frame;
use profbridge_wire::otlp::{EncodeOptions, encode};
use profbridge_wire::sentry::chunk::{Converter, Settings};
use profbridge_wire::sentry::{chunk_envelope, envelope};

use super::Tally;
use crate::args::{ConvertArgs, Format};
use crate::destination::{self, Destination};
use crate::files::{self, STANDARD, write_file};
use crate::terminal::{self, shown};
use crate::{Failure, flamegraph};

/// An output of one of the formats.
pub(super) enum Output {
    Sentry(Box<Sentry>),
    Otlp(Otlp),
    Stacks(Box<Stacks>),
}

impl Output {
    /// Opens an output, as far as that needs no result yet: finds out whether it can be written, and leaves what is
    /// there as it is.
    pub(super) fn open(arguments: &ConvertArgs) -> Result<Self, Failure> {
        let path = arguments.output.clone();
        let format = format(&path, arguments.to)?;
        let as_file = format != Format::Sentry || destination::format_of(&path).is_some();
        if as_file {
            files::check(&path).map_err(|error| Failure::new(shown(&path), &error))?;
        }
        Ok(match format {
            Format::Sentry => Self::Sentry(Box::new(Sentry::open(path)?)),
            Format::Otlp => Self::Otlp(Otlp::new(path)?),
            Format::Folded => Self::Stacks(Stacks::open(path, false, Threads::Apart)),
            Format::Svg => Self::Stacks(Stacks::open(path, true, Threads::Merged)),
        })
    }

    pub(super) fn take(&mut self, telemetry: Telemetry, tally: &mut Tally) -> Result<(), Failure> {
        match (self, telemetry) {
            (Self::Sentry(output), Telemetry::Profiles(profiles)) => output.take(profiles, tally),
            (Self::Sentry(output), Telemetry::Envelope(envelope)) => output.forward(&envelope),
            (Self::Otlp(output), telemetry) => {
                for profiles in views(telemetry) {
                    output.merge(profiles, tally);
                }
                Ok(())
            }
            (Self::Stacks(output), telemetry) => {
                views(telemetry).iter().for_each(|profiles| output.folded.add(profiles));
                Ok(())
            }
        }
    }

    /// Writes what is left and says what was written. `None` where there is nothing to write: what was there before
    /// stays.
    pub(super) fn close(self, tally: &mut Tally) -> Result<Option<String>, Failure> {
        match self {
            Self::Sentry(output) => output.close(tally),
            Self::Otlp(output) => output.close(tally),
            Self::Stacks(output) => output.close(tally),
        }
    }
}

/// What to write: what was asked for, else what the output's ending says.
///
/// # Errors
///
/// Nothing says it, or the two contradict each other.
fn format(path: &Path, asked_for: Option<Format>) -> Result<Format, Failure> {
    use destination::Format as File;
    let name = shown(path);
    let said = match destination::format_of(path) {
        _ if path.is_dir() => Some(Format::Sentry),
        Some(File::Svg) => Some(Format::Svg),
        Some(File::Folded) => Some(Format::Folded),
        Some(File::Otlp) => Some(Format::Otlp),
        Some(File::Envelope) => Some(Format::Sentry),
        None => None,
    };
    let standard = path.as_os_str() == STANDARD;
    let refused = |what: &str, hint: &str| Err(Failure(format!("error: {name}: {what}\nhint: {hint}")));
    match (asked_for, said) {
        (Some(Format::Sentry), Some(said)) if said != Format::Sentry => refused(
            "`--to sentry` writes envelopes, and the ending says something else",
            "leave `--to` out, or name a folder, or a file that ends with .envelope",
        ),
        (Some(Format::Sentry), _) if standard => {
            refused("envelopes are several files, which cannot go there", "name a folder")
        }
        (Some(asked_for), _) => Ok(asked_for),
        (None, Some(said)) => Ok(said),
        (None, None) if standard => {
            refused("it has no ending that says what to write", "add `--to otlp`, `--to folded` or `--to svg`")
        }
        // A name without an ending is a folder's.
        (None, None) if path.extension().is_none() => Ok(Format::Sentry),
        (None, None) => {
            let endings = destination::ENDINGS_IN_WORDS;
            let hint = format!("{endings}, or a folder; or add `--to sentry|otlp|folded|svg`");
            refused("the ending does not say what to write", &hint)
        }
    }
}

/// Holds everything until the end: no time passes here.
const MERGE: &str = "{window: 10m, resends: drop}";

fn processor(factory: ProcessorFactory, yaml: &str) -> Result<Box<dyn Processor>, Failure> {
    Section::from_yaml(yaml)
        .and_then(|section| (factory.create)(&section, &Rules::default()))
        .map_err(|problems| Failure(format!("error: {problems:?}")))
}

fn views(telemetry: Telemetry) -> Vec<Profiles> {
    match telemetry {
        Telemetry::Profiles(profiles) => vec![profiles],
        Telemetry::Envelope(envelope) => envelope.profiles,
    }
}

/// The time at which a batch is said to arrive: when it was made, so that old files are not late.
fn arrival(profiles: &Profiles) -> Now {
    let ends = profiles.profiles().map(|profile| profile.time_unix_nano.saturating_add(profile.duration_nano));
    Now { monotonic_nano: 0, unix_nano: ends.max().unwrap_or_default() }
}

/// Envelopes, each in a file of its own.
pub(super) struct Sentry {
    place: Place,
    chunk: Box<dyn Processor>,
    converter: Converter,
    files: u64,
    /// Files among them that hold an envelope as it came in.
    forwarded: u64,
    samples: u64,
    synthesized: u64,
}

/// Where envelopes go.
enum Place {
    /// Into a folder, which is made with the first of them.
    Folder(PathBuf),
    /// Into this file, and further ones beside it.
    Files(Destination),
}

impl Sentry {
    fn open(path: PathBuf) -> Result<Self, Failure> {
        let place = match destination::format_of(&path) {
            Some(format) if !path.is_dir() => Place::Files(Destination { path, format }),
            _ if path.exists() && !path.is_dir() => {
                let hint =
                    "name a folder, or a file that ends with .envelope; other formats have `--to otlp|folded|svg`";
                let why = "is no folder, and envelopes are written into one";
                return Err(Failure(format!("error: {} {why}\nhint: {hint}", shown(&path))));
            }
            _ => Place::Folder(path),
        };
        let chunk = processor(profbridge_processor_chunk::FACTORY, "{}")?;
        let converter = Converter::new(Settings::default());
        Ok(Self { place, chunk, converter, files: 0, forwarded: 0, samples: 0, synthesized: 0 })
    }

    fn take(&mut self, profiles: Profiles, tally: &mut Tally) -> Result<(), Failure> {
        let now = arrival(&profiles);
        let mut out = Outbox::default();
        process_all(&mut *self.chunk, profiles.into(), now, &mut out);
        self.write(out, tally)
    }

    fn write(&mut self, out: Outbox, tally: &mut Tally) -> Result<(), Failure> {
        tally.losses.merge(&out.losses);
        tally.note(&out.notes);
        for telemetry in out.telemetry {
            let Telemetry::Profiles(profiles) = telemetry else { continue };
            let mut envelopes = chunk_envelope::Envelopes::default();
            let report = self.converter.convert(&profiles, &mut envelopes);
            tally.losses.merge(&report.losses);
            tally.clip(&profiles, &report);
            let counts = report.counts().filter(|(name, _)| *name != "clipped_seconds");
            tally.note(&counts.collect::<Vec<_>>());
            self.samples += report.samples;
            self.synthesized += report.synthesized;
            for (bytes, summary) in envelopes.finished {
                let name = format!("{}-{}.envelope", profiles_id(&profiles), summary.chunk_id.as_simple());
                self.file(&name, &bytes)?;
            }
        }
        Ok(())
    }

    /// An envelope that came in goes out as it is.
    fn forward(&mut self, envelope: &Envelope) -> Result<(), Failure> {
        let name = format!("input-{:04}.envelope", self.files + 1);
        self.forwarded += 1;
        self.file(&name, &envelope::write(envelope, envelope::Ending::default()))
    }

    fn file(&mut self, name: &str, bytes: &[u8]) -> Result<(), Failure> {
        self.files += 1;
        let path = match &self.place {
            Place::Folder(folder) => folder.join(name),
            Place::Files(destination) => destination.part(self.files),
        };
        write_file(&path, |file| file.write_all(bytes))?;
        Ok(())
    }

    fn close(mut self, tally: &mut Tally) -> Result<Option<String>, Failure> {
        let mut out = Outbox::default();
        flush_all(&mut *self.chunk, Now { monotonic_nano: 0, unix_nano: 0 }, &mut out);
        self.write(out, tally)?;
        let Self { place, files, forwarded, samples, synthesized, .. } = self;
        let place = match place {
            Place::Folder(folder) => shown(&folder),
            Place::Files(destination) if files > 1 => format!("{} and beside it", shown(&destination.path)),
            Place::Files(destination) => shown(&destination.path),
        };
        let made = files - forwarded;
        let counted = |count: u64, one: &str| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
        let came = if forwarded == 1 { "as it came in" } else { "as they came in" };
        let converted = format!(
            "wrote {} with {} ({synthesized} of them synthesized)",
            counted(made, "envelope"),
            counted(samples, "sample")
        );
        Ok(match (made, forwarded) {
            (0, 0) => None,
            (0, 1..) => Some(format!("wrote {}, {came}, to {place}", counted(forwarded, "envelope"))),
            (_, 0) => Some(format!("{converted} to {place}")),
            _ => Some(format!("{converted}, and {forwarded} {came}, to {place}")),
        })
    }
}

fn profiles_id(profiles: &Profiles) -> String {
    profiles.window.as_ref().map(|window| window.profiler_id.to_string()).unwrap_or_default()
}

/// One `ProfilesData`; frames of several where one would be too large.
pub(crate) struct Otlp {
    path: PathBuf,
    merge: Box<dyn Processor>,
}

impl Otlp {
    /// An output that writes nothing before its end.
    pub(crate) fn new(path: PathBuf) -> Result<Self, Failure> {
        Ok(Self { path, merge: processor(profbridge_processor_dedup::FACTORY, MERGE)? })
    }

    /// Where it goes.
    #[cfg(target_os = "linux")]
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Takes what becomes a part of the message.
    pub(crate) fn merge(&mut self, profiles: Profiles, tally: &mut Tally) {
        let now = arrival(&profiles);
        let mut out = Outbox::default();
        // All files are one source here: what tells processes apart are their attributes.
        let mut profiles = profiles;
        profiles.peer = None;
        process_all(&mut *self.merge, profiles.into(), now, &mut out);
        tally.losses.merge(&out.losses);
    }

    fn close(self, tally: &mut Tally) -> Result<Option<String>, Failure> {
        let Some(Written { path, size, observations }) = self.write(tally)? else { return Ok(None) };
        Ok(Some(format!("wrote {observations} observations to {} ({})", shown(&path), terminal::bytes(size))))
    }

    /// Writes the message, unless there is not a single observation for it.
    pub(crate) fn write(mut self, tally: &mut Tally) -> Result<Option<Written>, Failure> {
        let mut out = Outbox::default();
        flush_all(&mut *self.merge, Now { monotonic_nano: 0, unix_nano: 0 }, &mut out);
        tally.losses.merge(&out.losses);
        let mut bytes = Vec::new();
        let mut observations = 0;
        for telemetry in &out.telemetry {
            observations += telemetry.observations();
            if let Telemetry::Profiles(profiles) = telemetry {
                bytes.push(encode(profiles, &EncodeOptions::default()));
            }
        }
        if observations == 0 {
            return Ok(None);
        }
        let size = write_file(&self.path, |file| match bytes.as_slice() {
            [one] => file.write_all(one),
            many => {
                let mut frames = Vec::new();
                many.iter().try_for_each(|one| put_frame(&mut frames, one)).map_err(std::io::Error::other)?;
                file.write_all(&frames)
            }
        })?;
        Ok(Some(Written { path: self.path, size, observations }))
    }
}

/// A file that was written.
pub(crate) struct Written {
    /// Where it is.
    pub(crate) path: PathBuf,
    /// Its size in bytes.
    pub(crate) size: u64,
    /// How many observations are in it.
    observations: u64,
}

/// Collapsed stacks, or a flame graph of them.
pub(super) struct Stacks {
    path: PathBuf,
    graph: bool,
    folded: Folded,
}

impl Stacks {
    fn open(path: PathBuf, graph: bool, threads: Threads) -> Box<Self> {
        Box::new(Self { path, graph, folded: Folded::new(threads) })
    }

    fn close(self, tally: &mut Tally) -> Result<Option<String>, Failure> {
        tally.losses.merge(self.folded.losses());
        if self.folded.is_empty() {
            return Ok(None);
        }
        let mut text = Vec::new();
        self.folded.write(&mut text).map_err(|error| Failure::new("stacks", &error))?;
        let lines = self.folded.lines().count();
        let size = write_file(&self.path, |file| {
            if !self.graph {
                return file.write_all(&text);
            }
            flamegraph::draw(&String::from_utf8_lossy(&text), "profbridge", self.folded.unit(), file)
        })?;
        Ok(Some(format!("wrote {lines} stacks to {} ({})", shown(&self.path), terminal::bytes(size))))
    }
}
