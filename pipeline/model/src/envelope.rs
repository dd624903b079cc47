//! One Sentry envelope as one unit of delivery.
//!
//! Sentry joins the items of an envelope (a V1 profile belongs to the transaction beside it), so an envelope is
//! forwarded whole, each item's bytes as they came unless a processor changed that item. What was understood of it is
//! a *view*: exporters that do not speak Sentry's protocol take the views, the Sentry exporter takes the items, and
//! so nothing is sent twice. Sources: Sentry developer documentation, "Envelopes".

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;

use crate::Profiles;

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
    /// The profiles among the items, as views.
    pub profiles: Vec<Profiles>,
}
