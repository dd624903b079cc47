//! Sentry envelopes: one for each chunk, since Sentry does not accept two chunks in one envelope (getsentry/relay
//! `relay-server/src/utils/sizes.rs`), and one for each transaction, for the same reason. A chunk is at most one minute
//! of one process; a transaction is what one process did for one request.

use std::io::Write;
use std::path::PathBuf;

use profbridge_codec::otlp::as_otlp;
use profbridge_codec::sentry::{SpanEnvelope, SpanEnvelopeForm, TransactionTarget};
use profbridge_codec::{Encoded, EncodingReport, sentry};
use profbridge_engine::component::Outbox;
use profbridge_engine::config::Section;
use profbridge_exporter_sentry::SpanMode;
use profbridge_identity::Rules;
use profbridge_model::{Envelope, Profiles, Reason, Span, SpanForm, Spans, Telemetry};
use profbridge_net::compression::Compression;
use profbridge_wire::sentry::chunk::Settings;

use super::Stage;
use crate::Failure;
use crate::destination::Destination;
use crate::files::Results;

/// Files know no DSN.
const TARGET: TransactionTarget<'static> = TransactionTarget { number: 0, dsn: None, compression: Compression::None };

/// Writes envelopes to files of their own as soon as they are ready. The files get their names together at the end.
pub(crate) struct Envelopes {
    destination: EnvelopeDestination,
    chunk: Stage,
    /// What spans become.
    spans: SpanMode,
    /// Groups spans into transactions. `None` if spans are not requested; then they are lost.
    transactions: Option<Stage>,
    encoder: sentry::EnvelopeEncoder,
    results: Results,
    /// The contents of the files.
    pub(crate) made: EnvelopeContents,
}

/// The contents of files with envelopes.
#[derive(Debug, Default)]
pub(crate) struct EnvelopeContents {
    /// Envelopes that were written unchanged.
    pub(crate) forwarded: u64,
    /// Samples in the other envelopes, and how many of them were synthesized.
    pub(crate) samples: u64,
    pub(crate) synthesized: u64,
    /// Transactions that were grouped here, containers of spans that were received as OTLP, and the spans in both.
    pub(crate) transactions: u64,
    pub(crate) containers: u64,
    pub(crate) spans: u64,
}

/// Where to write envelopes.
pub(crate) enum EnvelopeDestination {
    /// Into a folder, which is created with the first envelope.
    Folder(PathBuf),
    /// Into this file, and numbered ones next to it.
    Files(Destination),
}

impl Envelopes {
    /// Opens an output. `chunk` configures the processor that splits profiles, `identity` identifies processes and
    /// their windows, and `settings` say how chunks are created.
    pub(crate) fn open(
        destination: EnvelopeDestination,
        chunk: &Section,
        identity: &Rules,
        settings: Settings,
    ) -> Result<Self, Failure> {
        let chunk = Stage::new(profbridge_processor_chunk::FACTORY, chunk, identity)?;
        let encoder = sentry::EnvelopeEncoder::new(settings);
        let (results, made) = (Results::default(), EnvelopeContents::default());
        Ok(Self { destination, chunk, spans: SpanMode::Auto, transactions: None, encoder, results, made })
    }

    /// Accepts spans as well, and writes them in this form. The section configures the processor that groups them.
    pub(crate) fn with_spans(self, spans: SpanMode, transactions: &Section) -> Result<Self, Failure> {
        let factory = profbridge_processor_transactions::FACTORY;
        Ok(Self { spans, transactions: Some(Stage::new(factory, transactions, &Rules::default())?), ..self })
    }

    /// Where the envelopes are written.
    pub(crate) fn destination(&self) -> &EnvelopeDestination {
        &self.destination
    }

    /// Adds a batch of profiles.
    pub(crate) fn take(&mut self, batch: Profiles, report: &mut EncodingReport) -> Result<(), Failure> {
        let out = self.chunk.take(batch);
        self.write(out, report)
    }

    /// Adds a batch of OTLP spans.
    pub(crate) fn take_spans(&mut self, spans: Spans, report: &mut EncodingReport) -> Result<(), Failure> {
        if self.spans == SpanMode::Streamed {
            let encoded = self.encoder.streamed_spans(&spans, |_| Some(TARGET));
            return self.write_encoded(encoded, report);
        }
        let spans = match self.spans {
            SpanMode::Transactions => {
                let each = spans.spans().iter().map(|span| Span { is_streamed: false, ..span.clone() });
                spans.rearranged(each.collect())
            }
            _ => spans,
        };
        match &mut self.transactions {
            Some(transactions) => {
                let out = transactions.take(spans);
                self.write(out, report)
            }
            None => self.write_spans(&spans, report),
        }
    }

    /// Writes the rest, and renames all files. Returns their paths and sizes in bytes.
    pub(super) fn close(&mut self, report: &mut EncodingReport) -> Result<Vec<(PathBuf, u64)>, Failure> {
        let out = self.chunk.flush();
        self.write(out, report)?;
        if let Some(out) = self.transactions.as_mut().map(Stage::flush) {
            self.write(out, report)?;
        }
        std::mem::take(&mut self.results).finish()
    }

    /// Writes a received envelope unchanged, unless its containers of spans shall become transactions. A transaction
    /// stays one: it says more than a container can.
    pub(crate) fn forward(&mut self, envelope: &Envelope, report: &mut EncodingReport) -> Result<(), Failure> {
        let is_containers = envelope.unread_items() == 0
            && envelope.views.len() == envelope.spans().filter(|spans| spans.form() == SpanForm::SentrySpans).count();
        if self.spans == SpanMode::Transactions && is_containers {
            for spans in envelope.spans() {
                if let Some(spans) = as_otlp(spans, &mut report.losses) {
                    self.take_spans(spans.into_owned(), report)?;
                }
            }
            return Ok(());
        }
        let encoded = self.encoder.envelope(envelope, None, Compression::None);
        report.merge(encoded.report);
        for message in encoded.messages {
            self.made.forwarded += 1;
            self.file(&format!("input-{:04}.envelope", self.results.count() + 1), &message.body)?;
        }
        Ok(())
    }

    fn write(&mut self, out: Outbox, report: &mut EncodingReport) -> Result<(), Failure> {
        report.merge(EncodingReport { losses: out.losses, notes: out.notes, ..EncodingReport::default() });
        for telemetry in out.telemetry {
            match telemetry {
                Telemetry::Profiles(batch) => self.write_chunks(&batch, report)?,
                Telemetry::Spans(spans) => self.write_spans(&spans, report)?,
                // Processors receive no envelopes here.
                Telemetry::Envelope(envelope) => self.forward(&envelope, report)?,
                other => report.losses.add(Reason::Unroutable, other.quantities()),
            }
        }
        Ok(())
    }

    fn write_chunks(&mut self, batch: &Profiles, report: &mut EncodingReport) -> Result<(), Failure> {
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

    fn write_spans(&mut self, spans: &Spans, report: &mut EncodingReport) -> Result<(), Failure> {
        let encoded = self.encoder.spans(spans, |_| Some(TARGET));
        self.write_encoded(encoded, report)
    }

    fn write_encoded(&mut self, encoded: Encoded<SpanEnvelope>, report: &mut EncodingReport) -> Result<(), Failure> {
        let Encoded { messages, report: made } = encoded;
        report.merge(made);
        for message in messages {
            let SpanEnvelope { trace_id, id, form, .. } = message.meta;
            if form == SpanEnvelopeForm::Container {
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
