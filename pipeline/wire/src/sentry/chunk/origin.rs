//! The origin of a frame's code, for flame graphs and lists of functions: own code is exactly the code that a chunk
//! marks as `in_app`.

use profbridge_model::{Dictionary, Line, LocationId, Profiles, StackId, Value};

use super::in_app::{self, FrameOrigin};
use super::module::{self, Roots};
use super::path::basename;
use super::program::Program;
use super::runtime::Runtime;
use super::settings::InApp;
use super::source::FrameSource;
use crate::folded::main_executable;

/// The origin of a frame's code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CodeOrigin {
    /// The profiled program.
    Own,
    /// A library of the system, a language or a package.
    Library,
    /// Machine code of an interpreter or a virtual machine.
    Interpreter,
    /// The kernel.
    Kernel,
}

/// Classifies the frames of one batch by the default rules of `in_app`.
#[derive(Debug)]
pub struct Origins<'a> {
    dictionary: &'a Dictionary,
    rules: InApp,
    /// The runtime of each location, by its index.
    runtimes: Vec<Runtime>,
    program: Option<Program>,
    /// The main executables of the batch's processes.
    executables: Vec<&'a str>,
}

impl<'a> Origins<'a> {
    /// Prepares for the frames of a batch.
    pub fn new(batch: &'a Profiles) -> Self {
        let dictionary = &**batch.dictionary();
        let tables = dictionary.tables();
        let runtimes: Vec<Runtime> =
            tables.locations.iter().map(|location| Runtime::of_location(dictionary, location)).collect();
        let is_python = |id: LocationId| runtimes[id.index()] == Runtime::Python;
        let stacks = (1..tables.stacks.len() as u32).filter_map(StackId::new);
        let program =
            runtimes.contains(&Runtime::Python).then(|| Program::find(dictionary, stacks, is_python)).flatten();
        let executables = batch.resources().iter().filter_map(|resource| main_executable(batch, &resource.resource));
        Self { dictionary, rules: InApp::default(), runtimes, program, executables: executables.collect() }
    }

    /// Whether an interpreter or a virtual machine executes the functions of a location.
    pub fn is_interpreted(&self, id: LocationId) -> bool {
        self.runtimes[id.index()].is_managed()
    }

    /// The origin of a location's line, or of a location without lines.
    pub fn of(&self, id: LocationId, line: Option<&Line>) -> CodeOrigin {
        let (runtime, location) = (self.runtimes[id.index()], self.dictionary.location(id));
        // Frames of earlier chunks keep the sender's decision.
        if let Some(Value::Bool(own)) = self.dictionary.find(location.attributes, "sentry.frame.in_app") {
            return if *own { CodeOrigin::Own } else { CodeOrigin::Library };
        }
        let source = FrameSource::of(self.dictionary, runtime, location, line.unwrap_or(&Line::default()));
        let module = basename(source.package);
        if runtime == Runtime::Kernel || module.starts_with(b"[kernel") || module == b"vmlinux" {
            return CodeOrigin::Kernel;
        }
        if !runtime.is_managed() && in_app::is_virtual_machine(source.package) {
            return CodeOrigin::Interpreter;
        }
        let roots = Roots {
            configured: &self.rules.source_roots,
            program: self.program.as_ref().filter(|_| runtime == Runtime::Python),
        };
        let name = module::qualified_name(runtime, &source, roots);
        let path = source.path();
        let executable = self.executables.iter().find(|main| basename(main.as_bytes()) == module);
        let place = FrameOrigin {
            function: &name.function,
            module: &name.module,
            path: &path,
            package: source.package,
            executable: executable.map_or(b"", |main| main.as_bytes()),
        };
        if in_app::in_app(&self.rules, roots, runtime, &place) { CodeOrigin::Own } else { CodeOrigin::Library }
    }
}
