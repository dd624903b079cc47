//! The keys of a V1 profile, as Relay reads them (getsentry/relay `relay-profiling/src/sample/v1.rs`).

use serde::Deserialize;
use serde_json::value::RawValue;

use super::companion::CompanionContexts;
use super::number::Whole;
use crate::sentry::sampled::measurements::MAX_MEASUREMENTS;
use crate::sentry::sampled::model::{FrameJson, ThreadJson};
use crate::sentry::sampled::text::{Entries, IndexLists, List, Text};
use crate::sentry::sampled::{MAX_ENTRIES, MAX_FRAMES, MAX_STACKS};
use crate::sentry::timestamp::Timestamp;

/// Maximum number of keys of a device.
pub(super) const MAX_KEYS: usize = 256;

#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
pub(super) struct V1Profile<'a> {
    pub(super) version: Text<'a>,
    #[serde(alias = "profile_id")]
    pub(super) event_id: Text<'a>,
    pub(super) platform: Text<'a>,
    pub(super) timestamp: Timestamp,
    pub(super) release: Option<Text<'a>>,
    pub(super) environment: Option<Text<'a>>,
    pub(super) dist: Option<Text<'a>>,
    pub(super) device: Entries<'a, &'a RawValue, MAX_KEYS>,
    pub(super) os: Os<'a>,
    pub(super) runtime: Option<V1Runtime<'a>>,
    pub(super) transaction: Option<V1Transaction<'a>>,
    pub(super) transactions: Option<List<Option<V1Transaction<'a>>, MAX_ENTRIES>>,
    pub(super) contexts: Option<CompanionContexts<'a>>,
    pub(super) measurements: Option<Entries<'a, Measurement<'a>, MAX_MEASUREMENTS>>,
    pub(super) debug_meta: Option<V1ImagesJson<'a>>,
    pub(super) profile: V1SamplesJson<'a>,
}

#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
pub(super) struct Os<'a> {
    pub(super) name: Text<'a>,
    pub(super) version: Text<'a>,
    pub(super) build_number: Option<Text<'a>>,
}

#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
pub(super) struct V1Runtime<'a> {
    pub(super) name: Text<'a>,
    pub(super) version: Text<'a>,
}

#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
pub(super) struct V1Transaction<'a> {
    pub(super) id: Text<'a>,
    pub(super) name: Text<'a>,
    pub(super) trace_id: Text<'a>,
    pub(super) active_thread_id: Option<Whole>,
    pub(super) relative_start_ns: Option<Whole>,
    pub(super) relative_end_ns: Option<Whole>,
}

#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
pub(super) struct Measurement<'a> {
    pub(super) unit: Text<'a>,
    /// Each takes at least 10 bytes of JSON for 48 in memory, so it needs no other limit.
    pub(super) values: Vec<Option<Measured<'a>>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Measured<'a> {
    pub(super) elapsed_since_start_ns: Option<Whole>,
    pub(super) timestamp: Option<f64>,
    /// A number, or a string with a number.
    #[serde(borrow)]
    pub(super) value: &'a RawValue,
}

#[derive(Debug, Deserialize)]
pub(super) struct V1ImagesJson<'a> {
    #[serde(borrow)]
    pub(super) images: List<Option<&'a RawValue>, MAX_ENTRIES>,
}

#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
pub(super) struct V1SamplesJson<'a> {
    pub(super) samples: Vec<Option<V1Sample>>,
    pub(super) stacks: IndexLists<MAX_STACKS, true>,
    pub(super) frames: List<Option<FrameJson<'a>>, MAX_FRAMES>,
    pub(super) thread_metadata: Option<Entries<'a, ThreadJson<'a>, MAX_ENTRIES>>,
}

/// A sample. A `null` instead takes five bytes of JSON for 32 in memory.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct V1Sample {
    pub(super) stack_id: Whole,
    pub(super) thread_id: Whole,
    pub(super) elapsed_since_start_ns: Whole,
}
