//! The socket at one end of a connection: its inode and its user, which the kernel returns for both addresses of the
//! connection (sock_diag(7), `INET_DIAG`). It needs no privilege, and its cost does not depend on the number of
//! sockets.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd as _;

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Socket {
    /// The number in the links of `/proc/PID/fd`.
    pub(super) inode: u64,
    /// The user who created it.
    pub(super) user: u32,
}

/// `SOCK_DIAG_BY_FAMILY` (Linux, `include/uapi/linux/sock_diag.h`).
const BY_FAMILY: u16 = 20;
/// `NLM_F_REQUEST`.
const REQUEST: u16 = 1;
/// `NLMSG_ERROR`, also the answer if no such socket exists.
const ERROR: u16 = 2;
/// `struct nlmsghdr`.
const HEADER: usize = 16;
/// `struct inet_diag_sockid`.
const ID: usize = 48;
/// The size of the question: the header and `struct inet_diag_req_v2`.
const ASKED: usize = HEADER + 8 + ID;
/// The size of the answer: the header and `struct inet_diag_msg`.
const ANSWER: usize = HEADER + 4 + ID + 5 * 4;

/// The socket connected from `own` to `other`; `None` if there is none.
///
/// # Errors
///
/// The kernel lacks the feature, or a seccomp filter forbids the call.
pub(super) fn connected(own: SocketAddr, other: SocketAddr) -> Result<Option<Socket>, Errno> {
    let asked = question(own, other);
    let kernel = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkSockDiag)?;
    send(kernel.as_raw_fd(), &asked, MsgFlags::empty())?;
    let mut answer = [0; 512];
    // The kernel answers during the send, so the answer is available.
    let length = recv(kernel.as_raw_fd(), &mut answer, MsgFlags::MSG_DONTWAIT)?;
    parse_answer(answer.get(..length).unwrap_or_default(), &asked)
}

fn question(own: SocketAddr, other: SocketAddr) -> [u8; ASKED] {
    let (own, other) = (canonical(own), canonical(other));
    let family = if own.is_ipv4() && other.is_ipv4() { libc_family(4) } else { libc_family(6) };
    let mut asked = [0; ASKED];
    let mut put = |at: usize, bytes: &[u8]| asked[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &(ASKED as u32).to_ne_bytes());
    put(4, &BY_FAMILY.to_ne_bytes());
    put(6, &REQUEST.to_ne_bytes());
    // TCP, without any optional extension.
    put(HEADER, &[family, 6, 0, 0]);
    // Sockets in any state.
    put(HEADER + 4, &u32::MAX.to_ne_bytes());
    let id = HEADER + 8;
    put(id, &own.port().to_be_bytes());
    put(id + 2, &other.port().to_be_bytes());
    put(id + 4, &octets(own.ip(), family));
    put(id + 20, &octets(other.ip(), family));
    // Any interface, and no cookie (`INET_DIAG_NOCOOKIE`).
    put(id + 40, &[0xff; 8]);
    asked
}

