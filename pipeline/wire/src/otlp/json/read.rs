//! Converts JSON to protobuf, in one pass over the text.
//!
//! `serde_json` parses the text and passes on each key and value; only the output message is kept. A message's length
//! precedes it, but is only known at its end: one byte is reserved, and if the length takes more, the message is moved,
//! once for each level of nesting.

mod single;
mod state;

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use self::single::{Form, Single, expected};
use self::state::{PathStep, ReadState};
use super::Grant;
use super::schema::{Field, Schema};
use crate::otlp::error::DecodeError;

/// Reads a message of at most `most` bytes.
pub(super) fn read(
    schema: &'static Schema,
    json: &[u8],
    most: usize,
    grant: Grant<'_>,
) -> Result<Vec<u8>, DecodeError> {
    let text = std::str::from_utf8(json).map_err(|error| DecodeError::Malformed {
        place: "request".to_owned(),
        offset: Some(error.valid_up_to()),
        rule: "the text is not UTF-8".to_owned(),
    })?;
    let mut state = ReadState::new(most, grant);
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let outcome = ObjectSeed { state: &mut state, schema }.deserialize(&mut deserializer);
    match outcome.and_then(|()| deserializer.end()) {
        Ok(()) => Ok(state.out),
        Err(error) => Err(state.fault(text, &error)),
    }
}

/// Reads a message's fields, without its length.
struct ObjectSeed<'s, 'g> {
    state: &'s mut ReadState<'g>,
    schema: &'static Schema,
}

impl<'de> DeserializeSeed<'de> for ObjectSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ObjectSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { state, schema } = self;
        let mut seen = 0u64;
        let mut set: Option<&'static str> = None;
        let mut next = 0;
        while let Some(key) = map.next_key_seed(FieldName { schema, next })? {
            let Some(index) = key else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            next = index + 1;
            let field = &schema.fields[index];
            if seen & 1 << index != 0 {
                state.path.push(PathStep::Field(field.proto_name));
                return Err(A::Error::custom(format_args!("the field {:?} stands twice", field.name)));
            }
            seen |= 1 << index;
            let value = FieldValue { state: &mut *state, field, explicit: schema.one_of };
            let there = match map.next_value_seed(value) {
                Ok(there) => there,
                Err(error) => {
                    state.path.push(PathStep::Field(field.proto_name));
                    return Err(error);
                }
            };
            if schema.one_of && there {
                if let Some(other) = set {
                    let rule = format_args!("has both {other:?} and {:?}, and may have one of them", field.name);
                    return Err(A::Error::custom(rule));
                }
                set = Some(field.name);
            }
        }
        Ok(())
    }
}

/// Finds a field by its name; returns its index in the schema, or `None` if there is no such field.
struct FieldName {
    schema: &'static Schema,
    /// The index after the last field: senders write fields in order.
    next: usize,
}

impl<'de> DeserializeSeed<'de> for FieldName {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<usize>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for FieldName {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    #[inline]
    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Option<usize>, E> {
        let fields = self.schema.fields;
        let (before, after) = fields.split_at(self.next.min(fields.len()));
        if let Some(index) = after.iter().position(|field| field.name == name) {
            return Ok(Some(before.len() + index));
        }
        if let Some(index) = before.iter().position(|field| field.name == name) {
            return Ok(Some(index));
        }
        if let Some(index) = fields.iter().position(|field| field.proto_name == name) {
            return Ok(Some(index));
        }
        if self.schema.former.contains(&name) {
            let rule = format_args!(
                "the field {name:?} is of an earlier layout; JSON is read with the names of opentelemetry-proto 1.9 and later"
            );
            return Err(E::custom(rule));
        }
        Ok(None)
    }
}

/// Reads the value of a field, and returns whether there was one: `null` counts as none.
struct FieldValue<'s, 'g> {
    state: &'s mut ReadState<'g>,
    field: &'static Field,
    /// Whether a zero is written.
    explicit: bool,
}

impl<'de> DeserializeSeed<'de> for FieldValue<'_, '_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for FieldValue<'_, '_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        expected(self.field, f)
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        let Self { state, field, explicit } = self;
        if field.repeated {
            deserializer.deserialize_seq(List { state, field })?;
        } else {
            Single { state, field, form: if explicit { Form::Explicit } else { Form::Implicit } }
                .deserialize(deserializer)?;
        }
        Ok(true)
    }
}

/// Reads the elements of a list.
struct List<'s, 'g> {
    state: &'s mut ReadState<'g>,
    field: &'static Field,
}

impl<'de> Visitor<'de> for List<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        expected(self.field, f)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Self { state, field } = self;
        let packed = field.kind.is_packed();
        let form = if packed { Form::Packed } else { Form::Explicit };
        let before = state.out.len();
        let start = if packed { state.open(field.number)? } else { before };
        let mut index = 0;
        loop {
            match list.next_element_seed(Single { state: &mut *state, field, form }) {
                Ok(Some(())) => index += 1,
                Ok(None) => break,
                Err(error) => {
                    state.path.push(PathStep::Element(index));
                    return Err(error);
                }
            }
        }
        match (packed, index) {
            (false, _) => Ok(()),
            (true, 0) => {
                state.out.truncate(before);
                Ok(())
            }
            (true, _) => state.close(start),
        }
    }
}
