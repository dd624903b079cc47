//! The terminal while a view is shown: alternate screen, hidden cursor, and unbuffered keys.
//!
//! The sequences are XTerm's (ctlseqs, "Private Modes"), which all current terminals support.

use std::io::{IsTerminal, Write, stdin, stdout};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use super::keys::{Key, decode, whole};
use super::screen::{ScreenRow, Style};
use crate::{Failure, terminal};

/// Alternate screen, hidden cursor, and no line wrapping, since terminals disagree on how many columns a character
/// takes.
const ENTER: &str = "\u{1b}[?1049h\u{1b}[?25l\u{1b}[?7l";

/// Line wrapping, the cursor, and the original screen.
const LEAVE: &str = "\u{1b}[?7h\u{1b}[?25h\u{1b}[?1049l";

/// The size assumed if the terminal does not report it.
const USUAL: (usize, usize) = (80, 24);

/// Restores the terminal once, on the first request.
#[derive(Debug, Clone)]
pub(super) struct Restorer(Arc<Mutex<Option<Termios>>>);

impl Restorer {
    /// Restores the terminal if that was not done yet.
    pub(super) fn restore(&self) {
        let saved = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(saved) = saved {
            write(LEAVE);
            tcsetattr(stdout(), OptionalActions::Now, &saved).ok();
        }
    }

    fn is_taken(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

/// The terminal.
#[derive(Debug)]
pub(super) struct Console {
    restorer: Restorer,
    keys: bool,
    /// The first bytes of an incomplete key.
    begun: Vec<u8>,
}

impl Console {
    /// Takes over the terminal of standard output. Keys are read from standard input if it is a terminal too. Ctrl-C
    /// stays a signal, also for a command.
    pub(super) fn open() -> Result<Self, Failure> {
        let failed = |error: rustix::io::Errno| Failure::new("standard output", &std::io::Error::from(error));
        let saved = tcgetattr(stdout()).map_err(failed)?;
        let mut single = saved.clone();
        single.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::IEXTEN);
        // A program suspended, or ended by SIGQUIT, would not restore the terminal, so these keys are disabled: 0 is no
        // character (termios(3), `_POSIX_VDISABLE`).
        for key in [SpecialCodeIndex::VSUSP, SpecialCodeIndex::VQUIT] {
            single.special_codes[key] = 0;
        }
        tcsetattr(stdout(), OptionalActions::Now, &single).map_err(failed)?;
        write(ENTER);
        let (restorer, keys) = (Restorer(Arc::new(Mutex::new(Some(saved)))), stdin().is_terminal());
        Ok(Self { restorer, keys, begun: Vec::new() })
    }

    /// The object that restores it.
    pub(super) fn restorer(&self) -> Restorer {
        self.restorer.clone()
    }

    /// Whether it is still taken over.
    pub(super) fn is_open(&self) -> bool {
        self.restorer.is_taken()
    }

    /// Restores it.
    pub(super) fn close(&self) {
        self.restorer.restore();
    }

    /// Its current columns and lines.
    pub(super) fn size(&self) -> (usize, usize) {
        match tcgetwinsize(stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
            _ => USUAL,
        }
    }

    /// The keys pressed since the last call.
    pub(super) fn pressed(&mut self) -> Vec<Key> {
        if !self.keys {
            return Vec::new();
        }
        let input = stdin();
        let mut descriptors = [PollFd::new(input.as_fd(), PollFlags::POLLIN)];
        if !matches!(poll(&mut descriptors, PollTimeout::ZERO), Ok(1..)) {
            return Vec::new();
        }
        let mut bytes = [0; 256];
        match rustix::io::read(&input, &mut bytes) {
            Ok(count @ 1..) => {
                self.begun.extend_from_slice(&bytes[..count]);
                let pressed: Vec<u8> = self.begun.drain(..whole(&self.begun)).collect();
                decode(&pressed)
            }
            // The terminal is gone.
            _ => {
                self.keys = false;
                Vec::new()
            }
        }
    }

    /// Draws lines from the top in a single write, so that nothing flickers.
    pub(super) fn draw(&self, rows: &[ScreenRow], width: usize) {
        let mut text = String::from("\u{1b}[H");
        for (number, ScreenRow { text: line, style }) in rows.iter().enumerate() {
            if number > 0 {
                text.push_str("\r\n");
            }
            text.push_str(match style {
                Style::Plain => "",
                Style::Heading => "\u{1b}[7m",
                Style::Own => "\u{1b}[1m",
                Style::Other => "\u{1b}[2m",
            });
            // Names come from the target. They were made printable before; escaping again is a safeguard.
            text.push_str(&terminal::escaped(line));
            if *style == Style::Heading {
                text.extend(std::iter::repeat_n(' ', width.saturating_sub(super::screen::columns(line))));
            }
            text.push_str("\u{1b}[0m");
            if super::screen::columns(line) < width && *style != Style::Heading {
                text.push_str("\u{1b}[K");
            }
        }
        text.push_str("\u{1b}[J");
        write(&text);
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        self.restorer.restore();
    }
}

/// Errors are ignored: a terminal that disappears sends a hangup.
fn write(text: &str) {
    let mut out = stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).ok();
}
