//! Encodes commands and events. Texts and lists that are longer than the protocol allows are cut here.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use serde::Serialize;

use super::texts::each_text;
use super::{MAX_ARGUMENT_COUNT, MAX_ARGUMENTS, MAX_BUILD_ID, MAX_ENVIRONMENT, MAX_HINTS, Packet};
use crate::message::{Command, Event, Mapping, Process};

/// A packet to be sent.
#[derive(Debug)]
pub struct Outgoing {
    /// The bytes of the packet.
    pub bytes: Vec<u8>,
    /// The file that is attached to the packet.
    pub file: Option<Arc<File>>,
}

impl Outgoing {
    /// The descriptor of the attached file.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(|file| file.as_fd())
    }
}

/// Encodes a command. The caller checks that it is not longer than [`super::MAX_PACKET`].
pub fn encode_command(command: &Command) -> Vec<u8> {
    encode(command)
}

/// Encodes an event. A [`Batch`](crate::message::Batch) has to be split first, see [`super::split()`], and so do
/// functions, see [`super::split_functions`].
pub fn encode_event(mut event: Event) -> Outgoing {
    limit(&mut event);
    let (packet, file) = match event {
        Event::PerfMap { process, file } => (Packet::PerfMap(process), Some(file)),
        Event::Attached(mut process) => {
            let root = process.root.take();
            (Packet::Event(Event::Attached(process)), root)
        }
        Event::Mapping(mut mapping) => {
            let file = mapping.file.take();
            (Packet::Event(Event::Mapping(mapping)), file)
        }
        event => (Packet::Event(event), None),
    };
    Outgoing { bytes: encode(&packet), file: file.map(Arc::new) }
}

/// Encodes a message. Encoding cannot fail, since the lengths of all lists are known.
pub(super) fn encode(message: &impl Serialize) -> Vec<u8> {
    postcard::to_extend(message, Vec::new()).unwrap_or_default()
}

/// Shortens an event to the limits of [`super::decode_event`].
fn limit(event: &mut Event) {
    match event {
        Event::Ready(rights) => rights.hints.truncate(MAX_HINTS),
        Event::Attached(process) => limit_lists(process),
        Event::Mapping(Mapping { start, end, build_id, .. }) => {
            *end = (*start).max(*end);
            // A truncated build id would belong to another file.
            build_id.take_if(|id| id.is_empty() || id.len() > MAX_BUILD_ID);
        }
        // Data from process contexts is already within the limits of `crate::context`.
        _ => {}
    }
    let cut = &mut |_, text: &mut String, limit| {
        cut(text, limit);
        Ok(())
    };
    // `cut` never returns an error.
    each_text(event, cut).ok();
}

fn limit_lists(process: &mut Process) {
    process.arguments.truncate(MAX_ARGUMENT_COUNT);
    let mut left = MAX_ARGUMENTS;
    process.arguments.retain_mut(|argument| {
        let fits = left > 0;
        cut(argument, left);
        // An empty argument still counts as one byte, for its terminating zero.
        left = left.saturating_sub(argument.len() + 1);
        fits
    });
    // Variables are never cut, since a cut value would be wrong.
    let mut left = MAX_ENVIRONMENT;
    process.environment.retain(|(name, value)| {
        let rest = left.checked_sub(name.len() + value.len());
        left = rest.unwrap_or(left);
        rest.is_some()
    });
}

/// Keeps the start of a text, at most `limit` bytes, in whole characters.
fn cut(text: &mut String, limit: usize) {
    let mut end = limit.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
}
