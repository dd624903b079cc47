//! Whether a program's profiles can be had, and when that is worth a line in the log: once for each change.

/// What the last attempt came to.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    error: Option<String>,
    /// Attempts that failed since the last one that did not.
    failed: u64,
}

/// What there is to say.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It failed, for a reason that was not said before.
    Failed(String),
    /// It worked again, after so many that failed.
    Works(u64),
}

impl Standing {
    /// Notes an attempt.
    pub(crate) fn note(&mut self, outcome: Result<(), String>) -> Option<Change> {
        match outcome {
            Ok(()) => {
                self.error.take()?;
                Some(Change::Works(std::mem::take(&mut self.failed)))
            }
            Err(error) => {
                self.failed += 1;
                if self.error.as_ref() == Some(&error) {
                    return None;
                }
                self.error = Some(error.clone());
                Some(Change::Failed(error))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: an error is said once, another one again, and the end of them with their number.
    #[test]
    fn once_for_each_change() {
        let mut standing = Standing::default();
        let failed = |why: &str| Err(why.to_owned());
        assert_eq!(standing.note(Ok(())), None);
        assert_eq!(standing.note(failed("a")), Some(Change::Failed("a".to_owned())));
        assert_eq!(standing.note(failed("a")), None);
        assert_eq!(standing.note(failed("b")), Some(Change::Failed("b".to_owned())));
        assert_eq!(standing.note(Ok(())), Some(Change::Works(3)));
        assert_eq!(standing.note(Ok(())), None);
        assert_eq!(standing.note(failed("b")), Some(Change::Failed("b".to_owned())));
    }
}
