//! The driver's link to a sampler process: a channel in each direction.

use profbridge_sampler::message::Command;
use profbridge_sampler::owner::{Notice, SamplerProcess, StartOptions};
use tokio::sync::mpsc;

/// How many commands may be queued: far more than there are targets and processes. If so many are unread, the sampler
/// process hangs.
const COMMANDS: usize = 4096;

/// How many events may be queued. An event takes about a MiB at most. If the queue is full, the sampler drops its
/// oldest samples and counts them.
const NOTICES: usize = 32;

/// A running sampler process. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct SamplerLink {
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) notices: mpsc::Receiver<Notice>,
}

/// Starts a sampler process. The error is a text for the user.
pub(crate) type Launch = Box<dyn FnMut() -> Result<SamplerLink, String> + Send>;

/// Starts real sampler processes; with `commands` they are able to start commands.
pub(crate) fn real(realtime: bool, commands: bool) -> Launch {
    Box::new(move || launch(StartOptions { realtime, commands, ..StartOptions::default() }))
}

fn launch(options: StartOptions) -> Result<SamplerLink, String> {
    let (notice_sender, notices) = mpsc::channel(NOTICES);
    let (commands, mut waiting) = mpsc::channel(COMMANDS);
    let forward = move |notice| {
        // Fails only if the driver is gone.
        notice_sender.blocking_send(notice).ok();
    };
    let process = SamplerProcess::start_with(options, forward).map_err(|error| profbridge_net::error_chain(&error))?;
    // Sending a command may block, so it is done by a thread. The thread ends when the last sender is dropped.
    let send = move || {
        let mut failed = false;
        while let Some(command) = waiting.blocking_recv() {
            // A sampler process that reads no commands will soon end, which is reported anyway.
            if let Err(error) = process.send(command)
                && !std::mem::replace(&mut failed, true)
            {
                tracing::warn!("a command was not sent: {}", profbridge_net::error_chain(&error));
            }
        }
    };
    let thread = std::thread::Builder::new().name("ptrace-commands".to_owned()).spawn(send);
    thread.map_err(|error| format!("cannot start a thread: {error}"))?;
    Ok(SamplerLink { commands, notices })
}
