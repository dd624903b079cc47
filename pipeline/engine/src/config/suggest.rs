//! Suggestions ("Did you mean"): the valid word most similar to the written one.

/// The valid word most similar to `word`, if it is similar enough.
pub(super) fn nearest<'a>(word: &str, valid: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // At most a third of the letters may differ: `endpont` finds `endpoint`, `tls` does not find `dsn`.
    let limit = (word.chars().count() / 3).max(1);
    let lower = word.to_lowercase();
    valid
        .into_iter()
        .map(|candidate| (distance(&lower, &candidate.to_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Only the beginning of longer words is compared, because the cost is the product of the lengths.
const COMPARED_CHARS: usize = 64;

/// The edit distance, with a swap of two neighbours as one edit.
pub(super) fn distance(a: &str, b: &str) -> usize {
    let head = |word: &str| word.chars().take(COMPARED_CHARS).collect::<String>();
    strsim::osa_distance(&head(a), &head(b))
}

/// The hint for a word that is not valid.
pub(super) fn hint(word: &str, valid: &[&str], plural: &str) -> String {
    let mut words: Vec<&str> = valid.to_vec();
    words.sort_unstable();
    words.dedup();
    let list = words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
    match (nearest(word, words.iter().copied()), words.len()) {
        (_, 0) => format!("there are no valid {plural} here; delete it"),
        (Some(near), 1) => format!("did you mean `{near}`?"),
        (Some(near), _) => format!("did you mean `{near}`? valid {plural}: {list}"),
        (None, _) => format!("valid {plural}: {list}"),
    }
}
