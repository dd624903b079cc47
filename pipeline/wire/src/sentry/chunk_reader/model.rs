//! The keys of a chunk, as Relay reads them (getsentry/relay `relay-profiling/src/sample/v2.rs`).

use std::fmt;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::sentry::sampled::model::{FrameJson, ThreadJson};
use crate::sentry::sampled::text::{Entries, IndexLists, List, Text};
use crate::sentry::sampled::{MAX_ENTRIES, MAX_FRAMES, MAX_STACKS, ThreadIds};

#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
pub(super) struct ChunkJson<'a> {
    pub(super) chunk_id: Text<'a>,
    pub(super) profiler_id: Text<'a>,
    pub(super) platform: Text<'a>,
    pub(super) version: Text<'a>,
    pub(super) client_sdk: Option<ClientSdk<'a>>,
    pub(super) release: Option<Text<'a>>,
    pub(super) environment: Option<Text<'a>>,
    pub(super) measurements: Option<&'a RawValue>,
    #[serde(default)]
    pub(super) debug_meta: ChunkImagesJson<'a>,
    pub(super) profile: ChunkProfileJson<'a>,
}

#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
pub(super) struct ClientSdk<'a> {
    pub(super) name: Option<Text<'a>>,
    pub(super) version: Option<Text<'a>>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct ChunkImagesJson<'a> {
    /// Each image's JSON: images that do not become mappings are kept unmodified.
    #[serde(borrow)]
    pub(super) images: List<&'a RawValue, MAX_ENTRIES>,
}

#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
pub(super) struct ChunkProfileJson<'a> {
    pub(super) samples: ChunkSamples<'a>,
    pub(super) stacks: IndexLists<MAX_STACKS, false>,
    pub(super) frames: List<FrameJson<'a>, MAX_FRAMES>,
    #[serde(default)]
    pub(super) thread_metadata: Entries<'a, ThreadJson<'a>, MAX_ENTRIES>,
}

/// A sample as written in JSON.
#[derive(Debug, Deserialize)]
struct ChunkSampleJson<'a> {
    timestamp: f64,
    stack_id: u32,
    #[serde(borrow)]
    thread_id: Text<'a>,
}

/// A time in seconds, a stack index, and a thread number.
pub(super) type SampleTuple = (f64, u32, u32);

/// The samples. Each takes at least 40 bytes of JSON for 16 in memory, so the chunk's size is limit enough.
#[derive(Debug, Default)]
pub(super) struct ChunkSamples<'a> {
    pub(super) all: Vec<SampleTuple>,
    pub(super) threads: ThreadIds<'a>,
}

impl<'de: 'a, 'a> Deserialize<'de> for ChunkSamples<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SamplesVisitor;
        impl<'de> Visitor<'de> for SamplesVisitor {
            type Value = ChunkSamples<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of samples")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut samples = ChunkSamples::default();
                while let Some(ChunkSampleJson { timestamp, stack_id, thread_id }) = list.next_element()? {
                    let thread = samples.threads.number(thread_id);
                    samples.all.push((timestamp, stack_id, thread));
                }
                Ok(samples)
            }
        }
        deserializer.deserialize_seq(SamplesVisitor)
    }
}
