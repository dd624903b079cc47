//! Expands `${env:NAME}` in scalars, as the Collector does (`confmap/expand.go`): `${NAME}` is the same,
//! `${env:NAME:-default}` has a default, `$$` is a dollar sign. A variable that is unset and has no default is an error
//! here; the Collector expands it to nothing and would start a pipeline without a destination.

use super::redact;

/// The result of expanding a scalar.
pub(super) struct Expanded {
    pub(super) text: String,
    /// Whether parts of the text came from the environment.
    pub(super) from_env: bool,
    /// Why the scalar could not be expanded: message and hint.
    pub(super) broken: Option<(String, String)>,
}

/// Looks up an environment variable.
pub(super) type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The maximum nesting depth of references within defaults.
const MAX_DEPTH: usize = 8;
/// The maximum size of an expanded scalar in bytes.
const MAX_BYTES: usize = 256 * 1024;

/// Replaces all references in `raw`.
pub(super) fn expand(raw: &str, env: Env<'_>) -> Expanded {
    let mut out = Expanded { text: String::with_capacity(raw.len()), from_env: false, broken: None };
    if let Err(broken) = expand_into(raw, env, 0, &mut out) {
        out.broken = Some(broken);
    }
    out
}

fn expand_into(raw: &str, env: Env<'_>, depth: usize, out: &mut Expanded) -> Result<(), (String, String)> {
    if depth > MAX_DEPTH {
        return Err(("environment references are nested too deeply".into(), format!("at most {MAX_DEPTH} levels")));
    }
    let mut rest = raw;
    while let Some(dollar) = rest.find('$') {
        out.text.push_str(&rest[..dollar]);
        let after = &rest[dollar + 1..];
        if let Some(tail) = after.strip_prefix('$') {
            out.text.push('$');
            rest = tail;
        } else if let Some(body) = after.strip_prefix('{') {
            let Some(close) = closing_brace(body) else {
                return Err((
                    "`${` without a closing `}`".into(),
                    "write `${env:NAME}`, or `$${` for the characters themselves".into(),
                ));
            };
            reference(&body[..close], env, depth, out)?;
            rest = &body[close + 1..];
        } else {
            out.text.push('$');
            rest = after;
        }
        if out.text.len() > MAX_BYTES {
            return Err(("the value is too long after its references are replaced".into(), limit_hint()));
        }
    }
    out.text.push_str(rest);
    if out.text.len() > MAX_BYTES { Err(("the value is too long".into(), limit_hint())) } else { Ok(()) }
}

fn limit_hint() -> String {
    format!("at most {MAX_BYTES} bytes")
}

fn reference(body: &str, env: Env<'_>, depth: usize, out: &mut Expanded) -> Result<(), (String, String)> {
    let (target, default) = match body.split_once(":-") {
        Some((target, default)) => (target, Some(default)),
        None => (body, None),
    };
    let name = match target.split_once(':') {
        None => target,
        Some(("env", name)) => name,
        Some((scheme, _)) => {
            let scheme = redact::without_inline_secrets(scheme);
            return Err((
                format!("references of the kind `{scheme}:` are not supported"),
                "only the environment can be referred to: `${env:NAME}` or `${env:NAME:-default}`".into(),
            ));
        }
    };
    if !is_name(name) {
        return Err((
            "this is not the name of an environment variable".into(),
            "a name has letters, digits and `_` and does not begin with a digit; write `$$` for a dollar sign".into(),
        ));
    }
    out.from_env = true;
    match (env(name), default) {
        (Some(value), _) => out.text.push_str(&value),
        (None, Some(default)) => expand_into(default, env, depth + 1, out)?,
        (None, None) => {
            return Err((
                format!("environment variable `{name}` is not set"),
                format!("set it, or give a default: `${{env:{name}:-default}}` (the Collector would put nothing here)"),
            ));
        }
    }
    Ok(())
}

/// Returns the position of the brace that closes a `${`; `body` is the text after it.
fn closing_brace(body: &str) -> Option<usize> {
    let mut open = 0_usize;
    let mut previous = ' ';
    for (at, c) in body.char_indices() {
        match c {
            '{' if previous == '$' => open += 1,
            '}' if open == 0 => return Some(at),
            '}' => open -= 1,
            _ => {}
        }
        previous = c;
    }
    None
}

fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Whether a scalar consists only of references without defaults, so that printing it reveals no value.
pub(super) fn is_only_references(raw: &str) -> bool {
    let mut rest = raw;
    let mut found = false;
    while let Some(body) = rest.strip_prefix("${") {
        let Some(close) = body.find('}') else { return false };
        let name = &body[..close];
        let name = name.strip_suffix(":-").unwrap_or(name);
        if !is_name(name.strip_prefix("env:").unwrap_or(name)) {
            return false;
        }
        found = true;
        rest = &body[close + 1..];
    }
    found && rest.is_empty()
}
