//! What may be written ([`Config`]), and what it means ([`Settings`]). The words are those of the Collector's file
//! exporter (opentelemetry-collector-contrib `exporter/fileexporter/README.md`) where it has them, and for the
//! conversion those of the `sentry` exporter.

use std::path::PathBuf;
use std::time::Duration;

use profbridge_codec::CompressionConfig;
use profbridge_codec::otlp::{Encoding, Framing};
use profbridge_codec::sentry::ChunkConfig;
use profbridge_engine::config::{self, ByteSize, Problems, Section};
use profbridge_engine::delivery::{DeliverySettings, QueueConfig, RetryConfig};
use profbridge_net::compression::Compression;
use profbridge_wire::sentry::chunk;
use serde::Deserialize;

/// The section of a `file` exporter.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// `format: sentry`: the folder. Else: the file.
    pub path: PathBuf,
    /// What is written.
    pub format: Format,
    /// How each envelope, or each frame's message, is compressed.
    pub compression: CompressionConfig,
    /// What is kept.
    pub rotation: Rotation,
    /// Not `format: sentry`: whether `original_payload` is written, of profiles that nobody changed and never where it
    /// is pprof.
    pub original_payload: bool,
    /// How long one write may take. It cannot be taken back: it may still end later.
    pub timeout: config::Duration,
    /// What may wait.
    pub sending_queue: QueueConfig,
    /// When another attempt is made.
    pub retry_on_failure: RetryConfig,
    /// `format: sentry`: how profiles become chunks. These keys stand in the same section.
    #[serde(skip)]
    pub chunk: ChunkConfig,
}

/// What is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Sentry envelopes, one per file.
    #[default]
    Sentry,
    /// OTLP requests, each with its length in front, as the Collector's file exporter writes them.
    #[serde(alias = "proto")]
    Otlp,
    /// OTLP requests in JSON, each on a line, as the Collector's file exporter writes them; with a compression each
    /// with its length in front.
    Json,
}

/// What is kept. The oldest goes first.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rotation {
    /// `format: sentry`: the size of all envelopes together. Else: the size at which a new file begins.
    pub max_size: Option<ByteSize>,
    /// `format: sentry`: how many envelopes.
    pub max_files: Option<usize>,
    /// Not `format: sentry`: how many full files beside the one that is written.
    pub max_backups: Option<usize>,
}

/// `max_size` of a folder of envelopes.
const FOLDER_SIZE: u64 = 1 << 30;

/// `max_files`.
const FOLDER_FILES: usize = 10_000;

/// Keeping a list of more files than this takes more memory than it is worth.
const MOST_FILES: usize = 1_000_000;

/// `max_size` of a file of frames and `max_backups`, as in the Collector's file exporter.
const FILE_SIZE: u64 = 100 << 20;
const FILE_BACKUPS: usize = 100;

impl Default for Config {
    fn default() -> Self {
        Self {
            path: PathBuf::new(),
            format: Format::Sentry,
            compression: CompressionConfig::None,
            rotation: Rotation::default(),
            original_payload: false,
            timeout: config::Duration::from_secs(30),
            sending_queue: QueueConfig::default(),
            retry_on_failure: RetryConfig::default(),
            chunk: ChunkConfig::default(),
        }
    }
}

/// A checked section.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) path: PathBuf,
    pub(crate) kept: Kept,
    pub(crate) compression: Compression,
    pub(crate) chunk: chunk::Settings,
    pub(crate) original_payload: bool,
    /// Zero: no limit.
    pub(crate) timeout: Duration,
    pub(crate) delivery: DeliverySettings,
}

/// What is kept, by format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    Envelopes { files: usize, bytes: u64 },
    Appended { rotation: FileRotation, encoding: Encoding, framing: Framing },
}

/// When a file of messages is set aside, and how many are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileRotation {
    /// The size at which a new file begins.
    pub(crate) bytes: u64,
    /// How many full files are kept.
    pub(crate) backups: usize,
    /// Whether somebody wrote it, so that it must not be passed over where nothing can be rotated.
    pub(crate) asked_for: bool,
}

