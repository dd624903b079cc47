//! The driver's answers to requests of the control socket.

use profbridge_engine::clock::Clock;
use profbridge_sampler::message::{Status, TargetId};

use super::tracked::Tracked;
use super::{Driver, threads};
use crate::control::protocol::{
    Choice, ControlRequest, ControlResponse, ProcessAnswer, ProcessStatus, RequestFault, SpanHeaders, TargetStatus,
    ThreadChoice,
};
use crate::control::server::ControlEvent;
use crate::lifecycle::{LifecycleChange, LifecycleMode};
use crate::spans::{Announced, ConnectionId, Scope};

impl Driver {
    pub(super) fn control(&mut self, event: ControlEvent) {
        match event {
            ControlEvent::Closed(connection) => {
                for scope in self.spans.close(connection) {
                    self.spans_changed(scope);
                }
            }
            ControlEvent::Request { connection, peer, request, answer } => {
                let response = self.answer(connection, peer, request);
                // Fails only if the client is gone.
                answer.send(response.unwrap_or_else(ControlResponse::from)).ok();
            }
        }
    }

    fn answer(
        &mut self,
        connection: ConnectionId,
        peer: Option<u32>,
        request: ControlRequest,
    ) -> Result<ControlResponse, RequestFault> {
        match request {
            ControlRequest::Start(choice) => self.switch(&choice, true),
            ControlRequest::Stop(choice) => self.switch(&choice, false),
            ControlRequest::Status(choice) => self.answer_status(&choice),
            ControlRequest::SpanStart(headers) => self.span_start(connection, peer, &headers),
            ControlRequest::SpanEnd(headers) => self.span_end(connection, &headers),
            ControlRequest::Profiler(choice) => self.answer_profiler(peer, &choice),
        }
    }

    fn target(&self, name: &str) -> Result<TargetId, RequestFault> {
        let targets = &self.settings.targets;
        if let Some(found) = targets.iter().position(|target| target.name == name) {
            return Ok(TargetId(found as u32));
        }
        let names: Vec<&str> = targets.iter().map(|target| &*target.name).collect();
        Err(RequestFault::new("target", format!("is none of the configured targets, which are {}", names.join(", "))))
    }

    /// The attached processes, with their numbers in the driver.
    fn attached_processes(&self) -> impl Iterator<Item = (u64, &Tracked)> {
        self.live.values().filter_map(|&number| Some((number, self.processes.get(&number)?)))
    }

    /// The attached processes that a request selects. It is an error if the request names a process that is not
    /// attached.
    fn choose(&self, choice: &Choice) -> Result<Vec<u64>, RequestFault> {
        let target = choice.target.as_deref().map(|name| self.target(name)).transpose()?;
        let chosen = self.attached_processes().filter(|(_, tracked)| {
            target.is_none_or(|target| tracked.process.target == target)
                && choice.pid.is_none_or(|pid| tracked.process.pid == pid)
        });
        let mut chosen: Vec<u64> = chosen.map(|(number, _)| number).collect();
        chosen.sort_unstable();
        if choice.pid.is_some() && chosen.is_empty() {
            return Err(RequestFault::new("pid", "is no process that is attached for a configured target"));
        }
        Ok(chosen)
    }

    fn switch(&mut self, choice: &Choice, on: bool) -> Result<ControlResponse, RequestFault> {
        let chosen = self.choose(choice)?;
        if chosen.is_empty() {
            return Ok(ControlResponse::message("no process is attached at the moment"));
        }
        let mut response = ControlResponse { ok: true, ..ControlResponse::default() };
        for number in chosen {
            let Some(tracked) = self.processes.get_mut(&number) else { continue };
            let outcome = tracked.change(|lifecycle| if on { lifecycle.start() } else { lifecycle.stop() });
            let message = match outcome {
                LifecycleChange::Started => "the profiler runs now".to_owned(),
                LifecycleChange::Stopped => "the profiler has stopped".to_owned(),
                LifecycleChange::Nothing(why) => why.to_string(),
            };
            let (pid, target) = (tracked.process.pid, tracked.process.target);
            if let LifecycleChange::Nothing(why) = outcome {
                // The profiles specification requires a warning in debug mode.
                let what = if on { "start" } else { "stop" };
                tracing::debug!("{}: {what} of process {pid} does nothing: {why}", self.parts.id);
            }
            let profiling = tracked.lifecycle().is_running();
            response.changed += u64::from(self.apply(number, outcome));
            response.processes.push(ProcessAnswer { target: self.name(target).to_owned(), pid, profiling, message });
        }
        Ok(response)
    }

