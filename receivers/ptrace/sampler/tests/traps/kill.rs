//! The sampler process dies.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use profbridge_sampler::{
    message::{Settings, Stops},
    owner::Ending,
};

use crate::{
    compile, process,
    runner::{Outcome, tests},
    session::Session,
    target::Target,
};

tests![sampler_is_killed_a_hundred_times];

/// Guarantees: a sampler process that is killed at any moment, a hundred times over, leaves the target alive and
/// running, with no thread stopped or traced; and the owner is told that it is gone.
fn sampler_is_killed_a_hundred_times() -> Outcome {
    let mut target = Target::start(&compile::c("busy"), &["3", "2"]);
    // As many stops as possible, so that many kills happen during one.
    let settings =
        Settings { rate_hertz: 1000.0, max_cpu: 1.0, max_stopped: 1.0, stops: Stops::Always, ..Settings::default() };
    for round in 0..100_u64 {
        let mut session = Session::with(target.pid(), settings);
        session.until("an attached process", |seen| !seen.lives.is_empty());
        // Moments that differ: some in the middle of the first tick, some later.
        session.listen(Duration::from_micros(round * 7919 % 20_000));
        if round == 0 {
            session.observe("leaf", 10);
        }
        kill(session.sampler(), Signal::SIGKILL).unwrap();
        session.until("the end of the sampler process", |seen| seen.ending.is_some());
        assert_eq!(session.seen.ending, Some(Ending::Killed(9)));
        drop(session);
        assert!(target.lives(), "the target died in round {round}");
        assert_eq!(process::tracers(target.pid()), Vec::<String>::new(), "round {round}");
        let states = process::states(target.pid());
        assert!(!states.contains(['t', 'T']), "round {round}: {states}");
    }
    target.works();
    Ok(())
}
