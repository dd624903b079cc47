//! Tracks whether a program can be scraped, and logs only changes.

/// The results of recent attempts.
#[derive(Debug, Default)]
pub(crate) struct ScrapeStatus {
    error: Option<String>,
    /// The number of failed attempts since the last success.
    failed: u64,
}

/// A change to log.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum StatusChange {
    /// Scraping failed for a new reason.
    Failed(String),
    /// Scraping works again, after this many failures.
    Works(u64),
}

impl ScrapeStatus {
    /// Records an attempt. Returns the change, if any.
    pub(crate) fn note(&mut self, outcome: Result<(), String>) -> Option<StatusChange> {
        match outcome {
            Ok(()) => {
                self.error.take()?;
                Some(StatusChange::Works(std::mem::take(&mut self.failed)))
            }
            Err(error) => {
                self.failed += 1;
                if self.error.as_ref() == Some(&error) {
                    return None;
                }
                self.error = Some(error.clone());
                Some(StatusChange::Failed(error))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: an error is reported once, a different error again, and the recovery with the number of failures.
    #[test]
    fn once_for_each_change() {
        let mut scrape_status = ScrapeStatus::default();
        let failed = |why: &str| Err(why.to_owned());
        assert_eq!(scrape_status.note(Ok(())), None);
        assert_eq!(scrape_status.note(failed("a")), Some(StatusChange::Failed("a".to_owned())));
        assert_eq!(scrape_status.note(failed("a")), None);
        assert_eq!(scrape_status.note(failed("b")), Some(StatusChange::Failed("b".to_owned())));
        assert_eq!(scrape_status.note(Ok(())), Some(StatusChange::Works(3)));
        assert_eq!(scrape_status.note(Ok(())), None);
        assert_eq!(scrape_status.note(failed("b")), Some(StatusChange::Failed("b".to_owned())));
    }
}
