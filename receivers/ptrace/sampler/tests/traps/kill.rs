//! The sampler process is killed.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use profbridge_sampler::{SendError, message::Command, owner::Ending};

use crate::{
    compile, process,
    runner::tests,
    session::{TrapSession, often},
    target::RunningTarget,
};

tests![sampler_is_killed_a_hundred_times];

/// Guarantees: a sampler process that is killed at any moment, a hundred times in all, leaves the target alive and
/// running, with no thread stopped or traced; and the owner learns of its end.
fn sampler_is_killed_a_hundred_times() {
    let mut target = RunningTarget::start(&compile::c("busy"), &["3", "2"]);
    for round in 0..100_u64 {
        // As many stops as possible, so that many kills happen during one.
        let mut session = TrapSession::with(target.pid(), often());
        session.until("an attached process", |seen| !seen.lives.is_empty());
        // These moments differ: some are in the middle of the first tick, some later.
        session.listen(Duration::from_micros(round * 7919 % 20_000));
        if round == 0 {
            session.observe("leaf", 10);
        }
        kill(session.sampler(), Signal::SIGKILL).unwrap();
        session.until("the end of the sampler process", |seen| seen.ending.is_some());
        assert_eq!(session.seen.ending, Some(Ending::Killed(9)));
        assert!(matches!(session.process.send(Command::Stop), Err(SendError::Gone)));
        drop(session);
        assert!(target.lives(), "the target died in round {round}");
        assert!(process::is_left_alone(target.pid()), "round {round}");
    }
    target.works();
}
