//! From values to packets. What is longer than the rules allow is cut here.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use prost::Message;

use super::{
    MAX_ARGUMENT_COUNT, MAX_ARGUMENTS, MAX_BUILD_ID, MAX_ENVIRONMENT, MAX_GROUP, MAX_MESSAGE, MAX_PATH,
    MAX_THREAD_NAME, wire,
};
use crate::message::{
    Batch, Command, Detached, Event, Level, Mapping, Mode, Problem, ProblemKind, Process, Select, Status, Stops,
    Target, Trust,
};

/// A packet that is to be sent.
#[derive(Debug)]
pub struct Outgoing {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The file that goes with it.
    pub file: Option<Arc<File>>,
}

impl Outgoing {
    /// The file that goes with it, to be sent.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(|file| file.as_fd())
    }
}

/// Encodes a command. The caller holds its length against [`super::MAX_PACKET`].
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
    let select = match &target.select {
        Select::Pid(pid) => wire::Select::Pid(*pid),
        Select::Command(words) => {
            wire::Select::Command(wire::Words { words: words.iter().map(|word| word.as_bytes().to_vec()).collect() })
        }
        Select::Executable(pattern) => wire::Select::Executable(pattern.clone()),
        Select::CommandLine(pattern) => wire::Select::CommandLine(pattern.clone()),
        Select::ControlGroup(path) => wire::Select::ControlGroup(path.clone()),
        Select::Container(id) => wire::Select::Container(id.clone()),
    };
    wire::Target {
        id: target.id.0,
        select: Some(select),
        rate_hertz: target.settings.rate_hertz,
        cpu: target.settings.mode == Mode::Cpu,
        max_cpu: target.settings.max_cpu,
        max_stopped: target.settings.max_stopped,
        max_stack: target.settings.max_stack as u64,
        max_processes: target.settings.max_processes as u64,
        environment: target.environment.clone(),
        sample_at_once: target.sample_at_once,
        stops: match target.settings.stops {
            Stops::UserBound => 0,
            Stops::Never => 1,
            Stops::Always => 2,
        },
    }
}

