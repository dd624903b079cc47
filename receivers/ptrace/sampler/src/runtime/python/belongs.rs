//! Finds the module that defines a function, and up to 3.10 its class.
//!
//! Both are determined as in Sentry's SDK (getsentry/sentry-python `sentry_sdk/profiler/utils.py`): the module is the
//! global variable `__name__` of the frame, and, if code has no qualified name, the class is that of the first
//! variable, provided that it is called `self` or `cls`.

use super::dict;
use super::layout::{MethodLayout, PythonLayout};
use super::text;
use crate::runtime::MAX_NAME;
use crate::runtime::target::{TargetMemory, word, word_at};

/// How many variables of a module may precede its `__name__`, which import sets first.
const MAX_BEFORE: usize = 16;
/// The maximum number of base classes.
const MAX_BASES: u64 = 64;
/// The maximum number of class members examined.
const MAX_MEMBERS: usize = 1024;
/// The longest name of a class, in bytes.
const MAX_CLASS: usize = 256;
/// Offsets in a type, up to 3.10: the dictionary of its members, and the list of the type itself and its bases in
/// method resolution order.
const MEMBERS: u64 = 264;
const ORDER: u64 = 344;
/// The offset of the first item in a tuple.
const ITEMS: u64 = 24;

/// The result of the search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum OwnerName {
    /// The name of the module or class.
    Is(String),
    /// The function has no module or class.
    Nothing,
    /// The name could not be read this time.
    Later,
}

/// The name of the module with these global variables.
pub(super) fn module(layout: &PythonLayout, globals: u64, target: &mut dyn TargetMemory) -> OwnerName {
    let kind = dict::type_of(layout, globals, target);
    if !kind.is_some_and(|kind| dict::is_a(layout, kind, b"dict", target)) {
        return OwnerName::Later;
    }
    let Some(entries) = dict::entries(layout, globals, MAX_BEFORE, target) else { return OwnerName::Later };
    for dict::DictEntry { key, value, .. } in entries {
        if value != 0 && text::is(&layout.object, target, key, "__name__") {
            return text::string(&layout.object, target, value, MAX_NAME).map_or(OwnerName::Later, OwnerName::Is);
        }
    }
    OwnerName::Nothing
}

/// The class of a method, found from a frame that executes it.
pub(super) fn class(
    layout: &PythonLayout,
    method: MethodLayout,
    frame: u64,
    code: u64,
    target: &mut dyn TargetMemory,
) -> OwnerName {
    let field = |target: &mut dyn TargetMemory, at: u32| word(target, code.wrapping_add(at.into()));
    let (Some(variables), Some(name)) = (field(target, method.variables), field(target, layout.code.name)) else {
        return OwnerName::Later;
    };
    let first = match text::length(&layout.object, target, variables) {
        Some(0) => None,
        _ => word(target, variables.wrapping_add(ITEMS)),
    };
    let first = first.and_then(|first| text::string(&layout.object, target, first, MAX_NAME));
    let is_class = match first.as_deref() {
        Some("self") => false,
        Some("cls") => true,
        _ => return OwnerName::Nothing,
    };
    let value = |target: &mut dyn TargetMemory| {
        let is_it = word(target, frame.wrapping_add(layout.frame.code.into())) == Some(code);
        word(target, frame.wrapping_add(method.first_variable.into())).filter(|value| is_it && *value != 0)
    };
    let Some(object) = value(target) else { return OwnerName::Later };
    let kind = if is_class { Some(object) } else { dict::type_of(layout, object, target) };
    let Some(kind) = kind.filter(|kind| dict::is_class(layout, *kind, target)) else { return OwnerName::Later };
    let Some(order) = word(target, kind.wrapping_add(ORDER)) else { return OwnerName::Later };
    let count = text::length(&layout.object, target, order).unwrap_or(0).min(MAX_BASES);
    let mut classes = vec![0; count as usize * 8];
    if !target.read(order.wrapping_add(ITEMS), &mut classes) {
        return OwnerName::Later;
    }
    let mut by_name = None;
    for at in (0..classes.len()).step_by(8) {
        let class = word_at(&classes, at);
        let Some(members) = word(target, class.wrapping_add(MEMBERS)) else { continue };
        let Some(members) = dict::entries(layout, members, MAX_MEMBERS, target) else { continue };
        // Names of functions and of members are interned, so their addresses can be compared.
        let member = members.into_iter().find(|member| member.key == name && member.value != 0);
        let Some(member) = member else { continue };
        if is_made_of(layout, method, member.value, code, target) {
            return class_name(layout, class, target).map_or(OwnerName::Later, OwnerName::Is);
        }
        by_name.get_or_insert(class);
    }
    // A decorator has replaced the member. The frame still exists, so the object belongs to this call.
    match by_name {
        Some(class) if value(target) == Some(object) => {
            class_name(layout, class, target).map_or(OwnerName::Later, OwnerName::Is)
        }
        Some(_) => OwnerName::Later,
        None => OwnerName::Nothing,
    }
}

/// Whether a member of a class is the function with this code, or one of Python's own wrappers around it.
fn is_made_of(
    layout: &PythonLayout,
    method: MethodLayout,
    member: u64,
    code: u64,
    target: &mut dyn TargetMemory,
) -> bool {
    let is_function = |target: &mut dyn TargetMemory, object: u64| {
        let kind = dict::type_of(layout, object, target);
        kind.is_some_and(|kind| dict::is_a(layout, kind, b"function", target))
            && word(target, object.wrapping_add(method.function_code.into())) == Some(code)
    };
    let Some(kind) = dict::type_of(layout, member, target) else { return false };
    let parts: &[u64] = if dict::is_a(layout, kind, b"property", target) {
        &[16, 24, 32]
    } else if dict::is_a(layout, kind, b"classmethod", target) || dict::is_a(layout, kind, b"staticmethod", target) {
        &[16]
    } else {
        return is_function(target, member);
    };
    parts.iter().any(|at| {
        let part = word(target, member.wrapping_add(*at)).filter(|part| *part != 0);
        part.is_some_and(|part| is_function(target, part))
    })
}

fn class_name(layout: &PythonLayout, class: u64, target: &mut dyn TargetMemory) -> Option<String> {
    let at = dict::type_name(layout, class, target)?;
    let mut bytes = vec![0; MAX_CLASS];
    if !target.read(at, &mut bytes) {
        bytes.truncate(32);
        if !target.read(at, &mut bytes) {
            return None;
        }
    }
    let end = bytes.iter().position(|byte| *byte == 0)?;
    Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
}
