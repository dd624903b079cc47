//! Runs tests one after another, with the usual arguments of `cargo test`.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    process::ExitCode,
    time::Instant,
};

/// Why a test cannot run on this machine.
#[derive(Debug)]
pub(crate) struct Untested(pub(crate) String);

/// The result of a test: it passes by returning, fails by a panic, or finds that the machine does not allow it.
pub(crate) type Outcome = Result<(), Untested>;

/// A test and its name.
pub(crate) type Test = (&'static str, fn() -> Outcome);

/// The return type of a test: nothing, if every machine allows the test.
pub(crate) trait Returned {
    fn outcome(self) -> Outcome;
}

impl Returned for () {
    fn outcome(self) -> Outcome {
        Ok(())
    }
}

impl Returned for Outcome {
    fn outcome(self) -> Outcome {
        self
    }
}

/// A list of tests, each with the name of its function.
macro_rules! tests {
    ($($name:ident),* $(,)?) => {
        pub(crate) const TESTS: &[$crate::runner::Test] = &[$(
            (concat!(module_path!(), "::", stringify!($name)), || $crate::runner::Returned::outcome($name()))
        ),*];
    };
}
pub(crate) use tests;

/// Runs the tests that the arguments select: all, or those whose name contains one of the words (with `--exact`: is one
/// of the words). `--list` lists them.
pub(crate) fn run(tests: &[Test], arguments: &[String]) -> ExitCode {
    let flag = |name: &str| arguments.iter().any(|argument| argument == name);
    let words: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with("--")).collect();
    let wanted = |name: &str| {
        words.is_empty()
            || words.iter().any(|word| if flag("--exact") { name == *word } else { name.contains(word.as_str()) })
    };
    // No test is ignored by default, so there is none to run if ignored tests are requested.
    let chosen: Vec<&Test> = tests.iter().filter(|(name, _)| wanted(name) && !flag("--ignored")).collect();
    if flag("--list") {
        for (name, _) in chosen {
            println!("{name}: test");
        }
        return ExitCode::SUCCESS;
    }
    println!("\nrunning {} tests", chosen.len());
    let (mut failed, mut untested) = (Vec::new(), 0);
    for (name, test) in &chosen {
        let started = Instant::now();
        let verdict = match catch_unwind(AssertUnwindSafe(test)) {
            Ok(Ok(())) => "ok".to_owned(),
            Ok(Err(Untested(why))) => {
                untested += 1;
                format!("untested here: {why}")
            }
            Err(_) => {
                failed.push(*name);
                "FAILED".to_owned()
            }
        };
        println!("test {name} ... {verdict} ({:.1} s)", started.elapsed().as_secs_f64());
    }
    let passed = chosen.len() - failed.len() - untested;
    println!("\ntest result: {passed} passed; {} failed; {untested} untested here", failed.len());
    for name in &failed {
        println!("    {name}");
    }
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
