//! The code of one process: functions, locations, a call graph, and the stacks that occur in it.
//!
//! The call graph grows with the stacks: a new stack keeps the root part of an earlier one and continues from there,
//! mostly along existing calls. So stacks look like those of a real program, and the tables reach the sizes of the
//! recipe.

use std::collections::HashSet;

use fastrand::Rng;

use super::names::{self, WorkloadRuntime};
use super::shape::Recipe;

#[derive(Clone, Debug)]
pub(super) struct Binary {
    pub(super) file: String,
    pub(super) gnu_id: String,
    pub(super) htlhash: String,
    /// The ELF addresses of its text; both 0 for the kernel.
    pub(super) range: std::ops::Range<u64>,
}

/// A function; either text may be empty, but not both.
#[derive(Clone, Debug)]
pub(super) struct WorkloadFunction {
    pub(super) name: String,
    pub(super) file: String,
}

/// A location; lines are (function, line), innermost first.
#[derive(Clone, Debug)]
pub(super) struct WorkloadLocation {
    pub(super) frame_type: &'static str,
    pub(super) binary: Option<usize>,
    pub(super) address: u64,
    pub(super) lines: Vec<(usize, i64)>,
}

/// Libraries that every process maps after its executable; the last one is the kernel.
const LIBRARIES: [&str; 8] = [
    "libc.so.6",
    "libm.so.6",
    "libstdc++.so.6",
    "libssl.so.3",
    "libcrypto.so.3",
    "libz.so.1",
    "ld-linux-x86-64.so.2",
    "vmlinux",
];

/// The fraction of locations in libraries.
const LIBRARY: f64 = 0.14;

/// The fraction of locations in libraries and the kernel.
const KERNEL: f64 = 0.22;

/// The code of one process.
#[derive(Clone, Debug)]
pub(super) struct Code {
    rng: Rng,
    recipe: Recipe,
    runtime: WorkloadRuntime,
    pub(super) binaries: Vec<Binary>,
    files: Vec<String>,
    pub(super) functions: Vec<WorkloadFunction>,
    known_names: HashSet<String>,
    pub(super) locations: Vec<WorkloadLocation>,
    callees: Vec<Vec<usize>>,
    /// The stacks, each with its leaf first.
    pub(super) stacks: Vec<Vec<usize>>,
    known_stacks: HashSet<Vec<usize>>,
}

impl Code {
    pub(super) fn new(recipe: Recipe, runtime: WorkloadRuntime, executable: &str, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let binaries = binaries(&mut rng, executable);
        let files = (0..recipe.files).map(|_| names::path(&mut rng, runtime)).collect();
        let mut code = Self {
            rng,
            recipe,
            runtime,
            binaries,
            files,
            functions: Vec::new(),
            known_names: HashSet::new(),
            locations: Vec::new(),
            callees: Vec::new(),
            stacks: Vec::new(),
            known_stacks: HashSet::new(),
        };
        code.grow(recipe.stacks);
        code
    }

    /// Adds stacks until there are `count`. Stacks beyond the recipe's number add few new locations.
    pub(super) fn grow(&mut self, count: usize) {
        while self.stacks.len() < count {
            let stack = self.stack();
            if self.known_stacks.insert(stack.clone()) {
                self.stacks.push(stack);
            }
        }
    }

    /// A new stack that shares 70 to 85 % of its root part with an earlier one.
    fn stack(&mut self) -> Vec<usize> {
        let deviation = self.recipe.spread * (2.0 * self.rng.f64() - 1.0);
        let length = (self.recipe.depth as f64 * (1.0 + deviation)).round() as usize;
        let shared = (length as f64 * (0.70 + 0.15 * self.rng.f64())) as usize;
        let parent = skewed(&mut self.rng, self.stacks.len(), self.recipe.elders);
        let mut root_first: Vec<usize> = match self.stacks.get(parent) {
            Some(parent) if self.stacks.len() >= self.recipe.roots => {
                parent.iter().rev().copied().take(shared).collect()
            }
            _ => Vec::new(),
        };
        while root_first.len() < length.max(2) {
            let next = self.call(root_first.last().copied());
            root_first.push(next);
        }
        root_first.reverse();
        root_first
    }

