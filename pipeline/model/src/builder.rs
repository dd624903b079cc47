//! Writes a batch: for whoever makes profiles rather than decodes them.
