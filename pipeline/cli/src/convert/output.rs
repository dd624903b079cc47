//! Where the converted profiles go.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use profbridge_engine::component::{Now, Outbox, Processor};
use profbridge_engine::config::Section;
use profbridge_model::{Envelope, Profiles, Telemetry};
use profbridge_wire::folded::{Folded, Threads};
use profbridge_wire::otlp::delimited::put_frame;
use profbridge_wire::otlp::{EncodeOptions, encode};
use profbridge_wire::sentry::chunk::{Converter, Settings};
use profbridge_wire::sentry::{chunk_envelope, envelope};

use super::Tally;
use crate::args::{ConvertArgs, Format};
use crate::files::write_file;
use crate::{Failure, flamegraph, terminal};

/// An output of one of the formats.
pub(super) enum Output {
    Sentry(Box<Sentry>),
    Otlp(Otlp),
    Stacks(Box<Stacks>),
}

impl Output {
    /// Opens an output, as far as that needs no result yet.
    pub(super) fn open(arguments: &ConvertArgs) -> Result<Self, Failure> {
        let path = arguments.output.clone();
        Ok(match arguments.to {
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

    /// Writes what is left and says what was written.
    pub(super) fn close(self, tally: &mut Tally) -> Result<String, Failure> {
        match self {
            Self::Sentry(output) => output.close(tally),
            Self::Otlp(output) => output.close(tally),
            Self::Stacks(output) => output.close(tally),
        }
    }
}

/// Holds everything until the end: no time passes here.
const MERGE: &str = "{window: 10m, resends: drop}";

fn processor(
    create: fn(&Section) -> Result<Box<dyn Processor>, profbridge_engine::config::Problems>,
    yaml: &str,
) -> Result<Box<dyn Processor>, Failure> {
    Section::from_yaml(yaml)
        .and_then(|section| create(&section))
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
    folder: PathBuf,
    chunk: Box<dyn Processor>,
    converter: Converter,
    files: u64,
    /// Files among them that hold an envelope as it came in.
    forwarded: u64,
    samples: u64,
    synthesized: u64,
}

impl Sentry {
    fn open(folder: PathBuf) -> Result<Self, Failure> {
        fs::create_dir_all(&folder).map_err(|error| Failure::new(folder.display(), &error))?;
        let chunk = processor(profbridge_processor_chunk::FACTORY.create, "{}")?;
        let converter = Converter::new(Settings::default());
        Ok(Self { folder, chunk, converter, files: 0, forwarded: 0, samples: 0, synthesized: 0 })
    }

    fn take(&mut self, profiles: Profiles, tally: &mut Tally) -> Result<(), Failure> {
        let now = arrival(&profiles);
        let mut out = Outbox::default();
        self.chunk.process(profiles.into(), now, &mut out);
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
            tally.note(&report.counts().collect::<Vec<_>>());
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
        let path = self.folder.join(name);
        write_file(&path, |file| file.write_all(bytes))?;
        self.files += 1;
        Ok(())
    }

    fn close(mut self, tally: &mut Tally) -> Result<String, Failure> {
        let mut out = Outbox::default();
        self.chunk.flush(Now { monotonic_nano: 0, unix_nano: 0 }, &mut out);
        self.write(out, tally)?;
        let Self { folder, files, forwarded, samples, synthesized, .. } = self;
        let folder = folder.display();
        let made = files - forwarded;
        Ok(match (made, forwarded) {
            (0, 1..) => format!("wrote {forwarded} envelopes, as they came in, to {folder}"),
            (_, 0) => {
                format!("wrote {made} envelopes with {samples} samples ({synthesized} of them synthesized) to {folder}")
            }
            _ => format!(
                "wrote {made} envelopes with {samples} samples ({synthesized} of them synthesized), and {forwarded} as they came in, to {folder}"
            ),
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
        Ok(Self { path, merge: processor(profbridge_processor_dedup::FACTORY.create, MERGE)? })
    }

    /// Takes what becomes a part of the message.
    pub(crate) fn merge(&mut self, profiles: Profiles, tally: &mut Tally) {
        let now = arrival(&profiles);
        let mut out = Outbox::default();
        // All files are one source here: what tells processes apart are their attributes.
        let mut profiles = profiles;
        profiles.peer = None;
        self.merge.process(profiles.into(), now, &mut out);
        tally.losses.merge(&out.losses);
    }

    fn close(self, tally: &mut Tally) -> Result<String, Failure> {
        let Written { path, size, observations } = self.write(tally)?;
        Ok(format!("wrote {observations} observations to {} ({})", path.display(), terminal::bytes(size)))
    }

    /// Writes the message.
    pub(crate) fn write(mut self, tally: &mut Tally) -> Result<Written, Failure> {
        let mut out = Outbox::default();
        self.merge.flush(Now { monotonic_nano: 0, unix_nano: 0 }, &mut out);
        tally.losses.merge(&out.losses);
        let mut bytes = Vec::new();
        let mut observations = 0;
        for telemetry in &out.telemetry {
            observations += telemetry.observations();
            if let Telemetry::Profiles(profiles) = telemetry {
                bytes.push(encode(profiles, &EncodeOptions::default()));
            }
        }
        let size = write_file(&self.path, |file| match bytes.as_slice() {
            [one] => file.write_all(one),
            many => {
                let mut frames = Vec::new();
                many.iter().try_for_each(|one| put_frame(&mut frames, one)).map_err(std::io::Error::other)?;
                file.write_all(&frames)
            }
        })?;
        Ok(Written { path: self.path, size, observations })
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

    fn close(self, tally: &mut Tally) -> Result<String, Failure> {
        tally.losses.merge(self.folded.losses());
        let mut text = Vec::new();
        self.folded.write(&mut text).map_err(|error| Failure::new("stacks", &error))?;
        let lines = self.folded.lines().count();
        let size = write_file(&self.path, |file| {
            if !self.graph {
                return file.write_all(&text);
            }
            flamegraph::draw(&String::from_utf8_lossy(&text), "profbridge", self.folded.unit(), file)
        })?;
        Ok(format!("wrote {lines} stacks to {} ({})", self.path.display(), terminal::bytes(size)))
    }
}
