//! What a file is, told by its content.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use profbridge_model::{Envelope, Profiles, Reason, Telemetry};
use profbridge_net::compression::{Coding, decompress};
use profbridge_wire::otlp::delimited::frames;
use profbridge_wire::otlp::{self, Kind};
use profbridge_wire::sentry::{chunk_reader, envelope};

use super::Tally;
use crate::Failure;

/// The content of a file, decompressed.
pub(super) struct Input {
    path: PathBuf,
    bytes: Bytes,
}

impl Input {
    /// Reads a file of at most `limit` bytes, before and after decompression.
    pub(super) fn read(path: &Path, limit: usize) -> Result<Self, Failure> {
        let failed = |error: &(dyn std::error::Error + 'static)| Failure::new(path.display(), error);
        let file = File::open(path).map_err(|error| failed(&error))?;
        let mut bytes = Vec::new();
        file.take(limit as u64 + 1).read_to_end(&mut bytes).map_err(|error| failed(&error))?;
        if bytes.len() > limit {
            let why = format!("error: {}: is larger than {} MiB, see --limit-mib", path.display(), limit >> 20);
            return Err(Failure(why));
        }
        let coding = match otlp::sniff(&bytes) {
            Kind::Gzip => Coding::Gzip,
            Kind::Zstd => Coding::Zstd,
            _ => Coding::Identity,
        };
        let bytes = decompress(coding, bytes.into(), limit).map_err(|error| failed(&error))?;
        Ok(Self { path: path.to_owned(), bytes })
    }

    /// Hands over each message in the file. What is refused of it is counted and named; the rest goes on.
    pub(super) fn each(
        self,
        tally: &mut Tally,
        mut take: impl FnMut(Telemetry, &mut Tally) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let path = self.path.display().to_string();
        let peer: Arc<str> = path.as_str().into();
        let failed = |error: &(dyn std::error::Error + 'static)| Failure::new(&path, error);
        match otlp::sniff(&self.bytes) {
            Kind::Json if is_chunk(&self.bytes) => {
                let profiles = chunk_reader::read(&self.bytes).map_err(|error| failed(&error))?;
                take(from(profiles, &peer).into(), tally)
            }
            Kind::Json => {
                let parsed = envelope::read(self.bytes).map_err(|error| failed(&error))?;
                take(with_views(parsed.envelope, &peer, &path, tally).into(), tally)
            }
            Kind::Frames => {
                let mut decoded = 0;
                for (number, frame) in frames(self.bytes).enumerate() {
                    let frame = frame.map_err(|error| failed(&error))?;
                    match decode(frame, &peer, &format!("{path}: message {}", number + 1), tally) {
                        Ok(profiles) => {
                            decoded += 1;
                            take(profiles.into(), tally)?;
                        }
                        Err(Failure(why)) => tally.refused.push(why),
                    }
                }
                if decoded == 0 {
                    return Err(Failure(format!("error: {path}: not one message in it can be read")));
                }
                Ok(())
            }
            Kind::Protobuf => take(decode(self.bytes, &peer, &path, tally)?.into(), tally),
            Kind::Gzip | Kind::Zstd | Kind::Unknown => Err(Failure(format!(
                "error: {path}: is neither OTLP protobuf, nor the Collector's frames of it, nor a Sentry envelope or chunk"
            ))),
        }
    }
}

/// Whether JSON is the payload of a chunk rather than an envelope, whose first line is a header.
fn is_chunk(bytes: &[u8]) -> bool {
    let first_line = bytes.split(|&byte| byte == b'\n').next().unwrap_or_default();
    match serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(first_line) {
        Ok(object) => object.contains_key("profile") || object.contains_key("profiler_id"),
        // An object that goes on after its first line is no envelope's header.
        Err(_) => true,
    }
}

fn from(mut profiles: Profiles, peer: &Arc<str>) -> Profiles {
    profiles.peer = Some(Arc::clone(peer));
    profiles
}

fn decode(bytes: Bytes, peer: &Arc<str>, place: &str, tally: &mut Tally) -> Result<Profiles, Failure> {
    let decoded = otlp::decode(bytes, &otlp::Limits::default()).map_err(|error| Failure::new(place, &error))?;
    tally.losses.add(Reason::Malformed, decoded.refused_observations());
    tally.observations += decoded.refused_observations();
    tally.refused.extend(decoded.refused.iter().map(|refusal| format!("{place}: {}", refusal.invalid)));
    Ok(from(decoded.profiles, peer))
}

/// An envelope with the profiles in it as views.
fn with_views(mut envelope: Envelope, peer: &Arc<str>, path: &str, tally: &mut Tally) -> Envelope {
    let views: Vec<_> = chunk_reader::read_items(&envelope).collect();
    for view in views {
        match view {
            Ok(profiles) => envelope.profiles.push(from(profiles, peer)),
            Err(error) => tally.refused.push(format!("{path}: {error}")),
        }
    }
    envelope
}
