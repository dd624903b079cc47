//! Tests of the converter as a whole.
