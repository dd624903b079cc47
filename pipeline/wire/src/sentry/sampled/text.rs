//! The scalars and lists of a profile, parsed with limits and, if possible, without copying.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// A string: a slice of the JSON, or a copy if it has escapes. `Option<Cow<str>>` would always copy.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Text<'a>(Cow<'a, str>);

impl<'a> From<&'a str> for Text<'a> {
    fn from(text: &'a str) -> Self {
        Self(Cow::Borrowed(text))
    }
}

impl<'a> From<Text<'a>> for Cow<'a, str> {
    fn from(text: Text<'a>) -> Self {
        text.0
    }
}

impl Text<'_> {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The text, or an empty one if there is none.
    pub(in crate::sentry) fn of<'a>(text: &'a Option<Text<'_>>) -> &'a str {
        text.as_ref().map_or("", Text::as_str)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(TextVisitor)
    }
}

/// An address: a string, hexadecimal after `0x`, otherwise decimal (getsentry/relay `relay-profiling/src/types.rs`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sentry) struct Address(pub(in crate::sentry) u64);

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Text::deserialize(deserializer)?;
        let text = text.as_str();
        let number = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => text.parse(),
        };
        number
            .map(Address)
            .map_err(|_| D::Error::custom("invalid value: not an address, which is 0x and hexadecimal digits"))
    }
}

/// A number, or a string with a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sentry) struct Size(pub(in crate::sentry) u64);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SizeVisitor;
        impl Visitor<'_> for SizeVisitor {
            type Value = Size;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, or a string that holds one")
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Size, E> {
                Ok(Size(number))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Size, E> {
                text.parse().map(Size).map_err(|_| E::custom("invalid value: not a number"))
            }
        }
        deserializer.deserialize_any(SizeVisitor)
    }
}

/// A list of at most `MAX` elements.
#[derive(Debug)]
pub(in crate::sentry) struct List<T, const MAX: usize>(pub(in crate::sentry) Vec<T>);

impl<T, const MAX: usize> Default for List<T, MAX> {
    fn default() -> Self {
        List(Vec::new())
    }
}

fn too_many<E: Error>(max: usize) -> E {
    E::custom(format_args!("there are more than {max} elements"))
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for List<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ListVisitor<T, const MAX: usize>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for ListVisitor<T, MAX> {
            type Value = List<T, MAX>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut elements = Vec::new();
                while let Some(element) = list.next_element()? {
                    if elements.len() == MAX {
                        return Err(too_many(MAX));
                    }
                    elements.push(element);
                }
                Ok(List(elements))
            }
        }
        deserializer.deserialize_seq(ListVisitor(PhantomData))
    }
}

/// A map of at most `MAX` entries, in their original order.
#[derive(Debug)]
pub(crate) struct Entries<'a, T, const MAX: usize>(pub(crate) Vec<(Text<'a>, T)>);

impl<T, const MAX: usize> Default for Entries<'_, T, MAX> {
    fn default() -> Self {
        Entries(Vec::new())
    }
}

impl<'de: 'a, 'a, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for Entries<'a, T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EntriesVisitor<T, const MAX: usize>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for EntriesVisitor<T, MAX> {
            type Value = Entries<'de, T, MAX>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    if entries.len() == MAX {
                        return Err(too_many(MAX));
                    }
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(EntriesVisitor(PhantomData))
    }
}

/// A list of lists of indices in flat storage: a `Vec` for each stack would cost more than the stacks. With `NULLS`,
/// `null` in place of a list is an empty list, and `null` in place of an index is skipped.
#[derive(Debug, Default)]
pub(in crate::sentry) struct IndexLists<const MAX: usize, const NULLS: bool> {
    ends: Vec<usize>,
    frames: Vec<u32>,
}

impl<const MAX: usize, const NULLS: bool> IndexLists<MAX, NULLS> {
    /// Number of stacks.
    pub(in crate::sentry) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The largest index in any stack.
    pub(in crate::sentry) fn greatest(&self) -> Option<u32> {
        self.frames.iter().copied().max()
    }

    /// The stacks, in order.
    pub(in crate::sentry) fn iter(&self) -> impl ExactSizeIterator<Item = &[u32]> + '_ {
        (0..self.ends.len()).map(|at| self.at(at))
    }

    /// The stack at an index; empty if there is none.
    pub(in crate::sentry) fn at(&self, at: usize) -> &[u32] {
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.ends.get(at).map_or(&[], |&end| &self.frames[start..end])
    }
}

impl<'de, const MAX: usize, const NULLS: bool> Deserialize<'de> for IndexLists<MAX, NULLS> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct StacksVisitor<const MAX: usize, const NULLS: bool>;
        impl<'de, const MAX: usize, const NULLS: bool> Visitor<'de> for StacksVisitor<MAX, NULLS> {
            type Value = IndexLists<MAX, NULLS>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of lists of indices")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut stacks = IndexLists { ends: Vec::new(), frames: Vec::new() };
                while list.next_element_seed(Append::<NULLS>(&mut stacks.frames))?.is_some() {
                    if stacks.ends.len() == MAX {
                        return Err(too_many(MAX));
                    }
                    stacks.ends.push(stacks.frames.len());
                }
                Ok(stacks)
            }
        }
        deserializer.deserialize_seq(StacksVisitor)
    }
}

/// Parses one list of indices and appends it to another.
struct Append<'a, const NULLS: bool>(&'a mut Vec<u32>);

impl<'de, const NULLS: bool> DeserializeSeed<'de> for Append<'_, NULLS> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if NULLS { deserializer.deserialize_option(self) } else { deserializer.deserialize_seq(self) }
    }
}

impl<'de, const NULLS: bool> Visitor<'de> for Append<'_, NULLS> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of indices")
    }

    fn visit_none<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        if NULLS {
            while let Some(index) = list.next_element::<Option<u32>>()? {
                self.0.extend(index);
            }
        } else {
            while let Some(index) = list.next_element()? {
                self.0.push(index);
            }
        }
        Ok(())
    }
}
