//! Fake samplers, and the owner's reaction to them.

use std::process::{Child, Stdio};

use super::*;
use crate::message::{Event, Rights};
use crate::protocol::encode_event;

/// A process in place of the sampler that sends whatever the test wants.
struct FakeSampler {
    child: Child,
    socket: OwnedFd,
    receiving: Receiving,
}

fn fake() -> FakeSampler {
    let child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let (owner, socket) = socket::pair().unwrap();
    let wake = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK).unwrap();
    let stop_timeout = message::STOP_TIMEOUT;
    let shared = Arc::new(ReceiverState { checker: Mutex::default(), deadline: Mutex::default(), stop_timeout, wake });
    let process = PidFd::open(child.id()).unwrap();
    FakeSampler { child, socket, receiving: Receiving { socket: owner, process, shared } }
}

fn say(socket: &OwnedFd, bytes: &[u8]) {
    socket::send(socket.as_fd(), bytes, None).unwrap();
}

fn ready() -> Vec<u8> {
    encode_event(Event::Ready(Rights::default())).bytes
}

/// Guarantees: breaking any rule ends the sampler; correct events before that are delivered, and events after that are
/// not.
#[test]
fn nonsense_ends_the_sampler() {
    let lie = encode_event(Event::Detached { process: message::ProcessId(1), why: message::Detached::Exited }).bytes;
    for (nonsense, reason) in
        [(&b"\xff"[..], "decoded"), (&ready(), "second time"), (&lie, "not attached"), (&[0; 70_000], "64 KiB")]
    {
        let fake = fake();
        say(&fake.socket, &ready());
        say(&fake.socket, nonsense);
        say(&fake.socket, &ready());
        let mut received = 0;
        let ending = fake.receiving.run(&mut |_| received += 1);
        let Ending::Misbehaved(what) = &ending else { panic!("{ending:?}") };
        assert!(what.contains(reason), "{what}");
        assert_eq!(received, 1);
        // The exit status was collected, so the process has ended.
        assert!(fake.receiving.process.ended_within(Duration::ZERO));
        drop(fake.child);
    }
}

/// Guarantees: a sampler that does not stop when asked to is killed after its time limit, even if it sends nothing.
#[test]
fn a_sampler_that_does_not_stop_is_ended() {
    let fake = fake();
    fake.receiving.shared.note(&message::Command::Stop);
    assert_eq!(fake.receiving.run(&mut |_| ()), Ending::TimedOut);
    assert!(fake.receiving.process.ended_within(Duration::ZERO));
}

/// Guarantees: the exit code, or the signal, of a sampler that ends by itself is reported.
#[test]
fn how_it_ended() {
    let mut fake = fake();
    drop(fake.socket);
    drop(fake.child.stdin.take());
    assert_eq!(fake.receiving.run(&mut |_| ()), Ending::Exited(0));
    let fake = self::fake();
    drop(fake.socket);
    fake.receiving.process.signal(Signal::SIGTERM).unwrap();
    assert_eq!(fake.receiving.run(&mut |_| ()), Ending::Killed(15));
}
