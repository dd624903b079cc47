//! Decodes packets. Everything that can be checked with one packet alone is checked here.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::{SFlag, fstat};
use prost::Message;

use super::batch::decode_batch;
use super::numbers::Numbered;
use super::status::decode_status;
use super::{
    MAX_ARGUMENT_COUNT, MAX_ARGUMENTS, MAX_BUILD_ID, MAX_ENVIRONMENT, MAX_GROUP, MAX_MAPPINGS, MAX_MESSAGE, MAX_PACKET,
    MAX_PATH, Violation, wire,
};
use crate::context::{MAX_KEY, MAX_RESOURCE, MAX_RESOURCE_ATTRIBUTES, MAX_RESOURCE_TEXT};
use crate::message::{
    AttributeValue, Command, Detached, Event, Function, FunctionKind, Mapping, Mode, Problem, ProblemKind, Process,
    ProcessId, Rights, Select, Settings, Stops, Target, TargetId,
};
use crate::runtime::{MAX_FILE, MAX_NAME, plain};

/// Decodes a command. The owner is trusted, so only its form is checked.
///
/// # Errors
///
/// When it is not a command.
pub fn decode_command(bytes: &[u8]) -> Result<Command, Violation> {
    let packet = wire::CommandPacket::decode(bytes).map_err(undecodable)?;
    Ok(match packet.body.ok_or(Violation::Nonsense("a command without content"))? {
        wire::CommandBody::Watch(target) => Command::Watch(decode_target(target)?),
        wire::CommandBody::Unwatch(target) => Command::Unwatch(TargetId(target)),
        wire::CommandBody::Sample(switch) if switch.from_start => Command::SampleFromStart(ProcessId(switch.process)),
        wire::CommandBody::Sample(switch) => Command::Sample { process: ProcessId(switch.process), on: switch.on },
        wire::CommandBody::Stop(_) => Command::Stop,
    })
}

fn decode_target(target: wire::Target) -> Result<Target, Violation> {
    let select = match target.select.ok_or(Violation::Nonsense("a target that selects nothing"))? {
        wire::Select::Pid(pid) => Select::Pid(pid),
        wire::Select::Command(words) => Select::Command(words.words.into_iter().map(OsString::from_vec).collect()),
        wire::Select::Executable(pattern) => Select::Executable(pattern),
        wire::Select::CommandLine(pattern) => Select::CommandLine(pattern),
        wire::Select::ControlGroup(path) => Select::ControlGroup(path),
        wire::Select::Container(id) => Select::Container(id),
        wire::Select::Name(pattern) => Select::Name(pattern),
    };
    Ok(Target {
        id: TargetId(target.id),
        select,
        settings: Settings {
            rate_hertz: target.rate_hertz,
            mode: mode(target.cpu),
            max_cpu: target.max_cpu,
            max_stopped: target.max_stopped,
            max_stack: usize::try_from(target.max_stack).unwrap_or(usize::MAX),
            max_processes: usize::try_from(target.max_processes).unwrap_or(usize::MAX),
            subprocesses: target.subprocesses,
            stops: Stops::from_number(target.stops).ok_or(Violation::Nonsense("an unknown choice of stops"))?,
            interpreters: target.interpreters,
        },
        environment: target.environment,
        thread_attributes: target.thread_attributes,
        sample_at_once: target.sample_at_once,
    })
}

