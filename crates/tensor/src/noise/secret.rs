//! The secret of a run: the key from which all its randomness is derived.

/// Uses of a secret, each with its own derived key.
pub mod purpose {
    /// The noise of the mechanism.
    pub const NOISE: u64 = 1;
    /// Sampling of the units of each step.
    pub const SAMPLING: u64 = 2;
    /// Initial values of new parameters (task head, LoRA, adapters).
    pub const INITIAL_VALUES: u64 = 3;
    /// Dropout masks.
    pub const DROPOUT: u64 = 4;
    /// Sampling of the examples of a relevance map.
    pub const RELEVANCE: u64 = 5;
    /// Substitutes for parameters that are zero while relevance is computed.
    pub const PROBES: u64 = 6;
    /// Randomized response on labels.
    pub const LABELS: u64 = 7;
    /// Projections and initial values of a sanitizer.
    pub const SANITIZER: u64 = 8;
    /// The noise of an attention map.
    pub const ATTENTION: u64 = 9;
    /// Sampling of the examples of an attention map.
    pub const ATTENTION_SAMPLE: u64 = 11;
    /// Identifier of the secret, for resuming.
    pub const IDENTITY: u64 = 12;
    /// Sampling and noise of the adaptation before embeddings are perturbed.
    pub const ADAPTATION: u64 = 10;
    /// Authentication of checkpoints.
    pub const CHECKPOINT: u64 = 13;
    /// The random identifier of a run's ledger.
    pub const LEDGER: u64 = 14;
    /// Initial weights of a new classifier.
    pub const CLASSIFIER: u64 = 15;
    /// Masks of masked language modeling.
    pub const MASKING: u64 = 16;
    /// Masks of public examples whose gradients are inspected.
    pub const PUBLIC_GRADIENTS: u64 = 17;
    /// Groups of units; each step samples from one group.
    pub const GROUPS: u64 = 18;
    // 19 was used for augmentation.
    /// Sampling of synthetic rows.
    pub const SYNTHESIS: u64 = 20;
    /// The noise of metrics on private validation data.
    pub const EVALUATION: u64 = 21;
    /// Sampling of the tokens of private prediction.
    pub const PREDICTION: u64 = 22;
    /// Which text each unit steers in private prediction.
    pub const PREDICTION_GROUPS: u64 = 23;
    /// Which row of each unit the histograms of synthetic rows count.
    pub const STATISTICS_ROWS: u64 = 24;
}

/// 32 secret bytes. Anyone who knows them can subtract the noise.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

/// Omits the bytes.
impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// A new secret from the operating system's random number generator.
    pub fn from_system() -> std::io::Result<Self> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
        Ok(Self(bytes))
    }

    /// A secret from a seed: the run is reproducible, but not private.
    pub fn from_seed(seed: u64) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        bytes[8..24].copy_from_slice(b"not-private-seed");
        Self(bytes)
    }

    /// Restores a secret saved in the run folder.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes, which are saved in the run folder for the duration of the run.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// An independent key for one use: the first 32 bytes of ChaCha20 stream number `purpose`.
    pub fn key(&self, purpose: u64) -> [u8; 32] {
        use rand_chacha::ChaCha20Rng;
        use rand_chacha::rand_core::{Rng, SeedableRng};
        let mut stream = ChaCha20Rng::from_seed(self.0);
        stream.set_stream(purpose);
        let mut key = [0; 32];
        stream.fill_bytes(&mut key);
        key
    }

    /// A random identifier for a ledger's first line, in hexadecimal. It does not reveal the
    /// secret.
    pub fn ledger_id(&self) -> String {
        self.key(purpose::LEDGER)[..16].iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The key's first 8 bytes as an integer, for generators that take a seed.
    pub fn number(&self, purpose: u64) -> u64 {
        let key = self.key(purpose);
        u64::from_le_bytes(std::array::from_fn(|i| key[i]))
    }
}
