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

/// A process that runs until this is dropped.
#[derive(Debug)]
pub(crate) struct RunningTarget {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    described: String,
}

impl RunningTarget {
    /// Starts a program and waits until it says "ready".
    pub(crate) fn start(program: &Path, arguments: &[&str]) -> Self {
        Self::ready(Command::new(program).args(arguments))
    }

    /// Starts a script of the shell and waits until it says "ready".
    pub(crate) fn shell(script: &str) -> Self {
        Self::start(Path::new("/bin/sh"), &["-c", script])
    }

    /// Starts a command and waits until it says "ready".
    pub(crate) fn ready(command: &mut Command) -> Self {
        let mut target = Self::launch(command);
        target.wait_for("ready");
        target
    }

    /// Starts a command, whatever it says first.
    pub(crate) fn launch(command: &mut Command) -> Self {
        use std::os::unix::process::CommandExt;
        // In a process group of its own: signals of a terminal's keys are meant for it alone, and those that stop it
        // do.
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

    /// Waits for a line that starts so, and returns what follows.
    pub(crate) fn wait_for(&mut self, start: &str) -> String {
        loop {
            let line = self.line();
            if let Some(rest) = line.strip_prefix(start) {
                return rest.trim().to_owned();
            }
        }
    }

    /// The next line that it says.
    pub(crate) fn line(&mut self) -> String {
        self.lines.recv_timeout(PATIENCE).unwrap_or_else(|error| panic!("{} says nothing: {error}", self.described))
    }

    /// The lines up to the one that is `last`, without it.
    pub(crate) fn lines_until(&mut self, last: &str) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            match self.line() {
                line if line == last => return lines,
                line => lines.push(line),
            }
        }
    }

    /// Says a line to it.
    pub(crate) fn say(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Sends it a line, and reads the numbers of its answer, by their names.
    pub(crate) fn ask(&mut self, name: &str) -> u64 {
        self.say("");
        let line = self.line();
        let words: Vec<&str> = line.split(' ').collect();
        let place = words.iter().position(|word| *word == name).unwrap_or_else(|| panic!("no {name} in {line:?}"));
        words[place + 1].parse().unwrap()
    }

    /// Asks until a number of its answer is larger than this: what it does takes as long as the machine lets it.
    pub(crate) fn ask_until(&mut self, name: &str, least: u64) {
        let end = Instant::now() + PATIENCE;
        while self.ask(name) <= least {
            assert!(Instant::now() < end, "{} does not get to {least} {name}", self.described);
        }
    }

    /// Asserts that the work which it counts goes on.
    pub(crate) fn works(&mut self) {
        let (before, end) = (self.ask("work"), Instant::now() + PATIENCE);
        while self.ask("work") == before {
            assert!(Instant::now() < end, "{} does not go on", self.described);
        }
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.nix_pid(), signal).unwrap();
    }

    /// Its process id for the kernel's calls.
    pub(crate) fn nix_pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.pid()).unwrap())
    }

    /// Whether it still runs.
    pub(crate) fn lives(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Ends it at once and waits for that.
    pub(crate) fn end(&mut self) {
        // It may have ended by itself.
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
