//! Sends and receives packets and files over a pair of `SOCK_SEQPACKET` sockets.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr, recvmsg, sendmsg,
    setsockopt, socketpair, sockopt,
};
use nix::sys::time::TimeVal;

use super::MAX_PACKET;

/// `SCM_MAX_FD` of Linux, the maximum number of files in a packet.
const MOST_FILES: usize = 253;

/// The result of receiving.
#[derive(Debug)]
pub enum ReceivedPacket {
    /// A packet.
    Packet {
        /// The bytes of the packet.
        bytes: Vec<u8>,
        /// The file that is attached to the packet.
        file: Option<File>,
        /// Whether an attached file was lost, because this process has reached its limit of open files.
        lost_file: bool,
    },
    /// The other side is gone.
    End,
    /// There is no packet yet.
    Again,
}

/// Two connected sockets, close-on-exec.
///
/// # Errors
///
/// The error of the system call.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?)
}

/// Sets how long [`send`] may wait for room.
///
/// # Errors
///
/// The error of the system call.
pub fn limit_sending(socket: BorrowedFd<'_>, time: Duration) -> io::Result<()> {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    setsockopt(&socket, sockopt::SendTimeout, &TimeVal::new(seconds, i64::from(time.subsec_micros())))?;
    Ok(())
}

/// Sends a packet. Waits for room at most as long as [`limit_sending`] has set.
///
/// # Errors
///
/// `WouldBlock` if there is no room, `EPIPE` if the other side is gone, and the other errors of the system call.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], file: Option<BorrowedFd<'_>>) -> io::Result<()> {
    send_with(socket, bytes, file, MsgFlags::empty())
}

/// Sends a packet without waiting.
///
/// # Errors
///
/// The same as for [`send`].
pub fn try_send(socket: BorrowedFd<'_>, bytes: &[u8], file: Option<BorrowedFd<'_>>) -> io::Result<()> {
    send_with(socket, bytes, file, MsgFlags::MSG_DONTWAIT)
}

fn send_with(socket: BorrowedFd<'_>, bytes: &[u8], file: Option<BorrowedFd<'_>>, flags: MsgFlags) -> io::Result<()> {
    let files: Vec<RawFd> = file.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&files)];
    let control = if files.is_empty() { &rights[..0] } else { &rights[..] };
    loop {
        match sendmsg::<UnixAddr>(
            socket.as_raw_fd(),
            &[IoSlice::new(bytes)],
            control,
            flags | MsgFlags::MSG_NOSIGNAL,
            None,
        ) {
            Err(Errno::EINTR) => {}
            // A packet is sent whole or not at all.
            result => return result.map(drop).map_err(io::Error::from),
        }
    }
}

/// Receives a packet if there is one.
///
/// # Errors
///
/// `InvalidData` if the packet is longer than [`MAX_PACKET`] or has more than one file, and the errors of the system
/// call.
pub fn receive(socket: BorrowedFd<'_>) -> io::Result<ReceivedPacket> {
    let mut bytes = vec![0; MAX_PACKET];
    // Room for the maximum number of descriptors in a packet: all that arrive have to be known here so that they can be
    // closed.
    let mut control = nix::cmsg_space!([RawFd; MOST_FILES]);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC | MsgFlags::MSG_DONTWAIT;
    let message = match recvmsg::<UnixAddr>(socket.as_raw_fd(), &mut parts, Some(&mut control), flags) {
        Ok(message) => message,
        Err(Errno::EAGAIN | Errno::EINTR) => return Ok(ReceivedPacket::Again),
        Err(Errno::ECONNRESET) => return Ok(ReceivedPacket::End),
        Err(error) => return Err(error.into()),
    };
    let mut files = Vec::new();
    let (length, flags) = (message.bytes, message.flags);
    let lost_file = flags.contains(MsgFlags::MSG_CTRUNC);
    // There is room for all descriptors, so one can be missing only because of this process's limit of open files.
    if !lost_file {
        for part in message.cmsgs()? {
            if let ControlMessageOwned::ScmRights(numbers) = part {
                files.extend(numbers.into_iter().map(adopt));
            }
        }
    }
    if flags.contains(MsgFlags::MSG_TRUNC) {
        return Err(invalid("a packet is longer than 64 KiB"));
    }
    if files.len() > 1 {
        return Err(invalid("a packet comes with more than one file"));
    }
    if length == 0 {
        return Ok(ReceivedPacket::End);
    }
    bytes.truncate(length);
    bytes.shrink_to_fit();
    Ok(ReceivedPacket::Packet { bytes, file: files.pop().map(File::from), lost_file })
}

fn adopt(number: RawFd) -> OwnedFd {
    #[allow(unsafe_code, reason = "descriptors arrive as numbers")]
    // SAFETY: the kernel created this descriptor for this message, so nobody else owns it; each number is adopted
    // once.
    unsafe {
        OwnedFd::from_raw_fd(number)
    }
}

fn invalid(message: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}
