//! A part of the configuration, read on its own: a component's settings, or `service.telemetry`.

use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;

use super::collector;
use super::de::{De, Pruned};
use super::de_error::{DeError, DeKind, Hint, expected_words};
use super::key_path;
use super::keys::keys;
use super::node::{Kind, Node};
use super::position::{Pos, SourcePosition};
use super::problem::{Problem, Problems, Severity};
use super::redact;
use super::scalar::{self, Plain};
use super::source::{self, Source};
use super::suggest;
use super::text::Sources;

/// One subtree of the configuration. Cheap to clone; `Debug` shows where it is, not what it says.
#[derive(Clone)]
pub struct Section {
    inner: Arc<Inner>,
}

struct Inner {
    sources: Arc<Sources>,
    node: Arc<Node>,
    /// Path from the root of the configuration.
    path: Vec<String>,
    /// Where the section's key is.
    at: Pos,
}

/// So many problems of one section are reported; each costs a pass over it.
const MAX_PROBLEMS: usize = 100;

impl Section {
    pub(super) fn new(sources: &Arc<Sources>, node: &Arc<Node>, path: &[String], at: Pos) -> Self {
        let inner = Inner { sources: sources.clone(), node: node.clone(), path: path.to_vec(), at };
        Self { inner: Arc::new(inner) }
    }

    /// A section in which nothing is written.
    #[must_use]
    pub fn defaults() -> Self {
        let node = Arc::new(Node::null(Pos::whole(0)));
        Self::new(&Arc::new(Sources::default()), &node, &[], Pos::whole(0))
    }

    /// A section from YAML, for tests and built-in settings. References to the environment have no values here.
    ///
    /// # Errors
    /// What is wrong with the text as YAML.
    pub fn from_yaml(yaml: &str) -> Result<Self, Problems> {
        if yaml.trim().is_empty() {
            return Ok(Self::defaults());
        }
        Self::load(&[Source::Text { name: "section".to_owned(), text: yaml.to_owned() }], &|_| None)
    }

    /// The root of sources that are no whole configuration, such as some assignments; `env` looks up environment
    /// variables. Without sources nothing is written in it.
    ///
    /// # Errors
    /// What is wrong with the sources as YAML.
    pub fn load(sources: &[Source], env: &dyn Fn(&str) -> Option<String>) -> Result<Self, Problems> {
        if sources.is_empty() {
            return Ok(Self::defaults());
        }
        let merged = source::read(sources, env);
        if let Some(problems) = Problems::new(merged.problems) {
            return Err(problems);
        }
        let at = Pos { source: 0, start: 0, end: 0 };
        let root = Arc::new(merged.root.unwrap_or_else(|| Node::null(at)));
        Ok(Self::new(&Arc::new(merged.sources), &root, &[], at))
    }

    /// The section of a key below this one; where the key is not written, one in which nothing is.
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

    /// Where the section's key is.
    #[must_use]
    pub fn position(&self) -> SourcePosition {
        self.inner.sources.position(self.inner.at)
    }

    /// Reads the section as `T`. A section in which nothing is written is read as a map without entries.
    ///
    /// Types should have `deny_unknown_fields` on every struct, and [`super::Optional`] for parts that are switched on
    /// by being written. They should not use `flatten` and `untagged`: serde then reads values before it knows what is
    /// wanted, so that `1.10` becomes a number, and problems are reported at the map instead of the value.
    ///
    /// # Errors
    /// All unknown keys, all values of the wrong type and all missing keys, as far as they can be known: what is inside
    /// of a value that has the wrong type as a whole is not looked at.
    pub fn extract<T: DeserializeOwned>(&self) -> Result<T, Problems> {
        self.extract_without(&Pruned::new(), &[])
    }

    /// Reads the section as two types that share it: keys of `B` are given to `B`, all others to `A`. What `flatten`
    /// would be for; with `deny_unknown_fields` on both an unknown key is reported once, with the keys of both as what
    /// is valid.
    ///
    /// # Errors
    /// Those of [`Section::extract`], for both parts.
    pub fn extract_parts<A: DeserializeOwned, B: DeserializeOwned>(&self) -> Result<(A, B), Problems> {
        let (first, second) = (keys::<A>(), keys::<B>());
        let written = self.inner.node.entries().unwrap_or_default().iter().map(|entry| vec![entry.key.clone()]);
        let (of_second, of_first) = written.partition(|path| second.contains(&path[0].as_str()));
        match (self.extract_without(&of_second, second), self.extract_without(&of_first, first)) {
            (Ok(a), Ok(b)) => Ok((a, b)),
            (Err(problems), Err(more)) => {
                let all = problems.clone().into_iter().chain(more).collect();
                Err(Problems::new(all).unwrap_or(problems))
            }
            (Err(problems), _) | (_, Err(problems)) => Err(problems),
        }
    }

