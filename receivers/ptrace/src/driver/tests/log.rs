//! Captures the log for tests.

thread_local! {
    /// The log lines of this thread, which runs the whole runtime of a test.
    static LOG: std::cell::RefCell<Vec<u8>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// Writes to the log of the current thread.
struct ThreadLog;

impl std::io::Write for ThreadLog {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LOG.with_borrow_mut(|log| log.extend_from_slice(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The lines of this thread's log that contain a text.
pub(super) fn logged(text: &str) -> Vec<String> {
    let log = LOG.with_borrow(|log| String::from_utf8(log.clone()).unwrap());
    log.lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
}

/// Installs the capture, which separates the lines of all threads. One subscriber serves all tests: with one for each,
/// a line that another thread reaches first would be disabled for all.
pub(super) fn keep_log() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let subscriber = tracing_subscriber::fmt().with_writer(|| ThreadLog).with_ansi(false).finish();
        tracing::subscriber::set_global_default(subscriber).unwrap();
    });
}
