//! Address spaces of simulated processes, and of this one.

use std::fs::File;
use std::os::unix::fs::MetadataExt;

use super::fake::FakeProcess;
use super::load::MAX_MAPPINGS;
use super::*;
use crate::elf::ObjectCache;

/// The bytes of an ELF file with text at 0x1000 and no other parts.
fn elf(machine: u8) -> Vec<u8> {
    let mut bytes = vec![0u8; 0x3000];
    bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    bytes[16..20].copy_from_slice(&[3, 0, machine, 0]);
    bytes[32] = 64;
    bytes[54..58].copy_from_slice(&[56, 0, 1, 0]);
    let segment: Vec<u8> = [0x5_0000_0001u64, 0x1000, 0x1000, 0x1000, 0x2000, 0x2000, 0x1000]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    bytes[64..64 + 56].copy_from_slice(&segment);
    bytes
}

fn file(bytes: &[u8]) -> File {
    let file = tempfile::tempfile().expect("a file");
    std::os::unix::fs::FileExt::write_all_at(&file, bytes, 0).expect("it is written");
    file
}

/// A process with these maps, and files of this kind at these paths.
fn process(maps: &str, paths: &[&'static str]) -> FakeProcess {
    let files = paths.iter().map(|path| (*path, file(&elf(62)))).collect();
    FakeProcess { maps: maps.into(), files, ..FakeProcess::default() }
}

/// Guarantees: addresses are found in their modules and nowhere else, and translated to addresses of their files.
#[test]
fn finds_modules() {
    let maps = "\
10000-11000 r--p 00000000 fe:01 7 /lib/a
11000-13000 r-xp 00001000 fe:01 7 /lib/a
20000-21000 rwxp 00000000 00:00 0
21000-22000 rwxp 00000000 00:00 0
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]
";
    let space = process(maps, &["/lib/a"]).load(None);
    assert_eq!(space.faults(), []);
    assert_eq!(space.locate(0x11234), Location::Native { mapping: Some(0), address: 0x1234 });
    assert_eq!(space.locate(0x21234), Location::Native { mapping: None, address: 0x21234 });
    assert!(space.find(0x10fff).is_none() && space.find(0x13000).is_none() && space.find(u64::MAX).is_none());
    let kinds: Vec<_> = space.modules().iter().map(|module| module.kind).collect();
    assert_eq!(kinds, [ModuleKind::File, ModuleKind::Generated, ModuleKind::Vsyscall]);
    assert_eq!(space.modules()[1].end, 0x22000, "memory without a file is one piece");
    let mapping = &space.mappings()[0];
    assert_eq!((mapping.start, mapping.end, mapping.file_offset), (0x1000, 0x3000, 0x1000));
    assert!(mapping.htlhash.is_some() && mapping.file.is_some() && !mapping.main);
}

/// Guarantees: a file mapped at two biases has two indices, and the part mapped twice is marked as V8's built-in
/// functions, at both places; a file mapped in two pieces at one bias has one index and no mark.
#[test]
fn mapped_twice() {
    let maps = "\
11000-12000 r-xp 00001000 fe:01 7 /bin/node
12000-13000 r-xp 00002000 fe:01 7 /bin/node
52000-53000 r-xp 00002000 fe:01 7 /bin/node
61000-62000 r-xp 00001000 fe:01 8 /lib/b
62000-63000 r-xp 00002000 fe:01 8 /lib/b
";
    let executable = Some(FileId { device: 0xfe01, inode: 7 });
    let space = FakeProcess { executable, ..process(maps, &["/bin/node", "/lib/b"]) }.load(None);
    let indices: Vec<_> = space.modules().iter().map(|module| module.mapping).collect();
    assert_eq!(indices, [Some(0), Some(0), Some(1), Some(2), Some(2)]);
    let marked: Vec<_> = space.modules().iter().map(|module| module.builtins.clone()).collect();
    assert_eq!(marked, [0x2000..0x3000, 0x2000..0x3000, 0x2000..0x3000, 0..0, 0..0]);
    assert_eq!(space.mappings().iter().map(|mapping| mapping.main).collect::<Vec<_>>(), [true, true, false]);
    assert_eq!(space.locate(0x52010).address(), space.locate(0x12010).address());
}

