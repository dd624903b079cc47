//! Deserializes a node into the requested type.
//!
//! The requested type decides how a scalar is read: as text, `0123`, `1.10` and `yes` stay as written; as a number they
//! are refused with a hint. Null is an empty map, list or struct, so that `grpc:` alone means the defaults. Nodes in
//! `pruned` are treated as absent; that is how all problems of a section are found one after the other.

use std::collections::BTreeSet;

use serde::de::value::StrDeserializer;
use serde::de::{
    self, DeserializeSeed, Deserializer, EnumAccess, Expected, IntoDeserializer, MapAccess, SeqAccess, Unexpected,
    VariantAccess, Visitor,
};

use super::de_error::{DeError, DeKind, Hint};
use super::node::{Entry, Node, NodeKind, Scalar};
use super::scalar::{self, Integer, Plain};

/// Paths of nodes that are treated as absent.
pub(super) type Pruned = BTreeSet<Vec<String>>;

/// A deserializer positioned at one node.
#[derive(Clone)]
pub(super) struct De<'a> {
    node: &'a Node,
    path: Vec<String>,
    pruned: &'a Pruned,
}

type Result<T> = std::result::Result<T, DeError>;

impl<'a> De<'a> {
    pub(super) fn new(node: &'a Node, pruned: &'a Pruned) -> Self {
        Self { node, path: Vec::new(), pruned }
    }

    fn below(&self, key: &str, node: &'a Node) -> Self {
        let mut path = self.path.clone();
        path.push(key.to_owned());
        Self { node, path, pruned: self.pruned }
    }

    fn mismatch(&self, expected: &dyn Expected, hint: Option<&'static str>) -> DeError {
        self.mismatch_with(expected, hint.map(Hint::Fixed))
    }

    fn mismatch_with(&self, expected: &dyn Expected, hint: Option<Hint>) -> DeError {
        let found = match &self.node.kind {
            NodeKind::Map(_) => "a map",
            NodeKind::Seq(_) => "a list",
            NodeKind::Scalar(_) => "text",
        };
        let kind = DeKind::Mismatch { found, expected: expected.to_string(), hint };
        DeError::new(kind).at(&self.path)
    }

    /// Returns the scalar at this node; fails if the node is not a scalar.
    fn scalar(&self, expected: &dyn Expected) -> Result<&'a Scalar> {
        let NodeKind::Scalar(scalar) = &self.node.kind else { return Err(self.mismatch(expected, None)) };
        match &scalar.broken {
            None => Ok(scalar),
            Some((message, hint)) => {
                let kind = DeKind::Broken { message: message.clone(), hint: hint.clone() };
                Err(DeError::new(kind).at(&self.path))
            }
        }
    }

    /// Returns the text of the plain scalar at this node, where a number or boolean is expected.
    fn plain(&self, expected: &dyn Expected) -> Result<&'a str> {
        let scalar = self.scalar(expected)?;
        if !scalar.plain {
            let hint = if scalar.from_env {
                // A plain scalar inside a flow collection cannot contain the braces of a reference.
                "delete the quotes around it; where it stands inside `{}` or `[]`, which need them, write it in block \
                 style, on a line of its own"
            } else {
                "delete the quotes around it"
            };
            return Err(self.mismatch(expected, Some(hint)));
        }
        if scalar.is_null() {
            let hint = if scalar.from_env {
                "the environment gives nothing here; set the variable, or give a default: `${env:NAME:-default}`"
            } else {
                "write a value, or delete the key to get the default"
            };
            return Err(self.mismatch(expected, Some(hint)));
        }
        Ok(&scalar.text)
    }

    /// The text at this node, where text is expected. Null is not text, unless an environment variable was empty.
    fn text(&self, expected: &dyn Expected) -> Result<&'a str> {
        let scalar = self.scalar(expected)?;
        if scalar.is_null() && !scalar.from_env {
            return Err(
                self.mismatch(expected, Some("write `\"\"` for empty text, or delete the key to get the default"))
            );
        }
        Ok(&scalar.text)
    }

    fn integer<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value> {
        let text = self.plain(&visitor)?;
        let path = self.path.clone();
        match scalar::integer(text) {
            Some(Integer::Unsigned(value)) => visitor.visit_u64(value),
            Some(Integer::Signed(value)) => visitor.visit_i64(value),
            None if scalar::has_leading_zero(text) => {
                let decimal = text.trim_start_matches(['+', '-', '0']);
                let hint = format!("some readers take a leading zero for octal; write `{decimal}` or `0o{decimal}`");
                return Err(self.mismatch_with(&visitor, Some(Hint::Quoting(hint))));
            }
            None if scalar::float(text).is_some() => {
                return Err(self.mismatch(&visitor, Some("write it with digits only, without point and exponent")));
            }
            None => return Err(self.mismatch(&visitor, None)),
        }
        .map_err(|error: DeError| error.at(&path))
    }

    fn map_access(&self, entries: &'a [Entry]) -> Entries<'a> {
        Entries { parent: self.clone(), entries: entries.iter(), value: None }
    }
}

