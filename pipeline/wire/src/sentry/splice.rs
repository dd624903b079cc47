//! Sets a value in JSON, or changes a list, by editing the text: all other bytes stay the same, including the notation
//! of numbers and the order of keys.

use std::ops::Range;

use serde_json::value::RawValue;

use super::sampled::text::Entries;

/// Maximum number of keys of an object on the path to a value.
const MAX_KEYS: usize = 1 << 16;

/// Why a value cannot be set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpliceError {
    /// The text is not JSON, or an object on the path has too many keys.
    #[error("cannot be read: {0}")]
    Json(String),
    /// A value on the path is not an object.
    #[error("{0} is no object")]
    NoObject(String),
}

/// Sets the value, itself JSON, at a path of keys. Missing or null objects on the path are created. A new key is
/// appended to its object; of duplicate keys the last one is replaced, because the last one counts.
///
/// # Errors
///
/// The text is not a JSON object, or a value on the path is not an object.
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
    // An empty path: the whole text is replaced.
    Ok(value.as_bytes().to_vec())
}

/// The JSON at a path of keys. `None` if it is missing, or if a value on the path is not an object.
pub(super) fn get<'a>(json: &'a str, path: &[&str]) -> Option<&'a str> {
    let mut value = json.trim();
    for key in path {
        let entries: Entries<'_, &RawValue, MAX_KEYS> = serde_json::from_str(value).ok()?;
        value = entries.0.iter().rev().find(|(known, _)| known.as_str() == *key)?.1.get();
    }
    Some(value)
}

/// The change of a list element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Element {
    /// The element is kept.
    Stays,
    /// The element is replaced by this JSON.
    Becomes(Vec<u8>),
    /// The element is removed, with an adjacent comma.
    Goes,
}

/// Changes elements of a list, which are at these ranges of the JSON, in order.
pub(super) fn change_list(json: &[u8], elements: &[(Range<usize>, Element)]) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len());
    // Everything before this offset has been written or dropped.
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
                    // The preceding comma is removed together with the last element.
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

/// The value wrapped in objects along a path of keys.
fn nested(path: &[&str], value: &str) -> String {
    let open = |key: &&str| format!("{{{}:", serde_json::Value::from(*key));
    let opened: String = path.iter().map(open).collect();
    format!("{opened}{value}{}", "}".repeat(path.len()))
}

/// The start offset of a slice of a text.
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

    /// Guarantees: a value is set in its place, or appended to its object; missing objects on the path are created;
    /// nothing else changes, not even numbers that a double cannot represent.
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

    /// Guarantees: of duplicate keys the last one is returned.
    #[test]
    fn parts() {
        let json = r#" {"a":{"b":1,"b":[ 2 ]},"c":null} "#;
        assert_eq!([get(json, &["a", "b"]), get(json, &["c"])], [Some("[ 2 ]"), Some("null")]);
        assert_eq!([get(json, &["a", "x"]), get(json, &["c", "b"]), get("", &["a"])], [None; 3]);
    }

    /// Guarantees: removing an element removes one comma, a replacement takes the element's place, and the surrounding
    /// text stays.
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
        /// Guarantees: for any text, the value is read where it was set, and everything else is unchanged.
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
