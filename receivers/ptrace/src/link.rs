//! The driver's link to a sampler process: a channel in each direction.

use profbridge_sampler::message::{Command, Event};
use profbridge_sampler::owner::{Ending, Notice, SamplerProcess, StartOptions};
use tokio::sync::mpsc;

/// How many commands may wait: far more than there are targets and processes. A sampler process that leaves so many
/// unread hangs.
const COMMANDS: usize = 4096;

/// How many events may wait. An event takes half a MiB at most. If this many wait, the sampler drops its oldest samples
/// and counts them.
const NOTICES: usize = 32;

/// What the driver receives.
#[derive(Debug)]
pub(crate) enum FromSampler {
    /// An event of the sampler process.
    Event(Box<Event>),
    /// The sampler process has ended: `None` if it was asked to, else how it ended, for a person.
    Ended(Option<String>),
}

/// A running sampler process. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) heard: mpsc::Receiver<FromSampler>,
}

/// Starts a sampler process. The error says why that failed, for a person.
pub(crate) type Launch = Box<dyn FnMut() -> Result<Link, String> + Send>;

/// Starts real ones, which may have to start `commands`.
pub(crate) fn real(realtime: bool, commands: bool) -> Launch {
    Box::new(move || launch(StartOptions { realtime, commands, ..StartOptions::default() }))
}

fn launch(options: StartOptions) -> Result<Link, String> {
    let (heard_sender, heard) = mpsc::channel(NOTICES);
    let (commands, mut waiting) = mpsc::channel(COMMANDS);
    let hear = move |notice| {
        // Fails only if the driver is gone.
        heard_sender.blocking_send(translate(notice)).ok();
    };
    let process = SamplerProcess::start_with(options, hear).map_err(|error| profbridge_net::error_chain(&error))?;
    // Sending a command may block, so it is done by a thread. It ends when the last sender is dropped.
    let say = move || {
        let mut said = false;
        while let Some(command) = waiting.blocking_recv() {
            // A sampler process that does not read will end soon, which is reported anyway.
            if let Err(error) = process.send(command)
                && !std::mem::replace(&mut said, true)
            {
                tracing::warn!("the sampler process was not told: {}", profbridge_net::error_chain(&error));
            }
        }
    };
    let thread = std::thread::Builder::new().name("ptrace-commands".to_owned()).spawn(say);
    thread.map_err(|error| format!("cannot start a thread: {error}"))?;
    Ok(Link { commands, heard })
}

fn translate(notice: Notice) -> FromSampler {
    let ending = match notice {
        Notice::Event(event) => return FromSampler::Event(Box::new(event)),
        Notice::Ended(ending) => ending,
    };
    FromSampler::Ended(match ending {
        Ending::Stopped => None,
        Ending::Unknown => Some("it ended".to_owned()),
        Ending::Exited(code) => Some(format!("it ended with code {code}")),
        Ending::Killed(signal) => Some(format!("signal {signal} ended it")),
        Ending::TimedOut => Some("it did not stop in time and was ended".to_owned()),
        Ending::Misbehaved(how) => Some(format!("it was ended since it broke the rules: {how}")),
    })
}
