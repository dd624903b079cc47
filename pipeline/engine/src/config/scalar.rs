//! Types of plain YAML scalars: the core schema of YAML 1.2 (section 10.3.2), except for spellings that YAML readers
//! interpret differently (`yes`, `0123`, `1_000`). These stay text.

/// The type of a plain scalar for a reader that accepts any type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Plain {
    Null,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text,
}

/// Whether the text of a plain scalar is null.
pub(super) fn is_null(text: &str) -> bool {
    matches!(text, "" | "~" | "null" | "Null" | "NULL")
}

/// The plain scalar as a boolean, if it is one.
pub(super) fn boolean(text: &str) -> Option<bool> {
    match text {
        "true" | "True" | "TRUE" => Some(true),
        "false" | "False" | "FALSE" => Some(false),
        _ => None,
    }
}

/// An integer, positive or negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Integer {
    Unsigned(u64),
    Signed(i64),
}

/// The plain scalar as an integer, if it is one: decimal without leading zeros, `0x` or `0o`.
pub(super) fn integer(text: &str) -> Option<Integer> {
    if let Some(hex) = text.strip_prefix("0x") {
        return digits(hex, 16).map(Integer::Unsigned);
    }
    if let Some(octal) = text.strip_prefix("0o") {
        return digits(octal, 8).map(Integer::Unsigned);
    }
    let (negative, number) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if has_leading_zero(number) {
        return None;
    }
    let value = digits(number, 10)?;
    if negative { 0_i64.checked_sub_unsigned(value).map(Integer::Signed) } else { Some(Integer::Unsigned(value)) }
}

/// Whether the text is a decimal number that some readers interpret as octal, such as `0123`.
pub(super) fn has_leading_zero(text: &str) -> bool {
    let number = text.trim_start_matches(['+', '-']);
    number.len() > 1 && number.starts_with('0') && number.bytes().all(|b| b.is_ascii_digit())
}

fn digits(text: &str, radix: u32) -> Option<u64> {
    if text.is_empty() || !text.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    u64::from_str_radix(text, radix).ok()
}

/// The plain scalar as a number, if it is one.
pub(super) fn float(text: &str) -> Option<f64> {
    let unsigned = text.trim_start_matches(['+', '-']);
    if text.len() - unsigned.len() > 1 {
        return None;
    }
    let negative = text.starts_with('-');
    match unsigned {
        ".inf" | ".Inf" | ".INF" => return Some(if negative { f64::NEG_INFINITY } else { f64::INFINITY }),
        ".nan" | ".NaN" | ".NAN" if unsigned.len() == text.len() => return Some(f64::NAN),
        _ => {}
    }
    // `f64::from_str` also accepts `inf`, `nan` and `infinity`, which are text in YAML.
    let starts = unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    if !starts || unsigned.chars().any(|c| c.is_ascii_alphabetic() && c != 'e' && c != 'E') {
        return None;
    }
    text.parse().ok().filter(|value: &f64| value.is_finite())
}

/// The type of a plain scalar.
pub(super) fn plain(text: &str) -> Plain {
    if is_null(text) {
        return Plain::Null;
    }
    if let Some(value) = boolean(text) {
        return Plain::Bool(value);
    }
    match integer(text) {
        Some(Integer::Unsigned(value)) => return Plain::Unsigned(value),
        Some(Integer::Signed(value)) => return Plain::Signed(value),
        None if has_leading_zero(text) => return Plain::Text,
        None => {}
    }
    float(text).map_or(Plain::Text, Plain::Float)
}
