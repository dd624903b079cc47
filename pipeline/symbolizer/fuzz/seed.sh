#!/bin/sh
# Makes seeds for the fuzz targets in `corpus/` out of the tests' programs. Needs gcc, objcopy, xz and python3.
set -eu
cd "$(dirname "$0")"
mkdir -p corpus/elf corpus/dwarf corpus/packed corpus/stripped corpus/perf_map
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
for version in 4 5; do
    gcc -O2 "-gdwarf-$version" ../tests/programs/inlined.c -o "$work/program$version"
    cp "$work/program$version" "corpus/elf/program$version"
    objcopy --only-keep-debug --strip-debug "$work/program$version" "$work/mini"
    xz -f "$work/mini"
    python3 - "$work" "$version" <<'PYTHON'
import subprocess, sys
work, version = sys.argv[1:]
program = f"{work}/program{version}"
out = b""
for name in ("info", "abbrev", "line", "line_str", "str", "str_offsets", "addr", "ranges", "rnglists"):
    path = f"{work}/section"
    open(path, "wb").close()
    subprocess.run(["objcopy", "--dump-section", f".debug_{name}={path}", program, "/dev/null"], stderr=subprocess.DEVNULL)
    data = open(path, "rb").read()[:65535]
    out += len(data).to_bytes(2, "little") + data
open(f"corpus/dwarf/program{version}", "wb").write(out)
out = b""
for name in (".plt", ".rela.plt", ".dynsym", ".dynstr"):
    path = f"{work}/section"
    open(path, "wb").close()
    subprocess.run(["objcopy", "--dump-section", f"{name}={path}", program, "/dev/null"], stderr=subprocess.DEVNULL)
    data = open(path, "rb").read()[:65535]
    out += len(data).to_bytes(2, "little") + data
mini = open(f"{work}/mini.xz", "rb").read()[:65535]
open(f"corpus/packed/program{version}", "wb").write(out + len(mini).to_bytes(2, "little") + mini)
PYTHON
done
# Each form of Go's table, unchanged, and an unwind table.
objcopy --dump-section .eh_frame="$work/unwind" "$work/program5" /dev/null
for form in 0 1 2 3; do
    { printf "\\$form\\0"; cat "$work/unwind"; } > "corpus/stripped/form$form"
done
printf '10 8 first\n14 2 second function\n0x20 10 third\n18 40 over all\n' > corpus/perf_map/lines
