//! Limits on the size and the number of items in an envelope.
//!
//! Relay rejects the whole envelope with 413 if one item breaks a limit, before it answers; an envelope that it would
//! reject must not be acknowledged here. Source: getsentry/relay `relay-server/src/utils/sizes.rs` (the rules) and
//! `relay-config/src/config.rs` (the defaults). Kinds without their own limit are bounded by the envelope's.

use profbridge_model::Envelope;

use super::envelope::ItemHeader;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// The limit that an envelope exceeds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ItemLimitError {
    /// An item, or all items of a kind together, are too large.
    #[error("items[{item}]: larger than {limit} bytes, the limit for {what}")]
    Size {
        /// The position of the item that exceeds the limit.
        item: usize,
        /// The kind of item.
        what: &'static str,
        /// The limit, in bytes.
        limit: usize,
    },
    /// There are too many items of a kind.
    #[error("items[{item}]: more than {limit} in one envelope of: {what}")]
    Count {
        /// The position of the item that exceeds the limit.
        item: usize,
        /// The kind of item.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
}

/// Items that share a limit.
struct LimitedItems {
    what: &'static str,
    types: &'static [&'static str],
    /// Maximum size of one item in bytes, or of all items if `together` is set.
    bytes: usize,
    together: bool,
    count: usize,
}

const KINDS: &[LimitedItems] = &[
    LimitedItems {
        what: "events and transactions",
        types: &["event", "transaction", "security", "raw_security"],
        bytes: MIB,
        together: true,
        count: 1,
    },
    LimitedItems {
        what: "profiles",
        types: &["profile", "profile_chunk", "profile_chunk_ui"],
        bytes: 50 * MIB,
        together: false,
        count: 1,
    },
    LimitedItems { what: "attachments", types: &["attachment"], bytes: 200 * MIB, together: true, count: usize::MAX },
    LimitedItems { what: "check-ins", types: &["check_in"], bytes: 100 * KIB, together: false, count: usize::MAX },
    LimitedItems {
        what: "client reports",
        types: &["client_report"],
        bytes: 100 * KIB,
        together: true,
        count: usize::MAX,
    },
    LimitedItems { what: "spans", types: &["span"], bytes: 12 * MIB, together: false, count: usize::MAX },
    LimitedItems { what: "logs", types: &["log"], bytes: 12 * MIB, together: false, count: usize::MAX },
];

/// The item types with a size limit, one for each limit.
pub fn limited_types() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|kind| kind.types[0])
}

/// Checks an envelope against Relay's limits in bytes, which `sizes` can override for the types of [`limited_types`].
///
/// # Errors
///
/// The first item that exceeds a limit.
pub fn check(envelope: &Envelope, sizes: impl Fn(&str) -> Option<usize>) -> Result<(), ItemLimitError> {
    let mut seen = [(0usize, 0usize); KINDS.len()];
    for (item, part) in envelope.items.iter().enumerate() {
        let Ok(header) = ItemHeader::read(&part.header) else { continue };
        let Some(at) = KINDS.iter().position(|kind| kind.types.contains(&&*header.kind)) else { continue };
        let &LimitedItems { what, types, bytes: limit, together, count: most } = &KINDS[at];
        let limit = sizes(types[0]).unwrap_or(limit);
        let (bytes, count) = &mut seen[at];
        *bytes = if together { *bytes } else { 0 } + part.payload.len();
        *count += 1;
        if *bytes > limit {
            return Err(ItemLimitError::Size { item, what, limit });
        }
        if *count > most {
            return Err(ItemLimitError::Count { item, what, limit: most });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sentry::envelope::item;

    fn check_items(items: &[(&str, usize)]) -> Result<(), ItemLimitError> {
        let items = items.iter().map(|&(kind, bytes)| item(kind, None, vec![b' '; bytes]));
        check(&Envelope { items: items.collect(), ..Envelope::default() }, |_| None)
    }

    /// Guarantees: an envelope exactly at Relay's limits passes, for sizes and counts.
    /// rule: transport#items-size
    #[test]
    fn what_fits() {
        check_items(&[("transaction", MIB), ("profile", 2 * MIB), ("attachment", 3 * MIB), ("attachment", 3 * MIB)])
            .unwrap();
        check_items(&[("check_in", 100 * KIB), ("check_in", 100 * KIB), ("novelty", 20 * MIB)]).unwrap();
    }

    /// Guarantees: a raised limit applies to all types of its kind, and to no other.
    #[test]
    fn raised() {
        let check_kind = |kind| {
            let items = vec![item(kind, None, vec![b' '; 2 * MIB])];
            check(&Envelope { items, ..Envelope::default() }, |kind| (kind == "event").then_some(3 * MIB))
        };
        assert!(check_kind("event").is_ok() && check_kind("transaction").is_ok() && check_kind("check_in").is_err());
        assert!(limited_types().any(|kind| kind == "event"));
    }

    /// Guarantees: the error names the item and the limit.
    /// rule: transport#items-once, transport#items-size
    #[test]
    fn what_does_not_fit() {
        for (items, text) in [
            (&[("event", MIB + 1)][..], "items[0]: larger than 1048576 bytes, the limit for events and transactions"),
            (&[("profile_chunk", 1), ("x", 1), ("profile", 1)], "items[2]: more than 1 in one envelope of: profiles"),
            (&[("event", 1), ("transaction", 1)], "items[1]: more than 1 in one envelope of: events and transactions"),
            (&[("check_in", 100 * KIB + 1)], "items[0]: larger than 102400 bytes, the limit for check-ins"),
        ] {
            assert_eq!(check_items(items).unwrap_err().to_string(), text);
        }
    }
}
