//! Writes a chunk as JSON.
//!
//! The samples come thread by thread, the time last: between the stack of one sample and the digits of its time lies
//! the same text as in the sample before, which a compressor finds as one match. Relay sorts by time itself
//! (getsentry/relay `relay-profiling/src/sample/v2.rs`, `ProfileData::normalize`).

use std::io;

use uuid::Uuid;
use xxhash_rust::xxh3::Xxh3;

use profbridge_model::ProfilerId;

use super::frames::text;
use super::report::Notes;
use super::sink::ChunkSink;
use crate::json::{self, Index};

/// The name and version under which Sentry knows the sender. Names of Sentry's own SDKs are subject to its version
/// gates.
pub(super) const SDK: (&str, &str) = ("profbridge.rust", env!("CARGO_PKG_VERSION"));

/// A chunk as it is written, but for its samples.
pub(super) struct Parts<'a> {
    pub(super) platform: &'a str,
    pub(super) sdk: (&'a str, &'a str),
    pub(super) profiler_id: ProfilerId,
    pub(super) release: Option<&'a str>,
    pub(super) environment: Option<&'a str>,
    /// Other JSON behind that: a key with what stands under it.
    pub(super) measurements: Option<&'a str>,
    /// How many stacks there are, and these, the frames and the images as the insides of JSON arrays.
    pub(super) stack_count: usize,
    pub(super) stacks: &'a [u8],
    pub(super) frames: &'a [u8],
    pub(super) images: &'a [u8],
    pub(super) threads: &'a [Thread<'a>],
    /// Its id, where it has one; else it is a hash of the content.
    pub(super) id: Option<Uuid>,
    /// Where texts that are cut are counted; `None` where they are not cut.
    pub(super) notes: Option<&'a mut Notes>,
}

/// A thread as it is written.
pub(super) struct Thread<'a> {
    pub(super) id: &'a str,
    pub(super) name: Option<&'a [u8]>,
    pub(super) priority: Option<u32>,
}

/// A piece handed to the sink is about this long, in bytes: it stays in a core's own cache.
pub(super) const PIECE: usize = 32 << 10;

/// About the most bytes that one sample takes without its thread's id.
pub(super) const SAMPLE_BYTES: usize = 64;

/// Counts and hashes what goes to a sink.
struct Output<'a> {
    sink: &'a mut dyn ChunkSink,
    hash: Xxh3,
    bytes: u64,
}

impl Output<'_> {
    fn write(&mut self, json: &[u8]) -> io::Result<()> {
        self.hash.update(json);
        self.bytes += json.len() as u64;
        self.sink.write(json)
    }

    /// Writes the chunk's id, which is a hash of its content where it has none, and closes the chunk.
    fn close(mut self, id: Option<Uuid>) -> io::Result<(Uuid, u64)> {
        let of_content = || Uuid::from_bytes(*ProfilerId::from_hash(self.hash.digest128()).as_bytes());
        let id = id.unwrap_or_else(of_content);
        self.write(format!(",\"chunk_id\":\"{}\"}}", id.simple()).as_bytes())?;
        Ok((id, self.bytes))
    }
}

/// Writes a chunk to an open sink, with its samples thread by thread: the thread's id, and of each sample the number of
/// its stack and its time in microseconds since the Unix epoch. Returns its id and its size in bytes.
///
/// # Errors
///
/// The sink's.
pub(super) fn write<'s, S: Iterator<Item = (u32, u64)>>(
    mut parts: Parts<'_>,
    threads: impl Iterator<Item = (&'s str, S)>,
    buffer: &mut Vec<u8>,
    sink: &mut dyn ChunkSink,
) -> io::Result<(Uuid, u64)> {
    let mut out = Output { sink, hash: Xxh3::new(), bytes: 0 };
    buffer.clear();
    parts.head(buffer);
    samples(parts.stack_count, threads, buffer, &mut out)?;
    out.write(b"],\"stacks\":[")?;
    out.write(parts.stacks)?;
    out.write(b"],\"frames\":[")?;
    out.write(parts.frames)?;
    buffer.extend_from_slice(b"],\"thread_metadata\":{");
    parts.thread_metadata(buffer);
    buffer.extend_from_slice(b"}}");
    if !parts.images.is_empty() {
        buffer.extend_from_slice(b",\"debug_meta\":{\"images\":[");
        buffer.extend_from_slice(parts.images);
        buffer.extend_from_slice(b"]}");
    }
    out.write(buffer)?;
    out.close(parts.id)
}

