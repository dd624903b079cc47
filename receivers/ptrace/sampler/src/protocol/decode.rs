//! From packets to values: everything that can be checked by looking at one packet alone is checked here.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::{SFlag, fstat};
use prost::Message;

use super::{
    MAX_ARGUMENT_COUNT, MAX_ARGUMENTS, MAX_BUILD_ID, MAX_ENVIRONMENT, MAX_GROUP, MAX_MAPPINGS, MAX_MESSAGE, MAX_PACKET,
    MAX_PATH, MAX_STACK, MAX_THREAD_NAME, MAX_WEIGHT, Violation, wire,
};
use crate::message::{
    Batch, Command, Detached, Event, Level, Location, Mapping, Mode, Problem, ProblemKind, Process, ProcessId, Rights,
    Sample, Select, Settings, Stack, Status, Stops, Target, TargetId, Thread, Trust,
};

/// Decodes a command. The owner is trusted, so only its form is checked.
///
/// # Errors
///
/// When it is no command.
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
            stops: match target.stops {
                0 => Stops::UserBound,
                1 => Stops::Never,
                2 => Stops::Always,
                _ => return Err(Violation::Nonsense("an unknown choice of stops")),
            },
        },
        environment: target.environment,
        sample_at_once: target.sample_at_once,
    })
}

/// Decodes an event and the file that came with it.
///
/// # Errors
///
/// When it is no event, or breaks a rule of [`crate::protocol`].
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
        wire::EventBody::Batch(batch) => decode_batch(batch),
        wire::EventBody::Status(status) => decode_status(status),
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

fn decode_batch(batch: wire::Batch) -> Result<Event, Violation> {
    let threads = batch.thread_ids.len();
    same(
        "threads",
        threads,
        [batch.thread_namespace_ids.len(), batch.thread_names.len(), batch.thread_pointers.len()],
    )?;
    let locations = batch.location_addresses.len();
    same("locations", locations, [batch.location_mappings.len()])?;
    let stacks = batch.stack_trusts.len();
    same("stacks", stacks, [batch.stack_lengths.len()])?;
    let samples = batch.sample_threads.len();
    same(
        "samples",
        samples,
        [
            batch.sample_stacks.len(),
            batch.sample_times.len(),
            batch.sample_weights.len(),
            batch.sample_observations.len(),
            batch.sample_blocked.len(),
        ],
    )?;
    if batch.period_nano == 0 || batch.period_nano > MAX_WEIGHT {
        return Err(Violation::Nonsense("a period of nothing or more than a day"));
    }
    for name in &batch.thread_names {
        at_most("the length of a thread's name", name.len(), MAX_THREAD_NAME)?;
    }
    let mut decoded = Batch {
        process: ProcessId(batch.process),
        period_nano: batch.period_nano,
        mode: mode(batch.cpu),
        ..Batch::default()
    };
    let columns = SampleColumns {
        threads: batch.sample_threads,
        stacks: batch.sample_stacks,
        times: batch.sample_times,
        weights: batch.sample_weights,
        observations: batch.sample_observations,
        blocked: batch.sample_blocked,
    };
    let rest = batch.thread_ids.iter().zip(&batch.thread_namespace_ids).zip(&batch.thread_pointers);
    for (name, ((id, namespace_id), pointer)) in batch.thread_names.into_iter().zip(rest) {
        decoded.threads.push(Thread { id: *id, namespace_id: *namespace_id, name, pointer: *pointer });
    }
    for (mapping, address) in batch.location_mappings.iter().zip(&batch.location_addresses) {
        decoded.locations.push(Location { mapping: mapping.checked_sub(1), address: *address });
    }
    let mut left = batch.stack_locations.as_slice();
    for (trust, length) in batch.stack_trusts.iter().zip(&batch.stack_lengths) {
        at_most("the length of a stack", *length as usize, MAX_STACK)?;
        let Some((stack, behind)) = left.split_at_checked(*length as usize) else {
            return Err(Violation::Nonsense("stacks that are longer than their locations"));
        };
        left = behind;
        for location in stack {
            points("a stack's location", *location, locations)?;
        }
        let trust = match trust {
            0 => Trust::Complete,
            1 => Trust::Truncated,
            2 => Trust::Guessed,
            _ => return Err(Violation::Nonsense("an unknown trust")),
        };
        decoded.stacks.push(Stack { trust, locations: stack.to_vec() });
    }
    if !left.is_empty() {
        return Err(Violation::Nonsense("locations that belong to no stack"));
    }
    decode_samples(&columns, &mut decoded)?;
    Ok(Event::Batch(decoded))
}

/// The samples' columns, all of one length.
struct SampleColumns {
    threads: Vec<u32>,
    stacks: Vec<u32>,
    times: Vec<i64>,
    weights: Vec<u64>,
    observations: Vec<u32>,
    blocked: Vec<bool>,
}