impl Config {
    /// Reads a section.
    ///
    /// # Errors
    ///
    /// Unknown keys, and values of the wrong type.
    pub fn read(section: &Section) -> Result<Self, Problems> {
        let (own, chunk) = section.extract_parts::<Self, ChunkConfig>()?;
        Ok(Self { chunk, ..own })
    }

    pub(crate) fn check(self, section: &Section) -> Result<Settings, Problems> {
        let mut problems = Vec::new();
        if self.path.as_os_str().is_empty() {
            let hint = "write the folder for envelopes, or with another `format` the file";
            problems.push(section.problem("path", "the key `path` is missing", hint));
        }
        let rotation = &self.rotation;
        let kept = match self.format {
            Format::Sentry => {
                if rotation.max_backups.is_some() {
                    let message = "envelopes are not appended to a file, so there are no backups of it";
                    problems.push(section.problem("rotation.max_backups", message, "write `max_files`"));
                }
                if section.has("original_payload") {
                    let message =
                        "an envelope holds no payload of a profiler, so `format: sentry` has none to leave out";
                    problems.push(section.problem("original_payload", message, "delete it"));
                }
                let bytes = rotation.max_size.map_or(FOLDER_SIZE, ByteSize::get);
                Kept::Envelopes { files: rotation.max_files.unwrap_or(FOLDER_FILES), bytes }
            }
            Format::Otlp | Format::Json => {
                if rotation.max_files.is_some() {
                    let message = "messages are appended to one file, so there is no number of files";
                    problems.push(section.problem("rotation.max_files", message, "write `max_backups`"));
                }
                let name = if self.format == Format::Json { "json" } else { "otlp" };
                for key in config::keys::<ChunkConfig>().iter().filter(|key| section.has(key)) {
                    let message =
                        format!("`{key}` says how profiles become Sentry's chunks, which `format: {name}` has none of");
                    problems.push(section.problem(key, message, "delete it"));
                }
                if self.path.file_name().is_none() && !self.path.as_os_str().is_empty() {
                    problems.push(section.problem(
                        "path",
                        "the path does not end in a file's name",
                        "write `out/profiles.otlp`",
                    ));
                }
                let bytes = rotation.max_size.map_or(FILE_SIZE, ByteSize::get);
                let encoding = if self.format == Format::Json { Encoding::Json } else { Encoding::Protobuf };
                let backups = rotation.max_backups.unwrap_or(FILE_BACKUPS);
                let asked_for = rotation.max_size.is_some() || rotation.max_backups.is_some();
                let rotation = FileRotation { bytes, backups, asked_for };
                let framing = Framing::of_file(encoding, self.compression != CompressionConfig::None);
                Kept::Appended { rotation, encoding, framing }
            }
        };
        if rotation.max_size.is_some_and(|size| size.get() == 0) {
            problems.push(section.problem("rotation.max_size", "nothing would be kept", "write `1GiB`"));
        }
        if rotation.max_files.is_some_and(|files| !(1..=MOST_FILES).contains(&files)) {
            let message = format!("the number of files is not between 1 and {MOST_FILES}");
            problems.push(section.problem("rotation.max_files", message, format!("the default is {FOLDER_FILES}")));
        }
        if rotation.max_backups.is_some_and(|files| files > MOST_FILES) {
            let message = format!("the number of files is larger than {MOST_FILES}");
            problems.push(section.problem("rotation.max_backups", message, format!("the default is {FILE_BACKUPS}")));
        }
        // The exporter keeps the time itself, since it can say what has taken it.
        let (queue, retry, timeout) = (self.sending_queue, self.retry_on_failure, Duration::ZERO);
        let delivery = DeliverySettings { queue, retry, timeout };
        let (path, compression, original_payload) = (self.path.clone(), self.compression, self.original_payload);
        let timeout = self.timeout.get();
        let chunk = self.chunk.check(section, &mut problems);
        Problems::check(problems)?;
        Ok(Settings { path, kept, compression: compression.into(), chunk, original_payload, timeout, delivery })
    }
}
