//! One request, after its head was read and before it is answered: read, unpacked, checked, handed to the pipelines.
//!
//! What is cheap to refuse is refused first: room in the queues, memory for the body, unpacking, framing, who sent it,
//! size limits, and only then profiles and spans. SDKs discard what is answered with 503, so a request waits for memory
//! and queues until a deadline ([`Intake::waiting_until`]), unlike with other receivers.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use hyper::body::{Body as _, Incoming};
use profbridge_engine::body::{self, Buffer, Received};
use profbridge_engine::budget::Permit;
use profbridge_engine::intake::Intake;
use profbridge_engine::peer_limits::{Onward, PeerLimits};
use profbridge_engine::telemetry::{ItemCounts, TransportTelemetry};
use profbridge_engine::web_pages::Pages;
use profbridge_model::envelope::{self, ClientProcess, Payload, PublicKey, RequestMeta};
use profbridge_model::{Envelope, Profiles, Span, View};
use profbridge_net::body::{BodyError, Guarded};
use profbridge_net::client::{IN_PASSING, Resumed};
use profbridge_net::compression::{Coding, decompress_into};
use profbridge_net::server::Peer;
use profbridge_wire::sentry::chunk_reader::MAX_FRAMES;
use profbridge_wire::sentry::client_auth::{self, ClientAuth, ClientAuthError};
use profbridge_wire::sentry::envelope::{Header, ItemHeader, read as read_envelope};
use profbridge_wire::sentry::span_items::SpanItem;
use profbridge_wire::sentry::span_reader::{MAX_SPANS, ReadSpans};
use profbridge_wire::sentry::timestamp::Timestamp;
use profbridge_wire::sentry::{Dsn, item_limits, profile_items, span_items};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use uuid::Uuid;

use crate::clients::{Clients, Ends, Owner};
use crate::config::Settings;
use crate::fault::{self, Fault};
use crate::limits::{self, Limited};
use crate::store;

/// Up to so many bytes an uncompressed request is read where it arrived, which takes some tens of microseconds; others
/// on a thread for blocking work.
const SMALL: usize = 32 * 1024;

/// A larger body goes on as it comes, unless something in it is read.
const LARGE: usize = 2 << 20;

/// So much of a large body is looked at first, in bytes, to see what it is.
const FIRST: usize = 16 * 1024;

/// What may be read although it is large: up to this part of the memory limit. What is larger goes on unread.
const MOST_OF_MEMORY: u64 = 4;

/// How long a server may take to answer a request that is handed on, with all of its body.
pub(crate) const PATIENCE: Duration = Duration::from_secs(900);

/// Requests that were handed on unread.
const HANDED_ON: &str = "sentry_requests_handed_on";

/// How much more memory than its text a profile may take while it is read, in bytes for each opening brace: a frame
/// without keys is three bytes of text and 200 in memory.
const MEMORY_PER_OBJECT: usize = 200;

/// How much more memory than its text a payload of spans may take while it is read, in bytes for each opening brace:
/// spans grow in a list that doubles, and is copied when it does.
const MEMORY_PER_SPAN: usize = 3 * size_of::<Span>();

/// Profiles in envelopes that break a rule, and are forwarded unread.
const UNREADABLE: &str = "sentry_profiles_unreadable";

/// Profiles in formats that are not read, such as Android's traces, and are forwarded unread.
const PASSED_OVER: &str = "sentry_profiles_passed_over";

/// Samples of V1 profiles that V1's own rules leave out.
const LEFT_OUT: &str = "sentry_v1_samples_left_out";

/// Spans, transactions and containers of spans in envelopes that break a rule, and are forwarded unread.
const UNREADABLE_SPANS: &str = "sentry_spans_unreadable";

/// Requests with spans whose client was looked for and not found.
const NO_CLIENT: &str = "sentry_clients_not_found";

/// What the requests of a receiver share. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) intake: Intake,
    pub(crate) telemetry: TransportTelemetry,
    pub(crate) settings: Arc<Settings>,
    pub(crate) peer_limits: PeerLimits,
    /// Where requests go on that are not read, where an exporter offers it.
    pub(crate) way: Option<Arc<dyn Onward>>,
    /// The names of this listener, beside those of the loopback.
    pub(crate) allowed_hosts: Arc<[String]>,
    /// How many requests are unpacked and read at the same time.
    pub(crate) slots: Arc<Semaphore>,
    /// Who looks for the processes that send, where that is asked for.
    pub(crate) clients: Option<Clients>,
}

