//! The keys of a chunk, as Relay reads them (getsentry/relay `relay-profiling/src/sample/{mod,v2}.rs`,
//! `debug_image.rs`), aliases included.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::text::{Address, Entries, List, Size, Stacks, Text};
use super::{MAX_ENTRIES, MAX_FRAMES, MAX_STACKS};

#[derive(Debug, Deserialize)]
pub(super) struct Chunk<'a> {
    #[serde(borrow)]
    pub(super) chunk_id: Text<'a>,
    #[serde(borrow)]
    pub(super) profiler_id: Text<'a>,
    #[serde(borrow)]
    pub(super) platform: Text<'a>,
    #[serde(borrow)]
    pub(super) version: Text<'a>,
    #[serde(borrow, default)]
    pub(super) client_sdk: Option<ClientSdk<'a>>,
    #[serde(borrow, default)]
    pub(super) release: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(super) environment: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(super) measurements: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) debug_meta: DebugMeta<'a>,
    #[serde(borrow)]
    pub(super) profile: Data<'a>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ClientSdk<'a> {
    #[serde(borrow, default)]
    pub(super) name: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(super) version: Option<Text<'a>>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct DebugMeta<'a> {
    /// Each image's JSON: what has no address is kept as it is.
    #[serde(borrow)]
    pub(super) images: List<&'a RawValue, MAX_ENTRIES>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Image<'a> {
    #[serde(rename = "type", borrow, default)]
    pub(super) kind: Option<Text<'a>>,
    #[serde(alias = "name", borrow, default)]
    pub(super) code_file: Option<Text<'a>>,
    #[serde(alias = "id", borrow, default)]
    pub(super) debug_id: Option<Text<'a>>,
    #[serde(default)]
    pub(super) image_addr: Option<Address>,
    #[serde(default)]
    pub(super) image_vmaddr: Option<Address>,
    #[serde(default)]
    pub(super) image_size: Option<Size>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Data<'a> {
    #[serde(borrow)]
    pub(super) samples: Vec<Sample<'a>>,
    pub(super) stacks: Stacks<MAX_STACKS>,
    #[serde(borrow)]
    pub(super) frames: List<Frame<'a>, MAX_FRAMES>,
    #[serde(borrow, default)]
    pub(super) thread_metadata: Entries<'a, Thread<'a>, MAX_ENTRIES>,
}

/// At least 40 bytes of JSON for 40 in memory: the size of the chunk is limit enough.
#[derive(Debug, Deserialize)]
pub(super) struct Sample<'a> {
    pub(super) timestamp: f64,
    pub(super) stack_id: u32,
    #[serde(borrow)]
    pub(super) thread_id: Text<'a>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Thread<'a> {
    #[serde(borrow, default)]
    pub(super) name: Option<Text<'a>>,
    #[serde(default)]
    pub(super) priority: Option<u32>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Frame<'a> {
    #[serde(alias = "name", borrow, default)]
    pub(super) function: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(super) abs_path: Option<Text<'a>>,
    #[serde(alias = "file", borrow, default)]
    pub(super) filename: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(super) module: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(super) package: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(super) platform: Option<Text<'a>>,
    #[serde(default)]
    pub(super) in_app: Option<bool>,
    #[serde(default)]
    pub(super) instruction_addr: Option<Address>,
    #[serde(alias = "line", default)]
    pub(super) lineno: Option<u32>,
    #[serde(alias = "column", default)]
    pub(super) colno: Option<u32>,
}
