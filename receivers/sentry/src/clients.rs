//! Which process of this machine has sent a request: the one that has the socket at the other end.
//!
//! Sentry's SDKs do not say from which process they send. On the loopback the kernel knows: it tells the inode and the
//! user of the socket that a connection has at its other end (`socket`; where it does not, `/proc/net/tcp` and `tcp6`
//! list the sockets of this network namespace, kernel.org `Documentation/networking/proc_net_tcp.rst`), and
//! `/proc/PID/fd` who has it open (proc(5)). The latter takes the right to trace for processes of other users.

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

/// So many descriptors of all processes are looked at for a connection; reading one takes a microsecond or two.
const MOST_DESCRIPTORS: usize = 500_000;

/// For how long it is remembered that nobody was found.
const NOBODY: Duration = Duration::from_secs(10);

/// Who starts another program shares its sockets with it for a moment, until that is executed; so long it is waited
/// before they are looked at once more.
const STARTING: Duration = Duration::from_millis(20);

/// `CAP_SYS_PTRACE` in the masks of `/proc/PID/status` (Linux, `capability.h`).
const SYS_PTRACE: u64 = 1 << 19;

/// Finds clients. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Clients {
    proc: PathBuf,
    /// Whether the kernel is asked for sockets, as is right where `proc` is the kernel's.
    asks: bool,
}

/// A connection: the client's end and ours, where that is known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ends {
    pub(crate) client: SocketAddr,
    pub(crate) own: Option<SocketAddr>,
}

/// Who has the socket at the other end of a connection, as far as that was looked for. It is kept with the connection.
#[derive(Debug, Default)]
pub(crate) struct Owner(Mutex<Option<Looked>>);

/// What was found, and when.
#[derive(Debug)]
struct Looked {
    found: Option<Found>,
    since: Instant,
}

/// A process, and its descriptor of a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Found {
    process: ClientProcess,
    /// The descriptor, and where its link leads while it is that of the socket.
    descriptor: PathBuf,
    link: String,
}

impl Found {
    /// Whether the process still has the socket there: it may have handed it on and ended, and its id be another's.
    fn is_still(&self) -> bool {
        fs::read_link(&self.descriptor).is_ok_and(|to| to.as_os_str() == self.link.as_str())
    }
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

    /// Whether sockets of other users' processes can be looked at: this thread has the right to trace.
    pub(crate) fn sees_other_users(&self) -> bool {
        let status = fs::read_to_string(self.proc.join("thread-self/status")).unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & SYS_PTRACE != 0)
    }

    /// What was found out about a connection; `None` where it was not looked at, or a while ago and nobody was found,
    /// or who was found has it no more.
    pub(crate) fn known(&self, owner: &Owner) -> Option<Option<ClientProcess>> {
        // Whole after every statement that may panic.
        let looked = owner.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Looked { found, since } = looked.as_ref()?;
        match found {
            Some(found) => found.is_still().then(|| Some(found.process.clone())),
            None => (since.elapsed() < NOBODY).then_some(None),
        }
    }

    /// Finds out, as [`Clients::process`] does, and remembers it. Where nobody has the socket any more, it is who had
    /// it.
    pub(crate) fn look_up(&self, owner: &Owner, ends: Ends) -> Option<ClientProcess> {
        let found = self.process(ends).or_else(|Several| {
            std::thread::sleep(STARTING);
            self.process(ends)
        });
        let is_shared = found.is_err();
        let mut looked = owner.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = looked.take().and_then(|looked| looked.found).filter(|_| !is_shared);
        let found = found.unwrap_or_default().or(before);
        let process = found.as_ref().map(|found| found.process.clone());
        *looked = Some(Looked { found, since: Instant::now() });
        process
    }

    /// The process at the other end of a connection; `None` where it is of another machine, has gone, or may not be
    /// looked at. Reads the file descriptors of the processes that may have it.
    fn process(&self, ends: Ends) -> Result<Option<Found>, Several> {
        let Some(Socket { inode, user }) = self.socket(ends) else { return Ok(None) };
        let link = format!("socket:[{inode}]");
        let Ok(processes) = fs::read_dir(&self.proc) else { return Ok(None) };
        let pids = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        // Who was root when it made the socket may be anybody by now. Root's are also the folders of those who changed
        // their user, or may not be dumped (proc(5)).
        let may_have_it = |pid: &u32| {
            let is_of = |folder: fs::Metadata| [0, user].contains(&folder.uid());
            user == 0 || fs::metadata(self.proc.join(pid.to_string())).is_ok_and(is_of)
        };
        let (likely, others): (Vec<u32>, Vec<u32>) = pids.partition(may_have_it);
        let mut left = MOST_DESCRIPTORS;
        for pids in [likely, others] {
            let mut owners = pids.into_iter().filter_map(|pid| {
                let descriptor = descriptor(&self.proc.join(format!("{pid}/fd")), &link, &mut left)?;
                Some((pid, descriptor))
            });
            let Some((pid, descriptor)) = owners.next() else { continue };
            // A socket that was handed on with a fork says nothing about who wrote into it.
            if owners.next().is_some() {
                return Err(Several);
            }
            let host = fs::read_to_string(self.proc.join("sys/kernel/hostname"));
            // Where not all were looked at, others may have it as well.
            let host = host.ok().filter(|_| left > 0);
            let process = host.map(|host| ClientProcess { pid, host: Arc::from(host.trim()) });
            return Ok(process.map(|process| Found { process, descriptor, link }));
        }
        Ok(None)
    }

    /// The socket at the client's end.
    fn socket(&self, Ends { client, own }: Ends) -> Option<Socket> {
        match own.filter(|_| self.asks).map(|own| socket::connected(client, own)) {
            Some(Ok(found)) => found,
            Some(Err(_)) | None => table::connected(&self.proc, client, own),
        }
    }
}

