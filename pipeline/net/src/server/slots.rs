//! The open connections: their number in total and per peer, and the one that has been idle for longest.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;

use rustix::process::{Resource, getrlimit};
use tokio::net::TcpStream;
use tokio::task::{AbortHandle, Id};

use super::ServerLimits;
use super::activity::Activity;

/// The open connections of one server.
#[derive(Debug, Default)]
pub(super) struct Slots {
    open: HashMap<Id, Slot>,
    of_peer: HashMap<IpAddr, usize>,
}

#[derive(Debug)]
struct Slot {
    peer: IpAddr,
    activity: Arc<Activity>,
    task: AbortHandle,
}

/// Why there is no room for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoRoom {
    /// The server has the maximum number of connections.
    Full,
    /// The peer has the maximum number of connections per peer.
    FullOfPeer,
    /// Only the file descriptors that are reserved for exporters, metrics and health are left.
    FewFiles,
}

/// Whether less than a quarter of this process's file descriptors is free. New descriptors get the lowest free number
/// (open(2)), so the number of the latest one shows how many are in use.
fn few_files_are_left(stream: &TcpStream) -> bool {
    let most = getrlimit(Resource::Nofile).current;
    most.is_some_and(|most| u64::from(stream.as_raw_fd().unsigned_abs()) >= most - most / 4)
}

impl Slots {
    /// Checks whether there is room for a connection of `addr`, which was accepted as `stream`. Returns whether an idle
    /// connection was closed to make room.
    pub(super) fn room(&mut self, stream: &TcpStream, addr: SocketAddr, limits: &ServerLimits) -> Result<bool, NoRoom> {
        if !limits.replace_idle && few_files_are_left(stream) {
            return Err(NoRoom::FewFiles);
        }
        let of_peer = self.of_peer.get(&peer(addr)).copied().unwrap_or(0);
        if of_peer >= limits.max_connections_per_peer {
            return Err(NoRoom::FullOfPeer);
        }
        if self.open.len() < limits.max_connections {
            return Ok(false);
        }
        if limits.replace_idle && self.close_longest_idle() { Ok(true) } else { Err(NoRoom::Full) }
    }

    /// Registers a connection.
    pub(super) fn insert(&mut self, addr: SocketAddr, activity: Arc<Activity>, task: AbortHandle) {
        let peer = peer(addr);
        *self.of_peer.entry(peer).or_default() += 1;
        self.open.insert(task.id(), Slot { peer, activity, task });
    }

    /// Removes a connection that ended. One that was closed to make room is already removed.
    pub(super) fn remove(&mut self, task: Id) {
        let Some(slot) = self.open.remove(&task) else { return };
        if let Some(count) = self.of_peer.get_mut(&slot.peer) {
            *count -= 1;
            if *count == 0 {
                self.of_peer.remove(&slot.peer);
            }
        }
    }

    /// Closes the connection that has been idle for longest, if there is one.
    fn close_longest_idle(&mut self) -> bool {
        let idle = self.open.iter().filter_map(|(id, slot)| Some((slot.activity.idle_since()?, *id)));
        let Some((_, id)) = idle.min_by_key(|(since, _)| *since) else { return false };
        if let Some(slot) = self.open.get(&id) {
            slot.task.abort();
        }
        self.remove(id);
        true
    }
}

/// The address under which a peer is counted: without port, and the same for IPv4 and IPv4-mapped IPv6.
fn peer(addr: SocketAddr) -> IpAddr {
    addr.ip().to_canonical()
}
