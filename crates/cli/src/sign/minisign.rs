//! Keys and signatures in minisign's formats, so that `minisign -V` can check signatures of
//! `undertone sign`, and vice versa.
//!
//! ```text
//! public key   "Ed", key id (8), public key (32)
//! secret key   "Ed", 0 0 (no password), "B2", 0 (48), key id (8), seed (32), public key (32),
//!              BLAKE2b-256 of "Ed", key id and secret key
//! signature    "ED", key id (8), ed25519 of BLAKE2b-512 of the file (64)
//!              ed25519 of that signature and the trusted comment (64)
//! ```
//!
//! Each is base64-encoded, below a line with an untrusted comment.

use super::base64::{decode, encode};
use super::blake2b::blake2b;
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};

const COMMENT: &str = "untrusted comment: ";
const TRUSTED: &str = "trusted comment: ";

/// A secret key.
pub struct SecretKey {
    id: [u8; 8],
    pair: Ed25519KeyPair,
    seed: [u8; 32],
}

/// A public key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey {
    id: [u8; 8],
    key: [u8; 32],
}

type Result<T> = std::result::Result<T, String>;

/// The key id in minisign's notation: a little-endian number in hexadecimal.
fn id_text(id: [u8; 8]) -> String {
    format!("{:016X}", u64::from_le_bytes(id))
}

/// The line below an untrusted comment, or the only line.
fn payload(text: &str) -> Option<Vec<u8>> {
    let mut lines = text.lines();
    let first = lines.next()?;
    decode(if first.starts_with(COMMENT) { lines.next()? } else { first }.trim())
}

impl SecretKey {
    /// A new key from the system's randomness.
    pub fn new() -> Result<Self> {
        let (mut id, mut seed) = ([0; 8], [0; 32]);
        let random = SystemRandom::new();
        random.fill(&mut id).and_then(|()| random.fill(&mut seed)).map_err(|_| {
            "the operating system provides no random numbers, so no key can be made".to_owned()
        })?;
        Self::of(id, seed)
    }

    fn of(id: [u8; 8], seed: [u8; 32]) -> Result<Self> {
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed)
            .map_err(|_| "the secret key is not one of ed25519".to_owned())?;
        Ok(Self { id, pair, seed })
    }

    /// The text of its file.
    pub fn text(&self) -> String {
        let mut bytes = b"Ed\0\0B2".to_vec();
        bytes.extend([0; 48]);
        bytes.extend(self.id);
        bytes.extend(self.seed);
        bytes.extend(self.public().key);
        bytes.extend(self.checksum());
        format!("{COMMENT}undertone secret key {}\n{}\n", id_text(self.id), encode(&bytes))
    }

    fn checksum(&self) -> [u8; 32] {
        let key = self.public().key;
        blake2b(&[b"Ed".as_slice(), &self.id, &self.seed, &key].concat())
    }

    /// Reads the text of a file.
    pub fn parse(text: &str) -> Result<Self> {
        let bytes = payload(text).filter(|bytes| bytes.len() == 158 && bytes.starts_with(b"Ed"));
        let Some(bytes) = bytes else {
            return Err("is not a secret key of minisign or undertone".to_owned());
        };
        if bytes[2..4] != [0, 0] {
            return Err(
                "is protected by a password, which undertone does not ask for; make a key \
                        with `undertone sign --new-key` or `minisign -G -W`"
                    .to_owned(),
            );
        }
        let (mut id, mut seed) = ([0; 8], [0; 32]);
        id.copy_from_slice(&bytes[54..62]);
        seed.copy_from_slice(&bytes[62..94]);
        let key = Self::of(id, seed)?;
        // `minisign -G -W` leaves the checksum of a key without a password empty.
        let checksum_is_right = bytes[126..] == key.checksum() || bytes[126..] == [0; 32];
        if bytes[94..126] != key.public().key || !checksum_is_right {
            return Err("is damaged: its checksum is wrong".to_owned());
        }
        Ok(key)
    }

    /// The public key of this secret key.
    pub fn public(&self) -> PublicKey {
        let mut key = [0; 32];
        key.copy_from_slice(self.pair.public_key().as_ref());
        PublicKey { id: self.id, key }
    }

    /// The text of a signature of a file. The trusted comment is signed as well.
    pub fn sign(&self, file: &[u8], trusted: &str) -> String {
        let own = self.pair.sign(&blake2b::<64>(file));
        let global = self.pair.sign(&[own.as_ref(), trusted.as_bytes()].concat());
        let bytes = [b"ED".as_slice(), &self.id, own.as_ref()].concat();
        format!(
            "{COMMENT}signature by undertone\n{}\n{TRUSTED}{trusted}\n{}\n",
            encode(&bytes),
            encode(global.as_ref())
        )
    }
}

impl PublicKey {
    /// The text of its file.
    pub fn text(&self) -> String {
        format!("{COMMENT}undertone public key {}\n{}\n", id_text(self.id), self.base64())
    }

