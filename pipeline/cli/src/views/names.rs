//! Shortens demangled C++ and Rust names to what a person reads: scopes and the function, without return type, template
//! arguments, parameters and hashes. The last component is never cut.
//!
//! `bool std::regex_match<..>(..)` becomes `std::regex_match`, `<alloc::vec::Vec<T> as
//! core::iter::FromIterator>::from_iter` becomes `Vec::from_iter`.

/// How many scopes and the function are shown.
const MOST_PARTS: usize = 3;

/// Longer names are shown as they are, since shortening them may take long.
const LONGEST: usize = 16 << 10;

/// The short form of a name. With `distinguish`, the first template argument stays, for functions whose short forms
/// would be equal. Names in brackets, and those that are not C++ or Rust, stay as they are.
pub(crate) fn short(name: &str, distinguish: bool) -> String {
    let is_plain = !name.contains(['<', '(', ' ']) && !name.contains("::");
    // Other languages have names with brackets around them: `<lambda>`, `http.(*conn).serve`.
    let is_marked = name.starts_with('<') && !name.contains("::") || name.contains(".(");
    if is_plain || is_marked || name.starts_with('[') || name.starts_with("_Z") || name.len() > LONGEST {
        return cython(name).unwrap_or(name).to_owned();
    }
    let mut text = name.to_owned();
    for (what, with) in [
        ("(anonymous namespace)::", ""),
        ("std::__cxx11::", "std::"),
        ("std::__1::", "std::"),
        ("std::__ndk1::", "std::"),
        ("std::__detail::", "std::"),
        ("std::basic_string<char, std::char_traits<char>, std::allocator<char> >", "std::string"),
        ("std::basic_string<char, std::char_traits<char>, std::allocator<char>>", "std::string"),
        ("'lambda'", "{lambda}"),
    ] {
        if text.contains(what) {
            text = text.replace(what, with);
        }
    }
    let short = parts(&scan(&text, distinguish));
    // A name that is neither C++ nor Rust may be shortened to nothing.
    if short.is_empty() { name.to_owned() } else { short }
}

/// The Python name in the name of a function that Cython generated: `__pyx_pw_4shop_4cart_1total` is `total`.
fn cython(name: &str) -> Option<&str> {
    let rest = ["__pyx_pf_", "__pyx_pw_", "__pyx_f_"].iter().find_map(|prefix| name.strip_prefix(prefix))?;
    // Each component of the module, and the class, follows its length.
    let mut rest = rest;
    let mut last = rest;
    loop {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let Some(length) = rest[..digits].parse::<usize>().ok().filter(|_| digits > 0) else { break };
        // A number before the function's own name counts functions and is no length.
        let Some(after) = rest.get(digits + length..).and_then(|after| after.strip_prefix('_')) else {
            last = &rest[digits..];
            break;
        };
        rest = after;
        last = after;
    }
    Some(last.trim_start_matches('_')).filter(|name| !name.is_empty())
}

/// The end of the bracket that opens at `start`, exclusive.
fn closing(text: &[u8], start: usize) -> usize {
    let mut open = Vec::new();
    for (at, byte) in text.iter().enumerate().skip(start) {
        match byte {
            b'(' => open.push(b')'),
            b'<' => open.push(b'>'),
            b'[' => open.push(b']'),
            b'{' => open.push(b'}'),
            // The arrow of a function's type closes nothing.
            b'>' if at > 0 && text[at - 1] == b'-' => {}
            b')' | b'>' | b']' | b'}' => {
                // A stray `<` or `>` is a comparison: the bracket around it counts.
                if let Some(depth) = open.iter().rposition(|expected| expected == byte) {
                    open.truncate(depth);
                    if open.is_empty() {
                        return at + 1;
                    }
                }
            }
            _ => {}
        }
    }
    text.len()
}

/// The name of an operator at the start of a text, with `operator`: `operator()`, `operator<<`, `operator new[]`.
fn operator(text: &str) -> Option<&str> {
    const SYMBOLS: [&str; 41] = [
        "<<=", ">>=", "<=>", "->*", "()", "[]", "<<", ">>", "<=", ">=", "->", "&&", "||", "++", "--", "==", "!=", "+=",
        "-=", "*=", "/=", "%=", "^=", "&=", "|=", "<", ">", "+", "-", "*", "/", "%", "^", "&", "|", "~", "!", "=", ",",
        "\"\"", "?",
    ];
    let rest = text.strip_prefix("operator")?;
    let spaces = rest.len() - rest.trim_start().len();
    let rest = rest.trim_start();
    for word in ["new[]", "delete[]", "new", "delete", "co_await"] {
        if spaces > 0 && rest.starts_with(word) {
            return Some(&text[.."operator".len() + spaces + word.len()]);
        }
    }
    let symbol = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol))?;
    Some(&text[.."operator".len() + spaces + symbol.len()])
}

