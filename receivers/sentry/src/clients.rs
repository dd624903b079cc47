//! Finds the process on this machine that sent a request: the one that has the socket at the other end.
//!
//! Sentry's SDKs do not send their process id. On the loopback the kernel knows it: it reports the inode and the user
//! of the socket at the other end of a connection (`socket`; as a fallback `/proc/net/tcp` and `tcp6` list the sockets
//! of this network namespace, kernel.org `Documentation/networking/proc_net_tcp.rst`), and `/proc/PID/fd` shows which
//! process has it open (proc(5)). For processes of other users that needs the right to trace.

mod socket;
mod table;

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use profbridge_model::envelope::ClientProcess;

use self::socket::Socket;

/// At most this many descriptors of all processes are examined per connection; reading one takes a microsecond or two.
const MAX_DESCRIPTORS: usize = 500_000;

/// For how long a failed search is remembered.
const RETRY_FAILED_SEARCH_AFTER: Duration = Duration::from_secs(10);

/// A process that starts a program briefly shares its sockets with the child, until the child calls exec; the search
/// waits this long before it looks once more.
const EXEC_WAIT: Duration = Duration::from_millis(20);

/// `CAP_SYS_PTRACE` in the masks of `/proc/PID/status` (Linux, `capability.h`).
const SYS_PTRACE: u64 = 1 << 19;

/// Finds client processes. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Clients {
    proc: PathBuf,
    /// Whether to ask the kernel for sockets, which is right if `proc` is the real one.
    asks: bool,
}

/// A connection: the client's address and ours, if known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectionEnds {
    pub(crate) client: SocketAddr,
    pub(crate) own: Option<SocketAddr>,
}

/// The process at the other end of a connection, once it was looked up. Stored with the connection.
#[derive(Debug, Default)]
pub(crate) struct CachedOwner(Mutex<Option<LookupResult>>);

/// The result of a search, and its time.
#[derive(Debug)]
struct LookupResult {
    found: Option<SocketOwner>,
    since: Instant,
}

/// A process, and its descriptor of a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SocketOwner {
    process: ClientProcess,
    /// The descriptor's path, and its link target as long as it is the socket.
    descriptor: PathBuf,
    link: String,
}

impl SocketOwner {
    /// Whether the process still has the socket open: it may have passed it on and ended, and its id may be reused.
    fn is_still(&self) -> bool {
        fs::read_link(&self.descriptor).is_ok_and(|to| to.as_os_str() == self.link.as_str())
    }
}

/// The name of this machine, as processes on it send it.
pub(crate) fn host_name() -> Option<Arc<str>> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(Arc::from(name.trim())).filter(|name: &Arc<str>| !name.is_empty())
}

impl Default for Clients {
    fn default() -> Self {
        Self { asks: true, ..Self::of(PathBuf::from("/proc")) }
    }
}

impl Clients {
    fn of(proc: PathBuf) -> Self {
        Self { proc, asks: false }
    }

