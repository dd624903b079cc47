//! The texts of events and their maximum lengths: longer ones are cut when they are sent, and rejected when they are
//! received.

use super::{MAX_GROUP, MAX_MESSAGE, MAX_PATH, MAX_THREAD_NAME, Violation};
use crate::context::{MAX_KEY, MAX_RESOURCE_TEXT, MAX_VALUE};
use crate::message::{AttributeValue, Event};
use crate::runtime::{MAX_FILE, MAX_NAME};

/// Calls `each` for each text of an event, with a name for error messages, the text, and its limit in bytes.
///
/// # Errors
///
/// The first error of `each`.
pub(super) fn each_text(
    event: &mut Event,
    each: &mut impl FnMut(&'static str, &mut String, usize) -> Result<(), Violation>,
) -> Result<(), Violation> {
    match event {
        Event::Ready(rights) => {
            rights.hints.iter_mut().try_for_each(|hint| each("the length of a hint", hint, MAX_MESSAGE))
        }
        Event::Attached(process) => {
            each("the length of an executable's path", &mut process.executable, MAX_PATH)?;
            let groups = [&mut process.control_group, &mut process.container].into_iter().flatten();
            groups
                .into_iter()
                .try_for_each(|group| each("the length of a control group or container id", group, MAX_GROUP))
        }
        Event::Mapping(mapping) => each("the length of a mapping's path", &mut mapping.path, MAX_PATH),
        Event::Functions { functions, .. } => functions.iter_mut().try_for_each(|function| {
            each("the length of a function's name", &mut function.name, MAX_NAME)?;
            each("the length of a function's module", &mut function.module, MAX_NAME)?;
            each("the length of a function's file", &mut function.file, MAX_FILE)
        }),
        Event::Resource { attributes, .. } => attributes.iter_mut().try_for_each(|(key, value)| {
            each("the length of an attribute's key", key, MAX_KEY)?;
            let AttributeValue::Text(text) = value else { return Ok(()) };
            each("the length of an attribute's value", text, MAX_RESOURCE_TEXT)
        }),
        Event::Batch(batch) => {
            let mut threads = batch.threads.iter_mut();
            threads.try_for_each(|thread| each("the length of a thread's name", &mut thread.name, MAX_THREAD_NAME))?;
            let mut attributes = batch.contexts.iter_mut().flat_map(|context| &mut context.attributes);
            attributes.try_for_each(|(_, value)| each("the length of an attribute's value", value, MAX_VALUE))
        }
        Event::Problem(problem) => each("the length of a message", &mut problem.message, MAX_MESSAGE),
        Event::PerfMap { .. } | Event::Status(_) | Event::Detached { .. } | Event::CommandEnded { .. } => Ok(()),
    }
}
