//! Sets a value in JSON, or changes a list in it, by editing its text: everything else stays byte for byte, numbers and
//! the order of keys included.

use std::ops::Range;

use serde_json::value::RawValue;

use super::sampled::text::Entries;

/// The most keys of an object on the way to a value.
const MAX_KEYS: usize = 1 << 16;

/// Why a value cannot be set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpliceError {
    /// The text is no JSON, or an object on the way has too many keys.
    #[error("cannot be read: {0}")]
    Json(String),
    /// What stands on the way is no object.
    #[error("{0} is no object")]
    NoObject(String),
}

/// The JSON with a value, which is JSON itself, under the keys of a path. Objects that are missing on the way, or null,
/// are made. What is new stands last in its object; of a key that stands there twice, the last is replaced, which is
/// the one that counts.
///
/// # Errors
///
/// The text is no object of JSON, or what stands on the way is none.
pub fn set(json: &[u8], path: &[&str], value: &str) -> Result<Vec<u8>, SpliceError> {
    let root: &RawValue = serde_json::from_slice(json).map_err(|error| SpliceError::Json(error.to_string()))?;
    let mut object = root;
    for (depth, key) in path.iter().enumerate() {
        let text = object.get();
        if !text.starts_with('{') {
            let place = path[..depth].join(".");
            return Err(SpliceError::NoObject(if place.is_empty() { "the text".to_owned() } else { place }));
        }
        let entries: Entries<'_, &RawValue, MAX_KEYS> =
            serde_json::from_str(text).map_err(|error| SpliceError::Json(error.to_string()))?;
        let rest = &path[depth + 1..];
        match entries.0.iter().rev().find(|(known, _)| known.as_str() == *key) {
            Some((_, found)) if rest.is_empty() || found.get() == "null" => {
                let start = place_in(json, found.get());
                return Ok(edited(json, start..start + found.get().len(), &nested(rest, value)));
            }
            Some((_, found)) => object = found,
            None => {
                let end = place_in(json, text) + text.len() - 1;
                let comma = if entries.0.is_empty() { "" } else { "," };
                let new = format!("{comma}{}:{}", serde_json::Value::from(*key), nested(rest, value));
                return Ok(edited(json, end..end, &new));
            }
        }
    }
    // A path without keys: the whole text is replaced.
    Ok(value.as_bytes().to_vec())
}

/// The JSON that stands under the keys of a path. `None` where there is none, or where what stands on the way is no
/// object.
pub(super) fn get<'a>(json: &'a str, path: &[&str]) -> Option<&'a str> {
    let mut value = json.trim();
    for key in path {
        let entries: Entries<'_, &RawValue, MAX_KEYS> = serde_json::from_str(value).ok()?;
        value = entries.0.iter().rev().find(|(known, _)| known.as_str() == *key)?.1.get();
    }
    Some(value)
}

/// What becomes of an element of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Element {
    /// It stays as it is.
    Stays,
    /// It becomes this JSON.
    Becomes(Vec<u8>),
    /// It goes, and a comma beside it.
    Goes,
}

/// JSON in which a list is changed, whose elements stand at these places, in order.
pub(super) fn change_list(json: &[u8], elements: &[(Range<usize>, Element)]) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len());
    // What stands in front of this was written, or is left out.
    let mut at = 0;
    let mut position = 0;
    while let Some((place, element)) = elements.get(position) {
        position += 1;
        match element {
            Element::Stays => {}
            Element::Becomes(new) => {
                out.extend_from_slice(&json[at..place.start]);
                out.extend_from_slice(new);
                at = place.end;
            }
            Element::Goes => {
                let first = position - 1;
                position += elements[position..].iter().take_while(|(_, next)| *next == Element::Goes).count();
                let (from, to) = match (elements.get(position), first.checked_sub(1)) {
                    (Some((next, _)), _) => (place.start, next.start),
                    // The comma in front goes with the last.
                    (None, Some(before)) => (elements[before].0.end, elements[position - 1].0.end),
                    (None, None) => (place.start, elements[position - 1].0.end),
                };
                out.extend_from_slice(&json[at..from.max(at)]);
                at = to;
            }
        }
    }
    out.extend_from_slice(&json[at..]);
    out
}

/// A value in objects under the keys of a path.
fn nested(path: &[&str], value: &str) -> String {
    let open = |key: &&str| format!("{{{}:", serde_json::Value::from(*key));
    let opened: String = path.iter().map(open).collect();
    format!("{opened}{value}{}", "}".repeat(path.len()))
}

/// Where a slice of a text starts in it.
fn place_in(json: &[u8], slice: &str) -> usize {
    (slice.as_ptr() as usize).saturating_sub(json.as_ptr() as usize)
}