/// Stands for a character of an operator's name that must not be taken for a bracket or a separator.
const MASK: char = '\u{1}';

/// The name without return type, template arguments and parameters, still with all scopes.
fn scan(text: &str, distinguish: bool) -> String {
    let mut out = String::new();
    let mut operators = Vec::new();
    let mut at = 0;
    let mut first_argument = distinguish;
    while at < text.len() {
        let rest = &text[at..];
        let starts_word = !out.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        if starts_word && let Some(found) = operator(rest) {
            operators.push(
                found.replace("operator ", if found.ends_with(char::is_alphabetic) { "operator " } else { "operator" }),
            );
            out.push(MASK);
            at += found.len();
            continue;
        }
        let c = rest.chars().next().unwrap_or_default();
        let end = || closing(text.as_bytes(), at);
        match c {
            '<' => {
                let end = end();
                let inner = text.get(at + 1..end.saturating_sub(1)).unwrap_or_default();
                let is_outermost = out.is_empty() || out.ends_with("::") && rest.starts_with("<impl ");
                if is_outermost {
                    // Rust: `<T as Trait>::f`, `<impl Trait for T>::f`.
                    let inner = inner.strip_prefix("impl ").unwrap_or(inner);
                    let own = match (inner.split_once(" for "), inner.split_once(" as ")) {
                        (Some((_, own)), _) if rest.starts_with("<impl ") => own,
                        (_, Some((own, _))) => own,
                        _ => inner,
                    };
                    let own = scan(own.trim_start_matches(['&', '*']).trim_start_matches("mut "), false);
                    out.push_str(own.rsplit("::").next().unwrap_or_default());
                } else if first_argument {
                    first_argument = false;
                    let argument = inner.split(',').next().unwrap_or_default();
                    let argument = parts(&scan(argument.trim(), false));
                    // Masked, so that it does not count as a bracket.
                    operators.push(format!("<{argument}>"));
                    out.push(MASK);
                }
                at = end;
                // `f::<T>` of Rust leaves a separator behind.
                if out.ends_with("::") && text[at..].starts_with("::") {
                    out.truncate(out.len() - 2);
                }
            }
            '(' if out.ends_with("decltype") => {
                at = end();
                out.clear();
            }
            // A function that returns a pointer to a function: `bool (*get_handler(int))(char const*)`.
            '(' if rest[1..].starts_with(['*', '&']) && out.ends_with(' ') => {
                out.clear();
                at += 2;
            }
            '(' => {
                let end = end();
                let after = ["const", "volatile", "&&", "&", "noexcept"]
                    .iter()
                    .fold(&text[end..], |after, word| after.trim_start().strip_prefix(word).unwrap_or(after));
                // The function that a lambda or a local class is in.
                if !after.starts_with("::") {
                    break;
                }
                at = text.len() - after.len();
            }
            '[' if rest.starts_with("[abi:") || rest.starts_with("[clone") => at = end(),
            '{' => {
                let end = end();
                let inner = &text[at..end];
                let known = ["lambda", "closure"].iter().find(|word| inner.contains(**word));
                match known {
                    Some(word) => out.extend(["{", word, "}"]),
                    None => out.extend(inner.chars().filter(|c| !c.is_whitespace())),
                }
                at = end;
            }
            _ => {
                out.push(c);
                at += c.len_utf8();
            }
        }
    }
    // The text before the last space is the return type.
    let start = out.trim_end().rfind(' ').map_or(0, |space| space + 1);
    let mut operators = operators.into_iter().skip(out[..start].matches(MASK).count());
    let own = out[start..].trim_end().trim_start_matches(['*', '&']);
    let own = own.split_once(".isra").or_else(|| own.split_once(".constprop")).map_or(own, |(name, _)| name);
    own.chars().fold(String::new(), |mut name, c| {
        match c {
            MASK => name.push_str(&operators.next().unwrap_or_default()),
            c => name.push(c),
        }
        name
    })
}

