//! Matches names with patterns: `*` stands for any number of characters, `?` for one. Nothing else is special, so a
//! path without them matches only itself.

/// Whether the whole text matches the pattern. Takes at most as many steps as the product of both lengths, and does not
/// recurse.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let text: Vec<char> = text.chars().collect();
    let (mut p, mut t) = (0, 0);
    // The position after the last `*` of the pattern, and the end of the text that this `*` matches so far.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                p += 1;
                star = Some((p, t));
            }
            Some(c) if *c == '?' || *c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => {
                let Some((behind, taken)) = star else { return false };
                star = Some((behind, taken + 1));
                p = behind;
                t = taken + 1;
            }
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

/// Whether some part of the text matches the pattern.
pub(super) fn contains(pattern: &str, text: &str) -> bool {
    matches(&format!("*{pattern}*"), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: stars and question marks have the documented meaning, and no other character is special.
    #[test]
    fn stars_and_question_marks() {
        for (pattern, text, expected) in [
            ("python3", "python3", true),
            ("python3", "python3.11", false),
            ("python3*", "python3", true),
            ("python3*", "python3.11", true),
            ("python?", "python3", true),
            ("python?", "python", false),
            ("?", "ü", true),
            ("*", "", true),
            ("", "", true),
            ("", "x", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-b-b-d", false),
            ("*ab", "aab", true),
            ("[a-z]", "b", false),
            ("[a-z]", "[a-z]", true),
            ("a.c", "abc", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern:?} {text:?}");
        }
        assert!(contains("manage.py run*", "python manage.py runserver 80"));
        assert!(!contains("manage.py  run", "python manage.py runserver"));
    }

    /// Guarantees: a pattern designed to take exponential time takes at most the product of the lengths.
    #[test]
    fn no_exponential_pattern() {
        let text = "a".repeat(10_000);
        assert!(!matches(&format!("{}b", "*a".repeat(30)), &text));
    }
}
