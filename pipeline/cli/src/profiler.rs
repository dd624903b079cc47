//! `profbridge profiler`: starts and stops the profiler of a running profbridge, or shows its status.

use std::fmt::Write;
use std::process::ExitCode;

use profbridge_receiver_ptrace::control::client::request;
use profbridge_receiver_ptrace::control::default_path;
use profbridge_receiver_ptrace::control::protocol::{
    Choice, ControlRequest, ControlResponse, ProcessStatus, TargetStatus,
};
use profbridge_receiver_ptrace::lifecycle::LifecycleMode;

use crate::args::sampling::{ControlArgs, ProfilerAction, ProfilerArgs};
use crate::{Failure, terminal};

/// Sends the request and prints the answer. An action without any effect is no failure: the answer explains it.
pub(crate) fn run(arguments: &ProfilerArgs) -> Result<ExitCode, Failure> {
    let (reach, request_of): (&ControlArgs, fn(Choice) -> ControlRequest) = match &arguments.action {
        ProfilerAction::Start(reach) => (reach, ControlRequest::Start),
        ProfilerAction::Stop(reach) => (reach, ControlRequest::Stop),
        ProfilerAction::Status(reach) => (reach, ControlRequest::Status),
    };
    let choice = Choice { target: reach.target.clone(), pid: reach.pid };
    let socket = reach.socket.clone().unwrap_or_else(default_path);
    let response = request(&socket, &request_of(choice)).map_err(|error| Failure(format!("error: {error}")))?;
    if let Some(fault) = response.error.as_ref().filter(|_| !response.ok) {
        return Err(Failure(format!("error: {}: {}", fault.place, fault.rule)));
    }
    if !response.ok {
        return Err(Failure("error: profbridge refused, and did not say why".to_owned()));
    }
    terminal::result(shown(&response).trim_end());
    Ok(ExitCode::SUCCESS)
}

/// Formats an answer.
fn shown(response: &ControlResponse) -> String {
    let mut out = String::new();
    for process in &response.processes {
        line(&mut out, format_args!("{}, pid {}: {}", process.target, process.pid, process.message));
    }
    for target in &response.targets {
        show_target(&mut out, target);
    }
    for text in response.message.iter().flat_map(|message| message.lines()) {
        line(&mut out, format_args!("{text}"));
    }
    out
}

fn show_target(out: &mut String, target: &TargetStatus) {
    let lifecycle = match target.profile_lifecycle {
        LifecycleMode::Manual => "manual",
        LifecycleMode::Trace => "trace",
    };
    line(out, format_args!("{}: profile_lifecycle {lifecycle}", target.target));
    if target.processes.is_empty() {
        line(out, format_args!("  no process is attached"));
    }
    for process in &target.processes {
        let state = state(process, target.profile_lifecycle);
        line(out, format_args!("  pid {} {}: {state}", process.pid, process.executable));
        if process.observations == 0 {
            continue;
        }
        for text in figures(process) {
            line(out, format_args!("    {text}"));
        }
    }
}

/// Sampling quality and overhead of a process. Problems are listed only if there are any.
fn figures(process: &ProcessStatus) -> Vec<String> {
    let ProcessStatus { threads, rate_hertz, configured_hertz, observations, complete, lost, profiler_id, .. } =
        process;
    let ProcessStatus { stops, stop_p99_micros, longest_stop_micros, cut_calls, .. } = process;
    let ProcessStatus { lowered_ticks, missed_ticks, refused_stops, running, more, .. } = process;
    let complete = *complete as f64 * 100.0 / *observations as f64;
    let mut lines = vec![format!(
        "{threads} threads, {rate_hertz:.0} Hz, {observations} samples, {complete:.1} % complete, {lost} lost; \
         profiler_id {profiler_id}"
    )];
    if !running.is_empty() {
        lines.push(format!("running threads: {running}"));
    }
    if process.not_sampled_millis > 0 {
        let seconds = process.not_sampled_millis as f64 / 1000.0;
        let more = if more.is_empty() { String::new() } else { format!("; {more}") };
        lines.push(format!(
            "{seconds:.2} s of processor time were not sampled, of which only the amount is known{more}"
        ));
    }
    if *cut_calls > 0 {
        lines.push(format!("{cut_calls} system calls came back early since their thread was stopped"));
    }
    if *stops > 0 {
        let lengths = format!("99 % of them up to {stop_p99_micros} us, the longest {longest_stop_micros} us");
        lines.push(format!("{stops} stops, {lengths}"));
    }
    if *lowered_ticks > 0 {
        // Half a hertz is tolerated as rounding.
        let when = if rate_hertz + 0.5 < *configured_hertz { "lowered" } else { "was lowered" };
        let why = "ticks were left out, see max_cpu and max_stopped";
        lines.push(format!("rate {when} from {configured_hertz:.0} Hz: {lowered_ticks} {why}"));
    }
    if *missed_ticks > 0 {
        lines.push(format!("{missed_ticks} ticks were missed: the machine was too busy for the sampler"));
    }
    if *refused_stops > 0 {
        let why = "by another tracer or the kernel: running threads are missing, see the log";
        lines.push(format!("{refused_stops} stops were refused, {why}"));
    }
    lines
}

