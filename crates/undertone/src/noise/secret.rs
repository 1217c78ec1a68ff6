//! The secret of a run, from which everything random in it is drawn.

/// What the keys of a secret are for: no two uses share one.
pub mod purpose {
    /// The noise of the mechanism.
    pub const NOISE: u64 = 1;
    /// Which units a step takes.
    pub const SAMPLING: u64 = 2;
    /// Parameters that are new to the model.
    pub const INITIAL_VALUES: u64 = 3;
    /// Dropout masks.
    pub const DROPOUT: u64 = 4;
    /// Which examples a relevance map is of.
    pub const RELEVANCE: u64 = 5;
    /// What stands in for parameters that are zero while relevance is computed.
    pub const PROBES: u64 = 6;
    /// Labels through randomised response.
    pub const LABELS: u64 = 7;
    /// Projections and first values of a sanitiser.
    pub const SANITISER: u64 = 8;
    /// The noise of an attention map.
    pub const ATTENTION: u64 = 9;
    /// Which records an attention map is of.
    pub const ATTENTION_SAMPLE: u64 = 11;
    /// Telling one secret from another.
    pub const IDENTITY: u64 = 12;
    /// Everything about the adaptation before records are perturbed.
    pub const ADAPTATION: u64 = 10;
}

/// 32 bytes that nobody else may know: whoever has them can take the noise off again.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

/// Without the bytes.
impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// From the operating system.
    pub fn from_system() -> std::io::Result<Self> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
        Ok(Self(bytes))
    }

    /// From a number that everybody may know: the run can be repeated, and is not private.
    pub fn from_seed(seed: u64) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        bytes[8..24].copy_from_slice(b"not-private-seed");
        Self(bytes)
    }

    /// As it is kept in a run's folder.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// To be kept in a run's folder while the run lasts.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// An independent key for one use: the first words of the ChaCha20 stream that `purpose` names.
    pub fn key(&self, purpose: u64) -> [u8; 32] {
        use rand_chacha::ChaCha20Rng;
        use rand_chacha::rand_core::{Rng, SeedableRng};
        let mut stream = ChaCha20Rng::from_seed(self.0);
        stream.set_stream(purpose);
        let mut key = [0; 32];
        stream.fill_bytes(&mut key);
        key
    }

    /// The same as a number, for what is seeded with one.
    pub fn number(&self, purpose: u64) -> u64 {
        let key = self.key(purpose);
        u64::from_le_bytes(std::array::from_fn(|i| key[i]))
    }
}
