//! Writes a planned chunk as JSON.
//!
//! The samples come thread by thread: what differs from one to the next is then some digits of the time and the
//! stack, which costs a compressor least. Relay sorts by time itself (getsentry/relay
//! `relay-profiling/src/sample/v2.rs`, `ProfileData::normalize`).

use std::io;

use uuid::Uuid;
use xxhash_rust::xxh3::Xxh3;

use profbridge_model::{Dictionary, ProfilerId};

use super::about::About;
use super::frames::{Frames, text};
use super::json;
use super::plan::Plan;
use super::report::Notes;
use super::sink::Sink;
use super::threads::Lane;
use super::timeline::{Timeline, number, tick};

/// The name under which Sentry knows the sender. Names of Sentry's own SDKs are subject to its version gates.
const SDK_NAME: &str = "profbridge.rust";

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
const PIECE: usize = 32 << 10;

/// About the most bytes that one sample takes without its thread's id.
pub(super) const SAMPLE_BYTES: usize = 64;

/// Counts and hashes what goes to a sink.
struct Output<'a> {
    sink: &'a mut dyn Sink,
    hash: Xxh3,
    bytes: u64,
}

impl Output<'_> {
    fn write(&mut self, json: &[u8]) -> io::Result<()> {
        self.hash.update(json);
        self.bytes += json.len() as u64;
        self.sink.write(json)
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
    sink: &mut dyn Sink,
    notes: &mut Notes,
) -> io::Result<(Uuid, u64)> {
    let mut out = Output { sink, hash: Xxh3::new(), bytes: 0 };
    buffer.clear();
    head(parts, buffer, notes);
    samples(parts, buffer, &mut out)?;
    buffer.extend_from_slice(b"],\"stacks\":[");
    out.write(buffer)?;
    out.write(&parts.frames.stacks)?;
    out.write(b"],\"frames\":[")?;
    out.write(&parts.frames.text)?;
    buffer.clear();
    buffer.extend_from_slice(b"],\"thread_metadata\":{");
    threads(parts, buffer, notes);
    buffer.extend_from_slice(b"}}");
    if !parts.frames.images.is_empty() {
        buffer.extend_from_slice(b",\"debug_meta\":{\"images\":");
        parts.frames.images.write(parts.dictionary, buffer);
        buffer.push(b'}');
    }
    out.write(buffer)?;
    let id = *ProfilerId::from_hash(out.hash.digest128()).as_bytes();
    let id = Uuid::from_bytes(id);
    buffer.clear();
    buffer.extend_from_slice(b",\"chunk_id\":\"");
    buffer.extend_from_slice(id.simple().encode_lower(&mut Uuid::encode_buffer()).as_bytes());
    buffer.extend_from_slice(b"\"}");
    out.write(buffer)?;
    Ok((id, out.bytes))
}

fn head(parts: &Parts<'_>, out: &mut Vec<u8>, notes: &mut Notes) {
    out.extend_from_slice(b"{\"version\":\"2\",\"platform\":\"");
    text(out, parts.platform, notes);
    out.extend_from_slice(b"\",\"client_sdk\":{\"name\":\"");
    out.extend_from_slice(SDK_NAME.as_bytes());
    out.extend_from_slice(b"\",\"version\":\"");
    out.extend_from_slice(env!("CARGO_PKG_VERSION").as_bytes());
    out.extend_from_slice(b"\"},\"profiler_id\":\"");
    out.extend_from_slice(parts.profiler_id.to_string().as_bytes());
    if let Some(release) = &parts.about.release {
        out.extend_from_slice(b"\",\"release\":\"");
        text(out, release, notes);
    }
    out.extend_from_slice(b"\",\"environment\":\"");
    text(out, &parts.about.environment, notes);
    out.extend_from_slice(b"\",\"profile\":{\"samples\":[");
}

fn samples(parts: &Parts<'_>, buffer: &mut Vec<u8>, out: &mut Output<'_>) -> io::Result<()> {
    let mut front = Vec::with_capacity(64);
    let mut back = Vec::with_capacity(64);
    let mut second = u64::MAX;
    let mut start = 0;
    let mut comma = false;
    for thread in &parts.plan.threads {
        back.clear();
        back.extend_from_slice(b",\"thread_id\":\"");
        json::escaped(&mut back, parts.lanes[thread.lane as usize].id.as_bytes());
        back.extend_from_slice(b"\"}");
        for &sample in &parts.plan.samples[start..thread.end] {
            let micros = parts.line.unix_nano(tick(sample)) / 1_000;
            if micros / 1_000_000 != second {
                second = micros / 1_000_000;
                front.clear();
                front.extend_from_slice(b",{\"timestamp\":");
                json::number(&mut front, second);
                front.push(b'.');
            }
            if buffer.len() > PIECE {
                out.write(buffer)?;
                buffer.clear();
            }
            buffer.extend_from_slice(&front[usize::from(!comma)..]);
            comma = true;
            buffer.extend_from_slice(&json::six_digits((micros % 1_000_000) as u32));
            buffer.extend_from_slice(b",\"stack_id\":");
            json::number(buffer, number(sample) as u64);
            buffer.extend_from_slice(&back);
        }
        start = thread.end;
    }
    Ok(())
}

fn threads(parts: &Parts<'_>, out: &mut Vec<u8>, notes: &mut Notes) {
    for (position, thread) in parts.plan.threads.iter().enumerate() {
        let lane = &parts.lanes[thread.lane as usize];
        out.extend_from_slice(if position > 0 { b",\"" } else { b"\"" });
        json::escaped(out, lane.id.as_bytes());
        match lane.name {
            Some(name) => {
                out.extend_from_slice(b"\":{\"name\":\"");
                text(out, parts.dictionary.string(Some(name)), notes);
                out.extend_from_slice(b"\"}");
            }
            None => out.extend_from_slice(b"\":{}"),
        }
    }
}
