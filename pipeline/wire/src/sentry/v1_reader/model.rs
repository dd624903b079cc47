//! The keys of a V1 profile, as Relay reads them (getsentry/relay `relay-profiling/src/sample/v1.rs`).

use serde::Deserialize;
use serde_json::value::RawValue;

use super::companion::Contexts;
use super::number::Whole;
use crate::sentry::sampled::measurements::MAX_MEASUREMENTS;
use crate::sentry::sampled::model::{Frame, Thread};
use crate::sentry::sampled::text::{Entries, List, Stacks, Text};
use crate::sentry::sampled::{MAX_ENTRIES, MAX_FRAMES, MAX_STACKS};
use crate::sentry::timestamp::Timestamp;

/// The most keys of a device.
pub(super) const MAX_KEYS: usize = 256;

#[derive(Debug, Deserialize)]
pub(super) struct Profile<'a> {
    #[serde(borrow)]
    pub(super) version: Text<'a>,
    #[serde(alias = "profile_id", borrow)]
    pub(super) event_id: Text<'a>,
    #[serde(borrow)]
    pub(super) platform: Text<'a>,
    pub(super) timestamp: Timestamp,
    #[serde(borrow, default)]
    pub(super) release: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(super) environment: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(super) dist: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) device: Entries<'a, &'a RawValue, MAX_KEYS>,
    #[serde(borrow)]
    pub(super) os: Os<'a>,
    #[serde(borrow, default)]
    pub(super) runtime: Option<Runtime<'a>>,
    #[serde(borrow, default)]
    pub(super) transaction: Option<Transaction<'a>>,
    #[serde(borrow, default)]
    pub(super) transactions: Option<List<Option<Transaction<'a>>, MAX_ENTRIES>>,
    #[serde(borrow, default)]
    pub(super) contexts: Option<Contexts<'a>>,
    #[serde(borrow, default)]
    pub(super) measurements: Option<Entries<'a, Measurement<'a>, MAX_MEASUREMENTS>>,
    #[serde(borrow, default)]
    pub(super) debug_meta: Option<DebugMeta<'a>>,
    #[serde(borrow)]
    pub(super) profile: Data<'a>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Os<'a> {
    #[serde(borrow)]
    pub(super) name: Text<'a>,
    #[serde(borrow)]
    pub(super) version: Text<'a>,
    #[serde(borrow, default)]
    pub(super) build_number: Option<Text<'a>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Runtime<'a> {
    #[serde(borrow)]
    pub(super) name: Text<'a>,
    #[serde(borrow)]
    pub(super) version: Text<'a>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Transaction<'a> {
    #[serde(borrow)]
    pub(super) id: Text<'a>,
    #[serde(borrow)]
    pub(super) name: Text<'a>,
    #[serde(borrow)]
    pub(super) trace_id: Text<'a>,
    #[serde(default)]
    pub(super) active_thread_id: Option<Whole>,
    #[serde(default)]
    pub(super) relative_start_ns: Option<Whole>,
    #[serde(default)]
    pub(super) relative_end_ns: Option<Whole>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Measurement<'a> {
    #[serde(borrow)]
    pub(super) unit: Text<'a>,
    /// At least 10 bytes of JSON for 48 in memory.
    #[serde(borrow)]
    pub(super) values: Vec<Option<Measured<'a>>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Measured<'a> {
    #[serde(default)]
    pub(super) elapsed_since_start_ns: Option<Whole>,
    #[serde(default)]
    pub(super) timestamp: Option<f64>,
    /// A number, or a string that holds one.
    #[serde(borrow)]
    pub(super) value: &'a RawValue,
}

#[derive(Debug, Deserialize)]
pub(super) struct DebugMeta<'a> {
    #[serde(borrow)]
    pub(super) images: List<Option<&'a RawValue>, MAX_ENTRIES>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Data<'a> {
    pub(super) samples: Vec<Option<Sample>>,
    pub(super) stacks: Stacks<MAX_STACKS, true>,
    #[serde(borrow)]
    pub(super) frames: List<Option<Frame<'a>>, MAX_FRAMES>,
    #[serde(borrow, default)]
    pub(super) thread_metadata: Option<Entries<'a, Thread<'a>, MAX_ENTRIES>>,
}

/// A sample. `null` in place of one is five bytes of JSON for 32 in memory.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct Sample {
    pub(super) stack_id: Whole,
    pub(super) thread_id: Whole,
    pub(super) elapsed_since_start_ns: Whole,
}
