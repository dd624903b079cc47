//! Problems of a configuration, printed as compilers do: rule, position, line, caret, hint.

use std::fmt;
use std::sync::Arc;

use super::position::SourcePosition;
use super::redact::REDACTED;

/// Whether a problem prevents the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The configuration is refused.
    Error,
    /// The configuration works, but part of it has no effect.
    Warning,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
        })
    }
}

/// One problem: the broken rule, its position, and what to do about it. It never contains a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// File, line, column and the line itself.
    pub position: SourcePosition,
    /// Path of the key from the root, such as `exporters.sentry.dsn`; empty for a whole file.
    pub key_path: String,
    /// The rule that is broken; lower case, without a trailing period.
    pub message: String,
    /// What to write instead.
    pub hint: Option<String>,
    /// Whether the problem is an error or a warning.
    pub severity: Severity,
}

impl Problem {
    /// Whether the configuration is refused for this problem.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.severity, self.message)?;
        let number = if self.position.line == 0 { String::new() } else { self.position.line.to_string() };
        let margin = " ".repeat(number.len());
        write!(f, "\n{margin} --> {}", self.position)?;
        if let Some(excerpt) = &self.position.excerpt {
            write!(f, "\n{margin}  |\n {number} | {}", excerpt.text)?;
            let before = " ".repeat(excerpt.caret);
            write!(f, "\n{margin}  | {before}{}", "^".repeat(excerpt.width))?;
        }
        if !self.key_path.is_empty() {
            write!(f, "\n{margin}  = key: {}", self.key_path)?;
        }
        if let Some(hint) = &self.hint {
            let mut lines = hint.lines();
            write!(f, "\n{margin}  = hint: {}", lines.next().unwrap_or_default())?;
            for line in lines {
                write!(f, "\n{margin}          {line}")?;
            }
        }
        Ok(())
    }
}

/// At least one problem, sorted by position, without duplicates.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// Sorts and deduplicates the problems; `None` if there are none.
    #[must_use]
    pub fn new(mut problems: Vec<Problem>) -> Option<Self> {
        problems.sort_by(|a, b| {
            (a.position.order(), a.severity, &a.key_path, &a.message).cmp(&(
                b.position.order(),
                b.severity,
                &b.key_path,
                &b.message,
            ))
        });
        problems.dedup();
        hide_lines_masked_elsewhere(&mut problems);
        if problems.is_empty() { None } else { Some(Self(problems)) }
    }

    /// Returns the problems, if all of them are warnings.
    ///
    /// # Errors
    ///
    /// All problems, warnings included, if at least one is an error.
    pub fn check(problems: Vec<Problem>) -> Result<Vec<Problem>, Self> {
        match Self::new(problems) {
            None => Ok(Vec::new()),
            Some(all) if all.0.iter().any(Problem::is_error) => Err(all),
            Some(all) => Ok(all.0),
        }
    }

    /// The problems, sorted by position.
    #[must_use]
    pub fn as_slice(&self) -> &[Problem] {
        &self.0
    }

    /// The problems, sorted by position.
    #[must_use]
    pub fn into_vec(self) -> Vec<Problem> {
        self.0
    }
}

/// Removes the excerpt of a warning if another problem masks the same line: only the problem about an unknown key knows
/// that its value may be a secret.
fn hide_lines_masked_elsewhere(problems: &mut [Problem]) {
    let is_masked =
        |problem: &Problem| problem.position.excerpt.as_ref().is_some_and(|excerpt| excerpt.text.contains(REDACTED));
    let masked: Vec<(Arc<str>, u32)> = problems
        .iter()
        .filter(|problem| is_masked(problem))
        .map(|problem| (Arc::clone(&problem.position.file), problem.position.line))
        .collect();
    for problem in problems.iter_mut().filter(|problem| !problem.is_error() && !is_masked(problem)) {
        if masked.iter().any(|(file, line)| *file == problem.position.file && *line == problem.position.line) {
            problem.position.excerpt = None;
        }
    }
}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Self(vec![problem])
    }
}

impl IntoIterator for Problems {
    type Item = Problem;
    type IntoIter = std::vec::IntoIter<Problem>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in &self.0 {
            write!(f, "{problem}\n\n")?;
        }
        let errors = self.0.iter().filter(|p| p.is_error()).count();
        let warnings = self.0.len() - errors;
        let plural = |n: usize, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
        match (errors, warnings) {
            (e, 0) => f.write_str(&plural(e, "error")),
            (0, w) => f.write_str(&plural(w, "warning")),
            (e, w) => write!(f, "{}, {}", plural(e, "error"), plural(w, "warning")),
        }
    }
}
