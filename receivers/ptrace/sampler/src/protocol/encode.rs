//! Encodes commands and events. Texts and lists that are longer than the protocol allows are cut here.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use prost::Message;

use super::batch::encode_batch;
use super::numbers::Numbered;
use super::status::encode_status;
use super::{MAX_ARGUMENT_COUNT, MAX_ARGUMENTS, MAX_BUILD_ID, MAX_ENVIRONMENT, MAX_GROUP, MAX_MESSAGE, MAX_PATH, wire};
use crate::message::{
    AttributeValue, Command, Event, Function, Mapping, Mode, Problem, Process, ProcessId, Rights, Select, Settings,
    Target,
};
use crate::runtime::{MAX_FILE, MAX_NAME};

/// A packet that is to be sent.
#[derive(Debug)]
pub struct Outgoing {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The file that goes with it.
    pub file: Option<Arc<File>>,
}

impl Outgoing {
    /// The descriptor of the file that is sent with it.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(|file| file.as_fd())
    }
}

/// Encodes a command. The caller checks that it is not longer than [`super::MAX_PACKET`].
pub fn encode_command(command: &Command) -> Vec<u8> {
    let said = match command {
        Command::Watch(target) => wire::CommandBody::Watch(encode_target(target)),
        Command::Unwatch(target) => wire::CommandBody::Unwatch(target.0),
        Command::Sample { process, on } => {
            wire::CommandBody::Sample(wire::Switch { process: process.0, on: *on, from_start: false })
        }
        Command::SampleFromStart(process) => {
            wire::CommandBody::Sample(wire::Switch { process: process.0, on: true, from_start: true })
        }
        Command::Stop => wire::CommandBody::Stop(true),
    };
    wire::CommandPacket { body: Some(said) }.encode_to_vec()
}

fn encode_target(target: &Target) -> wire::Target {
    let Target { id, select, settings, environment, thread_attributes, sample_at_once } = target;
    let Settings {
        rate_hertz,
        mode,
        max_cpu,
        max_stopped,
        max_stack,
        max_processes,
        subprocesses,
        stops,
        interpreters,
    } = *settings;
    let select = match select {
        Select::Pid(pid) => wire::Select::Pid(*pid),
        Select::Command(words) => {
            wire::Select::Command(wire::Words { words: words.iter().map(|word| word.as_bytes().to_vec()).collect() })
        }
        Select::Executable(pattern) => wire::Select::Executable(pattern.clone()),
        Select::CommandLine(pattern) => wire::Select::CommandLine(pattern.clone()),
        Select::ControlGroup(path) => wire::Select::ControlGroup(path.clone()),
        Select::Container(id) => wire::Select::Container(id.clone()),
        Select::Name(pattern) => wire::Select::Name(pattern.clone()),
    };
    wire::Target {
        id: id.0,
        select: Some(select),
        rate_hertz,
        cpu: mode == Mode::Cpu,
        max_cpu,
        max_stopped,
        max_stack: max_stack as u64,
        max_processes: max_processes as u64,
        environment: environment.clone(),
        thread_attributes: thread_attributes.clone(),
        sample_at_once: *sample_at_once,
        stops: stops.number(),
        subprocesses,
        interpreters,
    }
}

/// Encodes an event. A [`Batch`](crate::message::Batch) has to be split before, see [`super::split()`], and functions
/// as well, see [`super::split_functions`].
pub fn encode_event(event: Event) -> Outgoing {
    let (told, file) = match event {
        Event::Ready(Rights { trace_others, raised_priority, hints }) => {
            let hints = hints.iter().take(8).map(|hint| cut(hint, MAX_MESSAGE)).collect();
            (wire::EventBody::Ready(wire::Rights { trace_others, raised_priority, hints }), None)
        }
        Event::Attached(process) => {
            let (process, root) = encode_process(*process);
            (wire::EventBody::Attached(process), root)
        }
        Event::Mapping(mapping) => {
            let (mapping, file) = encode_mapping(mapping);
            (wire::EventBody::Mapping(mapping), file)
        }
        Event::PerfMap { process, file } => (wire::EventBody::PerfMap(process.0), Some(file)),
        Event::Functions { process, first, functions } => {
            (wire::EventBody::Functions(encode_functions(process, first, functions)), None)
        }
        Event::Resource { process, attributes } => {
            (wire::EventBody::Resource(encode_resource(process, attributes)), None)
        }
        Event::Batch(batch) => (wire::EventBody::Batch(encode_batch(&batch)), None),
        Event::Status(status) => (wire::EventBody::Status(encode_status(&status)), None),
        Event::Problem(Problem { target, pid, kind, message }) => {
            let (kind, message) = (kind.number(), cut(&message, MAX_MESSAGE));
            (wire::EventBody::Problem(wire::Problem { target: target.0, pid, kind, message }), None)
        }
        Event::Detached { process, why } => {
            (wire::EventBody::Detached(wire::Detached { process: process.0, why: why.number() }), None)
        }
        Event::CommandEnded { target, code } => {
            (wire::EventBody::CommandEnded(wire::CommandEnded { target: target.0, code }), None)
        }
    };
    Outgoing { bytes: wire::EventPacket { body: Some(told) }.encode_to_vec(), file: file.map(Arc::new) }
}

