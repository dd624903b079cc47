//! The numbers that choices have in packets. Both directions come from one list, so they cannot differ.

use crate::message::{Detached, FunctionKind, Level, ProblemKind, Stops, Trust};

/// A choice that travels as a number.
pub(super) trait Numbered: Sized {
    fn number(self) -> u32;

    /// `None` if no choice has this number.
    fn from_number(number: u32) -> Option<Self>;
}

macro_rules! numbered {
    ($($choice:ident { $($variant:ident = $number:literal),+ })+) => {$(
        impl Numbered for $choice {
            fn number(self) -> u32 {
                match self { $(Self::$variant => $number),+ }
            }

            fn from_number(number: u32) -> Option<Self> {
                match number { $($number => Some(Self::$variant),)+ _ => None }
            }
        }
    )+};
}

numbered! {
    Stops { UserBound = 0, Never = 1, Always = 2 }
    Trust { Complete = 0, Truncated = 1, Guessed = 2, MissingCallers = 3 }
    Level { Undecided = 0, None = 1, User = 2, Kernel = 3, Processors = 4 }
    FunctionKind { CPython = 0, Php = 1, V8 = 2, Ruby = 3 }
    Detached { Exited = 0, Executed = 1, Asked = 2, Failed = 3 }
    ProblemKind {
        Missing = 0, Permission = 1, Traced = 2, Architecture = 3, Zombie = 4, Stopped = 5, Frozen = 6, Malformed = 7,
        Command = 8, TooMany = 9, Internal = 10, Events = 11, CutCall = 12, Lack = 13
    }
}
