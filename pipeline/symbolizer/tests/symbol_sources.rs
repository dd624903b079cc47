//! Tests of names from sources other than `.symtab` and plain DWARF: stubs, assembler code, and compressed symbols.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "helpers of tests")]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use common::{One, build, frames, has, nm, object_at, run, settings, source};
use profbridge_symbolizer::{NamedBy, Settings, SymbolAnswer};

/// The stubs that `objdump` finds, by address.
fn stubs(program: &Path) -> BTreeMap<u64, String> {
    let text = run("objdump", [Path::new("-d"), program]);
    let line = |line: &str| {
        let (address, name) = line.strip_suffix(">:")?.split_once(" <")?;
        Some((u64::from_str_radix(address, 16).ok()?, name.to_owned()))
    };
    text.lines().filter_map(line).filter(|(_, name)| name.ends_with("@plt")).collect()
}

/// Builds `calls.c`, with its callees in a library or linked into the same file.
fn calls(folder: &Path, options: &[&str]) -> PathBuf {
    let library = build("gcc", "called.c", &folder.join("libcalled.so"), &["-shared", "-fPIC"]);
    let called = if options.contains(&"-static") { source("called.c") } else { library };
    let program = folder.join("program");
    let arguments = options.iter().map(PathBuf::from).chain([source("calls.c"), called, "-o".into(), program.clone()]);
    run("gcc", arguments);
    program
}

/// Guarantees: a stub is named after its target, as by `objdump`, in all linker layouts and also in stripped programs.
/// All addresses of the stub have the name, and the entry that starts the dynamic linker is not named like a stub.
#[test]
fn stubs_are_named() {
    if !has("gcc") || !has("objdump") || !has("strip") || std::env::consts::ARCH != "x86_64" {
        return;
    }
    let layouts: [&[&str]; 5] = [
        &["-O1"],
        &["-O1", "-no-pie", "-Wl,-z,lazy"],
        &["-O1", "-fcf-protection=full", "-Wl,-z,ibtplt"],
        &["-O1", "-Wl,-z,now"],
        &["-O1", "-fuse-ld=gold"],
    ];
    for options in layouts {
        let folder = tempfile::tempdir().unwrap();
        let program = calls(folder.path(), options);
        for strip in [false, true] {
            if strip {
                run("strip", [&program]);
            }
            let stubs = stubs(&program);
            assert!(
                ["first@plt", "second@plt"].iter().all(|name| stubs.values().any(|stub| stub == name)),
                "{stubs:?}"
            );
            let one = One::new(settings(), object_at(&program));
            // `objdump` also names the lazy entries that belong to `.plt.sec` and run once.
            let secondary = run("readelf", [Path::new("-SW"), &program]).contains(".plt.sec");
            for (&address, name) in &stubs {
                let found = one.functions(&[address, address + 4]);
                let name = name.split('@').next().map(|callee| format!("{callee}@plt"));
                if !secondary || found[0].is_some() {
                    assert_eq!(found, [name.clone(), name], "{options:?} {strip} {address:x}");
                }
            }
            if secondary {
                let named = one.functions(&stubs.keys().copied().collect::<Vec<_>>());
                assert_eq!(named.iter().filter(|name| name.as_deref() == Some("second@plt")).count(), 1);
            }
        }
    }
}

