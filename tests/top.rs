//! `profbridge top` in separate terminals, created by tmux.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::process::{command, eventually, program, run, untested};
use crate::sample::stops;
use crate::targets::{TargetProgram, worker};

/// A shell in a terminal. Its tmux has a separate socket, so that it does not affect other sessions.
struct Terminal {
    folder: tempfile::TempDir,
}

impl Terminal {
    /// `None`, with a note, if there is no tmux.
    fn start(columns: u32, lines: u32) -> Option<Self> {
        if Command::new("tmux").arg("-V").stdout(Stdio::null()).status().is_err() {
            untested("there is no `tmux`");
            return None;
        }
        let terminal = Self { folder: tempfile::tempdir().unwrap() };
        let (columns, lines) = (columns.to_string(), lines.to_string());
        terminal.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", &columns, "-y", &lines, "PS1='$ ' sh"]);
        Some(terminal)
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let mut tmux = Command::new("tmux");
        tmux.env_remove("TMUX").env("LC_ALL", "C.UTF-8").current_dir(self.folder.path());
        let output = tmux.arg("-S").arg(self.folder.path().join("tmux")).args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn shown(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// The screen contents, once they contain a text.
    fn wait_for(&self, text: &str) -> String {
        let mut last = String::new();
        let shown = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            eventually(text, || {
                last = self.shown();
                last.contains(text).then(|| last.clone())
            })
        }));
        shown.unwrap_or_else(|_| panic!("no `{text}`:\n{last}"))
    }

    fn press(&self, keys: &str) {
        self.tmux(&["send-keys", keys]);
    }

    /// Runs a line in the shell.
    fn line(&self, line: &str) {
        self.tmux(&["send-keys", "-l", line]);
        self.press("Enter");
    }

    /// Starts a view in the shell, which prints its exit status at the end.
    fn top(&self, arguments: &str) {
        let stops = stops().join(" ");
        self.line(&format!("{} top {stops} {arguments}; echo status $?", program().join(" ")));
    }

    /// The terminal settings, read by a shell command that writes them to this file.
    fn settings(&self, name: &str) -> String {
        let path: PathBuf = self.folder.path().join(name);
        self.line(&format!("stty -g > {0}.part; mv {0}.part {0}", path.display()));
        eventually("settings", || std::fs::read_to_string(&path).ok())
    }

    /// Whether a view is shown: alternate screen, no cursor, no line wrapping.
    fn is_viewed(&self) -> bool {
        match self.tmux(&["display-message", "-p", "#{alternate_on} #{cursor_flag} #{wrap_flag}"]).trim() {
            "1 0 0" => true,
            "0 1 1" => false,
            other => panic!("half of it: {other}"),
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let mut tmux = Command::new("tmux");
        tmux.arg("-S").arg(self.folder.path().join("tmux")).arg("kill-server").stderr(Stdio::null()).status().ok();
    }
}

/// Starts a worker and waits until it computes.
fn working() -> TargetProgram {
    let mut program = TargetProgram::start(&mut Command::new(worker()));
    assert_eq!(program.line(), "ready\n");
    program
}

/// The elapsed seconds that a view shows.
fn seconds(shown: &str) -> u32 {
    let rest = shown.lines().next().unwrap().split_once("): ").unwrap_or_else(|| panic!("{shown}")).1;
    rest.split_once(" s").unwrap().0.parse().unwrap()
}

/// Guarantees: at 80 and 120 columns a process is shown with its hot function first, and updated over time; keys sort,
/// filter and quit; afterwards the terminal is restored, and the process continues.
#[test]
fn on_a_terminal() {
    for columns in [80, 120] {
        let Some(terminal) = Terminal::start(columns, 24) else { return };
        let mut target = working();
        let before = terminal.settings("before");
        terminal.top(&format!("--pid {}", target.pid()));
        terminal.wait_for("toil (worker");
        // On a busy machine the program may not have run yet when the first screen is drawn.
        let first = eventually("its hot function comes first", || {
            let shown = terminal.shown();
            let row = shown.lines().skip_while(|line| !line.contains("  function")).nth(1);
            row.is_some_and(|row| row.contains("  toil (worker")).then(|| shown.clone())
        });
        assert!(terminal.is_viewed());
        assert!(first.contains(&format!("profbridge top  worker (pid {})", target.pid())), "{first}");
        assert!(first.contains(">self   total    wait") && first.contains("    run    wait  thread"), "{first}");
        assert_eq!(first.contains("  seconds  function"), columns == 120, "{first}");
        let began = seconds(&first);
        eventually("another second", || (seconds(&terminal.shown()) > began).then_some(()));
        terminal.press("t");
        terminal.wait_for(">total");
        terminal.press("/");
        terminal.press("m");
        terminal.press("a");
        terminal.press("Enter");
        terminal.wait_for("functions with `ma`");
        // The terminal may show the new head for a moment before the new table.
        eventually("the table has only functions with these letters", || {
            let shown = terminal.shown();
            let table: String = shown.lines().skip_while(|line| !line.contains("  function")).collect();
            (table.contains("main (worker") && !table.contains("toil")).then_some(())
        });
        terminal.press("q");
        let after = terminal.wait_for("status 0");
        assert!(!terminal.is_viewed() && !after.contains("profbridge top  worker"), "{after}");
        assert_eq!(terminal.settings("after"), before);
        assert!(target.is_alive());
    }
}

