//! profbridge-wire