/// Several processes have the socket.
#[derive(Debug, PartialEq, Eq)]
struct Several;

/// The descriptor by which a process has a file open, among those that are `left` to look at. Without the right to look
/// there is none.
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

    /// Held by who looks, and by who starts a program, which has the sockets of all tests for a moment.
    static STARTS: Mutex<()> = Mutex::new(());

    /// Guarantees: the client of a connection on the loopback is found by the socket's owner, over IPv4, IPv6, and IPv4
    /// through a socket of IPv6; an address that no socket has is nobody's.
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
                let client = clients.process(Ends { client: peer, own }).unwrap().unwrap().process;
                assert_eq!(client.pid, std::process::id(), "{listen} {connect} {own:?}");
                assert_eq!(&*client.host, host.trim());
                let nobody = SocketAddr::new(peer.ip(), 1);
                assert_eq!(clients.process(Ends { client: nobody, own }), Ok(None));
            }
            drop(stream);
        }
    }

    /// The next connection, and its ends.
    fn accept(listener: &TcpListener) -> (TcpStream, Ends) {
        let (accepted, client) = listener.accept().unwrap();
        let own = accepted.local_addr().ok();
        (accepted, Ends { client, own })
    }

    /// A `/proc` with a socket of inode 4711 and processes 10, 11 and 12, none of which has it.
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

    /// Guarantees: a socket that two processes have, as after a fork, is of neither.
    #[test]
    #[cfg(target_endian = "little")]
    fn shared_sockets() {
        let root = proc("shared-sockets");
        std::os::unix::fs::symlink("socket:[4711]", root.join("10/fd/3")).unwrap();
        std::os::unix::fs::symlink("socket:[47110]", root.join("11/fd/3")).unwrap();
        let clients = Clients::of(root.clone());
        let client = Ends { client: "127.0.0.1:22".parse().unwrap(), own: None };
        let found = clients.process(client).unwrap().unwrap();
        assert_eq!(found.process, ClientProcess { pid: 10, host: "web".into() });
        std::os::unix::fs::symlink("socket:[4711]", root.join("12/fd/9")).unwrap();
        assert_eq!((clients.process(client), clients.look_up(&Owner::default(), client)), (Err(Several), None));
        fs::remove_dir_all(root).unwrap();
    }

    /// Guarantees: of a connection that was handed on it is known who has it now, once who had it before does no more,
    /// also where that one's descriptor is another file's by then; where nobody has it, it is who had it last.
    #[test]
    #[cfg(target_endian = "little")]
    fn handed_on() {
        let root = proc("handed-on");
        let link = |from: &str, to: &str| std::os::unix::fs::symlink(to, root.join(from)).unwrap();
        link("10/fd/3", "socket:[4711]");
        let (clients, owner) = (Clients::of(root.clone()), Owner::default());
        let client = Ends { client: "127.0.0.1:22".parse().unwrap(), own: None };
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

    /// Guarantees: who is at the other end of a connection is looked for once, also where nobody is found.
    #[test]
    fn connections_are_remembered() {
        let _held = STARTS.lock().unwrap_or_else(PoisonError::into_inner);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (_accepted, peer) = accept(&listener);
        let (clients, owner, nobody) = (Clients::default(), Owner::default(), Owner::default());
        let own = std::process::id();
        assert_eq!(clients.known(&owner), None);
        assert_eq!(clients.look_up(&owner, peer).map(|client| client.pid), Some(own));
        assert_eq!(clients.clone().known(&owner).unwrap().map(|client| client.pid), Some(own));
        drop(stream);
        assert_eq!(clients.look_up(&owner, peer).map(|client| client.pid), Some(own), "though it is gone");
        let elsewhere = Ends { client: "192.0.2.1:1".parse().unwrap(), ..peer };
        assert_eq!(clients.look_up(&nobody, elsewhere), None);
        assert_eq!(clients.known(&nobody), Some(None));
    }

    /// A program of another user that connects to a port, with so many others beside it; `None` without the right.
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

    /// Guarantees: a client of another user is found by who has the right to trace, asked for with both ends of the
    /// connection or with the client's alone; else that is known beforehand.
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
            let found = clients.process(Ends { own, ..ends }).unwrap().map(|found| found.process.pid);
            assert_eq!(found, clients.sees_other_users().then_some(client.id()));
        }
        drop(client.stdin.take());
        client.wait().unwrap();
    }

    /// Prints what it costs to find a client the first time, and afterwards, beside 300 processes of a user: a client
    /// of that user, one of another, and one of this user.
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
                let (owner, ends) = (Owner::default(), Ends { own, ..ends });
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
