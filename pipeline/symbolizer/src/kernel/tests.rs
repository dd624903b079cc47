use super::*;

fn find(text: &str, address: u64) -> Option<String> {
    let table = read(text.as_bytes()).unwrap();
    table.and_then(|table| table.find(address).map(|name| String::from_utf8(name.to_vec()).unwrap()))
}

/// Guarantees: functions of the kernel and of modules have their names, without the module's; lines that make no sense
/// are skipped.
#[test]
fn functions_and_modules() {
    let text = "ffffffff81000000 T _stext\nffffffff81000100 t helper\nnonsense\n\nffffffffc0000000 t probe\t[loop]\nffffffffc0000010 d data\t[loop]\n";
    assert_eq!(find(text, 0xffff_ffff_8100_0001).as_deref(), Some("_stext"));
    assert_eq!(find(text, 0xffff_ffff_8100_0100).as_deref(), Some("helper"));
    assert_eq!(find(text, 0xffff_ffff_c000_000f).as_deref(), Some("probe"));
}

/// Guarantees: addresses that are hidden, all of them 0, are no symbols.
#[test]
fn hidden_addresses() {
    assert_eq!(find("0000000000000000 T _stext\n0000000000000000 t helper\n", 0), None);
    assert!(read(&b"0000000000000000 T _stext\n"[..]).unwrap().is_none());
}
