//! Finds out which keys a type accepts, without any input.

use std::cell::Cell;

use serde::de::value::Error;
use serde::de::{DeserializeOwned, Deserializer, Error as _, Visitor};
use serde::forward_to_deserialize_any;

/// The keys of a struct that derives `Deserialize`, aliases included; none for any other type.
///
/// A derived `Deserialize` passes its field names to the deserializer. The deserializer here records them and then
/// fails.
#[must_use]
pub fn keys<T: DeserializeOwned>() -> &'static [&'static str] {
    let keys = Cell::new(&[][..]);
    // Deserializing always fails, after the names were recorded.
    drop(T::deserialize(FieldNames(&keys)));
    keys.get()
}

struct FieldNames<'a>(&'a Cell<&'static [&'static str]>);

impl<'de> Deserializer<'de> for FieldNames<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(Error::custom("there is nothing to read"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.0.set(fields);
        self.deserialize_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}
