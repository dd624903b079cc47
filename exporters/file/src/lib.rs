//! profbridge-exporter-file
