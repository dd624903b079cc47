//! A Sentry envelope as one unit of delivery.
//!
//! Sentry joins the items of an envelope (a V1 profile belongs to the transaction beside it), so an envelope is
//! forwarded as a whole. Each item keeps its original bytes unless a processor changed it. The parsed form of an item
//! is a *view*: exporters that do not speak Sentry's protocol send the views, the Sentry exporter sends the items, so
//! nothing is sent twice. Sources: Sentry developer documentation, "Envelopes".
//!
//! # Memory
//!
//! A client may send 200 MiB. To hold this only once, an envelope with a compressed body keeps that body
//! ([`EnvelopeBody`]) and only the headers of its items ([`Payload::Packed`]); to read a payload, the body is
//! decompressed again. An uncompressed body is one buffer, and the items are slices of it.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;

use crate::{ByteRange, Profiles, Quantities, Spans};

/// One item of an envelope, as received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// The item's header: one line of JSON without the newline.
    pub header: Bytes,
    /// The item's payload without the newline after it.
    pub payload: Payload,
}

/// The location of an item's payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload {
    /// The payload is in memory.
    Plain(Bytes),
    /// The payload is only in the compressed body, at this range of its decompressed form.
    Packed(ByteRange),
}

impl Payload {
    /// The size of the payload, in bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Plain(bytes) => bytes.len(),
            Self::Packed(place) => place.len as usize,
        }
    }

    /// Whether the payload is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of the payload, if they are in memory.
    pub fn plain(&self) -> Option<&Bytes> {
        match self {
            Self::Plain(bytes) => Some(bytes),
            Self::Packed(_) => None,
        }
    }
}

impl<T: Into<Bytes>> From<T> for Payload {
    fn from(bytes: T) -> Self {
        Self::Plain(bytes.into())
    }
}

/// The request body that carried an envelope, as received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvelopeBody {
    /// The bytes of the body.
    pub body: Bytes,
    /// The HTTP content coding of the body; `None` if the body is the plain envelope.
    pub content_encoding: Option<&'static str>,
    /// Whether the envelope was changed since. Then the body is only used to read the payloads packed in it.
    pub changed: bool,
}

/// The part of a DSN that authenticates a client for a project. It is never printed, because everybody who knows it can
/// send events to the project.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublicKey(pub Arc<str>);

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PublicKey(...)")
    }
}

/// The information about the client in the request with an envelope.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestMeta {
    /// The project in the request path.
    pub project_id: Option<u64>,
    /// The key with which the client authenticated.
    pub public_key: Option<PublicKey>,
    /// The client name in the authentication, such as `sentry.python/2.75.0`.
    pub sentry_client: Option<Arc<str>>,
    /// The client's address.
    pub client_address: Option<IpAddr>,
    /// The received `X-Forwarded-For` header: if the client is a proxy, the addresses on whose behalf it sent the
    /// request.
    pub forwarded_for: Option<Arc<str>>,
    /// Request headers that describe the client, such as `user-agent`, by lower-case name.
    pub headers: Vec<(&'static str, Arc<str>)>,
    /// The server in the `dsn` of the envelope header, `HOST` or `HOST:PORT`, if the request was sent to a different
    /// one.
    pub server: Option<Arc<str>>,
    /// When the request arrived, in nanoseconds since the Unix epoch.
    pub arrival_unix_nano: Option<u64>,
    /// The process that sent the request, if it was looked up and is on this machine.
    pub client_process: Option<ClientProcess>,
    /// The name of this machine, as in `host.name`, if the client sent from it.
    pub client_host: Option<Arc<str>>,
}

/// A process of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientProcess {
    /// The process id in profbridge's own PID namespace.
    pub pid: u32,
    /// The name of this machine, as in `host.name`.
    pub host: Arc<str>,
}

/// The parsed form of one item.
#[derive(Debug, Clone)]
pub struct ItemView {
    /// The item's position in the envelope.
    pub item: usize,
    /// The parsed contents.
    pub what: Viewed,
}

