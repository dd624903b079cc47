//! Decodes bytes of any supported format, detected by their content.
//!
//! The formats are OTLP requests of spans, and of profiles in every layout, also in JSON and in the Collector's frames
//! or lines; pprof profiles, Sentry envelopes, the JSON of a chunk, and collapsed stacks. Each may be compressed with
//! gzip or zstd. Everything else is rejected, by name if the format is known.

mod json;
mod otlp;
mod sentry;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use profbridge_model::{Losses, Profiles, Reason, Telemetry};
use profbridge_net::compression::{Coding, decompress};
use profbridge_net::error_chain;
use profbridge_wire::folded::{self, CountUnit};
use profbridge_wire::foreign::{self, is_text};
use profbridge_wire::otlp::delimited::frames;
use profbridge_wire::otlp::sniff::is_pprof;
use profbridge_wire::otlp::{ContentKind, Layout, Limits, sniff};
use profbridge_wire::pprof;
use profbridge_wire::sentry::chunk_reader;
use profbridge_wire::sentry::envelope;

/// Why bytes, or a part of them, were rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// What was rejected: the given name, and the part.
    pub place: String,
    /// The broken rule; a further line `hint: ...` suggests a remedy if there is one.
    pub why: String,
}

impl Refused {
    fn new(place: &str, why: impl Into<String>) -> Self {
        Self { place: place.to_owned(), why: why.into() }
    }

    fn by(place: &str, error: &(dyn Error + 'static)) -> Self {
        Self::new(place, error_chain(error))
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.why)
    }
}

impl Error for Refused {}

/// Remarks on the decoded data.
#[derive(Debug, Clone, Default)]
pub struct Findings {
    /// The rejected parts.
    pub refused: Vec<Refused>,
    /// The content of the rejected parts, as far as it could be counted.
    pub losses: Losses,
    /// Number of strings that were not valid UTF-8 and had bytes replaced.
    pub replaced_strings: u64,
    /// Number of valid profiles in envelopes in an unsupported format, such as Android's.
    pub passed_over: u64,
    /// Number of samples of V1 profiles that Sentry does not show.
    pub left_out_samples: u64,
    /// Number of stacks, frames and threads of Sentry profiles without samples.
    pub unused_elements: u64,
    /// Number of requests in each earlier layout of OTLP.
    pub earlier_layouts: BTreeMap<Layout, u64>,
    /// Fields of earlier layouts, or of pprof, that the current layout cannot represent: the field's name, and how
    /// often it was dropped.
    pub left_out: BTreeMap<&'static str, u64>,
    /// Number of references of pprof profiles to missing mappings and functions.
    pub left_out_references: u64,
}

/// Options for decoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeOptions {
    /// Maximum size in bytes, uncompressed.
    pub limit: usize,
    /// What the numbers of collapsed stacks count.
    pub counted: CountUnit,
}

/// Calls `take` with each message in `bytes`; `name` is for error messages. A rejected part is counted and reported,
/// and decoding continues.
///
/// # Errors
///
/// Nothing could be decoded, or decoding had to stop: earlier messages remain valid.
pub fn decode(
    name: &str,
    bytes: Bytes,
    options: DecodeOptions,
    findings: &mut Findings,
    mut take: impl FnMut(Telemetry),
) -> Result<(), Refused> {
    let DecodeOptions { limit, counted } = options;
    let coding = match sniff(&bytes) {
        ContentKind::Gzip => Coding::Gzip,
        ContentKind::Zstd => Coding::Zstd,
        _ => Coding::Identity,
    };
    let bytes = decompress(coding, bytes, limit).map_err(|error| Refused::by(name, &error))?;
    if bytes.is_empty() {
        return Err(Refused::new(name, "is empty"));
    }
    let mut reader = FileDecoder { name, limit, peer: name.into(), findings };
    // Checked first, because a stack may begin with a bracket like a JSON list.
    if folded::is_folded(&bytes) || folded::is_flat(&bytes, is_called_stacks(name)) {
        take(reader.folded(&bytes, counted)?.into());
        return Ok(());
    }
    if let Some((what, way)) = foreign::name(&bytes) {
        return Err(Refused::new(name, format!("is {what}, which is not supported\nhint: {way}")));
    }
    if !is_text(&bytes) && is_pprof(&bytes) {
        take(reader.pprof(bytes)?.into());
        return Ok(());
    }
    match sniff(&bytes) {
        ContentKind::Json if json::is_otlp(&bytes) => {
            let messages = json::messages(&bytes).into_iter().map(|(line, text)| match line {
                Some(line) => Ok((format!("{name}: line {line}"), text)),
                None => Ok((name.to_owned(), text)),
            });
            reader.messages(messages, take)?;
        }
        ContentKind::Json if is_chunk(&bytes) => {
            let profiles = chunk_reader::read(&bytes).map_err(|error| match is_of_android(&bytes) {
                true => Refused::new(name, ANDROID),
                false => Refused::by(name, &error),
            })?;
            take(reader.with_peer(profiles).into());
        }
        ContentKind::Json => {
            let parsed = envelope::read(bytes).map_err(|error| Refused::by(name, &error))?;
            take(reader.with_views(parsed.envelope)?.into());
        }
        ContentKind::Frames => {
            let messages = frames(bytes).enumerate().map(|(number, frame)| match frame {
                Ok(frame) => Ok((format!("{name}: message {}", number + 1), frame)),
                Err(error) => Err(Refused::by(name, &error)),
            });
            reader.messages(messages, take)?;
        }
        // A line break is also the key of a request's first field.
        ContentKind::Protobuf if !is_text(&bytes) => take(reader.request(bytes, name)?),
        ContentKind::Gzip | ContentKind::Zstd => {
            let hint = "unpack it once, with `gzip -d` or `zstd -d`";
            return Err(Refused::new(name, format!("is compressed twice\nhint: {hint}")));
        }
        ContentKind::Protobuf | ContentKind::Unknown => return Err(Refused::new(name, unknown(coding))),
    }
    Ok(())
}

