use profbridge_wire::sentry::chunk::origin::CodeOrigin::{Interpreter, Kernel, Library, Own};

use super::*;

/// A frame: its name, its file (of source, or of machine code if it ends with none of a script), and its origin.
type FrameWithOrigin = (&'static str, &'static str, CodeOrigin);

/// The labels of a folded stack, both root first.
fn folded(frames: &[FrameWithOrigin], is_waiting: bool) -> Vec<String> {
    let mut stacks = Stacks::default();
    let mut node = Node::ROOT;
    for &(name, file, origin) in frames {
        let is_interpreted = file.ends_with(".py");
        let (source, module) = if is_interpreted { (file, "") } else { ("", file) };
        let function = StackFunction {
            file: source.into(),
            module: module.into(),
            origin,
            is_interpreted,
            ..StackFunction::placeholder(name)
        };
        let function = stacks.function(function).unwrap();
        node = stacks.child(node, function).unwrap();
    }
    let folded = stacks.fold(node, is_waiting);
    assert_eq!(stacks.fold(node, is_waiting), folded, "each time the same");
    stacks.path(folded).into_iter().map(|function| stacks.label_of(function).to_owned()).collect()
}

const START: FrameWithOrigin = ("_start", "python3.12", Interpreter);
const EVAL: FrameWithOrigin = ("_PyEval_EvalFrameDefault", "python3.12", Interpreter);
const UVICORN: FrameWithOrigin = ("run", "/venv/lib/python3.12/site-packages/uvicorn/main.py", Library);
const ASYNCIO: FrameWithOrigin = ("run_forever", "/usr/lib/python3.12/asyncio/base_events.py", Library);
const FASTAPI: FrameWithOrigin = ("app", "/venv/lib/python3.12/site-packages/fastapi/routing.py", Library);
const SHOP: FrameWithOrigin = ("shop", "/srv/shop.py", Own);
const LOGIN: FrameWithOrigin = ("login", "/srv/shop.py", Own);
const DUMPS: FrameWithOrigin = ("dumps", "/usr/lib/python3.12/json/__init__.py", Library);
const ENCODE: FrameWithOrigin = ("encode", "/usr/lib/python3.12/json/encoder.py", Library);
const READ: FrameWithOrigin = ("read", "libc.so.6", Library);
const DATABASE: FrameWithOrigin = ("[waiting for socket to 10.0.0.7:5432]", "", Library);
const POLL: FrameWithOrigin = ("epoll_wait", "libc.so.6", Library);

/// Guarantees: of an interpreted program's stack the own functions stay, with the libraries above them as one frame and
/// the entry of the library below; the interpreter, the C library and the kernel are not there.
#[test]
fn interpreted() {
    let pbkdf2: FrameWithOrigin = ("pbkdf2_hmac", "_hashlib.cpython-312-x86_64-linux-gnu.so", Library);
    let digest: FrameWithOrigin = ("PKCS5_PBKDF2_HMAC", "libcrypto.so.3", Library);
    let nameless: FrameWithOrigin = ("[libz.so.1]+0x1000", "libz.so.1", Library);
    let collect: FrameWithOrigin = ("gc_collect_main", "python3.12", Interpreter);
    for (expected, frames) in [
        (
            &["via fastapi, asyncio, uvicorn", "shop", "login"][..],
            &[START, EVAL, UVICORN, EVAL, ASYNCIO, FASTAPI, SHOP, EVAL, LOGIN, EVAL][..],
        ),
        (&["shop", "dumps (json)"], &[START, SHOP, DUMPS, ENCODE, EVAL]),
        (
            &["login", "pbkdf2_hmac → libcrypto"],
            &[LOGIN, EVAL, pbkdf2, digest, ("sha256_block", "libcrypto.so.3", Library)],
        ),
        (&["login", "libz"], &[LOGIN, EVAL, nameless]),
        (&["shop", "[garbage collector]"], &[SHOP, EVAL, collect, collect]),
        (&["shop", "via functools", "login"], &[SHOP, ("sorted", "/usr/lib/python3.12/functools.py", Library), LOGIN]),
        (&["login"], &[LOGIN, EVAL, ("memcpy", "libc.so.6", Library), ("page_fault", "", Kernel)]),
        (&["[no own code]", "run_forever (asyncio)"], &[START, EVAL, ASYNCIO, EVAL]),
        (&["[callers not known]", "login"], &[("[callers not known]", "", Library), LOGIN]),
    ] {
        let found = folded(frames, false);
        assert_eq!(found, expected, "{frames:?}");
    }
}

/// Guarantees: of a compiled program's stack the own functions stay, with short names; what starts it and what lies
/// between two of them is dropped, and below the last one the library's function is one frame.
#[test]
fn compiled() {
    let main: FrameWithOrigin = ("main", "shop", Own);
    let rank: FrameWithOrigin = ("void shop::Ranker<std::map<int, int> >::rank<int>(int)", "shop", Own);
    let sort: FrameWithOrigin = ("void std::sort<int*>(int*, int*)", "shop", Library);
    let start: FrameWithOrigin = ("__libc_start_main", "libc.so.6", Library);
    for (expected, frames) in [
        (&["main", "shop::Ranker::rank"][..], &[start, main, sort, rank, ("memcpy", "libc.so.6", Library)][..]),
        (&["main", "std::sort (std)"], &[start, main, sort, sort]),
        (&["[no own code]", "start_thread"], &[("start_thread", "libc.so.6", Library)]),
        (&["[processor time not sampled]"], &[("[processor time not sampled]", "", Library)]),
    ] {
        assert_eq!(folded(frames, false), expected, "{frames:?}");
    }
}

/// Guarantees: at the end of a waiting thread's stack stands what it waits for, also if nothing else is known.
#[test]
fn waiting() {
    for (expected, frames) in [
        (&["shop", "[waiting for events]"][..], &[SHOP, EVAL, POLL][..]),
        (&["[no own code]", "run_forever (asyncio)", "[waiting for events]"], &[START, ASYNCIO, POLL]),
        (&["login", "[waiting for a processor]"], &[LOGIN, ("[waiting for a processor]", "", Library)]),
        (&["[waiting for events]"], &[POLL]),
        (&["login", "[waiting for socket to 10.0.0.7:5432]"], &[LOGIN, READ, DATABASE]),
    ] {
        assert_eq!(folded(frames, true), expected, "{frames:?}");
    }
}
