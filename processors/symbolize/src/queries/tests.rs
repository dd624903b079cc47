use profbridge_model::Builder;
use profbridge_symbolizer::SymbolAnswer;

use super::*;

/// A source of names that wants the processes of every file.
struct Curious;

impl NameSource for Curious {
    fn wants_processes(&self, _: &FileId) -> bool {
        true
    }

    fn ask(&mut self, _: &MappedFile, _: &[CodeAddress]) {}

    fn answer(&mut self, _: &FileId, _: CodeAddress, _: bool) -> SymbolAnswer {
        SymbolAnswer::Pending
    }
}

/// Guarantees: the processes of a file are those with a sample in the file, at most four. A sample's attributes
/// override its resource's, and a process without any usable attribute is ignored.
#[test]
fn processes_of_a_file() {
    let mut builder = Builder::new();
    builder.resource(&[("process.executable.path", "/usr/bin/agent".into()), ("host.name", "node-1".into())]);
    let stack = |builder: &mut Builder, build_id: &str| {
        let attributes = builder.attributes(&[("process.executable.build_id.gnu", build_id.into())]);
        let mapping = builder.mapping(Mapping { memory_limit: 4096, attributes, ..Mapping::default() });
        let location = profbridge_model::Location { mapping, address: 8, ..Default::default() };
        let location = builder.location(location, &[]);
        builder.stack(&[location])
    };
    let (app, lib) = (stack(&mut builder, "aabb"), stack(&mut builder, "ccdd"));
    for pid in 1..8 {
        let own = builder.attributes(&[
            ("process.pid", pid.into()),
            ("process.executable.path", "/app".into()),
            ("container.id", "c".into()),
        ]);
        builder.sample(lib, own, None, &[1], &[]);
        if pid == 2 {
            builder.sample(app, own, None, &[1], &[]);
        }
    }
    builder.resource(&[("service.name", "nobody".into())]);
    builder.sample(app, None, None, &[1], &[]);
    let found = Queries::of(&builder.finish().unwrap(), &Curious);
    let pids = |at: usize| found.files[at].processes.iter().map(|process| process.pid.unwrap()).collect::<Vec<_>>();
    assert_eq!((pids(0), pids(1)), (vec![2], vec![1, 2, 3, 4]));
    let process = &found.files[0].processes[0];
    assert_eq!((process.executable.as_deref(), process.contained), (Some("/app"), true));
    assert_eq!(process.hosts, ["node-1".into()]);
}