    /// Whether sockets of other users' processes can be examined, because this thread has the right to trace.
    pub(crate) fn sees_other_users(&self) -> bool {
        let status = fs::read_to_string(self.proc.join("thread-self/status")).unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & SYS_PTRACE != 0)
    }

    /// The known result for a connection; `None` if there is none, if a failed search is too old, or if the process no
    /// longer has the socket.
    pub(crate) fn known(&self, owner: &CachedOwner) -> Option<Option<ClientProcess>> {
        // A panic cannot leave the value inconsistent.
        let result = owner.0.lock().unwrap_or_else(PoisonError::into_inner);
        let LookupResult { found, since } = result.as_ref()?;
        match found {
            Some(found) => found.is_still().then(|| Some(found.process.clone())),
            None => (since.elapsed() < RETRY_FAILED_SEARCH_AFTER).then_some(None),
        }
    }

    /// Searches like [`Clients::process`], and stores the result. If no process has the socket any more, the last owner
    /// is kept.
    pub(crate) fn look_up(&self, owner: &CachedOwner, ends: ConnectionEnds) -> Option<ClientProcess> {
        let found = self.process(ends).or_else(|SharedSocket| {
            std::thread::sleep(EXEC_WAIT);
            self.process(ends)
        });
        let is_shared = found.is_err();
        let mut result = owner.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = result.take().and_then(|result| result.found).filter(|_| !is_shared);
        let found = found.unwrap_or_default().or(before);
        let process = found.as_ref().map(|found| found.process.clone());
        *result = Some(LookupResult { found, since: Instant::now() });
        process
    }

    /// The process at the other end of a connection; `None` if it is on another machine, has ended, or may not be
    /// examined. Reads the file descriptors of the processes that may have the socket.
    fn process(&self, ends: ConnectionEnds) -> Result<Option<SocketOwner>, SharedSocket> {
        let Some(Socket { inode, user }) = self.socket(ends) else { return Ok(None) };
        let link = format!("socket:[{inode}]");
        let Ok(processes) = fs::read_dir(&self.proc) else { return Ok(None) };
        let pids = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        // A process that was root when it made the socket may have another user by now. Folders of processes that
        // changed their user, or are not dumpable, belong to root (proc(5)).
        let may_have_it = |pid: &u32| {
            let is_of = |folder: fs::Metadata| [0, user].contains(&folder.uid());
            user == 0 || fs::metadata(self.proc.join(pid.to_string())).is_ok_and(is_of)
        };
        let (likely, others): (Vec<u32>, Vec<u32>) = pids.partition(may_have_it);
        let mut left = MAX_DESCRIPTORS;
        for pids in [likely, others] {
            let mut owners = pids.into_iter().filter_map(|pid| {
                let descriptor = descriptor(&self.proc.join(format!("{pid}/fd")), &link, &mut left)?;
                Some((pid, descriptor))
            });
            let Some((pid, descriptor)) = owners.next() else { continue };
            // A socket that was inherited by a fork does not show which process wrote to it.
            if owners.next().is_some() {
                return Err(SharedSocket);
            }
            let host = fs::read_to_string(self.proc.join("sys/kernel/hostname"));
            // If some descriptors were not examined, other processes may have the socket too.
            let host = host.ok().filter(|_| left > 0);
            let process = host.map(|host| ClientProcess { pid, host: Arc::from(host.trim()) });
            return Ok(process.map(|process| SocketOwner { process, descriptor, link }));
        }
        Ok(None)
    }

    /// The socket at the client's end.
    fn socket(&self, ConnectionEnds { client, own }: ConnectionEnds) -> Option<Socket> {
        match own.filter(|_| self.asks).map(|own| socket::connected(client, own)) {
            Some(Ok(found)) => found,
            Some(Err(_)) | None => table::connected(&self.proc, client, own),
        }
    }
}

/// Several processes have the socket.
#[derive(Debug, PartialEq, Eq)]
struct SharedSocket;

