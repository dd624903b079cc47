//! One Sentry envelope as one unit of delivery.
//!
//! Sentry joins the items of an envelope (a V1 profile belongs to the transaction beside it), so an envelope is
//! forwarded whole, each item's bytes as they came unless a processor changed that item. What was understood of it is
//! a *view*: exporters that do not speak Sentry's protocol take the views, the Sentry exporter takes the items, and
//! so nothing is sent twice. Sources: Sentry developer documentation, "Envelopes".

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;

use crate::{Profiles, Quantities};

/// One item of an envelope, as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// The item's header: one line of JSON, without the line's end.
    pub header: Bytes,
    /// The item's payload, without the line's end after it.
    pub payload: Bytes,
}

/// What the request that carried an envelope said about it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestMeta {
    /// The client's address.
    pub client_address: Option<IpAddr>,
    /// The client's `User-Agent`.
    pub user_agent: Option<Arc<str>>,
    /// The client's `Origin`.
    pub origin: Option<Arc<str>>,
}

/// One envelope: its header, its items in order, and what was understood of them.
#[derive(Debug, Clone, Default)]
pub struct Envelope {
    /// The envelope's header: one line of JSON, without the line's end.
    pub header: Bytes,
    /// The items, in order. An item of an unknown type is kept like any other.
    pub items: Vec<Item>,
    /// What the request said.
    pub meta: RequestMeta,
    /// The profiles among the items, as views: each is of one item.
    pub profiles: Vec<Profiles>,
}

impl Envelope {
    /// The number of items that nothing was read of: those without a view. An envelope without views is at least one,
    /// even where it has no items: it is delivered, or lost.
    pub fn unread_items(&self) -> u64 {
        let unread = self.items.len().saturating_sub(self.profiles.len()) as u64;
        if self.profiles.is_empty() { unread.max(1) } else { unread }
    }

    /// How much is in it: the observations of its profiles, and the items that nothing was read of.
    pub fn quantities(&self) -> Quantities {
        let observations = self.profiles.iter().map(Profiles::observations).sum();
        Quantities { observations, ..Quantities::items(self.unread_items()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Builder;

    fn item() -> Item {
        Item { header: Bytes::from_static(b"{\"type\":\"event\"}"), payload: Bytes::new() }
    }

    fn view(times: &[u64]) -> Profiles {
        let mut builder = Builder::new();
        builder.on_cpu(20);
        builder.sample(None, None, None, times, &[]);
        builder.finish().unwrap()
    }

    /// Guarantees: an envelope counts the observations that were read of it and the items that nothing was read of, and
    /// one that nothing was read of is never nothing.
    #[test]
    fn quantities() {
        let with = |items: usize, profiles: Vec<Profiles>| Envelope {
            items: vec![item(); items],
            profiles,
            ..Envelope::default()
        };
        assert_eq!(with(0, vec![]).quantities(), Quantities::items(1));
        assert_eq!(with(1, vec![]).quantities(), Quantities::items(1));
        assert_eq!(with(3, vec![]).quantities(), Quantities::items(3));
        assert_eq!(with(1, vec![view(&[1, 2])]).quantities(), Quantities::observations(2));
        let mixed = with(3, vec![view(&[1, 2]), view(&[3])]).quantities();
        assert_eq!(mixed, Quantities { observations: 3, ..Quantities::items(1) });
        // Views without their items are counted all the same.
        assert_eq!(with(0, vec![view(&[1])]).quantities(), Quantities::observations(1));
    }
}