/// The parsed contents of an item.
#[derive(Debug, Clone)]
pub enum Viewed {
    /// A profile.
    Profiles(Profiles),
    /// A transaction, or a container of spans.
    Spans(Spans),
}

impl ItemView {
    /// A profile that was parsed from the item at a position.
    pub fn profiles(item: usize, profiles: Profiles) -> Self {
        Self { item, what: Viewed::Profiles(profiles) }
    }

    /// Spans that were parsed from the item at a position.
    pub fn spans(item: usize, spans: Spans) -> Self {
        Self { item, what: Viewed::Spans(spans) }
    }

    /// The contents of the view in each unit.
    pub fn quantities(&self) -> Quantities {
        match &self.what {
            Viewed::Profiles(profiles) => Quantities::observations(profiles.observations()),
            Viewed::Spans(spans) => spans.quantities(),
        }
    }

    /// Memory use in bytes.
    pub fn size_bytes(&self) -> u64 {
        match &self.what {
            Viewed::Profiles(profiles) => profiles.size_bytes(),
            Viewed::Spans(spans) => spans.size_bytes(),
        }
    }
}

/// One envelope: its header, its items in order, and their views.
#[derive(Debug, Clone, Default)]
pub struct Envelope {
    /// The envelope's header: one line of JSON without the newline.
    pub header: Bytes,
    /// The items, in order. Items of unknown types are kept too.
    pub items: Vec<Item>,
    /// The information about the client in the request.
    pub meta: RequestMeta,
    /// The parsed items: at most one view per item.
    pub views: Vec<ItemView>,
    /// The body as received. [`Envelope::replace_payload`] describes the effect of changes.
    pub received: Option<EnvelopeBody>,
}

impl Envelope {
    /// The profiles among the views.
    pub fn profiles(&self) -> impl Iterator<Item = &Profiles> {
        self.views.iter().filter_map(|view| match &view.what {
            Viewed::Profiles(profiles) => Some(profiles),
            Viewed::Spans(_) => None,
        })
    }

    /// The batches of spans among the views.
    pub fn spans(&self) -> impl Iterator<Item = &Spans> {
        self.views.iter().filter_map(|view| match &view.what {
            Viewed::Profiles(_) => None,
            Viewed::Spans(spans) => Some(spans),
        })
    }

    /// The profiles among the views, by value.
    pub fn into_profiles(self) -> impl Iterator<Item = Profiles> {
        self.views.into_iter().filter_map(|view| match view.what {
            Viewed::Profiles(profiles) => Some(profiles),
            Viewed::Spans(_) => None,
        })
    }

    /// Replaces the payload of an item; the other items stay as received. Does nothing if there is no such item.
    pub fn replace_payload(&mut self, item: usize, payload: Bytes) {
        let Some(item) = self.items.get_mut(item) else { return };
        item.payload = payload.into();
        if let Some(received) = &mut self.received {
            received.changed = true;
        }
    }

    /// Replaces payloads that are slices of the decompressed body by their ranges ([`Payload::Packed`]). Other
    /// payloads, and empty ones, stay.
    pub fn pack(&mut self, unpacked: &[u8]) {
        let whole = unpacked.as_ptr_range();
        for item in &mut self.items {
            let Payload::Plain(payload) = &item.payload else { continue };
            let part = payload.as_ptr_range();
            let is_inside = !payload.is_empty() && whole.start <= part.start && part.end <= whole.end;
            let start = (part.start as usize).wrapping_sub(whole.start as usize);
            if let (true, Ok(start), Ok(len)) = (is_inside, u32::try_from(start), u32::try_from(payload.len())) {
                item.payload = Payload::Packed(ByteRange { start, len });
            }
        }
    }

    /// Removes an item and its view. Does nothing if there is no such item.
    pub fn remove_item(&mut self, item: usize) {
        if item >= self.items.len() {
            return;
        }
        self.items.remove(item);
        self.views.retain(|view| view.item != item);
        for view in self.views.iter_mut().filter(|view| view.item > item) {
            view.item -= 1;
        }
        if let Some(received) = &mut self.received {
            received.changed = true;
        }
    }