    /// The key without a comment, as `minisign -P` takes it.
    pub fn base64(&self) -> String {
        encode(&[b"Ed".as_slice(), &self.id, &self.key].concat())
    }

    /// Reads the text of a file, or a lone key.
    pub fn parse(text: &str) -> Result<Self> {
        let bytes = payload(text).filter(|bytes| bytes.len() == 42 && bytes.starts_with(b"Ed"));
        let bytes = bytes.ok_or("is not a public key of minisign or undertone")?;
        let (mut id, mut key) = ([0; 8], [0; 32]);
        id.copy_from_slice(&bytes[2..10]);
        key.copy_from_slice(&bytes[10..]);
        Ok(Self { id, key })
    }

    /// Checks a signature of a file; its trusted comment.
    pub fn verify(&self, file: &[u8], signature: &str) -> Result<String> {
        let damaged = || "is not a signature of minisign or undertone".to_owned();
        let lines: Vec<&str> = signature.lines().collect();
        let [first, own, trusted, global] = lines.as_slice() else { return Err(damaged()) };
        let (true, Some(trusted)) = (first.starts_with(COMMENT), trusted.strip_prefix(TRUSTED))
        else {
            return Err(damaged());
        };
        let own = decode(own).filter(|bytes| bytes.len() == 74).ok_or_else(damaged)?;
        let global = decode(global).ok_or_else(damaged)?;
        if own[2..10] != self.id {
            let mut other = [0; 8];
            other.copy_from_slice(&own[2..10]);
            return Err(format!(
                "was made with the key {}, not with {}",
                id_text(other),
                id_text(self.id)
            ));
        }
        let message = match &own[..2] {
            b"ED" => blake2b::<64>(file).to_vec(),
            // A signature by an older version of minisign, which signs the file itself.
            b"Ed" => file.to_vec(),
            _ => return Err(damaged()),
        };
        let key = UnparsedPublicKey::new(&ED25519, &self.key);
        key.verify(&message, &own[10..])
            .map_err(|_| "does not fit: the file was changed after it was signed".to_owned())?;
        key.verify(&[&own[10..], trusted.as_bytes()].concat(), &global)
            .map_err(|_| "has a trusted comment that was changed".to_owned())?;
        Ok((*trusted).to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_signatures_are_read_as_they_are_written() {
        let key = SecretKey::new().unwrap();
        let again = SecretKey::parse(&key.text()).unwrap();
        assert_eq!((again.text(), again.public()), (key.text(), key.public()));
        let public = PublicKey::parse(&key.public().text()).unwrap();
        assert_eq!(PublicKey::parse(&public.base64()).unwrap(), key.public());
        let signature = key.sign(b"the file", "timestamp:1");
        assert_eq!(public.verify(b"the file", &signature).unwrap(), "timestamp:1");
        assert!(public.verify(b"the fine", &signature).unwrap_err().contains("was changed"));
        let other = SecretKey::new().unwrap().public();
        assert!(other.verify(b"the file", &signature).unwrap_err().contains("with the key"));
        let moved = signature.replace("timestamp:1", "timestamp:2");
        assert!(public.verify(b"the file", &moved).unwrap_err().contains("trusted comment"));
        // An edit of any character is detected, except in the untrusted comment.
        let start = signature.find('\n').unwrap();
        for at in start..signature.len() - 1 {
            let mut edited = signature.clone().into_bytes();
            edited[at] = if edited[at] == b'A' { b'B' } else { b'A' };
            let edited = String::from_utf8(edited).unwrap();
            assert!(public.verify(b"the file", &edited).is_err(), "{at}: {edited}");
        }
        let damaged = key.text().replace(&encode(b"Ed\0\0B2")[..6], "RWRTY0");
        assert!(SecretKey::parse(&damaged).is_err_and(|why| why.contains("password")));
    }

    /// The example in minisign's documentation.
    /// Made with minisign 0.11, `minisign -G -W`.
    #[test]
    fn secret_keys_of_minisign_are_read() {
        let key = SecretKey::parse(
            "untrusted comment: minisign secret key\n\
             RWQAAEIyAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAdVEG\
             2kNF/OrSpnuQ1FxbP8ktuoPEcg2nvQFx3jLr2ShM8U9m2HuJqrlh2lxb5/tymG4qrXpwjCWfUNvs\
             cY1iQxA7lEnvvG0KAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n",
        );
        let public = PublicKey::parse("RWR1UQbaQ0X86rlh2lxb5/tymG4qrXpwjCWfUNvscY1iQxA7lEnvvG0K");
        assert_eq!(key.unwrap().public().key, public.unwrap().key);
    }

    #[test]
    fn public_keys_of_minisign_are_read() {
        let key = PublicKey::parse("RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3");
        let key = key.unwrap();
        assert_eq!(id_text(key.id), "E7620F1842B4E81F");
        assert!(PublicKey::parse("RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7").is_err());
    }
}