/// Decodes an event and the file that came with it.
///
/// # Errors
///
/// When it is not an event, or breaks a rule of [`crate::protocol`].
pub fn decode_event(bytes: &[u8], file: Option<File>) -> Result<Event, Violation> {
    at_most("the length of a packet", bytes.len(), MAX_PACKET)?;
    let packet = wire::EventPacket::decode(bytes).map_err(undecodable)?;
    let told = packet.body.ok_or(Violation::Nonsense("an event without content"))?;
    match told {
        wire::EventBody::Attached(process) => decode_process(process, file),
        wire::EventBody::Mapping(mapping) => decode_mapping(mapping, file),
        wire::EventBody::PerfMap(process) => {
            let file =
                readable("a perf map", file)?.ok_or(Violation::File { what: "a perf map", problem: "is missing" })?;
            Ok(Event::PerfMap { process: ProcessId(process), file })
        }
        _ if file.is_some() => Err(Violation::File { what: "another event", problem: "is not expected" }),
        wire::EventBody::Ready(rights) => decode_rights(rights),
        wire::EventBody::Functions(functions) => decode_functions(functions),
        wire::EventBody::Resource(resource) => decode_resource(resource),
        wire::EventBody::Batch(batch) => decode_batch(batch).map(Event::Batch),
        wire::EventBody::Status(status) => decode_status(status).map(Event::Status),
        wire::EventBody::Problem(problem) => decode_problem(problem),
        wire::EventBody::Detached(detached) => decode_detached(detached),
        wire::EventBody::CommandEnded(ended) => {
            Ok(Event::CommandEnded { target: TargetId(ended.target), code: ended.code })
        }
    }
}

fn decode_rights(rights: wire::Rights) -> Result<Event, Violation> {
    at_most("the number of hints", rights.hints.len(), 8)?;
    for hint in &rights.hints {
        at_most("the length of a hint", hint.len(), MAX_MESSAGE)?;
    }
    Ok(Event::Ready(Rights {
        trace_others: rights.trace_others,
        raised_priority: rights.raised_priority,
        hints: rights.hints,
    }))
}

fn decode_process(process: wire::Process, root: Option<File>) -> Result<Event, Violation> {
    at_most("the length of an executable's path", process.executable.len(), MAX_PATH)?;
    at_most("the number of arguments", process.arguments.len(), MAX_ARGUMENT_COUNT)?;
    at_most("the length of the arguments", process.arguments.iter().map(String::len).sum(), MAX_ARGUMENTS)?;
    at_most("the length of a control group", process.control_group.as_ref().map_or(0, String::len), MAX_GROUP)?;
    at_most("the length of a container's id", process.container.as_ref().map_or(0, String::len), MAX_GROUP)?;
    let environment = process.environment.iter().map(|variable| variable.name.len() + variable.value.len()).sum();
    at_most("the length of the environment", environment, MAX_ENVIRONMENT)?;
    if process.pid == 0 || process.namespace_pid == 0 {
        return Err(Violation::Nonsense("a process id of 0"));
    }
    if i64::try_from(process.start_unix_nano).is_err() {
        return Err(Violation::Nonsense("a process that starts after the year 2262"));
    }
    if let Some(root) = &root {
        let flags = fcntl(root.as_fd(), FcntlArg::F_GETFL).map(OFlag::from_bits_retain).unwrap_or(OFlag::empty());
        if kind(root)? != SFlag::S_IFDIR || !flags.contains(OFlag::O_PATH) {
            return Err(Violation::File { what: "a process", problem: "is no path to a folder" });
        }
    }
    Ok(Event::Attached(Box::new(Process {
        id: ProcessId(process.id),
        target: TargetId(process.target),
        pid: process.pid,
        namespace_pid: process.namespace_pid,
        start_unix_nano: process.start_unix_nano,
        exec_id: process.exec_id,
        executable: process.executable,
        arguments: process.arguments,
        user: process.user,
        control_group: process.control_group,
        container: process.container,
        environment: process.environment.into_iter().map(|variable| (variable.name, variable.value)).collect(),
        root,
    })))
}

fn decode_mapping(mapping: wire::Mapping, file: Option<File>) -> Result<Event, Violation> {
    at_most("the length of a mapping's path", mapping.path.len(), MAX_PATH)?;
    at_most("the index of a mapping", mapping.index as usize, MAX_MAPPINGS as usize - 1)?;
    if mapping.end < mapping.start {
        return Err(Violation::Nonsense("a mapping that ends before it starts"));
    }
    if let Some(id) = &mapping.build_id {
        at_most("the length of a build id", id.len(), MAX_BUILD_ID)?;
    }
    let htlhash = match mapping.htlhash {
        None => None,
        Some(hash) => {
            Some(<[u8; 16]>::try_from(hash).map_err(|_| Violation::Nonsense("a file hash that has not 16 bytes"))?)
        }
    };
    Ok(Event::Mapping(Mapping {
        process: ProcessId(mapping.process),
        index: mapping.index,
        path: mapping.path,
        start: mapping.start,
        end: mapping.end,
        file_offset: mapping.file_offset,
        build_id: mapping.build_id,
        htlhash,
        main: mapping.main,
        go: mapping.go,
        file: readable("a mapping", file)?,
    }))
}

