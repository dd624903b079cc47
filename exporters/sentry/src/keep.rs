//! At shutdown, unsent requests are written to files exactly as they would have been sent, for `profbridge send`.
//!
//! Each DSN has a folder, whose file `dsn` contains the DSN, since few envelopes name it themselves. Bodies stay
//! compressed: data from clients may expand a thousandfold.

use std::fs::{self, DirBuilder, OpenOptions};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use profbridge_engine::component::{Now, Request};

use crate::destination::Destination;
use crate::prepare::Meta;

pub use crate::prepare::BodyForm;
pub use crate::spans::as_transactions;

/// Name of the file with a folder's DSN.
pub const DSN_FILE: &str = "dsn";

/// A request that was not sent.
pub(crate) struct Unsent {
    destination: Arc<Destination>,
    body: Bytes,
    encoding: Option<&'static str>,
    /// When the request was queued, in nanoseconds since the Unix epoch.
    since: u64,
    form: BodyForm,
}

impl Unsent {
    pub(crate) fn new(request: &Request<Meta>, now: Now) -> Self {
        let meta = &request.meta;
        let since = meta.arrived.as_ref().map_or(now.unix_nano, |(_, arrival)| *arrival);
        let encoding = meta.body.content_encoding();
        let destination = Arc::clone(&meta.destination);
        Self { destination, body: request.body.clone(), encoding, since, form: meta.form }
    }
}

/// Writes requests below a folder, in order. Returns how many were written, and the error that stopped the rest.
pub(crate) fn write(folder: &Path, unsent: &[Unsent]) -> (usize, Option<io::Error>) {
    for (kept, unsent) in unsent.iter().enumerate() {
        if let Err(error) = write_one(folder, unsent, kept) {
            return (kept, Some(error));
        }
    }
    (unsent.len(), None)
}

fn write_one(folder: &Path, unsent: &Unsent, number: usize) -> io::Result<()> {
    let dsn = &unsent.destination.dsn;
    let address = dsn.without_secret();
    let mut hasher = DefaultHasher::new();
    address.hash(&mut hasher);
    let folder = folder.join(format!("{}-{:016x}", dsn.project_id(), hasher.finish()));
    // Only the owner may read the DSN's key and the clients' data.
    let create = |path: &Path| OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    if !folder.join(DSN_FILE).exists() {
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        create(&folder.join(DSN_FILE))?.write_all(address.as_bytes())?;
    }
    let Unsent { body, encoding, since, form, .. } = unsent;
    let coding = encoding.map(|encoding| format!(".{encoding}")).unwrap_or_default();
    let path = folder.join(format!("{since:020}-{}-{number:06}{}{coding}", std::process::id(), form.ending()));
    let written = create(&path).and_then(|mut file| {
        file.write_all(body)?;
        // `send` computes from this how long the envelope has waited.
        file.set_modified(UNIX_EPOCH + Duration::from_nanos(*since))
    });
    if written.is_err() {
        // A truncated file is useless. If it cannot be removed either, `send` will refuse it.
        drop(fs::remove_file(&path));
    }
    written
}
