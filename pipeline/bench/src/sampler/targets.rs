//! Starts the target programs of the sampler's tests; those in C are compiled on first use.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::Error;

/// The folder of the programs.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../receivers/ptrace/sampler/tests/targets");

/// The compiled programs, in a folder that is removed on drop.
#[derive(Debug)]
pub(super) struct Programs {
    folder: tempfile::TempDir,
}

impl Programs {
    pub(super) fn new() -> Result<Self, Error> {
        Ok(Self { folder: tempfile::tempdir()? })
    }

    /// Starts the program compiled from `NAME.c`.
    pub(super) fn start(&self, name: &str, arguments: &[&str]) -> Result<TargetChild, Error> {
        let program = self.folder.path().join(name);
        if !program.exists() {
            let mut compiler = Command::new("cc");
            compiler.args(["-O2", "-g", "-fomit-frame-pointer", "-pthread", "-o"]).arg(&program);
            compiler.arg(format!("{SOURCES}/{name}.c")).arg("-lrt");
            let output = compiler.output().map_err(|error| format!("cannot start cc: {error}"))?;
            if !output.status.success() {
                return Err(format!("{compiler:?} failed:\n{}", String::from_utf8_lossy(&output.stderr)).into());
            }
        }
        TargetChild::start(Command::new(program).args(arguments))
    }

    /// Starts a script.
    pub(super) fn interpret(&self, interpreter: &Path, name: &str, arguments: &[&str]) -> Result<TargetChild, Error> {
        TargetChild::start(Command::new(interpreter).arg(format!("{SOURCES}/{name}")).args(arguments))
    }

    /// The path of an output file for a tool.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// A target program that runs until this is dropped.
#[derive(Debug)]
pub(super) struct TargetChild {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl TargetChild {
    /// Starts a command and waits until it prints "ready".
    fn start(command: &mut Command) -> Result<Self, Error> {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(|error| format!("cannot start {command:?}: {error}"))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("no pipes".into());
        };
        let mut target = Self { child, input, output: BufReader::new(output) };
        while target.line()? != "ready" {}
        Ok(target)
    }

    /// The process id.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn line(&mut self) -> Result<String, Error> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            return Err("the target ended".into());
        }
        Ok(line.trim_end().to_owned())
    }

    /// Asks the target for its counters: returns the numbers after the words `names` in its answer.
    pub(super) fn numbers<const N: usize>(&mut self, names: [&str; N]) -> Result<[f64; N], Error> {
        writeln!(self.input)?;
        let answer = self.line()?;
        let mut numbers = [0.0; N];
        for (number, name) in numbers.iter_mut().zip(names) {
            let mut words = answer.split(' ').skip_while(|word| *word != name).skip(1);
            *number = words.next().ok_or_else(|| format!("no {name} in {answer:?}"))?.parse()?;
        }
        Ok(numbers)
    }
}

impl Drop for TargetChild {
    fn drop(&mut self) {
        // Errors mean that it has already ended.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