    fn answer_status(&self, choice: &Choice) -> Result<ControlResponse, RequestFault> {
        let chosen = self.choose(choice)?;
        let mut targets = Vec::new();
        for (index, target) in self.settings.targets.iter().enumerate() {
            if choice.target.as_ref().is_some_and(|name| *name != target.name) {
                continue;
            }
            let of_target = chosen
                .iter()
                .filter_map(|number| self.processes.get(number))
                .filter(|tracked| tracked.process.target.0 as usize == index);
            let processes = of_target.map(|tracked| {
                let process = &tracked.process;
                ProcessStatus {
                    pid: process.pid,
                    executable: process.executable.clone(),
                    session: tracked.session.attribute(),
                    profiler_id: self.profiler_id(tracked).unwrap_or_default(),
                    sampled: tracked.session.sampled,
                    profiling: tracked.lifecycle().is_running(),
                    open_spans: self.spans.sampled(process.target, process.pid) as u64,
                    threads: tracked.status.threads,
                    rate_hertz: tracked.status.rate_hertz,
                    configured_hertz: target.sampling.rate_hertz,
                    lowered_ticks: tracked.status.lowered_ticks,
                    missed_ticks: tracked.status.missed_ticks,
                    stops: tracked.status.stops,
                    refused_stops: tracked.status.refused_stops,
                    stop_p99_micros: stop_p99_micros(&tracked.status),
                    longest_stop_micros: tracked.status.longest_stop_nano.div_ceil(1000),
                    observations: tracked.status.observations,
                    complete: tracked.status.complete,
                    lost: tracked.status.lost_observations,
                    running: tracked.status.level.description(target.sampling.stops).to_owned(),
                    not_sampled_millis: tracked.status.not_sampled_nano / 1_000_000,
                    more: profbridge_sampler::what_shows_more(tracked.status.level, target.sampling.stops)
                        .unwrap_or_default()
                        .to_owned(),
                    cut_calls: tracked.status.cut_calls,
                }
            });
            let processes: Vec<_> = processes.collect();
            targets.push(TargetStatus { target: target.name.clone(), profile_lifecycle: target.lifecycle, processes });
        }
        let gone = self.link.is_none().then(|| "the sampler process is gone and will start again".to_owned());
        let all = gone.into_iter().chain(self.parts.telemetry.processor_summaries()).collect::<Vec<_>>();
        let message = (!all.is_empty()).then(|| all.join("\n"));
        Ok(ControlResponse { ok: true, message, targets, ..ControlResponse::default() })
    }

    /// Answers which profiler samples a process, and the key of one of its threads in chunks.
    fn answer_profiler(&self, peer: Option<u32>, choice: &ThreadChoice) -> Result<ControlResponse, RequestFault> {
        let Some(pid) = choice.pid.or(peer) else {
            let rule = "the client's process id is not known here (another PID namespace?): name it";
            return Err(RequestFault::new("pid", rule));
        };
        let mut of_process = self.attached_processes().map(|(_, tracked)| tracked).filter(|of| of.process.pid == pid);
        // A process may belong to two targets, of which only one is sampled.
        let first = of_process.next();
        let tracked = first.filter(|tracked| tracked.lifecycle().is_running()).or(of_process.next()).or(first);
        let Some(tracked) = tracked else {
            return Ok(ControlResponse::message(format!(
                "process {pid} is not attached for a configured target (yet)"
            )));
        };
        let thread_id = choice.thread.map(|thread| {
            threads::in_our_namespace(&tracked.process, thread)
                .map(|thread| thread.to_string())
                .ok_or_else(|| RequestFault::new("thread", format!("{thread} is no thread of process {pid}")))
        });
        let running = tracked.lifecycle().is_running();
        let message = (!running).then(|| "the profiler of the process does not run at the moment".to_owned());
        Ok(ControlResponse {
            ok: true,
            message,
            profiler_id: self.profiler_id(tracked),
            thread_id: thread_id.transpose()?,
            ..ControlResponse::default()
        })
    }

    /// The id of the profiler whose chunks currently include a process.
    fn profiler_id(&self, tracked: &Tracked) -> Option<String> {
        let now = Clock::system().now().unix_nano;
        let (rules, identity) = (&self.parts.identity, tracked.identity?);
        Some(rules.profiler_id(identity, rules.cell(identity, now)).to_string())
    }

    fn span_start(
        &mut self,
        connection: ConnectionId,
        peer: Option<u32>,
        headers: &SpanHeaders,
    ) -> Result<ControlResponse, RequestFault> {
        let (key, decision) = headers.span()?;
        let target = headers.target.as_deref().map(|name| self.target(name)).transpose()?;
        let scope = match (headers.pid, target, peer) {
            (None, Some(target), _) => Scope::Target(target),
            (Some(pid), Some(target), _) => self.member(pid, target)?,
            (Some(pid), None, _) | (None, None, Some(pid)) => Scope::Process(pid),
            (None, None, None) => {
                let rule = "the client's process id is not known here (another PID namespace?): name a target";
                return Err(RequestFault::new("pid", rule));
            }
        };
        let announced = self
            .spans
            .start(connection, scope, key, decision)
            .map_err(|refused| RequestFault::new("request", refused.to_string()))?;
        self.spans_announced(scope);
        Ok(ControlResponse::message(match announced {
            Announced::Counts => {
                let changed = self.spans_changed(scope);
                return Ok(ControlResponse {
                    ok: true,
                    changed,
                    message: self.why_not(scope),
                    ..ControlResponse::default()
                });
            }
            Announced::NotSampled => "the root span is not sampled",
            Announced::Deferred => "the sampling decision is deferred: announce the span again when it is made",
            Announced::Known => "the span is known",
        }))
    }

