//! Decodes packets. Everything that can be checked with one packet alone is checked here.

use std::fs::File;
use std::os::fd::AsFd;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::{SFlag, fstat};
use serde::Deserialize;

use super::texts::each_text;
use super::{
    MAX_ARGUMENT_COUNT, MAX_ARGUMENTS, MAX_BUILD_ID, MAX_ENVIRONMENT, MAX_HINTS, MAX_MAPPINGS, MAX_PACKET, MAX_STACK,
    MAX_WEIGHT, Packet, Violation,
};
use crate::context::{MAX_ALLOWED, MAX_ATTRIBUTES, MAX_RESOURCE, MAX_RESOURCE_ATTRIBUTES};
use crate::message::{AttributeValue, Batch, Command, Context, Event, Function, Location, Mapping, Process, Status};
use crate::runtime::{MAX_FILE, MAX_NAME, plain};

/// Decodes a command. The owner is trusted, so only the format is checked.
///
/// # Errors
///
/// When the bytes are not a command.
pub fn decode_command(bytes: &[u8]) -> Result<Command, Violation> {
    decode(bytes)
}

/// Decodes an event and the file that came with it.
///
/// # Errors
///
/// When the bytes are not an event, or break a rule of [`crate::protocol`].
pub fn decode_event(bytes: &[u8], file: Option<File>) -> Result<Event, Violation> {
    at_most("the length of a packet", bytes.len(), MAX_PACKET)?;
    let mut event = match decode(bytes)? {
        Packet::Event(event) => event,
        Packet::PerfMap(process) => {
            let file =
                readable("a perf map", file)?.ok_or(Violation::File { what: "a perf map", problem: "is missing" })?;
            return Ok(Event::PerfMap { process, file });
        }
    };
    each_text(&mut event, &mut |what, text, limit| at_most(what, text.len(), limit))?;
    match &mut event {
        Event::Attached(process) => {
            check_process(process)?;
            process.root = folder(file)?;
        }
        Event::Mapping(mapping) => {
            check_mapping(mapping)?;
            mapping.file = readable("a mapping", file)?;
        }
        _ if file.is_some() => return Err(Violation::File { what: "another event", problem: "is not expected" }),
        Event::Ready(rights) => at_most("the number of hints", rights.hints.len(), MAX_HINTS)?,
        Event::Functions { functions, .. } => functions.iter_mut().for_each(show_plainly),
        Event::Resource { attributes, .. } => check_resource(attributes)?,
        Event::Batch(batch) => check_batch(batch)?,
        Event::Status(Status { rate_hertz, .. }) if !(0.0..=100_000.0).contains(rate_hertz) => {
            return Err(Violation::Nonsense("a rate that is none"));
        }
        Event::Problem(_) | Event::PerfMap { .. } | Event::Status(_) => {}
        Event::Detached { .. } | Event::CommandEnded { .. } => {}
    }
    Ok(event)
}

fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Violation> {
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Ok(message),
        Ok(_) => Err(Violation::Undecodable("it goes on behind its end".to_owned())),
        Err(error) => Err(Violation::Undecodable(error.to_string())),
    }
}

fn check_process(process: &Process) -> Result<(), Violation> {
    at_most("the number of arguments", process.arguments.len(), MAX_ARGUMENT_COUNT)?;
    at_most("the length of the arguments", process.arguments.iter().map(String::len).sum(), MAX_ARGUMENTS)?;
    let environment = process.environment.iter().map(|(name, value)| name.len() + value.len()).sum();
    at_most("the length of the environment", environment, MAX_ENVIRONMENT)?;
    if process.pid == 0 || process.namespace_pid == 0 {
        return Err(Violation::Nonsense("a process id of 0"));
    }
    if i64::try_from(process.start_unix_nano).is_err() {
        return Err(Violation::Nonsense("a process that starts after the year 2262"));
    }
    Ok(())
}

fn check_mapping(mapping: &Mapping) -> Result<(), Violation> {
    at_most("the index of a mapping", mapping.index as usize, MAX_MAPPINGS as usize - 1)?;
    if mapping.end < mapping.start {
        return Err(Violation::Nonsense("a mapping that ends before it starts"));
    }
    at_most("the length of a build id", mapping.build_id.as_ref().map_or(0, Vec::len), MAX_BUILD_ID)
}

/// Replaces control characters in texts that are shown to people.
fn show_plainly(Function { kind: _, name, module, file, line: _ }: &mut Function) {
    // A control character may take two bytes, a space takes one, so the lengths do not grow.
    (*name, *module, *file) = (plain(name, MAX_NAME), plain(module, MAX_NAME), plain(file, MAX_FILE));
}