/// What the body holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// An envelope.
    Envelope,
    /// One event.
    Event,
}

impl Outcome {
    /// How much was read of the request.
    pub(crate) fn items(&self) -> ItemCounts {
        match self {
            Self::Taken { items, .. } => *items,
            Self::HandedOn(_) => ItemCounts::NONE,
        }
    }
}

/// What the head of a request said.
#[derive(Clone)]
pub(crate) struct Head {
    pub(crate) project: u64,
    pub(crate) form: Form,
    pub(crate) auth: Option<ClientAuth>,
    pub(crate) coding: Coding,
    /// What it said about the client.
    pub(crate) meta: RequestMeta,
    /// The client's end of the connection.
    pub(crate) peer: Option<Peer>,
    /// Who was found to be there.
    pub(crate) owner: Option<Arc<Owner>>,
    /// The names under which the client may know this receiver: the values of `Host` and `X-Forwarded-Host`.
    pub(crate) hosts: Vec<String>,
    /// The path and the query, from where the server's own path begins.
    pub(crate) path: String,
}

/// What became of a request that was not refused.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The pipelines have it. Where Sentry would take nothing of it at the moment its client is told so, but other
    /// exporters may take its profiles, and the one that is limited reports to Sentry what it drops, as the client, which
    /// leaves that to the server, does not.
    Taken {
        /// The id of its event.
        event_id: Option<String>,
        /// How much was read of it.
        items: ItemCounts,
        /// The limits that hold for its client.
        limits: Option<Limited>,
    },
    /// A server has answered, to which it went on unread.
    HandedOn(Response<Incoming>),
}

impl Caller {
    /// Reads a request and hands it to the pipelines, or on. Of a body that is refused something may be left.
    pub(crate) async fn call(
        &self,
        head: Head,
        parts: &Parts,
        body: &mut Option<Guarded<Incoming>>,
    ) -> Result<Outcome, Fault> {
        let intake = self.waiting();
        intake.room().await?;
        let (received, is_whole) = self.read(&head, &intake, body).await?;
        if !is_whole {
            return self.hand_on_large(head, parts, received, body.take()).await;
        }
        // At the other end of a proxy's connection is the proxy.
        let client = head.peer.filter(|_| head.meta.forwarded_for.is_none()).zip(head.owner.clone());
        let is_packed = head.form == Form::Envelope && head.coding != Coding::Identity;
        let spare = (is_packed && self.way.is_some()).then(|| (head.clone(), received.bytes.clone()));
        let parsed = match (self.parse(&intake, head, received).await, spare) {
            // There never is memory for what it unpacks to.
            (Err(fault), Some((head, bytes))) if fault.refused.is_some() && fault.retry_after.is_none() => {
                let permit = intake.admitted(bytes.len() as u64).await?;
                return self.hand_on_large(head, parts, Received { bytes, permit }, body.take()).await;
            }
            (parsed, _) => parsed?,
        };
        let Parsed { mut envelope, permit, event_id } = parsed;
        if envelope.spans().next().is_some() {
            envelope.meta.client_process = self.client(client).await;
        }
        let limits = match (envelope.meta.project_id, &envelope.meta.public_key) {
            (Some(project), Some(key)) => limits::of(&self.peer_limits, project, &key.0, &envelope),
            _ => None,
        };
        let profiles = envelope.profiles().flat_map(Profiles::profiles);
        let items = ItemCounts {
            samples: profiles.map(|profile| profile.samples.len() as u64).sum(),
            spans: envelope.spans().map(|spans| spans.spans().len() as u64).sum(),
        };
        intake.consume(envelope, permit).await?;
        Ok(Outcome::Taken { event_id, items, limits })
    }

    /// The intake for a request that has come now.
    fn waiting(&self) -> Intake {
        match self.settings.admission_timeout {
            Duration::ZERO => self.intake.clone(),
            patience => self.intake.waiting_until(Instant::now() + patience),
        }
    }

