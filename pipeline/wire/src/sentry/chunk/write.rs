//! Writes a chunk as JSON.
//!
//! The samples are written thread by thread, with the time last: this way the text between the stack of a sample and
//! the digits of its time is the same from sample to sample, which a compressor finds as one match. Relay sorts samples
//! by time (getsentry/relay `relay-profiling/src/sample/v2.rs`, `ProfileData::normalize`).

use std::io;

use uuid::Uuid;
use xxhash_rust::xxh3::Xxh3;

use profbridge_model::ProfilerId;

use super::limits::MAX_STRING_BYTES;
use super::report::Notes;
use super::sink::ChunkSink;
use crate::json::{self, Index};

/// The parts of a chunk except its samples, as JSON.
pub(super) struct ChunkParts<'a> {
    /// The metadata before the profile, after the opening bracket of the chunk.
    pub(super) head: &'a [u8],
    /// Number of stacks; then stacks, frames and images without the brackets of their arrays.
    pub(super) stack_count: usize,
    pub(super) stacks: &'a [u8],
    pub(super) frames: &'a [u8],
    pub(super) images: &'a [u8],
    /// The threads, without the brackets of the object.
    pub(super) threads: &'a [u8],
    /// The chunk's id, if it has one already; otherwise the id is a hash of the content.
    pub(super) id: Option<Uuid>,
}

/// Writes the members of a JSON object, and truncates texts that are too long.
pub(super) struct ObjectWriter<'a> {
    out: &'a mut Vec<u8>,
    /// Maximum length of a text, in bytes.
    longest: usize,
    notes: &'a mut Notes,
    is_first: bool,
}

impl<'a> ObjectWriter<'a> {
    /// Opens an object. In a preserved chunk (`kept`) texts are not truncated.
    pub(super) fn open(out: &'a mut Vec<u8>, kept: bool, notes: &'a mut Notes) -> Self {
        out.push(b'{');
        let longest = if kept { usize::MAX } else { MAX_STRING_BYTES };
        Self { out, longest, notes, is_first: true }
    }

    fn key(&mut self, key: &str) {
        self.out.extend_from_slice(if self.is_first { b"\"" } else { b",\"" });
        self.out.extend_from_slice(key.as_bytes());
        self.out.extend_from_slice(b"\":");
        self.is_first = false;
    }

    /// Writes a text, unless it is `None`.
    pub(super) fn text(&mut self, key: &str, text: Option<&[u8]>) {
        let Some(text) = text else { return };
        self.key(key);
        self.out.push(b'"');
        if text.len() <= self.longest {
            json::escaped(self.out, text);
        } else {
            self.notes.truncated_strings += 1;
            json::escaped(self.out, json::cut(text, self.longest - ELLIPSIS.len()));
            self.out.extend_from_slice(ELLIPSIS.as_bytes());
        }
        self.out.push(b'"');
    }

    /// Writes a number, unless it is `None`.
    pub(super) fn number(&mut self, key: &str, number: Option<u64>) {
        if let Some(number) = number {
            self.key(key);
            json::number(self.out, number);
        }
    }

    /// Writes an address, unless it is `None`.
    pub(super) fn address(&mut self, key: &str, address: Option<u64>) {
        if let Some(address) = address {
            self.key(key);
            json::address(self.out, address);
        }
    }

    /// Writes an object of texts.
    pub(super) fn object(&mut self, key: &str, texts: &[(&str, &str)]) {
        self.key(key);
        let mut object = ObjectWriter::open(self.out, self.longest == usize::MAX, self.notes);
        texts.iter().for_each(|(key, text)| object.text(key, Some(text.as_bytes())));
        object.close();
    }

    /// Writes JSON, unless it is `None`.
    pub(super) fn json(&mut self, key: &str, json: Option<&str>) {
        if let Some(json) = json {
            self.key(key);
            put_json(self.out, json);
        }
    }

    pub(super) fn close(self) {
        self.out.push(b'}');
    }
}

/// Marks a truncated text.
const ELLIPSIS: &str = "…";

/// Approximate size of the pieces passed to the sink, in bytes, so that they stay in a core's own cache.
pub(super) const PIECE: usize = 32 << 10;

/// Approximate maximum size of a sample in bytes, without its thread's id.
pub(super) const SAMPLE_BYTES: usize = 64;

/// Counts and hashes the bytes for a sink.
struct HashedOutput<'a> {
    sink: &'a mut dyn ChunkSink,
    hash: Xxh3,
    bytes: u64,
}

