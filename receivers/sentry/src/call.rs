//! One request after its head: read, decompress, check, hand over to the pipelines.
//!
//! Cheap checks come first: room in the queues, memory for the body, decompression, framing, authentication, size
//! limits, and only then profiles and spans. SDKs discard data that is answered with 503, so unlike in other receivers
//! a request waits for memory and queues until a deadline ([`Intake::waiting_until`]).

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use hyper::body::{Body as _, Incoming};
use profbridge_engine::body::{self, Buffer, ReceivedBody};
use profbridge_engine::budget::Permit;
use profbridge_engine::intake::Intake;
use profbridge_engine::peer_limits::{PeerLimits, RequestForwarder};
use profbridge_engine::telemetry::{ItemCounts, TransportTelemetry};
use profbridge_engine::web_pages::PageRules;
use profbridge_model::envelope::{self, ClientProcess, Payload, PublicKey, RequestMeta};
use profbridge_model::{Envelope, Item, ItemView, Profiles, Quantities, Reason, Span};
use profbridge_net::body::{BodyError, Guarded};
use profbridge_net::client::{FORWARDING_BYTES, PartlyReadBody};
use profbridge_net::compression::{Coding, decompress_into};
use profbridge_net::server::Peer;
use profbridge_wire::sentry::chunk_reader::MAX_FRAMES;
use profbridge_wire::sentry::client_auth::{self, ClientAuth, ClientAuthError};
use profbridge_wire::sentry::envelope::{Header, ItemHeader, read as read_envelope};
use profbridge_wire::sentry::span_items::SpanItem;
use profbridge_wire::sentry::span_reader::{MAX_SPANS, ReadSpans};
use profbridge_wire::sentry::timestamp::Timestamp;
use profbridge_wire::sentry::{Category, Dsn, item_limits, profile_items, span_items};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use uuid::Uuid;

use crate::clients::{CachedOwner, Clients, ConnectionEnds};
use crate::config::Settings;
use crate::fault::{self, Fault};
use crate::limits::{self, ClientLimits};
use crate::own_requests;
use crate::store;
use crate::traces::{self, Media};

/// Up to this size in bytes an uncompressed request is decoded on the socket's thread, which takes some tens of
/// microseconds; others use a blocking thread.
const SMALL: usize = 32 * 1024;

/// A larger body is forwarded as a stream, unless it contains something to decode.
const LARGE: usize = 2 << 20;

/// How many bytes of a large body are examined to decide that.
const EXAMINED_BYTES: usize = 16 * 1024;

/// The memory limit divided by this is the largest body that is decoded. A larger one is forwarded unread.
const MEMORY_FRACTION_TO_DECODE: u64 = 4;

/// How long a server may take to answer a forwarded request, including sending its body.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(900);

/// Counts requests that were forwarded unread.
const FORWARDED: &str = "sentry_requests_handed_on";

/// Memory in bytes, beyond its text, that decoding a profile may take for each opening brace: an empty frame has three
/// bytes of text and takes 200 in memory.
const MEMORY_PER_OBJECT: usize = 200;

/// Memory in bytes, beyond its text, that decoding spans may take for each opening brace: spans grow in a list that
/// doubles, and is copied when it does.
const MEMORY_PER_SPAN: usize = 3 * size_of::<Span>();

/// Counts profiles in envelopes that break a rule, and are forwarded unread.
const UNREADABLE_PROFILES: &str = "sentry_profiles_unreadable";

/// Counts profiles in unsupported formats, such as Android's traces, which are forwarded unread.
const UNSUPPORTED_PROFILES: &str = "sentry_profiles_passed_over";

/// Counts samples of V1 profiles that the rules of V1 discard.
const SAMPLES_DISCARDED: &str = "sentry_v1_samples_left_out";

/// Counts spans, transactions and span containers in envelopes that break a rule, and are forwarded unread.
const UNREADABLE_SPANS: &str = "sentry_spans_unreadable";

