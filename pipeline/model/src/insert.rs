//! Adds attributes to resources, such as what their receiver knows about their origin.
//!
//! Only the strings of the dictionary, by appending, and the attributes of the given resources change. Every id stays
//! valid, so samples, stacks and locations are shared or moved without being read.

use std::sync::Arc;

use crate::buffer::ByteRange;
use crate::dictionary::{Attribute, Dictionary, Invalid, Value};
use crate::id::StringId;
use crate::profiles::Profiles;

/// An attribute to add to a resource. Both are given by position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Insertion {
    /// The position in [`Profiles::resources`].
    pub resource: u32,
    /// The position among the inserted attributes.
    pub attribute: u32,
}

impl Profiles {
    /// The batch with additional resource attributes: `attributes` are keys and texts, `insertions` assign them to
    /// resources, grouped by resource. Without insertions the batch keeps its request bytes ([`Profiles::received`]).
    /// The dictionary is copied only if it is shared.
    ///
    /// # Errors
    ///
    /// An insertion refers to a missing resource or attribute, or the batch would exceed 4 GiB.
    pub fn insert(mut self, attributes: &[(&str, &str)], insertions: &[Insertion]) -> Result<Self, Invalid> {
        if insertions.is_empty() {
            return Ok(self);
        }
        let text: String = attributes.iter().flat_map(|(key, value)| [*key, *value]).collect();
        if u32::try_from(self.dictionary.tables().buffer.len() + text.len()).is_err() {
            return Err(Invalid { place: "request".to_owned(), rule: "is not shorter than 4 GiB".to_owned() });
        }
        let dictionary = std::mem::take(&mut self.dictionary);
        let mut tables = Arc::try_unwrap(dictionary).unwrap_or_else(|shared| (*shared).clone()).into_tables();
        let mut start = tables.buffer.len() as u32;
        let mut append = |text: &str| {
            let id = StringId::new(tables.strings.len() as u32);
            tables.strings.push(ByteRange { start, len: text.len() as u32 });
            start += text.len() as u32;
            id
        };
        let written: Vec<Attribute> = attributes
            .iter()
            .map(|(key, value)| Attribute { key: append(key), value: Value::String(append(value)), unit: None })
            .collect();
        tables.buffer.append(text.as_bytes());
        self.dictionary = Arc::new(Dictionary::from_checked(tables));
        self.received = None;
        let resources = self.resources_mut();
        for of_one in insertions.chunk_by(|one, other| one.resource == other.resource) {
            let outside = |rule: &str| Invalid { place: "resource_profiles".to_owned(), rule: rule.to_owned() };
            let resource = of_one.first().and_then(|one| resources.get_mut(one.resource as usize));
            let Some(resource) = resource else { return Err(outside("there is no such resource to insert into")) };
            let there = &mut resource.resource.attributes;
            there.reserve_exact(of_one.len());
            for insertion in of_one {
                let attribute = written.get(insertion.attribute as usize);
                there.push(attribute.ok_or_else(|| outside("there is no such attribute to insert"))?.clone());
            }
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::Builder;

    fn batch() -> Profiles {
        let mut builder = Builder::new();
        let frame = builder.frame("work", "work.c", 7);
        let stack = builder.stack(&[frame]);
        builder.sample(stack, None, None, &[5], &[]);
        let mut batch = builder.finish().unwrap();
        batch.received = Some(Bytes::from_static(b"request"));
        batch.peer = Some("peer".into());
        batch
    }

    fn attributes(batch: &Profiles) -> Vec<(&str, &str)> {
        let dictionary = batch.dictionary();
        let said = |attribute: &Attribute| match attribute.value {
            Value::String(text) => (attribute.key, text),
            _ => panic!("{attribute:?}"),
        };
        let all = batch.resources()[0].resource.attributes.iter().map(said);
        all.map(|(key, text)| (dictionary.string(key), dictionary.string(text))).collect()
    }

    /// Guarantees: inserted attributes follow the resource's own; the batch no longer has its request bytes, and
    /// samples are unchanged.
    #[test]
    fn inserted_attributes_are_said() {
        let before = batch();
        let samples = std::ptr::from_ref(before.columns());
        let texts = [("host.id", "1f"), ("host.name", ""), ("zone", "é")];
        let places = [0, 2].map(|attribute| Insertion { resource: 0, attribute });
        let after = before.insert(&texts, &places).unwrap();
        assert_eq!(attributes(&after), [("host.id", "1f"), ("zone", "é")]);
        assert_eq!((after.received.is_none(), after.peer.as_deref()), (true, Some("peer")));
        assert_eq!(std::ptr::from_ref(after.columns()), samples);
        let again = after.insert(&[("k", "v")], &[Insertion { resource: 0, attribute: 0 }]).unwrap();
        assert_eq!(attributes(&again), [("host.id", "1f"), ("zone", "é"), ("k", "v")]);
    }

    /// Guarantees: without insertions the batch keeps its request bytes; other users of a shared dictionary are not
    /// affected by an insertion.
    #[test]
    fn nothing_inserted_nothing_changed() {
        let batch = batch();
        let same = batch.clone().insert(&[("k", "v")], &[]).unwrap();
        assert_eq!(same.received, batch.received);
        assert!(Arc::ptr_eq(same.dictionary(), batch.dictionary()));
        let other = batch.clone().insert(&[("k", "v")], &[Insertion { resource: 0, attribute: 0 }]).unwrap();
        assert_eq!((attributes(&other).len(), attributes(&batch).len()), (1, 0));
    }

    /// Guarantees: positions that do not exist are an error.
    #[test]
    fn missing_places_are_errors() {
        let insertion = |resource, attribute| [Insertion { resource, attribute }];
        assert!(batch().insert(&[("k", "v")], &insertion(1, 0)).is_err());
        assert!(batch().insert(&[("k", "v")], &insertion(0, 1)).is_err());
    }
}
