//! The attribute keys for pprof's fields (semantic-conventions `model/pprof/registry.yaml`).

/// `Profile.comment`: a list of texts.
pub(super) const COMMENT: &str = "pprof.profile.comment";
/// `Profile.doc_url`.
pub(super) const DOC_URL: &str = "pprof.profile.doc_url";
/// `Profile.drop_frames`: functions whose frames, and their callees, are hidden.
pub const DROP_FRAMES: &str = "pprof.profile.drop_frames";
/// `Profile.keep_frames`: functions that are shown although they match [`DROP_FRAMES`].
pub const KEEP_FRAMES: &str = "pprof.profile.keep_frames";
/// `Profile.default_sample_type`, an attribute of the scope.
pub(super) const DEFAULT_SAMPLE_TYPE: &str = "pprof.scope.default_sample_type";
/// `Mapping.build_id`, treated as the linker's build id, as in the Collector.
pub(super) const BUILD_ID: &str = "process.executable.build_id.gnu";
/// `Location.is_folded`.
pub(super) const IS_FOLDED: &str = "pprof.location.is_folded";
/// `Mapping.has_functions` and the following fields, in order.
pub(super) const HAS: [&str; 4] = [
    "pprof.mapping.has_functions",
    "pprof.mapping.has_filenames",
    "pprof.mapping.has_line_numbers",
    "pprof.mapping.has_inline_frames",
];
