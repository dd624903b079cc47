//! Options that moved from `chunk` to `service.identity`.

use profbridge_engine::config::{Problem, Problems, Section};
use serde::Deserialize;

/// The old key, and the new key in `service.identity`.
const MOVED: [(&str, &str); 3] = [("window", "window"), ("session", "session"), ("identity", "attributes")];

/// The values of the old keys, as text.
#[derive(Deserialize, Default)]
#[serde(default)]
struct WrittenKeys {
    window: Option<String>,
    session: Option<String>,
    identity: Option<Vec<String>>,
}

/// Replaces "unknown key" problems of moved keys by problems that name the new key.
pub(super) fn explain(problems: Problems, section: &Section) -> Vec<Problem> {
    let WrittenKeys { window, session, identity } = section.extract().unwrap_or_default();
    let values = [window, session, identity.map(|names| format!("[{}]", names.join(", ")))];
    let mut problems = problems.into_vec();
    for ((old, new), value) in MOVED.into_iter().zip(values).filter(|((old, _), _)| section.has(old)) {
        let value = value.as_deref().unwrap_or("...");
        let hint = format!("delete it here and write `identity: {{{new}: {value}}}` under `service:`");
        let moved = section.problem(old, format!("`{old}` has moved to `service.identity.{new}`"), hint);
        let unknown = problems.iter_mut().find(|problem| problem.key_path == moved.key_path);
        if let Some(unknown) = unknown {
            *unknown = moved;
        }
    }
    problems
}
