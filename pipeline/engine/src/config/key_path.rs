//! Key paths as users write them: `a.b.c`, with quotes around a key that contains a dot:
//! `exporters."otlp/b.c".endpoint`.

use super::redact;

/// Maximum number of keys in a path: half of the allowed nesting depth. The other half is for the value.
const MAX_KEYS: usize = super::yaml::MAX_DEPTH / 2;

/// Why a path cannot be parsed.
pub(super) struct BadPath {
    /// Byte offset of the error.
    pub(super) at: usize,
    pub(super) message: &'static str,
}

/// Splits a path. The path ends before the first `stop`. Returns the keys and the byte offset after the path.
pub(super) fn parse(text: &str, stop: Option<char>) -> Result<(Vec<String>, usize), BadPath> {
    let mut keys = Vec::new();
    let mut at = 0;
    loop {
        let rest = &text[at..];
        let (key, length) = match rest.chars().next() {
            Some(quote @ ('"' | '\'')) => {
                let close =
                    rest[1..].find(quote).ok_or(BadPath { at, message: "this quote in the path is not closed" })?;
                (&rest[1..=close], close + 2)
            }
            _ => {
                let end = rest.find(|c| c == '.' || Some(c) == stop).unwrap_or(rest.len());
                (&rest[..end], end)
            }
        };
        if key.trim().is_empty() {
            return Err(BadPath { at, message: "a key of the path is empty" });
        }
        if keys.len() >= MAX_KEYS {
            return Err(BadPath { at, message: "the path has too many keys" });
        }
        keys.push(key.trim().to_owned());
        at += length;
        match text[at..].chars().next() {
            Some('.') => at += 1,
            None => return Ok((keys, at)),
            Some(c) if Some(c) == stop => return Ok((keys, at)),
            Some(_) => return Err(BadPath { at, message: "a `.` is missing after the quoted key" }),
        }
    }
}

/// Writes a path so that [`parse`] can read it. Credentials in keys are masked.
pub(super) fn join(path: &[String]) -> String {
    let quoted = path.iter().enumerate().map(|(index, key)| {
        if redact::hides_keys(&path[..index]) {
            return redact::REDACTED.to_owned();
        }
        let key: String = key.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let key = redact::without_inline_secrets(&key);
        if key.is_empty() || key.contains(['.', '"', '\'', '=', ' ']) { format!("\"{key}\"") } else { key }
    });
    quoted.collect::<Vec<_>>().join(".")
}
