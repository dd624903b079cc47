//! Which process of this machine has sent a request: the one that has the socket at the other end.
//!
//! Sentry's SDKs do not say from which process they send. On the loopback the kernel knows: `/proc/net/tcp` and `tcp6` list
//! the sockets of this network namespace with their addresses and inodes (kernel.org `Documentation/networking/
//! proc_net_tcp.rst`), `/proc/PID/fd` who has them open (proc(5)). The latter takes the right to trace for processes of
//! other users.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use profbridge_model::envelope::ClientProcess;

/// Finds clients.
#[derive(Debug, Clone)]
pub(crate) struct Clients {
    proc: PathBuf,
}

impl Default for Clients {
    fn default() -> Self {
        Self { proc: PathBuf::from("/proc") }
    }
}

impl Clients {
    /// The process behind an address; `None` where it is of another machine, has gone, may not be looked at, or where
    /// several have the socket. Reads the file descriptors of all processes.
    pub(crate) fn process(&self, client: SocketAddr) -> Option<ClientProcess> {
        let inode = self.inode(client)?;
        let link = format!("socket:[{inode}]");
        let processes = fs::read_dir(&self.proc).ok()?;
        let pids = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let mut owners = pids.filter(|pid| has_open(&self.proc.join(format!("{pid}/fd")), &link));
        let pid = owners.next()?;
        // A socket that was handed on with a fork says nothing about who wrote into it.
        if owners.next().is_some() {
            return None;
        }
        let host = fs::read_to_string(self.proc.join("sys/kernel/hostname")).ok()?;
        Some(ClientProcess { pid, host: Arc::from(host.trim()) })
    }

    /// The inode of the socket that has an address as its own.
    fn inode(&self, of: SocketAddr) -> Option<u64> {
        let of = SocketAddr::new(of.ip().to_canonical(), of.port());
        let tables =
            ["net/tcp", "net/tcp6"].into_iter().filter_map(|name| fs::read_to_string(self.proc.join(name)).ok());
        let mut found = None;
        for table in tables {
            for line in table.lines().skip(1) {
                match row(line).filter(|(local, inode)| *local == of && *inode != 0) {
                    // A port may be used for several connections. Then nobody knows which one it is.
                    Some(_) if found.is_some() => return None,
                    Some((_, inode)) => found = Some(inode),
                    None => {}
                }
            }
        }
        found
    }
}

/// A socket's own address and inode: the second and the tenth column.
fn row(line: &str) -> Option<(SocketAddr, u64)> {
    let mut columns = line.split_ascii_whitespace();
    let (ip, port) = columns.nth(1)?.split_once(':')?;
    let inode = columns.nth(7)?.parse().ok()?;
    let port = u16::from_str_radix(port, 16).ok()?;
    Some((SocketAddr::new(address(ip)?.to_canonical(), port), inode))
}

/// An address as the kernel writes it: each 32 bits of it as a number in the machine's byte order.
fn address(hex: &str) -> Option<IpAddr> {
    let word = |at: usize| Some(u32::from_str_radix(hex.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    match hex.len() {
        8 => Some(IpAddr::V4(Ipv4Addr::from(word(0)?))),
        32 => {
            let mut bytes = [0; 16];
            for (at, part) in bytes.chunks_exact_mut(4).enumerate() {
                part.copy_from_slice(&word(at * 8)?);
            }
            Some(IpAddr::V6(Ipv6Addr::from(bytes)))
        }
        _ => None,
    }
}

/// Whether a process has a file open. Without the right to look it has not.
fn has_open(descriptors: &Path, link: &str) -> bool {
    let Ok(entries) = fs::read_dir(descriptors) else { return false };
    entries.flatten().any(|entry| fs::read_link(entry.path()).is_ok_and(|to| to.as_os_str() == link))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// Guarantees: the client of a connection on the loopback is found by the socket's owner, over IPv4, IPv6, and IPv4
    /// through a socket of IPv6; an address that no socket has is nobody's.
    #[test]
    fn owners() {
        let clients = Clients::default();
        for (listen, connect) in [("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "::1"), ("127.0.0.1:0", "::ffff:127.0.0.1")]
        {
            let Ok(listener) = TcpListener::bind(listen) else {
                eprintln!("{listen} cannot be had here, not checked");
                continue;
            };
            let ip: IpAddr = connect.parse().unwrap();
            let stream = TcpStream::connect((ip, listener.local_addr().unwrap().port())).unwrap();
            let (_accepted, peer) = listener.accept().unwrap();
            let client = clients.process(peer).unwrap();
            assert_eq!(client.pid, std::process::id(), "{listen} {connect}");
            let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
            assert_eq!(&*client.host, host.trim());
            assert_eq!(clients.process(SocketAddr::new(peer.ip(), 1)), None);
            drop(stream);
        }
    }

    /// Guarantees: rows are read as the kernel writes them, and what is none is passed over.
    #[test]
    fn rows() {
        let v4 =
            "   1: 0100007F:0016 0100007F:D3F2 01 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0000 20";
        #[cfg(target_endian = "little")]
        assert_eq!(row(v4), Some(("127.0.0.1:22".parse().unwrap(), 4711)));
        let v6 =
            "   0: 00000000000000000000000001000000:1F90 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 12 1 0";
        #[cfg(target_endian = "little")]
        assert_eq!(row(v6), Some(("[::1]:8080".parse().unwrap(), 12)));
        for bad in
            ["", "0: x:y", "0: 0100007F 0", "0: 0100007F:FFFFF 0 0 0 0 0 0 0 1", "0: 0100007:0016 0 0 0 0 0 0 0 1"]
        {
            assert_eq!(row(bad), None, "{bad}");
        }
    }

    /// Guarantees: a socket that two processes have, as after a fork, is of neither.
    #[test]
    fn shared_sockets() {
        let root = std::env::temp_dir().join(format!("profbridge-shared-sockets-{}", std::process::id()));
        let row = "0: 0100007F:0016 0100007F:D3F2 01 0:0 0:0 0 0 0 4711 1";
        for folder in ["net", "sys/kernel", "10/fd", "11/fd", "12/fd", "self/fd"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        fs::write(root.join("net/tcp"), format!("head\n{row}\n")).unwrap();
        fs::write(root.join("sys/kernel/hostname"), "web\n").unwrap();
        std::os::unix::fs::symlink("socket:[4711]", root.join("10/fd/3")).unwrap();
        std::os::unix::fs::symlink("socket:[47110]", root.join("11/fd/3")).unwrap();
        let clients = Clients { proc: root.clone() };
        let client = "127.0.0.1:22".parse().unwrap();
        #[cfg(target_endian = "little")]
        assert_eq!(clients.process(client), Some(ClientProcess { pid: 10, host: "web".into() }));
        std::os::unix::fs::symlink("socket:[4711]", root.join("12/fd/9")).unwrap();
        assert_eq!(clients.process(client), None);
        fs::remove_dir_all(root).unwrap();
    }
}