/// Implements several methods of `Deserializer` by calling one other method.
macro_rules! forward {
    ($to:ident: $($method:ident)*) => {
        $(fn $method<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value> {
            self.$to(visitor)
        })*
    };
}

impl<'a> Deserializer<'a> for De<'a> {
    type Error = DeError;

    fn deserialize_any<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value> {
        let path = self.path.clone();
        match &self.node.kind {
            NodeKind::Map(_) => self.deserialize_map(visitor),
            NodeKind::Seq(_) => self.deserialize_seq(visitor),
            NodeKind::Scalar(_) => {
                let scalar = self.scalar(&visitor)?;
                let kind = if scalar.plain { scalar::plain(&scalar.text) } else { Plain::Text };
                match kind {
                    Plain::Null => visitor.visit_unit(),
                    Plain::Bool(value) => visitor.visit_bool(value),
                    Plain::Unsigned(value) => visitor.visit_u64(value),
                    Plain::Signed(value) => visitor.visit_i64(value),
                    Plain::Float(value) => visitor.visit_f64(value),
                    Plain::Text => visitor.visit_str(&scalar.text),
                }
                .map_err(|error: DeError| error.at(&path))
            }
        }
    }

    fn deserialize_bool<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value> {
        let text = self.plain(&visitor)?;
        let hint = match text.to_ascii_lowercase().as_str() {
            "yes" | "y" | "on" => Some("write `true`"),
            "no" | "n" | "off" => Some("write `false`"),
            _ => None,
        };
        let Some(value) = scalar::boolean(text) else { return Err(self.mismatch(&visitor, hint)) };
        visitor.visit_bool(value).map_err(|error: DeError| error.at(&self.path))
    }

    forward! { integer:
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
    }

    forward! { deserialize_f64: deserialize_f32 }

    forward! { deserialize_str:
        deserialize_char deserialize_string deserialize_bytes deserialize_byte_buf deserialize_identifier
    }

    fn deserialize_f64<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value> {
        let text = self.plain(&visitor)?;
        let Some(value) = scalar::float(text) else { return Err(self.mismatch(&visitor, None)) };
        visitor.visit_f64(value).map_err(|error: DeError| error.at(&self.path))
    }

    fn deserialize_str<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value> {
        let text = self.text(&visitor)?;
        visitor.visit_str(text).map_err(|error: DeError| error.at(&self.path))
    }

    fn deserialize_option<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value> {
        if self.node.is_null() {
            return visitor.visit_none();
        }
        visitor.visit_some(self)
    }

    fn deserialize_unit<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value> {
        if !self.node.is_null() {
            return Err(self.mismatch(&visitor, None));
        }
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'a>>(self, _: &'static str, visitor: V) -> Result<V::Value> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'a>>(self, _: &'static str, visitor: V) -> Result<V::Value> {
        let path = self.path.clone();
        visitor.visit_newtype_struct(self).map_err(|error: DeError| error.at(&path))
    }

    fn deserialize_seq<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value> {
        let Some(items) = self.node.items() else {
            let hint = matches!(self.node.kind, NodeKind::Scalar(_)).then_some("write `[` and `]` around it");
            return Err(self.scalar(&visitor).err().unwrap_or_else(|| self.mismatch(&visitor, hint)));
        };
        let path = self.path.clone();
        let items = Items { parent: self, items: items.iter().enumerate() };
        visitor.visit_seq(items).map_err(|error: DeError| error.at(&path))
    }

    fn deserialize_tuple<V: Visitor<'a>>(self, _: usize, visitor: V) -> Result<V::Value> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'a>>(self, _: &'static str, _: usize, visitor: V) -> Result<V::Value> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value> {
        let Some(entries) = self.node.entries() else {
            let broken = if matches!(self.node.kind, NodeKind::Scalar(_)) { self.scalar(&visitor).err() } else { None };
            return Err(broken.unwrap_or_else(|| self.mismatch(&visitor, None)));
        };
        visitor.visit_map(self.map_access(entries)).map_err(|error: DeError| error.at(&self.path))
    }

    fn deserialize_struct<V: Visitor<'a>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        self.deserialize_map(visitor)
    }

    fn deserialize_enum<V: Visitor<'a>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        let path = self.path.clone();
        match &self.node.kind {
            NodeKind::Map(entries) if entries.len() == 1 => {
                let entry = &entries[0];
                let value = self.below(&entry.key, &entry.value);
                visitor.visit_enum(Variant { name: &entry.key, value: Some(value) })
            }
            NodeKind::Map(_) | NodeKind::Seq(_) => return Err(self.mismatch(&visitor, None)),
            NodeKind::Scalar(_) => {
                let name = self.text(&visitor)?;
                visitor.visit_enum(Variant { name, value: None })
            }
        }
        .map_err(|error: DeError| error.at(&path))
    }

    fn deserialize_ignored_any<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value> {
        visitor.visit_unit()
    }
}

