//! Tests of frames of any runtime; `runtimes` tests those of each runtime.

use serde_json::{Value, json};

use super::support::{BatchDraft, TestLocation};
use crate::sentry::chunk::{InApp, Settings};

pub(super) const LIBC: (&str, &str, u64, u64, u64) =
    ("libc.so.6", "b03e4a7f5e884c8da04b05fa32cc4cbd69faff51", 0x26000, 0x1a0000, 0x26000);

/// A chunk with one stack of these locations, leaf first.
pub(super) fn chunk(locations: &[TestLocation<'_>], settings: Settings) -> Value {
    let batch = BatchDraft::new().on_cpu(20).sampled(locations, &[("thread.id", 7.into())]);
    batch.convert_with(settings).chunk().clone()
}

/// Whether each frame of a chunk is own code.
fn own_code(chunk: &Value) -> Vec<bool> {
    chunk["profile"]["frames"].as_array().unwrap().iter().map(|frame| frame["in_app"].as_bool().unwrap()).collect()
}

/// The frames of a chunk with one stack of these locations.
fn frames(places: &[TestLocation<'_>]) -> Value {
    chunk(places, Settings::default())["profile"]["frames"].clone()
}

/// The platform and the only frame of a chunk with one location with one line.
pub(super) fn one(kind: &str, function: &str, file: &str) -> (String, Value) {
    let lines = [(function, file, 12, 0)];
    let mut chunk = chunk(&[TestLocation::new(kind, &lines)], Settings::default());
    (chunk["platform"].as_str().unwrap().to_owned(), chunk["profile"]["frames"][0].take())
}

/// Guarantees: a native frame points into an image of type `symbolic` (Relay rejects a chunk with other types) with an
/// absolute address; a frame without a name is named by its file and page, and counted.
/// rule: differences#image-type, differences#frame-function, sample-format-v2#debug-meta, sample-format-v2#frames
/// rule: sample-format-v2#frame-address, sample-format-v2#frame-grouping, profiles-sdk#v2-debug-meta
/// rule: profiles-sdk#frame-names, profiles-sdk#frame-address, event-schema#images, event-schema#image-type
/// rule: event-schema#image-code-file, event-schema#image-addr, event-schema#image-vmaddr, event-schema#frame-names
/// rule: event-schema#frame-function, event-schema#frame-address, event-schema#frame-package, otep-0239#build-id-kind
/// rule: otep-0239#build-id
#[test]
fn native() {
    let unnamed = TestLocation { kind: "native", mapping: Some(LIBC), address: 0x91000, ..TestLocation::default() };
    let named = TestLocation {
        lines: &[("work", "/src/shop.c", 3, 0)],
        mapping: Some(("shop", "aa", 0x401000, 0x500000, 0x1000)),
        address: 0x401234,
        ..unnamed
    };
    let chunk = chunk(&[unnamed, named], Settings::default());
    assert_eq!(chunk["platform"], "native");
    assert_eq!(
        chunk["profile"]["frames"],
        json!([
            {"function": "[libc.so.6]+0x91000", "package": "libc.so.6", "instruction_addr": "0x100091000", "in_app": false},
            {"function": "work", "abs_path": "/src/shop.c", "filename": "/src/shop.c", "package": "shop", "lineno": 3,
             "instruction_addr": "0x200001234", "in_app": true},
        ])
    );
    assert_eq!(
        chunk["debug_meta"]["images"],
        json!([
            {"type": "symbolic", "debug_id": "7f4a3eb0-885e-8d4c-a04b-05fa32cc4cbd", "code_file": "libc.so.6",
             "image_addr": "0x100000000", "image_vmaddr": "0x0", "image_size": 0x1a0000},
            {"type": "symbolic", "debug_id": "000000aa-0000-0000-0000-000000000000", "code_file": "shop",
             "image_addr": "0x200000000", "image_vmaddr": "0x400000", "image_size": 0x100000},
        ])
    );
}

/// Guarantees: a file's unnamed functions do not merge into one: addresses a page apart are different functions,
/// addresses on one page are the same. The name does not depend on how the process mapped the file, nor on the kind of
/// address that the profiler sends. An address outside of its mapping, or in the kernel, whose mapping has no range,
/// gets only the file's name.
#[test]
fn unnamed() {
    let named = |(start, end, offset), address| {
        let mapping = Some(("/opt/shop", LIBC.1, start, end, offset));
        let frames = frames(&[TestLocation { kind: "native", mapping, address, ..TestLocation::default() }]);
        frames[0]["function"].as_str().unwrap().to_owned()
    };
    let linked = (0x26000, 0x1a0000, 0x26000);
    assert_eq!(named(linked, 0x91000), "[shop]+0x91000");
    assert_eq!(named(linked, 0x91fff), "[shop]+0x91000");
    assert_eq!(named(linked, 0x92000), "[shop]+0x92000");
    for moved in [0x7f12_3456_7000, 0x55_5555_4000] {
        let memory = (moved + linked.0, moved + linked.1, linked.2);
        assert_eq!(named(memory, moved + 0x91234), "[shop]+0x91000");
    }
    assert_eq!(named((0x401000, 0x500000, 0x1000), 0x401234), "[shop]+0x401000");
    assert_eq!(named(linked, 0x1a0000), "[shop]");
    assert_eq!(named((0, 0, 0), 0x1234), "[shop]");
}

/// Guarantees: several mappings of one file are one image, an address outside of its file has no image, and images
/// without frames are omitted.
/// rule: profiles-sdk#v2-debug-meta, event-schema#images, event-schema#image-size, otep-0239#location-address
#[test]
fn images() {
    let text = TestLocation { kind: "native", mapping: Some(LIBC), address: 0x91000, ..TestLocation::default() };
    let more =
        TestLocation { mapping: Some((LIBC.0, LIBC.1, 0x1a0000, 0x1b0000, 0x1a0000)), address: 0x1a0010, ..text };
    let outside = TestLocation { address: 0xffff_ffff_ffff_ffff, ..text };
    let chunk = chunk(&[text, more, outside], Settings::default());
    assert_eq!(chunk["debug_meta"]["images"].as_array().unwrap().len(), 1);
    assert_eq!(chunk["debug_meta"]["images"][0]["image_size"], 0x1b0000);
    let address = |n: usize| chunk["profile"]["frames"][n].get("instruction_addr").cloned();
    assert_eq!((address(0), address(1), address(2)), (Some(json!("0x100091000")), Some(json!("0x1001a0010")), None));
}

/// Guarantees: a bytecode address is never written as an instruction address, with or without a mapping.
/// rule: sample-format-v2#frame-address
#[test]
fn bytecode_addresses() {
    for kind in ["cpython", "jvm", "v8js", "ruby", "php", "perl", "dotnet", "beam", "luajit", "unknown"] {
        let lines = &[("f", "", 0, 0)];
        let place = TestLocation { mapping: Some(LIBC), address: 0x91000, ..TestLocation::new(kind, lines) };
        let chunk = chunk(&[place], Settings::default());
        assert_eq!(chunk["profile"]["frames"][0].get("instruction_addr"), None, "{kind}");
        assert_eq!(chunk.get("debug_meta"), None, "{kind}");
    }
}

/// Guarantees: a location with several lines becomes several frames, the innermost first (opentelemetry-proto
/// `profiles.proto`, `Location.lines`).
/// rule: sample-format-v2#stack-order, profiles-sdk#stack-order, otep-0239#lines
#[test]
fn inlined_functions() {
    let lines = [("inner", "a.c", 1, 2), ("middle", "a.c", 3, 4), ("outer", "a.c", 5, 6)];
    let chunk = chunk(&[TestLocation::new("native", &lines)], Settings::default());
    assert_eq!(chunk["profile"]["stacks"], json!([[], [0, 1, 2]]));
    let frames = chunk["profile"]["frames"].as_array().unwrap();
    let functions: Vec<_> = frames.iter().map(|frame| frame["function"].as_str().unwrap()).collect();
    assert_eq!(functions, ["inner", "middle", "outer"]);
    assert_eq!((&frames[2]["lineno"], &frames[2]["colno"]), (&json!(5), &json!(6)));
}

/// Guarantees: lines and columns that do not fit into `u32` are omitted, because Relay rejects the whole chunk for
/// them.
/// rule: event-schema#frame-colno, event-schema#frame-lineno, otep-0239#line-number
#[test]
fn line_numbers() {
    for (line, expected) in [(0, None), (-1, None), (1 << 32, None), (i64::MAX, None), ((1 << 32) - 1, Some(u32::MAX))]
    {
        let lines = [("f", "a.c", line, line)];
        let frame = frames(&[TestLocation::new("native", &lines)])[0].clone();
        assert_eq!(frame.get("lineno").cloned(), expected.map(Value::from), "{line}");
        assert_eq!(frame.get("colno"), frame.get("lineno"));
    }
}

/// Guarantees: a frame has a platform only if it differs from the chunk's, since Sentry ignores `in_app` of frames with
/// a platform (getsentry/vroom `internal/frame/frame.go`, `SetInApp`). The chunk's platform is that of its interpreter.
/// rule: sample-format-v2#platform, sample-format-v2#collecting-frames, sample-format-v2#frame-platform
/// rule: profiles-sdk#v2-platform, event-schema#frame-platform
#[test]
fn mixed_stack() {
    let native = TestLocation { kind: "native", mapping: Some(LIBC), address: 0x91000, ..TestLocation::default() };
    let kernel = TestLocation::new("kernel", &[("read", "", 0, 0)]);
    let python = TestLocation::new("cpython", &[("view", "/app/views.py", 3, 0)]);
    let chunk = chunk(&[kernel, native, python, native], Settings::default());
    assert_eq!(chunk["platform"], "python");
    let frames = chunk["profile"]["frames"].as_array().unwrap();
    let platforms: Vec<_> = frames.iter().map(|frame| frame.get("platform").cloned()).collect();
    assert_eq!(platforms, [Some(json!("native")), Some(json!("native")), None]);
}

/// Guarantees: the operator's platform and in-app prefixes take precedence, and `include` over `exclude`.
/// rule: sample-format-v2#platform, event-schema#frame-in-app
#[test]
fn settings_win() {
    let places = [
        TestLocation::new("cpython", &[("a", "/app/a.py", 0, 0)]),
        TestLocation::new("cpython", &[("b", "/app/vendor/b.py", 0, 0)]),
        TestLocation { mapping: Some(LIBC), ..TestLocation::new("native", &[]) },
    ];
    let in_app = InApp {
        include: vec!["/app/vendor/".into(), "libc".into()],
        exclude: vec!["/app/".into()],
        ..InApp::default()
    };
    let settings = Settings { in_app, platform: Some("other".to_owned()), ..Settings::default() };
    let chunk = chunk(&places, settings);
    assert_eq!(chunk["platform"], "other");
    assert_eq!(own_code(&chunk), [false, true, true]);
}

/// Guarantees: the operator's prefixes also match the function, whether or not its source file, module or binary is
/// known; `include` takes precedence over `exclude`, and an empty prefix matches nothing.
#[test]
fn settings_see_functions() {
    let shop = Some(("shop", "aa", 0x1000, 0x2000, 0x1000));
    let native = |lines| TestLocation { mapping: shop, address: 0x1234, ..TestLocation::new("native", lines) };
    let places = [
        native(&[("boost::asio::run()", "/src/boost/asio.hpp", 12, 0)]),
        native(&[("boost::regex::match()", "", 0, 0)]),
        native(&[("boost::ours::f()", "/src/ours.hpp", 3, 0)]),
        native(&[("shop::boost::f()", "/src/shop.cpp", 3, 0)]),
        TestLocation::new("jvm", &[("com.shop.Cart.add", "Cart.java", 1, 0)]),
    ];
    let own = |include: &[&str], exclude: &[&str]| -> Vec<bool> {
        let [include, exclude] = [include, exclude].map(|list| list.iter().map(|&text| text.to_owned()).collect());
        let settings = Settings { in_app: InApp { include, exclude, ..InApp::default() }, ..Settings::default() };
        own_code(&chunk(&places, settings))
    };
    assert_eq!(own(&[], &[]), [true; 5]);
    assert_eq!(own(&[], &["boost::"]), [false, false, false, true, true]);
    assert_eq!(own(&["boost::ours::"], &["boost::"]), [false, false, true, true, true]);
    assert_eq!(own(&[""], &["", "add", "/src/shop"]), [true, true, true, false, false]);
}

/// Guarantees: code below a folder that the operator configured is own code even in a system folder, except in folders
/// of libraries.
#[test]
fn settings_name_roots() {
    let rows = [
        ("cpython", "f", "/usr/share/shop/cart.py", true),
        ("cpython", "f", "/usr/share/shop/venv/lib/python3.12/site-packages/flask/app.py", false),
        ("cpython", "f", "/usr/share/shopper/cart.py", false),
        ("native", "f", "/usr/src/shop/cart.c", true),
        ("native", "f", "/usr/src/other/cart.c", false),
        ("rust", "f", "/usr/share/shop/cart.rs", true),
    ];
    let roots = ["/usr/share/shop/", "/usr/src/shop"].map(str::to_owned).to_vec();
    for (kind, function, file, own) in rows {
        let in_app = InApp { source_roots: roots.clone(), ..InApp::default() };
        let lines = [(function, file, 12, 0)];
        let chunk = chunk(&[TestLocation::new(kind, &lines)], Settings { in_app, ..Settings::default() });
        assert_eq!(own_code(&chunk), [own], "{file}");
    }
}

/// Whether a native frame is own code, given its function, source file, binary, and the main executable.
fn own(function: &str, path: &str, package: &str, executable: &str) -> bool {
    let lines = [(function, path, 0, 0)];
    let location = TestLocation { mapping: Some((package, "", 0, 0, 0)), ..TestLocation::new("native", &lines) };
    let attributes = [("thread.id", 7.into()), ("process.executable.path", executable.into())];
    own_code(BatchDraft::new().on_cpu(20).sampled(&[location], &attributes).convert().chunk())[0]
}

/// Guarantees: the main executable is own code wherever it is, system libraries are not, and an interpreter never is.
/// rule: sample-format-v2#platform
#[test]
fn files_of_own_code() {
    let rows = [
        ("/usr/bin/shop", "/usr/bin/shop", true),
        ("shop", "/usr/bin/shop", true),
        ("/usr/lib/postgresql/16/bin/postgres", "/usr/lib/postgresql/16/bin/postgres", true),
        ("/usr/lib/postgresql/16/bin/postgres", "/usr/bin/shop", false),
        ("libshop.so", "/opt/libshop.so", true),
        ("/opt/shop/plugin.so", "/opt/shop/shop", true),
        ("/opt/shop/libssl.so.3", "/opt/shop/shop", false),
        ("/lib/x86_64-linux-gnu/libc.so.6", "/usr/bin/shop", false),
        ("/usr/lib/x86_64-linux-gnu/gconv/UTF-16.so", "/usr/bin/shop", false),
        ("/app/venv/lib/python3.12/site-packages/numpy/core/_multiarray.so", "/usr/bin/python3.12", false),
        ("/usr/bin/python3.12", "/usr/bin/python3.12", false),
        ("node", "/usr/local/bin/node", false),
        ("php-fpm8.2", "/usr/sbin/php-fpm8.2", false),
        ("/usr/bin/nodectl", "/usr/bin/nodectl", true),
        ("libjvm.so", "/usr/bin/java", false),
    ];
    for (package, executable, expected) in rows {
        assert_eq!(own("work", "", package, executable), expected, "{package} in {executable}");
    }
}

/// Guarantees: functions of a language's own library are not own code even in the main executable. They are recognised
/// by function and by source.
/// rule: sample-format-v2#platform
#[test]
fn functions_of_own_code() {
    let rows = [
        ("shop::total(int)", "/src/shop.cc", true),
        ("shop::total(int)", "/usr/src/app/shop.cc", true),
        ("shop::total(int)", "/usr/include/c++/12/bits/stl_algo.h", false),
        ("std::vector<int>::push_back(int&&)", "/src/shop.cc", false),
        ("_start", "", false),
        ("__libc_start_call_main", "", false),
        ("core::engine::run()", "/src/core/engine.cc", true),
        ("core::ptr::drop_in_place<shop::Cart>", "/rustc/abc/library/core/src/ptr/mod.rs", false),
        ("<alloc::vec::Vec<T> as core::clone::Clone>::clone", "/src/main.rs", false),
        ("serde::de::visit", "/home/ci/.cargo/registry/src/serde-1.0/src/de.rs", false),
        ("shop::cart::total", "/src/cart.rs", true),
    ];
    for (function, path, expected) in rows {
        assert_eq!(own(function, path, "shop", "/usr/bin/shop"), expected, "{function} in {path}");
    }
}

/// Guarantees: a function with only a system name is shown under it; a function with both is shown under its name.
/// rule: otep-0239#system-name
#[test]
fn system_names() {
    for (name, expected) in [("", "_ZN4shop4cart3addEv"), ("shop::cart::add", "shop::cart::add")] {
        let lines = [(name, "", 0, 0)];
        let location = TestLocation { system_name: "_ZN4shop4cart3addEv", ..TestLocation::new("", &lines) };
        assert_eq!(frames(&[location])[0]["function"], expected);
    }
}

/// Guarantees: frames that a pprof profile hides are omitted, and the number of observations stays the same; an invalid
/// pattern removes nothing and is counted.
/// rule: otep-0239#drop-frames
#[test]
fn frames_that_are_not_shown() {
    for (pattern, shown, not_applied) in [("m.*c", "work", 0), ("(", "grow", 1)] {
        let mut batch = BatchDraft::new().on_cpu(20);
        let attributes = batch.builder.attributes(&[("pprof.profile.drop_frames", pattern.into())]);
        batch.builder.open_profile().unwrap().attributes = attributes;
        let converted = batch.at(7, &["grow", "malloc", "work"], [0, 50, 100]).convert();
        assert_eq!(converted.text(), format!("7: {shown}@0 {shown}@50 {shown}@100 -@150"));
        assert_eq!(converted.report.notes.frame_patterns, not_applied);
        assert!(converted.report.losses.is_none());
    }
}
