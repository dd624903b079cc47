//! The keys of a chunk, as Relay reads them (getsentry/relay `relay-profiling/src/sample/v2.rs`).

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::sentry::sampled::model::{Frame, Thread};
use crate::sentry::sampled::text::{Entries, List, Stacks, Text};
use crate::sentry::sampled::{MAX_ENTRIES, MAX_FRAMES, MAX_STACKS};

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
    /// Each image's JSON: what is no mapping is kept as it is.
    #[serde(borrow)]
    pub(super) images: List<&'a RawValue, MAX_ENTRIES>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Data<'a> {
    #[serde(borrow)]
    pub(super) samples: Vec<Sample<'a>>,
    pub(super) stacks: Stacks<MAX_STACKS, false>,
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
