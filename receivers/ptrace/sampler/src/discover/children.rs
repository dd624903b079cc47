//! The children of processes, as `/proc/PID/task/TID/children` lists them (`CONFIG_PROC_CHILDREN`).

use std::fs::{self, File};
use std::io::Read;

/// How much of a list of children is read, in bytes: enough for a thousand.
const LIST: u64 = 8 << 10;

/// How many threads of a process are asked for their children.
const THREADS: usize = 64;

/// System calls in which a process waits for a child. `timeout` waits in sigsuspend(2), since its own time limit is a
/// signal as well.
const WAITS: [libc::c_long; 3] = [libc::SYS_wait4, libc::SYS_waitid, libc::SYS_rt_sigsuspend];

/// The children of a process; none where the kernel does not list them.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let mut children = Vec::new();
    for thread in threads(pid) {
        children.extend(list(pid, thread));
    }
    children
}

/// The children that a process waits for, if it has one thread, which is in such a system call, as that of `timeout`,
/// `time` and shells is. None as well if the kernel does not let the caller see that.
pub fn awaited_children(pid: u32) -> Vec<u32> {
    let [thread] = threads(pid)[..] else { return Vec::new() };
    let children = list(pid, thread);
    if children.is_empty() || !is_waiting(pid) {
        return Vec::new();
    }
    children
}

fn is_waiting(pid: u32) -> bool {
    let Ok(call) = fs::read_to_string(format!("/proc/{pid}/syscall")) else { return false };
    let number = call.split_whitespace().next().and_then(|word| word.parse::<libc::c_long>().ok());
    number.is_some_and(|number| WAITS.contains(&number))
}

fn threads(pid: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let ids = entries.flatten().filter_map(|entry| entry.file_name().to_str().and_then(|name| name.parse().ok()));
    ids.take(THREADS).collect()
}

fn list(pid: u32, thread: u32) -> Vec<u32> {
    let mut text = String::new();
    let read = File::open(format!("/proc/{pid}/task/{thread}/children"))
        .and_then(|file| file.take(LIST).read_to_string(&mut text));
    match read {
        Ok(_) => text.split_whitespace().filter_map(|word| word.parse().ok()).collect(),
        Err(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    use super::*;

    /// A shell with a child that waits for standard input; the child has said that it is there.
    fn shell(script: &str) -> Child {
        let mut shell =
            Command::new("/bin/sh").args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(shell.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        shell
    }

    fn end(mut shell: Child) {
        drop(shell.stdin.take());
        shell.wait().unwrap();
    }

    /// Guarantees: a shell that waits for its one child, or for two, is known to; one that does something else itself
    /// is not; nor is a process without children.
    #[test]
    fn who_waits_for_whom() {
        let waits = shell("(echo ready; cat); true");
        let deadline = Instant::now() + Duration::from_secs(60);
        let child = loop {
            if let [child] = awaited_children(waits.id())[..] {
                break child;
            }
            assert!(Instant::now() < deadline, "children {:?}", children(waits.id()));
            std::thread::yield_now();
        };
        assert_eq!(children(waits.id()), [child]);
        let reads = shell("exec 3<&0; cat <&3 & echo ready; read line");
        assert_eq!((children(reads.id()).len(), awaited_children(reads.id()).len()), (1, 0));
        let two = shell("exec 3<&0; cat <&3 & cat <&3 & echo ready; wait");
        assert_eq!(children(two.id()).len(), 2);
        while awaited_children(two.id()).len() != 2 {
            assert!(Instant::now() < deadline, "children {:?}", children(two.id()));
            std::thread::yield_now();
        }
        assert_eq!((children(child).len() < 2, awaited_children(u32::MAX).len()), (true, 0));
        [waits, reads, two].into_iter().for_each(end);
    }
}