fn check_resource(attributes: &[(String, AttributeValue)]) -> Result<(), Violation> {
    at_most("the number of a resource's attributes", attributes.len(), MAX_RESOURCE_ATTRIBUTES)?;
    let mut size = 0;
    for (index, (key, value)) in attributes.iter().enumerate() {
        size += key.len() + value.size();
        at_most("the size of a resource", size, MAX_RESOURCE)?;
        if key.is_empty() || attributes[..index].iter().any(|(known, _)| known == key) {
            return Err(Violation::Nonsense("an attribute without a key, or one that is said twice"));
        }
    }
    Ok(())
}

fn check_batch(batch: &mut Batch) -> Result<(), Violation> {
    let Batch { process: _, period_nano, mode: _, threads, locations, stacks, contexts, samples } = batch;
    if *period_nano == 0 || *period_nano > MAX_WEIGHT {
        return Err(Violation::Nonsense("a period of 0, or of more than a day"));
    }
    for location in &mut *locations {
        if let Location::Compiled { address, map_length } = *location {
            // `with_map` leaves other code as it is: only generated code can be in a perf map.
            *location = Location::Native { mapping: None, address }.with_map(map_length);
        }
    }
    for stack in &*stacks {
        at_most("the length of a stack", stack.locations.len(), MAX_STACK)?;
        for location in &stack.locations {
            points("a stack's location", *location, locations.len())?;
        }
    }
    contexts.iter().try_for_each(check_context)?;
    // Each entry must belong to a sample.
    at_most("the number of threads", threads.len(), samples.len())?;
    at_most("the number of stacks", stacks.len(), samples.len())?;
    at_most("the number of contexts", contexts.len(), samples.len())?;
    let mut last = vec![0; threads.len()];
    for sample in samples {
        points("a sample's thread", sample.thread, threads.len())?;
        points("a sample's stack", sample.stack, stacks.len())?;
        if let Some(context) = sample.context {
            points("a sample's context", context, contexts.len())?;
        }
        if i64::try_from(sample.time_unix_nano).is_err() {
            return Err(Violation::Nonsense("a sample from after the year 2262"));
        }
        let before = std::mem::replace(&mut last[sample.thread as usize], sample.time_unix_nano);
        if before > sample.time_unix_nano {
            return Err(Violation::Nonsense("samples of a thread that are not in order"));
        }
        if sample.weight_nano > MAX_WEIGHT {
            return Err(Violation::Nonsense("a sample that covers more than a day"));
        }
    }
    Ok(())
}

fn check_context(context: &Context) -> Result<(), Violation> {
    let Context { link, attributes } = context;
    if link.is_some_and(|link| link.trace_id == [0; 16] || link.span_id == [0; 8]) {
        return Err(Violation::Nonsense("a span without one of its ids"));
    }
    at_most("the number of a context's attributes", attributes.len(), MAX_ALLOWED)?;
    let mut size = 0;
    for (_, value) in attributes {
        size += value.len();
        at_most("the size of a context's attributes", size, MAX_ATTRIBUTES)?;
    }
    if !attributes.is_sorted_by(|(before, _), (key, _)| before < key) {
        return Err(Violation::Nonsense("attributes of a context that are not in order"));
    }
    Ok(())
}

/// Checks that a file is a path to a folder.
fn folder(file: Option<File>) -> Result<Option<File>, Violation> {
    if let Some(file) = &file {
        let flags = fcntl(file.as_fd(), FcntlArg::F_GETFL).map(OFlag::from_bits_retain).unwrap_or(OFlag::empty());
        if kind(file)? != SFlag::S_IFDIR || !flags.contains(OFlag::O_PATH) {
            return Err(Violation::File { what: "a process", problem: "is no path to a folder" });
        }
    }
    Ok(file)
}

/// Checks that a file is a regular file that is open for reading only, so that reading it cannot block and it cannot
/// be written.
fn readable(what: &'static str, file: Option<File>) -> Result<Option<File>, Violation> {
    if let Some(file) = &file {
        if kind(file)? != SFlag::S_IFREG {
            return Err(Violation::File { what, problem: "is no regular file" });
        }
        let flags = fcntl(file.as_fd(), FcntlArg::F_GETFL).map(OFlag::from_bits_retain);
        if flags.is_err()
            || flags.is_ok_and(|flags| flags & OFlag::O_ACCMODE != OFlag::O_RDONLY || flags.contains(OFlag::O_PATH))
        {
            return Err(Violation::File { what, problem: "is not open for reading only" });
        }
    }
    Ok(file)
}

fn kind(file: &File) -> Result<SFlag, Violation> {
    let status = fstat(file.as_fd()).map_err(|_| Violation::File { what: "an event", problem: "has no status" })?;
    Ok(SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT)
}

pub(super) fn at_most(what: &'static str, value: usize, limit: usize) -> Result<(), Violation> {
    if value > limit { Err(Violation::TooMuch { what, value: value as u64, limit: limit as u64 }) } else { Ok(()) }
}

pub(super) fn points(what: &'static str, index: u32, count: usize) -> Result<(), Violation> {
    if index as usize >= count {
        return Err(Violation::Dangling { what, index: u64::from(index), count: count as u64 });
    }
    Ok(())
}
