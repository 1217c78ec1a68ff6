//! Reuse of large buffers.
//!
//! A training step allocates the same few hundred buffers over and over. A fresh buffer costs a
//! page fault for every 4 KiB and a pass that writes zeros; a reused one costs neither. A buffer
//! from the pool contains *some* numbers, never uninitialized memory.
//!
//! The pool stays little larger than the program's peak use. A buffer may serve requests of down to
//! two thirds of its size, so that micro-batches of different sizes share buffers. Before the pool
//! allocates fresh memory, it frees idle buffers of other sizes until live and idle memory together
//! are at most 1.5 times the peak of live memory. Without the extra half, a step that needs
//! different buffer sizes at different times would free and reallocate its largest buffers every
//! time.

use super::pages::ask_for_large;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Buffers of fewer values than this are left to the ordinary allocator.
const SMALLEST: usize = 16_384;

struct Shelves {
    idle: BTreeMap<usize, Vec<Vec<f32>>>,
    idle_numbers: usize,
    alive_numbers: usize,
    most_alive: usize,
}

static SHELVES: Mutex<Shelves> =
    Mutex::new(Shelves { idle: BTreeMap::new(), idle_numbers: 0, alive_numbers: 0, most_alive: 0 });

/// A buffer of at least `length` values with arbitrary contents, returned to the pool when dropped.
#[derive(Debug)]
pub(crate) struct Buffer {
    values: Vec<f32>,
    /// Whether the buffer returns to the pool; buffers allocated elsewhere, such as weights, do
    /// not.
    pooled: bool,
}

impl Buffer {
    pub fn with_length(length: usize) -> Self {
        if length < SMALLEST {
            return Self::from_vec(vec![0.0; length]);
        }
        let size = size_class(length);
        let mut shelves = SHELVES.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(values) = shelves.take_idle(size) {
            return Self { values, pooled: true };
        }
        shelves.add_alive(size);
        let surplus = shelves.make_room();
        drop(shelves);
        drop(surplus);
        let mut values = vec![0.0; size];
        ask_for_large(&mut values);
        Self { values, pooled: true }
    }

    pub fn from_vec(values: Vec<f32>) -> Self {
        Self { values, pooled: false }
    }

    pub fn values(&self) -> &[f32] {
        &self.values
    }

    pub fn values_mut(&mut self) -> &mut [f32] {
        &mut self.values
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if !self.pooled {
            return;
        }
        let values = std::mem::take(&mut self.values);
        let size = values.len();
        let mut shelves = SHELVES.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        shelves.alive_numbers -= size;
        shelves.idle_numbers += size;
        shelves.idle.entry(size).or_default().push(values);
    }
}

impl Shelves {
    fn add_alive(&mut self, size: usize) {
        self.alive_numbers += size;
        self.most_alive = self.most_alive.max(self.alive_numbers);
    }

    /// The smallest idle buffer of this size or up to half as large again, which is then alive.
    fn take_idle(&mut self, size: usize) -> Option<Vec<f32>> {
        let fitting = self.idle.range_mut(size..=size + size / 2);
        let (&size, shelf) = fitting.into_iter().find(|(_, shelf)| !shelf.is_empty())?;
        let values = shelf.pop()?;
        self.idle_numbers -= size;
        self.add_alive(size);
        Some(values)
    }

    /// The limit of live and idle memory together: 1.5 times the peak of live memory.
    fn most_allowed(&self) -> usize {
        self.most_alive + self.most_alive / 2
    }

    /// Removes idle buffers, largest first, until the total is within its limit, and returns them
    /// to be freed.
    fn make_room(&mut self) -> Vec<Vec<f32>> {
        let mut surplus = Vec::new();
        while self.alive_numbers + self.idle_numbers > self.most_allowed() {
            let Some((&size, _)) = self.idle.iter().rev().find(|(_, shelf)| !shelf.is_empty())
            else {
                break;
            };
            if let Some(buffer) = self.idle.get_mut(&size).and_then(Vec::pop) {
                self.idle_numbers -= size;
                surplus.push(buffer);
            }
        }
        surplus
    }
}

/// Frees every idle buffer.
pub fn release_idle_memory() {
    let mut shelves = SHELVES.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let idle = std::mem::take(&mut shelves.idle);
    shelves.idle_numbers = 0;
    shelves.most_alive = shelves.alive_numbers;
    drop(shelves);
    drop(idle);
}

/// How many more bytes the pool may hold before it frees idle buffers, if buffers of other sizes are
/// requested.
pub fn unused_room() -> u64 {
    let shelves = SHELVES.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let held = shelves.alive_numbers + shelves.idle_numbers;
    (shelves.most_allowed().saturating_sub(held) * size_of::<f32>()) as u64
}

/// Rounds a size up to one of eight steps per power of two, so that batches of nearly equal length
/// share buffers.
fn size_class(length: usize) -> usize {
    let step = (length.next_power_of_two() / 16).max(1);
    length.div_ceil(step) * step
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_class_holds_its_members_and_wastes_at_most_an_eighth() {
        for length in (SMALLEST..200_000).step_by(77) {
            let class = size_class(length);
            assert!(class >= length && class as f64 <= length as f64 * 1.125, "{length} → {class}");
            assert_eq!(size_class(class), class, "a class is its own class");
        }
    }

    #[test]
    fn the_smallest_idle_buffer_that_fits_is_taken() {
        let sizes = [8, 12, 13, 100];
        let idle = sizes.map(|size| (size, vec![vec![0.0; size]]));
        let mut shelves = Shelves {
            idle: BTreeMap::from(idle),
            idle_numbers: sizes.iter().sum(),
            alive_numbers: 0,
            most_alive: 0,
        };
        let mut take = |size| shelves.take_idle(size).map(|values| values.len());
        assert_eq!(take(8), Some(8));
        assert_eq!(take(8), Some(12), "half as large again");
        assert_eq!(take(8), None, "13 is more than that, and 8 and 12 are in use");
        assert_eq!(take(67), Some(100));
        assert_eq!(
            (shelves.idle_numbers, shelves.alive_numbers, shelves.most_alive),
            (13, 120, 120)
        );
    }

    #[test]
    fn what_was_made_elsewhere_does_not_join_the_pool() {
        // The length is exactly a size class, so that only the `pooled` flag distinguishes the two.
        let length = size_class(7 * SMALLEST);
        drop(Buffer::from_vec(vec![5.0; length]));
        let shelves = SHELVES.lock().unwrap();
        let idle = shelves
            .idle
            .get(&length)
            .map_or(0, |shelf| shelf.iter().filter(|b| b[0] == 5.0).count());
        assert_eq!(idle, 0);
    }

    #[test]
    fn a_buffer_is_long_enough() {
        for length in [0, 1, 100, SMALLEST, SMALLEST + 1, 100_000] {
            assert!(Buffer::with_length(length).values().len() >= length);
        }
    }
}