/// Guarantees: the view is redrawn as soon as the terminal changes its size, down to the smallest.
#[test]
fn another_size() {
    let Some(terminal) = Terminal::start(80, 24) else { return };
    let target = working();
    terminal.top(&format!("-p {}", target.pid()));
    terminal.wait_for("toil (worker");
    terminal.tmux(&["resize-window", "-x", "120", "-y", "30"]);
    terminal.wait_for("  seconds  function");
    terminal.tmux(&["resize-window", "-x", "20", "-y", "6"]);
    eventually("a small view", || {
        let shown = terminal.shown();
        shown.starts_with("profbridge top  work\n").then_some(())
    });
    terminal.press("q");
    eventually("the end", || (!terminal.is_viewed()).then_some(()));
}

/// Guarantees: Ctrl-C ends a view like `q`, and so does the end of the process; each time the terminal is restored.
/// Ctrl-Z and Ctrl-\, which would not restore it, do nothing.
#[test]
fn ends() {
    let Some(terminal) = Terminal::start(80, 24) else { return };
    let before = terminal.settings("before");
    let mut target = working();
    terminal.top(&format!("--pid {}", target.pid()));
    terminal.wait_for("toil (worker");
    terminal.press("C-z");
    terminal.press("C-\\");
    // Keys are handled in order.
    terminal.press("t");
    terminal.wait_for(">total");
    terminal.press("C-c");
    terminal.wait_for("status 0");
    assert!(!terminal.is_viewed() && target.is_alive());
    assert_eq!(terminal.settings("interrupted"), before);
    terminal.line("clear");
    eventually("an empty screen", || (!terminal.shown().contains("status")).then_some(()));
    terminal.top(&format!("--pid {}", target.pid()));
    terminal.wait_for("toil (worker");
    target.close();
    terminal.wait_for("status 0");
    assert!(!terminal.is_viewed());
    assert_eq!(terminal.settings("ended"), before);
    terminal.line("clear");
    terminal.top("--pid 2147483632");
    terminal.wait_for("there is no process 2147483632");
    terminal.wait_for("status 1");
    assert!(!terminal.is_viewed());
}

/// Guarantees: the output of a command does not disturb the view and is shown after it is closed, and the command's
/// exit status is profbridge's; keys belong to the view, even if the command reads input.
#[test]
fn a_command() {
    let Some(terminal) = Terminal::start(80, 24) else { return };
    let script = "cat; echo said by the command; i=0; while [ $i -lt 9000000 ]; do i=$((i+1)); done; exit 3";
    std::fs::write(terminal.folder.path().join("script.sh"), script).unwrap();
    terminal.top("--subprocesses -- sh script.sh");
    let shown = terminal.wait_for("  function");
    assert!(!shown.contains("said by the command"), "{shown}");
    eventually("a whole second", || (terminal.shown().contains("processors")).then_some(()));
    // The command continues, and profbridge waits for it.
    terminal.press("q");
    let after = terminal.wait_for("status 3");
    assert_eq!(after.matches("said by the command").count(), 1, "{after}");
    assert!(!terminal.is_viewed());
}

/// Guarantees: if standard output is no terminal, lines are written each second, without control sequences; when the
/// reader disappears, the run ends.
#[test]
fn lines() {
    let folder = tempfile::tempdir().unwrap();
    let mut target = working();
    let pid = target.pid();
    let arguments = [&["top", "--pid", &pid], stops()].concat();
    let mut child = command(folder.path(), &arguments).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut looks = 0;
    let mut hot = false;
    while looks < 3 || !hot {
        let line = lines.next().unwrap();
        assert!(!line.contains('\u{1b}'), "{line:?}");
        looks += usize::from(line.starts_with(&format!("worker (pid {}): ", target.pid())));
        hot |= line.contains("  toil (worker");
    }
    drop(lines);
    let status = eventually("it ends", || child.try_wait().unwrap());
    assert!(status.success() && target.is_alive());
    let none = run(folder.path(), &["top", "--name", "pb-no-such-name", "--duration", "0.3"]);
    assert_eq!((none.status.code(), none.stdout.as_str()), (Some(1), ""));
    assert!(none.stderr.contains("there is no process named pb-no-such-name"), "{}", none.stderr);
}

/// Guarantees: if standard output is no terminal, the end of a run is written too, also for a command that ends before
/// the first line was due, and its exit status is profbridge's.
#[test]
fn lines_of_a_short_command() {
    let folder = tempfile::tempdir().unwrap();
    let script = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; exit 3";
    let ended = run(folder.path(), &[&["top"], stops(), &["--", "sh", "-c", script]].concat());
    assert_eq!(ended.status.code(), Some(3), "{}", ended.stderr);
    // On a busy machine the command may take longer than a second, and then the first lines were written before.
    let shown = ended.stdout.trim_end().split("\n\n").last().unwrap();
    let mut lines = shown.lines();
    assert!(lines.next().is_some_and(|line| line.contains(" samples, 1 threads")), "{}", ended.stdout);
    assert!(lines.next().is_some_and(|line| line.starts_with("last ")), "{}", ended.stdout);
    assert_eq!(lines.next(), Some("   self   total    wait  function"), "{}", ended.stdout);
}
