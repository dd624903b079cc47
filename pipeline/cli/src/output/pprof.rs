//! pprof: one file, and further ones beside it where there are several profiles.

use std::cmp::Reverse;
use std::io::Write;
use std::path::PathBuf;

use bytes::Bytes;
use profbridge_codec::{Encoded, Report, pprof};
use profbridge_engine::component::Outbox;
use profbridge_engine::config::Section;
use profbridge_identity::Rules;
use profbridge_model::Profiles;

use super::{Stage, profiles};
use crate::Failure;
use crate::destination::Destination;
use crate::files::Results;
use crate::terminal::STANDARD;

/// Collects profiles, and writes them at the end.
pub(crate) struct Pprof {
    /// Where they go.
    pub(crate) destination: Destination,
    dedup: Option<Stage>,
    /// The profiles, each with its observations.
    profiles: Vec<(u64, Bytes)>,
    /// The observations in them.
    pub(crate) observations: u64,
    /// The files, each with its size in bytes.
    pub(crate) files: Vec<(PathBuf, u64)>,
}

impl Pprof {
    /// An output that writes nothing before its end, and each batch by itself.
    pub(crate) fn open(destination: Destination) -> Self {
        Self { destination, dedup: None, profiles: Vec::new(), observations: 0, files: Vec::new() }
    }

    /// As [`open`](Self::open), for the parts of a run, which are put together by the processor of this section.
    pub(crate) fn merging(destination: Destination, dedup: &Section) -> Result<Self, Failure> {
        let dedup = Stage::new(profbridge_processor_dedup::FACTORY, dedup, &Rules::default())?;
        Ok(Self { dedup: Some(dedup), ..Self::open(destination) })
    }

    /// Takes a batch.
    pub(crate) fn take(&mut self, batch: &Profiles, report: &mut Report) {
        match &mut self.dedup {
            None => self.encode(batch, report),
            Some(dedup) => {
                let out = dedup.take(batch.clone());
                self.encode_all(out, report);
            }
        }
    }

    fn encode_all(&mut self, out: Outbox, report: &mut Report) {
        report.losses.merge(&out.losses);
        profiles(out.telemetry).for_each(|batch| self.encode(&batch, report));
    }

    fn encode(&mut self, batch: &Profiles, report: &mut Report) {
        let Encoded { messages, report: made } = pprof::profiles(batch);
        report.merge(made);
        for message in messages {
            self.observations += message.quantities.observations;
            self.profiles.push((message.quantities.observations, message.body));
        }
    }

    /// Writes the files.
    pub(crate) fn close(&mut self, report: &mut Report) -> Result<(), Failure> {
        if let Some(mut dedup) = self.dedup.take() {
            let out = dedup.flush();
            self.encode_all(out, report);
            // Of the processes of a run the one that did most stands in the file that was named; a command that starts
            // another one does next to nothing.
            self.profiles.sort_by_key(|&(observations, _)| Reverse(observations));
        }
        if self.profiles.len() > 1 && self.destination.path.as_os_str() == STANDARD {
            let what =
                format!("error: {} pprof profiles are as many files, which cannot go there", self.profiles.len());
            return Err(Failure(format!("{what}\nhint: name a file; the others are written beside it")));
        }
        let mut results = Results::default();
        for (number, (_, profile)) in (1..).zip(&self.profiles) {
            results.add(self.destination.part(number), |file| file.write_all(profile))?;
        }
        self.files = results.finish()?;
        Ok(())
    }
}
