//! The cluster's key pair and its file.
//!
//! The file has one Ed25519 private key in the usual form (PKCS #8 of RFC 8410, in PEM); the public key follows from it. Every host of the cluster has a
//! copy. Whoever can read it can pass for any host, so it must belong to the user and be readable by nobody else.

use crate::coordination::unique_name;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::{CertifiedKey, SigningKey};
use rustls::{SignatureAlgorithm, crypto};
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What stands before the 32 bytes of the key (RFC 8410, section 7).
const PKCS8_HEAD: [u8; 16] = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
const MAX_FILE_BYTES: u64 = 64 << 10;

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("the key file {} exists already and stays as it is; give another path, or load it", path.display())]
    Exists { path: PathBuf },
    #[error(
        "there is no key file {}; copy it from another host of the cluster, with mode 600, or make it by `stripewise init` on the first host",
        path.display()
    )]
    Missing { path: PathBuf },
    #[error("others than its owner can use the key file {} (mode {mode:03o}); run chmod 600 on it, and make a new key if it may have been read", path.display())]
    Open { path: PathBuf, mode: u32 },
    #[error("the key file {} belongs to user {owner}, stripewise runs as user {user}", path.display())]
    Owner { path: PathBuf, owner: u32, user: u32 },
    #[error("{} is no key file: {what}; copy it again from another host of the cluster", path.display())]
    Damaged { path: PathBuf, what: String },
    #[error("key file {}: {action}: {source}", path.display())]
    Os { path: PathBuf, action: &'static str, source: Errno },
    #[error("the system has no random numbers for a key")]
    NoRandom,
}

/// The cluster's key pair.
#[derive(Clone)]
pub struct ClusterKey {
    pub(super) provider: Arc<CryptoProvider>,
    /// The raw public key, and what signs with the private one.
    pub(super) certified: Arc<CertifiedKey>,
    /// Public keys that are accepted too, while the cluster's key is being replaced.
    also: Vec<CertificateDer<'static>>,
}

/// A key as its file has it.
pub(super) struct KeyText {
    key: ClusterKey,
    text: String,
}

impl std::fmt::Debug for ClusterKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "ClusterKey({})", self.fingerprint())
    }
}

impl ClusterKey {
    /// Makes a key and its file, with mode 600. An existing file is an error. The file is durable when this returns.
    pub fn make(path: &Path) -> Result<Self, KeyError> {
        let (key, text) = Self::generate()?;
        write(path, &text, false)?;
        Ok(key)
    }

    /// Reads a key. It is refused unless it belongs to this user and nobody else may use it.
    pub fn load(path: &Path) -> Result<Self, KeyError> {
        KeyText::load(path).map(|text| text.key)
    }

    /// Makes a key, and the text of its file.
    pub fn generate() -> Result<(Self, String), KeyError> {
        let mut der = PKCS8_HEAD.to_vec();
        let mut seed = [0; 32];
        crypto::ring::default_provider().secure_random.fill(&mut seed).map_err(|_| KeyError::NoRandom)?;
        der.extend_from_slice(&seed);
        let text = format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", STANDARD.encode(&der));
        let key = Self::of(PrivatePkcs8KeyDer::from(der)).expect("a key as RFC 8410 has it");
        Ok((key, text))
    }

