//! Forwards envelopes that were received from other senders.

use std::borrow::Cow;
use std::io::{self, Write};
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use profbridge_model::envelope::{EnvelopeBody, Payload};
use profbridge_model::{Envelope, Item};
use profbridge_net::compression::{Coding, Compression, decompress_into};
use profbridge_wire::sentry::envelope::{self, Ending, EnvelopePart, Header};
use profbridge_wire::sentry::timestamp::Timestamp;
use profbridge_wire::sentry::{Dsn, span_writer};
use xxhash_rust::xxh3::Xxh3Default;

use crate::compressor::Compressor;
use crate::message::EncodingReport;

/// The identity of a forwarded envelope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forwarded {
    /// XXH3-64 of its uncompressed bytes.
    pub hash: u64,
}

/// The compression of a body as in HTTP's `Content-Encoding`; `None` for no header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentEncoding(pub Option<&'static str>);

/// Counts changes of spans that could not be written into their item.
pub const SPAN_CHANGES_UNWRITTEN: &str = "sentry_span_changes_unwritten";

/// An envelope with the changes of its spans written into its items.
#[derive(Debug, Default)]
pub struct Settled<'a> {
    /// The envelope, unmodified if there were no changes. `None` if nothing of it is left.
    pub envelope: Option<Cow<'a, Envelope>>,
    /// Losses that followed from removed transactions, and changes that could not be written.
    pub report: EncodingReport,
}

/// Writes the changes of an envelope's spans into its items ([`span_writer`]). Without pending changes the envelope is
/// returned unmodified.
pub fn settled(envelope: &Envelope) -> Settled<'_> {
    if !span_writer::is_changed(envelope) {
        return Settled { envelope: Some(Cow::Borrowed(envelope)), report: EncodingReport::default() };
    }
    let written = span_writer::write(envelope.clone());
    let mut report = EncodingReport { losses: written.losses, ..EncodingReport::default() };
    if written.unwritten > 0 {
        report.note(SPAN_CHANGES_UNWRITTEN, written.unwritten);
    }
    Settled { envelope: written.envelope.map(Cow::Owned), report }
}

/// The received body of an envelope, if it can be sent to the DSN unmodified.
pub(super) fn as_received<'a>(envelope: &'a Envelope, to: &Dsn) -> Option<&'a EnvelopeBody> {
    envelope.received.as_ref().filter(|received| !received.changed && readdressed(&envelope.header, to).is_none())
}

/// The received body of an envelope and the header that the DSN requires, if nothing else changes.
pub(super) fn renamed<'a>(envelope: &'a Envelope, to: &Dsn) -> Option<(&'a EnvelopeBody, Bytes)> {
    let received = envelope.received.as_ref().filter(|received| !received.changed)?;
    Some((received, readdressed(&envelope.header, to)?))
}

/// Writes a received body with its first `old` bytes replaced by another header. The unpacked body may be a thousand
/// times as large and no budget covers it here, so it is never in memory as a whole.
///
/// # Errors
///
/// The body cannot be decompressed again, or `out` fails.
pub(super) fn write_renamed(
    received: &EnvelopeBody,
    old: usize,
    header: &[u8],
    out: &mut impl Write,
) -> io::Result<()> {
    out.write_all(header)?;
    let coding = Coding::parse(received.content_encoding).map_err(io::Error::other)?;
    decompress_into(coding, &received.body, envelope::MAX_BYTES, &mut Behind { skipped: old, out })
}

/// Compresses a received body again with `sent_at` in its header moved by the delay. `None` if the header has no time.
///
/// Sentry interprets the time between sending and arrival as clock drift, and from 55 minutes on shifts the event by it
/// (getsentry/relay `relay-event-normalization/src/clock_drift.rs`). Time that an envelope spent waiting here must not
/// be mistaken for that.
///
/// # Errors
///
/// The body cannot be decompressed again, or there is no memory.
pub fn sent_later(
    received: &EnvelopeBody,
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

/// Skips the first `skipped` bytes and writes the rest.
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

/// Hashes the bytes while writing them.
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

/// Writes an envelope uncompressed and addressed to a DSN. Compressed payloads are decompressed piece by piece into
/// `out`: the unpacked body may be a thousand times as large and no budget covers it here, so it is never in memory as
/// a whole.
///
/// # Errors
///
/// The received body cannot be decompressed again, or is not the one that contains the payloads; or `out` fails.
pub(super) fn write(envelope: &Envelope, to: Option<&Dsn>, out: &mut impl Write) -> io::Result<()> {
    let renamed = to.and_then(|to| readdressed(&envelope.header, to));
    let header = renamed.as_ref().unwrap_or(&envelope.header);
    write_pieces(envelope::pieces(header, &envelope.items, Ending::Newline), envelope.received.as_ref(), out)
}

/// The decompressed payload of an item. The rest of the body is not kept.
///
/// # Errors
///
/// As [`write()`].
pub(super) fn payload(envelope: &Envelope, item: &Item) -> io::Result<Bytes> {
    match &item.payload {
        Payload::Plain(payload) => Ok(payload.clone()),
        Payload::Packed(place) => {
            let mut out = Vec::with_capacity(place.len as usize);
            write_pieces([EnvelopePart::Packed(*place)], envelope.received.as_ref(), &mut out)?;
            Ok(out.into())
        }
    }
}

fn write_pieces<'a>(
    pieces: impl IntoIterator<Item = EnvelopePart<'a>>,
    received: Option<&EnvelopeBody>,
    out: &mut impl Write,
) -> io::Result<()> {
    let missing = || io::Error::other("a payload is packed, and the body that it came in is gone");
    let mut unpacked = Unpacked { pieces: pieces.into_iter(), wanted: None, at: 0, out };
    unpacked.go_on()?;
    if unpacked.wanted.is_some() {
        let EnvelopeBody { body, content_encoding, .. } = received.ok_or_else(missing)?;
        let coding = Coding::parse(*content_encoding).map_err(io::Error::other)?;
        decompress_into(coding, body, envelope::MAX_BYTES, &mut unpacked)?;
    }
    if unpacked.wanted.is_some() { Err(missing()) } else { Ok(()) }
}

/// Receives a decompressed body, and writes the pieces of the envelope in order, some of which are ranges of the body.
struct Unpacked<'a, P, W> {
    pieces: P,
    /// The remaining range of the current piece.
    wanted: Option<Range<u64>>,
    /// Number of bytes received so far.
    at: u64,
    out: &'a mut W,
}

impl<'a, P: Iterator<Item = EnvelopePart<'a>>, W: Write> Unpacked<'_, P, W> {
    /// Writes pieces until the next one that is a range of the compressed body.
    fn go_on(&mut self) -> io::Result<()> {
        self.wanted = None;
        for piece in self.pieces.by_ref() {
            match piece {
                EnvelopePart::Plain(bytes) => self.out.write_all(&bytes)?,
                EnvelopePart::Packed(place) => {
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

impl<'a, P: Iterator<Item = EnvelopePart<'a>>, W: Write> Write for Unpacked<'_, P, W> {
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

/// The envelope's header with the DSN replaced, if it names a different one: Relay rejects a mismatch (getsentry/relay
/// `relay-server/src/envelope/mod.rs`). `None` if the header needs no change.
fn readdressed(line: &Bytes, to: &Dsn) -> Option<Bytes> {
    let named = Header::read(line).ok()?.dsn?;
    let same = named.parse::<Dsn>().is_ok_and(|named| {
        named.project_id() == to.project_id() && named.public_key().eq_ignore_ascii_case(to.public_key())
    });
    if same { None } else { Header::replace_dsn(line, &to.without_secret()) }
}