/// Encodes an event. A [`Batch`] has to be split before, see [`super::split()`].
pub fn encode_event(event: Event) -> Outgoing {
    let (told, file) = match event {
        Event::Ready(rights) => {
            let hints = rights.hints.iter().take(8).map(|hint| cut(hint, MAX_MESSAGE)).collect();
            let (trace_others, raised_priority) = (rights.trace_others, rights.raised_priority);
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
        Event::Batch(batch) => (wire::EventBody::Batch(encode_batch(&batch)), None),
        Event::Status(status) => (wire::EventBody::Status(encode_status(&status)), None),
        Event::Problem(problem) => (wire::EventBody::Problem(encode_problem(&problem)), None),
        Event::Detached { process, why } => {
            (wire::EventBody::Detached(wire::Detached { process: process.0, why: detached_number(why) }), None)
        }
        Event::CommandEnded { target, code } => {
            (wire::EventBody::CommandEnded(wire::CommandEnded { target: target.0, code }), None)
        }
    };
    Outgoing { bytes: wire::EventPacket { body: Some(told) }.encode_to_vec(), file: file.map(Arc::new) }
}

fn encode_process(process: Process) -> (wire::Process, Option<File>) {
    let mut left = MAX_ARGUMENTS;
    let mut arguments = Vec::new();
    for argument in process.arguments.iter().take(MAX_ARGUMENT_COUNT) {
        let argument = cut(argument, left);
        // An empty argument costs its end.
        left = left.saturating_sub(argument.len() + 1);
        arguments.push(argument);
        if left == 0 {
            break;
        }
    }
    let mut left = MAX_ENVIRONMENT;
    let mut environment = Vec::new();
    for (name, value) in process.environment {
        let length = name.len() + value.len();
        // A value that is cut would be a wrong value.
        if length <= left {
            left -= length;
            environment.push(wire::Variable { name, value });
        }
    }
    let encoded = wire::Process {
        id: process.id.0,
        target: process.target.0,
        pid: process.pid,
        namespace_pid: process.namespace_pid,
        start_unix_nano: process.start_unix_nano,
        executable: cut(&process.executable, MAX_PATH),
        arguments,
        user: process.user,
        control_group: process.control_group.map(|group| cut(&group, MAX_GROUP)),
        container: process.container.map(|container| cut(&container, MAX_GROUP)),
        environment,
        exec_id: process.exec_id,
    };
    (encoded, process.root)
}

fn encode_mapping(mapping: Mapping) -> (wire::Mapping, Option<File>) {
    let encoded = wire::Mapping {
        process: mapping.process.0,
        index: mapping.index,
        path: cut(&mapping.path, MAX_PATH),
        start: mapping.start,
        end: mapping.end.max(mapping.start),
        file_offset: mapping.file_offset,
        // One that is cut would be that of another file.
        build_id: mapping.build_id.filter(|id| !id.is_empty() && id.len() <= MAX_BUILD_ID),
        htlhash: mapping.htlhash.map(|hash| hash.to_vec()),
        main: mapping.main,
        go: mapping.go,
    };
    (encoded, mapping.file)
}

fn encode_batch(batch: &Batch) -> wire::Batch {
    let mut encoded = wire::Batch {
        process: batch.process.0,
        period_nano: batch.period_nano,
        cpu: batch.mode == Mode::Cpu,
        ..wire::Batch::default()
    };
    for thread in &batch.threads {
        encoded.thread_ids.push(thread.id);
        encoded.thread_namespace_ids.push(thread.namespace_id);
        encoded.thread_names.push(cut(&thread.name, MAX_THREAD_NAME));
        encoded.thread_pointers.push(thread.pointer);
    }
    for location in &batch.locations {
        encoded.location_mappings.push(location.mapping.map_or(0, |mapping| mapping.saturating_add(1)));
        encoded.location_addresses.push(location.address);
    }
    for stack in &batch.stacks {
        encoded.stack_trusts.push(match stack.trust {
            Trust::Complete => 0,
            Trust::Truncated => 1,
            Trust::Guessed => 2,
        });
        encoded.stack_lengths.push(u32::try_from(stack.locations.len()).unwrap_or(u32::MAX));
        encoded.stack_locations.extend_from_slice(&stack.locations);
    }
    let mut before = 0;
    for sample in &batch.samples {
        encoded.sample_threads.push(sample.thread);
        encoded.sample_stacks.push(sample.stack);
        encoded.sample_times.push(sample.time_unix_nano.wrapping_sub(before).cast_signed());
        before = sample.time_unix_nano;
        encoded.sample_weights.push(sample.weight_nano.min(super::MAX_WEIGHT));
        encoded.sample_observations.push(sample.observations);
        encoded.sample_blocked.push(sample.blocked);
    }
    encoded
}

fn encode_status(status: &Status) -> wire::Status {
    wire::Status {
        process: status.process.0,
        rate_hertz: status.rate_hertz,
        counters: vec![
            status.threads,
            status.ticks,
            status.missed_ticks,
            status.lowered_ticks,
            status.observations,
            status.complete,
            status.truncated,
            status.guessed,
            status.stops,
            status.refused_stops,
            status.stopped_nano,
            status.longest_stop_nano,
            status.sampler_cpu_nano,
            status.lost_observations,
            match status.level {
                Level::None => 0,
                Level::User => 1,
                Level::Kernel => 2,
                Level::Processors => 3,
            },
            status.lost_samples,
            status.not_sampled_nano,
            status.cut_calls,
        ],
        stop_lengths: status.stop_lengths.to_vec(),
    }
}

fn encode_problem(problem: &Problem) -> wire::Problem {
    wire::Problem {
        target: problem.target.0,
        pid: problem.pid,
        kind: problem_number(problem.kind),
        message: cut(&problem.message, MAX_MESSAGE),
    }
}

fn problem_number(kind: ProblemKind) -> u32 {
    match kind {
        ProblemKind::Missing => 0,
        ProblemKind::Permission => 1,
        ProblemKind::Traced => 2,
        ProblemKind::Architecture => 3,
        ProblemKind::Zombie => 4,
        ProblemKind::Stopped => 5,
        ProblemKind::Frozen => 6,
        ProblemKind::Malformed => 7,
        ProblemKind::Command => 8,
        ProblemKind::TooMany => 9,
        ProblemKind::Internal => 10,
        ProblemKind::Events => 11,
        ProblemKind::CutCall => 12,
        ProblemKind::Lack => 13,
    }
}

fn detached_number(why: Detached) -> u32 {
    match why {
        Detached::Exited => 0,
        Detached::Executed => 1,
        Detached::Asked => 2,
        Detached::Failed => 3,
    }
}

/// The beginning of a text, at most `limit` bytes, in whole characters.
fn cut(text: &str, limit: usize) -> String {
    let mut end = limit.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}
