//! A part of the configuration that is read on its own: a component's settings, or `service.telemetry`.

use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;

use super::collector;
use super::de::{De, Pruned};
use super::de_error::{DeError, DeKind, Hint, expected_words};
use super::key_path;
use super::keys::keys;
use super::node::{Node, NodeKind};
use super::position::{Pos, SourcePosition};
use super::problem::{Problem, Problems, Severity};
use super::redact;
use super::scalar::{self, Plain};
use super::source::{self, Source};
use super::suggest;
use super::text::Sources;

/// One subtree of the configuration. Cheap to clone; `Debug` shows its path, not its content.
#[derive(Clone)]
pub struct Section {
    inner: Arc<Inner>,
}

struct Inner {
    sources: Arc<Sources>,
    node: Arc<Node>,
    /// Path from the root of the configuration.
    path: Vec<String>,
    /// The position of the section's key.
    at: Pos,
}

/// At most this many problems of one section are reported, because each costs another pass over it.
const MAX_PROBLEMS: usize = 100;

impl Section {
    pub(super) fn new(sources: &Arc<Sources>, node: &Arc<Node>, path: &[String], at: Pos) -> Self {
        let inner = Inner { sources: sources.clone(), node: node.clone(), path: path.to_vec(), at };
        Self { inner: Arc::new(inner) }
    }

    /// An empty section.
    #[must_use]
    pub fn defaults() -> Self {
        let node = Arc::new(Node::null(Pos::whole(0)));
        Self::new(&Arc::new(Sources::default()), &node, &[], Pos::whole(0))
    }

    /// A section from YAML, for tests and built-in settings. Environment variables count as unset.
    ///
    /// # Errors
    ///
    /// The text is not valid YAML.
    pub fn from_yaml(yaml: &str) -> Result<Self, Problems> {
        if yaml.trim().is_empty() {
            return Ok(Self::defaults());
        }
        Self::load(&[Source::Text { name: "section".to_owned(), text: yaml.to_owned() }], &|_| None)
    }

    /// Loads sources that are not a whole configuration, such as some assignments, as one section; `env` looks up
    /// environment variables. Without sources the section is empty.
    ///
    /// # Errors
    ///
    /// The sources are not valid YAML.
    pub fn load(sources: &[Source], env: &dyn Fn(&str) -> Option<String>) -> Result<Self, Problems> {
        if sources.is_empty() {
            return Ok(Self::defaults());
        }
        let merged = source::read_sources(sources, env);
        if let Some(problems) = Problems::new(merged.problems) {
            return Err(problems);
        }
        let at = Pos { source: 0, start: 0, end: 0 };
        let root = Arc::new(merged.root.unwrap_or_else(|| Node::null(at)));
        Ok(Self::new(&Arc::new(merged.sources), &root, &[], at))
    }

    /// The section of a key below this one; empty if the configuration does not contain the key.
    #[must_use]
    pub fn below(&self, key_path: &str) -> Self {
        let (mut node, mut path, mut at) = (self.inner.node.clone(), self.inner.path.clone(), self.inner.at);
        for key in key_path::parse(key_path, None).map(|(keys, _)| keys).unwrap_or_default() {
            let found = node.entry(&key).map(|entry| (entry.value.clone(), entry.pos()));
            (node, at) = found.unwrap_or_else(|| (Arc::new(Node::null(at)), at));
            path.push(key);
        }
        Self::new(&self.inner.sources, &node, &path, at)
    }

    /// The path of the section from the root, such as `exporters.sentry`.
    #[must_use]
    pub fn key_path(&self) -> String {
        key_path::join(&self.inner.path)
    }

    /// The position of the section's key.
    #[must_use]
    pub fn position(&self) -> SourcePosition {
        self.inner.sources.position(self.inner.at)
    }

    /// Deserializes the section as `T`. An empty section is a map without entries.
    ///
    /// Types should have `deny_unknown_fields` on every struct, and [`super::Optional`] for parts that are switched on
    /// by their key. They should not use `flatten` and `untagged`: serde would read values before it knows the expected
    /// type, so that `1.10` becomes a number, and problems would be reported at the map instead of the value.
    ///
    /// # Errors
    ///
    /// All unknown keys, wrong types and missing keys that can be found. The inside of a value of the wrong type is not
    /// checked.
    pub fn extract<T: DeserializeOwned>(&self) -> Result<T, Problems> {
        self.extract_checked(|value, _| Ok(value))
    }

