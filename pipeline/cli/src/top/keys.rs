//! Decodes keys from the terminal's input: characters, and the sequences of XTerm's keys (ctlseqs, "PC-Style Function
//! Keys"), which begin with ESC.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Character(char),
    Enter,
    Backspace,
    /// Escape by itself.
    Escape,
    /// The arrow up.
    Up,
    /// The arrow down.
    Down,
    PageUp,
    PageDown,
    Home,
}

/// The longest sequence to wait for, in bytes. Those of keys have up to eight.
const LONGEST_SEQUENCE: usize = 32;

/// How many bytes are complete. Input may arrive in pieces, so the rest is the start of a character or a sequence.
/// Escape alone is a key.
pub(super) fn whole(bytes: &[u8]) -> usize {
    let begun = bytes.iter().rposition(|&byte| byte == 0x1b).filter(|&at| match &bytes[at + 1..] {
        [b'[' | b'O', rest @ ..] => {
            rest.len() < LONGEST_SEQUENCE && !rest.iter().any(|byte| (b'@'..=b'~').contains(byte))
        }
        _ => false,
    });
    let character = || {
        let lead = bytes.iter().rposition(|byte| byte & 0xc0 != 0x80)?;
        let length = bytes[lead].leading_ones() as usize;
        ((2..=4).contains(&length) && bytes.len() - lead < length).then_some(lead)
    };
    begun.or_else(character).unwrap_or(bytes.len())
}

/// The keys in some bytes. Unknown sequences are skipped.
pub(super) fn decode(bytes: &[u8]) -> Vec<Key> {
    let text = String::from_utf8_lossy(bytes);
    let mut keys = Vec::new();
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\u{1b}' => match rest.next_if(|next| matches!(next, '[' | 'O')) {
                None => keys.push(Key::Escape),
                Some(_) => {
                    let mut sequence = String::new();
                    for c in rest.by_ref() {
                        sequence.push(c);
                        // A final byte ends it (ECMA-48, 5.4).
                        if ('@'..='~').contains(&c) {
                            break;
                        }
                    }
                    keys.extend(known(&sequence));
                }
            },
            '\r' | '\n' => keys.push(Key::Enter),
            '\u{7f}' | '\u{8}' => keys.push(Key::Backspace),
            c if crate::terminal::is_unprintable(c) || c == char::REPLACEMENT_CHARACTER => {}
            c => keys.push(Key::Character(c)),
        }
    }
    keys
}

fn known(sequence: &str) -> Option<Key> {
    Some(match sequence {
        "A" => Key::Up,
        "B" => Key::Down,
        "5~" => Key::PageUp,
        "6~" => Key::PageDown,
        "H" | "1~" | "7~" => Key::Home,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: characters and the supported keys are recognised in all forms that terminals send.
    #[test]
    fn known_keys() {
        let keys = decode("sé\r\u{7f}\u{1b}[A\u{1b}OB\u{1b}[5~\u{1b}[6~\u{1b}[H\u{1b}[1~".as_bytes());
        let wanted = [
            Key::Character('s'),
            Key::Character('é'),
            Key::Enter,
            Key::Backspace,
            Key::Up,
            Key::Down,
            Key::PageUp,
            Key::PageDown,
            Key::Home,
            Key::Home,
        ];
        assert_eq!(keys, wanted);
        assert_eq!(decode(b"\x1b"), [Key::Escape]);
        assert_eq!(decode(b"\x1bq"), [Key::Escape, Key::Character('q')]);
    }

    /// Guarantees: the keys are the same wherever the input is split, except right after Escape; an endless sequence is
    /// not waited for.
    #[test]
    fn pieces() {
        let sent = "sé漢🦀\u{1b}[A\u{1b}OB\u{1b}[5~q".as_bytes();
        for at in (0..sent.len()).filter(|&at| at == 0 || sent[at - 1] != 0x1b) {
            let mut pending = sent[..at].to_vec();
            let first = whole(&pending);
            let mut keys = decode(&pending[..first]);
            pending.drain(..first);
            pending.extend_from_slice(&sent[at..]);
            assert_eq!(whole(&pending), pending.len(), "{at}");
            keys.extend(decode(&pending));
            assert_eq!(keys, decode(sent), "{at}");
        }
        assert_eq!((whole(b"a\x1b"), whole(b"a\x1b["), whole(b"a\xe6\xbc"), whole(b"")), (2, 1, 1, 0));
        let endless = [b"\x1b[".as_slice(), &[b'1'; LONGEST_SEQUENCE]].concat();
        assert_eq!(whole(&endless), endless.len());
        assert_eq!(whole(&[0x80; 9]), 9);
    }

    /// Guarantees: other or partial input is not taken for keys and does no harm.
    #[test]
    fn attack_other_bytes() {
        assert_eq!(decode(b"\x1b[1;5C\x1b[200~\x00\x01\xff\xfe"), []);
        assert_eq!(decode(b"\x1b[12;"), []);
        for byte in 0..=255u8 {
            decode(&[0x1b, byte]);
            decode(&[0x1b, b'[', byte, byte]);
            assert!(whole(&[b'[', byte, 0x1b, byte]) <= 4);
        }
    }
}
