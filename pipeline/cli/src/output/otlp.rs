//! OTLP: one `ProfilesData` or one `TracesData`. Several, as frames or lines, if there are both or if one would be too
//! large.

use std::io::Write;
use std::path::PathBuf;

use bytes::Bytes;
use profbridge_codec::otlp::{EncoderOptions, Encoding, Framing, OtlpEncoder, Signal, SignalCount, as_otlp};
use profbridge_codec::sentry::EnvelopeEncoder;
use profbridge_codec::{Encoded, EncodingReport, Message};
use profbridge_engine::component::Outbox;
use profbridge_engine::config::Section;
use profbridge_identity::Rules;
use profbridge_model::{Profiles, Quantities, Reason, Spans};
use profbridge_net::compression::Compression;
use profbridge_wire::otlp::delimited::put_frame;
use profbridge_wire::otlp::{Limits, traces};
use profbridge_wire::sentry::chunk::Settings;
use profbridge_wire::sentry::otlp_spans::MAX_BYTES;

use super::Stage;
use crate::Failure;
use crate::files::write_file;

/// Collects messages, and writes them at the end.
pub(crate) struct OtlpOutput {
    path: PathBuf,
    dedup: Stage,
    alone: BatchCount,
    encoder: OtlpEncoder,
    /// Adds what Sentry's OTLP endpoint needs, if the spans are for it.
    sentry: Option<Box<EnvelopeEncoder>>,
    encoding: Encoding,
    messages: Vec<(Signal, Bytes)>,
    /// The contents of the messages.
    pub(crate) quantities: Quantities,
}

/// Merges batches into one message: with a clock that stands still, they stay in the window until the end.
pub(crate) const MERGE: &str = "{window: 10m, resends: drop}";

/// Whether there is only one batch of profiles. Merging a single batch would drop elements that nothing refers to, such
/// as pprof mappings without locations, which must be kept.
enum BatchCount {
    /// None so far.
    None,
    /// One, and the processor's output for it so far.
    One(Box<(Profiles, Outbox)>),
    /// There were several batches.
    Several,
}

impl OtlpOutput {
    /// Opens an output that writes only at the end. `dedup` configures the processor that merges.
    pub(crate) fn open(path: PathBuf, dedup: &Section, encoding: Encoding) -> Result<Self, Failure> {
        let dedup = Stage::new(profbridge_processor_dedup::FACTORY, dedup, &Rules::default())?;
        let framing = match encoding {
            Encoding::Protobuf => Framing::None,
            Encoding::Json => Framing::Line,
        };
        let encoder = OtlpEncoder::new(EncoderOptions { encoding, framing, ..EncoderOptions::plain(usize::MAX) });
        let quantities = Quantities::NONE;
        let (alone, messages) = (BatchCount::None, Vec::new());
        Ok(Self { path, dedup, alone, encoder, sentry: None, encoding, messages, quantities })
    }

    /// Writes spans as Sentry's OTLP endpoint needs them.
    pub(crate) fn for_sentry(self, settings: Settings) -> Self {
        Self { sentry: Some(Box::new(EnvelopeEncoder::new(settings))), ..self }
    }

    /// Adds profiles to the message.
    pub(crate) fn take(&mut self, mut batch: Profiles, report: &mut EncodingReport) {
        // All files count as one peer; attributes identify the processes.
        batch.peer = None;
        match std::mem::replace(&mut self.alone, BatchCount::Several) {
            BatchCount::None => {
                let out = self.dedup.take(batch.clone());
                self.alone = BatchCount::One(Box::new((batch, out)));
                return;
            }
            BatchCount::One(first) => self.encode_all(first.1, report),
            BatchCount::Several => {}
        }
        let out = self.dedup.take(batch);
        self.encode_all(out, report);
    }

