//! Messages of etcd's JSON gateway, as far as they are used. Bytes are in base64; 64-bit numbers are strings.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Keys and values.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct Bytes(pub(super) Vec<u8>);

impl From<&[u8]> for Bytes {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&BASE64_STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        BASE64_STANDARD.decode(text).map(Self).map_err(D::Error::custom)
    }
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Number(pub(super) i64);

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(D::Error::custom)
    }
}

#[derive(Clone, Debug, Serialize)]
#[serde(tag = "target", rename_all = "UPPERCASE")]
pub(super) enum Compare {
    Value { result: &'static str, key: Bytes, value: Bytes },
    Create { result: &'static str, key: Bytes, create_revision: Number },
}

impl Compare {
    /// `None`: the key is absent.
    pub(super) fn value(key: &[u8], value: Option<&[u8]>) -> Self {
        match value {
            Some(value) => Self::Value { result: "EQUAL", key: key.into(), value: value.into() },
            None => Self::created(key, 0),
        }
    }

    pub(super) fn created(key: &[u8], revision: i64) -> Self {
        Self::Create { result: "EQUAL", key: key.into(), create_revision: Number(revision) }
    }
}

#[derive(Clone, Default, Debug, Serialize)]
pub(super) struct Range {
    pub(super) key: Bytes,
    /// Empty: `key` alone.
    pub(super) range_end: Bytes,
    pub(super) limit: Number,
    /// 0: the newest.
    pub(super) revision: Number,
}

impl Range {
    pub(super) fn of(key: &[u8]) -> Self {
        Self { key: key.into(), ..Self::default() }
    }

    /// Keys from `start` on and before `end`.
    pub(super) fn between(start: &[u8], end: &[u8]) -> Self {
        Self { key: start.into(), range_end: end.into(), ..Self::default() }
    }
}

#[derive(Clone, Debug, Serialize)]
pub(super) enum Operation {
    #[serde(rename = "request_range")]
    Range(Range),
    #[serde(rename = "request_put")]
    Put { key: Bytes, value: Bytes, lease: Number },
    #[serde(rename = "request_delete_range")]
    DeleteRange { key: Bytes, range_end: Bytes },
}

impl Operation {
    pub(super) fn put(key: &[u8], value: &[u8]) -> Self {
        Self::Put { key: key.into(), value: value.into(), lease: Number(0) }
    }

    pub(super) fn delete(key: &[u8]) -> Self {
        Self::DeleteRange { key: key.into(), range_end: Bytes::default() }
    }

    pub(super) fn delete_between(start: &[u8], end: &[u8]) -> Self {
        Self::DeleteRange { key: start.into(), range_end: end.into() }
    }

    /// What stands at `key` afterwards; `None`: nothing.
    pub(super) fn change(key: &[u8], value: Option<&[u8]>) -> Self {
        value.map_or_else(|| Self::delete(key), |value| Self::put(key, value))
    }
}

/// Does `success` if all of `compare` holds, else `failure`.
#[derive(Clone, Default, Debug, Serialize)]
pub(super) struct Transaction {
    pub(super) compare: Vec<Compare>,
    pub(super) success: Vec<Operation>,
    pub(super) failure: Vec<Operation>,
}

#[derive(Clone, Default, Debug, Deserialize)]
#[serde(default)]
pub(super) struct Header {
    pub(super) revision: Number,
}

#[derive(Clone, Default, Debug, Deserialize)]
#[serde(default)]
pub(super) struct Entry {
    pub(super) key: Bytes,
    pub(super) value: Bytes,
    pub(super) create_revision: Number,
    pub(super) mod_revision: Number,
    pub(super) lease: Number,
}

#[derive(Clone, Default, Debug, Deserialize)]
#[serde(default)]
pub(super) struct Found {
    pub(super) kvs: Vec<Entry>,
    /// Whether there are more than the limit.
    pub(super) more: bool,
}

/// The answer to one operation; those to changes are empty.
#[derive(Clone, Default, Debug, Deserialize)]
#[serde(default)]
pub(super) struct Response {
    pub(super) response_range: Found,
}

#[derive(Clone, Default, Debug, Deserialize)]
#[serde(default)]
pub(super) struct Outcome {
    pub(super) header: Header,
    pub(super) succeeded: bool,
    pub(super) responses: Vec<Response>,
}

impl Outcome {
    /// What the range at `index` found.
    pub(super) fn take(&mut self, index: usize) -> Found {
        self.responses.get_mut(index).map(|response| std::mem::take(&mut response.response_range)).unwrap_or_default()
    }
}

#[derive(Clone, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Lease {
    #[serde(rename = "ID")]
    pub(super) id: Number,
    /// Seconds; 0: it is over.
    #[serde(rename = "TTL")]
    pub(super) seconds: Number,
}

/// One message of a stream; without a result it says why there is none.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Streamed<T> {
    pub(super) result: Option<T>,
}

#[derive(Clone, Default, Debug, Serialize)]
pub(super) struct WatchRequest {
    pub(super) create_request: WatchCreate,
}

#[derive(Clone, Default, Debug, Serialize)]
pub(super) struct WatchCreate {
    pub(super) key: Bytes,
    pub(super) range_end: Bytes,
    pub(super) start_revision: Number,
}

#[derive(Clone, Default, Debug, Deserialize)]
#[serde(default)]
pub(super) struct Watched {
    pub(super) header: Header,
    pub(super) events: Vec<Event>,
    pub(super) canceled: bool,
}

#[derive(Clone, Default, Debug, Deserialize)]
#[serde(default)]
pub(super) struct Event {
    pub(super) kv: Entry,
}

/// What the gateway says of a request that it refuses; `code` is gRPC's.
#[derive(Clone, Default, Debug, Deserialize)]
#[serde(default)]
pub(super) struct Refusal {
    pub(super) code: u32,
    pub(super) message: String,
}
