//! The terminal while a view is on it: another screen, no cursor, and keys one by one.
//!
//! Sequences are those of XTerm (ctlseqs, "Private Modes"), which all terminals of today know.

use std::io::{IsTerminal, Write, stdin, stdout};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use super::keys::{Key, decode, whole};
use super::screen::{Row, Style};
use crate::{Failure, terminal};

/// The other screen, no cursor on it, and no line that goes on in the next one: how many columns a character takes,
/// terminals do not agree on.
const ENTER: &str = "\u{1b}[?1049h\u{1b}[?25l\u{1b}[?7l";

/// Lines that go on, the cursor, and the screen from before.
const LEAVE: &str = "\u{1b}[?7h\u{1b}[?25h\u{1b}[?1049l";

/// What a terminal has that does not say its size.
const USUAL: (usize, usize) = (80, 24);

/// Gives the terminal back, once, whoever asks first.
#[derive(Debug, Clone)]
pub(super) struct Restorer(Arc<Mutex<Option<Termios>>>);

impl Restorer {
    /// Gives it back, if it was not given back yet.
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
    /// The beginning of a key, of which the rest is still to come.
    begun: Vec<u8>,
}

impl Console {
    /// Takes the terminal that standard output is. Keys come from standard input, if that is a terminal as well. Ctrl-C
    /// remains a signal, for a command too.
    pub(super) fn open() -> Result<Self, Failure> {
        let failed = |error: rustix::io::Errno| Failure::new("standard output", &std::io::Error::from(error));
        let saved = tcgetattr(stdout()).map_err(failed)?;
        let mut single = saved.clone();
        single.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::IEXTEN);
        // Whoever is suspended, or ended by SIGQUIT, leaves the terminal as it is; 0 is no character (termios(3),
        // `_POSIX_VDISABLE`).
        for key in [SpecialCodeIndex::VSUSP, SpecialCodeIndex::VQUIT] {
            single.special_codes[key] = 0;
        }
        tcsetattr(stdout(), OptionalActions::Now, &single).map_err(failed)?;
        write(ENTER);
        let (restorer, keys) = (Restorer(Arc::new(Mutex::new(Some(saved)))), stdin().is_terminal());
        Ok(Self { restorer, keys, begun: Vec::new() })
    }

    /// What gives it back.
    pub(super) fn restorer(&self) -> Restorer {
        self.restorer.clone()
    }

    /// Whether it is taken still.
    pub(super) fn is_open(&self) -> bool {
        self.restorer.is_taken()
    }

    /// Gives it back.
    pub(super) fn close(&self) {
        self.restorer.restore();
    }

    /// Its columns and lines now.
    pub(super) fn size(&self) -> (usize, usize) {
        match tcgetwinsize(stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
            _ => USUAL,
        }
    }

    /// What was pressed since the last call.
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

    /// Shows lines from the top, in one piece, so that nothing flickers.
    pub(super) fn draw(&self, rows: &[Row], width: usize) {
        let mut text = String::from("\u{1b}[H");
        for (number, Row { text: line, style }) in rows.iter().enumerate() {
            if number > 0 {
                text.push_str("\r\n");
            }
            text.push_str(match style {
                Style::Plain => "",
                Style::Heading => "\u{1b}[7m",
                Style::Own => "\u{1b}[1m",
                Style::Other => "\u{1b}[2m",
            });
            // Names come from the target. They were made printable, and are once more.
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

/// A terminal that takes nothing any more is noticed by what it sends: a hangup.
fn write(text: &str) {
    let mut out = stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).ok();
}
