//! profbridge-tests