fn encode_process(process: Process) -> (wire::Process, Option<File>) {
    let Process {
        id,
        target,
        pid,
        namespace_pid,
        start_unix_nano,
        exec_id,
        executable,
        arguments,
        user,
        control_group,
        container,
        environment,
        root,
    } = process;
    let encoded = wire::Process {
        id: id.0,
        target: target.0,
        pid,
        namespace_pid,
        start_unix_nano,
        executable: cut(&executable, MAX_PATH),
        arguments: fitting_arguments(&arguments),
        user,
        control_group: control_group.map(|group| cut(&group, MAX_GROUP)),
        container: container.map(|container| cut(&container, MAX_GROUP)),
        environment: fitting_variables(environment),
        exec_id,
    };
    (encoded, root)
}

/// The first arguments, up to [`MAX_ARGUMENTS`] bytes.
fn fitting_arguments(arguments: &[String]) -> Vec<String> {
    let mut left = MAX_ARGUMENTS;
    let mut fitting = Vec::new();
    for argument in arguments.iter().take(MAX_ARGUMENT_COUNT) {
        let argument = cut(argument, left);
        // An empty argument costs its closing zero.
        left = left.saturating_sub(argument.len() + 1);
        fitting.push(argument);
        if left == 0 {
            break;
        }
    }
    fitting
}

/// The variables that fit into [`MAX_ENVIRONMENT`] bytes. None is cut, since it would have a wrong value.
fn fitting_variables(environment: Vec<(String, String)>) -> Vec<wire::Variable> {
    let mut left = MAX_ENVIRONMENT;
    let fits = |(name, value): &(String, String)| {
        let rest = left.checked_sub(name.len() + value.len());
        left = rest.unwrap_or(left);
        rest.is_some()
    };
    environment.into_iter().filter(fits).map(|(name, value)| wire::Variable { name, value }).collect()
}

fn encode_mapping(mapping: Mapping) -> (wire::Mapping, Option<File>) {
    let Mapping { process, index, path, start, end, file_offset, build_id, htlhash, main, go, file } = mapping;
    let encoded = wire::Mapping {
        process: process.0,
        index,
        path: cut(&path, MAX_PATH),
        start,
        end: end.max(start),
        file_offset,
        // A build id that is cut would be that of another file.
        build_id: build_id.filter(|id| !id.is_empty() && id.len() <= MAX_BUILD_ID),
        htlhash: htlhash.map(|hash| hash.to_vec()),
        main,
        go,
    };
    (encoded, file)
}

fn encode_functions(process: ProcessId, first: u32, functions: Vec<Function>) -> wire::Functions {
    let mut encoded = wire::Functions { process: process.0, first, ..wire::Functions::default() };
    for Function { kind, name, module, file, line } in functions {
        encoded.kinds.push(kind.number());
        encoded.names.push(cut(&name, MAX_NAME));
        encoded.modules.push(cut(&module, MAX_NAME));
        encoded.files.push(cut(&file, MAX_FILE));
        encoded.lines.push(line);
    }
    encoded
}

/// What is read of a process context keeps the limits of [`crate::context`], so nothing is cut here.
fn encode_resource(process: ProcessId, attributes: Vec<(String, AttributeValue)>) -> wire::Resource {
    let value = |value| match value {
        AttributeValue::Text(text) => wire::AttributeValue::Text(text),
        AttributeValue::Int(number) => wire::AttributeValue::Int(number),
    };
    let attributes = attributes.into_iter().map(|(key, said)| wire::Attribute { key, value: Some(value(said)) });
    wire::Resource { process: process.0, attributes: attributes.collect() }
}

/// The beginning of a text, at most `limit` bytes, in whole characters.
pub(super) fn cut(text: &str, limit: usize) -> String {
    let mut end = limit.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}