/// Guarantees: the stubs of a static program are named after the indirect functions that they call.
#[test]
fn stubs_of_indirect_functions() {
    if !has("gcc") || !has("readelf") || std::env::consts::ARCH != "x86_64" {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = calls(folder.path(), &["-O0", "-static"]);
    // `objdump` has no names for these stubs.
    let sections = run("readelf", [Path::new("-SW"), &program]);
    let plt = sections.lines().find_map(|line| line.split_once(" .plt ")).unwrap().1;
    let mut numbers = plt.split_ascii_whitespace().skip(1).map(|number| u64::from_str_radix(number, 16).unwrap());
    let (start, size) = (numbers.next().unwrap(), numbers.nth(1).unwrap());
    let stubs: Vec<u64> = (start..start + size).step_by(8).collect();
    let named = One::new(settings(), object_at(&program)).functions(&stubs);
    let names: Vec<_> = named.iter().flatten().map(String::as_str).collect();
    assert!(["memcpy@plt", "memset@plt", "strlen@plt"].iter().all(|name| names.contains(name)), "{names:?}");
}

/// Guarantees: among aliases of an address, the public name is shown, even if only another alias has a type and a size,
/// and whether or not debug information has one of them. Functions without type and size are found.
#[test]
fn names_of_assembler() {
    if !has("gcc") || !has("nm") || std::env::consts::ARCH != "x86_64" {
        return;
    }
    for options in [&["-c"][..], &["-c", "-g"]] {
        let folder = tempfile::tempdir().unwrap();
        let object = build("gcc", "public_names.s", &folder.path().join("object.o"), options);
        let program = folder.path().join("program");
        run("gcc", ["-shared".as_ref(), "-o".as_ref(), program.as_os_str(), object.as_os_str()]);
        let one = One::new(settings(), object_at(&program));
        let symbols = run("nm", [&program]);
        for name in ["untyped", "public_name", "bare_public"] {
            let address = symbols.lines().find_map(|line| line.strip_suffix(&format!(" T {name}"))).unwrap();
            let address = u64::from_str_radix(address, 16).unwrap();
            let found = one.functions(&[address, address + 3]);
            assert_eq!(found, [Some(name.to_owned()), Some(name.to_owned())], "{options:?}");
        }
    }
}

/// Guarantees: debug sections compressed by GNU's older tools are read.
#[test]
fn sections_of_older_compression() {
    if !has("gcc") || !has("objcopy") || !has("readelf") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let whole = build("gcc", "inlined.c", &folder.path().join("whole"), &["-O2", "-g"]);
    let compressed = folder.path().join("compressed");
    run("objcopy", [Path::new("--compress-debug-sections=zlib-gnu"), &whole, &compressed]);
    assert!(run("readelf", [Path::new("-SW"), &compressed]).contains(".zdebug_info"));
    let addresses: Vec<u64> = nm(&whole, &[]).iter().filter(|symbol| symbol.size > 0).map(|one| one.address).collect();
    let ask = |program: &Path| One::new(settings(), object_at(program)).answers(&addresses);
    let answers = ask(&compressed);
    assert_eq!(answers, ask(&whole));
    assert!(answers.iter().flat_map(frames).any(|frame| frame.line > 0));
}

/// Guarantees: a stripped program with its symbols in `.gnu_debugdata` has the names of its local functions.
#[test]
fn mini_debug_info() {
    if ["gcc", "objcopy", "nm", "xz"].iter().any(|tool| !has(tool)) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let whole = build("gcc", "inlined.c", &at("whole"), &["-O2"]);
    run("objcopy", [Path::new("--only-keep-debug"), &whole, &at("mini")]);
    run("xz", [Path::new("-k"), &at("mini")]);
    let option = format!(".gnu_debugdata={}", at("mini.xz").display());
    run("objcopy", [Path::new("--strip-all"), Path::new("--add-section"), Path::new(&option), &whole, &at("packed")]);
    run("objcopy", [Path::new("--strip-all"), &whole, &at("stripped")]);
    let outer = nm(&whole, &[]).iter().find(|symbol| symbol.name == "outer").unwrap().address;
    let ask = |name: &str| One::new(settings(), object_at(&at(name))).answer(outer);
    let packed = ask("packed");
    assert_eq!((&*frames(&packed)[0].function, packed.symbols().unwrap().named_by), ("outer", NamedBy::Symbols));
    assert_eq!(ask("stripped").symbols().unwrap().named_by, NamedBy::UnwindTable);
}

/// Guarantees: inlined lambdas without a symbol are distinguished by their source position, even two in one line.
/// Methods of named classes are distinguished by their class.
#[test]
fn lambdas() {
    if !has("g++") || !has("nm") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let program = build("g++", "lambdas.cc", &folder.path().join("program"), &["-O2", version]);
        let symbols = nm(&program, &["-C"]);
        let several = symbols.iter().find(|symbol| symbol.name == "several(int)").unwrap();
        let addresses: Vec<u64> = (several.address..several.address + several.size).collect();
        let answers = One::new(settings(), object_at(&program)).answers(&addresses);
        let mut innermost: Vec<_> = answers.iter().map(|answer| &*frames(answer)[0].function).collect();
        innermost.sort_unstable();
        innermost.dedup();
        let of_lambdas: Vec<_> = innermost.iter().filter(|name| name.ends_with("::operator()")).collect();
        for line in ["{lambda at lambdas.cc:10:", "{lambda at lambdas.cc:11:", "{lambda at lambdas.cc:17:"] {
            let expected = if line.contains(":11:") { 2 } else { 1 };
            let found = of_lambdas.iter().filter(|name| name.starts_with(line)).count();
            // All code of the last function was inlined into it.
            assert!(found == expected || line.contains(":17:"), "{version} {line} {innermost:?}");
        }
        assert!(innermost.contains(&"Local::run"), "{innermost:?}");
        assert!(answers.iter().all(|answer| &*frames(answer).last().unwrap().function == "several(int)"));
    }
}

