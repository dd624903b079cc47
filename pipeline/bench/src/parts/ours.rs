//! profbridge's path in this process: the work of its binary from a request's body to an envelope's body, with the real
//! components, but without sockets, queues and threads.

use bytes::Bytes;
use profbridge_engine::component::{Exporter, Now, Outbox, Processor, process_all};
use profbridge_engine::config::Section;
use profbridge_exporter_sentry as sentry;
use profbridge_identity::Rules;
use profbridge_model::{Profiles, Telemetry};
use profbridge_wire::otlp::{self, Limits};

use crate::Error;

/// The measured components: the decoder, the processor `chunk` with windows of length 0, and the Sentry exporter's
/// `prepare`.
pub(crate) struct Ours {
    limits: Limits,
    chunk: Box<dyn Processor>,
    exporter: sentry::SentryExporter,
}

/// The result for a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Prepared {
    /// The bodies that would be sent.
    pub(crate) bodies: Vec<Bytes>,
    /// Observations that are in no envelope.
    pub(crate) lost: u64,
}

impl Prepared {
    /// The size of all envelopes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bodies.iter().map(Bytes::len).sum()
    }
}

impl Ours {
    /// Creates the path with a codec: `zstd`, `gzip` or `none`.
    pub(crate) fn new(compression: &str) -> Result<Self, Error> {
        let identity = Rules { window: 0, ..Rules::default() };
        let chunk = (profbridge_processor_chunk::FACTORY.create)(&Section::defaults(), &identity)
            .map_err(|problems| problems.to_string())?;
        let dsn = "http://0123456789abcdef0123456789abcdef@127.0.0.1:9/1";
        let section = Section::from_yaml(&format!("dsn: {dsn}\ncompression: {compression}"))
            .map_err(|problems| problems.to_string())?;
        let config = sentry::Config::read(&section).map_err(|problems| problems.to_string())?;
        let settings = config.check(&section).map_err(|problems| problems.to_string())?;
        Ok(Self { limits: Limits::default(), chunk, exporter: sentry::SentryExporter::new(settings) })
    }

    /// Converts a request's body to envelopes.
    pub(crate) fn run(&mut self, request: Bytes, now: Now) -> Result<Prepared, Error> {
        let profiles = self.decode(request)?;
        let out = self.cut(profiles, now);
        let mut prepared = Prepared { bodies: Vec::new(), lost: out.losses.total().total() };
        for telemetry in out.telemetry {
            self.prepare(&telemetry, now, &mut prepared);
        }
        Ok(prepared)
    }

    /// Decodes a request's body to a batch.
    pub(crate) fn decode(&self, request: Bytes) -> Result<Profiles, Error> {
        Ok(otlp::decode(request, &self.limits)?.profiles)
    }

    /// Splits a batch into windows of one process each.
    pub(crate) fn cut(&mut self, profiles: Profiles, now: Now) -> Outbox {
        let mut out = Outbox::default();
        process_all(&mut *self.chunk, profiles.into(), now, &mut out);
        out
    }

    /// Converts a window to envelopes.
    pub(crate) fn prepare(&self, telemetry: &Telemetry, now: Now, prepared: &mut Prepared) {
        let ready = self.exporter.prepare(telemetry, now);
        prepared.lost += ready.losses.total().total();
        prepared.bodies.extend(ready.requests.into_iter().map(|request| request.body));
    }
}

/// The time at which a report that starts at [`profbridge_testkit::T0`] would arrive.
pub(crate) fn now() -> Now {
    Now { monotonic_nano: 1, unix_nano: profbridge_testkit::T0 }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::end_to_end::{active_samples, decompress};
    use profbridge_testkit::{naive, workload};

    /// Guarantees: both programs do the same work: they deliver the same observations for the same request.
    #[test]
    fn as_much_as_the_control() {
        for shape in [workload::Shape::Tiny, workload::Shape::Avg, workload::Shape::Adversarial] {
            let request = Bytes::from(workload::request(shape).encode_to_vec());
            let control = naive::run(&request).unwrap();
            let active = |encoding, body: &[u8]| active_samples(&decompress(Some(encoding), body).unwrap());
            let expected: u64 = control.iter().map(|body| active("gzip", body)).sum();
            let prepared = Ours::new("zstd").unwrap().run(request, now()).unwrap();
            let delivered: u64 = prepared.bodies.iter().map(|body| active("zstd", body)).sum();
            assert_eq!((delivered, prepared.lost), (expected, 0), "{shape}");
        }
    }
}
