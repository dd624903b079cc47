//! Folds stacks to what a person reads: the program's own functions, with what they call in libraries as one frame.
//!
//! Machine code of interpreters, the C library and the kernel is dropped, and its time counts for the function that
//! called it, as in py-spy. Libraries that call the program's own code become one frame (`via fastapi, anyio`), and
//! those that it calls become one frame with the function that was called (`dumps (json)`). The stack of a blocked
//! thread ends with what the thread waits for. Raw stacks stay available.

#[cfg(test)]
mod tests;

use profbridge_wire::sentry::chunk::origin::CodeOrigin;

use super::packages::{BUILT_IN, package};
use super::stacks::{Node, StackFunction, Stacks};
use super::waits::WaitReason;

/// The root of stacks without any function of the program.
pub(crate) const NO_OWN_CODE: &str = "[no own code]";

/// The frame in place of callers that are not known.
pub(crate) const CALLERS_NOT_KNOWN: &str = "[callers not known]";

/// Stands for the work of a garbage collector.
const GARBAGE_COLLECTOR: &str = "[garbage collector]";

/// How many packages above own code are named.
const MOST_VIA: usize = 3;

/// The role of a frame in folding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameRole {
    /// The program's own function.
    Own,
    /// A function of a library.
    Library,
    /// Its time counts for its caller: the C library, an interpreter, the kernel.
    Caller,
    /// Stands for no function.
    Placeholder,
    /// The garbage collector of an interpreter.
    Collector,
}

impl FrameRole {
    pub(crate) fn of(function: &StackFunction) -> Self {
        if function.is_placeholder() {
            return Self::Placeholder;
        }
        match function.origin {
            CodeOrigin::Own => Self::Own,
            CodeOrigin::Kernel => Self::Caller,
            CodeOrigin::Interpreter if is_collector(&function.name) => Self::Collector,
            CodeOrigin::Interpreter => Self::Caller,
            // The C library's start of a program is linked into it.
            CodeOrigin::Library if &*function.name == "_start" => Self::Caller,
            CodeOrigin::Library if is_c_library(&function.module) && !function.is_interpreted => Self::Caller,
            CodeOrigin::Library => Self::Library,
        }
    }
}

/// The entry functions of the garbage collectors of interpreters: CPython, Ruby, PHP, V8.
fn is_collector(name: &str) -> bool {
    const STARTS: [&str; 8] = [
        "gc_collect",
        "_PyGC_",
        "PyGC_Collect",
        "rb_gc",
        "gc_start",
        "zend_gc_",
        "v8::internal::Heap::CollectGarbage",
        "v8::internal::ScavengerCollector",
    ];
    STARTS.iter().any(|start| name.starts_with(start))
}

/// The libraries that every program calls, by file: they start its threads and make its system calls.
fn is_c_library(module: &str) -> bool {
    const NAMES: [&str; 8] = ["libc", "libm", "libpthread", "libdl", "librt", "libstdc++", "libgcc_s", "linux-vdso"];
    let rest = NAMES.iter().find_map(|name| module.strip_prefix(name));
    rest.is_some_and(|rest| rest.starts_with(['.', '-'])) || module.starts_with("ld-") || module.starts_with("[vdso")
}

impl Stacks {
    /// The folded form of a stack; of a blocked thread, with what it waits for. If there is no room for it, the stack
    /// itself.
    pub(crate) fn fold(&mut self, node: Node, is_waiting: bool) -> Node {
        if let Some(&known) = self.folded.get(&(node, is_waiting)) {
            return known;
        }
        let folded = self.fold_anew(node, is_waiting).unwrap_or(node);
        self.folded.insert((node, is_waiting), folded);
        folded
    }

    fn fold_anew(&mut self, node: Node, is_waiting: bool) -> Option<Node> {
        let path = self.path(node);
        let parts: Vec<FrameRole> = path.iter().map(|&function| FrameRole::of(self.get(function))).collect();
        let is_code = |part: &FrameRole| matches!(part, FrameRole::Own | FrameRole::Library);
        let is_interpreted = path.iter().any(|&function| self.get(function).is_interpreted);
        // Calls of an interpreter's own code before the first interpreted function only start the interpreter.
        let start = match is_interpreted {
            true => path.iter().position(|&function| self.get(function).is_interpreted),
            false => parts.iter().position(is_code),
        };
        let first_own = parts.iter().enumerate().position(|(at, part)| *part == FrameRole::Own && Some(at) >= start);
        let mut folded = Folded { stacks: self, node: Node::ROOT, last: None };
        for (&function, _) in path.iter().zip(&parts).filter(|(_, part)| **part == FrameRole::Placeholder) {
            // The placeholder for unknown callers is at the root.
            if &*folded.stacks.get(function).name == CALLERS_NOT_KNOWN {
                folded.push(function)?;
            }
        }
        let Some(start) = start else {
            // Without own code and libraries, the innermost function says most.
            let leaf = (0..path.len()).rev().find(|&at| parts[at] != FrameRole::Placeholder).filter(|_| !is_waiting);
            if let Some(at) = leaf {
                folded.push_new(NO_OWN_CODE.to_owned(), None)?;
                folded.push(path[at])?;
            }
            return folded.finish(&path, &parts, is_waiting);
        };
        let mut rest = start;
        for own in (start..path.len()).filter(|&at| parts[at] == FrameRole::Own) {
            // Libraries above own code start it, and between two of its functions they connect them.
            if is_interpreted || Some(own) == first_own {
                folded.push_via(&path[rest..own], &parts[rest..own])?;
            }
            folded.push(path[own])?;
            rest = own + 1;
        }
        if first_own.is_none() {
            folded.push_new(NO_OWN_CODE.to_owned(), None)?;
        }
        for at in rest..path.len() {
            match parts[at] {
                FrameRole::Library => folded.push_library(path[at])?,
                FrameRole::Collector => folded.push_new(GARBAGE_COLLECTOR.to_owned(), None)?,
                FrameRole::Own | FrameRole::Caller | FrameRole::Placeholder => {}
            }
        }
        folded.finish(&path, &parts, is_waiting)
    }
}

