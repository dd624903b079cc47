//! Metadata of a profile in the request's query: its service and attributes, and its time.
//!
//! Source: grafana/pyroscope-go `upstream/remote/remote.go` (the parameters), grafana/pyroscope
//! `pkg/og/storage/segment/key.go` (names with labels) and `pkg/og/util/attime` (times).

use percent_encoding::percent_decode_str;
use profbridge_model::skew::StatedTime;

use crate::config::{INSTANCE, SERVICE};
use crate::fault::Fault;

/// The maximum number of attributes in a request, and the maximum lengths of a key and a value in bytes; equal to the
/// limits of `resource.insert`.
const MOST_ATTRIBUTES: usize = 64;
const LONGEST_KEY: usize = 256;
const LONGEST_VALUE: usize = 4096;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ProfileMetadata {
    /// The attributes of the profile's resource, with distinct keys.
    pub(crate) attributes: Vec<(String, String)>,
    /// The time of the recording.
    pub(crate) stated: StatedTime,
}

/// The decoded parameters of a query.
fn parameters(query: &str) -> impl Iterator<Item = (String, String)> + '_ {
    let decoded = |text: &str| percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned();
    query.split('&').filter(|part| !part.is_empty()).map(move |part| {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        (decoded(name), decoded(value))
    })
}

impl ProfileMetadata {
    /// Parses the query of `/ingest`.
    pub(crate) fn from_ingest_query(query: &str) -> Result<Self, Fault> {
        let mut metadata = Self::default();
        let [mut from, mut until] = [0; 2];
        for (name, value) in parameters(query) {
            match name.as_str() {
                "name" => metadata.name(&value)?,
                "from" => from = time(&name, &value)?,
                "until" => until = time(&name, &value)?,
                "format" if !matches!(value.as_str(), "" | "pprof") => {
                    let message = format!("format: only pprof is read, not {value:?}; let the client send pprof");
                    return Err(Fault::new(http::StatusCode::UNSUPPORTED_MEDIA_TYPE, "format", message));
                }
                // The unit and the aggregation of values are ignored, because the pprof profile contains them itself.
                _ => {}
            }
        }
        metadata.stated = StatedTime { time_unix_nano: from, duration_nano: until.saturating_sub(from) };
        Ok(metadata)
    }

    /// Parses the query of the endpoint for plain profiles: attributes by key.
    pub(crate) fn from_attribute_query(query: &str) -> Result<Self, Fault> {
        let mut metadata = Self::default();
        for (key, value) in parameters(query) {
            metadata.add(key, value)?;
        }
        Ok(metadata)
    }

    /// Parses a name with labels: `shop.cart{region=eu,env=prod}`.
    fn name(&mut self, name: &str) -> Result<(), Fault> {
        let (app, labels) = name.split_once('{').unwrap_or((name, "}"));
        let Some(labels) = labels.trim_end().strip_suffix('}') else {
            return Err(Fault::malformed("name: the labels have no `}` at their end"));
        };
        for label in labels.split(',').filter(|label| !label.trim().is_empty()) {
            let Some((key, value)) = label.split_once('=') else {
                return Err(Fault::malformed(format!("name: the label {:?} has no value", label.trim())));
            };
            let (key, value) = (key.trim(), value.trim().trim_matches('"'));
            match key {
                "__name__" => {}
                // pyroscope-go generates a random session id per process.
                "__session_id__" => self.add(INSTANCE.to_owned(), value.to_owned())?,
                "service_name" => self.add(SERVICE.to_owned(), value.to_owned())?,
                key => self.add(key.to_owned(), value.to_owned())?,
            }
        }
        self.add(SERVICE.to_owned(), app.trim().to_owned())
    }