    /// Adds spans, unchanged unless they are for Sentry.
    pub(crate) fn take_spans(&mut self, spans: Spans, report: &mut EncodingReport) {
        let Some(sentry) = &mut self.sentry else {
            let encoded = self.encoder.encode(&spans.into());
            return self.add(encoded, report);
        };
        let Some(spans) = as_otlp(&spans, &mut report.losses) else { return };
        let Encoded { messages, report: made } = sentry.otlp_spans(&spans, Compression::None);
        report.merge(made);
        for message in messages {
            match traces::decode(message.body, &Limits::default()) {
                Ok(decoded) => {
                    let encoded = self.encoder.encode(&decoded.spans.into());
                    self.add(encoded, report);
                }
                Err(_) => report.losses.add(Reason::LimitExceeded, message.quantities),
            }
        }
    }

    fn encode_all(&mut self, out: Outbox, report: &mut EncodingReport) {
        report.losses.merge(&out.losses);
        for telemetry in &out.telemetry {
            let encoded = self.encoder.encode(telemetry);
            self.add(encoded, report);
        }
    }

    fn add(&mut self, encoded: Encoded<SignalCount>, report: &mut EncodingReport) {
        let Encoded { messages, report: made } = encoded;
        // How many messages were passed on unchanged is not interesting here.
        report.merge(EncodingReport { notes: Vec::new(), ..made });
        for Message { body, quantities, meta, samples: _ } in messages {
            self.quantities += quantities;
            self.messages.push((meta.signal, body));
        }
    }

    /// Writes the message and returns the file's path and size in bytes; `None` if there is no data.
    pub(super) fn close(&mut self, report: &mut EncodingReport) -> Result<Option<(PathBuf, u64)>, Failure> {
        let mut out = self.dedup.flush();
        if let BatchCount::One(first) = std::mem::replace(&mut self.alone, BatchCount::Several) {
            let (batch, before) = *first;
            out.telemetry.splice(..0, before.telemetry);
            out.losses.merge(&before.losses);
            // The data is complete, though perhaps in other tables.
            let is_whole = out.losses.is_none() && matches!(out.telemetry[..], [_]);
            if is_whole && out.telemetry[0].observations() == batch.observations() {
                out.telemetry = vec![batch.into()];
            }
        }
        self.encode_all(out, report);
        if self.quantities.is_none() {
            return Ok(None);
        }
        let most = self.sentry.as_ref().map_or(Limits::default().max_request, |_| MAX_BYTES);
        let messages = match self.encoding {
            Encoding::Protobuf => joined(std::mem::take(&mut self.messages), most),
            Encoding::Json => self.messages.iter().map(|(_, line)| line.clone()).collect(),
        };
        let is_framed = self.encoding == Encoding::Protobuf && messages.len() > 1;
        write_file(&self.path, |file| {
            for message in &messages {
                if is_framed {
                    let mut frame = Vec::new();
                    put_frame(&mut frame, message).map_err(std::io::Error::other)?;
                    file.write_all(&frame)?;
                } else {
                    file.write_all(message)?;
                }
            }
            Ok(())
        })
        .map(|size| Some((self.path.clone(), size)))
    }
}

/// Joins all messages of spans into one, unless it would have more bytes than readers accept: concatenated protobuf
/// messages are merged (protobuf.dev "Encoding", "Last One Wins"), and a request of spans is a list of resources.
fn joined(messages: Vec<(Signal, Bytes)>, most: usize) -> Vec<Bytes> {
    let traces = || messages.iter().filter(|(signal, _)| *signal == Signal::Traces).map(|(_, body)| body);
    let size: usize = traces().map(Bytes::len).sum();
    if traces().nth(1).is_none() || size > most {
        return messages.into_iter().map(|(_, body)| body).collect();
    }
    let one: Vec<u8> = traces().flat_map(|body| body.iter().copied()).collect();
    let others = messages.iter().filter(|(signal, _)| *signal != Signal::Traces).map(|(_, body)| body.clone());
    others.chain([one.into()]).collect()
}
