//! Typed indices into the tables of a [`Dictionary`](crate::Dictionary).
//!
//! OTLP says that element 0 of every table is the zero value and means "not set" (opentelemetry-proto
//! `profiles.proto`, `ProfilesDictionary`). An id is therefore never zero, "not set" is `None`, and
//! `Option<StackId>` is four bytes wide. An id is valid for the dictionary it came from and for no other.

use std::num::NonZeroU32;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(NonZeroU32);

        impl $name {
            /// The id of a table's element, `None` for element 0, which means "not set".
            #[inline]
            pub const fn new(index: u32) -> Option<Self> {
                match NonZeroU32::new(index) {
                    Some(index) => Some(Self(index)),
                    None => None,
                }
            }

            /// The position in the table, as encoded on the wire.
            #[inline]
            pub const fn get(self) -> u32 {
                self.0.get()
            }

            /// The position in the table, for indexing.
            #[inline]
            pub const fn index(self) -> usize {
                self.0.get() as usize
            }

            /// The wire encoding of an optional id: 0 if it is not set.
            #[inline]
            pub const fn wire(id: Option<Self>) -> u32 {
                match id {
                    Some(id) => id.get(),
                    None => 0,
                }
            }
        }
    )*};
}

ids! {
    /// An element of `string_table`, or an inline string of the request.
    StringId;
    /// An element of `mapping_table`.
    MappingId;
    /// An element of `function_table`.
    FunctionId;
    /// An element of `location_table`.
    LocationId;
    /// An element of `stack_table`.
    StackId;
    /// An element of `link_table`.
    LinkId;
    /// An element of `attribute_table`.
    AttributeId;
    /// A list of attributes, stored once for all samples, locations, mappings and profiles that refer to it.
    AttributeSetId;
}

/// An operation on the ids in a table element or a profile: mapping them to other tables, or checking them. The
/// `map_ids` methods of these types name all of their fields, so that code that copies or checks an element need not
/// know the fields. `field` is the wire name of an id. `map_ids` is always inlined, so that a check does not copy the
/// element.
pub(crate) trait MapIds {
    /// The reason of a failure.
    type Error;

    /// Maps a string.
    fn string(&mut self, id: Option<StringId>, field: &str) -> Result<Option<StringId>, Self::Error>;

    /// Maps a list of attributes.
    fn attribute_set(&mut self, id: Option<AttributeSetId>) -> Result<Option<AttributeSetId>, Self::Error>;

    /// Maps a mapping.
    fn mapping(&mut self, id: Option<MappingId>) -> Result<Option<MappingId>, Self::Error>;

    /// Maps a function.
    fn function(&mut self, id: Option<FunctionId>) -> Result<Option<FunctionId>, Self::Error>;
}
