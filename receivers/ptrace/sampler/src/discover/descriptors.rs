//! Names the file or socket on which a blocked thread waits.
//!
//! `/proc/PID/task/TID/syscall` has the descriptor, or nothing while the thread runs; reading it does not disturb the
//! thread. `/proc/PID/fd` names the file; the peer of a socket is in the tables of its network namespace.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use crate::probe::{Activity, read_syscall};

/// System calls that transfer data by the descriptor in their first argument, or wait for it.
const CALLS: [libc::c_long; 22] = [
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_connect,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_flock,
    libc::SYS_getdents64,
    libc::SYS_ioctl,
];

/// The maximum number of sockets that are looked up, and how much of each table of sockets is read, in bytes.
const SOCKETS: usize = 512;
const TABLE: u64 = 1 << 20;

/// The names of descriptors found so far.
#[derive(Debug, Default)]
pub struct Descriptors {
    sockets: HashMap<(u32, u64), Arc<str>>,
}

impl Descriptors {
    /// What a thread waits for in a system call: the path of a file, `socket to 10.0.0.7:5432`, `pipe`. `None` if the
    /// thread does not wait like that, or may not be examined.
    pub fn awaited_by(&mut self, pid: u32, thread: u32) -> Option<Arc<str>> {
        let call =
            File::open(format!("/proc/{pid}/task/{thread}/syscall")).and_then(|file| read_syscall(&file)).ok()?;
        let Activity::Blocked { call, arguments: Some([descriptor, ..]), .. } = call else { return None };
        CALLS.contains(&call).then_some(())?;
        let link = fs::read_link(format!("/proc/{pid}/fd/{}", u32::try_from(descriptor).ok()?)).ok()?;
        let link = link.to_string_lossy();
        match link.split_once(":[") {
            Some(("socket", inode)) => Some(self.socket(pid, inode.trim_end_matches(']').parse().ok()?)),
            Some((kind, _)) if !link.starts_with('/') => Some(kind.into()),
            _ => Some(link.trim_start_matches("anon_inode:").into()),
        }
    }

    fn socket(&mut self, pid: u32, inode: u64) -> Arc<str> {
        if let Some(known) = self.sockets.get(&(pid, inode)) {
            return Arc::clone(known);
        }
        let is_full = self.sockets.len() >= SOCKETS;
        let name = Some(()).filter(|()| !is_full).and_then(|()| {
            let tables = ["tcp", "tcp6", "udp", "udp6", "unix"].into_iter();
            tables.filter_map(|table| socket_in(&table_of(pid, table), table, inode)).next()
        });
        let name: Arc<str> = name.unwrap_or_else(|| "socket".to_owned()).into();
        if !is_full {
            self.sockets.insert((pid, inode), Arc::clone(&name));
        }
        name
    }
}

fn table_of(pid: u32, table: &str) -> String {
    let mut text = String::new();
    let read = File::open(format!("/proc/{pid}/net/{table}")).map(|file| file.take(TABLE).read_to_string(&mut text));
    if read.is_ok() { text } else { String::new() }
}

/// A socket in the text of `/proc/PID/net/TABLE` (proc_pid_net(5)).
fn socket_in(text: &str, table: &str, inode: u64) -> Option<String> {
    let is_it = |word: Option<&str>| word.and_then(|word| word.parse().ok()) == Some(inode);
    text.lines().skip(1).find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        if table == "unix" {
            let path = words.get(7).map(|path| format!("socket {path}"));
            return is_it(words.get(6).copied()).then(|| path.unwrap_or_else(|| "local socket".to_owned()));
        }
        if !is_it(words.get(9).copied()) {
            return None;
        }
        let (local, peer) = (address(words.get(1)?)?, address(words.get(2)?)?);
        Some(if peer.port() == 0 { format!("socket on {local}") } else { format!("socket to {peer}") })
    })
}

/// An address: 32-bit words in the machine's byte order, and a port.
fn address(text: &str) -> Option<SocketAddr> {
    let (host, port) = text.split_once(':')?;
    let word = |at: usize| u32::from_str_radix(host.get(at..at + 8)?, 16).ok().map(u32::to_le_bytes);
    let host: IpAddr = match host.len() {
        8 => Ipv4Addr::from(word(0)?).into(),
        32 => {
            let words = [word(0)?, word(8)?, word(16)?, word(24)?];
            let bytes: [u8; 16] = words.concat().try_into().ok()?;
            Ipv6Addr::from(bytes).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(host, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    use super::*;

    /// Starts a thread that waits in `wait`, and returns what [`Descriptors`] finds that it waits for.
    fn awaited(wait: impl FnOnce() + Send + 'static) -> String {
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            sender.send(nix::unistd::gettid().as_raw() as u32).unwrap();
            wait();
        });
        let thread = receiver.recv().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut descriptors = Descriptors::default();
        loop {
            if let Some(name) = descriptors.awaited_by(std::process::id(), thread) {
                return name.to_string();
            }
            assert!(Instant::now() < deadline, "it does not wait");
            std::thread::yield_now();
        }
    }

    /// Guarantees: what a thread waits for is named for a connected and a listening socket, a local socket and a pipe,
    /// and for a thread that does not exist there is no name.
    #[test]
    fn sockets_and_pipes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut client = TcpStream::connect(address).unwrap();
        let served = listener.accept().unwrap();
        assert_eq!(awaited(move || drop(client.read(&mut [0]))), format!("socket to {address}"));
        let anybody = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = anybody.local_addr().unwrap();
        assert_eq!(awaited(move || drop(anybody.recv(&mut [0]))), format!("socket on {address}"));
        let (mut here, mut there) = UnixStream::pair().unwrap();
        assert_eq!(awaited(move || drop(here.read(&mut [0]))), "local socket");
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        assert_eq!(awaited(move || drop(reader.read(&mut [0]))), "pipe");
        there.write_all(b"x").and_then(|()| writer.write_all(b"x")).unwrap();
        drop(served);
        assert_eq!(Descriptors::default().awaited_by(u32::MAX, 1), None);
    }

    /// Guarantees: addresses of both families are parsed, and malformed ones are refused.
    #[test]
    fn addresses() {
        for (text, expected) in [
            ("0100007F:1538", "127.0.0.1:5432"),
            ("0000000000000000FFFF00000100007F:0050", "127.0.0.1:80"),
            ("00000000000000000000000001000000:0050", "[::1]:80"),
        ] {
            assert_eq!(address(text).unwrap().to_string(), expected);
        }
        for bad in ["", ":", "0100007F", "0100007:50", "x100007F:0050", "é00007F:0050"] {
            assert_eq!(address(bad), None, "{bad}");
        }
    }
}
