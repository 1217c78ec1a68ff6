//! The frame in which releases are sent. Its length is a function of the task alone.
//!
//! ```text
//! offset  bytes
//!      0      8  "UNDTONE1"
//!      8      2  version, 1
//!     10      1  kind: 1 contribution, 2 query
//!     11      1  0
//!     12      4  number of slots, given by the task
//!     16      4  number of slots in use, which come first; at least 1
//!     20      4  epoch, from 0
//!     24      4  width: number of values in a release
//!     28      4  0
//!     32     32  hash of the task
//!     64      …  slots: id (16 bytes), label (4; 2³²−1 in a query), width values (f32)
//!      …     32  SHA-256 of all preceding bytes
//! ```
//!
//! Integers and values are little-endian. Slots in use are ordered by increasing id, and unused
//! slots are zero, so a list of releases has exactly one frame.

use crate::hex::{Hash, hash};
use crate::reach::Reach;
use crate::task::Task;

const MAGIC: &[u8; 8] = b"UNDTONE1";
const VERSION: u16 = 1;
const HEADER: usize = 64;
const HASH: usize = 32;
/// The label of a query, which carries none.
pub const NO_LABEL: u32 = u32::MAX;

/// A keyed hash that identifies a row to its owner and reveals nothing to anyone else.
pub type RecordId = [u8; 16];

/// The purpose of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Releases for training.
    Contribution = 1,
    /// Releases to be classified.
    Query = 2,
}

/// One release.
#[derive(Clone, Debug, PartialEq)]
pub struct Release {
    pub id: RecordId,
    /// The label after randomized response.
    pub label: u32,
    /// The perturbed embedding.
    pub numbers: Vec<f32>,
}

/// Releases of one epoch.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    pub kind: Kind,
    pub epoch: u32,
    pub releases: Vec<Release>,
}

/// The frame layout of a task.
pub fn frame_length(task: &Task) -> usize {
    HEADER + task.slots as usize * slot_length(task.width) + HASH
}

fn slot_length(width: usize) -> usize {
    16 + 4 + 4 * width
}

/// The hash at the end of a frame, which identifies it.
pub fn frame_hash(bytes: &[u8]) -> Option<Hash> {
    bytes.last_chunk::<HASH>().copied()
}

impl Frame {
    /// Encodes releases, at most one per slot of a frame.
    ///
    /// # Panics
    /// If there are no releases or too many, or if a release does not have the task's width.
    pub fn encode(&self, task: &Task, task_hash: &Hash) -> Vec<u8> {
        let slots = task.slots as usize;
        assert!((1..=slots).contains(&self.releases.len()), "at most {slots} releases");
        let mut releases: Vec<&Release> = self.releases.iter().collect();
        releases.sort_by_key(|release| release.id);
        let mut bytes = Vec::with_capacity(frame_length(task));
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend([self.kind as u8, 0]);
        for word in [task.slots, releases.len() as u32, self.epoch, task.width as u32, 0] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(task_hash);
        for release in releases {
            assert_eq!(release.numbers.len(), task.width, "the width of the task");
            bytes.extend(release.id);
            bytes.extend(release.label.to_le_bytes());
            bytes.extend(release.numbers.iter().flat_map(|number| number.to_le_bytes()));
        }
        bytes.resize(frame_length(task) - HASH, 0);
        let end = hash(&bytes);
        bytes.extend(end);
        bytes
    }

    /// Parses the releases of a frame.
    pub fn decode(
        bytes: &[u8],
        kind: Kind,
        task: &Task,
        task_hash: &Hash,
    ) -> Result<Self, &'static str> {
        if bytes.len() != frame_length(task) {
            return Err("the frame does not have the length of the task's frames");
        }
        let (covered, end) = bytes.split_at(bytes.len() - HASH);
        if hash(covered) != end {
            return Err("the frame was changed or truncated in transit: its hash does not match");
        }
        let word = |at: usize| {
            u32::from_le_bytes(std::array::from_fn(|i| covered.get(at + i).copied().unwrap_or(0)))
        };
        if &covered[..8] != MAGIC || covered[8..10] != VERSION.to_le_bytes() {
            return Err("the frame has another format");
        }
        if covered[10] != kind as u8 || covered[11] != 0 || word(28) != 0 {
            return Err("the frame is of the wrong kind");
        }
        if &covered[32..64] != task_hash {
            return Err("the frame belongs to another task");
        }
        let (slots, used, epoch) = (word(12), word(16), word(20));
        if slots != task.slots || word(24) as usize != task.width {
            return Err("the slots of the frame differ from the task's");
        }
        if used == 0 || used > slots {
            return Err("the frame has no releases, or more than slots");
        }
        if epoch as usize >= task.epochs() {
            return Err("the task has no such epoch");
        }
        let (used, rest) = covered[HEADER..].split_at(used as usize * slot_length(task.width));
        if rest.iter().any(|&byte| byte != 0) {
            return Err("slots that are not in use are not zero");
        }
        let reach = Reach::new(task, kind, epoch as usize);
        let mut releases = Vec::with_capacity(task.slots as usize);
        for slot in used.chunks_exact(slot_length(task.width)) {
            let release = decode_slot(slot, kind, task, &reach)?;
            let last: Option<&Release> = releases.last();
            if last.is_some_and(|last| last.id >= release.id) {
                return Err("the ids of a frame do not increase");
            }
            releases.push(release);
        }
        Ok(Self { kind, epoch, releases })
    }
}

