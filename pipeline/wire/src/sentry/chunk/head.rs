//! The metadata of a chunk, apart from its samples.

use uuid::Uuid;

use profbridge_model::ProfilerId;

use super::Subject;
use super::report::Notes;
use super::write::ObjectWriter;
use crate::sentry::chunk_envelope::SDK_NAME;

/// The sender's name and version for Sentry. It is not the name of one of Sentry's own SDKs, because Sentry checks
/// their versions.
const SDK: (&str, &str) = (SDK_NAME, env!("CARGO_PKG_VERSION"));

/// The metadata of a chunk.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head<'a> {
    pub(super) platform: &'a str,
    pub(super) profiler_id: ProfilerId,
    pub(super) release: Option<&'a str>,
    pub(super) environment: Option<&'a str>,
    sdk: (&'a str, &'a str),
    /// The measurements as JSON.
    measurements: Option<&'a str>,
    /// The chunk's id, if it has one already.
    pub(super) id: Option<Uuid>,
}

impl<'a> Head<'a> {
    /// The metadata of a chunk of this platform. Measurements that Sentry would reject are omitted and counted.
    pub(super) fn of(subject: Subject<'a>, platform: &'a str, notes: &mut Notes) -> Self {
        let Subject { profiler_id, about, original, .. } = subject;
        let sdk = original.map(|original| original.sdk()).filter(|(name, _)| !name.is_empty());
        Self {
            platform,
            profiler_id,
            release: about.release.as_deref(),
            environment: Some(&*about.environment).filter(|name| !name.is_empty()),
            // Relay rejects a chunk without an SDK.
            sdk: sdk.unwrap_or(SDK),
            measurements: original.and_then(|original| original.measurements(notes)),
            // In OTLP a nil id means that there is none.
            id: original.and_then(|original| original.profile.profile_id).map(Uuid::from_bytes),
        }
    }

    /// Appends the metadata after the opening bracket of the chunk. In a preserved chunk (`kept`) texts are not
    /// truncated.
    pub(super) fn write(&self, out: &mut Vec<u8>, kept: bool, notes: &mut Notes) {
        let mut object = ObjectWriter::open(out, kept, notes);
        object.text("version", Some(b"2"));
        object.text("platform", Some(self.platform.as_bytes()));
        object.object("client_sdk", &[("name", self.sdk.0), ("version", self.sdk.1)]);
        object.text("profiler_id", Some(self.profiler_id.to_string().as_bytes()));
        object.text("release", self.release.map(str::as_bytes));
        object.text("environment", self.environment.map(str::as_bytes));
        object.json("measurements", self.measurements);
    }
}