/// The last scopes and the function.
fn parts(name: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    for part in split(name) {
        let is_hash = part.len() == 17 && part.starts_with('h') && part[1..].bytes().all(|c| c.is_ascii_hexdigit());
        let after_closure = kept.last().is_some_and(|last| last.starts_with('{'));
        let repeats = kept.last() == Some(&part) || matches!(part, "_FUN" | "_M_invoke" | "operator()" | "__invoke");
        if !(part.is_empty() || is_hash || after_closure && repeats) {
            kept.push(part);
        }
    }
    let is_std = kept.first().is_some_and(|first| matches!(*first, "std" | "core" | "alloc"));
    // Closures do not count.
    let named: Vec<usize> = (0..kept.len()).filter(|&at| !kept[at].starts_with('{')).collect();
    if named.len() <= MOST_PARTS {
        return kept.join("::");
    }
    let from = named[named.len() - if is_std { MOST_PARTS - 1 } else { MOST_PARTS }];
    let scope = if is_std { kept.first() } else { None };
    scope.into_iter().chain(&kept[from..]).copied().collect::<Vec<_>>().join("::")
}

/// The parts between `::`, except within brackets.
fn split(name: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    let (mut start, mut skip) = (0, false);
    let mut found = Vec::new();
    let bytes = name.as_bytes();
    for at in 0..bytes.len() {
        match bytes[at] {
            b'{' | b'<' => depth += 1,
            b'}' | b'>' => depth -= 1,
            b':' if !skip && depth <= 0 && bytes.get(at + 1) == Some(&b':') => {
                found.push(&name[start..at]);
                (start, skip) = (at + 2, true);
                continue;
            }
            _ => {}
        }
        skip = false;
    }
    found.push(&name[start..]);
    found.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: the parts that identify a function are kept: scopes, function, operator, lambda. Names of other
    /// languages and malformed names are unchanged.
    #[test]
    fn shortened() {
        for (name, expected) in [
            ("bool std::regex_match<char, std::allocator<int> >(char const*, int)", "std::regex_match"),
            (
                "std::__detail::_Map_base<int, std::pair<int const, int> >::operator[](int const&)",
                "std::_Map_base::operator[]",
            ),
            (
                "shop::Item& std::vector<shop::Item, std::allocator<shop::Item> >::emplace_back<int>(int&&)",
                "std::vector::emplace_back",
            ),
            ("std::ostream& operator<< <std::char_traits<char> >(std::ostream&, char)", "operator<<"),
            ("void shop::Ranker<std::map<int, int> >::rank<int>(int)", "shop::Ranker::rank"),
            (
                "node::LibuvStreamWrap::ReadStart()::{lambda(uv_stream_s*)#2}::_FUN(uv_stream_s*)",
                "node::LibuvStreamWrap::ReadStart::{lambda}",
            ),
            ("v8::internal::(anonymous namespace)::Invoke(v8::internal::Isolate*)", "v8::internal::Invoke"),
            ("<alloc::vec::Vec<T> as core::iter::FromIterator<T>>::from_iter", "Vec::from_iter"),
            ("<&mut shop::Cart as shop::Total>::total", "Cart::total"),
            ("core::ptr::drop_in_place::<alloc::vec::Vec<u8>>", "core::ptr::drop_in_place"),
            ("shop::handle::{{closure}}::{{closure}}::h0123456789abcdef", "shop::handle::{closure}"),
            ("bool (*get_handler(int))(char const*)", "get_handler"),
            ("main", "main"),
            ("Pack<int>::run(int) const", "Pack::run"),
            ("f(int) [clone .isra.0]", "f"),
            ("operator new(unsigned long)", "operator new"),
            ("shop::Cart::operator()(int) const", "shop::Cart::operator()"),
            ("a::b::c::d::e::f", "d::e::f"),
            ("std::a::b::c::d", "std::c::d"),
            ("<lambda>", "<lambda>"),
            ("<module>", "<module>"),
            ("net/http.(*conn).serve", "net/http.(*conn).serve"),
            ("[libc.so.6]+0x1000", "[libc.so.6]+0x1000"),
            ("__pyx_pw_4shop_4cart_1total", "total"),
            ("__pyx_pf_4shop_total", "total"),
            ("", ""),
            ("<", "<"),
            ("((", "(("),
        ] {
            assert_eq!(short(name, false), expected, "{name}");
        }
    }

    /// Guarantees: functions of one name and different template arguments can be told apart.
    #[test]
    fn distinguished() {
        assert_eq!(short("void Pack<std::map<int, int> >::run(int)", true), "Pack<std::map>::run");
        assert_eq!(short("void Pack<int>::run(int)", true), "Pack<int>::run");
        assert_eq!(short("main", true), "main");
    }

    proptest::proptest! {
        /// Guarantees: no name causes a panic or becomes much longer.
        #[test]
        fn any_name(name in "[a-z<>(){}\\[\\]:*& ~#',-]{0,60}|operator.{0,20}|.{0,40}") {
            let short = short(&name, true);
            proptest::prop_assert!(short.len() <= 4 * name.len() + 16, "{name:?}: {short:?}");
        }
    }
}