    /// The number of items without a view. An envelope without views counts as at least one item, even if it has none:
    /// it is delivered or lost as a whole.
    pub fn unread_items(&self) -> u64 {
        let unread = self.items.len().saturating_sub(self.views.len()) as u64;
        if self.views.is_empty() { unread.max(1) } else { unread }
    }

    /// The contents of the envelope: those of the views, and the items without a view.
    pub fn quantities(&self) -> Quantities {
        let read: Quantities = self.views.iter().map(ItemView::quantities).sum();
        read + Quantities::items(self.unread_items())
    }

    /// Approximate memory use in bytes, including everything that can be large.
    pub fn size_bytes(&self) -> u64 {
        let plain = |item: &Item| item.payload.plain().map_or(0, Bytes::len);
        let items = self.items.iter().map(|item| item.header.len() + plain(item)).sum::<usize>();
        // If the body is the plain envelope, the items are slices of it.
        let packed = self.received.as_ref().filter(|received| received.content_encoding.is_some());
        let body = packed.map_or(0, |received| received.body.len());
        (self.header.len() + items + body) as u64 + self.views_bytes()
    }

    /// The memory of the views in bytes, without bytes that they share with the items.
    pub fn views_bytes(&self) -> u64 {
        self.views.iter().map(|view| view.size_bytes().saturating_sub(self.shared_bytes(view))).sum()
    }

    /// The number of bytes of a view that are part of its item's payload, which is held anyway.
    fn shared_bytes(&self, view: &ItemView) -> u64 {
        let payload = self.items.get(view.item).and_then(|item| item.payload.plain());
        let (Some(payload), Viewed::Spans(spans)) = (payload, &view.what) else { return 0 };
        let (payload, bytes) = (payload.as_ptr_range(), spans.bytes().as_ptr_range());
        let is_shared = payload.start <= bytes.start && bytes.end <= payload.end;
        if is_shared { spans.bytes().len() as u64 } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Builder, SpanForm};

    fn item() -> Item {
        Item { header: Bytes::from_static(b"{\"type\":\"event\"}"), payload: Bytes::new().into() }
    }

    fn views(profiles: Vec<Profiles>) -> Vec<ItemView> {
        profiles.into_iter().enumerate().map(|(item, profiles)| ItemView::profiles(item, profiles)).collect()
    }

    fn view(times: &[u64]) -> Profiles {
        let mut builder = Builder::new();
        builder.on_cpu(20);
        builder.sample(None, None, None, times, &[]);
        builder.finish().unwrap()
    }

    /// Guarantees: an envelope counts the observations of its views and its items without a view, and an envelope
    /// without views always counts as at least one item.
    #[test]
    fn quantities() {
        let with = |items: usize, profiles: Vec<Profiles>| Envelope {
            items: vec![item(); items],
            views: views(profiles),
            ..Envelope::default()
        };
        assert_eq!(with(0, vec![]).quantities(), Quantities::items(1));
        assert_eq!(with(1, vec![]).quantities(), Quantities::items(1));
        assert_eq!(with(3, vec![]).quantities(), Quantities::items(3));
        assert_eq!(with(1, vec![view(&[1, 2])]).quantities(), Quantities::observations(2));
        let mixed = with(3, vec![view(&[1, 2]), view(&[3])]).quantities();
        assert_eq!(mixed, Quantities { observations: 3, ..Quantities::items(1) });
        // Views count even without their items.
        assert_eq!(with(0, vec![view(&[1])]).quantities(), Quantities::observations(1));
    }

    /// Guarantees: an item is removed with its view, and the other views still refer to their items.
    #[test]
    fn items_are_removed() {
        let received = EnvelopeBody { body: Bytes::new(), content_encoding: None, changed: false };
        let mut envelope = Envelope {
            items: vec![item(); 3],
            views: views(vec![view(&[1]), view(&[1, 2]), view(&[1, 2, 3])]),
            received: Some(received),
            ..Envelope::default()
        };
        envelope.remove_item(3);
        assert!(envelope.items.len() == 3 && !envelope.received.as_ref().unwrap().changed);
        envelope.remove_item(1);
        assert_eq!((envelope.quantities(), envelope.items.len()), (Quantities::observations(4), 2));
        assert_eq!(envelope.views.iter().map(|view| view.item).collect::<Vec<_>>(), [0, 1]);
        assert!(envelope.received.unwrap().changed);
    }

