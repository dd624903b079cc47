//! The configuration: from files, texts and `--set` assignments to typed settings, with every problem at its position.
//!
//! ```text
//! sources --yaml--> trees with positions --figment--> one tree --> Config --Section::extract--> settings
//! ```
//!
//! Invariants:
//!
//! * Every problem is reported, not only the first one: [`load`] stops only if there is no tree to check;
//!   [`check_references`] and [`Section::extract`] report the rest. A configuration is usable if none of them reports
//!   an error.
//! * Every problem has its file, line, column, the line itself, the rule, and what to do ([`Problem`]).
//! * No secret is ever shown: no value of a key that names a secret, no credentials in URLs, no environment variable.
//! * The component's type decides how a written value is read: where it expects text, `0123` and `1.10` stay unchanged.
//! * The loader reads files and nothing else; the environment is passed in. Nothing here panics on any input.
//!
//! Modules use those above them and to their left, never the others:
//!
//! ```text
//! position  scalar  suggest  node    a tree and its positions (from_text for single values)
//! redact  expand                     what is a secret; references to the environment
//! text  yaml  key_path  layer        sources and their lines, parsing, merging
//! problem  source  print             from sources to one tree, and from that to a person
//! de_error  de  section              sections as typed settings
//! document  references               the configuration as a whole, and references between its parts
//! ```
//!
//! The vocabulary is the OpenTelemetry Collector's: `receivers`, `processors`, `exporters`, `service.pipelines`,
//! `service.telemetry`, `type/name`, `${env:NAME:-default}`, and components with nothing under them have their
//! defaults.

mod attributes;
mod byte_size;
mod collector;
mod de;
mod de_error;
mod document;
mod duration;
mod expand;
mod from_text;
mod id;
mod key_path;
mod keys;
mod layer;
mod node;
mod optional;
mod ordered;
mod position;
mod print;
mod problem;
mod redact;
mod references;
mod scalar;
mod secret;
mod section;
mod source;
mod suggest;
mod text;
mod yaml;

#[cfg(test)]
mod tests;

pub use attributes::InsertedAttributes;
pub use byte_size::{BadByteSize, ByteSize};
pub use document::{Config, PipelineConfig, Reference};
pub use duration::{BadDuration, Duration};
pub(crate) use from_text::from_text;
pub use id::{BadId, Carries, ComponentId, PipelineId};
pub use keys::keys;
pub use optional::Optional;
pub use ordered::Ordered;
pub use position::{Excerpt, SourcePosition};
pub use problem::{Problem, Problems, Severity};
pub use references::{KnownComponents, check_references};
pub use secret::Secret;
pub use section::Section;
pub use source::Source;

/// Reads and merges `sources`. Later ones take precedence: maps are merged, everything else is replaced. `env` looks up
/// environment variables; a program passes `&|name| std::env::var(name).ok()`.
///
/// # Errors
///
/// A source cannot be read, is not YAML, is empty or is no map. [`check_references`] reports all other problems
/// together with its own.
pub fn load(sources: &[Source], env: &dyn Fn(&str) -> Option<String>) -> Result<Config, Problems> {
    Config::new(source::read_sources(sources, env))
}
