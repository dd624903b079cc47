//! The command line of the sampler process.

use std::ffi::OsString;

use super::*;

fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

/// Guarantees: the sampler parses the arguments that the owner writes.
#[test]
fn arguments_come_back() {
    for (realtime, commands) in [(false, true), (true, false)] {
        let arguments = Arguments { socket: 5, owner: 77, realtime, commands };
        let written: Vec<OsString> = arguments.to_words().into_iter().map(OsString::from).collect();
        assert_eq!(Arguments::from_words(&written), Some(Ok(arguments)));
    }
}

/// Guarantees: an ordinary start of the host program is not mistaken for a sampler, whatever its arguments are.
#[test]
fn no_sampler_without_the_marker() {
    assert_eq!(Arguments::from_words(&[]), None);
    assert_eq!(Arguments::from_words(&words(&["run", "--config", "config.yaml"])), None);
    assert_eq!(Arguments::from_words(&words(&["run", MARKER])), None);
}

/// Guarantees: starting a sampler by hand gives an error, and no standard stream is used as the socket.
#[test]
fn refuses_what_the_owner_never_writes() {
    for wrong in [
        &[MARKER][..],
        &[MARKER, "3"],
        &[MARKER, "3", "1"],
        &[MARKER, "0", "1", "nice", "attach"],
        &[MARKER, "2", "1", "nice", "attach"],
        &[MARKER, "-1", "1", "nice", "attach"],
        &[MARKER, "3", "x", "nice", "attach"],
        &[MARKER, "3", "1", "fast", "attach"],
        &[MARKER, "3", "1", "nice", "attach", "more"],
        &[MARKER, "3", "1", "nice"],
        &[MARKER, "3", "1", "nice", "more"],
    ] {
        assert!(matches!(Arguments::from_words(&words(wrong)), Some(Err(_))), "{wrong:?}");
    }
}

/// Guarantees: a descriptor that is not a packet socket is rejected, and stays open for its real user.
#[test]
fn takes_only_a_packet_socket() {
    use std::os::fd::AsRawFd;
    let file = tempfile::tempfile().unwrap();
    assert!(take_socket(file.as_raw_fd()).is_err());
    assert!(file.metadata().is_ok());
    let (stream, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    assert!(take_socket(stream.as_raw_fd()).is_err());
}