/// Parses the kernel's answer.
fn parse_answer(answer: &[u8], asked: &[u8; ASKED]) -> Result<Option<Socket>, Errno> {
    let word = |at: usize| Some(u32::from_ne_bytes(answer.get(at..at + 4)?.try_into().ok()?));
    let kind = answer.get(4..6).map(|bytes| u16::from_ne_bytes([bytes[0], bytes[1]]));
    match kind {
        Some(BY_FAMILY) if answer.len() >= ANSWER => {}
        // A negative errno, or 0.
        Some(ERROR) => {
            let error = word(HEADER).and_then(|error| (error as i32).checked_neg()).unwrap_or(0);
            return match Errno::from_raw(error) {
                Errno::ENOENT => Ok(None),
                error => Err(error),
            };
        }
        _ => return Err(Errno::EBADMSG),
    }
    // Without a connected socket the kernel returns a listening one, whose remote port is 0.
    let ports = |bytes: &[u8], at: usize| bytes.get(at..at + 4).map(<[u8]>::to_vec);
    let is_it = ports(answer, HEADER + 4) == ports(asked, HEADER + 8);
    let user = word(ANSWER - 8).unwrap_or_default();
    let inode = word(ANSWER - 4).unwrap_or_default();
    // A closed socket has no inode.
    Ok((is_it && inode != 0).then_some(Socket { inode: inode.into(), user }))
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// `AF_INET` or `AF_INET6`.
fn libc_family(version: u8) -> u8 {
    let family = if version == 4 { AddressFamily::Inet } else { AddressFamily::Inet6 };
    family as i32 as u8
}

fn octets(ip: IpAddr, family: u8) -> [u8; 16] {
    let mut octets = [0; 16];
    match ip {
        IpAddr::V4(ip) if family == libc_family(4) => octets[..4].copy_from_slice(&ip.octets()),
        IpAddr::V4(ip) => octets = ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => octets = ip.octets(),
    }
    octets
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    fn inode_of(stream: &TcpStream) -> u64 {
        std::fs::metadata(format!("/proc/self/fd/{}", stream.as_raw_fd())).unwrap().ino()
    }

    /// Guarantees: both ends of a connection are found by their own addresses, over IPv4 and IPv6 and with IPv4-mapped
    /// addresses, even if another connection uses the same port. A closed or listening socket is not found.
    #[test]
    fn both_ends() {
        for listen in ["127.0.0.1:0", "[::1]:0"] {
            let (Ok(listener), Ok(second)) = (TcpListener::bind(listen), TcpListener::bind(listen)) else {
                eprintln!("{listen} cannot be had here, not checked");
                continue;
            };
            let address = listener.local_addr().unwrap();
            let client = TcpStream::connect(address).unwrap();
            let (accepted, peer) = listener.accept().unwrap();
            let found = match connected(peer, address) {
                Ok(found) => found.unwrap(),
                Err(error) => {
                    eprintln!("the kernel does not tell of sockets here ({error}), not checked");
                    return;
                }
            };
            assert_eq!(found.inode, inode_of(&client), "{listen}");
            assert_eq!(found.user, nix::unistd::geteuid().as_raw());
            assert_eq!(connected(address, peer).unwrap().unwrap().inode, inode_of(&accepted));
            if let (IpAddr::V4(ip), IpAddr::V4(own)) = (peer.ip(), address.ip()) {
                let mapped = |ip: std::net::Ipv4Addr, port| SocketAddr::new(ip.to_ipv6_mapped().into(), port);
                let found = connected(mapped(ip, peer.port()), mapped(own, address.port()));
                assert_eq!(found.unwrap().unwrap().inode, inode_of(&client));
            }
            let elsewhere = second.local_addr().unwrap();
            assert_eq!(connected(peer, elsewhere), Ok(None), "no such connection");
            assert_eq!(connected(elsewhere, peer), Ok(None), "it listens");
            drop((client, accepted));
            assert_eq!(connected(peer, address), Ok(None), "it is closed");
        }
    }

    /// Guarantees: an unexpected answer is an error, never a socket.
    #[test]
    fn answers() {
        let asked = question("127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap());
        let mut answer = [0; ANSWER];
        answer[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
        answer[HEADER + 4..HEADER + 8].copy_from_slice(&[0, 1, 0, 2]);
        answer[ANSWER - 8..].copy_from_slice(&[1000_u32.to_ne_bytes(), 4711_u32.to_ne_bytes()].concat());
        assert_eq!(parse_answer(&answer, &asked), Ok(Some(Socket { inode: 4711, user: 1000 })));
        for length in 0..ANSWER {
            assert_eq!(parse_answer(&answer[..length], &asked), Err(Errno::EBADMSG), "{length}");
        }
        answer[ANSWER - 4..].fill(0);
        assert_eq!(parse_answer(&answer, &asked), Ok(None), "no inode");
        answer[4..6].copy_from_slice(&ERROR.to_ne_bytes());
        let mut failed = |error: i32| {
            answer[HEADER..HEADER + 4].copy_from_slice(&error.to_ne_bytes());
            parse_answer(&answer, &asked)
        };
        assert_eq!(failed(-(Errno::ENOENT as i32)), Ok(None));
        assert_eq!(failed(-(Errno::EPERM as i32)), Err(Errno::EPERM));
        assert!(failed(i32::MIN).is_err() && failed(0).is_err());
    }
}