/// Guarantees: indices stay the same when files are unmapped, mapped again at the same or other addresses, or replaced
/// at their path.
#[test]
fn indices_are_kept() {
    let mut cache = ObjectCache::default();
    let line = |start: u64, inode: u64| format!("{start:x}-{:x} r-xp 00001000 fe:01 {inode} /lib/a\n", start + 0x2000);
    let mut fake = process(&line(0x11000, 7), &["/lib/a"]);
    let mut load = |fake: &FakeProcess, before: Option<&AddressSpace>| {
        AddressSpace::load(fake, before, &mut cache).expect("it loads")
    };
    let index = |space: &AddressSpace, address| space.find(address).and_then(|module| module.mapping);
    let first = load(&fake, None);
    fake.maps = line(0x21000, 7);
    let moved = load(&fake, Some(&first));
    assert_eq!((index(&moved, 0x11000), index(&moved, 0x21000)), (None, Some(1)));
    fake.maps = line(0x11000, 7);
    let back = load(&fake, Some(&moved));
    assert_eq!(index(&back, 0x11000), Some(0));
    fake.files = vec![("/lib/a", file(&elf(62)))];
    let replaced = load(&fake, Some(&back));
    assert_eq!(index(&replaced, 0x11000), Some(2));
    assert_eq!(replaced.mappings().len(), 3);
    assert_eq!(replaced.mappings()[0].start, first.mappings()[0].start);
}

/// Guarantees: a file that cannot be opened is read once from its mapping, and keeps its index.
#[test]
fn from_memory() {
    let maps = "10000-11000 r--p 00000000 fe:01 7 /gone (deleted)\n11000-13000 r-xp 00001000 fe:01 7 /gone (deleted)\n";
    let fake = FakeProcess { maps: maps.into(), memory: vec![(0x10000, elf(62))], ..FakeProcess::default() };
    let space = fake.load(None);
    assert_eq!(space.faults(), []);
    assert_eq!(space.locate(0x11010), Location::Native { mapping: Some(0), address: 0x1010 });
    let mapping = &space.mappings()[0];
    assert_eq!((mapping.path.as_str(), mapping.file.is_none(), mapping.htlhash), ("/gone", true, None));
    let again = fake.load(Some(&space));
    assert_eq!(again.mappings().len(), 1);
    assert_eq!(again.find(0x11010).and_then(|module| module.mapping), Some(0));
}

/// The bytes of an ELF file like that of [`elf`], with text that does not repeat.
fn elf_with_text() -> Vec<u8> {
    let mut bytes = elf(62);
    let mut number = 7u32;
    for byte in &mut bytes[0x1000..] {
        number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        *byte = (number >> 24) as u8;
    }
    bytes
}

/// Guarantees: memory without a file next to the segments of a file is that file's text if most of its bytes are
/// equal; otherwise it is generated code, and so is memory that cannot be read.
#[test]
fn moved_text() {
    let maps = "\
10000-11000 r--p 00000000 fe:01 7 /bin/a
11000-12000 r-xp 00000000 00:00 0
12000-13000 r-xp 00002000 fe:01 7 /bin/a
21000-22000 r-xp 00000000 00:00 0
";
    let bytes = elf_with_text();
    let text = bytes[0x1000..0x2000].to_vec();
    let changed = |share: usize| {
        let mut text = text.clone();
        text[..0x1000 / 16 * share].fill(0xcc);
        text
    };
    let at = |place: u64, text: Vec<u8>| vec![(place, text)];
    let cases = [
        (at(0x11000, text.clone()), true),
        (at(0x11000, changed(3)), true),
        (at(0x11000, changed(8)), false),
        (at(0x11000, text[1..].to_vec()), false),
        (at(0x11000, vec![0; 0x1000]), false),
        (at(0x21000, text.clone()), false),
        (Vec::new(), false),
    ];
    for (number, (memory, is_moved)) in cases.into_iter().enumerate() {
        let fake =
            FakeProcess { maps: maps.into(), files: vec![("/bin/a", file(&bytes))], memory, ..FakeProcess::default() };
        let space = fake.load(None);
        let mapping = is_moved.then_some(0);
        let expected = Location::Native { mapping, address: if is_moved { 0x1234 } else { 0x11234 } };
        assert_eq!(space.locate(0x11234), expected, "{number}");
        assert_eq!(space.locate(0x12010), Location::Native { mapping: Some(0), address: 0x2010 }, "{number}");
        assert_eq!((space.mappings().len(), space.mappings()[0].path.as_str()), (1, "/bin/a"), "{number}");
        assert!(space.locate(0x21010).is_generated() && space.faults().is_empty(), "{number}");
    }
}

