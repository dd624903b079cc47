//! A component of profbridge.
