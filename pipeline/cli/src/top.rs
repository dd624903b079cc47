//! `profbridge top`: where processes spend their time, drawn anew each second.
//!
//! [`State`] is what is known and how it is to be shown, [`screen`] makes lines of it, [`keys`] tells what was pressed,
//! [`console`] is the terminal. What is sampled and for how long is a run's business, as for `sample`.

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
use state::State;

use crate::args::sampling::TopArgs;
use crate::sample::{Halves, Look, Purpose, start};
use crate::{Failure, terminal};

/// How often the screen is drawn anew.
const REDRAW: Duration = Duration::from_secs(1);

/// Watches until the end.
pub(crate) fn run(arguments: &TopArgs) -> Result<ExitCode, Failure> {
    start(&arguments.subject, |interrupt| {
        let mut view = Top { state: State::default(), next: Instant::now() + REDRAW, lost: false, screen: None };
        if stdout().is_terminal() {
            let console = Console::open()?;
            let restore = console.restorer();
            interrupt.before_the_end(move || restore.restore());
            view.next = Instant::now();
            view.screen = Some(Screen { console, output: None, size: (0, 0) });
        }
        Ok(Purpose::View(Box::new(view)))
    })
}

/// What shows a run as it goes: on a terminal, or as lines where there is none.
pub(crate) struct Top {
    state: State,
    /// When it is drawn next.
    next: Instant,
    /// Nobody reads the lines any more.
    lost: bool,
    screen: Option<Screen>,
}

/// The terminal.
struct Screen {
    console: Console,
    /// What a command writes.
    output: Option<CommandOutput>,
    size: (usize, usize),
}

impl Top {
    /// A command is about to be started, and what it inherits can be changed for it.
    pub(crate) fn before_command(&mut self) -> Result<(), Failure> {
        if let Some(screen) = &mut self.screen {
            screen.output = Some(CommandOutput::redirect()?);
        }
        Ok(())
    }

    /// It was started, or could not be.
    pub(crate) fn after_command(&mut self) -> Result<(), Failure> {
        let output = self.screen.as_mut().and_then(|screen| screen.output.as_mut());
        output.map_or(Ok(()), CommandOutput::give_back)
    }

    /// A line that is said to a person. Nothing in it commands the terminal.
    pub(crate) fn say(&mut self, text: &str) {
        if self.screen.as_ref().is_some_and(|screen| screen.console.is_open()) {
            self.state.say(text);
        } else {
            terminal::say(text);
        }
    }

    /// More samples. `until` is how long the run had gone on where they end.
    pub(crate) fn take(&mut self, halves: &Halves, until: Duration) {
        self.state.take(halves, until);
    }

    /// How the run goes now. Called many times a second; returns whether somebody wants the end.
    pub(crate) fn look(&mut self, look: &Look<'_>) -> bool {
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

    /// The view ends, and the terminal is what it was before.
    pub(crate) fn close(&mut self) {
        let Some(screen) = self.screen.as_mut().filter(|screen| screen.console.is_open()) else { return };
        screen.console.close();
        // What was said on a screen that is gone.
        self.state.said().for_each(terminal::say);
        if let Some(output) = &mut screen.output {
            output.show();
        }
    }

    /// Whether the end of a run is shown as well: the last samples, which come once the view is closed. A screen is gone
    /// by then.
    pub(crate) fn shows_the_end(&self) -> bool {
        self.screen.is_none() && !self.lost
    }

    /// The end of the run, behind its last samples.
    pub(crate) fn end(&mut self, look: &Look<'_>) {
        self.state.look(look);
        self.write();
    }

    fn write(&mut self) {
        self.lost |= !terminal::result(screen::plain(&self.state).join("\n"));
    }
}

impl Drop for Top {
    fn drop(&mut self) {
        self.close();
        // What a command wrote since.
        if let Some(output) = self.screen.as_mut().and_then(|screen| screen.output.as_mut()) {
            output.show();
        }
    }
}