fn decode_samples(columns: &SampleColumns, decoded: &mut Batch) -> Result<(), Violation> {
    let mut time = 0u64;
    let mut last = vec![0; decoded.threads.len()];
    for place in 0..columns.threads.len() {
        let (thread, stack) = (columns.threads[place], columns.stacks[place]);
        points("a sample's thread", thread, decoded.threads.len())?;
        points("a sample's stack", stack, decoded.stacks.len())?;
        time = time.wrapping_add_signed(columns.times[place]);
        if i64::try_from(time).is_err() {
            return Err(Violation::Nonsense("a sample from after the year 2262"));
        }
        if std::mem::replace(&mut last[thread as usize], time) > time {
            return Err(Violation::Nonsense("samples of a thread that are not in order"));
        }
        if columns.weights[place] > MAX_WEIGHT {
            return Err(Violation::Nonsense("a sample that stands for more than a day"));
        }
        decoded.samples.push(Sample {
            thread,
            stack,
            time_unix_nano: time,
            weight_nano: columns.weights[place],
            observations: columns.observations[place],
            blocked: columns.blocked[place],
        });
    }
    Ok(())
}

fn decode_status(status: wire::Status) -> Result<Event, Violation> {
    let counters: [u64; 18] =
        status.counters.try_into().map_err(|_| Violation::Nonsense("a status without its 18 counters"))?;
    let stop_lengths: [u64; 24] =
        status.stop_lengths.try_into().map_err(|_| Violation::Nonsense("a status without its 24 stop lengths"))?;
    if !(0.0..=100_000.0).contains(&status.rate_hertz) {
        return Err(Violation::Nonsense("a rate that is none"));
    }
    let [
        threads,
        ticks,
        missed_ticks,
        lowered_ticks,
        observations,
        complete,
        truncated,
        guessed,
        stops,
        refused_stops,
        stopped_nano,
        longest_stop_nano,
        sampler_cpu_nano,
        lost_observations,
        level,
        lost_samples,
        not_sampled_nano,
        cut_calls,
    ] = counters;
    let level = match level {
        0 => Level::None,
        1 => Level::User,
        2 => Level::Kernel,
        3 => Level::Processors,
        _ => return Err(Violation::Nonsense("a level that is none")),
    };
    Ok(Event::Status(Status {
        process: ProcessId(status.process),
        threads,
        rate_hertz: status.rate_hertz,
        ticks,
        missed_ticks,
        lowered_ticks,
        observations,
        complete,
        truncated,
        guessed,
        stops,
        refused_stops,
        stopped_nano,
        stop_lengths,
        longest_stop_nano,
        sampler_cpu_nano,
        lost_observations,
        level,
        lost_samples,
        not_sampled_nano,
        cut_calls,
    }))
}

fn decode_problem(problem: wire::Problem) -> Result<Event, Violation> {
    at_most("the length of a message", problem.message.len(), MAX_MESSAGE)?;
    let kind = match problem.kind {
        0 => ProblemKind::Missing,
        1 => ProblemKind::Permission,
        2 => ProblemKind::Traced,
        3 => ProblemKind::Architecture,
        4 => ProblemKind::Zombie,
        5 => ProblemKind::Stopped,
        6 => ProblemKind::Frozen,
        7 => ProblemKind::Malformed,
        8 => ProblemKind::Command,
        9 => ProblemKind::TooMany,
        10 => ProblemKind::Internal,
        11 => ProblemKind::Events,
        12 => ProblemKind::CutCall,
        13 => ProblemKind::Lack,
        _ => return Err(Violation::Nonsense("an unknown kind of problem")),
    };
    Ok(Event::Problem(Problem { target: TargetId(problem.target), pid: problem.pid, kind, message: problem.message }))
}

fn decode_detached(detached: wire::Detached) -> Result<Event, Violation> {
    let why = match detached.why {
        0 => Detached::Exited,
        1 => Detached::Executed,
        2 => Detached::Asked,
        3 => Detached::Failed,
        _ => return Err(Violation::Nonsense("an unknown reason for letting go")),
    };
    Ok(Event::Detached { process: ProcessId(detached.process), why })
}

fn mode(cpu: bool) -> Mode {
    if cpu { Mode::Cpu } else { Mode::Wall }
}

/// A regular file that was opened for reading only: whoever reads it never waits, and can do no harm through it.
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

fn at_most(what: &'static str, value: usize, limit: usize) -> Result<(), Violation> {
    if value > limit { Err(Violation::TooMuch { what, value: value as u64, limit: limit as u64 }) } else { Ok(()) }
}

fn points(what: &'static str, index: u32, count: usize) -> Result<(), Violation> {
    if index as usize >= count {
        return Err(Violation::Dangling { what, index: u64::from(index), count: count as u64 });
    }
    Ok(())
}

fn same<const N: usize>(what: &'static str, count: usize, columns: [usize; N]) -> Result<(), Violation> {
    match columns.iter().find(|column| **column != count) {
        None => Ok(()),
        Some(_) => Err(Violation::Nonsense(match what {
            "threads" => "threads whose columns differ in length",
            "locations" => "locations whose columns differ in length",
            "stacks" => "stacks whose columns differ in length",
            _ => "samples whose columns differ in length",
        })),
    }
}