    /// A location called from `caller`. It is new with such a probability that the last stack reaches the recipe's
    /// number of locations.
    fn call(&mut self, caller: Option<usize>) -> usize {
        let frames_left =
            self.recipe.stacks.saturating_sub(self.stacks.len()) as f64 * self.recipe.depth as f64 * 0.225;
        let missing = (self.recipe.locations - 1).saturating_sub(self.locations.len()) as f64;
        let fresh = if frames_left >= 1.0 { missing / frames_left } else { 0.02 };
        if self.locations.is_empty() || self.stacks.len() < self.recipe.roots || self.rng.f64() < fresh {
            let location = self.location();
            self.locations.push(location);
            self.callees.push(Vec::new());
            return self.connect(caller, self.locations.len() - 1);
        }
        let known = caller.map_or(0, |caller| self.callees[caller].len());
        if let Some(caller) = caller.filter(|_| known > 0 && self.rng.f64() < 0.85) {
            return self.callees[caller][skewed(&mut self.rng, known, 2.0)];
        }
        let callee = skewed(&mut self.rng, self.locations.len(), 1.5);
        self.connect(caller, callee)
    }

    fn connect(&mut self, caller: Option<usize>, callee: usize) -> usize {
        if let Some(caller) = caller {
            self.callees[caller].push(callee);
        }
        callee
    }

    fn location(&mut self) -> WorkloadLocation {
        let place = self.rng.f64();
        let kernel = self.binaries.len() - 1;
        let (frame_type, binary) = match place {
            _ if place < LIBRARY => ("native", Some(self.rng.usize(1..kernel))),
            _ if place < KERNEL => ("kernel", Some(kernel)),
            _ if self.runtime.is_compiled() => (self.runtime.frame_type(), Some(0)),
            _ => (self.runtime.frame_type(), None),
        };
        let address = match binary {
            Some(binary) if binary == kernel => self.rng.u64(0x1000..0x80_0000),
            Some(binary) => self.rng.u64(self.binaries[binary].range.clone()),
            None => self.rng.u64(..400),
        };
        let has_symbol = frame_type != "native" || self.rng.f64() < 0.7;
        let mut lines = Vec::new();
        if has_symbol {
            lines.push(self.line(frame_type));
            if self.rng.f64() < 0.1 {
                let outer = self.rng.usize(..self.functions.len());
                lines.push((outer, self.rng.i64(1..900)));
            }
        }
        WorkloadLocation { frame_type, binary, address, lines }
    }

    /// A line in a function. The function is new with such a probability that the last location reaches the recipe's
    /// number of functions.
    fn line(&mut self, frame_type: &str) -> (usize, i64) {
        let missing = (self.recipe.functions - 1).saturating_sub(self.functions.len()) as f64;
        // About 4 % of the locations have no symbol.
        let locations_left = (self.recipe.locations.saturating_sub(self.locations.len()) as f64 * 0.96).max(1.0);
        let line = if frame_type == "kernel" { 0 } else { self.rng.i64(1..900) };
        if !self.functions.is_empty() && self.rng.f64() >= missing / locations_left {
            return (self.rng.usize(..self.functions.len()), line);
        }
        let mut name = self.name(frame_type);
        while !self.known_names.insert(name.clone()) {
            name.push_str(&format!("_{}", self.rng.u16(..)));
        }
        let file = match frame_type {
            "kernel" => String::new(),
            _ => self.files[skewed(&mut self.rng, self.files.len(), 1.2)].clone(),
        };
        self.functions.push(WorkloadFunction { name, file });
        (self.functions.len() - 1, line)
    }

    fn name(&mut self, frame_type: &str) -> String {
        match frame_type {
            "kernel" => names::kernel_function(&mut self.rng),
            "native" => names::function(&mut self.rng, WorkloadRuntime::Cxx),
            _ => names::function(&mut self.rng, self.runtime),
        }
    }
}

fn binaries(rng: &mut Rng, executable: &str) -> Vec<Binary> {
    let executable = crate::naive::basename(executable);
    let mut binary = |file: &str, start: u64, size: u64| Binary {
        file: file.to_owned(),
        gnu_id: names::hex(rng, 20),
        htlhash: names::hex(rng, 16),
        range: start..start + size,
    };
    let mut binaries = vec![binary(executable, 0x40_1000, 0x180_0000)];
    for library in LIBRARIES {
        let (start, size) = if library == "vmlinux" { (0, 0) } else { (0x2_6000, 0x16_0000) };
        binaries.push(binary(library, start, size));
    }
    binaries
}

/// A random index below `len`. The greater `skew`, the more small indices are preferred (1 for no preference). 0 if
/// `len` is 0.
pub(super) fn skewed(rng: &mut Rng, len: usize, skew: f64) -> usize {
    ((rng.f64().powf(skew) * len as f64) as usize).min(len.saturating_sub(1))
}