impl Parts<'_> {
    fn text(&mut self, out: &mut Vec<u8>, before: &str, content: &[u8]) {
        out.extend_from_slice(before.as_bytes());
        match &mut self.notes {
            Some(notes) => text(out, content, notes),
            None => json::escaped(out, content),
        }
        out.push(b'"');
    }

    fn head(&mut self, out: &mut Vec<u8>) {
        self.text(out, "{\"version\":\"2\",\"platform\":\"", self.platform.as_bytes());
        self.text(out, ",\"client_sdk\":{\"name\":\"", self.sdk.0.as_bytes());
        self.text(out, ",\"version\":\"", self.sdk.1.as_bytes());
        self.text(out, "},\"profiler_id\":\"", self.profiler_id.to_string().as_bytes());
        for (before, content) in [(",\"release\":\"", self.release), (",\"environment\":\"", self.environment)] {
            if let Some(content) = content {
                self.text(out, before, content.as_bytes());
            }
        }
        if let Some(json) = self.measurements {
            out.extend_from_slice(b",\"measurements\":");
            put_json(out, json);
        }
        out.extend_from_slice(b",\"profile\":{\"samples\":[");
    }

    fn thread_metadata(&mut self, out: &mut Vec<u8>) {
        for (position, &Thread { id, name, priority }) in self.threads.iter().enumerate() {
            out.extend_from_slice(if position > 0 { b",\"" } else { b"\"" });
            json::escaped(out, id.as_bytes());
            out.extend_from_slice(b"\":{");
            if let Some(name) = name {
                self.text(out, "\"name\":\"", name);
            }
            if let Some(priority) = priority {
                out.extend_from_slice(if name.is_some() { b",\"priority\":" } else { b"\"priority\":" });
                json::number(out, priority.into());
            }
            out.push(b'}');
        }
    }
}

/// Appends JSON that was read, on one line: in an envelope a line's end ends the chunk. Within a string there is none.
pub(super) fn put_json(out: &mut Vec<u8>, json: &str) {
    out.extend(json.bytes().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte }));
}

/// Writes what is in the buffer, then the samples, and leaves the buffer empty.
fn samples<'s, S: Iterator<Item = (u32, u64)>>(
    stack_count: usize,
    threads: impl Iterator<Item = (&'s str, S)>,
    buffer: &mut Vec<u8>,
    out: &mut Output<'_>,
) -> io::Result<()> {
    out.write(buffer)?;
    buffer.clear();
    let stacks: Vec<Index> = (0..stack_count as u32).map(|number| Index::new(number % Index::END as u32)).collect();
    let mut middle = Vec::with_capacity(128);
    let mut thread_id = Vec::with_capacity(64);
    buffer.resize(PIECE, 0);
    // The first sample has no comma in front.
    let (mut skip, mut at) = (1, 0);
    for (id, samples) in threads {
        thread_id.clear();
        json::escaped(&mut thread_id, id.as_bytes());
        let most = SAMPLE_BYTES + thread_id.len() + 16;
        if most > buffer.len() {
            buffer.resize(most, 0);
        }
        // The second that `middle` names, in microseconds: none yet, and far from any.
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
    // Without samples there is no comma to leave out.
    out.write(&buffer[skip.min(at)..at])?;
    buffer.clear();
    Ok(())
}

/// The text between a sample's stack and the fraction of its time.
fn name_second(middle: &mut Vec<u8>, thread_id: &[u8], second: u64) {
    middle.clear();
    middle.extend_from_slice(b",\"thread_id\":\"");
    middle.extend_from_slice(thread_id);
    middle.extend_from_slice(b"\",\"timestamp\":");
    json::number(middle, second);
    middle.push(b'.');
}
