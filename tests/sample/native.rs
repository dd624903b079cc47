//! Names of native code that is in no symbol table of the program.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use super::{CollapsedStacks, alone, stops};
use crate::process::{command, finished, untested};

/// Runs for as many rounds as normally take about a second, and longer on a busy machine.
const HEAD: &str = "
#include <time.h>
static double now(void) { struct timespec t; clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); return t.tv_sec + t.tv_nsec * 1e-9; }
";

/// Builds a program in a folder. `None` if there is no compiler for it.
fn build(folder: &Path, compiler: &str, file: &str, source: &str, options: &[&str]) -> Option<()> {
    fs::write(folder.join(file), format!("{HEAD}{source}")).unwrap();
    match Command::new(compiler).current_dir(folder).arg(file).args(options).status() {
        Ok(status) => assert!(status.success()),
        Err(_) => {
            untested(&format!("there is no `{compiler}`"));
            return None;
        }
    }
    Some(())
}

/// Samples `./program` from start to end, with environment variables.
fn sample(folder: &Path, variables: &[(&str, &str)]) -> CollapsedStacks {
    let arguments = [&["sample", "-o", "out.folded"], stops(), &["--", "./program"]].concat();
    let alone = alone();
    let finished = finished(command(folder, &arguments).envs(variables.iter().copied()));
    drop(alone);
    assert!(finished.status.success(), "{}", finished.stderr);
    CollapsedStacks::read(&folder.join("out.folded")).under("[running]")
}

/// Guarantees: a stripped program gets names from the debug file on a server configured in the environment; if the
/// server never answers, the run still ends.
#[test]
fn symbols_of_a_server() {
    let folder = tempfile::tempdir().unwrap();
    let source = "static volatile long sink;
        __attribute__((noinline)) static void hidden(void) { for (int i = 0; i < 100000; i++) sink += i; }
        int main(void) { double end = now() + 1; while (now() < end) hidden(); return 0; }";
    let options = ["-O1", "-g", "-Wl,--build-id=0xabcdef0123456789", "-o", "program"];
    let Some(()) = build(folder.path(), "gcc", "program.c", source, &options) else { return };
    for options in [&["--only-keep-debug", "program", "debug"][..], &["--strip-all", "program"]] {
        assert!(Command::new("objcopy").current_dir(folder.path()).args(options).status().unwrap().success());
    }
    let debug = fs::read(folder.path().join("debug")).unwrap();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", server.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in server.incoming() {
            let mut stream = stream.unwrap();
            let head: Vec<_> =
                BufReader::new(&stream).lines().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
            let found = head.first().is_some_and(|line| line.starts_with("GET /buildid/abcdef0123456789/debuginfo "));
            let (status, body) = if found { ("200 OK", &*debug) } else { ("404 Not Found", &[][..]) };
            write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len()).ok();
            stream.write_all(body).ok();
        }
    });
    let cache = folder.path().join("cache");
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent_url = format!("http://{}", silent.local_addr().unwrap());
    for (url, is_named) in [(&silent_url, false), (&url, true)] {
        let variables = [("DEBUGINFOD_URLS", &**url), ("DEBUGINFOD_CACHE_PATH", cache.to_str().unwrap())];
        let stacks = sample(folder.path(), &variables);
        assert_eq!(stacks.total("hidden") > stacks.nano() / 2, is_named, "{:?}", stacks.by_leaf());
    }
    assert!(cache.join("abcdef0123456789/debuginfo").exists());
}