fn state(process: &ProcessStatus, lifecycle: LifecycleMode) -> String {
    if !process.sampled {
        return "its session is not sampled (profile_session_sample_rate)".to_owned();
    }
    let mut state = if process.profiling { "profiling" } else { "not profiling" }.to_owned();
    if lifecycle == LifecycleMode::Trace {
        // Writing into memory does not fail.
        write!(state, ", {} sampled root spans are open", process.open_spans).ok();
    }
    state
}

/// Appends a line. Paths come from the profiled processes, so unprintable characters are escaped.
fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.extend(text.to_string().chars().map(|c| if terminal::is_unprintable(c) { ' ' } else { c }));
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use profbridge_receiver_ptrace::control::protocol::ProcessAnswer;

    use super::*;

    fn process(sampled: bool, profiling: bool, observations: u64) -> ProcessStatus {
        ProcessStatus {
            pid: 7,
            executable: "/srv/\u{1b}[2Japp".to_owned(),
            session: "00ff".to_owned(),
            profiler_id: "9ec79c33ec9942ab8353589fcb2e04dc".to_owned(),
            sampled,
            profiling,
            open_spans: 2,
            threads: 3,
            rate_hertz: 50.4,
            configured_hertz: 100.7,
            lowered_ticks: observations,
            missed_ticks: observations / 5,
            stops: observations / 2,
            refused_stops: observations / 10,
            stop_p99_micros: 64,
            longest_stop_micros: 120,
            observations,
            complete: observations / 2,
            lost: 1,
            running: "by\u{1b} perf events".to_owned(),
            not_sampled_millis: 150 * observations,
            more: "give it CAP_PERFMON".to_owned(),
            cut_calls: observations / 3,
        }
    }

    /// Guarantees: the status shows what is profiled for each target and how well, and cannot control the terminal.
    #[test]
    fn status() {
        let target =
            |name: &str, mode, processes| TargetStatus { target: name.to_owned(), profile_lifecycle: mode, processes };
        let targets = vec![
            target("web", LifecycleMode::Trace, vec![process(true, true, 10), process(true, false, 0)]),
            target("job", LifecycleMode::Manual, vec![process(false, false, 0)]),
            target("idle", LifecycleMode::Manual, Vec::new()),
        ];
        let expected = "\
web: profile_lifecycle trace
  pid 7 /srv/ [2Japp: profiling, 2 sampled root spans are open
    3 threads, 50 Hz, 10 samples, 50.0 % complete, 1 lost; profiler_id 9ec79c33ec9942ab8353589fcb2e04dc
    running threads: by  perf events
    1.50 s of processor time were not sampled, of which only the amount is known; give it CAP_PERFMON
    3 system calls came back early since their thread was stopped
    5 stops, 99 % of them up to 64 us, the longest 120 us
    rate lowered from 101 Hz: 10 ticks were left out, see max_cpu and max_stopped
    2 ticks were missed: the machine was too busy for the sampler
    1 stops were refused, by another tracer or the kernel: running threads are missing, see the log
  pid 7 /srv/ [2Japp: not profiling, 2 sampled root spans are open
job: profile_lifecycle manual
  pid 7 /srv/ [2Japp: its session is not sampled (profile_session_sample_rate)
idle: profile_lifecycle manual
  no process is attached
";
        assert_eq!(shown(&ControlResponse { ok: true, targets, ..ControlResponse::default() }), expected);
    }

    /// Guarantees: the result for each process is shown, then the summary.
    #[test]
    fn answers() {
        let message = "the profiler runs already".to_owned();
        let answer = ProcessAnswer { target: "web".to_owned(), pid: 7, profiling: true, message };
        let response = ControlResponse { processes: vec![answer], ..ControlResponse::message("nothing changed") };
        assert_eq!(shown(&response), "web, pid 7: the profiler runs already\nnothing changed\n");
    }
}