    /// The same, and who has one of these is accepted too.
    #[must_use]
    pub(super) fn accepting<'a>(&self, others: impl Iterator<Item = &'a Self>) -> Self {
        Self { also: others.map(|other| other.public().clone()).collect(), ..self.clone() }
    }

    /// Whether who shows this key is accepted.
    pub(super) fn accepts(&self, shown: &CertificateDer<'_>) -> bool {
        std::iter::once(self.public()).chain(&self.also).any(|accepted| accepted.as_ref() == shown.as_ref())
    }

    #[cfg(test)]
    pub(crate) fn accepts_key(&self, other: &Self) -> bool {
        self.accepts(other.public())
    }

    fn load_text(path: &Path) -> Result<String, KeyError> {
        let fault = |action, source| KeyError::Os { path: path.to_owned(), action, source };
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Err(KeyError::Missing { path: path.to_owned() }),
            Err(source) => return Err(fault("opening it", source)),
        };
        let stat = rustix::fs::fstat(&file).map_err(|source| fault("reading its mode", source))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(KeyError::Damaged { path: path.to_owned(), what: "it is not a regular file".to_owned() });
        }
        let user = rustix::process::geteuid().as_raw();
        if stat.st_uid != user {
            return Err(KeyError::Owner { path: path.to_owned(), owner: stat.st_uid, user });
        }
        if stat.st_mode & 0o077 != 0 {
            return Err(KeyError::Open { path: path.to_owned(), mode: stat.st_mode & 0o777 });
        }
        let mut text = Vec::new();
        file.take(MAX_FILE_BYTES).read_to_end(&mut text).map_err(|error| fault("reading it", errno(&error)))?;
        let damaged = |_| KeyError::Damaged { path: path.to_owned(), what: "it is no text".to_owned() };
        String::from_utf8(text).map_err(damaged)
    }

    /// A short name of the public key, the same on all hosts that have it: the first 16 digits of its SHA-256.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        use sha2::Digest;
        let digest = sha2::Sha256::digest(self.public().as_ref());
        digest[..8].iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The public key as both sides of a link expect it.
    pub(super) fn public(&self) -> &CertificateDer<'static> {
        &self.certified.cert[0]
    }

    fn parse(text: &[u8]) -> Result<Self, String> {
        let der = PrivatePkcs8KeyDer::from_pem_slice(text).map_err(|error| format!("{error}"))?;
        Self::of(der)
    }

    fn of(der: PrivatePkcs8KeyDer<'static>) -> Result<Self, String> {
        let provider = Arc::new(crypto::ring::default_provider());
        let key: Arc<dyn SigningKey> = provider
            .key_provider
            .load_private_key(PrivateKeyDer::Pkcs8(der))
            .map_err(|_| "its private key cannot be read".to_owned())?;
        if key.algorithm() != SignatureAlgorithm::ED25519 {
            return Err("its private key is not of Ed25519".to_owned());
        }
        let public = key.public_key().ok_or("it has no public key")?.as_ref().to_vec();
        let certified = Arc::new(CertifiedKey::new(vec![CertificateDer::from(public)], key));
        Ok(Self { provider, certified, also: Vec::new() })
    }
}

impl KeyText {
    /// As [`ClusterKey::load`].
    pub(super) fn load(path: &Path) -> Result<Self, KeyError> {
        Self::parse(path, &ClusterKey::load_text(path)?)
    }

    /// `path`: where it is from, or goes.
    pub(super) fn parse(path: &Path, text: &str) -> Result<Self, KeyError> {
        let damaged = |what| KeyError::Damaged { path: path.to_owned(), what };
        Ok(Self { key: ClusterKey::parse(text.as_bytes()).map_err(damaged)?, text: text.to_owned() })
    }

    pub(super) fn key(&self) -> &ClusterKey {
        &self.key
    }

    /// Puts it in the place of what is at `path`, at once: whoever reads the file meanwhile gets the old key or this one.
    pub(super) fn write(&self, path: &Path) -> Result<(), KeyError> {
        write(path, &self.text, true)
    }
}

/// Writes a key's file, whole and durable, with mode 600. `replace`: in the place of what is there; else that is an error.
fn write(path: &Path, text: &str, replace: bool) -> Result<(), KeyError> {
    let fault = |action, source| KeyError::Os { path: path.to_owned(), action, source };
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().ok_or_else(|| fault("naming it", Errno::ISDIR))?;
    // Under another name until it is whole and durable; with this name no two processes share it.
    let mut temporary = std::ffi::OsString::from(".");
    temporary.push(name);
    temporary.push(format!(".{}", unique_name()));
    let directory = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = rustix::fs::openat(CWD, parent, directory, Mode::empty())
        .map_err(|source| fault("opening its directory", source))?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::openat(&parent, &temporary, flags, Mode::RUSR | Mode::WUSR)
        .map_err(|source| fault("making it", source))?;
    let mut file = File::from(file);
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(|error| errno(&error));
    // NFS knows no rename that does not replace, but a link never replaces.
    let named = written.and_then(|()| match replace {
        true => rustix::fs::renameat(&parent, &temporary, &parent, name),
        false => rustix::fs::linkat(&parent, &temporary, &parent, name, AtFlags::empty()),
    });
    if !replace || named.is_err() {
        let _ = rustix::fs::unlinkat(&parent, &temporary, AtFlags::empty());
    }
    if let Err(source) = named {
        return Err(match source {
            Errno::EXIST => KeyError::Exists { path: path.to_owned() },
            source => fault("writing it", source),
        });
    }
    rustix::fs::fsync(&parent).map_err(|source| fault("making it durable", source))?;
    Ok(())
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
