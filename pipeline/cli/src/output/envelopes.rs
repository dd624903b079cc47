//! Sentry envelopes: one for each chunk, since Sentry takes no two chunks in one (getsentry/relay
//! `relay-server/src/utils/sizes.rs`), and one for each transaction, in the same way. A chunk is at most a minute of
//! one process, a transaction is what one process did for one request.

use std::io::Write;
use std::path::PathBuf;

use profbridge_codec::sentry::{SpanEnvelope, Target};
use profbridge_codec::{Encoded, Report, sentry};
use profbridge_engine::component::Outbox;
use profbridge_engine::config::Section;
use profbridge_identity::Rules;
use profbridge_model::{Envelope, Profiles, Spans, Telemetry};
use profbridge_net::compression::Compression;
use profbridge_wire::sentry::chunk::Settings;

use super::Stage;
use crate::Failure;
use crate::destination::Destination;
use crate::files::Results;

/// Writes envelopes, each into a file of its own. They are written as they become ready, and get their names together
/// at the end.
pub(crate) struct Envelopes {
    destination: EnvelopeDestination,
    chunk: Stage,
    /// What puts spans together; where nobody asked for it, spans are lost.
    transactions: Option<Stage>,
    encoder: sentry::Encoder,
    results: Results,
    /// What is in the files.
    pub(crate) made: Made,
}

/// What is in files of envelopes.
#[derive(Debug, Default)]
pub(crate) struct Made {
    /// Envelopes as they came in.
    pub(crate) forwarded: u64,
    /// Samples in the others, and how many of them were synthesized.
    pub(crate) samples: u64,
    pub(crate) synthesized: u64,
    /// Transactions among them that were put together here, containers of spans that came back from OTLP, and the spans
    /// in both.
    pub(crate) transactions: u64,
    pub(crate) containers: u64,
    pub(crate) spans: u64,
}

/// Where envelopes go.
pub(crate) enum EnvelopeDestination {
    /// Into a folder, which is made with the first of them.
    Folder(PathBuf),
    /// Into this file, and further ones beside it.
    Files(Destination),
}

impl Envelopes {
    /// An output for a place. `chunk` is the section of the processor that cuts, `identity` says who processes are and
    /// where their windows end, `settings` say how chunks are made.
    pub(crate) fn open(
        destination: EnvelopeDestination,
        chunk: &Section,
        identity: &Rules,
        settings: Settings,
    ) -> Result<Self, Failure> {
        let chunk = Stage::new(profbridge_processor_chunk::FACTORY, chunk, identity)?;
        let encoder = sentry::Encoder::new(settings);
        let (transactions, results, made) = (None, Results::default(), Made::default());
        Ok(Self { destination, chunk, transactions, encoder, results, made })
    }

    /// The same for spans as well, which the processor of this section puts together.
    pub(crate) fn with_transactions(self, transactions: &Section) -> Result<Self, Failure> {
        let factory = profbridge_processor_transactions::FACTORY;
        Ok(Self { transactions: Some(Stage::new(factory, transactions, &Rules::default())?), ..self })
    }

    /// Where they go.
    pub(crate) fn destination(&self) -> &EnvelopeDestination {
        &self.destination
    }

    /// Takes a batch.
    pub(crate) fn take(&mut self, batch: Profiles, report: &mut Report) -> Result<(), Failure> {
        let out = self.chunk.take(batch);
        self.write(out, report)
    }

    /// Takes a batch of OTLP spans.
    pub(crate) fn take_spans(&mut self, spans: Spans, report: &mut Report) -> Result<(), Failure> {
        match &mut self.transactions {
            Some(transactions) => {
                let out = transactions.take(spans);
                self.write(out, report)
            }
            None => self.write_spans(&spans, report),
        }
    }

    /// Writes what is left, and gives all files their names. Returns them with their sizes in bytes.
    pub(super) fn close(&mut self, report: &mut Report) -> Result<Vec<(PathBuf, u64)>, Failure> {
        let out = self.chunk.flush();
        self.write(out, report)?;
        if let Some(out) = self.transactions.as_mut().map(Stage::flush) {
            self.write(out, report)?;
        }
        std::mem::take(&mut self.results).finish()
    }

    /// Writes an envelope that came in as it is.
    pub(crate) fn forward(&mut self, envelope: &Envelope, report: &mut Report) -> Result<(), Failure> {
        let encoded = self.encoder.envelope(envelope, None, Compression::None);
        report.merge(encoded.report);
        for message in encoded.messages {
            self.made.forwarded += 1;
            self.file(&format!("input-{:04}.envelope", self.results.count() + 1), &message.body)?;
        }
        Ok(())
    }

    fn write(&mut self, out: Outbox, report: &mut Report) -> Result<(), Failure> {
        report.merge(Report { losses: out.losses, notes: out.notes, ..Report::default() });
        for telemetry in out.telemetry {
            match telemetry {
                Telemetry::Profiles(batch) => self.write_chunks(&batch, report)?,
                Telemetry::Spans(spans) => self.write_spans(&spans, report)?,
                // Processors are given none here.
                Telemetry::Envelope(envelope) => self.forward(&envelope, report)?,
            }
        }
        Ok(())
    }

    fn write_chunks(&mut self, batch: &Profiles, report: &mut Report) -> Result<(), Failure> {
        let id = batch.window.as_ref().map(|window| window.profiler_id.to_string()).unwrap_or_default();
        let Encoded { messages, report: made } = self.encoder.profiles(batch, Compression::None, None);
        report.merge(made);
        for message in messages {
            self.made.samples += message.meta.samples;
            self.made.synthesized += message.meta.synthesized;
            self.file(&format!("{id}-{}.envelope", message.meta.chunk_id.as_simple()), &message.body)?;
        }
        Ok(())
    }

    fn write_spans(&mut self, spans: &Spans, report: &mut Report) -> Result<(), Failure> {
        let target = Target { number: 0, dsn: None, compression: Compression::None };
        let Encoded { messages, report: made } = self.encoder.spans(spans, |_| Some(target));
        report.merge(made);
        for message in messages {
            let SpanEnvelope { trace_id, id, is_container, .. } = message.meta;
            if is_container {
                self.made.containers += 1;
            } else {
                self.made.transactions += 1;
            }
            self.made.spans += message.quantities.spans;
            self.file(&format!("{trace_id}-{id:032x}.envelope"), &message.body)?;
        }
        Ok(())
    }

    fn file(&mut self, name: &str, bytes: &[u8]) -> Result<(), Failure> {
        let path = match &self.destination {
            EnvelopeDestination::Folder(folder) => folder.join(name),
            EnvelopeDestination::Files(destination) => destination.part(self.results.count() as u64 + 1),
        };
        self.results.add(path, |file| file.write_all(bytes))
    }
}