/// Counts requests with spans whose client process was not found.
const NO_CLIENT: &str = "sentry_clients_not_found";

/// State shared by the requests of a receiver. Cheap to clone.
#[derive(Clone)]
pub(crate) struct EnvelopeHandler {
    pub(crate) intake: Intake,
    pub(crate) telemetry: TransportTelemetry,
    pub(crate) settings: Arc<Settings>,
    pub(crate) peer_limits: PeerLimits,
    /// Forwards requests that are not read, if an exporter offers that.
    pub(crate) forwarder: Option<Arc<dyn RequestForwarder>>,
    /// Names of this listener, in addition to those of the loopback.
    pub(crate) allowed_hosts: Arc<[String]>,
    /// Limits how many requests are decompressed and decoded at the same time.
    pub(crate) slots: Arc<Semaphore>,
    /// Finds the processes that send, if enabled.
    pub(crate) clients: Option<Clients>,
    /// The name of this machine.
    pub(crate) host: Option<Arc<str>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyKind {
    Envelope,
    Event,
    /// Spans in OTLP.
    Traces(Media),
}

impl BodyKind {
    /// The size that a body may have, in bytes.
    pub(crate) fn max_bytes(self, settings: &Settings) -> usize {
        let most = settings.body.max_bytes;
        if matches!(self, Self::Traces(_)) { most.min(traces::MAX_BYTES) } else { most }
    }
}

impl RequestOutcome {
    /// The number of items that were read from the request.
    pub(crate) fn items(&self) -> ItemCounts {
        match self {
            Self::Accepted { items, .. } => *items,
            Self::Forwarded(_) => ItemCounts::NONE,
        }
    }
}

/// The relevant contents of a request's head.
#[derive(Clone)]
pub(crate) struct RequestHead {
    pub(crate) project: u64,
    pub(crate) form: BodyKind,
    pub(crate) auth: Option<ClientAuth>,
    pub(crate) coding: Coding,
    /// Information about the client.
    pub(crate) meta: RequestMeta,
    /// The client's address.
    pub(crate) peer: Option<Peer>,
    /// The process that was found at the other end of the connection.
    pub(crate) owner: Option<Arc<CachedOwner>>,
    /// The names by which the client may know this receiver: the values of `Host` and `X-Forwarded-Host`.
    pub(crate) hosts: Vec<String>,
    /// The path and the query, without the prefix in front of the server's own path.
    pub(crate) path: String,
}

/// The result of a request that was not refused.
#[derive(Debug)]
pub(crate) enum RequestOutcome {
    /// The pipelines have it. If Sentry's rate limits currently apply to all of an envelope, the client is told so, but
    /// other exporters may accept its profiles, and Sentry's exporter reports the drop to Sentry, because the client
    /// does not. (Spans in OTLP are refused then: their client may send them again.)
    Accepted {
        event_id: Option<String>,
        /// The number of items that were read.
        items: ItemCounts,
        /// The rate limits for its client.
        limits: Option<ClientLimits>,
        /// The number of lost spans and the reason, for the client.
        warning: Option<(u64, String)>,
    },
    /// It was forwarded unread, and this is the server's answer.
    Forwarded(Response<Incoming>),
}

impl EnvelopeHandler {
    /// Reads a request and hands it to the pipelines, or forwards it. If it is refused, part of its body may be unread.
    pub(crate) async fn call(
        &self,
        head: RequestHead,
        parts: &Parts,
        body: &mut Option<Guarded<Incoming>>,
    ) -> Result<RequestOutcome, Fault> {
        if let BodyKind::Traces(media) = head.form {
            return self.traces(head, media, body).await;
        }
        let intake = self.waiting();
        intake.room().await?;
        let (received, is_whole) = self.read(&head, &intake, body).await?;
        if !is_whole {
            return self.forward_large(head, parts, received, body.take()).await;
        }
        // Behind a proxy the process at the other end would be the proxy.
        let client = head.peer.filter(|_| head.meta.forwarded_for.is_none()).zip(head.owner.clone());
        let is_packed = head.form == BodyKind::Envelope && head.coding != Coding::Identity;
        let spare = (is_packed && self.forwarder.is_some()).then(|| (head.clone(), received.bytes.clone()));
        let parsed = match (self.parse(&intake, head, received).await, spare) {
            // There will never be enough memory to decompress it.
            (Err(fault), Some((head, bytes))) if fault.refused.is_some() && fault.retry_after.is_none() => {
                let permit = intake.admit_waiting(bytes.len() as u64).await?;
                return self.forward_large(head, parts, ReceivedBody { bytes, permit }, body.take()).await;
            }
            (parsed, _) => parsed?,
        };
        let ParsedEnvelope { mut envelope, permit, event_id, own_requests } = parsed;
        if own_requests > 0 {
            self.intake.refused(Reason::OwnRequests, Quantities::spans(own_requests));
            if envelope.items.is_empty() {
                return Ok(RequestOutcome::Accepted { event_id, items: ItemCounts::NONE, limits: None, warning: None });
            }
        }
        if envelope.spans().next().is_some() {
            envelope.meta.client_process = self.client(client).await;
        }
        let limits = match (envelope.meta.project_id, &envelope.meta.public_key) {
            (Some(project), Some(key)) => {
                let categories =
                    |item: &Item| ItemHeader::read(&item.header).map_or(&[][..], |header| Category::of_item(&header));
                limits::limits_for(&self.peer_limits, project, &key.0, envelope.items.iter().map(categories))
            }
            _ => None,
        };
        let profiles = envelope.profiles().flat_map(Profiles::profiles);
        let samples = profiles.map(|profile| profile.samples.len() as u64).sum();
        let spans = envelope.spans().map(|spans| spans.spans().len() as u64).sum();
        let items = ItemCounts::of(samples, Quantities::spans(spans));
        intake.consume(envelope, permit).await?;
        Ok(RequestOutcome::Accepted { event_id, items, limits, warning: None })
    }

