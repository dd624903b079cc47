//! The control thread of the sampler process.

use std::io;
use std::os::fd::OwnedFd;

use crate::command::Inherited;

pub(crate) fn run(socket: OwnedFd, owner: u32, realtime: bool, inherited: Inherited) -> io::Result<()> {
    let _ = (socket, owner, realtime, inherited);
    Ok(())
}
