//! What a file is, told by its content.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use profbridge_model::{Envelope, Profiles, Reason, Telemetry};
use profbridge_net::compression::{Coding, decompress};
use profbridge_wire::otlp::delimited::frames;
use profbridge_wire::otlp::{self, Kind};
use profbridge_wire::sentry::envelope::ItemHeader;
use profbridge_wire::sentry::{chunk_reader, envelope};

use super::{Tally, foreign};
use crate::Failure;
use crate::files::STANDARD;
use crate::terminal::shown;

/// The most types of items that are named of an envelope without a profile.
const MOST_TYPES: usize = 8;

/// The content of a file, decompressed.
pub(super) struct Input {
    path: PathBuf,
    /// What it was compressed with.
    coding: Coding,
    bytes: Bytes,
}

impl Input {
    /// Reads a file of at most `limit` bytes, before and after decompression.
    pub(super) fn read(path: &Path, limit: usize) -> Result<Self, Failure> {
        let failed = |error: &(dyn std::error::Error + 'static)| Failure::new(shown(path), error);
        let bytes = content(path, limit).map_err(|error| failed(&error))?;
        if bytes.len() > limit {
            let why = format!("error: {}: is larger than {} MiB, see --limit-mib", shown(path), limit >> 20);
            return Err(Failure(why));
        }
        let coding = match otlp::sniff(&bytes) {
            Kind::Gzip => Coding::Gzip,
            Kind::Zstd => Coding::Zstd,
            _ => Coding::Identity,
        };
        let bytes = decompress(coding, bytes.into(), limit).map_err(|error| failed(&error))?;
        Ok(Self { path: path.to_owned(), coding, bytes })
    }

    /// Hands over each message in the file. What is refused of it is counted and named; the rest goes on.
    pub(super) fn each(self, tally: &mut Tally, mut take: impl FnMut(Telemetry, &mut Tally)) -> Result<(), Failure> {
        let path = shown(&self.path);
        let peer: Arc<str> = path.as_str().into();
        let failed = |error: &(dyn std::error::Error + 'static)| Failure::new(&path, error);
        if self.bytes.is_empty() {
            return Err(Failure(format!("error: {path}: is empty")));
        }
        if let Some((what, way)) = foreign::name(&self.bytes) {
            return Err(Failure(format!("error: {path}: is {what}, which is not supported\nhint: {way}")));
        }
        match otlp::sniff(&self.bytes) {
            Kind::Json if is_chunk(&self.bytes) => {
                let profiles = chunk_reader::read(&self.bytes).map_err(|error| failed(&error))?;
                take(from(profiles, &peer).into(), tally);
            }
            Kind::Json => {
                let parsed = envelope::read(self.bytes).map_err(|error| failed(&error))?;
                take(with_views(parsed.envelope, &peer, &path, tally)?.into(), tally);
            }
            Kind::Frames => {
                let mut decoded = 0;
                for (number, frame) in frames(self.bytes).enumerate() {
                    let frame = frame.map_err(|error| failed(&error))?;
                    match decode(frame, &peer, &format!("{path}: message {}", number + 1), tally) {
                        Ok(profiles) => {
                            decoded += 1;
                            take(profiles.into(), tally);
                        }
                        Err(Failure(why)) => {
                            tally.refused.push(why.strip_prefix("error: ").unwrap_or(&why).to_owned());
                        }
                    }
                }
                if decoded == 0 {
                    return Err(Failure(format!("error: {path}: not one message in it can be read")));
                }
            }
            // A line's end is also the key of a request's first field.
            Kind::Protobuf if is_text(&self.bytes) => {
                return Err(Failure(format!("error: {path}: {}", unknown(self.coding))));
            }
            Kind::Protobuf => take(decode(self.bytes, &peer, &path, tally)?.into(), tally),
            Kind::Gzip | Kind::Zstd => {
                let hint = "unpack it once, with `gzip -d` or `zstd -d`";
                return Err(Failure(format!("error: {path}: is compressed twice\nhint: {hint}")));
            }
            Kind::Unknown => return Err(Failure(format!("error: {path}: {}", unknown(self.coding)))),
        }
        Ok(())
    }
}

/// What is said of content that is nothing known.
fn unknown(coding: Coding) -> String {
    let read = "neither OTLP protobuf, nor the Collector's frames of it, nor a Sentry envelope or chunk";
    match coding {
        Coding::Gzip => format!("is compressed with gzip, and what is in it is {read}"),
        Coding::Zstd => format!("is compressed with zstd, and what is in it is {read}"),
        Coding::Identity | Coding::Deflate => format!("is {read}"),
    }
}

/// A file's bytes, or those of standard input; one byte more than `limit` where there are more.
fn content(path: &Path, limit: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = limit as u64 + 1;
    if path.as_os_str() == STANDARD {
        io::stdin().lock().take(most).read_to_end(&mut bytes)?;
        return Ok(bytes);
    }
    let file = File::open(path)?;
    if file.metadata()?.is_dir() {
        let why = "it is a folder; name the files in it, as in FOLDER/*";
        return Err(io::Error::new(io::ErrorKind::IsADirectory, why));
    }
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Whether bytes are lines of text. A request holds lengths and numbers, of which some are control characters.
fn is_text(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok_and(|text| !text.contains(|c: char| c.is_control() && !c.is_ascii_whitespace()))
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
    tally.report.losses.add_observations(Reason::Malformed, decoded.refused_observations());
    tally.observations += decoded.refused_observations();
    tally.replaced_strings += decoded.replaced_strings;
    tally.refused.extend(decoded.refused.iter().map(|refusal| format!("{place}: {}", refusal.invalid)));
    Ok(from(decoded.profiles, peer))
}

/// An envelope with the profiles in it as views, at least one.
fn with_views(mut envelope: Envelope, peer: &Arc<str>, path: &str, tally: &mut Tally) -> Result<Envelope, Failure> {
    let views: Vec<_> = chunk_reader::read_items(&envelope).collect();
    if views.is_empty() {
        return Err(Failure(format!("error: {path}: {}", without_chunk(&envelope))));
    }
    for view in views {
        match view {
            Ok(profiles) => envelope.profiles.push(from(profiles, peer)),
            Err(error) => tally.refused.push(format!("{path}: {error}")),
        }
    }
    if envelope.profiles.is_empty() {
        return Err(Failure(format!("error: {path}: not one profile in the envelope can be read")));
    }
    Ok(envelope)
}

/// What is in an envelope that holds no profile that can be read, and what to do about it.
fn without_chunk(envelope: &Envelope) -> String {
    let mut types: Vec<(String, usize)> = Vec::new();
    for item in &envelope.items {
        let kind = ItemHeader::read(&item.header).map(|header| header.kind.into_owned()).unwrap_or_default();
        match types.iter().position(|(known, _)| *known == kind) {
            Some(known) => types[known].1 += 1,
            None if types.len() < MOST_TYPES => types.push((kind, 1)),
            None => {}
        }
    }
    if types.is_empty() {
        return "the envelope holds nothing, and no V2 profile (`profile_chunk`)".to_owned();
    }
    let listed: Vec<String> = types.iter().map(|(kind, count)| format!("{count} {}", kind.escape_debug())).collect();
    let found = format!("the envelope holds {}, and no V2 profile (`profile_chunk`)", listed.join(", "));
    if types.iter().any(|(kind, _)| kind == "profile") {
        return format!(
            "{found}; the profile in it is V1, which belongs to a transaction\nhint: {}",
            foreign::CONTINUOUS
        );
    }
    format!("{found}\nhint: profiles come in envelopes of their own; capture those of the type `profile_chunk`")
}
