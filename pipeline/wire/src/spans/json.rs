//! A Sentry span, parsed on demand.

use serde_json::value::RawValue;

use super::value::SpanValue;
use crate::sentry::text::{Entries, Text};

/// Maximum number of keys in an object, including an attribute's.
const MAX_KEYS: usize = 1 << 16;

type Keys<'a> = Entries<'a, &'a RawValue, MAX_KEYS>;

/// A JSON object with parsed keys and raw values. Of duplicate keys the last one counts, as in Relay.
#[derive(Debug, Default)]
pub(super) struct JsonObject<'a>(Keys<'a>);

impl<'a> JsonObject<'a> {
    /// Parses the object in these bytes; empty if there is none.
    pub(super) fn read(json: &'a [u8]) -> Self {
        Self(serde_json::from_slice(json).unwrap_or_default())
    }

    /// Whether a key exists.
    pub(super) fn has(&self, key: &str) -> bool {
        last(&self.0, key).is_some()
    }

    /// The scalar at a path of keys.
    pub(super) fn find(&self, path: &[&str]) -> Option<SpanValue<'a>> {
        let (first, rest) = path.split_first()?;
        let mut found = last(&self.0, first)?;
        for key in rest {
            let inner: Keys<'a> = serde_json::from_str(found.get()).ok()?;
            found = last(&inner, key)?;
        }
        scalar(found.get())
    }

    /// A tag; `tags` is an object, or a list of pairs (Sentry developer documentation, "Event Payloads").
    pub(super) fn tag(&self, key: &str) -> Option<SpanValue<'a>> {
        let tags = last(&self.0, "tags")?.get();
        if tags.starts_with('{') {
            return self.find(&["tags", key]);
        }
        let pairs: Vec<(&'a RawValue, &'a RawValue)> = serde_json::from_str(tags).ok()?;
        let is_key = |text: &str| serde_json::from_str::<Text<'_>>(text).is_ok_and(|text| text.as_str() == key);
        pairs.into_iter().rev().find(|(found, _)| is_key(found.get())).and_then(|(_, value)| scalar(value.get()))
    }
}

fn last<'a>(keys: &Keys<'a>, key: &str) -> Option<&'a RawValue> {
    keys.0.iter().rev().find(|(found, _)| found.as_str() == key).map(|(_, value)| *value)
}

fn scalar(json: &str) -> Option<SpanValue<'_>> {
    match json.as_bytes().first()? {
        b'"' => serde_json::from_str::<Text<'_>>(json).ok().map(|text| SpanValue::Text(text.into())),
        b't' => Some(SpanValue::Bool(true)),
        b'f' => Some(SpanValue::Bool(false)),
        b'-' | b'0'..=b'9' => match json.parse() {
            Ok(number) => Some(SpanValue::Int(number)),
            Err(_) => json.parse().ok().map(SpanValue::Double),
        },
        _ => None,
    }
}
