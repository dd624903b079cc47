//! What counts as a secret, and how it is kept out of everything that is printed.
//!
//! Three nets, each for what the one before lets through: keys that name a secret (`dsn`, `token`, everything under
//! `headers`), credentials inside URLs wherever they stand, and, for a source that is not even YAML, guesses by line.

use std::ops::Range;

use super::node::{Kind, Node};
use super::position::Pos;
use super::suggest;

/// What is shown in place of a secret.
pub(super) const REDACTED: &str = "[redacted]";

/// A key that contains one of these words names a secret.
const WORDS: &[&str] = &[
    "dsn",
    "token",
    "password",
    "passwd",
    "passphrase",
    "secret",
    "authorization",
    "api_key",
    "api-key",
    "apikey",
    "access_key",
    "access-key",
    "private_key",
    // Of a DSN: who has it can send in a project's name.
    "public_key",
    "credential",
    "cookie",
    "bearer",
    "headers",
    "sentry_key",
];

/// Keys with these endings tell where a secret is, or something about it, not the secret.
const HARMLESS_ENDINGS: &[&str] = &["_file", "_path", "_dir", "_attribute", "_timeout", "_size", "_interval"];

/// Whether the values under this key are secrets.
pub(super) fn is_secret_key(key: &str) -> bool {
    let key = key.to_lowercase();
    if HARMLESS_ENDINGS.iter().any(|ending| key.ends_with(ending)) {
        return false;
    }
    // A misspelt name of a secret still has the secret behind it.
    WORDS.iter().any(|word| {
        let comparable = word.len() > 4 && word.len().abs_diff(key.len()) <= 1;
        key.contains(word) || (comparable && suggest::distance(&key, word) <= 1)
    })
}

/// Whether a value at this path is a secret.
pub(super) fn is_secret_path(path: &[String]) -> bool {
    path.iter().any(|key| is_secret_key(key))
}

/// Whether keys below this path are secrets too, because a secret was written so that YAML takes it for a map. Below
/// `headers` and other plurals, keys are names.
pub(super) fn hides_keys(path: &[String]) -> bool {
    path.iter().any(|key| is_secret_key(key) && !key.to_lowercase().ends_with('s'))
}

/// What to hide behind a key that nobody knows: it may be a secret, unless it is near to a key that is none.
pub(super) fn unknown_value(key: &str, valid: &[&str], value: &Node) -> Option<Pos> {
    let harmless = suggest::nearest(key, valid.iter().copied()).is_some_and(|near| !is_secret_key(near));
    (!harmless && matches!(value.kind, Kind::Scalar(_))).then_some(value.at)
}

/// The `user:password` parts of URLs in `text`.
///
/// Everything up to the last `@` of the word counts, because a password may hold an unescaped `/`.
pub(super) fn userinfo(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(scheme) = text[from..].find("://") {
        let start = from + scheme + 3;
        let word = text[start..].find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`'));
        let end = word.map_or(text.len(), |length| start + length);
        if let Some(at) = text[start..end].rfind('@').filter(|at| *at > 0) {
            found.push(start..start + at);
        }
        from = end;
    }
    found
}

/// The secrets inside of a value that is none as a whole: credentials of URLs, and assignments such as `token=...`,
/// which stand in the query of a URL, or where somebody took another kind of file for a configuration.
pub(super) fn inline_secrets(text: &str) -> Vec<Range<usize>> {
    credentials_and_rest(text, after_secret_word(text, true))
}

/// The credentials of URLs in `text`, and all of it from `secret` on: both rules may fit one value.
fn credentials_and_rest(text: &str, secret: Option<usize>) -> Vec<Range<usize>> {
    let mut found = userinfo(text);
    if let Some(secret) = secret.filter(|start| *start < text.len()) {
        let start = found.iter().find(|range| range.end >= secret).map_or(secret, |range| range.start.min(secret));
        found.retain(|range| range.end < secret);
        found.push(start..text.len());
    }
    found
}

/// `text` without its [`inline_secrets`].
pub(super) fn without_inline_secrets(text: &str) -> String {
    mask(text, inline_secrets(text))
}

/// `text` without the credentials in its URLs.
pub(super) fn without_userinfo(text: &str) -> String {
    mask(text, userinfo(text))
}

fn mask(text: &str, ranges: Vec<Range<usize>>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut from = 0;
    for range in ranges {
        out.push_str(&text[from..range.start]);
        out.push_str(REDACTED);
        from = range.end;
    }
    out.push_str(&text[from..]);
    out
}

/// Texts shorter than this are common words and digits; replacing them garbles messages and hides nothing.
const SHORTEST_SECRET: usize = 3;
/// A part of a secret that is at least this long must not be shown either.
const LONGEST_PART: usize = 8;

/// Replaces `secret`; whether a part of it is still there.
pub(super) fn hide(message: &mut String, secret: &str) -> bool {
    if secret.len() < SHORTEST_SECRET {
        return false;
    }
    if message.contains(secret) {
        *message = message.replace(secret, REDACTED);
    }
    let chars: Vec<char> = secret.chars().collect();
    chars.windows(LONGEST_PART).any(|part| message.contains(&part.iter().collect::<String>()))
}

/// Hides everything that `masks` covers in `line` from `message`.
pub(super) fn scrub_line(message: &str, line: &str, masks: &[Range<usize>]) -> String {
    let mut message = without_userinfo(message);
    for mask in masks {
        if let Some(secret) = line.get(mask.clone()) {
            for word in secret.split(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ',' | '*' | '&' | '!')) {
                hide(&mut message, word);
            }
        }
    }
    message
}

/// The parts of a line that may be secrets, for a source that could not be parsed.
///
/// `inside` tells that a line with less indentation above it names a secret.
pub(super) fn guess(line: &str, inside: bool) -> Vec<Range<usize>> {
    let content = line.len() - line.trim_start().len();
    let secret = match after_secret_word(line, false) {
        None if inside => Some(line.find(": ").map_or(content, |colon| colon + 2)),
        word => word,
    };
    credentials_and_rest(line, secret)
}

/// Whether a value is given to the word before `rest`. `:-` is a default in a reference to the environment.
fn is_assignment(rest: &str) -> bool {
    let rest = rest.trim_start_matches(['"', '\'', ' ']);
    rest.starts_with(['=', ':']) && !rest.starts_with(":-")
}

/// Where the value begins behind the first secret word of the line; only behind `=` or `:` where `assigned`.
fn after_secret_word(line: &str, assigned: bool) -> Option<usize> {
    // Words of a line are compared one by one, as keys are.
    let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
    let mut start = None;
    for (at, c) in line.char_indices().chain([(line.len(), ' ')]) {
        match (start, is_word(c)) {
            (None, true) => start = Some(at),
            (Some(from), false) => {
                let rest = &line[at..];
                if is_secret_key(&line[from..at]) && (!assigned || is_assignment(rest)) {
                    return Some(at + (rest.len() - rest.trim_start_matches([':', '=', ' ', '"', '\'']).len()));
                }
                start = None;
            }
            _ => {}
        }
    }
    None
}