    /// An intake that waits for a request that arrived now.
    pub(crate) fn waiting(&self) -> Intake {
        match self.settings.admission_timeout {
            Duration::ZERO => self.intake.clone(),
            patience => self.intake.waiting_until(Instant::now() + patience),
        }
    }

    /// Reads a body, or the beginning of a large one that may be forwarded. Returns whether the body is complete.
    pub(crate) async fn read(
        &self,
        head: &RequestHead,
        intake: &Intake,
        body: &mut Option<Guarded<Incoming>>,
    ) -> Result<(ReceivedBody, bool), Fault> {
        let Some(body) = body else { return Err(Fault::malformed("the body is empty")) };
        let announced = body.size_hint().exact().map(|length| usize::try_from(length).unwrap_or(usize::MAX));
        let limit = head.form.max_bytes(&self.settings);
        if announced.is_some_and(|length| length > limit) {
            return Err(BodyError::TooLarge { limit }.into());
        }
        let has_way = self.forwarder.is_some() && head.form == BodyKind::Envelope;
        let enough = match announced {
            // An announced length alone must not hold memory.
            Some(length) if length > LARGE => EXAMINED_BYTES,
            None if has_way => LARGE,
            _ => usize::MAX,
        };
        let mut buffer = Buffer::new(intake, announced.filter(|length| *length <= LARGE)).await?;
        let mut ended = body::fill(&mut buffer, body, enough).await?;
        if !ended {
            let part = usize::try_from(intake.memory_limit() / MEMORY_FRACTION_TO_DECODE).unwrap_or(usize::MAX);
            let most = if has_way { part } else { usize::MAX };
            if has_way && !has_decodable_items(buffer.bytes(), head.coding)
                || announced.is_some_and(|length| length > most)
            {
                return Ok((buffer.finish(), false));
            }
            buffer.announce(announced.unwrap_or(0)).await?;
            ended = body::fill(&mut buffer, body, most).await?;
        }
        Ok((buffer.finish(), ended))
    }