impl HashedOutput<'_> {
    fn write(&mut self, json: &[u8]) -> io::Result<()> {
        self.hash.update(json);
        self.bytes += json.len() as u64;
        self.sink.write(json)
    }

    /// Writes the chunk's id, by default a hash of its content, and closes the chunk.
    fn close(mut self, id: Option<Uuid>) -> io::Result<(Uuid, u64)> {
        let of_content = || Uuid::from_bytes(*ProfilerId::from_hash(self.hash.digest128()).as_bytes());
        let id = id.unwrap_or_else(of_content);
        self.write(format!(",\"chunk_id\":\"{}\"}}", id.simple()).as_bytes())?;
        Ok((id, self.bytes))
    }
}

/// Writes a chunk to an open sink. The samples are grouped by thread: the thread's id, then for each sample its stack
/// number and its time in microseconds since the Unix epoch. Returns the chunk's id and its size in bytes.
///
/// # Errors
///
/// The sink's errors.
pub(super) fn write<'s, S: Iterator<Item = (u32, u64)>>(
    parts: &ChunkParts<'_>,
    threads: impl Iterator<Item = (&'s str, S)>,
    buffer: &mut Vec<u8>,
    sink: &mut dyn ChunkSink,
) -> io::Result<(Uuid, u64)> {
    let mut out = HashedOutput { sink, hash: Xxh3::new(), bytes: 0 };
    buffer.clear();
    buffer.extend_from_slice(parts.head);
    buffer.extend_from_slice(b",\"profile\":{\"samples\":[");
    samples(parts.stack_count, threads, buffer, &mut out)?;
    out.write(b"],\"stacks\":[")?;
    out.write(parts.stacks)?;
    out.write(b"],\"frames\":[")?;
    out.write(parts.frames)?;
    buffer.extend_from_slice(b"],\"thread_metadata\":{");
    buffer.extend_from_slice(parts.threads);
    buffer.extend_from_slice(b"}}");
    if !parts.images.is_empty() {
        buffer.extend_from_slice(b",\"debug_meta\":{\"images\":[");
        buffer.extend_from_slice(parts.images);
        buffer.extend_from_slice(b"]}");
    }
    out.write(buffer)?;
    out.close(parts.id)
}

/// Appends received JSON on one line, because a line break ends the chunk in an envelope. JSON strings never contain
/// one.
pub(super) fn put_json(out: &mut Vec<u8>, json: &str) {
    out.extend(json.bytes().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte }));
}

/// Writes the buffer, then the samples, and clears the buffer.
fn samples<'s, S: Iterator<Item = (u32, u64)>>(
    stack_count: usize,
    threads: impl Iterator<Item = (&'s str, S)>,
    buffer: &mut Vec<u8>,
    out: &mut HashedOutput<'_>,
) -> io::Result<()> {
    out.write(buffer)?;
    buffer.clear();
    let stacks: Vec<Index> = (0..stack_count as u32).map(|number| Index::new(number % Index::END as u32)).collect();
    let mut middle = Vec::with_capacity(128);
    let mut thread_id = Vec::with_capacity(64);
    buffer.resize(PIECE, 0);
    // The first sample has no leading comma.
    let (mut skip, mut at) = (1, 0);
    for (id, samples) in threads {
        thread_id.clear();
        json::escaped(&mut thread_id, id.as_bytes());
        let most = SAMPLE_BYTES + thread_id.len() + 16;
        if most > buffer.len() {
            buffer.resize(most, 0);
        }
        // The second in `middle`; initially none, and far from any real time in microseconds.
        let mut second = u64::MAX / 2;
        for (stack, micros) in samples {
            if micros.wrapping_sub(second) >= 1_000_000 {
                second = micros - micros % 1_000_000;
                name_second(&mut middle, &thread_id, second / 1_000_000);
            }
            if buffer.len() - at < most {
                out.write(&buffer[skip..at])?;
                (skip, at) = (0, 0);
            }
            let text = &mut buffer[at..at + most];
            text[..13].copy_from_slice(b",{\"stack_id\":");
            let stack = stacks[stack as usize];
            stack.write(text, 13);
            let mut end = 12 + stack.len();
            text[end..end + middle.len()].copy_from_slice(&middle);
            end += middle.len();
            text[end..end + 6].copy_from_slice(&json::six_digits((micros - second) as u32));
            text[end + 6] = b'}';
            at += end + 7;
        }
    }
    // Without samples there is no comma to skip.
    out.write(&buffer[skip.min(at)..at])?;
    buffer.clear();
    Ok(())
}

/// Writes the text between a sample's stack and the sub-second digits of its time.
fn name_second(middle: &mut Vec<u8>, thread_id: &[u8], second: u64) {
    middle.clear();
    middle.extend_from_slice(b",\"thread_id\":\"");
    middle.extend_from_slice(thread_id);
    middle.extend_from_slice(b"\",\"timestamp\":");
    json::number(middle, second);
    middle.push(b'.');
}
