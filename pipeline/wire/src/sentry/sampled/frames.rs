//! The frames and stacks of a profile. Unused ones are validated but left out, because they show nothing.

use profbridge_model::builder::Any;
use profbridge_model::{Builder, Function, Line, Location, LocationId, StackId};

use super::model::FrameJson;
use super::text::{self, Text};
use super::{ProfileError, ProfileImages};
use crate::sentry::platform;

/// The stacks of a profile; each is added to the batch when a sample uses it.
pub(in crate::sentry) struct ProfileStacks<'a, 'b, const MAX: usize, const NULLS: bool> {
    frames: &'b [FrameJson<'a>],
    stacks: &'b text::IndexLists<MAX, NULLS>,
    platform: &'b str,
    images: &'b mut ProfileImages<'a>,
    /// By frame index, once a stack uses it.
    locations: Vec<Option<Option<LocationId>>>,
    /// By stack index, once a sample uses it.
    known: Vec<Option<Option<StackId>>>,
    scratch: Vec<Option<LocationId>>,
}

impl<'a, 'b, const MAX: usize, const NULLS: bool> ProfileStacks<'a, 'b, MAX, NULLS> {
    /// The stacks of a profile with this platform.
    ///
    /// # Errors
    ///
    /// A stack refers to a missing frame.
    pub(in crate::sentry) fn new(
        frames: &'b [FrameJson<'a>],
        stacks: &'b text::IndexLists<MAX, NULLS>,
        platform: &'b str,
        images: &'b mut ProfileImages<'a>,
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

    /// Number of stacks.
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// Number of stacks and frames that no sample has used so far.
    pub(super) fn unused(&self) -> u64 {
        let of = |known: usize, all: usize| (all - known) as u64;
        of(self.known.iter().flatten().count(), self.known.len())
            + of(self.locations.iter().flatten().count(), self.locations.len())
    }

    /// Returns a stack by its index in the profile, which must exist.
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

/// Converts a frame to a location, with one line if anything is known of its source.
fn location(
    builder: &mut Builder,
    frame: &FrameJson<'_>,
    platform: &str,
    images: &mut ProfileImages<'_>,
) -> Option<LocationId> {
    let mut attributes: Vec<(&str, Any<'_>)> = Vec::with_capacity(8);
    let own = frame.platform.as_ref().map(Text::as_str);
    if let Some(kind) = platform::frame_type(own.unwrap_or(platform)) {
        attributes.push(("profile.frame.type", kind.into()));
    }
    let (abs_path, filename) = (Text::of(&frame.abs_path), Text::of(&frame.filename));
    // OTLP has one file name: the absolute path, if there is one. If the other name differs, it is stored in an
    // attribute; an empty text means that there is none.
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
    // In OTLP 0 means unknown.
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
        // Without this attribute the location would be empty, and its frame missing from the stack.
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
    // A frame with only an address becomes a location without lines, because its function is unknown.
    let lines: &[Line] = if line == Line::default() { &[] } else { &[line] };
    builder.location(location, lines)
}
