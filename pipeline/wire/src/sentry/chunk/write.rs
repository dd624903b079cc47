//! Writes a planned chunk as JSON.
//!
//! The samples come thread by thread, the time last: between the stack of one sample and the digits of its time lies
//! the same text as in the sample before, which a compressor finds as one match. Relay sorts by time itself
//! (getsentry/relay `relay-profiling/src/sample/v2.rs`, `ProfileData::normalize`).

use std::io;

use uuid::Uuid;
use xxhash_rust::xxh3::Xxh3;

use profbridge_model::{Dictionary, ProfilerId};

use super::frames::{Frames, text};
use super::plan::Plan;
use super::report::Notes;
use super::sink::ChunkSink;
use super::threads::Lane;
use super::timeline::{Timeline, number, tick};
use super::whole::Whole;
use crate::json::{self, Index};
use crate::sentry::about::About;

/// The name and version under which Sentry knows the sender. Names of Sentry's own SDKs are subject to its version
/// gates.
pub(super) const SDK: (&str, &str) = ("profbridge.rust", env!("CARGO_PKG_VERSION"));

/// What a chunk is written from.
#[derive(Clone, Copy)]
pub(super) struct Parts<'a> {
    pub(super) dictionary: &'a Dictionary,
    pub(super) profiler_id: ProfilerId,
    pub(super) platform: &'a str,
    pub(super) about: &'a About,
    pub(super) line: Timeline,
    pub(super) lanes: &'a [Lane],
    pub(super) plan: &'a Plan,
    pub(super) frames: &'a Frames,
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

/// Writes a chunk to an open sink. Returns its id and its size in bytes.
///
/// # Errors
///
/// The sink's.
pub(super) fn write(
    parts: &Parts<'_>,
    buffer: &mut Vec<u8>,
    sink: &mut dyn ChunkSink,
    notes: &mut Notes,
) -> io::Result<(Uuid, u64)> {
    let mut out = Output { sink, hash: Xxh3::new(), bytes: 0 };
    buffer.clear();
    head(parts, buffer, notes);
    samples(parts, buffer, &mut out)?;
    out.write(b"],\"stacks\":[")?;
    out.write(parts.frames.stacks())?;
    out.write(b"],\"frames\":[")?;
    out.write(&parts.frames.text)?;
    buffer.extend_from_slice(b"],\"thread_metadata\":{");
    threads(parts, buffer, notes);
    buffer.extend_from_slice(b"}}");
    if !parts.frames.images.is_empty() {
        buffer.extend_from_slice(b",\"debug_meta\":{\"images\":");
        parts.frames.images.write(parts.dictionary, buffer);
        buffer.push(b'}');
    }
    out.write(buffer)?;
    out.close(None)
}

/// Writes a chunk that is one already to an open sink. Returns its id and its size in bytes.
///
/// # Errors
///
/// The sink's.
pub(super) fn write_whole(whole: &mut Whole<'_>, sink: &mut dyn ChunkSink) -> io::Result<(Uuid, u64)> {
    let mut out = Output { sink, hash: Xxh3::new(), bytes: 0 };
    whole.write(|json| out.write(json))?;
    out.close(whole.chunk_id())
}

fn head(parts: &Parts<'_>, out: &mut Vec<u8>, notes: &mut Notes) {
    out.extend_from_slice(b"{\"version\":\"2\",\"platform\":\"");
    text(out, parts.platform.as_bytes(), notes);
    out.extend_from_slice(b"\",\"client_sdk\":{\"name\":\"");
    out.extend_from_slice(SDK.0.as_bytes());
    out.extend_from_slice(b"\",\"version\":\"");
    out.extend_from_slice(SDK.1.as_bytes());
    out.extend_from_slice(b"\"},\"profiler_id\":\"");
    out.extend_from_slice(parts.profiler_id.to_string().as_bytes());
    if let Some(release) = &parts.about.release {
        out.extend_from_slice(b"\",\"release\":\"");
        text(out, release.as_bytes(), notes);
    }
    out.extend_from_slice(b"\",\"environment\":\"");
    text(out, parts.about.environment.as_bytes(), notes);
    out.extend_from_slice(b"\",\"profile\":{\"samples\":[");
}

/// Writes what is in the buffer, then the samples, and leaves the buffer empty.
fn samples(parts: &Parts<'_>, buffer: &mut Vec<u8>, out: &mut Output<'_>) -> io::Result<()> {
    out.write(buffer)?;
    buffer.clear();
    let stacks = (0..=parts.plan.stacks.len() as u32).map(|number| Index::new(number % Index::END as u32));
    let stacks: Vec<Index> = stacks.collect();
    let mut middle = Vec::with_capacity(128);
    let mut thread_id = Vec::with_capacity(64);
    buffer.resize(PIECE, 0);
    // The first sample has no comma in front.
    let (mut skip, mut at) = (1, 0);
    let mut start = 0;
    for thread in &parts.plan.threads {
        thread_id.clear();
        json::escaped(&mut thread_id, parts.lanes[thread.lane as usize].id.as_bytes());
        let most = SAMPLE_BYTES + thread_id.len() + 16;
        // The second that `middle` names, in microseconds: none yet, and far from any.
        let mut second = u64::MAX / 2;
        for &sample in &parts.plan.samples[start..thread.end] {
            let micros = parts.line.unix_nano(tick(sample)) / 1_000;
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
            let stack = stacks[number(sample)];
            stack.write(text, 13);
            let mut end = 12 + stack.len();
            text[end..end + middle.len()].copy_from_slice(&middle);
            end += middle.len();
            text[end..end + 6].copy_from_slice(&json::six_digits((micros - second) as u32));
            text[end + 6] = b'}';
            at += end + 7;
        }
        start = thread.end;
    }
    out.write(&buffer[skip..at])?;
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

fn threads(parts: &Parts<'_>, out: &mut Vec<u8>, notes: &mut Notes) {
    for (position, thread) in parts.plan.threads.iter().enumerate() {
        let lane = &parts.lanes[thread.lane as usize];
        out.extend_from_slice(if position > 0 { b",\"" } else { b"\"" });
        json::escaped(out, lane.id.as_bytes());
        // The kernel calls the first thread as the program; Sentry's SDKs have these names.
        let first = match parts.platform {
            "python" => Some(&b"MainThread"[..]),
            "node" => Some(&b"main"[..]),
            _ => None,
        };
        let first = first.filter(|_| lane.id == parts.about.pid);
        match first.or_else(|| lane.name.map(|name| parts.dictionary.string_bytes(Some(name)))) {
            Some(name) => {
                out.extend_from_slice(b"\":{\"name\":\"");
                text(out, name, notes);
                out.extend_from_slice(b"\"}");
            }
            None => out.extend_from_slice(b"\":{}"),
        }
    }
}
