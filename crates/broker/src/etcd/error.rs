//! Why etcd did not do what it was asked.

use crate::rmt::RmtError;
use std::path::PathBuf;

/// Each names the endpoint, or the file, and what to do.
#[derive(Clone, Debug, thiserror::Error)]
pub enum EtcdError {
    #[error("etcd endpoint {endpoint:?}: {what}; write it as http://HOST:PORT or https://HOST:PORT")]
    Endpoint { endpoint: String, what: String },
    #[error("no etcd endpoint is given; name at least one, as http://HOST:PORT")]
    NoEndpoint,
    #[error("{}: {what}", path.display())]
    TlsFile { path: PathBuf, what: String },
    /// Whether the request took effect is unknown where it may have been sent.
    #[error(
        "etcd does not answer ({tried}); see whether it runs and can be reached from this host (`etcdctl endpoint health`)"
    )]
    Unreachable { tried: String },
    #[error(
        "etcd at {endpoint} has used up its space (NOSPACE): compact and defragment it (`etcdctl compact`, `etcdctl defrag`), raise --quota-backend-bytes if need be, then `etcdctl alarm disarm`"
    )]
    Quota { endpoint: String },
    #[error("etcd at {endpoint} denies access: {what}; give a client certificate that it accepts")]
    Denied { endpoint: String, what: String },
    #[error("etcd at {endpoint} compacted what was being read")]
    Compacted { endpoint: String },
    #[error(
        "etcd at {endpoint} takes smaller transactions than Stripewise makes ({what}); start it with --max-txn-ops 128 and --max-request-bytes 1572864 or more"
    )]
    Limits { endpoint: String, what: String },
    #[error("etcd at {endpoint} refused {request}: {what}")]
    Refused { endpoint: String, request: String, what: String },
    #[error(
        "etcd at {endpoint} answered {request} with what is not understood: {what}; version 3.4 or later is needed"
    )]
    Unexpected { endpoint: String, request: String, what: String },
    #[error("the mapping table's entry for {key} has {bytes} bytes; in etcd it may have {limit}")]
    TooLarge { key: String, bytes: usize, limit: usize },
    #[error("what {key} in etcd holds is damaged: {what}; restore etcd's data from a snapshot")]
    Damaged { key: String, what: String },
    #[error("{key} in etcd has format {found}, this stripewise reads {known}; use the stripewise that wrote it")]
    Format { key: String, found: u32, known: u32 },
}

impl From<EtcdError> for RmtError {
    fn from(error: EtcdError) -> Self {
        Self::Engine { is_full: matches!(error, EtcdError::Quota { .. }), source: Box::new(error) }
    }
}