fn edited(json: &[u8], range: Range<usize>, new: &str) -> Vec<u8> {
    [&json[..range.start], new.as_bytes(), &json[range.end..]].concat()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    /// Guarantees: a value is set where it stands, or last in its object; what is missing on the way is made; nothing
    /// else is touched, not even numbers that no double holds.
    #[test]
    fn places() {
        let set = |json: &str| set(json.as_bytes(), &["a", "b"], "7").map(|json| String::from_utf8(json).unwrap());
        for (before, after) in [
            (r#"{"a":{"b":1}}"#, r#"{"a":{"b":7}}"#),
            (
                r#" {"z" : 1.10,"a": {"x":{"b":2} , "b" : [1] ,"y":""} }  "#,
                r#" {"z" : 1.10,"a": {"x":{"b":2} , "b" : 7 ,"y":""} }  "#,
            ),
            (
                r#"{"n":12345678901234567890123,"a":{"c":1e400}}"#,
                r#"{"n":12345678901234567890123,"a":{"c":1e400,"b":7}}"#,
            ),
            (r#"{"n":1}"#, r#"{"n":1,"a":{"b":7}}"#),
            (r"{}", r#"{"a":{"b":7}}"#),
            (r#"{ }"#, r#"{ "a":{"b":7}}"#),
            (r#"{"a":null,"n":1}"#, r#"{"a":{"b":7},"n":1}"#),
            (r#"{"a":{}}"#, r#"{"a":{"b":7}}"#),
            (r#"{"a":{"b":1},"a":{"b":2,"b":3}}"#, r#"{"a":{"b":1},"a":{"b":2,"b":7}}"#),
            (r#"{"\u0061":{"\u0062":1}}"#, r#"{"\u0061":{"\u0062":7}}"#),
        ] {
            assert_eq!(set(before).as_deref(), Ok(after));
        }
        assert_eq!(set(r#"{"a":"text"}"#), Err(SpliceError::NoObject("a".to_owned())));
        assert_eq!(set("[1]"), Err(SpliceError::NoObject("the text".to_owned())));
        assert!(matches!(set(r#"{"a":"#), Err(SpliceError::Json(_))));
        assert!(matches!(set(r#"{} {}"#), Err(SpliceError::Json(_))));
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<i64>().prop_map(Value::from),
            "[a\"\\\\\n]{0,3}".prop_map(Value::from)
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            prop::collection::btree_map("[abc]", inner, 0..4).prop_map(|object| json!(object))
        })
    }

    /// Guarantees: what is asked for is the last of its key.
    #[test]
    fn parts() {
        let json = r#" {"a":{"b":1,"b":[ 2 ]},"c":null} "#;
        assert_eq!([get(json, &["a", "b"]), get(json, &["c"])], [Some("[ 2 ]"), Some("null")]);
        assert_eq!([get(json, &["a", "x"]), get(json, &["c", "b"]), get("", &["a"])], [None; 3]);
    }

    /// Guarantees: what goes takes one comma along, what becomes something else stands in its place, and what stands
    /// around it stays.
    #[test]
    fn lists() {
        let json = " [ 10 ,11, 12 ] ";
        let places = [3..5, 7..9, 11..13];
        let change = |what: [Element; 3]| {
            let elements: Vec<_> = places.clone().into_iter().zip(what).collect();
            String::from_utf8(change_list(json.as_bytes(), &elements)).unwrap()
        };
        let (stays, goes, becomes) = (Element::Stays, Element::Goes, Element::Becomes(b"{}".to_vec()));
        for (what, expected) in [
            ([stays.clone(), stays.clone(), stays.clone()], json),
            ([goes.clone(), stays.clone(), becomes.clone()], " [ 11, {} ] "),
            ([becomes.clone(), goes.clone(), stays.clone()], " [ {} ,12 ] "),
            ([stays.clone(), becomes.clone(), goes.clone()], " [ 10 ,{} ] "),
            ([stays.clone(), goes.clone(), goes.clone()], " [ 10 ] "),
            ([becomes.clone(), goes.clone(), goes.clone()], " [ {} ] "),
            ([goes.clone(), goes.clone(), stays], " [ 12 ] "),
            ([goes.clone(), goes.clone(), goes.clone()], " [  ] "),
        ] {
            assert_eq!(change(what), expected);
        }
    }

    proptest! {
        /// Guarantees: whatever the text, the value is read where it was set, and all else is what it was.
        #[test]
        fn any_text(
            before in value(),
            is_pretty: bool,
            path in prop::collection::vec(prop::sample::select(vec!["a", "b"]), 1..4),
        ) {
            let pretty = || serde_json::to_vec_pretty(&before);
            let text = if is_pretty { pretty() } else { serde_json::to_vec(&before) }.unwrap();
            match set(&text, &path, "\"new\"") {
                Ok(after) => {
                    let mut expected = before;
                    let mut at = &mut expected;
                    for key in &path {
                        if at.is_null() {
                            *at = json!({});
                        }
                        at = at.as_object_mut().unwrap().entry(*key).or_insert(Value::Null);
                    }
                    *at = json!("new");
                    prop_assert_eq!(serde_json::from_slice::<Value>(&after).unwrap(), expected);
                }
                Err(error) => prop_assert!(matches!(error, SpliceError::NoObject(_)), "{}", error),
            }
        }
    }
}
