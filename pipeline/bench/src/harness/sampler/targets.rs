//! Compiles and starts the sampler's targets: each when it is started for the first time.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use super::super::Error;

macro_rules! source {
    ($name:literal) => {
        (
            $name,
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../receivers/ptrace/sampler/tests/targets/", $name)),
        )
    };
}

/// The sources, so that this program runs without its source tree.
const SOURCES: &[(&str, &str)] = &[
    source!("common.h"),
    source!("busy.c"),
    source!("duty.c"),
    source!("handlers.c"),
    source!("matrix.c"),
    source!("matrix_more.h"),
    source!("matrix_library.c"),
    source!("shares.c"),
    source!("short_waits.c"),
    source!("stream.c"),
    source!("switches.c"),
    source!("transfers.c"),
    source!("threads.rs"),
    source!("hashing.py"),
    source!("counting.py"),
    source!("functions.py"),
    source!("functions.js"),
    source!("functions.php"),
    source!("functions.rb"),
    source!("deep.py"),
    source!("matrix.py"),
    source!("compute.js"),
];

/// The programs, in a folder that goes with this.
#[derive(Debug)]
pub(super) struct Programs {
    folder: tempfile::TempDir,
}

impl Programs {
    /// Writes their sources.
    pub(super) fn new() -> Result<Self, Error> {
        let folder = tempfile::tempdir()?;
        for (name, text) in SOURCES {
            fs::write(folder.path().join(name), text)?;
        }
        Ok(Self { folder })
    }

    /// The program that is made of `NAME.c` or `NAME.rs`.
    fn compiled(&self, name: &str) -> Result<PathBuf, Error> {
        self.made(name, |source| match source.ends_with(".rs") {
            true => ("rustc", vec!["--edition", "2024", "-O", "-g"]),
            false => ("cc", vec!["-O2", "-g", "-fomit-frame-pointer", "-pthread"]),
        })
    }

    /// The shared library that is made of `NAME.c`.
    pub(super) fn library(&self, name: &str) -> Result<PathBuf, Error> {
        self.made(name, |_| ("cc", vec!["-O2", "-g", "-fomit-frame-pointer", "-pthread", "-shared", "-fPIC"]))
    }

    fn made(&self, name: &str, how: fn(&str) -> (&'static str, Vec<&'static str>)) -> Result<PathBuf, Error> {
        let path = self.path(name);
        if !path.exists() {
            let is_source = |file: &str| file.strip_prefix(name).is_some_and(|ending| [".c", ".rs"].contains(&ending));
            let source = SOURCES.iter().find(|(file, _)| is_source(file)).ok_or("no such program")?.0;
            let (compiler, arguments) = how(source);
            let libraries: &[&str] = if compiler == "cc" { &["-lrt"] } else { &[] };
            self.compile(compiler, &[&arguments[..], &["-o", name, source], libraries].concat())?;
        }
        Ok(path)
    }

    fn compile(&self, compiler: &str, arguments: &[&str]) -> Result<(), Error> {
        let output = Command::new(compiler).args(arguments).current_dir(self.folder.path()).output();
        let output = output.map_err(|error| format!("cannot start {compiler}: {error}"))?;
        if !output.status.success() {
            return Err(format!("{arguments:?} failed:\n{}", String::from_utf8_lossy(&output.stderr)).into());
        }
        Ok(())
    }

    /// Where a file is.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts a compiled program.
    pub(super) fn start(&self, name: &str, arguments: &[&str]) -> Result<Target, Error> {
        Target::start(Command::new(self.compiled(name)?).args(arguments))
    }

    /// Starts a script, if there is an interpreter.
    pub(super) fn interpret(&self, interpreter: &str, name: &str, arguments: &[&str]) -> Result<Target, Error> {
        Target::start(Command::new(interpreter).arg(self.path(name)).args(arguments))
    }

    /// The folder, for what tools write.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }
}

/// A target that runs until this is dropped.
#[derive(Debug)]
pub(super) struct Target {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Target {
    /// Starts a command that says "ready".
    pub(super) fn start(command: &mut Command) -> Result<Self, Error> {
        let described = format!("{command:?}");
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(|error| format!("cannot start {described}: {error}"))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("no pipes".into());
        };
        let mut target = Self { child, input, output: BufReader::new(output) };
        while target.line()? != "ready" {}
        Ok(target)
    }

    /// Its process id.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line that it says.
    pub(super) fn line(&mut self) -> Result<String, Error> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            return Err("the target ended".into());
        }
        Ok(line.trim_end().to_owned())
    }

    /// Says a line, and reads the answer.
    pub(super) fn ask(&mut self, line: &str) -> Result<String, Error> {
        writeln!(self.input, "{line}")?;
        self.line()
    }

    /// The number behind a word of the answer to `line`.
    pub(super) fn number(&mut self, line: &str, name: &str) -> Result<f64, Error> {
        let answer = self.ask(line)?;
        let mut words = answer.split(' ').skip_while(|word| *word != name);
        words.next();
        Ok(words.next().ok_or_else(|| format!("no {name} in {answer:?}"))?.parse()?)
    }

    /// Whether it still runs.
    pub(super) fn lives(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // It has ended already, or is asked to end.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
