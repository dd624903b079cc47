//! Names of components: `type` or `type/name`, with the rules of the Collector (`component/identifiable.go`).

use std::fmt;
use std::str::FromStr;

use profbridge_model::{Telemetry, TelemetryKind};

/// Identifies one component of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ComponentId {
    /// The type, which selects the implementation: a letter, then letters, digits and `_`, at most 63 characters.
    pub kind: String,
    /// Distinguishes several components of one type.
    pub name: Option<String>,
}

/// The maximum number of characters of a type.
const MAX_KIND_CHARS: usize = 63;
/// The maximum number of characters of a name.
const MAX_NAME_CHARS: usize = 1024;

/// Why a text is not a component id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadId {
    /// The text has no type before the slash.
    #[error("the type is empty; write `type` or `type/name`")]
    EmptyKind,
    /// The type is too long or has forbidden characters.
    #[error("a type begins with a letter and has only letters, digits and `_`, at most {MAX_KIND_CHARS}")]
    NodeKind,
    /// The text has no name after the slash.
    #[error("the name after the slash is empty; write `type` or `type/name`")]
    EmptyName,
    /// The name is too long or has forbidden characters.
    #[error("a name has no spaces, control characters and symbols, and at most {MAX_NAME_CHARS} characters")]
    Name,
}

impl ComponentId {
    /// The component of this type without a name.
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

/// The Collector excludes the Unicode classes Z, C and S. Here the only accepted characters beyond ASCII are letters
/// and digits, which needs no tables.
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

/// The kinds of telemetry that a pipeline carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Carries {
    /// Every kind: the pipeline's name starts with no signal.
    Everything,
    /// One kind: the pipeline's name starts with its signal, such as `profiles` or `profiles/name`.
    Only(TelemetryKind),
    /// The pipeline's name starts with a signal of the Collector that profbridge does not support, so it is refused.
    Unsupported,
}

/// Signals of the Collector (`pipeline/signal.go`) that profbridge does not support.
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

    /// The signals to which a pipeline can be limited.
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
    /// The kinds of telemetry that the pipeline carries, decided by the part of its name before the slash.
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
