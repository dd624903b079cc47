use super::*;

/// Guarantees: mangled names of each language are demangled, and other names are unchanged.
#[test]
fn kinds_of_names() {
    for (name, expected) in [
        ("main", "main"),
        ("_ZN5shape4areaEv", "shape::area()"),
        ("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE", "core::fmt::Write::write_fmt"),
        ("_RNvC6_123foo3bar", "123foo::bar"),
        ("memcpy@@GLIBC_2.14", "memcpy"),
        ("_ZN5shape4areaEv.cold", "shape::area().cold"),
        ("_ZN5shape4areaEv.part.0", "shape::area().part.0"),
        ("_Z", "_Z"),
        ("_R", "_R"),
        ("", ""),
        ("@", "@"),
    ] {
        assert_eq!(demangle(name), expected, "{name}");
    }
}

/// Guarantees: a short name that would expand to gigabytes, because each substitution doubles the previous one, results
/// in a short text.
#[test]
fn substitutions_do_not_explode() {
    let mut name = String::from("_Z1fSt4pairIiiE");
    for level in 0..30_u32 {
        let digit = char::from_digit(level, 36).unwrap().to_ascii_uppercase();
        let last = if level == 0 { "S_".to_owned() } else { format!("S{digit}_") };
        name.push_str(&format!("St4pairI{last}{last}E"));
    }
    assert!(demangle(&name).len() <= MAX_NAME);
}

/// Guarantees: endlessly nested names are left unchanged, without overflowing the stack.
#[test]
fn nesting_is_limited() {
    for part in ["P", "I", "N", "L_Z", "X", "F", "Dp", "cv", "sr", "B"] {
        let name = format!("_Z1f{}", part.repeat(4000 / part.len()));
        assert!(demangle(&name).len() <= MAX_NAME);
        let name = format!("_RNv{}", part.repeat(4000 / part.len()));
        assert!(demangle(&name).len() <= MAX_NAME);
    }
}
