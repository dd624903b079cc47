//! The keys that a type is read from, known before anything is read.

use std::cell::Cell;

use serde::de::value::Error;
use serde::de::{DeserializeOwned, Deserializer, Error as _, Visitor};
use serde::forward_to_deserialize_any;

/// The keys of a struct that derives `Deserialize`, aliases included; none for any other type.
///
/// A derived `Deserialize` asks for a struct and hands over the names of its fields. The reader here takes the names
/// and gives nothing to read.
#[must_use]
pub fn keys<T: DeserializeOwned>() -> &'static [&'static str] {
    let keys = Cell::new(&[][..]);
    // It always fails, behind the names.
    drop(T::deserialize(Names(&keys)));
    keys.get()
}

struct Names<'a>(&'a Cell<&'static [&'static str]>);

impl<'de> Deserializer<'de> for Names<'_> {
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
