//! Envelopes of others.

use std::borrow::Cow;
use std::io::{self, Write};
use std::time::Duration;

use bytes::Bytes;
use profbridge_engine::calendar::Utc;
use profbridge_model::envelope::{Payload, Received};
use profbridge_model::{Envelope, Reason};
use profbridge_net::compression::{Coding, Compression, decompress, decompress_into};
use profbridge_wire::sentry::envelope::{self, Ending, Header};
use profbridge_wire::sentry::timestamp::Timestamp;
use profbridge_wire::sentry::{Dsn, span_writer};
use xxhash_rust::xxh3::xxh3_64;

use crate::compressor::Compressor;
use crate::message::Report;

/// What is known of an envelope that is passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forwarded {
    /// XXH3-64 of its bytes before compression.
    pub hash: u64,
}

/// How a body is compressed, as HTTP's `Content-Encoding` says it; `None` for no header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentEncoding(pub Option<&'static str>);

/// Changes of spans that could not be written into their item.
pub const SPAN_CHANGES_UNWRITTEN: &str = "sentry_span_changes_unwritten";

/// An envelope that says what was found out about its spans on the way.
#[derive(Debug, Default)]
pub struct Settled<'a> {
    /// The envelope, as it was where nothing was found out. `None` where nothing of it is left.
    pub envelope: Option<Cow<'a, Envelope>>,
    /// What went with a transaction that was left out, and what could not be written.
    pub report: Report,
}

/// Writes what was found out about an envelope's spans into its items ([`span_writer`]). One that was settled stays as
/// it is. Payloads that are packed are unpacked for it, and stay so.
pub fn settled(envelope: &Envelope) -> Settled<'_> {
    if !span_writer::is_changed(envelope) {
        return Settled { envelope: Some(Cow::Borrowed(envelope)), report: Report::default() };
    }
    let mut report = Report::default();
    match unpacked(envelope) {
        Ok(whole) => {
            let written = span_writer::write(whole.into_owned());
            report.losses = written.losses;
            if written.unwritten > 0 {
                report.note(SPAN_CHANGES_UNWRITTEN, written.unwritten);
            }
            Settled { envelope: written.envelope.map(Cow::Owned), report }
        }
        Err(error) => {
            report.losses.add(Reason::Internal, envelope.quantities());
            report.error = Some(error);
            Settled { envelope: None, report }
        }
    }
}

/// The body that an envelope came as, where it can go to a DSN as it is.
pub(super) fn as_received<'a>(envelope: &'a Envelope, to: &Dsn) -> Option<&'a Received> {
    envelope.received.as_ref().filter(|received| !received.changed && readdressed(&envelope.header, to).is_none())
}

/// The body that an envelope came as and the header that it needs for a DSN, where nothing else of it changes.
pub(super) fn renamed<'a>(envelope: &'a Envelope, to: &Dsn) -> Option<(&'a Received, Bytes)> {
    let received = envelope.received.as_ref().filter(|received| !received.changed)?;
    Some((received, readdressed(&envelope.header, to)?))
}

/// Writes a received body with another header in the place of its first `old` bytes. What it unpacks to, which may be
/// a thousand times as much and is in nobody's budget here, never exists as a whole.
///
/// # Errors
///
/// The body cannot be unpacked again, or `out` fails.
pub(super) fn write_renamed(received: &Received, old: usize, header: &[u8], out: &mut impl Write) -> io::Result<()> {
    out.write_all(header)?;
    let coding = Coding::parse(received.content_encoding).map_err(io::Error::other)?;
    decompress_into(coding, &received.body, envelope::MAX_BYTES, &mut Behind { skipped: old, out })
}

/// A received body whose header says that it was sent so much later than its client said, compressed as ours. `None`
/// where the header does not say when.
///
/// Sentry takes the time between sending and arrival for a clock that is wrong, and shifts the event by it, from 55
/// minutes on (getsentry/relay `relay-event-normalization/src/clock_drift.rs`). Time that an envelope spent waiting
/// here must not look like that.
///
/// # Errors
///
/// The body cannot be unpacked again, or there is no memory.
pub fn sent_later(
    received: &Received,
    header: &[u8],
    by: Duration,
    compression: Compression,
) -> io::Result<Option<Bytes>> {
    let sent_at = Header::read(header).ok().and_then(|header| header.sent_at);
    let Some(Timestamp(sent)) = sent_at.and_then(|sent_at| Timestamp::parse(&sent_at)) else { return Ok(None) };
    let moved = Utc::from_unix_nano(sent.saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)));
    let Some(moved) = Header::replace_sent_at(header, &moved.rfc3339(3)) else { return Ok(None) };
    let mut compressor = Compressor::default();
    let mut open = compressor.open(compression, received.body.len(), 1)?;
    write_renamed(received, header.len(), &moved, &mut open)?;
    compressor.close(open).map(Some)
}

/// Writes what comes behind so many bytes.
struct Behind<'a, W> {
    skipped: usize,
    out: &'a mut W,
}

impl<W: Write> Write for Behind<'_, W> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let skipped = self.skipped.min(data.len());
        self.skipped -= skipped;
        self.out.write_all(&data[skipped..])?;
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// An envelope's bytes without compression, addressed to a DSN, and what is known of them.
///
/// # Errors
///
/// The body that was received cannot be unpacked again.
pub(super) fn written(envelope: &Envelope, to: Option<&Dsn>) -> io::Result<(Vec<u8>, Forwarded)> {
    let mut envelope = unpacked(envelope)?;
    if let Some(header) = to.and_then(|to| readdressed(&envelope.header, to)) {
        envelope.to_mut().header = header;
    }
    let plain = envelope::write(&envelope, Ending::Newline).map_err(io::Error::other)?;
    let hash = xxh3_64(&plain);
    Ok((plain, Forwarded { hash }))
}

/// The envelope with all of its payloads.
///
/// # Errors
///
/// The body that was received cannot be unpacked again, or has not as many items as the envelope.
pub fn unpacked(envelope: &Envelope) -> io::Result<Cow<'_, Envelope>> {
    if envelope.items.iter().all(|item| matches!(item.payload, Payload::Plain(_))) {
        return Ok(Cow::Borrowed(envelope));
    }
    let missing = || io::Error::other("a payload is packed, and the body that it came in is gone");
    let Received { body, content_encoding, .. } = envelope.received.as_ref().ok_or_else(missing)?;
    let coding = Coding::parse(*content_encoding).map_err(io::Error::other)?;
    let plain = decompress(coding, body.clone(), envelope::MAX_BYTES).map_err(io::Error::other)?;
    let original = envelope::read(plain).map_err(io::Error::other)?.envelope;
    let mut whole = envelope.clone();
    for (position, item) in whole.items.iter_mut().enumerate() {
        if let Payload::Packed(_) = item.payload {
            item.payload = original.items.get(position).ok_or_else(missing)?.payload.clone();
        }
    }
    Ok(Cow::Owned(whole))
}

/// The envelope's header with another DSN, where it names one that is not the one it goes to: Relay refuses the
/// difference (getsentry/relay `relay-server/src/envelope/mod.rs`). `None` where it can stay as it is.
fn readdressed(line: &Bytes, to: &Dsn) -> Option<Bytes> {
    let named = Header::read(line).ok()?.dsn?;
    let same = named.parse::<Dsn>().is_ok_and(|named| {
        named.project_id() == to.project_id() && named.public_key().eq_ignore_ascii_case(to.public_key())
    });
    if same { None } else { Header::replace_dsn(line, &to.without_secret()) }
}