    /// Forwards an envelope whose beginning was read.
    async fn forward_large(
        &self,
        head: RequestHead,
        parts: &Parts,
        first: ReceivedBody,
        rest: Option<Guarded<Incoming>>,
    ) -> Result<RequestOutcome, Fault> {
        let Some(rest) = rest else { return Err(Fault::malformed("the body is empty")) };
        let beginning = beginning(&first.bytes, head.coding);
        let header = beginning.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let header = Header::read(header).unwrap_or_default();
        let ClientAuth { key, .. } = authenticate(head.auth.clone(), header.dsn.as_deref(), head.project)?;
        is_allowed(&self.settings, &key)?;
        let server = self.server_of(header.dsn.as_deref(), &head)?;
        let request = Request::from_parts(parts.clone(), PartlyReadBody::new(first.bytes.clone(), rest));
        // The permit is held until the request was forwarded.
        self.forward(server.as_deref(), &head.path, request).await
    }

    /// Forwards a request unread, to `server` or the default server.
    pub(crate) async fn forward(
        &self,
        server: Option<&str>,
        path: &str,
        mut request: Request<PartlyReadBody>,
    ) -> Result<RequestOutcome, Fault> {
        let unavailable = |why: &str| {
            let message = format!("the upstream did not take it: {why}");
            Fault::new(http::StatusCode::BAD_GATEWAY, "upstream", message)
        };
        let Some(forwarder) = &self.forwarder else { return Err(no_forwarder()) };
        *request.uri_mut() = path.parse().map_err(|_| Fault::malformed("the path is none"))?;
        let _memory = self.waiting().admit_waiting(FORWARDING_BYTES).await?;
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, forwarder.pass(server, request)).await;
        self.intake.note(FORWARDED, 1);
        let answer = answer.map_err(|_| unavailable("no answer in time"))?;
        answer.map(RequestOutcome::Forwarded).map_err(|why| unavailable(&why))
    }

    /// The server in the `dsn` of an envelope's header, unless it is this receiver.
    ///
    /// # Errors
    ///
    /// No exporter sends to it.
    fn server_of(&self, dsn: Option<&str>, head: &RequestHead) -> Result<Option<Arc<str>>, Fault> {
        let (Some(forwarder), Some(dsn)) = (&self.forwarder, dsn.and_then(|dsn| dsn.parse::<Dsn>().ok())) else {
            return Ok(None);
        };
        let server = dsn.authority();
        if forwarder.knows(&server) {
            return Ok(Some(server.into()));
        }
        let pages = PageRules { hosts: &self.allowed_hosts, origins: &[] };
        let own = head.peer.and_then(|peer| peer.own);
        if pages.is_own(&server, own) || head.hosts.iter().any(|host| host.eq_ignore_ascii_case(&server)) {
            return Ok(None);
        }
        let message = format!(
            "header.dsn: names {server}, which is no `upstream`; a name of this receiver belongs into service.allowed_hosts"
        );
        Err(Fault::new(http::StatusCode::FORBIDDEN, "foreign_server", message))
    }

    /// The process on this machine that sent a request, if it can be found. It is looked up once per connection, for as
    /// long as that process has the socket.
    pub(crate) async fn client(&self, client: Option<(Peer, Arc<CachedOwner>)>) -> Option<ClientProcess> {
        let clients = self.clients.clone()?;
        let found = match client {
            None => None,
            Some((peer, owner)) => match clients.known(&owner) {
                Some(known) => known,
                None => {
                    let ends = ConnectionEnds { client: peer.addr, own: peer.own };
                    let look_up = move || Ok::<_, Infallible>(clients.look_up(&owner, ends));
                    body::run_in(&self.slots, &self.intake, look_up).await.and_then(|Ok(found)| found)
                }
            },
        };
        if found.is_none() {
            self.intake.note(NO_CLIENT, 1);
        }
        found
    }

