//! profbridge-exporter-sentry
