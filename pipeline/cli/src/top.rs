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
use crate::sample::{Halves, Look, Purpose, View, start};
use crate::{Failure, terminal};

/// How often the screen is drawn anew.
const REDRAW: Duration = Duration::from_secs(1);

/// Watches until the end.
pub(crate) fn run(arguments: &TopArgs) -> Result<ExitCode, Failure> {
    start(&arguments.subject, |interrupt| {
        if !stdout().is_terminal() {
            return Ok(Purpose::View(Box::new(Plain::new())));
        }
        let console = Console::open()?;
        let restore = console.restorer();
        interrupt.before_the_end(move || restore.restore());
        Ok(Purpose::View(Box::new(Live::new(console))))
    })
}

/// When something is due that happens each second.
struct Beat(Instant);

impl Beat {
    fn is_due(&mut self, now: Instant) -> bool {
        let due = now >= self.0;
        if due {
            self.0 = now + REDRAW;
        }
        due
    }
}

/// A view on a terminal.
struct Live {
    state: State,
    console: Console,
    output: Option<CommandOutput>,
    beat: Beat,
    size: (usize, usize),
}

impl Live {
    fn new(console: Console) -> Self {
        Self { state: State::default(), console, output: None, beat: Beat(Instant::now()), size: (0, 0) }
    }
}

impl View for Live {
    fn before_command(&mut self) -> Result<(), Failure> {
        self.output = Some(CommandOutput::redirect()?);
        Ok(())
    }

    fn after_command(&mut self) -> Result<(), Failure> {
        self.output.as_mut().map_or(Ok(()), CommandOutput::give_back)
    }

    fn say(&mut self, text: &str) {
        if self.console.is_open() {
            self.state.say(text);
        } else {
            terminal::say(text);
        }
    }

    fn take(&mut self, halves: &Halves, until: Duration) {
        self.state.take(halves, until);
    }

    fn look(&mut self, look: &Look<'_>) -> bool {
        self.state.look(look);
        let pressed = self.console.pressed();
        let mut changed = !pressed.is_empty();
        for key in pressed {
            if self.state.press(key) {
                return true;
            }
        }
        let size = self.console.size();
        changed |= size != self.size;
        if self.beat.is_due(Instant::now()) || changed {
            self.size = size;
            self.console.draw(&screen::draw(&mut self.state, size.0, size.1), size.0);
        }
        false
    }

    fn close(&mut self) {
        if !self.console.is_open() {
            return;
        }
        self.console.close();
        // What was said on a screen that is gone.
        self.state.said().for_each(terminal::say);
        if let Some(output) = &mut self.output {
            output.show();
        }
    }

    /// Its screen is gone by then.
    fn shows_the_end(&self) -> bool {
        false
    }

    fn end(&mut self, _look: &Look<'_>) {}
}

impl Drop for Live {
    fn drop(&mut self) {
        self.close();
        // What a command wrote since.
        if let Some(output) = &mut self.output {
            output.show();
        }
    }
}

/// Lines, where there is no terminal.
struct Plain {
    state: State,
    beat: Beat,
    lost: bool,
}

impl Plain {
    fn new() -> Self {
        Self { state: State::default(), beat: Beat(Instant::now() + REDRAW), lost: false }
    }

    fn write(&mut self) {
        self.lost |= !terminal::result(screen::plain(&self.state).join("\n"));
    }
}

impl View for Plain {
    fn before_command(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    fn after_command(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    fn say(&mut self, text: &str) {
        terminal::say(text);
    }

    fn take(&mut self, halves: &Halves, until: Duration) {
        self.state.take(halves, until);
    }

    fn look(&mut self, look: &Look<'_>) -> bool {
        self.state.look(look);
        if self.beat.is_due(Instant::now()) {
            self.write();
        }
        // Nobody reads it any more.
        self.lost
    }

    fn close(&mut self) {}

    fn shows_the_end(&self) -> bool {
        !self.lost
    }

    fn end(&mut self, look: &Look<'_>) {
        self.state.look(look);
        self.write();
    }
}
