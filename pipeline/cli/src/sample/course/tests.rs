use profbridge_sampler::message::{Problem, Process, TargetId};

use super::*;

const TARGET: TargetId = TargetId(0);

fn attached(number: u64) -> Event {
    attached_for(TARGET, 7, number)
}

fn attached_for(target: TargetId, pid: u32, number: u64) -> Event {
    Event::Attached(Box::new(Process {
        id: ProcessId(number),
        target,
        pid,
        namespace_pid: pid,
        start_unix_nano: 1,
        exec_id: number,
        executable: "/srv/app".to_owned(),
        arguments: Vec::new(),
        user: 0,
        control_group: None,
        container: None,
        environment: Vec::new(),
        root: None,
    }))
}

fn detached(number: u64, why: Detached) -> Event {
    Event::Detached { process: ProcessId(number), why }
}

fn problem(kind: ProblemKind) -> Event {
    problem_of(TARGET, None, kind)
}

fn problem_of(target: TargetId, pid: Option<u32>, kind: ProblemKind) -> Event {
    Event::Problem(Problem { target, pid, kind, message: format!("{kind:?}") })
}

fn after_events(mut course: RunState, events: &[Event]) -> RunState {
    events.iter().for_each(|event| course.handle_event(event, Instant::now()));
    course
}

fn course(with_command: bool, events: &[Event]) -> RunState {
    after_events(RunState::new(with_command, &[7]), events)
}

/// Guarantees: the run of a process ends with the process, but not when it executes another program, unless it is never
/// found again.
#[test]
fn a_process() {
    assert!(!course(false, &[]).is_over());
    assert!(!course(false, &[attached(1)]).is_over());
    assert!(course(false, &[attached(1), detached(1, Detached::Exited)]).is_over());
    let mut executes = course(false, &[attached(1), detached(1, Detached::Executed)]);
    assert!(!executes.is_over());
    executes.give_up_executing(Instant::now(), Duration::from_secs(60));
    assert!(!executes.is_over());
    executes.give_up_executing(Instant::now() + Duration::from_secs(61), Duration::from_secs(60));
    assert!(executes.is_over());
    let again = [attached(1), detached(1, Detached::Executed), attached(2)];
    assert!(course(false, &again).is_attached() && !course(false, &again).is_over());
    let lost = [attached(1), detached(1, Detached::Executed), problem_of(TARGET, Some(7), ProblemKind::Permission)];
    assert!(course(false, &lost).is_over());
}

/// Guarantees: problems that make sampling impossible end the run of a process, with the reason; others do not.
#[test]
fn problems() {
    let missing = course(false, &[problem(ProblemKind::Missing)]);
    assert!(missing.is_over() && !missing.ever_attached());
    assert_eq!(missing.refusal(), Some("Missing"));
    assert!(!course(false, &[problem(ProblemKind::Traced), attached(1)]).is_over());
    assert!(!course(false, &[problem(ProblemKind::Stopped)]).is_over());
    assert_eq!(course(false, &[attached(1), problem(ProblemKind::Internal)]).refusal(), None);
}

/// Guarantees: the run of several processes ends when each has ended or cannot be sampled, and not before all were
/// looked for; one found as the child of another is no longer looked for.
#[test]
fn several_processes() {
    let two = || RunState::new(false, &[7, 8]);
    assert!(!two().is_of_one() && course(false, &[]).is_of_one());
    let ended = [attached(1), detached(1, Detached::Exited)];
    assert!(!after_events(two(), &ended).is_over());
    let refused = problem_of(TargetId(1), Some(8), ProblemKind::Permission);
    let mut course = after_events(two(), &[attached(1), refused]);
    assert!(!course.is_over());
    assert_eq!(course.refusal(), Some("Permission"));
    course.handle_event(&detached(1, Detached::Exited), Instant::now());
    assert!(course.is_over());
    // 8 is a child of 7.
    let mut course = after_events(two(), &[attached(1), attached_for(TARGET, 8, 2), detached(1, Detached::Exited)]);
    assert!(!course.is_over());
    course.lose();
    assert_eq!(course.roots().collect::<Vec<_>>(), [(TargetId(1), Some(8))], "7 has ended");
    course.give_up_finding();
    assert!(course.is_over());
}

