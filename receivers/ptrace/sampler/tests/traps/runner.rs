//! Runs tests one after another, with the arguments that `cargo test` users know.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    process::ExitCode,
    time::Instant,
};

/// Why a test cannot run on this machine.
#[derive(Debug)]
pub(crate) struct Untested(pub(crate) String);

/// A test passes by returning, fails by a panic, and may find that the machine does not allow it.
pub(crate) type Outcome = Result<(), Untested>;

/// A test and its name.
pub(crate) type Test = (&'static str, fn() -> Outcome);

/// What a test returns: nothing, if every machine allows it.
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

/// A list of tests, each under its own name.
macro_rules! tests {
    ($($name:ident),* $(,)?) => {
        pub(crate) const TESTS: &[$crate::runner::Test] = &[$(
            (concat!(module_path!(), "::", stringify!($name)), || $crate::runner::Returned::outcome($name()))
        ),*];
    };
}
pub(crate) use tests;

/// Runs the tests that the arguments name: all, or those with a part of one of the words in their name (`--exact`: with
/// one of them as their name). `--list` names them.
pub(crate) fn run(tests: &[Test], arguments: &[String]) -> ExitCode {
    let flag = |name: &str| arguments.iter().any(|argument| argument == name);
    let words: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with("--")).collect();
    let wanted = |name: &str| {
        words.is_empty()
            || words.iter().any(|word| if flag("--exact") { name == *word } else { name.contains(word.as_str()) })
    };
    // None is left out by default, so there is nothing to add where the left-out ones are asked for.
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