/// The remedy for differential stacks.
const KEEP_ONE: &str = "hint: keep one of the numbers: `sed -E 's/ [0-9]+( [0-9]+)$/\\1/'` keeps the last one";

/// Whether the file name has the extension of collapsed stacks, compressed or not.
fn is_called_stacks(name: &str) -> bool {
    let name = [".gz", ".zst"].iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(name);
    [".folded", ".collapsed"].iter().any(|ending| name.ends_with(ending))
}

/// The error for unknown content.
fn unknown(coding: Coding) -> String {
    let read = "neither OTLP profiles or traces in protobuf or JSON, nor the Collector's frames of them, nor a pprof profile, nor a \
                Sentry envelope or chunk, nor collapsed stacks";
    match coding {
        Coding::Gzip => format!("is compressed with gzip, and what is in it is {read}"),
        Coding::Zstd => format!("is compressed with zstd, and what is in it is {read}"),
        Coding::Identity | Coding::Deflate | Coding::Brotli => format!("is {read}"),
    }
}

/// Whether JSON is the payload of a chunk and not an envelope, which begins with a header line.
fn is_chunk(bytes: &[u8]) -> bool {
    let first_line = bytes.split(|&byte| byte == b'\n').next().unwrap_or_default();
    match serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(first_line) {
        Ok(object) => object.contains_key("profile") || object.contains_key("profiler_id"),
        // An envelope's header ends with its line, so an object that continues is a chunk.
        Err(_) => true,
    }
}

/// Whether a chunk is from Android, whose profiles are mostly method traces or Perfetto traces.
fn is_of_android(bytes: &[u8]) -> bool {
    let chunk = serde_json::from_slice::<serde_json::Value>(bytes);
    chunk.is_ok_and(|chunk| chunk.get("platform").is_some_and(|platform| platform == "android"))
}

const ANDROID: &str = "is a chunk of Sentry's for Android, whose profile is a trace of Android or Perfetto, which is not \
     supported\n\
     hint: the sample formats V1 and V2 are read; send it on to Sentry as it is, through the receiver `sentry`";

struct FileDecoder<'a> {
    name: &'a str,
    /// Maximum size of a message in bytes, uncompressed.
    limit: usize,
    /// The source to record for all decoded data.
    peer: Arc<str>,
    findings: &'a mut Findings,
}

impl FileDecoder<'_> {
    fn with_peer(&self, mut profiles: Profiles) -> Profiles {
        profiles.peer = Some(Arc::clone(&self.peer));
        profiles
    }

    /// Converts collapsed stacks to a profile. Each rejected line counts as one lost observation.
    fn folded(&mut self, bytes: &[u8], counted: CountUnit) -> Result<Profiles, Refused> {
        if let Some(line) = folded::differential(bytes) {
            let why =
                format!("line {line}: has two numbers, so it is differential stacks, which are no profile\n{KEEP_ONE}");
            return Err(Refused::new(self.name, why));
        }
        let read = folded::read(bytes, counted).map_err(|invalid| Refused::new(self.name, invalid.to_string()))?;
        self.findings.losses.add_observations(Reason::Malformed, read.refused_lines);
        self.findings.replaced_strings += read.replaced_lines;
        let named = read.refused.iter().map(|refused| Refused::new(self.name, refused.to_string()));
        self.findings.refused.extend(named);
        Ok(self.with_peer(read.profiles))
    }

    fn pprof(&mut self, bytes: Bytes) -> Result<Profiles, Refused> {
        let decoded = pprof::decode(bytes, &Limits::default()).map_err(|error| Refused::by(self.name, &error))?;
        self.findings.replaced_strings += decoded.replaced_strings;
        if decoded.left_out_numbers > 0 {
            *self.findings.left_out.entry("label.num").or_default() += decoded.left_out_numbers;
        }
        self.findings.left_out_references += decoded.left_out_references;
        Ok(self.with_peer(decoded.profiles))
    }
}
