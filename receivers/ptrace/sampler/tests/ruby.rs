//! Compares frames of real Ruby programs with what they execute, with every Ruby that is found.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests may fail like tests")]

mod observed;

use std::collections::BTreeMap;
use std::io::BufRead;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use observed::{InterpreterProgram, observe, untested};

/// A program that defines and drops methods as fast as it can, and makes the garbage collector move objects. Each
/// method has its number in its name, in the name of its file and, times ten, in its first line.
const THROWN_AWAY: &str = r#"
puts "ready"
$stdout.flush
number = 0
loop do
  number += 1
  holder = Class.new
  text = "def m_#{number}\n i = 0\n k = 1\n while i < 3000\n i += k\n end\n i\nend"
  holder.class_eval(text, "thrown-#{number}.rb", number * 10)
  made = holder.new
  2.times { made.send("m_#{number}") }
  eval("i = 0\n i += 1 while i < 3000", binding, "thrown-#{number}.rb", number * 10)
  GC.start if number % 50 == 0
  GC.compact if number % 500 == 0 && GC.respond_to?(:compact)
end
"#;

/// A program whose child works in its main thread, as in servers that fork in advance, until its parent has ended.
const FORKED: &str = r#"
def work_of_child
  i = 0
  i += 1 while i < 100_000
end
parent = Process.pid
child = fork { work_of_child while Process.ppid == parent }
puts child
$stdout.flush
Process.wait
"#;

/// The Ruby interpreters of this machine from 3.0 on, by version. More may be given by `PROFBRIDGE_TEST_RUBIES`.
fn rubies() -> BTreeMap<String, PathBuf> {
    let named = std::env::var_os("PROFBRIDGE_TEST_RUBIES").unwrap_or_default();
    let named: Vec<PathBuf> = std::env::split_paths(&named).collect();
    let answer = |ruby: PathBuf| {
        let answer =
            Command::new(&ruby).args(["--disable-gems", "-e", "puts RUBY_ENGINE, RUBY_VERSION"]).output().ok()?;
        let said = String::from_utf8(answer.stdout).ok()?;
        let (engine, version) = said.trim().split_once('\n')?;
        let is_known = engine == "ruby" && version.starts_with("3.");
        is_known.then(|| (version.to_owned(), ruby))
    };
    named.into_iter().chain([PathBuf::from("ruby")]).filter_map(answer).collect()
}

/// Guarantees: while methods are defined and dropped and objects are moved all the time, and their process is sampled a
/// thousand times a second, methods have their own names, files and lines or none; with YJIT as well.
#[test]
fn thrown_away() {
    let rubies = rubies();
    if rubies.is_empty() {
        untested("there is no Ruby from 3.0 to 3.4");
    }
    for (version, ruby) in rubies {
        for options in [&[][..], &["--yjit", "--yjit-call-threshold=2"]] {
            let has_it = Command::new(&ruby).args(options).args(["--disable-gems", "-e", ""]).output().unwrap();
            if !has_it.status.success() {
                untested(&format!("Ruby {version} has no {options:?}"));
                continue;
            }
            let mut command = Command::new(&ruby);
            let mut program =
                InterpreterProgram::start(command.args(options).args(["--disable-gems", "-e", THROWN_AWAY]));
            let mut line = String::new();
            program.output.read_line(&mut line).unwrap();
            let mut right = 0;
            let observations = observe(program.child.id(), Duration::from_secs(3), |function, line| {
                let Some((_, number)) = function.file.rsplit_once("thrown-") else { return };
                let number: u32 = number.strip_suffix(".rb").unwrap().parse().unwrap();
                let first = number * 10;
                // Evaluated code has the name of the method that evaluates it.
                let method = function.name.rsplit(['#', '.']).next().unwrap();
                let is_named = !method.starts_with("m_") || (method == format!("m_{number}") && function.line == first);
                let is_right = is_named && (line == 0 || (first..first + 8).contains(&line));
                assert!(is_right, "Ruby {version}, {options:?}: {function:?}:{line}");
                right += u32::from(method.starts_with("m_"));
            });
            assert!(observations > 100, "Ruby {version}, {options:?}: {observations} samples");
            let said = format!("Ruby {version}, {options:?}: {observations} samples, {right} methods named\n");
            std::io::Write::write_all(&mut std::io::stderr(), said.as_bytes()).ok();
        }
    }
}

/// Guarantees: the main thread of a forked process is recognized as Ruby's main thread, and its functions are named.
#[test]
fn forked() {
    for (version, ruby) in rubies() {
        let mut program = InterpreterProgram::start(Command::new(&ruby).args(["--disable-gems", "-e", FORKED]));
        let mut child = String::new();
        program.output.read_line(&mut child).unwrap();
        let mut named = 0;
        let observations = observe(child.trim().parse().unwrap(), Duration::from_secs(1), |function, _| {
            named += u32::from(function.name.ends_with("work_of_child"));
        });
        assert!(observations > 0 && named > 0, "Ruby {version}: {named} of {observations}");
    }
}
