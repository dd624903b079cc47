//! The configuration of a queue, with the Collector's keys (opentelemetry-collector
//! `exporter/exporterhelper/README.md`).

use std::str::FromStr;

use serde::Deserialize;
use serde::de::Deserializer;

use crate::config;

/// The unit in which a queue is bounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sizer {
    /// Requests, as in the Collector if `queue_size` is a plain number without a sizer.
    Requests,
    /// Bytes: the final bodies, plus the queue's overhead for each.
    #[default]
    Bytes,
    /// Observations, and items of unparsed envelopes; each request counts as at least one.
    Items,
}

/// What happens when a queue is full.
///
/// In the Collector a full queue refuses data that its receiver has not accepted yet. Here data may have been accepted
/// long before, and waited in a processor. So instead the next request is refused before it is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Overflow {
    /// Receivers refuse requests for this queue, so the sender keeps them. Data in the pipeline waits.
    #[default]
    Refuse,
    /// Receivers let requests for this queue wait (`block_on_overflow`). Data in the pipeline waits.
    Wait,
    /// Data that does not fit is dropped and counted, and nothing waits (`drop_on_overflow`).
    Drop,
}

/// `sending_queue`: how much may wait to be sent by an exporter.
///
/// Whatever the unit, the bodies in one queue never exceed the memory limit of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "RawQueue")]
#[non_exhaustive]
pub struct QueueConfig {
    /// Whether there is a queue. Without a queue, a pipeline waits until its previous request was sent or lost.
    pub enabled: bool,
    /// How many requests are sent at the same time.
    pub num_consumers: usize,
    /// The capacity, in the unit of the sizer. Requests in flight count.
    pub queue_size: u64,
    /// The unit of the size.
    pub sizer: Sizer,
    /// What happens when the queue is full.
    pub overflow: Overflow,
}

/// [`QueueConfig`] as written.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawQueue {
    enabled: bool,
    num_consumers: usize,
    queue_size: Option<QueueSize>,
    sizer: Option<Sizer>,
    block_on_overflow: bool,
    drop_on_overflow: bool,
}

/// A size as written: a plain number in any unit, or a number of bytes with a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct QueueSize {
    number: u64,
    in_bytes: bool,
}

impl FromStr for QueueSize {
    type Err = config::BadByteSize;

    fn from_str(text: &str) -> Result<Self, config::BadByteSize> {
        let size: config::ByteSize = text.parse()?;
        Ok(Self { number: size.get(), in_bytes: !text.trim().bytes().all(|byte| byte.is_ascii_digit()) })
    }
}

impl<'de> Deserialize<'de> for QueueSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        config::from_text(deserializer, "a number, or with `sizer: bytes` a size such as `64MiB`")
    }
}

/// The largest accepted number of consumers: no destination wants more connections from one sender.
const MAX_CONSUMERS: usize = 1024;

/// The default number of consumers. A request occupies a consumer only while it is being sent, so a fast destination
/// needs few; a destination that answers in 100 ms receives up to 640 requests a second.
const CONSUMERS: usize = 64;

/// The rule that a `sending_queue` broke. In the message, the text after `; ` is the hint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadQueue(String);

fn broken<T>(rule: impl Into<String>) -> Result<T, BadQueue> {
    Err(BadQueue(rule.into()))
}

impl Default for RawQueue {
    fn default() -> Self {
        Self {
            enabled: true,
            num_consumers: CONSUMERS,
            queue_size: None,
            sizer: None,
            block_on_overflow: false,
            drop_on_overflow: false,
        }
    }
}

impl Default for QueueConfig {
    /// 64 MiB, 64 consumers; a full queue makes receivers refuse requests.
    fn default() -> Self {
        let sizer = Sizer::default();
        let queue_size = default_size(sizer);
        Self { enabled: true, num_consumers: CONSUMERS, queue_size, sizer, overflow: Overflow::Refuse }
    }
}

fn default_size(sizer: Sizer) -> u64 {
    match sizer {
        Sizer::Bytes => config::ByteSize::from_mib(64).get(),
        // The Collector's default.
        Sizer::Requests => 1000,
        // One minute of 160 threads at 100 Hz.
        Sizer::Items => 1_000_000,
    }
}

impl TryFrom<RawQueue> for QueueConfig {
    type Error = BadQueue;

    fn try_from(raw: RawQueue) -> Result<Self, BadQueue> {
        // In the Collector a number without a unit counts requests, unless there is a sizer.
        let sizer = raw.sizer.unwrap_or(match raw.queue_size {
            Some(QueueSize { in_bytes: false, .. }) => Sizer::Requests,
            _ => Sizer::Bytes,
        });
        let unit = match sizer {
            Sizer::Bytes => None,
            Sizer::Requests => Some("requests"),
            Sizer::Items => Some("observations"),
        };
        if let Some(unit) = unit
            && raw.queue_size.is_some_and(|size| size.in_bytes)
        {
            let hint = "write `sizer: bytes` beside it, or a plain number";
            let rule = "`queue_size` has a unit of bytes, but the queue is counted in";
            return broken(format!("{rule} {unit}; {hint}"));
        }
        if !raw.enabled && raw.drop_on_overflow {
            return broken("`drop_on_overflow` has no meaning without a queue; write `enabled: true`, or leave it out");
        }
        let queue_size = raw.queue_size.map_or_else(|| default_size(sizer), |size| size.number);
        let overflow = match (raw.block_on_overflow, raw.drop_on_overflow) {
            (false, false) => Overflow::Refuse,
            (true, false) => Overflow::Wait,
            (false, true) => Overflow::Drop,
            (true, true) => {
                return broken("`block_on_overflow` and `drop_on_overflow` contradict each other; write one of them");
            }
        };
        let queue = Self::try_new(sizer, queue_size, raw.num_consumers, overflow)?;
        Ok(Self { enabled: raw.enabled, ..queue })
    }
}

impl QueueConfig {
    /// A queue of `size` in the unit of `sizer`.
    ///
    /// # Errors
    ///
    /// The broken rule.
    pub fn try_new(sizer: Sizer, size: u64, consumers: usize, overflow: Overflow) -> Result<Self, BadQueue> {
        match (consumers, size) {
            (0, _) => broken("`num_consumers` is 0, so nothing would be sent; write at least 1"),
            (1..=MAX_CONSUMERS, 0) => {
                broken("`queue_size` is 0, so nothing would be taken; write `enabled: false` to go without a queue")
            }
            (1..=MAX_CONSUMERS, _) => {
                Ok(Self { enabled: true, num_consumers: consumers, queue_size: size, sizer, overflow })
            }
            _ => {
                let rule = "each is a request at the same time";
                broken(format!("`num_consumers` is larger than {MAX_CONSUMERS}; {rule}"))
            }
        }
    }

    /// No queue: while a request is in flight, its pipeline waits.
    pub fn disabled() -> Self {
        Self { enabled: false, ..Self::default() }
    }
}