    /// Reads a body, or the beginning of one that is large and goes on as it comes, and says whether it is all of it.
    async fn read(
        &self,
        head: &Head,
        intake: &Intake,
        body: &mut Option<Guarded<Incoming>>,
    ) -> Result<(Received, bool), Fault> {
        let Some(body) = body else { return Err(Fault::malformed("the body is empty")) };
        let announced = body.size_hint().exact().map(|length| usize::try_from(length).unwrap_or(usize::MAX));
        let limit = self.settings.body.max_bytes;
        if announced.is_some_and(|length| length > limit) {
            return Err(BodyError::TooLarge { limit }.into());
        }
        let has_way = self.way.is_some() && head.form == Form::Envelope;
        let enough = match announced {
            // Whoever only claims to send much holds no memory for it.
            Some(length) if length > LARGE => FIRST,
            None if has_way => LARGE,
            _ => usize::MAX,
        };
        let mut buffer = Buffer::new(intake, announced.filter(|length| *length <= LARGE)).await?;
        let mut ended = body::fill(&mut buffer, body, enough).await?;
        if !ended {
            let part = usize::try_from(intake.memory_limit() / MOST_OF_MEMORY).unwrap_or(usize::MAX);
            let most = if has_way { part } else { usize::MAX };
            if has_way && !is_read(buffer.bytes(), head.coding) || announced.is_some_and(|length| length > most) {
                return Ok((buffer.finish(), false));
            }
            buffer.announce(announced.unwrap_or(0)).await?;
            ended = body::fill(&mut buffer, body, most).await?;
        }
        Ok((buffer.finish(), ended))
    }

    /// Hands an envelope on of which the beginning was read.
    async fn hand_on_large(
        &self,
        head: Head,
        parts: &Parts,
        first: Received,
        rest: Option<Guarded<Incoming>>,
    ) -> Result<Outcome, Fault> {
        let Some(rest) = rest else { return Err(Fault::malformed("the body is empty")) };
        let beginning = beginning(&first.bytes, head.coding);
        let header = beginning.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let header = Header::read(header).unwrap_or_default();
        let ClientAuth { key, .. } = authenticate(head.auth.clone(), header.dsn.as_deref(), head.project)?;
        is_allowed(&self.settings, &key)?;
        let server = self.server_of(header.dsn.as_deref(), &head)?;
        let request = Request::from_parts(parts.clone(), Resumed::new(first.bytes.clone(), rest));
        // Its memory is the client's until it has gone on.
        self.hand_on(server.as_deref(), &head.path, request).await
    }

    /// Hands a request on unread, to the server or the usual one.
    pub(crate) async fn hand_on(
        &self,
        server: Option<&str>,
        path: &str,
        mut request: Request<Resumed>,
    ) -> Result<Outcome, Fault> {
        let unavailable = |why: &str| {
            let message = format!("the upstream did not take it: {why}");
            Fault::new(http::StatusCode::BAD_GATEWAY, "upstream", message)
        };
        let Some(way) = &self.way else { return Err(no_way()) };
        *request.uri_mut() = path.parse().map_err(|_| Fault::malformed("the path is none"))?;
        let _memory = self.waiting().admitted(IN_PASSING).await?;
        let answer = tokio::time::timeout(PATIENCE, way.pass(server, request)).await;
        self.intake.note(HANDED_ON, 1);
        let answer = answer.map_err(|_| unavailable("no answer in time"))?;
        answer.map(Outcome::HandedOn).map_err(|why| unavailable(&why))
    }

    /// The server that the `dsn` in an envelope's header names, where that is not this receiver.
    ///
    /// # Errors
    ///
    /// No exporter sends to it.
    fn server_of(&self, dsn: Option<&str>, head: &Head) -> Result<Option<Arc<str>>, Fault> {
        let (Some(way), Some(dsn)) = (&self.way, dsn.and_then(|dsn| dsn.parse::<Dsn>().ok())) else { return Ok(None) };
        let server = dsn.authority();
        if way.knows(&server) {
            return Ok(Some(server.into()));
        }
        let pages = Pages { hosts: &self.allowed_hosts, origins: &[] };
        let own = head.peer.and_then(|peer| peer.own);
        if pages.is_own(&server, own) || head.hosts.iter().any(|host| host.eq_ignore_ascii_case(&server)) {
            return Ok(None);
        }
        let message = format!(
            "header.dsn: names {server}, which is no `upstream`; a name of this receiver belongs into service.allowed_hosts"
        );
        Err(Fault::new(http::StatusCode::FORBIDDEN, "foreign_server", message))
    }