fn decode_slot(
    slot: &[u8],
    kind: Kind,
    task: &Task,
    reach: &Reach,
) -> Result<Release, &'static str> {
    let (id, rest) = slot.split_first_chunk::<16>().ok_or("a slot is too short")?;
    let (label, numbers) = rest.split_first_chunk::<4>().ok_or("a slot is too short")?;
    let label = u32::from_le_bytes(*label);
    let known = match kind {
        Kind::Contribution => (label as usize) < task.labels.len(),
        Kind::Query => label == NO_LABEL,
    };
    if !known {
        return Err("the task has no such label");
    }
    let numbers: Vec<f32> = numbers
        .chunks_exact(4)
        .map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]]))
        .collect();
    if numbers.iter().any(|number| !number.is_finite()) {
        return Err("a number of a release is not finite");
    }
    if !reach.holds(&numbers) {
        return Err("a release is larger than the task's norm and noise allow");
    }
    Ok(Release { id: *id, label, numbers })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::tests::task;

    fn frame(count: usize, task: &Task) -> Frame {
        let of = |i: usize| Release {
            id: [i as u8 + 1; 16],
            label: i as u32 % 2,
            numbers: (0..task.width).map(|j| (i + j) as f32 / 16.0 - 2.5).collect(),
        };
        Frame { kind: Kind::Contribution, epoch: 0, releases: (0..count).map(of).collect() }
    }

    #[test]
    fn a_frame_is_read_back_and_its_length_is_of_the_task() {
        let (task, hash) = (task(), [9; 32]);
        for count in [1, 5, task.slots as usize] {
            let original = frame(count, &task);
            let bytes = original.encode(&task, &hash);
            assert_eq!(bytes.len(), frame_length(&task));
            assert_eq!(
                Frame::decode(&bytes, Kind::Contribution, &task, &hash),
                Ok(original.clone())
            );
            // The frame does not show the order in which releases are given.
            let mut turned = original.clone();
            turned.releases.reverse();
            assert_eq!(turned.encode(&task, &hash), bytes);
        }
    }

    /// Every bit matters: a frame with a flipped bit and a truncated frame are refused.
    #[test]
    fn changed_and_cut_frames_are_refused() {
        let (task, hash) = (task(), [9; 32]);
        let bytes = frame(3, &task).encode(&task, &hash);
        let refused = |bytes: &[u8]| {
            assert!(Frame::decode(bytes, Kind::Contribution, &task, &hash).is_err());
        };
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << (at % 8);
            refused(&changed);
        }
        (0..bytes.len()).step_by(7).for_each(|length| refused(&bytes[..length]));
        refused(&[bytes.as_slice(), &[0]].concat());
    }

    /// Even with a correct hash, the contents of a frame are checked.
    #[test]
    fn frames_that_mean_nothing_are_refused() {
        let (task, task_hash) = (task(), [9; 32]);
        let bytes = frame(3, &task).encode(&task, &task_hash);
        let with = |at: usize, new: &[u8]| {
            let mut changed = bytes.clone();
            changed[at..at + new.len()].copy_from_slice(new);
            let end = changed.len() - 32;
            let sealed = hash(&changed[..end]);
            changed[end..].copy_from_slice(&sealed);
            Frame::decode(&changed, Kind::Contribution, &task, &task_hash).unwrap_err()
        };
        let slot = slot_length(task.width);
        for (at, new, about) in [
            (0, &b"X"[..], "format"),
            (8, &[2], "format"),
            (10, &[2], "kind"),
            (12, &[1], "slots"),
            (16, &[0], "no releases"),
            (16, &[65], "no releases"),
            (20, &[200], "epoch"),
            (24, &[1], "slots"),
            (32, &[1], "another task"),
            (64, &[255; 16], "increase"),
            (64 + slot, &[1; 16], "increase"),
            (64 + 16, &[7], "label"),
            (64 + 20, &f32::NAN.to_le_bytes(), "finite"),
            (64 + 20, &f32::INFINITY.to_le_bytes(), "finite"),
            (64 + 20, &f32::MAX.to_le_bytes(), "larger"),
            (64 + 20, &1e19_f32.to_le_bytes(), "larger"),
            (64 + 4 * slot, &[1], "not zero"),
        ] {
            let said = with(at, new);
            assert!(said.contains(about), "byte {at}: {said}, not {about}");
        }
        let query = Frame::decode(&bytes, Kind::Query, &task, &task_hash);
        assert!(query.unwrap_err().contains("kind"));
    }
}
