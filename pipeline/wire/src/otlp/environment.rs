//! Parses `OTEL_RESOURCE_ATTRIBUTES`.
//!
//! The format is `key1=value1,key2=value2`. `,` and `=` in keys and values must be percent-encoded; other characters
//! may be. Any error invalidates the whole variable (opentelemetry-specification `specification/resource/sdk.md`,
//! "Specifying resource information via an environment variable").

use std::fmt;

/// Maximum number of attributes.
const MAX_ATTRIBUTES: usize = 128;

/// The error and its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidAttribute {
    /// The position of the attribute, from 1.
    entry: usize,
    rule: &'static str,
}

impl fmt::Display for InvalidAttribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "attribute {}: {}", self.entry, self.rule)
    }
}

/// Parses the variable into keys and values, in order. Of duplicate keys the last one counts.
///
/// # Errors
///
/// The first invalid attribute, which invalidates the whole variable.
pub fn resource_attributes(text: &str) -> Result<Vec<(String, String)>, InvalidAttribute> {
    let mut found = Vec::new();
    for (position, entry) in text.split(',').enumerate() {
        let fault = |rule| InvalidAttribute { entry: position + 1, rule };
        if entry.trim().is_empty() {
            // A trailing comma.
            continue;
        }
        if found.len() == MAX_ATTRIBUTES {
            return Err(fault("there are at most 128"));
        }
        let (key, value) = entry.split_once('=').ok_or(fault("`=` is between key and value"))?;
        let decode =
            |text: &str| decoded(text.trim()).ok_or(fault("% is followed by two hexadecimal digits that are UTF-8"));
        let (key, value) = (decode(key)?, decode(value)?);
        if key.is_empty() {
            return Err(fault("the key is not empty"));
        }
        found.push((key, value));
    }
    Ok(found)
}

fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let mut digit = || (rest.next()? as char).to_digit(16);
            let (high, low) = (digit()?, digit()?);
            bytes.push((high << 4 | low) as u8);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Guarantees: attributes are parsed and percent-decoded; surrounding blanks and a trailing comma are ignored.
    #[test]
    fn reads() {
        let read = resource_attributes("service.name=a%2Cb, k = v%3D1 ,u=%C3%A4,e=,").unwrap();
        let expected = [("service.name", "a,b"), ("k", "v=1"), ("u", "ä"), ("e", "")];
        assert_eq!(read, expected.map(|(key, value)| (key.to_owned(), value.to_owned())));
        assert_eq!(resource_attributes(""), Ok(Vec::new()));
    }

    /// Guarantees: an error names the attribute by its number.
    #[test]
    fn refuses() {
        for (text, entry, rule) in [
            ("a", 1, "`=`"),
            ("a=1,b", 2, "`=`"),
            ("a=%", 1, "%"),
            ("a=%2", 1, "%"),
            ("a=%zz", 1, "%"),
            ("a=%ff", 1, "UTF-8"),
            ("=1", 1, "empty"),
        ] {
            let fault = resource_attributes(text).unwrap_err();
            assert!(fault.entry == entry && fault.rule.contains(rule), "{text}: {fault}");
        }
        let many = (0..200).map(|n| format!("k{n}=v,")).collect::<String>();
        assert_eq!(resource_attributes(&many).unwrap_err().entry, 129);
    }

    proptest! {
        /// Guarantees: no text causes a panic.
        #[test]
        fn any_text(text in "\\PC*", tricky in "[a%=,0-9f]*") {
            resource_attributes(&text).ok();
            resource_attributes(&tricky).ok();
        }
    }
}