/// Guarantees: a mapping known only from a kernel record replaces the mapping that is at its addresses now, if its file
/// can still be opened. Its code is never read from memory, which holds other data.
#[test]
fn gone_mappings() {
    let maps = "10000-11000 r--p 00000000 fe:01 7 /lib/a\n11000-13000 r-xp 00001000 fe:01 7 /lib/a\n";
    let record = |path: &str, inode, start, end| MappedAt {
        at: std::time::Instant::now(),
        entry: MapsEntry {
            start,
            end,
            offset: 0x1000,
            file: FileId { device: 0xfe01, inode },
            path: path.into(),
            deleted: false,
        },
        replaces: true,
    };
    let fake = FakeProcess { memory: vec![(0x10000, elf(62))], ..process(maps, &["/lib/a", "/lib/b"]) };
    let load = |before: Option<&AddressSpace>, records: &[MappedAt]| {
        AddressSpace::load_with(&fake, before, &mut ObjectCache::default(), records).expect("it loads")
    };
    let now = load(None, &[]);
    let known = load(Some(&now), &[record("/lib/a", 7, 0x11000, 0x12000)]);
    assert_eq!((known.mappings().len(), known.modules().len()), (2, 1), "as it is by now");
    let before = load(None, &[record("/lib/b", 8, 0x11000, 0x12000)]);
    let path = |space: &AddressSpace, address| {
        space.mappings()[space.locate(address).mapping().expect("it is in a file") as usize].path.clone()
    };
    assert_eq!((path(&before, 0x11010), path(&before, 0x12010)), ("/lib/b".into(), "/lib/a".into()));
    let gone = load(None, &[record("/gone", 9, 0x11000, 0x12000)]);
    assert_eq!(gone.find(0x11010).map(|module| module.kind), Some(ModuleKind::Unusable));
    assert_eq!(path(&gone, 0x12010), "/lib/a");
}

/// Guarantees: an executable for another machine makes loading the process fail, a library for another machine is a
/// fault, and files that are not ELF files are code without a file.
#[test]
fn other_files() {
    let maps = "11000-12000 r-xp 00001000 fe:01 7 /bin/arm\n21000-22000 r-xp 00001000 fe:01 8 /memfd:code\n";
    let files = || vec![("/bin/arm", file(&elf(183))), ("/memfd:code", file(b"\x55\x48\x89\xe5"))];
    let fake = FakeProcess { maps: maps.into(), files: files(), ..FakeProcess::default() };
    let space = fake.load(None);
    assert_eq!(space.faults().len(), 1);
    assert_eq!(space.locate(0x21010), Location::Native { mapping: None, address: 0x21010 });
    let fake = FakeProcess { executable: Some(FileId { device: 0xfe01, inode: 7 }), ..fake };
    let refused = AddressSpace::load(&fake, None, &mut ObjectCache::default()).expect_err("it is refused");
    assert_eq!(refused.to_string(), "the executable /bin/arm is 64-bit ARM, only 64-bit x86-64 can be unwound");
}

