//! The frames and stacks of a profile. What no sample refers to is checked and left out, as it shows nothing.

use profbridge_model::builder::Any;
use profbridge_model::{Builder, Function, Line, Location, LocationId, StackId};

use super::model::Frame;
use super::text::{self, Text};
use super::{Images, ProfileError};
use crate::sentry::platform;

/// The stacks of a profile: each becomes one of the batch when a sample has it.
pub(in crate::sentry) struct Stacks<'a, 'b, const MAX: usize, const NULLS: bool> {
    frames: &'b [Frame<'a>],
    stacks: &'b text::Stacks<MAX, NULLS>,
    platform: &'b str,
    images: &'b mut Images<'a>,
    /// By the position of the frame, once a stack has it.
    locations: Vec<Option<Option<LocationId>>>,
    /// By the position of the stack, once a sample has it.
    known: Vec<Option<Option<StackId>>>,
    scratch: Vec<Option<LocationId>>,
}

impl<'a, 'b, const MAX: usize, const NULLS: bool> Stacks<'a, 'b, MAX, NULLS> {
    /// The stacks of a profile of a platform.
    ///
    /// # Errors
    ///
    /// A stack refers to a frame that is not there.
    pub(in crate::sentry) fn new(
        frames: &'b [Frame<'a>],
        stacks: &'b text::Stacks<MAX, NULLS>,
        platform: &'b str,
        images: &'b mut Images<'a>,
    ) -> Result<Self, ProfileError> {
        let all_are_there = stacks.greatest().is_none_or(|index| (index as usize) < frames.len());
        for (i, indices) in stacks.iter().enumerate().filter(|_| !all_are_there) {
            if let Some(j) = indices.iter().position(|&index| index as usize >= frames.len()) {
                let rule = format!("index {} is out of range, there are {} frames", indices[j], frames.len());
                return Err(ProfileError::rule(format!("profile.stacks[{i}][{j}]"), rule));
            }
        }
        let (locations, known) = (vec![None; frames.len()], vec![None; stacks.len()]);
        Ok(Self { frames, stacks, platform, images, locations, known, scratch: Vec::new() })
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// How many of the stacks and of the frames no sample has had so far.
    pub(super) fn unused(&self) -> u64 {
        let of = |known: usize, all: usize| (all - known) as u64;
        of(self.known.iter().flatten().count(), self.known.len())
            + of(self.locations.iter().flatten().count(), self.locations.len())
    }

    /// A stack by its position in the profile, which must be there.
    pub(super) fn get(&mut self, builder: &mut Builder, position: usize) -> Option<StackId> {
        if let Some(known) = self.known[position] {
            return known;
        }
        let mut stack = std::mem::take(&mut self.scratch);
        stack.clear();
        for &index in self.stacks.at(position) {
            let index = index as usize;
            let id = match self.locations[index] {
                Some(id) => id,
                None => location(builder, &self.frames[index], self.platform, self.images),
            };
            self.locations[index] = Some(id);
            stack.push(id);
        }
        let id = builder.stack(&stack);
        self.scratch = stack;
        self.known[position] = Some(id);
        id
    }
}

/// A frame as a location, with one line where there is anything to say of its source.
fn location(builder: &mut Builder, frame: &Frame<'_>, platform: &str, images: &mut Images<'_>) -> Option<LocationId> {
    let mut attributes: Vec<(&str, Any<'_>)> = Vec::with_capacity(8);
    let own = frame.platform.as_ref().map(Text::as_str);
    if let Some(kind) = platform::frame_type(own.unwrap_or(platform)) {
        attributes.push(("profile.frame.type", kind.into()));
    }
    let (abs_path, filename) = (Text::of(&frame.abs_path), Text::of(&frame.filename));
    // OTLP has one name of a file, the absolute path where there is one. What the other is, is said where it is not the
    // same: an empty text says that there is none.
    if abs_path.is_empty() && !filename.is_empty() {
        attributes.push(("sentry.frame.abs_path", "".into()));
    } else if abs_path != filename {
        attributes.push(("sentry.frame.filename", filename.into()));
    }
    for (key, value) in [
        ("sentry.frame.module", &frame.module),
        ("sentry.frame.package", &frame.package),
        ("sentry.frame.platform", &frame.platform),
    ] {
        if let Some(value) = value {
            attributes.push((key, value.as_str().into()));
        }
    }
    if let Some(in_app) = frame.in_app {
        attributes.push(("sentry.frame.in_app", in_app.into()));
    }
    // In OTLP 0 is what is not known.
    for (key, zero) in [
        ("sentry.frame.lineno", frame.lineno == Some(0)),
        ("sentry.frame.colno", frame.colno == Some(0)),
        ("sentry.frame.instruction_addr", frame.instruction_addr.is_some_and(|address| address.0 == 0)),
    ] {
        if zero {
            attributes.push((key, Any::Int(0)));
        }
    }
    if attributes.is_empty() {
        // Without anything else it would be no location, and missing in its stack.
        attributes.push(("sentry.frame", true.into()));
    }
    let attributes = builder.attributes(&attributes);
    let function = Function {
        name: builder.string(Text::of(&frame.function)),
        filename: builder.string(if abs_path.is_empty() { filename } else { abs_path }),
        ..Function::default()
    };
    let line = Line {
        function: builder.function(function),
        line: frame.lineno.map_or(0, i64::from),
        column: frame.colno.map_or(0, i64::from),
    };
    let address = frame.instruction_addr.map_or(0, |address| address.0);
    let mapping = frame.instruction_addr.and_then(|address| images.find(builder, address.0));
    let location = Location { mapping, address, attributes, ..Location::default() };
    // An address alone is a location without lines: there is nothing to say about its function.
    let lines: &[Line] = if line == Line::default() { &[] } else { &[line] };
    builder.location(location, lines)
}