/// Names, modules and files are checked for their length only: control characters in them are replaced, since they are
/// shown to people.
fn decode_functions(functions: wire::Functions) -> Result<Event, Violation> {
    let count = functions.kinds.len();
    let columns = [&functions.names, &functions.modules, &functions.files].map(Vec::len);
    if columns != [count; 3] || functions.lines.len() != count {
        return Err(Violation::Nonsense("functions whose columns differ in length"));
    }
    let mut decoded = Vec::with_capacity(count);
    let texts = functions.names.iter().zip(&functions.modules).zip(&functions.files);
    for (((name, module), file), (&kind, &line)) in texts.zip(functions.kinds.iter().zip(&functions.lines)) {
        at_most("the length of a function's name", name.len(), MAX_NAME)?;
        at_most("the length of a function's module", module.len(), MAX_NAME)?;
        at_most("the length of a function's file", file.len(), MAX_FILE)?;
        let kind = FunctionKind::from_number(kind).ok_or(Violation::Nonsense("an unknown kind of function"))?;
        // A control character may take two bytes, a space takes one.
        let (name, module, file) = (plain(name, MAX_NAME), plain(module, MAX_NAME), plain(file, MAX_FILE));
        decoded.push(Function { kind, name, module, file, line });
    }
    Ok(Event::Functions { process: ProcessId(functions.process), first: functions.first, functions: decoded })
}

fn decode_resource(resource: wire::Resource) -> Result<Event, Violation> {
    at_most("the number of a resource's attributes", resource.attributes.len(), MAX_RESOURCE_ATTRIBUTES)?;
    let mut attributes: Vec<(String, AttributeValue)> = Vec::with_capacity(resource.attributes.len());
    let mut size = 0;
    for wire::Attribute { key, value } in resource.attributes {
        at_most("the length of an attribute's key", key.len(), MAX_KEY)?;
        let value = match value.ok_or(Violation::Nonsense("an attribute without a value"))? {
            wire::AttributeValue::Text(text) => AttributeValue::Text(text),
            wire::AttributeValue::Int(number) => AttributeValue::Int(number),
        };
        at_most("the length of an attribute's value", value.size(), MAX_RESOURCE_TEXT)?;
        size += key.len() + value.size();
        at_most("the size of a resource", size, MAX_RESOURCE)?;
        if key.is_empty() || attributes.iter().any(|(known, _)| *known == key) {
            return Err(Violation::Nonsense("an attribute without a key, or one that is said twice"));
        }
        attributes.push((key, value));
    }
    Ok(Event::Resource { process: ProcessId(resource.process), attributes })
}

fn decode_problem(problem: wire::Problem) -> Result<Event, Violation> {
    at_most("the length of a message", problem.message.len(), MAX_MESSAGE)?;
    let kind = ProblemKind::from_number(problem.kind).ok_or(Violation::Nonsense("an unknown kind of problem"))?;
    Ok(Event::Problem(Problem { target: TargetId(problem.target), pid: problem.pid, kind, message: problem.message }))
}

fn decode_detached(detached: wire::Detached) -> Result<Event, Violation> {
    let why = Detached::from_number(detached.why).ok_or(Violation::Nonsense("an unknown reason for letting go"))?;
    Ok(Event::Detached { process: ProcessId(detached.process), why })
}

pub(super) fn mode(cpu: bool) -> Mode {
    if cpu { Mode::Cpu } else { Mode::Wall }
}

/// Checks that a file is a regular file that is open for reading only, so that reading it cannot block and nothing can
/// be written through it.
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

fn undecodable(error: prost::DecodeError) -> Violation {
    Violation::Undecodable(error.to_string())
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