/// The entries of a map, without pruned ones.
struct Entries<'a> {
    parent: De<'a>,
    entries: std::slice::Iter<'a, Entry>,
    value: Option<De<'a>>,
}

impl<'a> MapAccess<'a> for Entries<'a> {
    type Error = DeError;

    fn next_key_seed<K: DeserializeSeed<'a>>(&mut self, seed: K) -> Result<Option<K::Value>> {
        for entry in self.entries.by_ref() {
            let below = self.parent.below(&entry.key, &entry.value);
            if self.parent.pruned.contains(&below.path) {
                continue;
            }
            let key: StrDeserializer<'_, DeError> = entry.key.as_str().into_deserializer();
            let key = seed.deserialize(key).map_err(|error| error.at(&below.path))?;
            self.value = Some(below);
            return Ok(Some(key));
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'a>>(&mut self, seed: V) -> Result<V::Value> {
        let Some(value) = self.value.take() else {
            return Err(de::Error::custom("a value was asked for before its key"));
        };
        let path = value.path.clone();
        seed.deserialize(value).map_err(|error| error.at(&path))
    }
}

/// The items of a list, without pruned ones.
struct Items<'a> {
    parent: De<'a>,
    items: std::iter::Enumerate<std::slice::Iter<'a, std::sync::Arc<Node>>>,
}

impl<'a> SeqAccess<'a> for Items<'a> {
    type Error = DeError;

    fn next_element_seed<T: DeserializeSeed<'a>>(&mut self, seed: T) -> Result<Option<T::Value>> {
        for (index, item) in self.items.by_ref() {
            let below = self.parent.below(&index.to_string(), item);
            if self.parent.pruned.contains(&below.path) {
                continue;
            }
            let path = below.path.clone();
            return seed.deserialize(below).map(Some).map_err(|error| error.at(&path));
        }
        Ok(None)
    }
}

/// A variant of an enum: a word, or a map with one key.
struct Variant<'a> {
    name: &'a str,
    value: Option<De<'a>>,
}

impl<'a> EnumAccess<'a> for Variant<'a> {
    type Error = DeError;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'a>>(self, seed: V) -> Result<(V::Value, Self)> {
        let name: StrDeserializer<'_, DeError> = self.name.into_deserializer();
        Ok((seed.deserialize(name)?, self))
    }
}

impl<'a> VariantAccess<'a> for Variant<'a> {
    type Error = DeError;

    fn unit_variant(self) -> Result<()> {
        match self.value {
            None => Ok(()),
            Some(value) if value.node.is_null() => Ok(()),
            Some(value) => Err(value.mismatch(&"nothing", None)),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'a>>(self, seed: T) -> Result<T::Value> {
        match self.value {
            Some(value) => {
                let path = value.path.clone();
                seed.deserialize(value).map_err(|error| error.at(&path))
            }
            None => Err(de::Error::invalid_type(Unexpected::Str(""), &"a map with settings under this word")),
        }
    }

    fn tuple_variant<V: Visitor<'a>>(self, _: usize, visitor: V) -> Result<V::Value> {
        match self.value {
            Some(value) => value.deserialize_seq(visitor),
            None => Err(de::Error::invalid_type(Unexpected::Str(""), &visitor)),
        }
    }

    fn struct_variant<V: Visitor<'a>>(self, _: &'static [&'static str], visitor: V) -> Result<V::Value> {
        match self.value {
            Some(value) => value.deserialize_map(visitor),
            None => Err(de::Error::invalid_type(Unexpected::Str(""), &visitor)),
        }
    }
}