/// Guarantees: if descendants are sampled, a run only ends when they have ended as well.
#[test]
fn subprocesses() {
    let mut course = course(false, &[attached(1), attached_for(TARGET, 9, 2), detached(1, Detached::Exited)]);
    assert!(!course.is_over());
    course.handle_event(&problem_of(TARGET, Some(10), ProblemKind::Permission), Instant::now());
    assert!(!course.is_over());
    course.handle_event(&detached(2, Detached::Executed), Instant::now());
    assert!(!course.is_over());
    course.handle_event(&attached_for(TARGET, 9, 3), Instant::now());
    course.handle_event(&detached(3, Detached::Exited), Instant::now());
    assert!(course.is_over());
}

/// Guarantees: the run of a name continues while any process has the name, even if others cannot be sampled; if none
/// can, it ends with the reason.
#[test]
fn a_name() {
    let named = || RunState::new(false, &[]);
    assert!(!named().is_over() && !named().is_of_one());
    let refused = problem_of(TARGET, Some(5), ProblemKind::Permission);
    let mut course = after_events(named(), std::slice::from_ref(&refused));
    assert!(course.is_over());
    course.handle_event(&attached(1), Instant::now());
    course.handle_event(&refused, Instant::now());
    assert!(!course.is_over());
    course.lose();
    assert!(!course.is_over());
    assert_eq!(course.roots().collect::<Vec<_>>(), [(TARGET, None)]);
    course.handle_event(&attached(2), Instant::now());
    course.handle_event(&detached(2, Detached::Exited), Instant::now());
    assert!(course.is_over());
}

/// Guarantees: the run of a name waits for its first process without limit, even if one ended before it could be
/// sampled; afterwards it looks for others as long as any process is sampled.
#[test]
fn a_name_that_comes_later() {
    let mut course = after_events(RunState::new(false, &[]), &[problem_of(TARGET, Some(5), ProblemKind::Missing)]);
    course.give_up_finding();
    assert!(!course.is_over() && course.refusal().is_none());
    course.handle_event(&attached(1), Instant::now());
    course.lose();
    assert!(!course.is_over());
    course.give_up_finding();
    assert!(course.is_over());
}

/// Guarantees: the run of a command ends when the command has ended and all its samples have arrived; a command that
/// must not be sampled is waited for, but its background processes are not.
#[test]
fn a_command() {
    let now = Instant::now();
    assert!(!course(true, &[attached(1), detached(1, Detached::Exited)]).is_over());
    let mut running = course(true, &[attached(1)]);
    running.command_ended(3);
    assert!(!running.is_over());
    running.handle_event(&attached_for(TargetId(1), 8, 2), now);
    running.handle_event(&attached_for(TARGET, 9, 3), now);
    running.handle_event(&detached(1, Detached::Exited), now);
    assert!(running.is_over() && running.is_attached());
    assert_eq!(running.exit_code(), Some(3));
    let mut refused = course(true, &[problem(ProblemKind::Permission)]);
    assert!(!refused.is_over());
    refused.command_ended(0);
    assert!(refused.is_over());
    let ended = course(true, &[problem(ProblemKind::Missing), problem(ProblemKind::Zombie)]);
    assert_eq!(ended.refusal(), None, "a command that ends before it is looked at is no failure");
}

/// Guarantees: events of a process that a command waits for do not affect the state of the command.
#[test]
fn what_a_command_started() {
    let missing = problem_of(TargetId(1), None, ProblemKind::Missing);
    assert_eq!(course(true, &[missing]).refusal(), None);
    let permission = problem_of(TargetId(1), Some(8), ProblemKind::Permission);
    assert_eq!(course(true, &[permission]).refusal(), None);
}

/// Guarantees: the run of a process continues when the sampler process ends, until its successor reports that the
/// process is gone.
#[test]
fn without_a_sampler_process() {
    let mut lost = course(false, &[attached(1)]);
    lost.lose();
    assert!(!lost.is_over() && !lost.is_attached());
    let mut found = course(false, &[attached(1)]);
    found.lose();
    found.handle_event(&attached(2), Instant::now());
    assert!(!found.is_over());
    found.handle_event(&detached(2, Detached::Exited), Instant::now());
    assert!(found.is_over());
    lost.handle_event(&problem(ProblemKind::Missing), Instant::now());
    assert!(lost.is_over());
}
