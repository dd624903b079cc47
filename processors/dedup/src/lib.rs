//! profbridge-processor-dedup