    /// The process of this machine that has sent a request, as far as that can be found out: for each connection once,
    /// as long as it has its end of it.
    async fn client(&self, client: Option<(Peer, Arc<Owner>)>) -> Option<ClientProcess> {
        let clients = self.clients.clone()?;
        let found = match client {
            None => None,
            Some((peer, owner)) => match clients.known(&owner) {
                Some(known) => known,
                None => {
                    let ends = Ends { client: peer.addr, own: peer.own };
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

    async fn parse(&self, intake: &Intake, head: Head, received: Received) -> Result<Parsed, Fault> {
        let Received { bytes, permit } = received;
        let mut work = Work { intake: self.intake.clone(), caller: self.clone(), permit, head, bytes };
        if work.head.coding == Coding::Identity && work.bytes.len() <= SMALL {
            // Nothing waits for memory here, where it would keep others waiting too.
            match work.run() {
                Err(fault) if fault.retry_after.is_some() => {}
                result => return result.map(|envelope| work.finish(envelope)),
            }
        }
        work.intake = intake.clone();
        let done = body::run_in(&self.slots, intake, move || work.run().map(|envelope| work.finish(envelope))).await;
        done.unwrap_or_else(|| Err(fault::internal()))
    }
}

/// An envelope that is ready for the pipelines.
struct Parsed {
    envelope: Envelope,
    permit: Permit,
    event_id: Option<String>,
}

/// The part of a request that is computing. It can be run again after it has failed for want of memory.
struct Work {
    intake: Intake,
    caller: Caller,
    permit: Permit,
    head: Head,
    bytes: Bytes,
}

impl Work {
    fn finish(self, (envelope, event_id): (Envelope, Option<Uuid>)) -> Parsed {
        let Self { mut permit, .. } = self;
        permit.set(envelope.size_bytes());
        Parsed { envelope, permit, event_id: event_id.map(|id| id.simple().to_string()) }
    }

    /// The envelope, and the id of its event.
    fn run(&mut self) -> Result<(Envelope, Option<Uuid>), Fault> {
        let Head { project, form, coding, .. } = self.head;
        let came = self.bytes.clone();
        let mut plain = match coding {
            Coding::Identity => came.clone(),
            coding => self.unpacked(came.clone(), coding)?,
        };
        if form == Form::Event
            && let Some(packed) = store::packed(&plain)
        {
            plain = self.unpacked(packed, Coding::Deflate)?;
        }
        let mut envelope = match form {
            Form::Envelope => read_envelope(plain.clone()).map_err(fault::unreadable)?.envelope,
            Form::Event => store::envelope(plain.clone(), self.head.meta.arrival_unix_nano.unwrap_or(0))?,
        };
        let header = Header::read(&envelope.header).unwrap_or_default();
        let ClientAuth { key, client } = authenticate(self.head.auth.clone(), header.dsn.as_deref(), project)?;
        is_allowed(&self.caller.settings, &key)?;
        let server = self.caller.server_of(header.dsn.as_deref(), &self.head)?;
        let event_id = header.event_id.map(|id| Uuid::try_parse(&id)).transpose();
        let event_id = event_id.map_err(|_| Fault::malformed("header.event_id: is no UUID"))?;
        if header.sent_at.is_some_and(|sent_at| Timestamp::parse(&sent_at).is_none()) {
            return Err(Fault::malformed("header.sent_at: is no time in RFC 3339"));
        }
        let sizes = &self.caller.settings.max_item_sizes;
        item_limits::check(&envelope, |kind| sizes.get(kind).copied()).map_err(fault::too_large)?;
        self.read_items(&mut envelope)?;
        envelope.meta = RequestMeta {
            project_id: Some(project),
            public_key: Some(key),
            sentry_client: client.map(Into::into),
            server,
            ..self.head.meta.clone()
        };
        if coding != Coding::Identity {
            envelope.header = Bytes::copy_from_slice(&envelope.header);
            // An event is one item, of which its spans have a copy already.
            let copied = envelope.spans().next().map(|spans| spans.bytes().clone());
            if form == Form::Envelope {
                // What is forwarded as it came need not be held unpacked as well.
                envelope.pack(&plain);
            }
            for item in &mut envelope.items {
                item.header = Bytes::copy_from_slice(&item.header);
                if let (Form::Event, Payload::Plain(plain)) = (form, &item.payload) {
                    // Without the slack of what it was unpacked into.
                    item.payload = copied.clone().unwrap_or_else(|| Bytes::copy_from_slice(plain)).into();
                }
            }
        }
        if form == Form::Envelope {
            let content_encoding = coding.content_encoding();
            envelope.received = Some(envelope::Received { body: came, content_encoding, changed: false });
        }
        Ok((envelope, event_id))
    }

    fn unpacked(&mut self, packed: Bytes, coding: Coding) -> Result<Bytes, Fault> {
        let most = self.caller.settings.body.max_bytes;
        Ok(body::unpack(packed, coding, most, &self.intake, &mut self.permit)?.plain)
    }

    /// Makes views of the profiles and the spans in an envelope. What cannot be read is forwarded unread: Sentry
    /// decides about it.
    fn read_items(&mut self, envelope: &mut Envelope) -> Result<(), Fault> {
        let before = self.permit.bytes();
        self.intake.grow_blocking(&mut self.permit, memory_to_read(envelope) as u64)?;
        let mut views = self.profiles(envelope);
        views.extend(self.spans(envelope));
        views.sort_by_key(|view| view.item);
        envelope.views = views;
        self.permit.set(before + envelope.views_bytes());
        Ok(())
    }

    fn profiles(&self, envelope: &Envelope) -> Vec<View> {
        let mut views = Vec::new();
        let mut items = profile_items::read_items(envelope);
        for (item, read) in items.by_ref() {
            match read {
                Ok(profiles) => views.push(View::profiles(item, profiles)),
                Err(error) => {
                    tracing::warn!("items[{item}] of an envelope is forwarded without its profile: {error}");
                    self.intake.note(UNREADABLE, 1);
                }
            }
        }
        self.intake.note(PASSED_OVER, items.passed_over());
        self.intake.note(LEFT_OUT, items.left_out());
        views
    }

    fn spans(&self, envelope: &Envelope) -> Vec<View> {
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
                // What the body was unpacked to is not held.
                spans.copy_bytes();
            }
            views.push(View::spans(item, spans));
        }
        self.intake.note(UNREADABLE_SPANS, unreadable);
        views
    }
}

/// Nothing takes what is not read.
pub(crate) fn no_way() -> Fault {
    let message = "this receiver takes envelopes and events; for everything else its pipelines need an exporter \
                   `sentry` with an `upstream`";
    Fault::new(http::StatusCode::NOT_FOUND, "other_endpoint", message)
}

/// The beginning of a body, as far as it can be unpacked.
fn beginning(first: &[u8], coding: Coding) -> Vec<u8> {
    let mut plain = Vec::new();
    // It ends in an error wherever the body was cut; what is in front of that is there.
    drop(decompress_into(coding, first, 4 * FIRST, &mut plain));
    plain
}

/// Whether something is read of an envelope that begins so: its first item is a profile, or spans. What does not look
/// like an envelope is read as well, and refused for what it is.
fn is_read(first: &[u8], coding: Coding) -> bool {
    let plain = beginning(first, coding);
    let mut lines = plain.split(|byte| *byte == b'\n');
    let is_envelope = lines.next().is_some_and(|header| Header::read(header).is_ok());
    let Some(item) = lines.next().and_then(|header| ItemHeader::read(header).ok()).filter(|_| is_envelope) else {
        return true;
    };
    item.is_profile_chunk() || item.kind == "profile" || SpanItem::of(&item).is_some()
}

/// The memory that reading the profiles and the spans in an envelope may take, in bytes.
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

/// Whether a key is among those that may be used.
pub(crate) fn is_allowed(settings: &Settings, key: &PublicKey) -> Result<(), Fault> {
    if settings.keys.as_ref().is_some_and(|keys| !keys.contains(&*key.0)) {
        let message = "the public key is not among those that this receiver takes (public_keys)";
        return Err(Fault::new(http::StatusCode::FORBIDDEN, "key_not_allowed", message));
    }
    Ok(())
}

/// Who sent an envelope: as the request says, else its header. Where both say it they must agree.
fn authenticate(auth: Option<ClientAuth>, dsn: Option<&str>, project: u64) -> Result<ClientAuth, Fault> {
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
