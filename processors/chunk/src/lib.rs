//! profbridge-processor-chunk
