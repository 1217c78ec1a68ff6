//! Receipts: the provider's acknowledgments, signed with the key that the task names.

use crate::error::{Error, Result};
use crate::hex::{hex, unhex};
use ring::rand::SystemRandom;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::Path;

/// A receipt: all releases of a frame are stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Receipt {
    /// Hash of the task.
    pub task: String,
    /// Name of the owner.
    pub owner: String,
    /// The epoch of the frame's releases.
    pub epoch: u32,
    /// The hash at the end of the frame.
    pub frame: String,
    /// Number of releases of the frame.
    pub releases: u32,
    /// Seconds since 1970 by the provider's clock, for information only.
    pub at: u64,
    /// Ed25519 over [`Receipt::statement`].
    #[serde(default)]
    pub signature: String,
}

impl Receipt {
    /// The text that is signed.
    pub fn statement(&self) -> String {
        let Self { task, owner, epoch, frame, releases, at, .. } = self;
        format!(
            "undertone receipt 1\ntask {task}\nowner {owner}\nepoch {epoch}\nframe {frame}\n\
             releases {releases}\nat {at}\n"
        )
    }

    /// Verifies the signature.
    pub fn is_signed_by(&self, key: &[u8; 32]) -> bool {
        let Some(signature) = unhex::<64>(&self.signature) else { return false };
        UnparsedPublicKey::new(&ED25519, key)
            .verify(self.statement().as_bytes(), &signature)
            .is_ok()
    }
}

/// The provider's key.
pub struct SigningKey(Ed25519KeyPair);

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SigningKey")
    }
}

impl SigningKey {
    /// Creates a key and writes it to a new file that only its owner can read.
    pub fn create(path: &Path) -> Result<Self> {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(|_| {
            Error::failed(
                "the operating system provides no random numbers for a \
                                        key",
            )
        })?;
        write_secret(path, document.as_ref())?;
        Self::parse(path, document.as_ref())
    }

    /// Reads a key.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = undertone_run::read_bytes(path, 4096).map_err(Error::io(path))?;
        Self::parse(path, &bytes)
    }

    fn parse(path: &Path, bytes: &[u8]) -> Result<Self> {
        Ed25519KeyPair::from_pkcs8(bytes).map(Self).map_err(|_| {
            Error::mistake(format!(
                "{} is not the key that undertone-provider init wrote; restore it from a backup",
                path.display()
            ))
        })
    }

    /// The public half, which the task names.
    pub fn public(&self) -> [u8; 32] {
        let mut key = [0; 32];
        key.copy_from_slice(self.0.public_key().as_ref());
        key
    }

    /// Signs a receipt.
    pub fn sign(&self, receipt: Receipt) -> Receipt {
        let signature = hex(self.0.sign(receipt.statement().as_bytes()).as_ref());
        Receipt { signature, ..receipt }
    }
}

/// Writes a new file that only its owner can read.
pub fn write_secret(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = undertone_run::create_secret(path).map_err(Error::io(path))?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(Error::io(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receipt_is_signed_and_no_word_of_it_can_be_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let key = SigningKey::create(&path).unwrap();
        assert_eq!(SigningKey::read(&path).unwrap().public(), key.public());
        assert!(SigningKey::create(&path).is_err(), "a key is never written over");
        let receipt = key.sign(Receipt {
            task: "t".into(),
            owner: "o".into(),
            epoch: 1,
            frame: "f".into(),
            releases: 64,
            at: 5,
            signature: String::new(),
        });
        assert!(receipt.is_signed_by(&key.public()));
        let other = SigningKey::create(&folder.path().join("other")).unwrap();
        assert!(!receipt.is_signed_by(&other.public()));
        let changed = [
            Receipt { task: "u".into(), ..receipt.clone() },
            Receipt { owner: "p".into(), ..receipt.clone() },
            Receipt { epoch: 2, ..receipt.clone() },
            Receipt { frame: "g".into(), ..receipt.clone() },
            Receipt { releases: 65, ..receipt.clone() },
            Receipt { at: 6, ..receipt.clone() },
            Receipt { signature: String::new(), ..receipt.clone() },
        ];
        assert!(changed.iter().all(|receipt| !receipt.is_signed_by(&key.public())));
    }
}
