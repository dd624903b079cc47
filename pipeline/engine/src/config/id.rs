//! Names of components: `type` or `type/name`, with the rules of the Collector (`component/identifiable.go`).

use std::fmt;
use std::str::FromStr;

use profbridge_model::{Telemetry, TelemetryKind};

/// Identifies one component of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ComponentId {
    /// The type, which selects the code: a letter, then letters, digits and `_`, at most 63.
    pub kind: String,
    /// Distinguishes several components of one type.
    pub name: Option<String>,
}

/// A type has at most this many characters.
const MAX_KIND_CHARS: usize = 63;
/// A name has at most this many characters.
const MAX_NAME_CHARS: usize = 1024;

/// Why a text is no component id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadId {
    /// Nothing before the slash.
    #[error("the type is empty; write `type` or `type/name`")]
    EmptyKind,
    /// A type with characters it must not have, or too long.
    #[error("a type begins with a letter and has only letters, digits and `_`, at most {MAX_KIND_CHARS}")]
    NodeKind,
    /// A slash with nothing behind it.
    #[error("the name after the slash is empty; write `type` or `type/name`")]
    EmptyName,
    /// A name with characters it must not have, or too long.
    #[error("a name has no spaces, control characters and symbols, and at most {MAX_NAME_CHARS} characters")]
    Name,
}

impl ComponentId {
    /// The unnamed component of this type.
    #[must_use]
    pub fn of(kind: impl Into<String>) -> Self {
        Self { kind: kind.into(), name: None }
    }
}

impl FromStr for ComponentId {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, BadId> {
        let (kind, name) = match text.split_once('/') {
            Some((kind, name)) => (kind.trim(), Some(name.trim())),
            None => (text.trim(), None),
        };
        if kind.is_empty() {
            return Err(BadId::EmptyKind);
        }
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if !kind.starts_with(|c: char| c.is_ascii_alphabetic())
            || !kind.chars().all(word)
            || kind.len() > MAX_KIND_CHARS
        {
            return Err(BadId::NodeKind);
        }
        match name {
            Some("") => Err(BadId::EmptyName),
            Some(name) if name.chars().count() > MAX_NAME_CHARS || !name.chars().all(is_name_char) => Err(BadId::Name),
            name => Ok(Self { kind: kind.to_owned(), name: name.map(str::to_owned) }),
        }
    }
}

/// The Collector excludes the Unicode classes Z, C and S. Here only letters and digits are accepted beyond ASCII, which
/// needs no tables.
fn is_name_char(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_graphic() && !matches!(c, '$' | '+' | '<' | '=' | '>' | '^' | '`' | '|' | '~');
    }
    c.is_alphanumeric()
}

impl fmt::Display for ComponentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        match &self.name {
            Some(name) => write!(f, "/{name}"),
            None => Ok(()),
        }
    }
}

/// What kinds of telemetry a pipeline carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Carries {
    /// Everything: its name starts with no signal.
    Everything,
    /// One kind: its name starts with that signal, such as `profiles` or `profiles/name`.
    Only(TelemetryKind),
    /// A signal of the Collector that profbridge does not handle: the pipeline is refused.
    Unsupported,
}

/// Signals of the Collector (`pipeline/signal.go`) that have no kind of telemetry here.
const UNSUPPORTED: [&str; 2] = ["metrics", "logs"];

impl Carries {
    /// Whether the pipeline carries this kind of telemetry.
    #[must_use]
    pub fn includes(self, kind: TelemetryKind) -> bool {
        match self {
            Carries::Everything => true,
            Carries::Only(only) => only == kind,
            Carries::Unsupported => false,
        }
    }

    /// Whether the pipeline carries this telemetry.
    #[must_use]
    pub fn carries(self, telemetry: &Telemetry) -> bool {
        self.includes(telemetry.kind())
    }

    /// The signal names to which a pipeline can be limited.
    pub(super) fn signals() -> Vec<&'static str> {
        TelemetryKind::ALL.iter().filter_map(|kind| kind.signal()).collect()
    }
}

/// Identifies one pipeline.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PipelineId {
    /// The part before the slash; if it names a signal, the pipeline carries only that signal.
    pub signal: String,
    /// The part after the slash.
    pub name: Option<String>,
}

impl PipelineId {
    /// What the pipeline carries, decided by the part before the slash.
    #[must_use]
    pub fn carries(&self) -> Carries {
        let signal = self.signal.as_str();
        match TelemetryKind::ALL.iter().find(|kind| kind.signal() == Some(signal)) {
            Some(&kind) => Carries::Only(kind),
            None if UNSUPPORTED.contains(&signal) => Carries::Unsupported,
            None => Carries::Everything,
        }
    }
}

impl FromStr for PipelineId {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, BadId> {
        // Pipeline ids have the same rules (Collector `pipeline/pipeline.go`).
        let ComponentId { kind, name } = text.parse()?;
        Ok(Self { signal: kind, name })
    }
}

impl fmt::Display for PipelineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.signal)?;
        match &self.name {
            Some(name) => write!(f, "/{name}"),
            None => Ok(()),
        }
    }
}
