//! Configuration: as written ([`Config`]), and checked ([`Settings`]). The keys are those of the Collector's file
//! exporter where it has an equivalent (opentelemetry-collector-contrib `exporter/fileexporter/README.md`), and those
//! of the `sentry` exporter for the conversion.

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
    /// `format: sentry`: the folder. Other formats: the file.
    pub path: PathBuf,
    /// The file format.
    pub format: Format,
    /// Compression of each envelope, or of each frame's message.
    pub compression: CompressionConfig,
    /// The limits above which old files are removed.
    pub rotation: Rotation,
    /// Other formats than `sentry`: whether `original_payload` is written. This applies only to unchanged profiles, and
    /// never if the payload is pprof.
    pub original_payload: bool,
    /// Timeout of one write. A write cannot be cancelled, so it may still succeed later.
    pub timeout: config::Duration,
    /// The queue of requests that wait to be written.
    pub sending_queue: QueueConfig,
    /// When to retry.
    pub retry_on_failure: RetryConfig,
    /// `format: sentry`: how profiles are converted to chunks. These keys are in the same section.
    #[serde(skip)]
    pub chunk: ChunkConfig,
}

/// The file format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Sentry envelopes, one per file.
    #[default]
    Sentry,
    /// OTLP requests with a length prefix each, as the Collector's file exporter writes them.
    #[serde(alias = "proto")]
    Otlp,
    /// OTLP requests as JSON lines, as the Collector's file exporter writes them. With compression, they have a length
    /// prefix instead of a line end.
    Json,
}

/// Limits above which the oldest files are removed.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rotation {
    /// `format: sentry`: the total size of all envelopes. Other formats: the size at which a new file is started.
    pub max_size: Option<ByteSize>,
    /// `format: sentry`: the number of envelopes.
    pub max_files: Option<usize>,
    /// Other formats than `sentry`: the number of backups beside the current file.
    pub max_backups: Option<usize>,
}

/// Default of `max_size` for a folder of envelopes.
const FOLDER_SIZE: u64 = 1 << 30;

/// Default of `max_files`.
const FOLDER_FILES: usize = 10_000;

/// Upper limit of `max_files`: the list of files is kept in memory.
const MOST_FILES: usize = 1_000_000;

/// Defaults of `max_size` and `max_backups` for a file of messages, as in the Collector's file exporter.
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

/// The checked configuration.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) path: PathBuf,
    pub(crate) kept: StorageLimits,
    pub(crate) compression: Compression,
    pub(crate) chunk: chunk::Settings,
    pub(crate) original_payload: bool,
    /// The timeout of a write; zero means none.
    pub(crate) timeout: Duration,
    pub(crate) delivery: DeliverySettings,
}

/// The limits on stored data, by format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StorageLimits {
    Envelopes { files: usize, bytes: u64 },
    Appended { rotation: FileRotation, encoding: Encoding, framing: Framing },
}

/// When to rotate a file of messages, and how many backups to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileRotation {
    /// The size at which a new file is started.
    pub(crate) bytes: u64,
    /// Number of backups.
    pub(crate) backups: usize,
    /// Whether rotation is configured explicitly: then it is an error if the path cannot be rotated.
    pub(crate) asked_for: bool,
}

impl Config {
    /// Parses a section.
    ///
    /// # Errors
    ///
    /// If there are unknown keys or values of the wrong type.
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
                StorageLimits::Envelopes { files: rotation.max_files.unwrap_or(FOLDER_FILES), bytes }
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
                StorageLimits::Appended { rotation, encoding, framing }
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
        // The exporter enforces the timeout itself, since its message can say which operation took too long.
        let (queue, retry, timeout) = (self.sending_queue, self.retry_on_failure, Duration::ZERO);
        let delivery = DeliverySettings { queue, retry, timeout };
        let (path, compression, original_payload) = (self.path.clone(), self.compression, self.original_payload);
        let timeout = self.timeout.get();
        let chunk = self.chunk.check(section, &mut problems);
        Problems::check(problems)?;
        Ok(Settings { path, kept, compression: compression.into(), chunk, original_payload, timeout, delivery })
    }
}
