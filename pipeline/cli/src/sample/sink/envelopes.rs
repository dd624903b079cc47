//! Sentry envelopes: one for each chunk, since Sentry takes no two chunks in one (getsentry/relay
//! `relay-server/src/utils/sizes.rs`). A chunk is at most a minute of one process.

use std::io::Write;

use profbridge_engine::component::{Now, Outbox, Processor, flush_all, process_all};
use profbridge_engine::config::Section;
use profbridge_identity::Rules;
use profbridge_model::{Profiles, Telemetry};
use profbridge_wire::sentry::chunk::{Converter, Settings};
use profbridge_wire::sentry::chunk_envelope;

use super::{Destination, Written};
use crate::Failure;
use crate::files::write_file;

/// Writes envelopes as they become ready.
pub(crate) struct Envelopes {
    destination: Destination,
    chunk: Box<dyn Processor>,
    converter: Converter,
    number: u64,
}

impl Envelopes {
    pub(super) fn open(destination: Destination) -> Result<Self, Failure> {
        // Each part is cut on its own: parts are no longer than a chunk may be.
        let identity = Rules { window: 0, ..Rules::default() };
        let chunk = (profbridge_processor_chunk::FACTORY.create)(&Section::defaults(), &identity)
            .map_err(|problems| Failure(format!("error: {problems:?}")))?;
        Ok(Self { destination, chunk, converter: Converter::new(Settings::default()), number: 0 })
    }

    pub(super) fn take(&mut self, profiles: &Profiles, written: &mut Written) -> Result<(), Failure> {
        let ends = profiles.profiles().map(|profile| profile.time_unix_nano.saturating_add(profile.duration_nano));
        let now = Now { monotonic_nano: 0, unix_nano: ends.max().unwrap_or_default() };
        let mut out = Outbox::default();
        process_all(&mut *self.chunk, profiles.clone().into(), now, &mut out);
        self.write(out, written)
    }

    pub(super) fn close(mut self, written: &mut Written) -> Result<(), Failure> {
        let mut out = Outbox::default();
        flush_all(&mut *self.chunk, Now { monotonic_nano: 0, unix_nano: 0 }, &mut out);
        self.write(out, written)?;
        if self.number == 0 {
            return Err(super::nothing(&self.destination.path));
        }
        Ok(())
    }

    fn write(&mut self, out: Outbox, written: &mut Written) -> Result<(), Failure> {
        written.losses.merge(&out.losses);
        for telemetry in out.telemetry {
            let Telemetry::Profiles(profiles) = telemetry else { continue };
            let mut envelopes = chunk_envelope::Envelopes::default();
            let report = self.converter.convert(&profiles, &mut envelopes);
            written.losses.merge(&report.losses);
            for (bytes, _) in envelopes.finished {
                self.number += 1;
                let path = self.destination.part(self.number);
                let size = write_file(&path, |file| file.write_all(&bytes))?;
                written.files.push((path, size));
            }
        }
        Ok(())
    }
}
