//! Patterns for names: `*` matches any number of characters, `?` matches one. All other characters match themselves.

/// A pattern from the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern(Vec<char>);

impl Pattern {
    pub(crate) fn new(pattern: &str) -> Self {
        Self(pattern.chars().collect())
    }

    /// Whether the whole text matches. Takes at most as many steps as the product of both lengths, and does not
    /// recurse.
    pub(crate) fn matches(&self, text: &str) -> bool {
        let (mut at, mut rest) = (0, text.chars());
        // Where to continue after a mismatch: the position after the last `*`, and the rest of the text if that `*`
        // matches one more character.
        let mut star: Option<(usize, std::str::Chars<'_>)> = None;
        loop {
            if self.0.get(at) == Some(&'*') {
                at += 1;
                star = Some((at, rest.clone()));
                continue;
            }
            let mut after = rest.clone();
            match (self.0.get(at), after.next()) {
                (None, None) => return true,
                (Some(wanted), Some(found)) if *wanted == '?' || *wanted == found => (at, rest) = (at + 1, after),
                _ => {
                    let Some((behind, from)) = &mut star else { return false };
                    if from.next().is_none() {
                        return false;
                    }
                    (at, rest) = (*behind, from.clone());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The same by brute force: tries all texts that a `*` could match.
    fn brute(pattern: &[char], text: &[char]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some(('*', rest)) => (0..=text.len()).any(|taken| brute(rest, &text[taken..])),
            Some((one, rest)) => match text.split_first() {
                Some((found, behind)) => (*one == '?' || one == found) && brute(rest, behind),
                None => false,
            },
        }
    }

    proptest! {
        /// Guarantees: the result equals that of brute force.
        #[test]
        fn any_pattern(pattern in "[ab*?é]{0,8}", text in "[abé]{0,8}") {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            prop_assert_eq!(Pattern::new(&pattern).matches(&text), brute(&chars(&pattern), &chars(&text)));
        }
    }
}