    /// Reads the section as if what is at `hidden` were not written; `valid` are the keys that somebody else reads.
    fn extract_without<T: DeserializeOwned>(&self, hidden: &Pruned, valid: &[&'static str]) -> Result<T, Problems> {
        let mut pruned = hidden.clone();
        let mut problems: Vec<Problem> = Vec::new();
        loop {
            let error = match T::deserialize(De::new(&self.inner.node, &pruned)) {
                Ok(value) => return Problems::new(problems).map_or(Ok(value), Err),
                Err(error) => error,
            };
            let path = error.path.clone().unwrap_or_default();
            if !is_consequence(&error.kind, &path, pruned.difference(hidden)) {
                problems.push(self.complaint(&error, &path, valid));
            }
            // What is wrong is taken out, so that the next pass gets to what is behind it.
            if problems.len() >= MAX_PROBLEMS || !prune(path, &mut pruned) {
                let fallback = || Problems::from(self.complaint(&error, &[], valid));
                return Err(Problems::new(problems).unwrap_or_else(fallback));
            }
        }
    }

    /// A problem at a key of this section, for rules that types cannot express. `key_path` is relative to the section,
    /// with quotes around keys that have a dot and indexes for lists (`routes.0.dsn`); the nearest key that exists is
    /// shown. Where `message` quotes a secret value of that key, the value is masked. An empty `hint` is none.
    #[must_use]
    pub fn problem(&self, key_path: &str, message: impl Into<String>, hint: impl Into<String>) -> Problem {
        let path = match key_path::parse(key_path, None) {
            Ok((path, _)) => path,
            Err(_) => Vec::new(),
        };
        self.report(&path, &message.into(), Some(hint.into()))
    }

    /// The problems of rules, each with whether it is broken, its key, message and hint, as for [`Section::problem`].
    #[must_use]
    pub fn broken_rules(&self, rules: &[(bool, &str, &str, &str)]) -> Vec<Problem> {
        let broken = rules.iter().filter(|(broken, ..)| *broken);
        broken.map(|&(_, key, message, hint)| self.problem(key, message, hint)).collect()
    }

    /// Whether a key is written in this section.
    #[must_use]
    pub fn has(&self, key_path: &str) -> bool {
        key_path::parse(key_path, None).is_ok_and(|(path, _)| self.inner.node.find(&path).is_some())
    }

    fn full_path(&self, path: &[String]) -> Vec<String> {
        self.inner.path.iter().chain(path).cloned().collect()
    }

    fn report(&self, path: &[String], message: &str, hint: Option<String>) -> Problem {
        let hint = hint.filter(|hint| !hint.is_empty()).map(|hint| self.scrub(path, &hint));
        self.own(path, self.scrub(path, message), hint)
    }

    /// An error in words that are this module's own and quote nothing that must not be shown. They are not scrubbed,
    /// since a word of theirs may happen to be a value: `false`, or one of the values that are possible.
    fn own(&self, path: &[String], message: String, hint: Option<String>) -> Problem {
        Problem {
            position: self.inner.sources.position(self.nearest(path)),
            key_path: key_path::join(&self.full_path(path)),
            message,
            hint,
            severity: Severity::Error,
        }
    }

    /// A text of somebody else about what stands at a path, without the secrets there.
    fn scrub(&self, path: &[String], text: &str) -> String {
        self.inner.sources.scrub(text, &self.full_path(path), self.inner.node.find(path))
    }

    /// Where to point for a path: at a scalar itself, else at the key, else at the nearest key above.
    fn nearest(&self, path: &[String]) -> Pos {
        if let Some(node) = self.inner.node.find(path)
            && matches!(node.kind, Kind::Scalar(_))
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
                Some((node, Kind::Map(_))) => {
                    if let Some(entry) = node.entry(key) {
                        return entry.pos();
                    }
                }
                Some((node, Kind::Seq(_))) => {
                    if let Some(item) = node.find(std::slice::from_ref(key)) {
                        return item.at;
                    }
                }
                _ => {}
            }
        }
        self.inner.at
    }

    /// Puts what serde says into words. `others` are further keys that the section may have.
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
                self.own(path, message, Some(hint))
            }
            DeKind::Missing { key } => {
                self.own(path, format!("the key `{key}` is missing"), Some(format!("add `{key}:` here")))
            }
            DeKind::Mismatch { found, expected, hint } => {
                let found = self.found(path, node, found);
                let message = format!("expected {}, found {found}", expected_words(expected));
                let hint = hint.as_ref().map(|hint| match hint {
                    Hint::Fixed(hint) => (*hint).to_owned(),
                    Hint::Quoting(hint) => self.scrub(path, hint),
                });
                self.own(path, message, hint)
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

    /// The text of a scalar, where it may be shown.
    fn harmless_text(&self, path: &[String], node: Option<&Node>) -> Option<String> {
        const SHOWN: usize = 40;
        let node = node?;
        let Kind::Scalar(scalar) = &node.kind else { return None };
        let shown = !self.inner.sources.is_sensitive(&self.full_path(path), node, scalar)
            && scalar.text.chars().count() <= SHOWN
            && !scalar.text.contains(|c: char| c.is_control() || c == '`');
        shown.then(|| scalar.text.clone())
    }

    /// What stands at a path, in words. `seen` is what serde saw, which may be something inside of it.
    fn found(&self, path: &[String], node: Option<&Node>, seen: &str) -> String {
        let Some(node) = node else { return seen.to_owned() };
        let scalar = match &node.kind {
            Kind::Map(_) | Kind::Seq(_) => return seen.to_owned(),
            Kind::Scalar(scalar) => scalar,
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

/// Takes out what is at `path`, or, where that did not help, what is around it; `false` when nothing is left.
fn prune(mut path: Vec<String>, pruned: &mut Pruned) -> bool {
    while !path.is_empty() {
        if pruned.insert(path.clone()) {
            return true;
        }
        path.pop();
    }
    false
}

/// Whether a complaint only comes from something that has been taken out before, which is in `gone`.
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
