//! profbridge-receiver-otlp
