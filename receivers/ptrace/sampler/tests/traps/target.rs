//! A target program that runs.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// The time limit for a target's answers.
const PATIENCE: Duration = Duration::from_secs(120);

/// A process that is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct RunningTarget {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    described: String,
}

impl RunningTarget {
    /// Starts a program and waits until it prints "ready".
    pub(crate) fn start(program: &Path, arguments: &[&str]) -> Self {
        Self::ready(Command::new(program).args(arguments))
    }

    /// Starts a shell script and waits until it prints "ready".
    pub(crate) fn shell(script: &str) -> Self {
        Self::start(Path::new("/bin/sh"), &["-c", script])
    }

    /// Starts a command and waits until it prints "ready".
    pub(crate) fn ready(command: &mut Command) -> Self {
        let mut target = Self::launch(command);
        target.wait_for("ready");
        target
    }

    /// Starts a command without waiting for its output.
    pub(crate) fn launch(command: &mut Command) -> Self {
        use std::os::unix::process::CommandExt;
        // In its own process group: signals from a terminal's keys reach only this process, and those that stop
        // processes do stop it.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let described = format!("{command:?}");
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{described}: {error}"));
        let (sender, lines) = channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self { input: child.stdin.take(), child, lines, described }
    }

    /// Waits for a line that begins with `start`, and returns the rest of it.
    pub(crate) fn wait_for(&mut self, start: &str) -> String {
        loop {
            let line = self.line();
            if let Some(rest) = line.strip_prefix(start) {
                return rest.trim().to_owned();
            }
        }
    }

    /// The next line that the target prints.
    pub(crate) fn line(&mut self) -> String {
        self.lines.recv_timeout(PATIENCE).unwrap_or_else(|error| panic!("{} says nothing: {error}", self.described))
    }

    /// The lines before the line `last`.
    pub(crate) fn lines_until(&mut self, last: &str) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            match self.line() {
                line if line == last => return lines,
                line => lines.push(line),
            }
        }
    }

    /// Writes a line to the target's input.
    pub(crate) fn say(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Sends the target an empty line, and returns the number that follows `name` in its answer.
    pub(crate) fn ask(&mut self, name: &str) -> u64 {
        self.say("");
        let line = self.line();
        let words: Vec<&str> = line.split(' ').collect();
        let place = words.iter().position(|word| *word == name).unwrap_or_else(|| panic!("no {name} in {line:?}"));
        words[place + 1].parse().unwrap()
    }

    /// Asks until the number is larger than `least`: how long that takes depends on the machine's load.
    pub(crate) fn ask_until(&mut self, name: &str, least: u64) {
        let end = Instant::now() + PATIENCE;
        while self.ask(name) <= least {
            assert!(Instant::now() < end, "{} does not get to {least} {name}", self.described);
        }
    }

    /// Asserts that the target's counter `work` still grows.
    pub(crate) fn works(&mut self) {
        let (before, end) = (self.ask("work"), Instant::now() + PATIENCE);
        while self.ask("work") == before {
            assert!(Instant::now() < end, "{} does not go on", self.described);
        }
    }

    /// The process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to the target.
    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.nix_pid(), signal).unwrap();
    }

    /// The process id as the type of the crate `nix`.
    pub(crate) fn nix_pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.pid()).unwrap())
    }

    /// Whether the process still runs.
    pub(crate) fn lives(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Kills the process and waits for its end.
    pub(crate) fn end(&mut self) {
        // It may have ended already.
        self.child.kill().ok();
        self.child.wait().unwrap();
    }
}

impl Drop for RunningTarget {
    fn drop(&mut self) {
        self.input.take();
        self.end();
    }
}
