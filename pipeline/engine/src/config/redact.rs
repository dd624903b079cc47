//! Decides what is a secret, and removes secrets from everything that is printed.
//!
//! There are three filters. Each catches secrets that the previous one misses: keys that name a secret (`dsn`, `token`,
//! everything under `headers`), credentials inside URLs, and, for a source that is not even YAML, a guess per line.

use std::ops::Range;

use super::node::{Node, NodeKind};
use super::position::Pos;
use super::suggest;

/// The replacement for a secret.
pub(super) const REDACTED: &str = "[redacted]";

/// A key that contains one of these words has a secret as its value.
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
    // The public key of a DSN: with it anyone can send to the project.
    "public_key",
    "credential",
    "cookie",
    "bearer",
    "headers",
    "sentry_key",
];

/// The values of keys with these endings describe a secret, such as its location, but do not contain it.
const HARMLESS_ENDINGS: &[&str] = &["_file", "_path", "_dir", "_attribute", "_timeout", "_size", "_interval"];

/// Whether the values under this key are secrets.
pub(super) fn is_secret_key(key: &str) -> bool {
    let key = key.to_lowercase();
    if HARMLESS_ENDINGS.iter().any(|ending| key.ends_with(ending)) {
        return false;
    }
    // A misspelt key of a secret still has a secret as its value.
    WORDS.iter().any(|word| {
        let comparable = word.len() > 4 && word.len().abs_diff(key.len()) <= 1;
        key.contains(word) || (comparable && suggest::distance(&key, word) <= 1)
    })
}

/// Whether a value at this path is a secret.
pub(super) fn is_secret_path(path: &[String]) -> bool {
    path.iter().any(|key| is_secret_key(key))
}

/// Whether keys below this path are secrets too, because YAML parsed the secret as a map. Below `headers` and other
/// plurals, keys are names.
pub(super) fn hides_keys(path: &[String]) -> bool {
    path.iter().any(|key| is_secret_key(key) && !key.to_lowercase().ends_with('s'))
}

/// Returns the position of an unknown key's value if it must be hidden: the value may be a secret, unless the key
/// resembles a valid key without a secret.
pub(super) fn unknown_value(key: &str, valid: &[&str], value: &Node) -> Option<Pos> {
    let harmless = suggest::nearest(key, valid.iter().copied()).is_some_and(|near| !is_secret_key(near));
    (!harmless && matches!(value.kind, NodeKind::Scalar(_))).then_some(value.at)
}

/// Returns the `user:password` parts of URLs in `text`, also of URLs without a scheme. Without a scheme, a user name
/// alone is not hidden, because an e-mail address looks the same.
///
/// Each part extends to the last `@` of the word, because a password may contain an unescaped `/`.
pub(super) fn userinfo(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut from = 0;
    for word in text.split(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`')) {
        let before = &word[..word.rfind('@').unwrap_or(0)];
        let start = match before.find("://") {
            Some(scheme) if !before[..scheme].contains('@') => Some(scheme + 3),
            // On the command line the key precedes the value: `KEY=user:password@host`.
            _ => before.find(':').map(|colon| before[..colon].rfind('=').map_or(0, |equals| equals + 1)),
        };
        found.extend(start.filter(|start| *start < before.len()).map(|start| from + start..from + before.len()));
        from += word.len() + text[from + word.len()..].chars().next().map_or(0, char::len_utf8);
    }
    found
}

/// Returns the secrets within a value that is not itself secret: credentials of URLs, and assignments such as
/// `token=...` in the query of a URL, or in a file that is not a configuration.
pub(super) fn inline_secrets(text: &str) -> Vec<Range<usize>> {
    credentials_and_rest(text, after_secret_word(text, true))
}

/// Returns the credentials of URLs in `text`, and everything from `secret` on: a value may contain both.
fn credentials_and_rest(text: &str, secret: Option<usize>) -> Vec<Range<usize>> {
    let mut found = userinfo(text);
    if let Some(secret) = secret.filter(|start| *start < text.len()) {
        let start = found.iter().find(|range| range.end >= secret).map_or(secret, |range| range.start.min(secret));
        found.retain(|range| range.end < secret);
        found.push(start..text.len());
    }
    found
}

pub(super) fn without_inline_secrets(text: &str) -> String {
    mask(text, inline_secrets(text))
}

/// Returns `text` without the credentials in its URLs.
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

/// The shortest secret that is replaced. Shorter ones are common words and digits: replacing them would garble messages
/// and hide nothing.
const SHORTEST_SECRET: usize = 3;
/// A part of a secret with at least this length must not be shown either.
const LONGEST_PART: usize = 8;

/// Replaces `secret` in `message`. Returns whether the message still contains a part of it.
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

/// Removes every text from `message` that `masks` covers in `line`.
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

/// Returns the parts of a line that may be secrets, for a source that could not be parsed.
///
/// `inside` means that a less indented line above names a secret.
pub(super) fn guess(line: &str, inside: bool) -> Vec<Range<usize>> {
    let content = line.len() - line.trim_start().len();
    let secret = match after_secret_word(line, false) {
        None if inside => Some(line.find(": ").map_or(content, |colon| colon + 2)),
        word => word,
    };
    credentials_and_rest(line, secret)
}

/// Whether `rest` assigns a value to the word before it. `:-` is not an assignment, but starts the default of an
/// environment reference.
fn is_assignment(rest: &str) -> bool {
    let rest = rest.trim_start_matches(['"', '\'', ' ']);
    rest.starts_with(['=', ':']) && !rest.starts_with(":-")
}

/// Returns where the value after the first secret word of the line begins; if `assigned`, only a value after `=` or
/// `:`.
fn after_secret_word(line: &str, assigned: bool) -> Option<usize> {
    // Each word of the line is checked as if it were a key.
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
