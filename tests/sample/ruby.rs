//! Ruby programs, on every Ruby version found.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{CollapsedStacks, alone, by_some_run, measured, stops};
use crate::process::{run, untested};

/// A program whose innermost function runs the whole time, called through a method, C functions that call back, a
/// method defined by a block, a rescue, evaluated text and a fiber, while one thread sleeps and another one reads. It
/// begins after two seconds, when even an unoptimised sampler has read the interpreter's file. At its end it prints the
/// processor time of two functions, one of which takes three times as much.
const PROGRAM: &str = r#"
class Shop
  def rank(depth)
    return rank(depth - 1) if depth > 0
    [1].each { |one| [one].sort_by { |other| picked(other) } }
  end

  define_method(:picked) do |other|
    begin
      raise ArgumentError, "of a kind"
    rescue ArgumentError
      Fiber.new { eval("busy(ARGV[0].to_f)") }.resume
    end
  end

  def busy(seconds)
    clock = -> { Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) }
    $long = $short = 0.0
    last = clock.call
    limit = last + seconds
    while last < limit
      long; now = clock.call; $long += now - last; last = now
      short; now = clock.call; $short += now - last; last = now
    end
    1
  end

  def long = spin(600_000)
  def short = spin(200_000)

  def spin(count)
    i = 0
    while i < count
      i += 1
    end
  end
end

def sleeps = sleep
def reads(from) = from.read(1)

from, = IO.pipe
Thread.new { sleeps }
Thread.new { reads(from) }
sleep 2
Shop.new.rank(2)
puts $long / ($long + $short)
"#;

/// The Rubies of this machine, and those named by `PROFBRIDGE_TEST_RUBIES`, each with its version.
fn rubies() -> Vec<(String, PathBuf)> {
    let named = std::env::var_os("PROFBRIDGE_TEST_RUBIES").unwrap_or_default();
    let named: Vec<PathBuf> = std::env::split_paths(&named).collect();
    let answer = |ruby: PathBuf| {
        let answer = Command::new(&ruby).args(["-e", "puts RUBY_ENGINE, RUBY_VERSION"]).output().ok()?;
        let said = String::from_utf8(answer.stdout).ok()?;
        let (engine, version) = said.trim().split_once('\n')?;
        (engine == "ruby" && version >= "3.0").then(|| (version.to_owned(), ruby))
    };
    std::iter::once(PathBuf::from("ruby")).chain(named).filter_map(answer).collect()
}

/// The last part of a name, without classes, which versions before 3.3 do not provide.
fn method(name: &str) -> &str {
    name.rsplit(['#', '.']).next().unwrap_or(name)
}

fn has_in_order(stack: &[String], wanted: &[&str]) -> bool {
    let mut stack = stack.iter();
    wanted.iter().all(|wanted| stack.any(|name| method(name) == *wanted))
}

fn sampled(folder: &Path, ruby: &Path, program: &Path) -> (CollapsedStacks, String) {
    let command = [ruby.to_str().unwrap(), "--disable-gems", program.to_str().unwrap(), "8"];
    let arguments = [&["sample", "-r", "499", "-o", "out.folded"], stops(), &["--"], &command].concat();
    let alone = alone();
    let finished = run(folder, &arguments);
    drop(alone);
    assert!(finished.status.success(), "{}", finished.stderr);
    (CollapsedStacks::read(&folder.join("out.folded")), finished.stdout)
}

/// Guarantees: for a program that runs and its threads that wait in a sleep and a read, Ruby functions are in order and
/// at the places of their native frames; the running function is found in at least 95 % of the time, and the shares of
/// two functions equal those of the program's own clock.
#[test]
fn every_version() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program.rb");
    std::fs::write(&program, PROGRAM).unwrap();
    let rubies = rubies();
    if rubies.is_empty() {
        untested("there is no Ruby 3.0 or later");
    }
    for (version, ruby) in rubies {
        by_some_run(|| {
            let (stacks, said) = sampled(folder.path(), &ruby, &program);
            let (running, waiting): (Vec<_>, Vec<_>) = stacks.0.iter().partition(|(stack, _)| stack[0] != "[waiting]");
            let time = |name: &str| -> u64 {
                let is_in = |stack: &[String]| stack.iter().any(|frame| method(frame) == name);
                running.iter().filter(|(stack, _)| is_in(stack)).map(|(_, nano)| nano).sum()
            };
            let (spin, long, short) = (time("spin"), time("long"), time("short"));
            measured!(spin > 7_600_000_000, "{version}: {spin} ns of 8 s");
            let share = long as f64 / (long + short).max(1) as f64;
            let own: f64 = said.lines().find_map(|line| line.trim().parse().ok()).unwrap();
            measured!((share - own).abs() < 0.03, "{version}: {share} of {own}");
            let whole = ["busy", "long", "spin"];
            assert!(running.iter().any(|(stack, _)| has_in_order(stack, &whole)), "{version}");
            for (stack, _) in running.iter().filter(|(stack, _)| stack.iter().any(|name| method(name) == "busy")) {
                assert!(!stack.iter().any(|name| name == "rb_vm_exec"), "{version}: {stack:?}");
            }
            for (function, inner) in [("sleeps", "sleep"), ("reads", "read")] {
                let nano: u64 = waiting
                    .iter()
                    .filter(|(stack, _)| has_in_order(stack, &["block in <main>", function, inner]))
                    .map(|(_, nano)| nano)
                    .sum();
                measured!(nano > 7_000_000_000, "{version}: {function} {nano} ns");
            }
            Ok(())
        });
    }
}