    /// Deserializes the section and checks it. What can be read of a section with problems is checked as well, so that
    /// one run names all that is wrong.
    ///
    /// # Errors
    ///
    /// Those of [`Section::extract`] and those of `check`, without what it finds at the keys that cannot be read, below
    /// or above them.
    pub fn extract_checked<T: DeserializeOwned, S>(
        &self,
        check: impl FnOnce(T, &Self) -> Result<S, Problems>,
    ) -> Result<S, Problems> {
        let (value, problems, unread) = self.extract_partly(&Pruned::new(), &[]);
        let Some(value) = value else { return Err(self.all(problems)) };
        self.with_problems(check(value, self), problems, &unread)
    }

    /// The same for two types that share the section, see [`Section::extract_parts`].
    ///
    /// # Errors
    ///
    /// Those of [`Section::extract_checked`].
    pub fn extract_checked_parts<A: DeserializeOwned, B: DeserializeOwned, S>(
        &self,
        check: impl FnOnce(A, B, &Self) -> Result<S, Problems>,
    ) -> Result<S, Problems> {
        let [(first, valid_first), (second, valid_second)] = self.parts::<A, B>();
        let (a, mut problems, mut unread) = self.extract_partly(&second, valid_second);
        let (b, more, also_unread) = self.extract_partly(&first, valid_first);
        problems.extend(more);
        unread.extend(also_unread);
        let (Some(a), Some(b)) = (a, b) else { return Err(self.all(problems)) };
        self.with_problems(check(a, b, self), problems, &unread)
    }

    /// The result of a check of what could be read, with the problems of reading.
    fn with_problems<S>(
        &self,
        checked: Result<S, Problems>,
        mut problems: Vec<Problem>,
        unread: &Pruned,
    ) -> Result<S, Problems> {
        if problems.is_empty() {
            return checked;
        }
        // Such a rule was checked with the default in place of what is written.
        let unread: Vec<String> = unread.iter().map(|path| key_path::join(&self.full_path(path))).collect();
        let is_within = |one: &str, other: &str| {
            let rest = one.strip_prefix(other);
            other.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let is_meant = |problem: &Problem| {
            let key = &*problem.key_path;
            !unread.iter().any(|unread| is_within(unread, key) || is_within(key, unread))
        };
        problems.extend(checked.err().into_iter().flatten().filter(is_meant));
        Err(self.all(problems))
    }

    /// Problems of which there is at least one.
    fn all(&self, problems: Vec<Problem>) -> Problems {
        Problems::new(problems).unwrap_or_else(|| self.problem("", "cannot be read", "").into())
    }

    /// The written keys of two types that share the section, and the valid ones.
    fn parts<A: DeserializeOwned, B: DeserializeOwned>(&self) -> [(Pruned, &'static [&'static str]); 2] {
        let (first, second) = (keys::<A>(), keys::<B>());
        let written = self.inner.node.entries().unwrap_or_default().iter().map(|entry| vec![entry.key.clone()]);
        let (of_second, of_first) = written.partition(|path| second.contains(&path[0].as_str()));
        [(of_first, first), (of_second, second)]
    }

    /// Deserializes the section as two types that share it: `B` gets its own keys, `A` all others. This replaces
    /// serde's `flatten`; with `deny_unknown_fields` on both types an unknown key is reported once, with the keys of
    /// both as valid ones.
    ///
    /// # Errors
    ///
    /// Those of [`Section::extract`], for both parts.
    pub fn extract_parts<A: DeserializeOwned, B: DeserializeOwned>(&self) -> Result<(A, B), Problems> {
        self.extract_checked_parts(|a, b, _| Ok((a, b)))
    }

