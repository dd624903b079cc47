//! The children of processes, as `/proc/PID/task/TID/children` lists them (`CONFIG_PROC_CHILDREN`).

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Read;
use std::time::Duration;

use nix::unistd::{SysconfVar, sysconf};

use crate::probe::parse_stat;

/// How much of a list of children is read, in bytes: enough for a thousand.
const LIST: u64 = 8 << 10;

/// The maximum number of a process's threads whose children are listed.
const THREADS: usize = 64;

/// System calls in which a process waits for a child. `timeout` waits in sigsuspend(2), since its own time limit is a
/// signal as well.
const WAITS: [libc::c_long; 3] = [libc::SYS_wait4, libc::SYS_waitid, libc::SYS_rt_sigsuspend];

/// How many descendants of a process are examined.
const DESCENDANTS: usize = 1024;

/// The CPU time used by a process and its children, at one moment.
#[derive(Debug, Default)]
pub struct DescendantsTime {
    own: u64,
    /// The living children by id: the name, and the clock ticks used by the child itself and by its own reaped
    /// children.
    living: HashMap<u32, (String, u64)>,
    /// The clock ticks used by children that the process itself has reaped.
    reaped: u64,
}

impl DescendantsTime {
    /// Reads the CPU times; empty if the process has ended.
    pub fn read(pid: u32) -> Self {
        let (_, own, reaped) = ticks(pid).unwrap_or_default();
        let mut of = Self { own, reaped, ..Self::default() };
        let mut waiting = children(pid);
        while let Some(pid) = waiting.pop().filter(|_| of.living.len() < DESCENDANTS) {
            if let Some((name, own, reaped)) = ticks(pid)
                && of.living.insert(pid, (name, own.saturating_add(reaped))).is_none()
            {
                waiting.extend(children(pid));
            }
        }
        of
    }

    /// The CPU time that the process itself used since `before`.
    pub fn own_since(&self, before: &Self) -> Duration {
        duration(self.own.saturating_sub(before.own))
    }

    /// The CPU time that children used since `before`, and the living ones that used any, most first.
    pub fn since(&self, before: &Self) -> (Duration, Vec<(u32, String)>) {
        let used = |(pid, (_, now)): (&u32, &(String, u64))| {
            now.saturating_sub(before.living.get(pid).map_or(0, |(_, before)| *before))
        };
        let living: u64 = self.living.iter().map(used).sum();
        // CPU time that was counted before for children that were reaped meanwhile.
        let gone = before.living.iter().filter(|(pid, _)| !self.living.contains_key(pid));
        let gone: u64 = gone.map(|(_, (_, ticks))| *ticks).sum();
        let reaped = self.reaped.saturating_sub(before.reaped).saturating_sub(gone);
        let mut busy: Vec<_> = self.living.iter().map(|of| (used(of), *of.0, of.1.0.clone())).collect();
        busy.retain(|(used, ..)| *used > 0);
        busy.sort_by_key(|(used, pid, _)| (std::cmp::Reverse(*used), *pid));
        let time = duration(living.saturating_add(reaped));
        (time, busy.into_iter().map(|(_, pid, name)| (pid, name)).collect())
    }
}

/// The duration of clock ticks.
fn duration(ticks: u64) -> Duration {
    let a_second = sysconf(SysconfVar::CLK_TCK).ok().flatten().and_then(|ticks| u64::try_from(ticks).ok());
    Duration::from_millis(ticks.saturating_mul(1000) / a_second.unwrap_or(100).max(1))
}

/// The name of a process, the clock ticks it used, and those used by its reaped children.
fn ticks(pid: u32) -> Option<(String, u64, u64)> {
    let line = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = parse_stat(&line)?;
    let name =
        line.get(line.iter().position(|byte| *byte == b'(')? + 1..line.iter().rposition(|byte| *byte == b')')?)?;
    let (own, reaped) = (stat.processor, stat.reaped);
    Some((String::from_utf8_lossy(name).into_owned(), own.user + own.kernel, reaped.user + reaped.kernel))
}

/// The children of a process; none if the kernel does not list them.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let mut children = Vec::new();
    for thread in threads(pid) {
        children.extend(list(pid, thread));
    }
    children
}

/// The children that a process waits for, if its only thread is in one of the `WAITS`, as in `timeout`, `time` and
/// shells. None if the kernel does not show the system call.
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

    /// Starts a shell with a child that waits for standard input, and returns when the child has reported that it runs.
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

    /// Guarantees: a shell that waits for its one child, or for two, is recognized; one that works itself is not, nor
    /// is a process without children.
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

    /// Guarantees: the CPU time of children since a moment includes living and reaped ones; busy children are named,
    /// most first.
    #[test]
    fn time_of_children() {
        let at = |reaped, living: &[(u32, u64)]| DescendantsTime {
            own: reaped / 10,
            living: living.iter().map(|&(pid, ticks)| (pid, (format!("child{pid}"), ticks))).collect(),
            reaped,
        };
        let tick = Duration::from_secs(1) / sysconf(SysconfVar::CLK_TCK).unwrap().unwrap() as u32;
        let before = at(100, &[(7, 50), (8, 1_000), (9, 5)]);
        let (time, busy) = at(1_130, &[(7, 70), (9, 5), (10, 90)]).since(&before);
        // 20 and 90 ticks of the living children, and 30 of the reaped one.
        assert_eq!(time, tick * 140);
        assert_eq!(at(1_130, &[]).own_since(&before), tick * 103);
        assert_eq!(busy, [(10, "child10".to_owned()), (7, "child7".to_owned())]);
        assert_eq!(DescendantsTime::read(u32::MAX).since(&before), (Duration::ZERO, vec![]));
        let reads = shell("exec 3<&0; cat <&3 & echo ready; read line");
        let living = DescendantsTime::read(reads.id()).living;
        assert_eq!(living.keys().copied().collect::<Vec<_>>(), children(reads.id()));
        end(reads);
    }
}
