//! Sockets, TLS, HTTP shells and capped compression.