/// Every second address of a program's functions, with its answer.
fn everything(program: &Path, settings: Settings) -> Vec<(u64, SymbolAnswer)> {
    let symbols = nm(program, &[]);
    let addresses: Vec<u64> =
        symbols.iter().flat_map(|symbol| (symbol.address..symbol.address + symbol.size).step_by(2)).collect();
    let answers = One::new(settings, object_at(program)).answers(&addresses);
    addresses.into_iter().zip(answers).collect()
}

fn has_lines(answers: &[(u64, SymbolAnswer)]) -> bool {
    answers.iter().flat_map(|(_, answer)| frames(answer)).filter(|frame| frame.line > 0).count() > 50
}

/// Guarantees: split units, separate or packed, give the same names, inlined functions, files and lines as units in the
/// program. Without the split files, lines and symbols are still found.
#[test]
fn split_units() {
    if ["g++", "nm", "dwp"].iter().any(|tool| !has(tool)) {
        return;
    }
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let link = |options: &[&str], out: &str| {
            for part in ["shapes", "lambdas"] {
                let rename = if part == "lambdas" { "-Dmain=other_main" } else { "-DNOTHING" };
                let options = [options, &["-c", "-O2", version, rename]].concat();
                build("g++", &format!("{part}.cc"), &at(&format!("{part}.o")), &options);
            }
            run("g++", [at("shapes.o"), at("lambdas.o"), "-o".into(), at(out)]);
        };
        link(&["-g"], "whole");
        link(&["-g", "-gsplit-dwarf"], "split");
        let expected = everything(&at("whole"), settings());
        assert!(has_lines(&expected));
        assert_eq!(everything(&at("split"), settings()), expected, "{version}");

        // GNU's tool fails on some DWARF 5 files, LLVM's does not.
        if version == "-gdwarf-5" {
            continue;
        }
        run("dwp", [Path::new("-e"), &at("split"), Path::new("-o"), &at("split.dwp")]);
        for part in ["shapes.dwo", "lambdas.dwo"] {
            fs::rename(at(part), at(&format!("{part}.away"))).unwrap();
        }
        assert_eq!(everything(&at("split"), settings()), expected, "{version}");

        fs::remove_file(at("split.dwp")).unwrap();
        let left = everything(&at("split"), settings());
        assert!(has_lines(&left));
        // A unit with another id than the skeleton's is not used.
        fs::rename(at("shapes.dwo.away"), at("lambdas.dwo")).unwrap();
        assert_eq!(everything(&at("split"), settings()), left);
    }
}

/// Guarantees: the shared file to which dwz moved data is found by its build id and by its path in a debug folder.
/// Another file in its place is refused, and a missing one is no error.
#[test]
fn shared_debug_information() {
    if ["g++", "nm", "dwz", "readelf"].iter().any(|tool| !has(tool)) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let mut options = vec!["-O2", "-g", "-Wl,--build-id=sha1"];
    build("g++", "lambdas.cc", &at("one"), &options);
    options.push("-DOTHER");
    build("g++", "lambdas.cc", &at("two"), &options);
    let expected = everything(&at("one"), settings());
    assert!(has_lines(&expected));
    run(
        "dwz",
        ["-m", "shared", "-M", "../../.dwz/shared", "one", "two"].map(|argument| match argument {
            "shared" | "one" | "two" => at(argument),
            other => PathBuf::from(other),
        }),
    );
    assert!(run("readelf", [Path::new("-SW"), &at("one")]).contains(".gnu_debugaltlink"));
    let missing = everything(&at("one"), settings());
    assert_ne!(missing, expected);

    let debug = folder.path().join("debug");
    let with_folder = Settings { debug_folders: vec![debug.clone()], ..settings() };
    fs::create_dir_all(debug.join(".dwz")).unwrap();
    fs::copy(at("two"), debug.join(".dwz/shared")).unwrap();
    assert_eq!(everything(&at("one"), with_folder.clone()), missing);
    fs::copy(at("shared"), debug.join(".dwz/shared")).unwrap();
    assert_eq!(everything(&at("one"), with_folder.clone()), expected);

    fs::remove_file(debug.join(".dwz/shared")).unwrap();
    let notes = run("readelf", [Path::new("-n"), &at("shared")]);
    let id = notes.split("Build ID: ").nth(1).unwrap().lines().next().unwrap();
    fs::create_dir_all(debug.join(".build-id").join(&id[..2])).unwrap();
    fs::copy(at("shared"), debug.join(".build-id").join(&id[..2]).join(format!("{}.debug", &id[2..]))).unwrap();
    assert_eq!(everything(&at("one"), with_folder), expected);
}