    async fn parse(&self, intake: &Intake, head: RequestHead, received: ReceivedBody) -> Result<ParsedEnvelope, Fault> {
        let ReceivedBody { bytes, permit } = received;
        let job =
            EnvelopeJob { intake: self.intake.clone(), handler: self.clone(), permit, head, bytes, own_requests: 0 };
        let mut job = Box::new(job);
        if job.head.coding == Coding::Identity && job.bytes.len() <= SMALL {
            // Does not wait for memory here, because that would make others wait too.
            match job.run_with(&self.intake) {
                Err((_, Some(again))) => job = again,
                result => return result.map_err(|(fault, _)| fault),
            }
        }
        let done = body::run_in_turn(&self.slots, intake, job, EnvelopeJob::run_with).await;
        done.unwrap_or_else(|| Err(fault::internal()))
    }
}

/// A decoded envelope.
struct ParsedEnvelope {
    envelope: Envelope,
    permit: Permit,
    event_id: Option<String>,
    /// The number of spans that were dropped because they describe the SDK's own posts to this receiver.
    own_requests: u64,
}

/// The CPU work of a request.
struct EnvelopeJob {
    intake: Intake,
    handler: EnvelopeHandler,
    permit: Permit,
    head: RequestHead,
    bytes: Bytes,
    /// The number of spans that were dropped because they describe the SDK's own posts to this receiver.
    own_requests: u64,
}

impl EnvelopeJob {
    fn finish(self, (envelope, event_id): (Envelope, Option<Uuid>)) -> ParsedEnvelope {
        let Self { mut permit, own_requests, .. } = self;
        permit.set(envelope.size_bytes());
        ParsedEnvelope { envelope, permit, event_id: event_id.map(|id| id.simple().to_string()), own_requests }
    }

    /// Decodes the envelope with memory from this intake. If it lacks memory, gives back what it took.
    fn run_with(mut self: Box<Self>, intake: &Intake) -> Result<ParsedEnvelope, (Fault, Option<Box<Self>>)> {
        self.intake = intake.clone();
        let received = self.permit.bytes();
        match self.run() {
            Ok(envelope) => Ok(self.finish(envelope)),
            Err(fault) => {
                self.permit.set(received);
                let lacks_memory = fault.retry_after.is_some();
                Err((fault, lacks_memory.then_some(self)))
            }
        }
    }