/// Guarantees: a file that was replaced, added, removed or moved is noticed; memory without a file, changes of memory
/// without a file and of data, the deletion of a file, and the end of the process are not; a process that is gone
/// cannot be loaded.
#[test]
fn outdated() {
    let text = "11000-12000 r-xp 00001000 fe:01 7 /lib/a\n20000-21000 rwxp 00000000 00:00 0\n";
    let mut fake = process(text, &["/lib/a"]);
    let space = fake.load(None);
    let mut now = |text: &str| {
        fake.maps = text.into();
        space.is_outdated(&fake).unwrap()
    };
    assert!(!now(text));
    assert!(!now(""));
    assert!(!now("11000-12000 r-xp 00001000 fe:01 7 /lib/a (deleted)\n12000-13000 rw-p 00000000 fe:01 9 /data\n"));
    assert!(now("11000-12000 r-xp 00001000 fe:01 8 /lib/b\n"));
    assert!(now("11000-12000 r-xp 00001000 fe:01 7 /lib/b\n"));
    assert!(now("11000-12000 r-xp 00000000 fe:01 7 /lib/a\n"));
    assert!(now("31000-32000 r-xp 00001000 fe:01 7 /lib/a\n"));
    assert!(now("11000-12000 r-xp 00001000 fe:01 7 /lib/a\n31000-32000 r-xp 00001000 fe:01 8 /lib/b\n"));
    assert!(now("20000-21000 rwxp 00000000 00:00 0\n"));
    let gone = AddressSpace::load(&process("", &[]), None, &mut ObjectCache::default());
    assert!(matches!(gone, Err(LoadError::Gone)));
}

/// Guarantees: when the memory for tables is used up, further files are left out and reported, and the others stay.
#[test]
fn attack_memory() {
    let maps = "11000-12000 r-xp 00001000 fe:01 7 /lib/a\n21000-22000 r-xp 00001000 fe:01 8 /lib/b\n";
    let fake = process(maps, &["/lib/a", "/lib/b"]);
    let each = crate::elf::ElfObject::read(elf(62).as_slice()).expect("it is right").memory();
    let space = AddressSpace::load(&fake, None, &mut ObjectCache::new(2 * each - 1)).expect("it loads");
    assert_eq!(space.mappings().len(), 1);
    assert_eq!(space.modules()[1].kind, ModuleKind::Unusable);
    assert_eq!(
        space.faults(),
        [LoadFault { path: "/lib/b".into(), reason: "the memory for unwind tables is used up".into() }]
    );
}

/// Guarantees: a process that moves its mappings forever gets no more than [`MAX_MAPPINGS`] indices, and its code can
/// still be located.
#[test]
fn attack_indices() {
    let mut cache = ObjectCache::default();
    let mut fake = process("", &["/lib/a"]);
    let mut space = None;
    for round in 0..3u64 {
        fake.maps = (0..30_000u64)
            .map(|at| (1 + round * 30_000 + at) << 16)
            .map(|start| format!("{start:x}-{:x} r-xp 00001000 fe:01 7 /lib/a\n", start + 0x1000))
            .collect();
        space = Some(AddressSpace::load(&fake, space.as_ref(), &mut cache).expect("it loads"));
    }
    let space = space.expect("it was loaded");
    assert_eq!((space.mappings().len(), space.modules().len(), space.faults().len()), (MAX_MAPPINGS, 30_000, 1));
    assert_eq!(space.modules().last().and_then(|module| module.mapping), None);
}

/// Guarantees: this process, read through `/proc`, has its executable as the main one, its C library and the vDSO, and
/// the file of each is exactly the mapped one.
#[test]
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn this_process() {
    let files = crate::process_files::ProcessFiles::open(std::process::id()).expect("this process can be opened");
    let space = AddressSpace::load(&files, None, &mut ObjectCache::default()).expect("it loads");
    let here = this_process as *const () as u64;
    let mapping = space.locate(here).mapping().expect("this code is in a file");
    let main = &space.mappings()[mapping as usize];
    assert!(main.main);
    let found = main.file.as_ref().expect("it is open").metadata().expect("it is there");
    let known = std::env::current_exe().and_then(std::fs::metadata).expect("it is there");
    assert_eq!((found.dev(), found.ino()), (known.dev(), known.ino()));
    assert!(space.mappings().iter().any(|mapping| mapping.path.contains("libc.so") && mapping.build_id.is_some()));
    let vdso = space.mappings().iter().find(|mapping| mapping.path == "[vdso]").expect("there is a vDSO");
    assert!(vdso.build_id.is_some() && vdso.file.is_none());
    assert!(
        space.modules().iter().filter(|module| module.kind == ModuleKind::File).all(|module| module.object.is_some())
    );
    assert_eq!(space.faults(), []);
}
