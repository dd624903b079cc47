//! Spans that were put together become transactions, each in an envelope of its own.

use std::collections::HashMap;
use std::io::{self, Write as _};

use bytes::Bytes;
use profbridge_model::{Losses, Quantities, Reason, SpanForm, Spans};
use profbridge_net::compression::Compression;
use profbridge_wire::sentry::transaction::{Notes, Resource, Summary, Transaction, root};
use profbridge_wire::sentry::{Dsn, Told, transaction_envelope};

use super::Encoder;
use crate::compressor::Compressor;
use crate::message::{Encoded, Message};

/// What an envelope has beside the transaction's JSON, in bytes: its own header and the item's.
const HEADERS: usize = 1024;

/// So many times smaller compression makes a transaction's JSON at least.
const SHRINKS: usize = 3;

/// So many resources of a batch are kept with what their transactions say of them: a gateway's batches have those of
/// many processes, one after the other and again.
const MAX_KEPT: usize = 64;

/// Where the transactions of a resource go.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    /// A number that the caller knows it by.
    pub number: usize,
    /// Its DSN, whose public key the trace header names.
    pub dsn: &'a Dsn,
    /// How its envelopes are compressed.
    pub compression: Compression,
}

impl Encoder {
    /// The transactions of a batch, each in an envelope of its own, with the number of its target. `route` says where
    /// those of a resource go.
    ///
    /// Spans that were not put together to transactions, or come from an envelope, are counted as unroutable, like
    /// those whose resource goes nowhere.
    pub fn transactions<'d>(
        &mut self,
        spans: &Spans,
        mut route: impl FnMut(&Told<'_>) -> Option<Target<'d>>,
    ) -> Encoded<(usize, Summary)> {
        let mut encoded = Encoded::default();
        let mut losses = Losses::default();
        let mut notes = Notes::default();
        let mut kept: HashMap<u32, Option<(Target<'d>, Resource)>> = HashMap::new();
        for segment in spans.segments() {
            let all = Quantities::spans(segment.len() as u64);
            let Some(root) = root(segment).filter(|root| root.segment.is_some() && spans.form() == SpanForm::Otlp)
            else {
                losses.add(Reason::Unroutable, all);
                continue;
            };
            let number = spans.scope_of(root).resource;
            if kept.len() >= MAX_KEPT && !kept.contains_key(&number) {
                kept.clear();
            }
            let known = kept.entry(number).or_insert_with(|| {
                let resource = spans.resource_of(root);
                let target = route(&Told::of_resource(spans, resource))?;
                Some((target, Resource::of(spans, resource, &self.environment)))
            });
            let Some((target, resource)) = known else {
                losses.add(Reason::Unroutable, all);
                continue;
            };
            let Some(transaction) = self.writer.write(spans, segment, resource) else { continue };
            losses.merge(&transaction.losses);
            notes.merge(transaction.notes);
            let quantities = Quantities::spans(transaction.summary.spans);
            match envelope(&mut self.compressor, &transaction, resource, target) {
                Ok(body) => {
                    let meta = (target.number, transaction.summary);
                    encoded.messages.push(Message { body, quantities, samples: 0, meta });
                }
                Err(error) => {
                    losses.add(Reason::Internal, quantities);
                    encoded.report.error = encoded.report.error.take().or(Some(error));
                }
            }
        }
        encoded.report.losses = losses;
        encoded.report.notes = notes.counts().collect();
        encoded
    }
}

fn envelope(
    compressor: &mut Compressor,
    transaction: &Transaction<'_>,
    resource: &Resource,
    to: &Target<'_>,
) -> io::Result<Bytes> {
    let mut open = compressor.open(to.compression, transaction.json.len() + HEADERS, SHRINKS)?;
    open.write_all(transaction_envelope::head(&transaction.summary, resource, to.dsn).as_bytes())?;
    open.write_all(transaction.json)?;
    open.write_all(b"\n")?;
    compressor.close(open)
}
