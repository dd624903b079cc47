//! The thread that reads files.

use std::io;
use std::sync::{Arc, PoisonError};
use std::thread;

use super::Shared;
use super::state::{Task, Verdict};
use crate::Unknown;

/// The thread's stack: demanglers recurse, to a limited depth.
const STACK_BYTES: usize = 8 << 20;

pub(super) fn start(shared: Arc<Shared>) -> io::Result<()> {
    thread::Builder::new().name("symbolize".into()).stack_size(STACK_BYTES).spawn(move || run(&shared)).map(drop)
}

fn run(shared: &Shared) {
    loop {
        let task = {
            let mut state = shared.state();
            loop {
                if state.stop {
                    return;
                }
                match state.take() {
                    Some(task) => break task,
                    None => state = shared.work.wait(state).unwrap_or_else(PoisonError::into_inner),
                }
            }
        };
        let (object, verdicts) = match task {
            Task::Symbols(object, _, addresses) => (
                object,
                addresses.into_iter().map(|address| (address, Verdict::Settled(Err(Unknown::NoFile)))).collect(),
            ),
            Task::Dwarf(object, _, addresses) => (
                object,
                addresses.into_iter().map(|(address, _)| (address, Verdict::Settled(Err(Unknown::NoFile)))).collect(),
            ),
        };
        let mut state = shared.state();
        state.settle(object, verdicts, &shared.counting);
        if state.waiting == 0 {
            shared.idle.notify_all();
        }
    }
}
