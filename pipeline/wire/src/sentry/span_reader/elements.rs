//! Iterates over the elements of a JSON list.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeSeed, Deserializer, Error as _, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// Calls `each` with the raw text of each element of a JSON list. The list is never stored as a whole, because a small
/// payload may have millions of elements.
///
/// # Errors
///
/// The text is not a list, or `each` returned an error, which is passed on.
pub(in crate::sentry) fn elements<'a, E>(
    list: &'a RawValue,
    each: impl FnMut(&'a str) -> Result<(), E>,
) -> Result<Result<(), E>, serde_json::Error> {
    struct Each<'a, F, E> {
        each: F,
        stopped: Result<(), E>,
        list: PhantomData<&'a str>,
    }

    impl<'de, F: FnMut(&'de str) -> Result<(), E>, E> Visitor<'de> for &mut Each<'de, F, E> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
            while let Some(element) = list.next_element::<&RawValue>()? {
                self.stopped = (self.each)(element.get());
                if self.stopped.is_err() {
                    return Err(A::Error::custom("stopped"));
                }
            }
            Ok(())
        }
    }

    impl<'de, F: FnMut(&'de str) -> Result<(), E>, E> DeserializeSeed<'de> for &mut Each<'de, F, E> {
        type Value = ();

        fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
            deserializer.deserialize_seq(self)
        }
    }

    let mut each = Each { each, stopped: Ok(()), list: PhantomData };
    let read = each.deserialize(&mut serde_json::Deserializer::from_str(list.get()));
    match each.stopped {
        Ok(()) => read.map(Ok),
        stopped => Ok(stopped),
    }
}
