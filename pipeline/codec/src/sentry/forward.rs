//! Envelopes of others.

use std::borrow::Cow;
use std::io::{self, Write};
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use profbridge_model::envelope::{Payload, Received};
use profbridge_model::{Envelope, Item};
use profbridge_net::compression::{Coding, Compression, decompress_into};
use profbridge_wire::sentry::envelope::{self, Ending, Header, Piece};
use profbridge_wire::sentry::timestamp::Timestamp;
use profbridge_wire::sentry::{Dsn, span_writer};
use xxhash_rust::xxh3::Xxh3Default;

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
/// it is.
pub fn settled(envelope: &Envelope) -> Settled<'_> {
    if !span_writer::is_changed(envelope) {
        return Settled { envelope: Some(Cow::Borrowed(envelope)), report: Report::default() };
    }
    let written = span_writer::write(envelope.clone());
    let mut report = Report { losses: written.losses, ..Report::default() };
    if written.unwritten > 0 {
        report.note(SPAN_CHANGES_UNWRITTEN, written.unwritten);
    }
    Settled { envelope: written.envelope.map(Cow::Owned), report }
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
    let moved = Timestamp(sent.saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)));
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

/// Hashes what is written.
pub(super) struct Hashed<'a, W> {
    out: &'a mut W,
    hash: Xxh3Default,
}

impl<'a, W> Hashed<'a, W> {
    pub(super) fn new(out: &'a mut W) -> Self {
        Self { out, hash: Xxh3Default::new() }
    }

    pub(super) fn end(self) -> Forwarded {
        Forwarded { hash: self.hash.digest() }
    }
}

impl<W: Write> Write for Hashed<'_, W> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.hash.update(data);
        self.out.write_all(data)?;
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Writes an envelope without compression, addressed to a DSN. Payloads that are packed are unpacked part by part on
/// their way into `out`: what a body unpacks to, which may be a thousand times as much and is in nobody's budget here,
/// never exists as a whole.
///
/// # Errors
///
/// The body that was received cannot be unpacked again, or is not the one that the payloads are in; or `out` fails.
pub(super) fn write(envelope: &Envelope, to: Option<&Dsn>, out: &mut impl Write) -> io::Result<()> {
    let renamed = to.and_then(|to| readdressed(&envelope.header, to));
    let header = renamed.as_ref().unwrap_or(&envelope.header);
    write_pieces(envelope::pieces(header, &envelope.items, Ending::Newline), envelope.received.as_ref(), out)
}

/// The payload of an item, unpacked where it is packed. Nothing else of the body is.
///
/// # Errors
///
/// As [`write()`].
pub(super) fn payload(envelope: &Envelope, item: &Item) -> io::Result<Bytes> {
    match &item.payload {
        Payload::Plain(payload) => Ok(payload.clone()),
        Payload::Packed(place) => {
            let mut out = Vec::with_capacity(place.len as usize);
            write_pieces([Piece::Packed(*place)], envelope.received.as_ref(), &mut out)?;
            Ok(out.into())
        }
    }
}

fn write_pieces<'a>(
    pieces: impl IntoIterator<Item = Piece<'a>>,
    received: Option<&Received>,
    out: &mut impl Write,
) -> io::Result<()> {
    let missing = || io::Error::other("a payload is packed, and the body that it came in is gone");
    let mut unpacked = Unpacked { pieces: pieces.into_iter(), wanted: None, at: 0, out };
    unpacked.go_on()?;
    if unpacked.wanted.is_some() {
        let Received { body, content_encoding, .. } = received.ok_or_else(missing)?;
        let coding = Coding::parse(*content_encoding).map_err(io::Error::other)?;
        decompress_into(coding, body, envelope::MAX_BYTES, &mut unpacked)?;
    }
    if unpacked.wanted.is_some() { Err(missing()) } else { Ok(()) }
}

/// Takes what a body unpacks to, and writes pieces of which some are in it, in the order in which they stand there.
struct Unpacked<'a, P, W> {
    pieces: P,
    /// What is left of the piece that is waited for.
    wanted: Option<Range<u64>>,
    /// How many bytes have passed.
    at: u64,
    out: &'a mut W,
}

impl<'a, P: Iterator<Item = Piece<'a>>, W: Write> Unpacked<'_, P, W> {
    /// Writes pieces until one comes that is packed.
    fn go_on(&mut self) -> io::Result<()> {
        self.wanted = None;
        for piece in self.pieces.by_ref() {
            match piece {
                Piece::Plain(bytes) => self.out.write_all(&bytes)?,
                Piece::Packed(place) => {
                    let start = u64::from(place.start);
                    if start < self.at {
                        return Err(io::Error::other("packed payloads are not in the order of their body"));
                    }
                    self.wanted = Some(start..start + u64::from(place.len));
                    break;
                }
            }
        }
        Ok(())
    }
}

impl<'a, P: Iterator<Item = Piece<'a>>, W: Write> Write for Unpacked<'_, P, W> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let mut rest = data;
        while let Some(Range { start, end }) = self.wanted.clone() {
            let (_, behind) = rest.split_at(rest.len().min((start - self.at) as usize));
            self.at += (rest.len() - behind.len()) as u64;
            let (part, behind) = behind.split_at(behind.len().min((end - self.at) as usize));
            self.out.write_all(part)?;
            self.at += part.len() as u64;
            rest = behind;
            if self.at < end {
                self.wanted = Some(self.at.max(start)..end);
                break;
            }
            self.go_on()?;
        }
        self.at += rest.len() as u64;
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
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
