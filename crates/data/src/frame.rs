//! The special tokens that a tokenizer adds around a text or a pair of texts.
//!
//! They are determined once, by running the tokenizer's post-processor on a marker for each text.
//! Texts are then truncated *before* the special tokens are added, so special tokens are never
//! dropped. The tokenizer's own truncation would also build every piece that it cuts off.

use tokenizers::{Encoding, Token, Tokenizer};

/// Markers, which are not valid token ids.
const FIRST: u32 = u32::MAX;
const SECOND: u32 = u32::MAX - 1;

/// Token id and segment id.
type Placed = (u32, u32);

/// The special tokens before, between and after the texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    before: Vec<Placed>,
    between: Vec<Placed>,
    after: Vec<Placed>,
    /// Segment ids of the first and second text.
    segments: [u32; 2],
}

impl Frame {
    /// The special tokens around one text.
    pub fn around_one(tokenizer: &Tokenizer) -> Result<Frame, String> {
        let placed = framed(tokenizer, None)?;
        let at = only(&placed, FIRST)?;
        Ok(Frame {
            before: placed[..at].to_vec(),
            between: Vec::new(),
            after: placed[at + 1..].to_vec(),
            segments: [placed[at].1, 0],
        })
    }

    /// The special tokens around a pair of texts.
    pub fn around_two(tokenizer: &Tokenizer) -> Result<Frame, String> {
        let placed = framed(tokenizer, Some(marker(SECOND)))?;
        let (first, second) = (only(&placed, FIRST)?, only(&placed, SECOND)?);
        if first > second {
            return Err("it puts the second text before the first".to_owned());
        }
        Ok(Frame {
            before: placed[..first].to_vec(),
            between: placed[first + 1..second].to_vec(),
            after: placed[second + 1..].to_vec(),
            segments: [placed[first].1, placed[second].1],
        })
    }

    /// Number of special tokens.
    pub fn len(&self) -> usize {
        self.before.len() + self.between.len() + self.after.len()
    }

    /// Special tokens before the text.
    pub fn before(&self) -> Vec<u32> {
        self.before.iter().map(|&(token, _)| token).collect()
    }

    /// Special tokens after the text.
    pub fn after(&self) -> Vec<u32> {
        self.after.iter().map(|&(token, _)| token).collect()
    }

    /// Token ids and segment ids of the texts with special tokens; the segments are empty if all
    /// are 0.
    pub fn fill(&self, first: &[u32], second: &[u32]) -> (Vec<u32>, Vec<u32>) {
        let placed = |tokens: &[u32], segment: u32| -> Vec<Placed> {
            tokens.iter().map(|&token| (token, segment)).collect()
        };
        let parts = [
            self.before.clone(),
            placed(first, self.segments[0]),
            self.between.clone(),
            placed(second, self.segments[1]),
            self.after.clone(),
        ];
        let (tokens, segments): (Vec<u32>, Vec<u32>) = parts.concat().into_iter().unzip();
        let plain = segments.iter().all(|&segment| segment == 0);
        (tokens, if plain { Vec::new() } else { segments })
    }
}

fn marker(token: u32) -> Encoding {
    Encoding::from_tokens(vec![Token::new(token, "a".to_owned(), (0, 1))], 0)
}

fn framed(tokenizer: &Tokenizer, second: Option<Encoding>) -> Result<Vec<Placed>, String> {
    let framed = tokenizer.post_process(marker(FIRST), second, true).map_err(|e| e.to_string())?;
    Ok(framed.get_ids().iter().copied().zip(framed.get_type_ids().iter().copied()).collect())
}

/// Index of the marker, which must occur exactly once.
fn only(placed: &[Placed], marker: u32) -> Result<usize, String> {
    let mut indices = (0..placed.len()).filter(|&i| placed[i].0 == marker);
    match (indices.next(), indices.next()) {
        (Some(index), None) => Ok(index),
        _ => Err("its template does not hold each text once".to_owned()),
    }
}
