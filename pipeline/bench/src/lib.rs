//! profbridge-bench
