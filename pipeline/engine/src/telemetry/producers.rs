//! The producers that send to a receiver: program, version, and format.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Maximum number of distinct producers per receiver; all further ones count as one producer without a name.
const MAX_PRODUCERS: usize = 64;

/// Maximum length of a name in bytes; longer names are truncated.
const MAX_NAME: usize = 128;

/// A program that sends telemetry.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Producer {
    /// The format, such as an OTLP layout; one of a few constants.
    pub format: &'static str,
    /// The program's name, as the program reports it.
    pub name: String,
    /// The program's version, as the program reports it.
    pub version: String,
}

/// The producers of one receiver, with the number of accepted requests of each.
#[derive(Debug, Default)]
pub(super) struct Producers(Mutex<BTreeMap<Producer, u64>>);

impl Producers {
    /// Counts a request. Returns the producer, possibly without its name, if this is its first request.
    pub(super) fn note(&self, producer: Producer) -> Option<Producer> {
        let cut = |mut text: String| {
            let end = (0..=MAX_NAME.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
            text.truncate(end.unwrap_or(0));
            text
        };
        let mut producer =
            Producer { name: cut(producer.name), version: cut(producer.version), format: producer.format };
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_PRODUCERS && !known.contains_key(&producer) {
            producer = Producer { name: "other".to_owned(), ..Producer::default() };
        }
        let count = known.entry(producer.clone()).or_default();
        *count += 1;
        (*count == 1).then_some(producer)
    }

    pub(super) fn all(&self) -> Vec<(Producer, u64)> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().map(|(producer, count)| (producer.clone(), *count)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn producer(name: &str) -> Producer {
        Producer { format: "1.10", name: name.to_owned(), version: "1".to_owned() }
    }

    /// Guarantees: each producer is new once, and made-up names can exceed neither the number of producers nor the
    /// length of a name.
    #[test]
    fn producers_are_bounded() {
        let producers = Producers::default();
        assert_eq!(producers.note(producer("a")), Some(producer("a")));
        assert_eq!(producers.note(producer("a")), None);
        for n in 0..10 * MAX_PRODUCERS {
            producers.note(producer(&format!("{n} {}", "é".repeat(MAX_NAME))));
        }
        let all = producers.all();
        assert_eq!(all.len(), MAX_PRODUCERS + 1);
        assert_eq!(all.iter().map(|(_, count)| count).sum::<u64>(), 2 + 10 * MAX_PRODUCERS as u64);
        assert!(all.iter().all(|(producer, _)| producer.name.len() <= MAX_NAME));
        assert!(all.iter().any(|(producer, count)| producer.name == "other" && *count > MAX_PRODUCERS as u64));
    }
}
