use super::*;

/// Guarantees: the kernel's lines are parsed correctly.
#[test]
fn lines_of_the_kernel() {
    assert_eq!(
        parse_schedstat(b"36468463 18446744073709551615 19\n"),
        Some(SchedStat { run_nano: 36_468_463, wait_nano: u64::MAX, timeslices: 19 })
    );
    assert_eq!(parse_syscall(b"running\n"), Some(Activity::Running));
    assert_eq!(
        parse_syscall(b"232 0x3 0x7ffd 0x1 0xffffffffffffffff 0x0 0x0 0x7ffd5a71 0x7f9d2b30\n"),
        Some(Activity::Blocked {
            call: 232,
            sp: 0x7ffd_5a71,
            pc: 0x7f9d_2b30,
            arguments: Some([3, 0x7ffd, 1, u64::MAX, 0, 0])
        })
    );
    assert_eq!(
        parse_syscall(b"-1 0x7ffd5a71 0x7f9d2b30\n"),
        Some(Activity::Blocked { call: -1, sp: 0x7ffd_5a71, pc: 0x7f9d_2b30, arguments: None })
    );
}

/// Guarantees: a process cannot imitate another one by its name, which it chooses itself.
#[test]
fn name_with_parentheses() {
    let line = b"77 (a) R 1 (b) S 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 1234 23\n";
    // State S, parent 5; then 17 fields between the parent and the start time.
    let processor = ProcessorTicks { user: 15, kernel: 16 };
    let reaped = ProcessorTicks { user: 17, kernel: 18 };
    assert_eq!(parse_stat(line), Some(StatLine { state: b'S', parent: 5, start_ticks: 1234, processor, reaped }));
}

/// Guarantees: lines that are cut, empty or not numbers are rejected instead of misread.
#[test]
fn unreadable_lines() {
    for line in [&b""[..], b"1 2", b"1 2 x", b"1 2 18446744073709551616", b"-1 2 3"] {
        assert_eq!(parse_schedstat(line), None, "{line:?}");
    }
    for line in [
        &b""[..],
        b"0",
        b"0 0x1",
        b"-1 12 0x1",
        b"-1 0x 0x1",
        b"-1 0x1 0x12345678123456781",
        b"walking 0x1 0x2",
        b"0 0x1 0x2 0x3",
    ] {
        assert_eq!(parse_syscall(line), None, "{line:?}");
    }
    for line in [&b"1 (a"[..], b"1 (a) ", b"1 (a) S", b"1 (a) S 1 2 3"] {
        assert_eq!(parse_stat(line), None, "{line:?}");
    }
}