    /// Decodes the envelope and the id of its event.
    fn run(&mut self) -> Result<(Envelope, Option<Uuid>), Fault> {
        let RequestHead { project, form, coding, .. } = self.head;
        let came = self.bytes.clone();
        let mut plain = match coding {
            Coding::Identity => came.clone(),
            coding => self.unpacked(came.clone(), coding)?,
        };
        if form == BodyKind::Event
            && let Some(packed) = store::packed(&plain)
        {
            plain = if packed.starts_with(b"{") { packed } else { self.unpacked(packed, Coding::Deflate)? };
        }
        let mut envelope = match form {
            BodyKind::Event => store::envelope(plain.clone(), self.head.meta.arrival_unix_nano.unwrap_or(0))?,
            BodyKind::Envelope | BodyKind::Traces(_) => {
                read_envelope(plain.clone()).map_err(fault::unreadable)?.envelope
            }
        };
        let header = Header::read(&envelope.header).unwrap_or_default();
        let ClientAuth { key, client } = authenticate(self.head.auth.clone(), header.dsn.as_deref(), project)?;
        is_allowed(&self.handler.settings, &key)?;
        let server = self.handler.server_of(header.dsn.as_deref(), &self.head)?;
        let event_id = header.event_id.map(|id| Uuid::try_parse(&id)).transpose();
        let event_id = event_id.map_err(|_| Fault::malformed("header.event_id: is no UUID"))?;
        if header.sent_at.is_some_and(|sent_at| Timestamp::parse(&sent_at).is_none()) {
            return Err(Fault::malformed("header.sent_at: is no time in RFC 3339"));
        }
        let sizes = &self.handler.settings.max_item_sizes;
        item_limits::check(&envelope, |kind| sizes.get(kind).copied()).map_err(fault::too_large)?;
        self.read_items(&mut envelope)?;
        let (own_requests, has_removed) = match self.handler.settings.drop_own_requests {
            true => own_requests::remove(&mut envelope, &self.head.hosts),
            false => (0, false),
        };
        self.own_requests = own_requests;
        envelope.meta = RequestMeta {
            project_id: Some(project),
            public_key: Some(key),
            sentry_client: client.map(Into::into),
            server,
            ..self.head.meta.clone()
        };
        if coding != Coding::Identity {
            envelope.header = Bytes::copy_from_slice(&envelope.header);
            // An event is a single item, which its spans have copied already.
            let copied = envelope.spans().next().map(|spans| spans.bytes().clone());
            if form == BodyKind::Envelope {
                // A body that is forwarded unchanged need not also be held decompressed.
                envelope.pack(&plain);
            }
            for item in &mut envelope.items {
                item.header = Bytes::copy_from_slice(&item.header);
                if let (BodyKind::Event, Payload::Plain(plain)) = (form, &item.payload) {
                    // Copies the payload to drop the unused capacity of the decompression buffer.
                    item.payload = copied.clone().unwrap_or_else(|| Bytes::copy_from_slice(plain)).into();
                }
            }
        }
        if form == BodyKind::Envelope {
            let content_encoding = coding.content_encoding();
            envelope.received = Some(envelope::EnvelopeBody { body: came, content_encoding, changed: has_removed });
        }
        Ok((envelope, event_id))
    }

    fn unpacked(&mut self, packed: Bytes, coding: Coding) -> Result<Bytes, Fault> {
        let most = self.handler.settings.body.max_bytes;
        Ok(body::unpack(packed, coding, most, &self.intake, &mut self.permit)?.plain)
    }

    /// Decodes the profiles and spans in an envelope into views. An item that cannot be decoded is forwarded unread,
    /// and Sentry decides about it.
    fn read_items(&mut self, envelope: &mut Envelope) -> Result<(), Fault> {
        let before = self.permit.bytes();
        let more = memory_to_read(envelope) as u64;
        self.intake.grow_blocking(&mut self.permit, more, more)?;
        let mut views = self.profiles(envelope);
        views.extend(self.spans(envelope));
        views.sort_by_key(|view| view.item);
        envelope.views = views;
        self.permit.set(before + envelope.views_bytes());
        Ok(())
    }

    fn profiles(&self, envelope: &Envelope) -> Vec<ItemView> {
        let mut views = Vec::new();
        let mut items = profile_items::read_items(envelope);
        for (item, read) in items.by_ref() {
            match read {
                Ok(profiles) => views.push(ItemView::profiles(item, profiles)),
                Err(error) => {
                    tracing::warn!("items[{item}] of an envelope is forwarded without its profile: {error}");
                    self.intake.note(UNREADABLE_PROFILES, 1);
                }
            }
        }
        self.intake.note(UNSUPPORTED_PROFILES, items.passed_over());
        self.intake.note(SAMPLES_DISCARDED, items.left_out());
        views
    }

    fn spans(&self, envelope: &Envelope) -> Vec<ItemView> {
        let mut views = Vec::new();
        let mut unreadable = 0;
        for (item, read) in span_items::read_items(envelope) {
            let ReadSpans { mut spans, unread, first_unread } = match read {
                Ok(read) => read,
                Err(error) => {
                    tracing::warn!("items[{item}] of an envelope is forwarded without its spans: {error}");
                    unreadable += 1;
                    continue;
                }
            };
            if let Some(error) = first_unread {
                tracing::warn!("items[{item}] of an envelope is forwarded with spans that were not read: {error}");
                unreadable += unread;
            }
            if spans.is_empty() {
                continue;
            }
            spans.peer = self.head.meta.client_address.map(|address| address.to_string().into());
            if self.head.coding != Coding::Identity {
                // Copies the spans' bytes, so that the decompressed body can be released.
                spans.copy_bytes();
            }
            views.push(ItemView::spans(item, spans));
        }
        self.intake.note(UNREADABLE_SPANS, unreadable);
        views
    }
}