    /// Adds an attribute, unless it exists or the value is empty.
    fn add(&mut self, key: String, value: String) -> Result<(), Fault> {
        if value.is_empty() || self.attributes.iter().any(|(metadata, _)| *metadata == key) {
            return Ok(());
        }
        if key.is_empty() || key.len() > LONGEST_KEY || value.len() > LONGEST_VALUE {
            let message = format!("an attribute has a key of 1 to {LONGEST_KEY} bytes and {LONGEST_VALUE} at most");
            return Err(Fault::malformed(message));
        }
        if self.attributes.len() == MOST_ATTRIBUTES {
            return Err(Fault::malformed(format!("there are more than {MOST_ATTRIBUTES} attributes")));
        }
        self.attributes.push((key, value));
        Ok(())
    }
}

/// Parses a time in seconds, milliseconds, microseconds or nanoseconds since the Unix epoch. The number of digits
/// determines the unit.
fn time(name: &str, text: &str) -> Result<u64, Fault> {
    let number = text.parse::<u64>().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
    let factor = match text.len() {
        ..=10 => 1_000_000_000,
        11..=13 => 1_000_000,
        14..=16 => 1_000,
        _ => 1,
    };
    number.and_then(|number| number.checked_mul(factor)).ok_or_else(|| {
        let text: String = text.chars().take(40).collect();
        Fault::malformed(format!("{name}: {text:?} is no number of seconds, or parts of them, since 1970"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes(metadata: &ProfileMetadata) -> Vec<(&str, &str)> {
        metadata.attributes.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()
    }

    /// Guarantees: name and labels become attributes, the session id becomes the instance; times are parsed in every
    /// unit.
    #[test]
    fn ingest() {
        let query = "name=shop.cart%7Bregion%3Deu%2C+env%3D%22prod%22%2C__session_id__%3D7f%7D&from=1760000000&until=1760000010000&format=pprof&spyName=gospy";
        let metadata = ProfileMetadata::from_ingest_query(query).unwrap();
        let expected =
            [("region", "eu"), ("env", "prod"), ("service.instance.id", "7f"), ("service.name", "shop.cart")];
        assert_eq!(attributes(&metadata), expected);
        let stated = StatedTime { time_unix_nano: 1_760_000_000_000_000_000, duration_nano: 10_000_000_000 };
        assert_eq!(metadata.stated, stated);
        for query in ["from=1760000000000000&until=1760000010000000000", "until=1760000010&from=1760000000000000000"] {
            assert_eq!(ProfileMetadata::from_ingest_query(query).unwrap().stated, stated);
        }
        assert_eq!(ProfileMetadata::from_ingest_query("").unwrap(), ProfileMetadata::default());
        let named = ProfileMetadata::from_ingest_query("name=a%7Bservice_name=b,__name__=c%7D").unwrap();
        assert_eq!(attributes(&named), [("service.name", "b")]);
    }

    /// Guarantees: parameters of the plain endpoint become attributes; of several values of a key, the first is used;
    /// an empty one is ignored.
    #[test]
    fn plain() {
        let metadata =
            ProfileMetadata::from_attribute_query("service.name=shop&service.name=b&x=&y&host.id=%C3%A9+1").unwrap();
        assert_eq!(attributes(&metadata), [("service.name", "shop"), ("host.id", "é 1")]);
    }

    /// Guarantees: an invalid parameter is refused, and the message names it; so are too many or too long ones.
    #[test]
    fn refusals() {
        for (query, said) in [
            ("name=a%7Bb%7D", "has no value"),
            ("name=a%7Bb=c", "no `}`"),
            ("from=now-10s", "from: \"now-10s\" is no number"),
            ("until=99999999999999999999", "until: "),
            ("from=+1", "from: "),
            ("format=jfr", "format: only pprof is read, not \"jfr\""),
        ] {
            let fault = ProfileMetadata::from_ingest_query(query).unwrap_err();
            assert!(fault.message.contains(said), "{query}: {}", fault.message);
        }
        let many: String = (0..65).map(|n| format!("k{n}=v&")).collect();
        assert!(ProfileMetadata::from_attribute_query(&many).unwrap_err().message.contains("more than 64"));
        assert!(ProfileMetadata::from_attribute_query(&format!("k={}", "v".repeat(4097))).is_err());
        assert!(ProfileMetadata::from_attribute_query("=v").is_err());
    }
}