/// The path of the process's descriptor for a file, if it is among the next `left` descriptors. `None` without the
/// right to read them.
fn descriptor(descriptors: &Path, link: &str, left: &mut usize) -> Option<PathBuf> {
    for entry in fs::read_dir(descriptors).ok()?.flatten() {
        *left = left.checked_sub(1)?;
        if fs::read_link(entry.path()).is_ok_and(|to| to.as_os_str() == link) {
            return Some(entry.path());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, TcpListener, TcpStream};

    use super::*;

    /// Held during a search and while a program starts, because the new program briefly has the sockets of all tests.
    static STARTS: Mutex<()> = Mutex::new(());

    /// Guarantees: the client of a loopback connection is found by its socket, over IPv4, IPv6, and IPv4 through an
    /// IPv6 socket; an address without a socket has no owner.
    #[test]
    fn owners() {
        let _held = STARTS.lock().unwrap_or_else(PoisonError::into_inner);
        let clients = Clients::default();
        for (listen, connect) in [("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "::1"), ("127.0.0.1:0", "::ffff:127.0.0.1")]
        {
            let Ok(listener) = TcpListener::bind(listen) else {
                eprintln!("{listen} cannot be had here, not checked");
                continue;
            };
            let ip: IpAddr = connect.parse().unwrap();
            let stream = TcpStream::connect((ip, listener.local_addr().unwrap().port())).unwrap();
            let (accepted, peer) = listener.accept().unwrap();
            let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
            for own in [accepted.local_addr().ok(), None] {
                let client = clients.process(ConnectionEnds { client: peer, own }).unwrap().unwrap().process;
                assert_eq!(client.pid, std::process::id(), "{listen} {connect} {own:?}");
                assert_eq!(&*client.host, host.trim());
                let nobody = SocketAddr::new(peer.ip(), 1);
                assert_eq!(clients.process(ConnectionEnds { client: nobody, own }), Ok(None));
            }
            drop(stream);
        }
    }

    fn accept(listener: &TcpListener) -> (TcpStream, ConnectionEnds) {
        let (accepted, client) = listener.accept().unwrap();
        let own = accepted.local_addr().ok();
        (accepted, ConnectionEnds { client, own })
    }

    /// A fake `/proc` with a socket of inode 4711 and processes 10, 11 and 12, none of which has the socket open.
    fn proc(name: &str) -> PathBuf {
        let root = std::env::temp_dir().join(format!("profbridge-{name}-{}", std::process::id()));
        let row = "0: 0100007F:0016 0100007F:D3F2 01 0:0 0:0 0 0 0 4711 1";
        for folder in ["net", "sys/kernel", "10/fd", "11/fd", "12/fd", "self/fd"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        fs::write(root.join("net/tcp"), format!("head\n{row}\n")).unwrap();
        fs::write(root.join("sys/kernel/hostname"), "web\n").unwrap();
        root
    }

    /// Guarantees: a socket that two processes share, as after a fork, has no owner.
    #[test]
    #[cfg(target_endian = "little")]
    fn shared_sockets() {
        let root = proc("shared-sockets");
        std::os::unix::fs::symlink("socket:[4711]", root.join("10/fd/3")).unwrap();
        std::os::unix::fs::symlink("socket:[47110]", root.join("11/fd/3")).unwrap();
        let clients = Clients::of(root.clone());
        let client = ConnectionEnds { client: "127.0.0.1:22".parse().unwrap(), own: None };
        let found = clients.process(client).unwrap().unwrap();
        assert_eq!(found.process, ClientProcess { pid: 10, host: "web".into() });
        std::os::unix::fs::symlink("socket:[4711]", root.join("12/fd/9")).unwrap();
        assert_eq!(
            (clients.process(client), clients.look_up(&CachedOwner::default(), client)),
            (Err(SharedSocket), None)
        );
        fs::remove_dir_all(root).unwrap();
    }

    /// Guarantees: if a connection's socket is passed to another process, the new owner is found once the old one has
    /// closed it, even if its descriptor is another file by then; if no process has it, the last owner remains.
    #[test]
    #[cfg(target_endian = "little")]
    fn passed_sockets_are_followed() {
        let root = proc("handed-on");
        let link = |from: &str, to: &str| std::os::unix::fs::symlink(to, root.join(from)).unwrap();
        link("10/fd/3", "socket:[4711]");
        let (clients, owner) = (Clients::of(root.clone()), CachedOwner::default());
        let client = ConnectionEnds { client: "127.0.0.1:22".parse().unwrap(), own: None };
        let pid = |found: Option<ClientProcess>| found.map(|found| found.pid);
        assert_eq!(pid(clients.look_up(&owner, client)), Some(10));
        link("11/fd/5", "socket:[4711]");
        assert_eq!(clients.known(&owner).map(pid), Some(Some(10)), "as long as it has it");
        fs::remove_file(root.join("10/fd/3")).unwrap();
        link("10/fd/3", "socket:[4712]");
        assert_eq!(clients.known(&owner), None);
        assert_eq!(pid(clients.look_up(&owner, client)), Some(11));
        assert_eq!(clients.known(&owner).map(pid), Some(Some(11)));
        fs::remove_file(root.join("11/fd/5")).unwrap();
        assert_eq!((clients.known(&owner), pid(clients.look_up(&owner, client))), (None, Some(11)));
        fs::remove_dir_all(root).unwrap();
    }

    /// Guarantees: each connection is searched once, even if nothing is found.
    #[test]
    fn connections_are_remembered() {
        let _held = STARTS.lock().unwrap_or_else(PoisonError::into_inner);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (_accepted, peer) = accept(&listener);
        let (clients, owner, nobody) = (Clients::default(), CachedOwner::default(), CachedOwner::default());
        let own = std::process::id();
        assert_eq!(clients.known(&owner), None);
        assert_eq!(clients.look_up(&owner, peer).map(|client| client.pid), Some(own));
        assert_eq!(clients.clone().known(&owner).unwrap().map(|client| client.pid), Some(own));
        drop(stream);
        assert_eq!(clients.look_up(&owner, peer).map(|client| client.pid), Some(own), "though it is gone");
        let elsewhere = ConnectionEnds { client: "192.0.2.1:1".parse().unwrap(), ..peer };
        assert_eq!(clients.look_up(&nobody, elsewhere), None);
        assert_eq!(clients.known(&nobody), Some(None));
    }

    /// Starts a program of another user that connects to a port, next to `others` more processes; `None` without the
    /// right.
    fn of_user(user: u32, port: u16, others: u32) -> Option<std::process::Child> {
        use std::os::unix::process::CommandExt as _;
        use std::process::{Command, Stdio};

        let script = format!(
            "for n in $(seq {others}); do sleep 600 & done; exec 3<>/dev/tcp/127.0.0.1/{port}; read line; kill $(jobs -p) 2>&-"
        );
        let mut client = Command::new("bash");
        client.args(["-c", &script]).stdin(Stdio::piped()).current_dir("/").uid(user);
        client.spawn().ok()
    }

    /// Guarantees: with the right to trace, a client of another user is found, given both ends of the connection or
    /// only the client's; without it `sees_other_users` is false.
    #[test]
    fn other_users() {
        let _held = STARTS.lock().unwrap_or_else(PoisonError::into_inner);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let Some(mut client) = of_user(65_534, listener.local_addr().unwrap().port(), 0) else {
            eprintln!("not root, or there is no bash: not checked");
            return;
        };
        let (_accepted, ends) = accept(&listener);
        let clients = Clients::default();
        for own in [ends.own, None] {
            let found = clients.process(ConnectionEnds { own, ..ends }).unwrap().map(|found| found.process.pid);
            assert_eq!(found, clients.sees_other_users().then_some(client.id()));
        }
        drop(client.stdin.take());
        client.wait().unwrap();
    }

    /// Prints the cost of the first and of later searches among 300 processes of another user: for a client of that
    /// user, of a third one, and of this user.
    #[test]
    #[ignore = "measures"]
    fn cost() {
        const TIMES: u32 = 50;
        let _held = STARTS.lock().unwrap_or_else(PoisonError::into_inner);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let others =
            [("of 300", 65_534, 300), ("of another user", 65_533, 0)].into_iter().filter_map(|(whose, user, count)| {
                let program = of_user(user, port, count)?;
                Some((whose, accept(&listener), Some(program)))
            });
        let others: Vec<_> = others.collect();
        let _stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let clients = Clients::default();
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let processes =
            processes.filter(|entry| entry.file_name().to_str().is_some_and(|name| name.parse::<u32>().is_ok()));
        let count = processes.count();
        for (whose, (_accepted, ends), program) in [("of this user", accept(&listener), None)].into_iter().chain(others)
        {
            for (how, own) in [("asked of the kernel", ends.own), ("read from the table", None)] {
                let (owner, ends) = (CachedOwner::default(), ConnectionEnds { own, ..ends });
                let start = Instant::now();
                (0..TIMES).for_each(|_| assert!(clients.look_up(&owner, ends).is_some()));
                let first = start.elapsed() / TIMES;
                let start = Instant::now();
                (0..TIMES).for_each(|_| assert!(clients.known(&owner).is_some()));
                let then = start.elapsed() / TIMES;
                let start = Instant::now();
                (0..TIMES).for_each(|_| assert!(clients.socket(ends).is_some()));
                let socket = start.elapsed() / TIMES;
                eprintln!(
                    "{count} processes, one {whose}, {how}: {first:?} for a connection, of it {socket:?} for the socket; {then:?} for \
                     each request then"
                );
            }
            if let Some(mut program) = program {
                drop(program.stdin.take());
                program.wait().unwrap();
            }
        }
    }
}