/// A folded stack, from its root.
struct Folded<'a> {
    stacks: &'a mut Stacks,
    node: Node,
    /// The library of the last frame, if that is a library's.
    last: Option<Box<str>>,
}

impl Folded<'_> {
    fn push(&mut self, function: u32) -> Option<()> {
        self.node = self.stacks.child(self.node, function)?;
        self.last = None;
        Some(())
    }

    /// Adds a frame with a new name, in the file of a function, unless the last frame is equal.
    fn push_new(&mut self, name: String, of: Option<u32>) -> Option<()> {
        if self.stacks.innermost(self.node).is_some_and(|last| *last.name == *name) {
            return Some(());
        }
        let function = match of {
            Some(function) => StackFunction {
                name: name.into(),
                origin: CodeOrigin::Library,
                is_folded: true,
                ..self.stacks.get(function).clone()
            },
            None => StackFunction { is_folded: true, ..StackFunction::placeholder(&name) },
        };
        let function = self.stacks.function(function)?;
        self.push(function)
    }

    /// The libraries above own code, as one frame.
    fn push_via(&mut self, path: &[u32], parts: &[FrameRole]) -> Option<()> {
        let mut packages: Vec<Box<str>> = Vec::new();
        for (&function, _) in path.iter().zip(parts).rev().filter(|(_, part)| **part == FrameRole::Library) {
            let package = package(self.stacks.get(function), self.stacks.label_of(function));
            if !package.is_empty() && &*package != BUILT_IN && !packages.contains(&package) && packages.len() < MOST_VIA
            {
                packages.push(package);
            }
        }
        if packages.is_empty() { Some(()) } else { self.push_new(format!("via {}", packages.join(", ")), None) }
    }

    /// Adds a function of a library. Of consecutive functions of one library, only the first is kept. A library that is
    /// called by an extension module belongs to the extension's function.
    fn push_library(&mut self, function: u32) -> Option<()> {
        let of = self.stacks.get(function);
        let (package, is_interpreted) = (package(of, self.stacks.label_of(function)), of.is_interpreted);
        match &self.last {
            Some(last) if *last == package => return Some(()),
            // `pbkdf2_hmac (_hashlib)` calls `PKCS5_PBKDF2_HMAC (libcrypto)`.
            Some(last) if !is_interpreted && last.starts_with('_') && !last.contains(' ') => {
                let (caller, extension) = self.stacks.edge(self.node)?;
                let name = self.stacks.get(extension).name.split(" (").next().unwrap_or_default();
                let name = format!("{name} → {package}");
                self.node = caller;
                self.push_new(name, Some(extension))?;
                self.last = Some(format!("{package} ").into());
                return Some(());
            }
            // Native libraries below another one explain nothing more.
            Some(_) if !is_interpreted => return Some(()),
            _ => {}
        }
        let label = self.stacks.label_of(function);
        let is_nameless = label.starts_with('[') || label.contains("+0x");
        let name = match (is_nameless, package.is_empty()) {
            (true, false) => package.to_string(),
            (_, true) => label.to_owned(),
            (false, false) => format!("{label} ({package})"),
        };
        self.push_new(name, Some(function))?;
        self.last = Some(package);
        Some(())
    }

    /// Adds what a thread waits for, or placeholders that explain the time of a running one.
    fn finish(mut self, path: &[u32], parts: &[FrameRole], is_waiting: bool) -> Option<Node> {
        let is_named = |last: &StackFunction| {
            last.is_placeholder() && WaitReason::of_frame(&last.name) == Some(WaitReason::Transfer)
        };
        if let Some(&last) = path.last().filter(|last| is_waiting && is_named(self.stacks.get(**last))) {
            // The very file or socket.
            self.push(last)?;
        } else if is_waiting {
            let functions = path.iter().rev().map(|&function| self.stacks.get(function));
            let reason = WaitReason::of(functions).frame();
            self.push_new(reason.to_owned(), None)?;
        } else if let (Some(&function), Some(FrameRole::Placeholder)) = (path.last(), parts.last())
            && &*self.stacks.get(function).name != CALLERS_NOT_KNOWN
        {
            self.push(function)?;
        }
        Some(self.node)
    }
}
