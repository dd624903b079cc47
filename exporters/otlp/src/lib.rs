//! profbridge-exporter-otlp
