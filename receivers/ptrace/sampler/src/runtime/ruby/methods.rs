//! Reads methods: their sequence or C function, and their class.

use std::ops::Range;

use super::layout::RubyLayout;
use super::objects::{self, Class, METHOD, VARIABLES};
use super::search::{self, Located};
use crate::message::FunctionKind;
use crate::runtime::codes::{CachedCode, CodeSource};
use crate::runtime::target::{Bounded, TargetMemory, word_at};
use crate::runtime::{Functions, MAX_NAME, ResolveSession};

/// The path shown for C functions.
const NO_FILE: &str = "<cfunc>";
/// The offset in a method definition of the name with which the method was defined.
const ORIGINAL_NAME: usize = 32;

/// A method: its class, and the fields that identify it.
pub(super) struct Method {
    /// The instruction sequence, if the method has one.
    pub(super) body: u64,
    pub(super) owner: u64,
    fingerprint: [u64; 5],
}

/// Reads a method. A frame may refer to its method through an object with special variables.
pub(super) fn read_method(address: u64, target: &mut Bounded<'_>) -> Option<Method> {
    let mut bytes = [0; 40];
    let mut at = address;
    for _ in 0..2 {
        if at == 0 || at & 7 != 0 || !target.read(at, &mut bytes) {
            return None;
        }
        let flags = word_at(&bytes, 0);
        if objects::is_internal(flags, METHOD) {
            let (class, definition, called, owner) =
                (word_at(&bytes, 8), word_at(&bytes, 16), word_at(&bytes, 24), word_at(&bytes, 32));
            let mut bytes = [0; ORIGINAL_NAME + 8];
            if !target.read(definition, &mut bytes) {
                return None;
            }
            let (body, name) = (word_at(&bytes, 8), word_at(&bytes, ORIGINAL_NAME));
            return Some(Method { body, owner, fingerprint: [class, definition, called, owner, name] });
        }
        if !objects::is_internal(flags, VARIABLES) {
            return None;
        }
        at = word_at(&bytes, 8);
    }
    None
}

/// The fingerprints of a C function's method and of its class; none for the class if it is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MethodPrint {
    method: [u64; 5],
    class: Option<Class>,
}

/// A cached C function.
#[derive(Debug)]
pub(super) struct CFunction {
    fingerprint: MethodPrint,
    pub(super) function: u32,
}

impl CachedCode for CFunction {
    type Fingerprint = MethodPrint;

    const MAX_SHARING: usize = 1;

    fn fingerprint(&self) -> &MethodPrint {
        &self.fingerprint
    }

    fn instructions(&self) -> Range<u64> {
        0..0
    }
}

/// Reads C functions from memory.
pub(super) struct MethodReader<'a> {
    pub(super) layout: &'a RubyLayout,
    pub(super) located: Located,
    /// The array of symbol names, if it was already looked up for this stack.
    pub(super) names: &'a mut Option<Option<u64>>,
}

impl CodeSource for MethodReader<'_> {
    type Code = CFunction;
    /// The name, including that of the class.
    type Texts = String;

    fn read_print(&mut self, address: u64, session: &mut ResolveSession<'_>) -> Option<MethodPrint> {
        let method = read_method(address, &mut session.target)?;
        let class = objects::class(self.layout, &mut session.target, method.owner);
        Some(MethodPrint { method: method.fingerprint, class })
    }

    fn read_texts(
        &mut self,
        _address: u64,
        fingerprint: &MethodPrint,
        session: &mut ResolveSession<'_>,
    ) -> Option<String> {
        let (layout, target) = (self.layout, &mut session.target);
        let names = self.names.get_or_insert_with(|| search::names(self.located, layout, target));
        let [.., number] = fingerprint.method;
        let name = objects::symbol(layout, target, (*names)?, number, MAX_NAME)?;
        let class = fingerprint.class.and_then(|class| Some((class.name(layout, target, MAX_NAME)?, class.join())));
        Some(class.map_or(name.clone(), |(class, join)| format!("{class}{join}{name}")))
    }

    fn make_code(
        &mut self,
        fingerprint: MethodPrint,
        name: String,
        _: Option<&CFunction>,
        functions: &mut Functions,
    ) -> CFunction {
        CFunction { fingerprint, function: functions.number(FunctionKind::Ruby, &name, NO_FILE, 0) }
    }

    fn read_line(&mut self, _code: &CFunction, _instruction: u64, _session: &mut ResolveSession<'_>) -> Option<u32> {
        Some(0)
    }
}
