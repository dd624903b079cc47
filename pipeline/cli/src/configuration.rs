//! Turns command-line arguments into a checked plan.

use std::path::Path;

use profbridge_engine::config::{self, Config, Problems, Source};
use profbridge_engine::plan::Plan;

use crate::args::ConfigArgs;
use crate::components::REGISTRY;
use crate::terminal::counted;

/// Reads and merges the configuration files and settings in the arguments.
///
/// # Errors
///
/// Everything that is wrong with it, each problem with its place.
pub(crate) fn load(arguments: &ConfigArgs) -> Result<Config, Problems> {
    let files = arguments.config.iter().map(|path| Source::File(path.clone()));
    let sets = arguments.set.iter().map(|assignment| Source::Set(assignment.clone()));
    config::load(&files.chain(sets).collect::<Vec<_>>(), &|name| std::env::var(name).ok())
}

/// Reads, merges and checks the configuration files and settings in the arguments.
///
/// # Errors
///
/// Everything that is wrong with it, each problem with its place.
pub(crate) fn plan(arguments: &ConfigArgs) -> Result<Plan, Problems> {
    Plan::new(&load(arguments)?, &REGISTRY)
}

/// Formats problems for people. The last line counts them or, if there is no configuration at all, says how to start.
pub(crate) fn explain(problems: &Problems, arguments: &ConfigArgs) -> String {
    let errors = problems.as_slice().iter().filter(|problem| problem.is_error()).count();
    let mut text: String = problems.as_slice().iter().map(|problem| format!("{problem}\n\n")).collect();
    let what = counted(errors as u64, "problem");
    text.push_str(&format!("the configuration has {what}; nothing was started"));
    if arguments.config.iter().any(|path| !Path::exists(path)) {
        text.push_str("\nhint: the repository's config.yaml is a complete configuration with every key explained; ");
        text.push_str("name yours with --config FILE");
    }
    text
}
