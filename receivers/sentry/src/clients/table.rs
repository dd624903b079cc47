//! The sockets of this network namespace, from `/proc/net/tcp` and `tcp6`.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use super::socket::Socket;

/// The socket connected from `own`, and to `other` if that is known.
pub(super) fn connected(proc: &Path, own: SocketAddr, other: Option<SocketAddr>) -> Option<Socket> {
    let canonical = |of: SocketAddr| SocketAddr::new(of.ip().to_canonical(), of.port());
    let (own, other) = (canonical(own), other.map(canonical));
    let tables = ["net/tcp", "net/tcp6"].into_iter().filter_map(|name| fs::read_to_string(proc.join(name)).ok());
    let mut found = None;
    for table in tables {
        for line in table.lines().skip(1) {
            let is_it = |row: &SocketRow| {
                row.own == own && other.is_none_or(|other| row.other == other) && row.socket.inode != 0
            };
            match row(line).filter(is_it) {
                // Several connections may share a port; then the right one is unknown.
                Some(_) if found.is_some() => return None,
                Some(row) => found = Some(row.socket),
                None => {}
            }
        }
    }
    found
}

/// The columns 2, 3, 8 and 10 of a line.
#[derive(Debug, PartialEq, Eq)]
struct SocketRow {
    own: SocketAddr,
    other: SocketAddr,
    socket: Socket,
}

fn row(line: &str) -> Option<SocketRow> {
    let mut columns = line.split_ascii_whitespace().skip(1);
    let mut end = || {
        let (ip, port) = columns.next()?.split_once(':')?;
        Some(SocketAddr::new(address(ip)?.to_canonical(), u16::from_str_radix(port, 16).ok()?))
    };
    let (own, other) = (end()?, end()?);
    let user = columns.nth(4)?.parse().ok()?;
    Some(SocketRow { own, other, socket: Socket { inode: columns.nth(1)?.parse().ok()?, user } })
}

/// Parses an address in the kernel's notation: each 32 bits as a number in the machine's byte order.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: rows in the kernel's notation are parsed, and invalid ones are skipped.
    #[test]
    fn rows() {
        let at = |address: &str| address.parse::<SocketAddr>().unwrap();
        let v4 =
            "   1: 0100007F:0016 0100007F:D3F2 01 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0000 20";
        #[cfg(target_endian = "little")]
        assert_eq!(
            row(v4),
            Some(SocketRow {
                own: at("127.0.0.1:22"),
                other: at("127.0.0.1:54258"),
                socket: Socket { inode: 4711, user: 1000 }
            })
        );
        let v6 =
            "   0: 00000000000000000000000001000000:1F90 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 12 1 0";
        #[cfg(target_endian = "little")]
        assert_eq!(
            row(v6),
            Some(SocketRow { own: at("[::1]:8080"), other: at("[::]:0"), socket: Socket { inode: 12, user: 0 } })
        );
        for bad in
            ["", "0: x:y", "0: 0100007F 0", "0: 0100007F:FFFFF 0 0 0 0 0 0 0 1", "0: 0100007:0016 0 0 0 0 0 0 0 1"]
        {
            assert_eq!(row(bad), None, "{bad}");
        }
    }
}
