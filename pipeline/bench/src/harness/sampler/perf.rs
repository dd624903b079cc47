//! `perf record` on a target, and what its recording says: the reference that figures stand beside.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::super::Error;

/// How long it may take until its events are open.
const START: Duration = Duration::from_secs(10);

/// How long it may take to write what it has.
const END: Duration = Duration::from_secs(20);

/// The kernel's half of the address space.
const KERNEL: u64 = 1 << 63;

/// A `perf record` that runs until this is dropped.
#[derive(Debug)]
pub(super) struct Perf {
    child: Child,
    data: PathBuf,
}

impl Perf {
    /// Whether there is one that works on this kernel.
    pub(super) fn works() -> bool {
        let mut command = Command::new("perf");
        command.args(["record", "-q", "-e", "cpu-clock", "-o", "/dev/null", "true"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }

    /// Starts one for all threads of a process, with the kernel's call chains, and returns once it records. Its file is
    /// in `folder`.
    pub(super) fn start(folder: &Path, pid: u32, rate_hertz: f64, chain: &str) -> Result<Self, Error> {
        Self::start_on(folder, &["-p", &pid.to_string()], rate_hertz, chain)
    }

    /// Starts one with events of the processors. Events of threads are no reference for shares of a process that is
    /// switched thousands of times a second: they lengthen each switch, and a timer that was due when a thread was
    /// switched away fires when it is switched to, within the kernel's switch.
    pub(super) fn start_everywhere(folder: &Path, rate_hertz: f64) -> Result<Self, Error> {
        Self::start_on(folder, &["-a"], rate_hertz, "fp")
    }

    fn start_on(folder: &Path, subject: &[&str], rate_hertz: f64, chain: &str) -> Result<Self, Error> {
        let data = folder.join("perf.data");
        // The file of the one before would say that this one had started.
        fs::remove_file(&data).ok();
        let mut command = Command::new("perf");
        command.args(["record", "-q", "-e", "cpu-clock", "-F", &rate_hertz.to_string(), "--call-graph", chain]);
        command.args(subject).arg("-o").arg(&data);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut perf = Self { child: child.map_err(|error| format!("perf: {error}"))?, data };
        let end = Instant::now() + START;
        // It writes the header of its file after it has opened its events.
        while fs::metadata(&perf.data).map_or(0, |data| data.len()) == 0 {
            if perf.child.try_wait()?.is_some() || Instant::now() > end {
                return Err(format!("{command:?} does not record").into());
            }
            thread::sleep(Duration::from_millis(20));
        }
        thread::sleep(Duration::from_millis(200));
        Ok(perf)
    }

    /// Its process id.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it, and returns its file.
    pub(super) fn finish(mut self) -> Result<Recording, Error> {
        kill(Pid::from_raw(i32::try_from(self.pid())?), Signal::SIGINT)?;
        let end = Instant::now() + END;
        while self.child.try_wait()?.is_none() {
            if Instant::now() > end {
                return Err("perf record does not end".into());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(Recording { data: self.data.clone() })
    }
}

impl Drop for Perf {
    fn drop(&mut self) {
        // It has ended already, or is asked to end.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// What `perf record` wrote.
#[derive(Debug)]
pub(super) struct Recording {
    data: PathBuf,
}

impl Recording {
    /// How many samples there are of a process by the innermost function of the program, whose code ran or called into
    /// the kernel.
    pub(super) fn functions(&self, pid: u32) -> Result<HashMap<String, u64>, Error> {
        let mut command = Command::new("perf");
        command.args(["script", "--pid", &pid.to_string(), "--no-inline", "-F", "ip,sym,dso", "-i"]).arg(&self.data);
        let output = command.output()?;
        if !output.status.success() {
            return Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)).into());
        }
        Ok(functions(&String::from_utf8_lossy(&output.stdout)))
    }

    /// How many samples the kernel had no room for.
    pub(super) fn lost(&self) -> Result<u64, Error> {
        let output = Command::new("perf").args(["report", "--stats", "-i"]).arg(&self.data).output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let events = |name: &str| {
            let line = text.lines().find_map(|line| line.trim().strip_prefix(name));
            line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0)
        };
        Ok(events("LOST events:") + events("LOST_SAMPLES events:"))
    }
}

/// Reads what `perf script -F ip,sym,dso` printed: samples apart by empty lines, the innermost function first.
fn functions(script: &str) -> HashMap<String, u64> {
    let mut functions = HashMap::new();
    for sample in script.split("\n\n").filter(|sample| !sample.trim().is_empty()) {
        let innermost = sample.lines().filter_map(frame).find(|(address, _)| *address < KERNEL);
        *functions.entry(innermost.map_or_else(|| "[kernel]".to_owned(), |(_, name)| name)).or_default() += 1;
    }
    functions
}

/// A line with an address, a function and, in brackets, a file: the address and the name; where there is none, that of
/// the file.
fn frame(line: &str) -> Option<(u64, String)> {
    let (address, rest) = line.trim().split_once(' ')?;
    let (function, file) = rest.rsplit_once(" (")?;
    let function = function.trim().split('@').next().unwrap_or_default();
    let file = file.trim_end_matches(')').rsplit('/').next().unwrap_or_default();
    let name = if function == "[unknown]" || file == "[vdso]" { nameless(file) } else { function.to_owned() };
    Some((u64::from_str_radix(address, 16).ok()?, name))
}

/// What code of a file is called that has no name. The vDSO's functions have several each, and count as one.
pub(super) fn nameless(file: &str) -> String {
    format!("[{}]", file.trim_matches(['[', ']']))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: a sample counts for the innermost function of the program, in the kernel as well; code without a
    /// name for its file.
    #[test]
    fn scripts() {
        let script = "\
\tffffffff81000010 do_epoll_wait ([kernel.kallsyms])
\t    7f0000001234 epoll_wait@@GLIBC_2.3.2 (/usr/lib/libc.so.6)
\t    7f0000009999 other (/usr/lib/libc.so.6)

            1218 work<int (*)(int)> (/tmp/a b/duty)
               0 [unknown] ([unknown])

            1300 [unknown] (/usr/bin/stripped)

    7fff00000001 __vdso_clock_gettime ([vdso])

ffffffff81000010 ret_from_fork ([kernel.kallsyms])

            1218 work<int (*)(int)> (/tmp/a b/duty)

";
        let mut functions: Vec<_> = functions(script).into_iter().collect();
        functions.sort();
        let expected =
            [("[kernel]", 1), ("[stripped]", 1), ("[vdso]", 1), ("epoll_wait", 1), ("work<int (*)(int)>", 2)];
        assert_eq!(functions, expected.map(|(name, count)| (name.to_owned(), count)));
    }
}
