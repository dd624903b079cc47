//! `profbridge top`: shows where processes spend their time, updated each second.
//!
//! [`ViewState`] is the data and the display settings, [`screen`] renders lines from it, [`keys`] decodes keys,
//! [`console`] is the terminal. A run decides what is sampled and for how long, as for `sample`.

mod console;
mod keys;
mod output;
mod screen;
mod state;

use std::io::{IsTerminal, stdout};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use console::Console;
use output::CommandOutput;
use profbridge_model::Profiles;
use state::ViewState;

use crate::args::sampling::TopArgs;
use crate::sample::{Interrupt, Purpose, RunSnapshot, RunView, start};
use crate::{Failure, terminal};

/// How often the screen is redrawn.
const REDRAW: Duration = Duration::from_secs(1);

/// Shows a live view until the end.
pub(crate) fn run(arguments: &TopArgs) -> Result<ExitCode, Failure> {
    start(&arguments.subject, || {
        let interrupt = Interrupt::listen()?;
        let mut view =
            Top { state: ViewState::new(arguments.native), next: Instant::now() + REDRAW, lost: false, screen: None };
        if stdout().is_terminal() {
            let console = Console::open()?;
            let restore = console.restorer();
            interrupt.before_the_end(move || restore.restore());
            view.next = Instant::now();
            view.screen = Some(Screen { console, output: None, size: (0, 0) });
        }
        Ok((interrupt, Purpose::View(Box::new(view))))
    })
}

/// A live view of a run: on a terminal, or as lines without one.
pub(crate) struct Top {
    state: ViewState,
    /// When it is drawn next.
    next: Instant,
    /// Set when the reader of the lines is gone.
    lost: bool,
    screen: Option<Screen>,
}

/// The terminal.
struct Screen {
    console: Console,
    output: Option<CommandOutput>,
    size: (usize, usize),
}

impl Top {
    fn write(&mut self) {
        self.lost |= !terminal::result(screen::plain(&mut self.state).join("\n"));
    }
}

impl RunView for Top {
    fn is_live(&self) -> bool {
        true
    }

    fn before_command(&mut self) -> Result<(), Failure> {
        if let Some(screen) = &mut self.screen {
            screen.output = Some(CommandOutput::redirect()?);
        }
        Ok(())
    }

    fn after_command(&mut self) -> Result<(), Failure> {
        let output = self.screen.as_mut().and_then(|screen| screen.output.as_mut());
        output.map_or(Ok(()), CommandOutput::give_back)
    }

    fn say(&mut self, text: &str) {
        if self.screen.as_ref().is_some_and(|screen| screen.console.is_open()) {
            self.state.say(text);
        } else {
            terminal::say(text);
        }
    }

    fn take(&mut self, profiles: &Profiles, until: Duration) {
        self.state.take(profiles, until);
    }

    fn look(&mut self, look: &RunSnapshot<'_>) -> bool {
        self.state.look(look);
        let mut is_due = Instant::now() >= self.next;
        if is_due {
            self.next = Instant::now() + REDRAW;
        }
        let Some(screen) = &mut self.screen else {
            if is_due {
                self.write();
            }
            return self.lost;
        };
        for key in screen.console.pressed() {
            if self.state.press(key) {
                return true;
            }
            is_due = true;
        }
        let size = screen.console.size();
        if is_due || size != screen.size {
            screen.size = size;
            screen.console.draw(&screen::draw(&mut self.state, size.0, size.1), size.0);
        }
        false
    }

    fn close(&mut self) {
        let Some(screen) = self.screen.as_mut().filter(|screen| screen.console.is_open()) else { return };
        screen.console.close();
        // Messages that were only on the closed screen.
        self.state.messages().for_each(terminal::say);
        if let Some(output) = &mut screen.output {
            output.show();
        }
    }

    fn shows_the_end(&self) -> bool {
        self.screen.is_none() && !self.lost
    }

    fn end(&mut self, look: &RunSnapshot<'_>) {
        self.state.look(look);
        self.write();
    }
}

impl Drop for Top {
    fn drop(&mut self) {
        self.close();
        // Output of the command since then.
        if let Some(output) = self.screen.as_mut().and_then(|screen| screen.output.as_mut()) {
            output.show();
        }
    }
}
