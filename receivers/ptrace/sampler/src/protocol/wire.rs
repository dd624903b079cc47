//! The messages in protobuf. A table is a set of columns of equal length; one row has the same index in each.

use prost::{Message, Oneof};

#[derive(Clone, PartialEq, Message)]
pub(super) struct CommandPacket {
    #[prost(oneof = "CommandBody", tags = "1, 2, 3, 4")]
    pub(super) body: Option<CommandBody>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum CommandBody {
    #[prost(message, tag = "1")]
    Watch(Target),
    #[prost(uint32, tag = "2")]
    Unwatch(u32),
    #[prost(message, tag = "3")]
    Sample(Switch),
    #[prost(bool, tag = "4")]
    Stop(bool),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Switch {
    #[prost(uint64, tag = "1")]
    pub(super) process: u64,
    #[prost(bool, tag = "2")]
    pub(super) on: bool,
    #[prost(bool, tag = "3")]
    pub(super) from_start: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Target {
    #[prost(uint32, tag = "1")]
    pub(super) id: u32,
    #[prost(oneof = "Select", tags = "2, 3, 4, 5, 6, 7, 17")]
    pub(super) select: Option<Select>,
    #[prost(double, tag = "8")]
    pub(super) rate_hertz: f64,
    #[prost(bool, tag = "9")]
    pub(super) cpu: bool,
    #[prost(double, tag = "10")]
    pub(super) max_cpu: f64,
    #[prost(double, tag = "11")]
    pub(super) max_stopped: f64,
    #[prost(uint64, tag = "12")]
    pub(super) max_stack: u64,
    #[prost(uint64, tag = "13")]
    pub(super) max_processes: u64,
    #[prost(string, repeated, tag = "14")]
    pub(super) environment: Vec<String>,
    #[prost(bool, tag = "15")]
    pub(super) sample_at_once: bool,
    #[prost(uint32, tag = "16")]
    pub(super) stops: u32,
    #[prost(string, repeated, tag = "19")]
    pub(super) thread_attributes: Vec<String>,
    #[prost(bool, tag = "18")]
    pub(super) subprocesses: bool,
    #[prost(bool, tag = "20")]
    pub(super) interpreters: bool,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Select {
    #[prost(uint32, tag = "2")]
    Pid(u32),
    #[prost(message, tag = "3")]
    Command(Words),
    #[prost(string, tag = "4")]
    Executable(String),
    #[prost(string, tag = "5")]
    CommandLine(String),
    #[prost(string, tag = "6")]
    ControlGroup(String),
    #[prost(string, tag = "7")]
    Container(String),
    #[prost(string, tag = "17")]
    Name(String),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Words {
    #[prost(bytes = "vec", repeated, tag = "1")]
    pub(super) words: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct EventPacket {
    #[prost(oneof = "EventBody", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11")]
    pub(super) body: Option<EventBody>,
}

#[derive(Clone, PartialEq, Oneof)]
#[allow(clippy::large_enum_variant, reason = "one is alive at a time")]
pub(super) enum EventBody {
    #[prost(message, tag = "1")]
    Ready(Rights),
    #[prost(message, tag = "2")]
    Attached(Process),
    #[prost(message, tag = "3")]
    Mapping(Mapping),
    #[prost(uint64, tag = "4")]
    PerfMap(u64),
    #[prost(message, tag = "5")]
    Batch(Batch),
    #[prost(message, tag = "6")]
    Status(Status),
    #[prost(message, tag = "7")]
    Problem(Problem),
    #[prost(message, tag = "8")]
    Detached(Detached),
    #[prost(message, tag = "9")]
    CommandEnded(CommandEnded),
    #[prost(message, tag = "10")]
    Functions(Functions),
    #[prost(message, tag = "11")]
    Resource(Resource),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Rights {
    #[prost(bool, tag = "1")]
    pub(super) trace_others: bool,
    #[prost(bool, tag = "2")]
    pub(super) raised_priority: bool,
    #[prost(string, repeated, tag = "3")]
    pub(super) hints: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Process {
    #[prost(uint64, tag = "1")]
    pub(super) id: u64,
    #[prost(uint32, tag = "2")]
    pub(super) target: u32,
    #[prost(uint32, tag = "3")]
    pub(super) pid: u32,
    #[prost(uint32, tag = "4")]
    pub(super) namespace_pid: u32,
    #[prost(uint64, tag = "5")]
    pub(super) start_unix_nano: u64,
    #[prost(string, tag = "6")]
    pub(super) executable: String,
    #[prost(string, repeated, tag = "7")]
    pub(super) arguments: Vec<String>,
    #[prost(uint32, tag = "8")]
    pub(super) user: u32,
    #[prost(string, optional, tag = "9")]
    pub(super) control_group: Option<String>,
    #[prost(string, optional, tag = "10")]
    pub(super) container: Option<String>,
    #[prost(message, repeated, tag = "11")]
    pub(super) environment: Vec<Variable>,
    #[prost(fixed64, tag = "12")]
    pub(super) exec_id: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Variable {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) value: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Mapping {
    #[prost(uint64, tag = "1")]
    pub(super) process: u64,
    #[prost(uint32, tag = "2")]
    pub(super) index: u32,
    #[prost(string, tag = "3")]
    pub(super) path: String,
    #[prost(uint64, tag = "4")]
    pub(super) start: u64,
    #[prost(uint64, tag = "5")]
    pub(super) end: u64,
    #[prost(uint64, tag = "6")]
    pub(super) file_offset: u64,
    #[prost(bytes = "vec", optional, tag = "7")]
    pub(super) build_id: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "8")]
    pub(super) htlhash: Option<Vec<u8>>,
    #[prost(bool, tag = "9")]
    pub(super) main: bool,
    #[prost(bool, tag = "10")]
    pub(super) go: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Functions {
    #[prost(uint64, tag = "1")]
    pub(super) process: u64,
    #[prost(uint32, tag = "2")]
    pub(super) first: u32,
    #[prost(uint32, repeated, tag = "3")]
    pub(super) kinds: Vec<u32>,
    #[prost(string, repeated, tag = "4")]
    pub(super) names: Vec<String>,
    #[prost(string, repeated, tag = "5")]
    pub(super) files: Vec<String>,
    #[prost(uint32, repeated, tag = "6")]
    pub(super) lines: Vec<u32>,
    #[prost(string, repeated, tag = "7")]
    pub(super) modules: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Resource {
    #[prost(uint64, tag = "1")]
    pub(super) process: u64,
    #[prost(message, repeated, tag = "2")]
    pub(super) attributes: Vec<Attribute>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Attribute {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(oneof = "AttributeValue", tags = "2, 3")]
    pub(super) value: Option<AttributeValue>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum AttributeValue {
    #[prost(string, tag = "2")]
    Text(String),
    #[prost(sint64, tag = "3")]
    Int(i64),
}

/// Marks the number of an interpreted function in the column of mappings.
pub(super) const INTERPRETED: u32 = 1 << 31;

#[derive(Clone, PartialEq, Message)]
pub(super) struct Batch {
    #[prost(uint64, tag = "1")]
    pub(super) process: u64,
    #[prost(uint64, tag = "2")]
    pub(super) period_nano: u64,
    #[prost(bool, tag = "3")]
    pub(super) cpu: bool,
    #[prost(uint32, repeated, tag = "4")]
    pub(super) thread_ids: Vec<u32>,
    #[prost(uint32, repeated, tag = "5")]
    pub(super) thread_namespace_ids: Vec<u32>,
    #[prost(string, repeated, tag = "6")]
    pub(super) thread_names: Vec<String>,
    #[prost(uint64, repeated, tag = "7")]
    pub(super) thread_pointers: Vec<u64>,
    /// 0 for no mapping, else its index plus 1; of an interpreted function its number and [`INTERPRETED`].
    #[prost(uint32, repeated, tag = "8")]
    pub(super) location_mappings: Vec<u32>,
    /// Of an interpreted function the line.
    #[prost(uint64, repeated, tag = "9")]
    pub(super) location_addresses: Vec<u64>,
    /// The length of the perf map, where code was compiled at run time.
    #[prost(uint32, repeated, tag = "24")]
    pub(super) location_map_lengths: Vec<u32>,
    #[prost(uint32, repeated, tag = "10")]
    pub(super) stack_trusts: Vec<u32>,
    #[prost(uint32, repeated, tag = "11")]
    pub(super) stack_lengths: Vec<u32>,
    /// The locations of all stacks, concatenated.
    #[prost(uint32, repeated, tag = "12")]
    pub(super) stack_locations: Vec<u32>,
    #[prost(uint32, repeated, tag = "13")]
    pub(super) sample_threads: Vec<u32>,
    #[prost(uint32, repeated, tag = "14")]
    pub(super) sample_stacks: Vec<u32>,
    /// Each relative to the sample before.
    #[prost(sint64, repeated, tag = "15")]
    pub(super) sample_times: Vec<i64>,
    #[prost(uint64, repeated, tag = "16")]
    pub(super) sample_weights: Vec<u64>,
    #[prost(uint32, repeated, tag = "17")]
    pub(super) sample_observations: Vec<u32>,
    #[prost(bool, repeated, tag = "18")]
    pub(super) sample_blocked: Vec<bool>,
    /// Trace id and span id of each context, 24 bytes; zeros for none.
    #[prost(bytes = "vec", tag = "19")]
    pub(super) context_ids: Vec<u8>,
    /// How many attributes each context has.
    #[prost(uint32, repeated, tag = "20")]
    pub(super) context_lengths: Vec<u32>,
    /// The attributes of all contexts, concatenated.
    #[prost(uint32, repeated, tag = "21")]
    pub(super) context_keys: Vec<u32>,
    #[prost(string, repeated, tag = "22")]
    pub(super) context_values: Vec<String>,
    /// 0 for none, else the index of a context plus 1.
    #[prost(uint32, repeated, tag = "23")]
    pub(super) sample_contexts: Vec<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Status {
    #[prost(uint64, tag = "1")]
    pub(super) process: u64,
    #[prost(double, tag = "2")]
    pub(super) rate_hertz: f64,
    /// In the order of the list in `status.rs`.
    #[prost(uint64, repeated, tag = "3")]
    pub(super) counters: Vec<u64>,
    #[prost(uint64, repeated, tag = "4")]
    pub(super) stop_lengths: Vec<u64>,
    #[prost(uint32, tag = "5")]
    pub(super) level: u32,
    #[prost(uint64, repeated, tag = "6")]
    pub(super) read_behind: Vec<u64>,
    #[prost(uint64, repeated, tag = "7")]
    pub(super) read_stopped: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Problem {
    #[prost(uint32, tag = "1")]
    pub(super) target: u32,
    #[prost(uint32, optional, tag = "2")]
    pub(super) pid: Option<u32>,
    #[prost(uint32, tag = "3")]
    pub(super) kind: u32,
    #[prost(string, tag = "4")]
    pub(super) message: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Detached {
    #[prost(uint64, tag = "1")]
    pub(super) process: u64,
    #[prost(uint32, tag = "2")]
    pub(super) why: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CommandEnded {
    #[prost(uint32, tag = "1")]
    pub(super) target: u32,
    #[prost(int32, tag = "2")]
    pub(super) code: i32,
}