    /// The scope of a process of a target; the process need not be attached yet.
    fn member(&self, pid: u32, target: TargetId) -> Result<Scope, RequestFault> {
        let of_process = self.attached_processes().filter(|(_, tracked)| tracked.process.pid == pid);
        let targets: Vec<TargetId> = of_process.map(|(_, tracked)| tracked.process.target).collect();
        if targets.is_empty() || targets.contains(&target) {
            return Ok(Scope::Member(pid, target));
        }
        let names: Vec<&str> = targets.iter().map(|&target| self.name(target)).collect();
        Err(RequestFault::new("pid", format!("is a process of {}, and not of {}", names.join(", "), self.name(target))))
    }

    fn span_end(&mut self, connection: ConnectionId, headers: &SpanHeaders) -> Result<ControlResponse, RequestFault> {
        let (key, _) = headers.span()?;
        match self.spans.end(connection, key) {
            None => Ok(ControlResponse::message("this connection has no such span open")),
            Some(scope) => {
                let changed = self.spans_changed(scope);
                Ok(ControlResponse { ok: true, changed, ..ControlResponse::default() })
            }
        }
    }

    /// Records that a client announces spans for the targets of a scope.
    fn spans_announced(&mut self, scope: Scope) {
        if let Scope::Target(target) | Scope::Member(_, target) = scope {
            self.announcers.announced(target);
        }
        let covered = self.attached_processes().map(|(_, tracked)| &tracked.process);
        let covered = covered.filter(|process| scope.covers(process.target, process.pid));
        let targets: Vec<TargetId> = covered.map(|process| process.target).collect();
        targets.into_iter().for_each(|target| self.announcers.announced(target));
    }

    fn in_scope(&self, scope: Scope) -> Vec<u64> {
        let covered = |tracked: &Tracked| scope.covers(tracked.process.target, tracked.process.pid);
        self.attached_processes().filter(|(_, tracked)| covered(tracked)).map(|(number, _)| number).collect()
    }

    /// Called when spans of a scope started or ended. Returns how many profilers started or stopped.
    fn spans_changed(&mut self, scope: Scope) -> u64 {
        let mut changed = 0;
        for number in self.in_scope(scope) {
            let Some(tracked) = self.processes.get_mut(&number) else { continue };
            let open = self.spans.sampled(tracked.process.target, tracked.process.pid);
            let outcome = tracked.change(|lifecycle| lifecycle.spans_changed(open));
            changed += u64::from(self.apply(number, outcome));
        }
        let spans = &self.spans;
        self.remembered.spans_changed(scope, |target, pid| spans.sampled(target, pid));
        changed
    }

    /// The reason why a sampled root span does not start a profiler; `None` if it does.
    fn why_not(&self, scope: Scope) -> Option<String> {
        let processes: Vec<_> = self.in_scope(scope).iter().filter_map(|number| self.processes.get(number)).collect();
        if processes.iter().any(|tracked| tracked.lifecycle().is_running()) {
            return None;
        }
        let Some(first) = processes.first() else {
            return Some(match scope {
                Scope::Process(pid) => format!("process {pid} is not attached for a configured target (yet)"),
                Scope::Target(target) => format!("no process of {} is attached (yet)", self.name(target)),
                Scope::Member(pid, target) => format!("process {pid} is not attached for {} (yet)", self.name(target)),
            });
        };
        Some(match (first.lifecycle().mode(), first.lifecycle().is_sampled()) {
            (LifecycleMode::Manual, _) => "profile_lifecycle is manual: spans do not start the profiler".to_owned(),
            (LifecycleMode::Trace, _) => crate::lifecycle::Why::NotSampled.to_string(),
        })
    }
}

/// The length that 99 of 100 stops do not exceed, in microseconds: the upper bound of its histogram bucket, see
/// [`Status::stop_lengths`].
fn stop_p99_micros(status: &Status) -> u64 {
    let all: u64 = status.stop_lengths.iter().fold(0, |sum, count| sum.saturating_add(*count));
    let mut left = all.saturating_sub(all / 100);
    let longest = status.longest_stop_nano.div_ceil(1000);
    for (class, count) in status.stop_lengths.iter().enumerate() {
        left = left.saturating_sub(*count);
        if left == 0 {
            return longest.min(1 << class);
        }
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: the 99th percentile is computed from the histogram of stop lengths, is never longer than the longest
    /// stop, and contradictory counters do no harm.
    #[test]
    fn stop_lengths() {
        let mut status = Status::default();
        assert_eq!(stop_p99_micros(&status), 0);
        status.longest_stop_nano = 900_500;
        status.stop_lengths[5] = 990;
        status.stop_lengths[10] = 10;
        assert_eq!(stop_p99_micros(&status), 32);
        status.stop_lengths[10] = 11;
        assert_eq!(stop_p99_micros(&status), 901);
        status.stop_lengths = [u64::MAX; 24];
        assert!(stop_p99_micros(&status) <= 901);
    }
}
