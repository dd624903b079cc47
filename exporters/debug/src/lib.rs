//! profbridge-exporter-debug
