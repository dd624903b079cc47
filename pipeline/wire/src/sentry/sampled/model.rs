//! The keys that both formats share, as Relay parses them (getsentry/relay `relay-profiling/src/sample/mod.rs`,
//! `debug_image.rs`), including aliases.

use serde::Deserialize;

use super::text::{Address, Size, Text};

#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
pub(in crate::sentry) struct ImageJson<'a> {
    #[serde(rename = "type")]
    pub(in crate::sentry) kind: Option<Text<'a>>,
    #[serde(alias = "name")]
    pub(in crate::sentry) code_file: Option<Text<'a>>,
    #[serde(alias = "id")]
    pub(in crate::sentry) debug_id: Option<Text<'a>>,
    #[serde(alias = "build_id")]
    pub(in crate::sentry) uuid: Option<Text<'a>>,
    pub(in crate::sentry) image_addr: Option<Address>,
    pub(in crate::sentry) image_vmaddr: Option<Address>,
    pub(in crate::sentry) image_size: Option<Size>,
}

#[derive(Debug, Deserialize)]
pub(in crate::sentry) struct ThreadJson<'a> {
    #[serde(borrow)]
    pub(in crate::sentry) name: Option<Text<'a>>,
    pub(in crate::sentry) priority: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
pub(in crate::sentry) struct FrameJson<'a> {
    #[serde(alias = "name")]
    pub(in crate::sentry) function: Option<Text<'a>>,
    pub(in crate::sentry) abs_path: Option<Text<'a>>,
    #[serde(alias = "file")]
    pub(in crate::sentry) filename: Option<Text<'a>>,
    pub(in crate::sentry) module: Option<Text<'a>>,
    pub(in crate::sentry) package: Option<Text<'a>>,
    pub(in crate::sentry) platform: Option<Text<'a>>,
    pub(in crate::sentry) in_app: Option<bool>,
    pub(in crate::sentry) instruction_addr: Option<Address>,
    #[serde(alias = "line")]
    pub(in crate::sentry) lineno: Option<u32>,
    #[serde(alias = "column")]
    pub(in crate::sentry) colno: Option<u32>,
}
