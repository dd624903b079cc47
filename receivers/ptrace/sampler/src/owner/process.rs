//! The owner's handle of the sampler process.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};

use nix::sys::socket::{Shutdown, shutdown};

use crate::message::Command;
use crate::owner::receive::{self, ReceiverState};
use crate::owner::{Events, Notice, SendError, StartError, StartOptions};
use crate::protocol::{self, MAX_PACKET};

/// The sampler process. When this is dropped, the process ends as well; the sampled processes continue to run.
#[derive(Debug)]
pub struct SamplerProcess {
    socket: OwnedFd,
    pid: u32,
    shared: Arc<ReceiverState>,
    /// Locked for each command, so that commands are recorded in the order of their packets.
    sending: Mutex<()>,
}

impl SamplerProcess {
    /// Starts the sampler process. Its first event is [`crate::message::Event::Ready`].
    ///
    /// # Errors
    ///
    /// If sampling is not possible on this machine, or the process cannot be started.
    pub fn start(options: StartOptions) -> Result<(Self, Events), StartError> {
        let (sender, receiver) = sync_channel(options.waiting.max(1));
        // If the owner dropped its events, they are discarded, but the sampler's socket still has to be read until its
        // end.
        let process = Self::start_with(options, move |notice| drop(sender.send(notice)))?;
        Ok((process, Events { receiver }))
    }

    /// Starts the sampler process and calls `deliver` with each notice, on a thread made for that. While `deliver`
    /// blocks, events are queued; if that takes long, the sampler drops its oldest samples and counts them. The thread
    /// drops the capability to trace other users' processes.
    ///
    /// # Errors
    ///
    /// If sampling is not possible on this machine, or the process cannot be started.
    pub fn start_with(options: StartOptions, deliver: impl FnMut(Notice) + Send + 'static) -> Result<Self, StartError> {
        if !cfg!(target_arch = "x86_64") {
            return Err(StartError::Architecture(std::env::consts::ARCH));
        }
        let started = receive::start(&options, Box::new(deliver)).map_err(StartError::Start)?;
        Ok(Self { socket: started.socket, pid: started.pid, shared: started.shared, sending: Mutex::new(()) })
    }

    /// The sampler's process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Sends a command to the sampler process. After [`Command::Stop`] the process has [`StartOptions::stop_timeout`]
    /// to send the remaining data and to end; meanwhile the events have to be read up to [`Notice::Ended`].
    ///
    /// # Errors
    ///
    /// If the command does not fit into a packet, or the sampler process no longer reads.
    pub fn send(&self, command: Command) -> Result<(), SendError> {
        let packet = protocol::encode_command(&command);
        if packet.len() > MAX_PACKET {
            return Err(SendError::TooLong { length: packet.len(), limit: MAX_PACKET });
        }
        let _order = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        self.shared.note(&command);
        protocol::socket::send(self.socket.as_fd(), &packet, None).map_err(|error| match error.raw_os_error() {
            Some(libc::EPIPE | libc::ECONNRESET | libc::ENOTCONN) => SendError::Gone,
            Some(libc::EAGAIN) => SendError::Busy,
            _ => SendError::Io(error),
        })
    }
}

impl Drop for SamplerProcess {
    fn drop(&mut self) {
        self.shared.stop();
        // The sampler sees the end of the stream and ends. The receiving thread collects its exit status.
        shutdown(self.socket.as_raw_fd(), Shutdown::Write).ok();
    }
}