    /// What can be deserialized of the section without the nodes in `hidden`, if anything, the problems of the rest,
    /// and its paths; `valid` are the keys of the other type.
    fn extract_partly<T: DeserializeOwned>(
        &self,
        hidden: &Pruned,
        valid: &[&'static str],
    ) -> (Option<T>, Vec<Problem>, Pruned) {
        let mut pruned = hidden.clone();
        let mut problems: Vec<Problem> = Vec::new();
        loop {
            let error = match T::deserialize(De::new(&self.inner.node, &pruned)) {
                Ok(value) => return (Some(value), problems, pruned.difference(hidden).cloned().collect()),
                Err(error) => error,
            };
            let path = error.path.clone().unwrap_or_default();
            if !is_consequence(&error.kind, &path, pruned.difference(hidden)) {
                problems.push(self.complaint(&error, &path, valid));
            }
            // Removes the wrong node, so that the next pass finds the problems after it.
            if problems.len() >= MAX_PROBLEMS || !prune(path, &mut pruned) {
                if problems.is_empty() {
                    problems.push(self.complaint(&error, &[], valid));
                }
                return (None, problems, pruned);
            }
        }
    }

    /// A problem at a key of this section, for rules that types cannot express. `key_path` is relative to the section,
    /// with quotes around keys that contain a dot and indexes for lists (`routes.0.dsn`); the excerpt shows the nearest
    /// key that exists. If `message` quotes a secret value of that key, the value is masked. An empty `hint` means that
    /// there is none.
    #[must_use]
    pub fn problem(&self, key_path: &str, message: impl Into<String>, hint: impl Into<String>) -> Problem {
        let path = match key_path::parse(key_path, None) {
            Ok((path, _)) => path,
            Err(_) => Vec::new(),
        };
        self.report(&path, &message.into(), Some(hint.into()))
    }

    /// Returns the problems of the broken rules. Each rule consists of: whether it is broken, its key, message and
    /// hint, as for [`Section::problem`].
    #[must_use]
    pub fn broken_rules(&self, rules: &[(bool, &str, &str, &str)]) -> Vec<Problem> {
        let broken = rules.iter().filter(|(broken, ..)| *broken);
        broken.map(|&(_, key, message, hint)| self.problem(key, message, hint)).collect()
    }

    /// Whether the section contains a key.
    #[must_use]
    pub fn has(&self, key_path: &str) -> bool {
        key_path::parse(key_path, None).is_ok_and(|(path, _)| self.inner.node.find(&path).is_some())
    }

    fn full_path(&self, path: &[String]) -> Vec<String> {
        self.inner.path.iter().chain(path).cloned().collect()
    }

    fn report(&self, path: &[String], message: &str, hint: Option<String>) -> Problem {
        let hint = hint.filter(|hint| !hint.is_empty()).map(|hint| self.scrub(path, &hint));
        self.trusted_problem(path, self.scrub(path, message), hint)
    }

    /// A problem whose text this module wrote and that quotes nothing secret. Its text is not scrubbed, because one of
    /// its words may equal a value, such as `false`.
    fn trusted_problem(&self, path: &[String], message: String, hint: Option<String>) -> Problem {
        Problem {
            position: self.inner.sources.position(self.nearest(path)),
            key_path: key_path::join(&self.full_path(path)),
            message,
            hint,
            severity: Severity::Error,
        }
    }

    /// Removes the secrets at `path` from a text that other code wrote.
    fn scrub(&self, path: &[String], text: &str) -> String {
        self.inner.sources.scrub(text, &self.full_path(path), self.inner.node.find(path))
    }

    /// The position to show for a path: the scalar, otherwise the key, otherwise the nearest key above.
    fn nearest(&self, path: &[String]) -> Pos {
        if let Some(node) = self.inner.node.find(path)
            && matches!(node.kind, NodeKind::Scalar(_))
            && !node.is_null()
        {
            return node.at;
        }
        self.key_at(path)
    }

    fn key_at(&self, path: &[String]) -> Pos {
        for length in (1..=path.len()).rev() {
            let (parent, key) = (&path[..length - 1], &path[length - 1]);
            match self.inner.node.find(parent).map(|node| (node, &node.kind)) {
                Some((node, NodeKind::Map(_))) => {
                    if let Some(entry) = node.entry(key) {
                        return entry.pos();
                    }
                }
                Some((node, NodeKind::Seq(_))) => {
                    if let Some(item) = node.find(std::slice::from_ref(key)) {
                        return item.at;
                    }
                }
                _ => {}
            }
        }
        self.inner.at
    }

    /// Turns a serde error into a problem. `others` are further keys that the section may have.
    fn complaint(&self, error: &DeError, path: &[String], others: &[&'static str]) -> Problem {
        let node = self.inner.node.find(path);
        match &error.kind {
            DeKind::UnknownKey { key, valid } => {
                let full = self.full_path(path);
                let others = if path.len() == 1 { others } else { &[] };
                let valid = [valid, others].concat();
                let hint =
                    collector::hint(&full).map_or_else(|| suggest::hint(key, &valid, "keys"), |known| known.to_owned());
                let value = node.and_then(|node| redact::unknown_value(key, &valid, node));
                Problem {
                    position: self.inner.sources.position_hiding(self.key_at(path), value),
                    key_path: key_path::join(&full),
                    message: format!("unknown key `{}`", redact::without_inline_secrets(key)),
                    hint: Some(hint),
                    severity: Severity::Error,
                }
            }
            DeKind::UnknownVariant { valid } => {
                let word = self.harmless_text(path, node).unwrap_or_default();
                let hint = suggest::hint(&word, valid, "values");
                let message = if word.is_empty() { "unknown value".into() } else { format!("unknown value `{word}`") };
                self.trusted_problem(path, message, Some(hint))
            }
            DeKind::Missing { key } => {
                self.trusted_problem(path, format!("the key `{key}` is missing"), Some(format!("add `{key}:` here")))
            }
            DeKind::Mismatch { found, expected, hint } => {
                let found = self.found(path, node, found);
                let message = format!("expected {}, found {found}", expected_words(expected));
                let hint = hint.as_ref().map(|hint| match hint {
                    Hint::Fixed(hint) => (*hint).to_owned(),
                    Hint::Quoting(hint) => self.scrub(path, hint),
                });
                self.trusted_problem(path, message, hint)
            }
            DeKind::Broken { message, hint } => Problem {
                position: self.inner.sources.position(self.nearest(path)),
                key_path: String::new(),
                message: message.clone(),
                hint: Some(hint.clone()),
                severity: Severity::Error,
            },
            DeKind::Custom(message) => {
                let words = if message.starts_with("data did not match any variant") {
                    "the value has none of the forms that are possible here"
                } else {
                    message
                };
                let (message, hint) = words.split_once("; ").map_or((words, None), |(m, h)| (m, Some(h.to_owned())));
                self.report(path, message, hint)
            }
        }
    }

    /// The text of a scalar, if it may be shown.
    fn harmless_text(&self, path: &[String], node: Option<&Node>) -> Option<String> {
        const SHOWN: usize = 40;
        let node = node?;
        let NodeKind::Scalar(scalar) = &node.kind else { return None };
        let shown = !self.inner.sources.is_sensitive(&self.full_path(path), node, scalar)
            && scalar.text.chars().count() <= SHOWN
            && !scalar.text.contains(|c: char| c.is_control() || c == '`');
        shown.then(|| scalar.text.clone())
    }

    /// Describes the value at a path. `seen` is what serde saw, which may be nested inside the value.
    fn found(&self, path: &[String], node: Option<&Node>, seen: &str) -> String {
        let Some(node) = node else { return seen.to_owned() };
        let scalar = match &node.kind {
            NodeKind::Map(_) | NodeKind::Seq(_) => return seen.to_owned(),
            NodeKind::Scalar(scalar) => scalar,
        };
        let kind = if scalar.plain { scalar::plain(&scalar.text) } else { Plain::Text };
        let word = match kind {
            Plain::Null => return "nothing".to_owned(),
            Plain::Bool(_) => "",
            Plain::Unsigned(_) | Plain::Signed(_) | Plain::Float(_) => "the number ",
            Plain::Text => "the text ",
        };
        match self.harmless_text(path, Some(node)) {
            Some(text) => format!("{word}`{text}`"),
            None if word.is_empty() => "a boolean".to_owned(),
            None => word.trim_end().replace("the ", "a ").replace("a text", "text"),
        }
    }
}

/// Prunes the node at `path`, or its parent if that did not help; returns `false` when nothing is left.
fn prune(mut path: Vec<String>, pruned: &mut Pruned) -> bool {
    while !path.is_empty() {
        if pruned.insert(path.clone()) {
            return true;
        }
        path.pop();
    }
    false
}

/// Whether an error is only a consequence of a pruned node; `gone` has the pruned paths.
fn is_consequence<'a>(kind: &DeKind, path: &[String], mut gone: impl Iterator<Item = &'a Vec<String>>) -> bool {
    match kind {
        DeKind::UnknownKey { .. } | DeKind::Broken { .. } => false,
        DeKind::Missing { key } => {
            gone.any(|gone| gone.split_last().is_some_and(|(last, above)| above == path && last == key))
        }
        _ => gone.any(|gone| gone.len() > path.len() && gone.starts_with(path)),
    }
}

impl fmt::Debug for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Section").field(&self.key_path()).finish()
    }
}
