//! Sentry's Sample Format V2 as owned serde structs.
//!
//! Keys and types: Sentry's profiles specification 2.5.0 and getsentry/relay `relay-profiling/src/sample/v2.rs`.
//! Unknown keys are ignored when parsing, so that any chunk can be parsed into these structs and compared.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One `profile_chunk` payload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NaiveChunk {
    /// 32 hex digits.
    pub chunk_id: String,
    /// 32 hex digits, equal for all chunks of a process.
    pub profiler_id: String,
    /// The dominant runtime.
    pub platform: String,
    /// `service.name@service.version`, or `service.name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<String>,
    /// The deployment environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
    /// The SDK that made the chunk.
    pub client_sdk: ClientSdk,
    /// Always `"2"`.
    pub version: String,
    /// The binaries with addresses of frames; omitted if there are none.
    #[serde(default, skip_serializing_if = "DebugMeta::is_empty")]
    pub debug_meta: DebugMeta,
    /// Samples and their tables.
    pub profile: NaiveProfile,
}

/// Name and version of the sender.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientSdk {
    /// The name.
    pub name: String,
    /// The version.
    pub version: String,
}

/// The images of a chunk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DebugMeta {
    /// One image per mapping with a GNU build id.
    pub images: Vec<NaiveImage>,
}

impl DebugMeta {
    /// Whether there is no image.
    pub fn is_empty(&self) -> bool {
        self.images.is_empty()
    }
}

/// One binary in the chunk's synthetic address space.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NaiveImage {
    /// Always `symbolic`: the only type that Relay and Sentry accept for Linux.
    #[serde(rename = "type")]
    pub kind: String,
    /// The GNU build id's first 16 bytes as a little-endian GUID.
    pub debug_id: String,
    /// The mapping's file.
    pub code_file: String,
    /// The start of the image, as `0x` and hexadecimal digits.
    pub image_addr: String,
    /// The ELF address of `image_addr`, as `0x` and hexadecimal digits.
    pub image_vmaddr: String,
    /// The size in bytes.
    pub image_size: u64,
}

/// Samples, stacks and frames.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NaiveProfile {
    /// The samples in order of time.
    pub samples: Vec<NaiveSample>,
    /// Frame indices, leaf first; an empty stack is an idle thread.
    pub stacks: Vec<Vec<usize>>,
    /// The frames.
    pub frames: Vec<NaiveFrame>,
    /// The metadata of threads with samples, by thread id.
    #[serde(default)]
    pub thread_metadata: BTreeMap<String, ThreadMetadata>,
}

/// One stack of one thread at one time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NaiveSample {
    /// Seconds since the epoch, in whole microseconds.
    pub timestamp: f64,
    /// The thread.
    pub thread_id: String,
    /// An index into `stacks`.
    pub stack_id: usize,
}

/// The known properties of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadMetadata {
    /// The name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// One frame: one line entry of a location.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NaiveFrame {
    /// The function's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// The class, for Java.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// The source file as the producer wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filename: Option<String>,
    /// The source file, if it is an absolute path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abs_path: Option<String>,
    /// The line, 1-based.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lineno: Option<u32>,
    /// The column, 1-based.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub colno: Option<u32>,
    /// The absolute address, as `0x` and hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instruction_addr: Option<String>,
    /// The mapping's file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<String>,
    /// The frame's platform, if it differs from the chunk's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<String>,
    /// Whether the frame is the application's own code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_app: Option<bool>,
}