/// The fault if no exporter can forward an unread request.
pub(crate) fn no_forwarder() -> Fault {
    let message = "this receiver takes envelopes and events; for everything else its pipelines need an exporter \
                   `sentry` with an `upstream`";
    Fault::new(http::StatusCode::NOT_FOUND, "other_endpoint", message)
}

/// The beginning of a body, decompressed as far as possible.
fn beginning(first: &[u8], coding: Coding) -> Vec<u8> {
    let mut plain = Vec::new();
    // Decompression fails where the body was cut; the output before that is valid.
    drop(decompress_into(coding, first, 4 * EXAMINED_BYTES, &mut plain));
    plain
}

/// Whether an envelope with this beginning is decoded: its first item is a profile or spans. A body that looks like no
/// envelope is decoded too, so that it is refused properly.
fn has_decodable_items(first: &[u8], coding: Coding) -> bool {
    let plain = beginning(first, coding);
    let mut lines = plain.split(|byte| *byte == b'\n');
    let is_envelope = lines.next().is_some_and(|header| Header::read(header).is_ok());
    let Some(item) = lines.next().and_then(|header| ItemHeader::read(header).ok()).filter(|_| is_envelope) else {
        return true;
    };
    item.is_profile_chunk() || item.kind == "profile" || SpanItem::of(&item).is_some()
}

/// The memory that decoding the profiles and spans in an envelope may take, in bytes.
fn memory_to_read(envelope: &Envelope) -> usize {
    let memory = envelope.items.iter().filter_map(|item| {
        let header = ItemHeader::read(&item.header).ok()?;
        let (bytes, most) = match SpanItem::of(&header) {
            Some(_) => (MEMORY_PER_SPAN, MAX_SPANS),
            None if header.is_profile_chunk() || header.kind == "profile" => (MEMORY_PER_OBJECT, MAX_FRAMES),
            None => return None,
        };
        let payload = item.payload.plain()?;
        let objects = payload.iter().filter(|&&byte| byte == b'{').count();
        Some(payload.len() + bytes * objects.min(most))
    });
    memory.sum()
}

/// Checks that a key is among the allowed ones.
pub(crate) fn is_allowed(settings: &Settings, key: &PublicKey) -> Result<(), Fault> {
    if settings.keys.as_ref().is_some_and(|keys| !keys.contains(&*key.0)) {
        let message = "the public key is not among those that this receiver takes (public_keys)";
        return Err(Fault::new(http::StatusCode::FORBIDDEN, "key_not_allowed", message));
    }
    Ok(())
}

/// The sender of an envelope, from the request or else from the envelope's header. If both name one, they must agree.
pub(crate) fn authenticate(auth: Option<ClientAuth>, dsn: Option<&str>, project: u64) -> Result<ClientAuth, Fault> {
    let named = dsn.map(client_auth::of_dsn).transpose().map_err(|_| Fault::malformed("header.dsn: is no DSN"))?;
    match (auth, named) {
        (None, None) => Err(fault::unauthenticated(ClientAuthError::Missing)),
        (Some(auth), None) => Ok(auth),
        (auth, Some((named, of_project))) => {
            let differs = auth.as_ref().is_some_and(|auth| auth.key != named.key);
            if differs || of_project != project {
                return Err(Fault::malformed("header.dsn: names another key or project than the request"));
            }
            Ok(auth.unwrap_or(named))
        }
    }
}
