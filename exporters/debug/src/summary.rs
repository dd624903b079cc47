//! Summarizes a batch for the log.

mod spans;

use std::collections::HashMap;
use std::fmt::{self, Display, Write as _};

use profbridge_model::{Dictionary, Envelope, Profile, Profiles, StackId, Telemetry, Value, ValueType};
use profbridge_wire::sentry::envelope::ItemHeader;

use crate::config::Verbosity;

/// The maximum number of profiles of a batch that are described individually.
const MOST_PROFILES: usize = 20;

/// The maximum number of functions of a batch that are listed.
const MOST_FUNCTIONS: usize = 10;

/// The maximum number of items of an envelope that are listed.
const MOST_ITEMS: usize = 20;

/// Names are truncated after this many characters.
const MAX_NAME: usize = 120;

pub(crate) fn summarize(telemetry: &Telemetry, verbosity: Verbosity) -> String {
    let mut text = String::new();
    let written = match telemetry {
        Telemetry::Profiles(batch) => profiles(&mut text, batch, verbosity),
        Telemetry::Spans(batch) => spans::summary(&mut text, batch, verbosity),
        Telemetry::Envelope(envelope) => self::envelope(&mut text, envelope, verbosity),
        other => write!(text, "{}: {}", other.kind().noun(), other.quantities()),
    };
    debug_assert!(written.is_ok(), "writing into a string does not fail");
    text
}

fn envelope(text: &mut String, envelope: &Envelope, verbosity: Verbosity) -> fmt::Result {
    write!(text, "envelope: {}", Count(envelope.items.len() as u64, "item"))?;
    if verbosity > Verbosity::Basic {
        for (position, item) in envelope.items.iter().take(MOST_ITEMS).enumerate() {
            let kind = ItemHeader::read(&item.header).map(|header| header.kind.into_owned()).unwrap_or_default();
            let before = if position == 0 { " (" } else { ", " };
            write!(text, "{before}{} of {}", PrintableName(&kind), Count(item.payload.len() as u64, "byte"))?;
        }
        more(text, envelope.items.len(), MOST_ITEMS, ", ", "item")?;
        if !envelope.items.is_empty() {
            text.push(')');
        }
    }
    for batch in envelope.profiles() {
        text.push_str("; ");
        profiles(text, batch, verbosity)?;
    }
    for batch in envelope.spans() {
        text.push_str("; ");
        spans::summary(text, batch, verbosity)?;
    }
    Ok(())
}

fn profiles(text: &mut String, batch: &Profiles, verbosity: Verbosity) -> fmt::Result {
    let samples: usize = batch.profiles().map(|profile| profile.samples.len()).sum();
    write!(
        text,
        "profiles: {}, {}, {}, {}",
        Count(batch.resources().len() as u64, "resource"),
        Count(batch.profiles().count() as u64, "profile"),
        Count(samples as u64, "sample"),
        Count(batch.observations(), "observation"),
    )?;
    if let Some(window) = &batch.window {
        let seconds = window.end_unix_nano.saturating_sub(window.start_unix_nano) as f64 / 1e9;
        write!(text, ", profiler {} in a window of {seconds:.1} s", window.profiler_id)?;
    }
    if verbosity == Verbosity::Basic {
        return Ok(());
    }
    let mut described = 0;
    for resource in batch.resources() {
        let service = match batch.find(&resource.resource.attributes, "service.name") {
            Some(Value::String(name)) => batch.dictionary().string(*name),
            _ => "",
        };
        for profile in resource.scopes.iter().flat_map(|scope| &scope.profiles) {
            if described < MOST_PROFILES {
                one_profile(text, batch, profile, service)?;
            }
            described += 1;
        }
    }
    more(text, described, MOST_PROFILES, "; ", "profile")?;
    if verbosity == Verbosity::Detailed { functions(text, batch) } else { Ok(()) }
}

fn one_profile(text: &mut String, batch: &Profiles, profile: &Profile, service: &str) -> fmt::Result {
    let dictionary = &**batch.dictionary();
    let service = if service.is_empty() { "unknown service" } else { service };
    write!(text, "; {}: ", PrintableName(service))?;
    value_type(text, dictionary, profile.sample_type)?;
    write!(text, ", {}", Count(batch.observations_of(profile), "observation"))?;
    if profile.period > 0 {
        write!(text, ", one per {} ", profile.period)?;
        value_type(text, dictionary, profile.period_type)?;
    }
    if profile.duration_nano > 0 {
        write!(text, ", {:.1} s", profile.duration_nano as f64 / 1e9)?;
    }
    Ok(())
}

fn value_type(text: &mut String, dictionary: &Dictionary, kind: ValueType) -> fmt::Result {
    write!(text, "{}/{}", PrintableName(dictionary.string(kind.kind)), PrintableName(dictionary.string(kind.unit)))
}

/// Lists the functions with the most observations, by the innermost frame of each stack.
fn functions(text: &mut String, batch: &Profiles) -> fmt::Result {
    let dictionary = &**batch.dictionary();
    let mut stacks: HashMap<Option<StackId>, u64> = HashMap::new();
    for sample in batch.profiles().flat_map(|profile| batch.samples(profile)) {
        *stacks.entry(sample.stack).or_default() += sample.observations();
    }
    let mut functions: HashMap<&str, u64> = HashMap::new();
    for (stack, observations) in stacks {
        *functions.entry(innermost(dictionary, stack)).or_default() += observations;
    }
    let count = functions.len();
    let mut functions: Vec<_> = functions.into_iter().collect();
    functions.sort_unstable_by(|(a, a_count), (b, b_count)| b_count.cmp(a_count).then(a.cmp(b)));
    for (position, (name, observations)) in functions.into_iter().take(MOST_FUNCTIONS).enumerate() {
        let before = if position == 0 { "; most observed: " } else { ", " };
        let share = observations as f64 / batch.observations().max(1) as f64 * 100.0;
        write!(text, "{before}{} {observations} ({share:.0} %)", PrintableName(name))?;
    }
    more(text, count, MOST_FUNCTIONS, ", ", "function")
}

fn innermost(dictionary: &Dictionary, stack: Option<StackId>) -> &str {
    let Some(location) = dictionary.stack(stack).flatten().next() else { return "[no frames]" };
    let location = dictionary.location(location);
    let function = dictionary.lines(location).first().and_then(|line| line.function);
    let named =
        function.map(|function| dictionary.function(function)).map(|function| match dictionary.string(function.name) {
            "" => dictionary.string(function.system_name),
            name => name,
        });
    let file = || location.mapping.map(|mapping| dictionary.string(dictionary.mapping(mapping).filename));
    named.filter(|name| !name.is_empty()).or_else(file).filter(|name| !name.is_empty()).unwrap_or("[unknown]")
}

fn more(text: &mut String, count: usize, shown: usize, before: &str, what: &str) -> fmt::Result {
    match count.saturating_sub(shown) {
        0 => Ok(()),
        1 => write!(text, "{before}and 1 more {what}"),
        rest => write!(text, "{before}and {rest} more {what}s"),
    }
}

/// A number with its noun in the singular or plural.
struct Count<'a>(u64, &'a str);

impl Display for Count<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}{}", self.0, self.1, if self.0 == 1 { "" } else { "s" })
    }
}

/// Displays a name from outside, made safe for the log: on one line and not too long.
struct PrintableName<'a>(&'a str);

impl Display for PrintableName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars().take(MAX_NAME) {
            f.write_char(if c.is_control() { ' ' } else { c })?;
        }
        if self.0.chars().nth(MAX_NAME).is_some() { f.write_str("...") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