    /// Guarantees: printing a request or an envelope never prints a key.
    #[test]
    fn keys_are_not_printed() {
        let key = PublicKey("0123456789abcdef0123456789abcdef".into());
        let meta = RequestMeta { public_key: Some(key), ..RequestMeta::default() };
        assert!(!format!("{:?}", Envelope { meta, ..Envelope::default() }).contains("0123456789"));
    }

    /// Guarantees: a packed payload is replaced by its range in the decompressed body; a payload stored elsewhere, or
    /// an empty one, stays.
    #[test]
    fn packing() {
        let plain = Bytes::from_static(b"{}\n{\"type\":\"x\"}\n1234");
        let of = |payload: Bytes| Item { payload: payload.into(), ..item() };
        let items = vec![of(plain.slice(16..)), of(Bytes::from_static(b"1234")), of(plain.slice(5..5))];
        let mut envelope = Envelope { items, ..Envelope::default() };
        envelope.pack(&plain);
        let payloads: Vec<&Payload> = envelope.items.iter().map(|item| &item.payload).collect();
        let elsewhere = Payload::Plain(Bytes::from_static(b"1234"));
        assert_eq!(payloads, [&Payload::Packed(ByteRange { start: 16, len: 4 }), &elsewhere, &Bytes::new().into()]);
    }

    /// Guarantees: memory is counted once: that of a plain body with its items, that of a compressed body in addition
    /// to the headers.
    #[test]
    fn memory() {
        let body = Bytes::from_static(b"{}\n{\"type\":\"x\"}\n1234");
        let mut envelope = Envelope {
            header: body.slice(..2),
            items: vec![Item { header: body.slice(3..15), payload: body.slice(16..).into() }],
            received: Some(EnvelopeBody { body: body.clone(), content_encoding: None, changed: false }),
            ..Envelope::default()
        };
        assert_eq!(envelope.size_bytes(), 2 + 12 + 4);
        envelope.items[0].payload = Payload::Packed(ByteRange { start: 16, len: 1 << 20 });
        envelope.received =
            Some(EnvelopeBody { body: body.slice(..10), content_encoding: Some("gzip"), changed: false });
        assert_eq!((envelope.size_bytes(), envelope.items[0].payload.len()), (2 + 12 + 10, 1 << 20));
    }

    /// Guarantees: spans that point into an item's payload only count the memory that they add to it; spans with their
    /// own bytes count those as well.
    #[test]
    fn memory_of_spans() {
        let payload = Bytes::from_static(b"{\"spans\":[]}");
        let spans =
            |bytes: Bytes| Spans::new(SpanForm::SentryTransaction, bytes, vec![], vec![], vec![], true).unwrap();
        let of = |payload: Payload, spans: Spans| {
            let item = Item { header: Bytes::new(), payload };
            Envelope { items: vec![item], views: vec![ItemView::spans(0, spans)], ..Envelope::default() }
        };
        let plain = of(payload.clone().into(), spans(payload.clone()));
        assert_eq!((plain.size_bytes(), plain.views_bytes()), (12, 0));
        let mut copied = spans(payload.clone());
        copied.copy_bytes();
        assert_eq!(of(payload.clone().into(), copied.clone()).size_bytes(), 24);
        let packed = Payload::Packed(ByteRange { start: 7, len: 12 });
        assert_eq!(of(packed, copied).size_bytes(), 12);
        // A view of a missing item shares no bytes.
        let elsewhere = Envelope { views: vec![ItemView::spans(7, spans(payload))], ..Envelope::default() };
        assert_eq!(elsewhere.size_bytes(), 12);
    }
}
