//! Compiles targets, each once per run, into a folder that is removed at the end.

use std::{
    collections::HashMap,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, id},
    sync::{LazyLock, Mutex},
};

use crate::runner::Untested;

static FOLDER: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
    let folder = tempfile::Builder::new().prefix(&format!("profbridge-traps-{}-", id())).tempdir().unwrap();
    // Some targets run as other users.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    folder
});
static BUILT: LazyLock<Mutex<HashMap<String, PathBuf>>> = LazyLock::new(Mutex::default);

/// The folder of the compiled programs; tests may put their own files there.
pub(crate) fn folder() -> &'static Path {
    FOLDER.path()
}

/// Removes the folder: a static is never dropped.
pub(crate) fn remove() {
    fs::remove_dir_all(folder()).ok();
}

/// The path of a source file.
pub(crate) fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/targets").join(name)
}

fn built(name: &str, build: impl FnOnce(&Path) -> Command) -> PathBuf {
    let mut built = BUILT.lock().unwrap();
    if let Some(path) = built.get(name) {
        return path.clone();
    }
    let path = folder().join(name);
    let output =
        build(&path).output().unwrap_or_else(|error| panic!("the compiler of {name} cannot be started: {error}"));
    assert!(output.status.success(), "{name} does not compile:\n{}", String::from_utf8_lossy(&output.stderr));
    built.insert(name.to_owned(), path.clone());
    path
}

/// Compiles a C program: optimized, without frame pointers, with symbols.
pub(crate) fn c(name: &str) -> PathBuf {
    c_with(name, name, &[])
}

/// Compiles a C program under this name, with more arguments for the compiler.
pub(crate) fn c_with(source_name: &str, name: &str, arguments: &[&str]) -> PathBuf {
    built(name, |out| {
        let mut command = Command::new("cc");
        command.args(["-O2", "-g", "-fomit-frame-pointer", "-pthread"]).args(arguments).arg("-o").arg(out);
        command.arg(source(&format!("{source_name}.c"))).args(["-lrt", "-ldl"]);
        command
    })
}

/// Compiles `plugin.c` as a library with one function of this name.
pub(crate) fn library(function: &str) -> PathBuf {
    c_with("plugin", &format!("lib{function}.so"), &["-shared", "-fPIC", &format!("-DSPIN={function}")])
}

/// Compiles `context_library.c` as a library, with more arguments for the compiler.
pub(crate) fn context_library(name: &str, arguments: &[&str]) -> PathBuf {
    c_with("context_library", &format!("lib{name}.so"), &[&["-shared", "-fPIC"], arguments].concat())
}

/// Compiles a Go program, if there is a compiler.
pub(crate) fn go(name: &str) -> Result<PathBuf, Untested> {
    has("go", "version")?;
    Ok(built(&format!("{name}-go"), |out| {
        let mut command = Command::new("go");
        command.args(["build", "-o"]).arg(out).arg(source(&format!("{name}.go"))).env("GOFLAGS", "-mod=mod");
        command
    }))
}

/// Checks that a program exists on this machine, by running it with this argument.
pub(crate) fn has(program: &str, argument: &str) -> Result<(), Untested> {
    match Command::new(program).arg(argument).output() {
        Ok(output) if output.status.success() => Ok(()),
        _ => Err(Untested(format!("there is no {program}"))),
    }
}
