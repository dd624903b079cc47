//! pprof: one file, and numbered ones next to it if there are several profiles.

use std::cmp::Reverse;
use std::io::Write;
use std::path::PathBuf;

use bytes::Bytes;
use profbridge_codec::{Encoded, EncodingReport, pprof};
use profbridge_engine::component::Outbox;
use profbridge_engine::config::Section;
use profbridge_identity::Rules;
use profbridge_model::Profiles;

use super::{Stage, profiles};
use crate::Failure;
use crate::destination::Destination;
use crate::files::Results;
use crate::terminal::{STANDARD, shown};

/// Collects profiles, and writes them at the end.
pub(crate) struct Pprof {
    destination: Destination,
    dedup: Option<Stage>,
    /// The encoded profiles, each with its number of observations.
    profiles: Vec<(u64, Bytes)>,
    /// The total number of observations.
    pub(crate) observations: u64,
    /// Where to write a run's profiles if standard output was requested, which can take only one of several.
    rescue: PathBuf,
}

/// The name of that file.
const RESCUE: &str = "profbridge.pprof";

impl Pprof {
    /// Opens an output that writes only at the end, one profile per batch.
    pub(crate) fn open(destination: Destination) -> Self {
        let rescue = PathBuf::from(RESCUE);
        Self { destination, dedup: None, profiles: Vec::new(), observations: 0, rescue }
    }

    /// Like [`open`](Self::open), for the parts of a run, which the processor of this section merges.
    pub(crate) fn merging(destination: Destination, dedup: &Section) -> Result<Self, Failure> {
        let dedup = Stage::new(profbridge_processor_dedup::FACTORY, dedup, &Rules::default())?;
        Ok(Self { dedup: Some(dedup), ..Self::open(destination) })
    }

    /// Adds a batch.
    pub(crate) fn take(&mut self, batch: &Profiles, report: &mut EncodingReport) {
        match &mut self.dedup {
            None => self.encode(batch, report),
            Some(dedup) => {
                let out = dedup.take(batch.clone());
                self.encode_all(out, report);
            }
        }
    }

    fn encode_all(&mut self, out: Outbox, report: &mut EncodingReport) {
        report.losses.merge(&out.losses);
        profiles(out.telemetry).for_each(|batch| self.encode(&batch, report));
    }

    fn encode(&mut self, batch: &Profiles, report: &mut EncodingReport) {
        let Encoded { messages, report: made } = pprof::profiles(batch);
        report.merge(made);
        for message in messages {
            self.observations += message.quantities.observations;
            self.profiles.push((message.quantities.observations, message.body));
        }
    }

    /// Writes the files, and returns their paths and sizes in bytes.
    pub(super) fn close(&mut self, report: &mut EncodingReport) -> Result<Vec<(PathBuf, u64)>, Failure> {
        let is_run = self.dedup.is_some();
        if let Some(mut dedup) = self.dedup.take() {
            let out = dedup.flush();
            self.encode_all(out, report);
            // The busiest process of a run gets the requested file; a command that only starts another one does very
            // little.
            self.profiles.sort_by_key(|&(observations, _)| Reverse(observations));
        }
        if self.profiles.len() > 1 && self.destination.path.as_os_str() == STANDARD {
            let what =
                format!("error: {} pprof profiles are as many files, which cannot go there", self.profiles.len());
            let hint = "hint: name a file; the others are written beside it";
            // Unlike a conversion, a run cannot be repeated.
            let instead = if is_run { self.rescue()? } else { String::new() };
            return Err(Failure(format!("{what}{instead}\n{hint}")));
        }
        self.write()
    }

    /// Writes the profiles to fallback files, and returns a message with their names.
    fn rescue(&mut self) -> Result<String, Failure> {
        let with_number = |number: u64| {
            let path = Destination { path: self.rescue.clone(), ..self.destination.clone() }.part(number);
            Destination { path, ..self.destination.clone() }
        };
        let is_free = |destination: &Destination| {
            (1..).zip(&self.profiles).all(|(number, _)| destination.part(number).symlink_metadata().is_err())
        };
        // Nobody chose these names, so existing files are not replaced.
        let free = (1..100).map(with_number).find(is_free);
        self.destination = free.ok_or_else(|| Failure(format!("error: {} is taken", shown(&self.rescue))))?;
        let files = self.write()?;
        let last = files.last().map(|(path, _)| shown(path)).unwrap_or_default();
        Ok(format!("; they are in {} to {last}", shown(&self.destination.path)))
    }

    fn write(&self) -> Result<Vec<(PathBuf, u64)>, Failure> {
        let mut results = Results::default();
        for (number, (_, profile)) in (1..).zip(&self.profiles) {
            results.add(self.destination.part(number), |file| file.write_all(profile))?;
        }
        results.finish()
    }
}

#[cfg(test)]
mod tests {
    use profbridge_model::{Builder, Profile};

    use super::*;
    use crate::destination::Format;
    use crate::views::flamegraph::GraphStyle;

    /// Two processes, which are as many pprof profiles.
    fn two_processes() -> Profiles {
        let mut builder = Builder::new();
        for (pid, count) in [(6, 1), (7, 3)] {
            builder.resource(&[("process.pid", pid.into())]);
            let sample_type = builder.value_type("wall", "nanoseconds");
            builder.profile(Profile { sample_type, time_unix_nano: 1, duration_nano: 9, ..Profile::default() });
            let frame = builder.frame("work", "app.c", 1);
            let stack = builder.stack(&[frame]);
            builder.sample(stack, None, None, &vec![1; count], &vec![1; count]);
        }
        builder.finish().unwrap()
    }

    /// Guarantees: if several profiles of a run were to go to standard output, they are written to new files beside
    /// each other, which the message names. Profiles of a conversion are not written, since it can be repeated.
    #[test]
    fn several_for_standard_output() {
        let folder = tempfile::tempdir().unwrap();
        let standard =
            || Destination { path: PathBuf::from(STANDARD), format: Format::Pprof, graph: GraphStyle::default() };
        let rescue = folder.path().join(RESCUE);
        let run = || {
            let section = Section::from_yaml("{window: 10m}").unwrap();
            let mut pprof = Pprof { rescue: rescue.clone(), ..Pprof::merging(standard(), &section).unwrap() };
            pprof.take(&two_processes(), &mut EncodingReport::default());
            let Failure(why) = pprof.close(&mut EncodingReport::default()).unwrap_err();
            let files = std::fs::read_dir(folder.path()).unwrap().count();
            (why, files)
        };
        let written = |names: [&str; 2], why: &str| {
            let mut paths = names.iter().map(|name| folder.path().join(name));
            assert!(paths.all(|path| path.is_file() && why.contains(&shown(&path))), "{why}");
        };
        let (why, files) = run();
        assert_eq!(files, 2);
        written(["profbridge.pprof", "profbridge-2.pprof"], &why);
        let (why, files) = run();
        assert_eq!(files, 4);
        written(["profbridge-3.pprof", "profbridge-3-2.pprof"], &why);
        let mut conversion = Pprof { rescue, ..Pprof::open(standard()) };
        conversion.take(&two_processes(), &mut EncodingReport::default());
        let Failure(why) = conversion.close(&mut EncodingReport::default()).unwrap_err();
        assert!(std::fs::read_dir(folder.path()).unwrap().count() == 4 && why.contains("hint: name a file"), "{why}");
    }
}
