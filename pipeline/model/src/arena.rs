//! Holds the dictionaries of many batches as one.
/// placeholder
pub struct Arena;
