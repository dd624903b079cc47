//! OTLP: one `ProfilesData`; frames or lines of several where one would be too large.

use std::io::Write;
use std::path::PathBuf;

use bytes::Bytes;
use profbridge_codec::otlp::{Encoder, EncoderOptions, Encoding, Framing};
use profbridge_codec::{Encoded, Report};
use profbridge_engine::component::Outbox;
use profbridge_engine::config::Section;
use profbridge_identity::Rules;
use profbridge_model::Profiles;
use profbridge_wire::otlp::delimited::put_frame;

use super::Stage;
use crate::Failure;
use crate::files::write_file;

/// Collects messages, and writes them at the end.
pub(crate) struct Otlp {
    /// Where they go.
    pub(crate) path: PathBuf,
    dedup: Stage,
    encoder: Encoder,
    encoding: Encoding,
    messages: Vec<Bytes>,
    /// The observations in them.
    pub(crate) observations: u64,
}

/// How batches become one message: they are held until the end, since no time passes.
pub(crate) const MERGE: &str = "{window: 10m, resends: drop}";

impl Otlp {
    /// An output that writes nothing before its end. `dedup` is the section of the processor that merges.
    pub(crate) fn open(path: PathBuf, dedup: &Section, encoding: Encoding) -> Result<Self, Failure> {
        let dedup = Stage::new(profbridge_processor_dedup::FACTORY, dedup, &Rules::default())?;
        let framing = match encoding {
            Encoding::Protobuf => Framing::None,
            Encoding::Json => Framing::Line,
        };
        let encoder = Encoder::new(EncoderOptions { encoding, framing, ..EncoderOptions::plain(usize::MAX) });
        Ok(Self { path, dedup, encoder, encoding, messages: Vec::new(), observations: 0 })
    }

    /// Takes what becomes a part of the message.
    pub(crate) fn take(&mut self, mut batch: Profiles, report: &mut Report) {
        // All files are one source here: what tells processes apart are their attributes.
        batch.peer = None;
        let out = self.dedup.take(batch);
        self.encode(out, report);
    }

    fn encode(&mut self, out: Outbox, report: &mut Report) {
        report.losses.merge(&out.losses);
        for telemetry in &out.telemetry {
            let Encoded { messages, report: made } = self.encoder.encode(telemetry);
            // Which messages left as they came says nothing here.
            report.merge(Report { notes: Vec::new(), ..made });
            self.observations += messages.iter().map(|message| message.quantities.observations).sum::<u64>();
            self.messages.extend(messages.into_iter().map(|message| message.body));
        }
    }

    /// Writes the message, unless there is not a single observation for it, and returns the file's size in bytes.
    pub(crate) fn close(&mut self, report: &mut Report) -> Result<Option<u64>, Failure> {
        let out = self.dedup.flush();
        self.encode(out, report);
        let Self { path, messages, observations, encoding, .. } = self;
        if *observations == 0 {
            return Ok(None);
        }
        write_file(path, |file| match messages.as_slice() {
            [one] => file.write_all(one),
            lines if *encoding == Encoding::Json => lines.iter().try_for_each(|line| file.write_all(line)),
            many => {
                let mut frames = Vec::new();
                many.iter().try_for_each(|one| put_frame(&mut frames, one)).map_err(std::io::Error::other)?;
                file.write_all(&frames)
            }
        })
        .map(Some)
    }
}
