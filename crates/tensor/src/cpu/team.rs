//! Threads that stay awake during a computation of many operations.
//!
//! A training step has hundreds of operations on all cores, many of them shorter than the time it
//! takes to wake a sleeping thread. So one thread *leads*: it runs the computation and distributes
//! the tasks of each operation to helpers, which poll for tasks until the computation is over and
//! only then sleep. While polling, they yield to other programs.

use super::level::LevelOfThread;
use std::any::Any;
use std::cell::Cell;
use std::hint::spin_loop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread;

thread_local! {
    static ROLE: Cell<Role> = const { Cell::new(Role::None) };
}

/// The role of a thread in the team.
#[derive(Clone, Copy, PartialEq)]
enum Role {
    None,
    /// Runs the computation and may distribute operations to helpers.
    Leads,
    /// Runs a task; operations inside a task are not split again.
    Works,
}

/// The tasks of one operation.
struct Operation<'a> {
    body: &'a (dyn Fn(usize) + Sync),
    count: usize,
    next: AtomicUsize,
    /// The leader's instruction-set level, which its helpers use too.
    level: LevelOfThread,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Operation<'_> {
    /// Works on tasks until none is left.
    fn work(&self) {
        loop {
            let task = self.next.fetch_add(1, Relaxed);
            if task >= self.count {
                return;
            }
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (self.body)(task))) {
                lock(&self.panic).get_or_insert(panic);
            }
        }
    }
}

/// The helpers and their current work.
struct Team {
    helpers: usize,
    /// Only one computation at a time has a team.
    leader: Mutex<()>,
    awake: Mutex<bool>,
    wake: Condvar,
    /// Whether a computation is in progress.
    active: AtomicBool,
    /// Number of operations so far.
    number: AtomicUsize,
    /// The current operation, or null.
    operation: AtomicPtr<Operation<'static>>,
    /// Number of helpers that may be accessing it.
    inside: AtomicUsize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Spins, and yields to other threads from time to time.
fn pause(tries: &mut u32) {
    *tries += 1;
    if tries.is_multiple_of(100) {
        thread::yield_now();
    } else {
        spin_loop();
    }
}

impl Team {
    /// The team of this process, if it has this many threads.
    fn of(threads: usize) -> Option<&'static Self> {
        static TEAM: OnceLock<Team> = OnceLock::new();
        let team = TEAM.get_or_init(|| Self {
            helpers: threads - 1,
            leader: Mutex::new(()),
            awake: Mutex::new(false),
            wake: Condvar::new(),
            active: AtomicBool::new(false),
            number: AtomicUsize::new(0),
            operation: AtomicPtr::new(ptr::null_mut()),
            inside: AtomicUsize::new(0),
        });
        static STARTED: OnceLock<bool> = OnceLock::new();
        let all_started = STARTED.get_or_init(|| {
            (0..team.helpers).all(|i| {
                let named = thread::Builder::new().name(format!("helper-{i}"));
                named.spawn(|| team.help()).is_ok()
            })
        });
        (*all_started && team.helpers + 1 == threads).then_some(team)
    }

    /// The main loop of a helper.
    fn help(&self) {
        ROLE.set(Role::Works);
        let mut seen = 0;
        loop {
            let mut awake = lock(&self.awake);
            while !*awake {
                awake = self.wake.wait(awake).unwrap_or_else(PoisonError::into_inner);
            }
            drop(awake);
            let mut tries = 0;
            while self.active.load(Relaxed) {
                let number = self.number.load(Acquire);
                if number == seen {
                    pause(&mut tries);
                    continue;
                }
                (seen, tries) = (number, 0);
                self.inside.fetch_add(1, SeqCst);
                let operation = self.operation.load(SeqCst);
                // SAFETY: the leader clears the pointer before the operation ends, and then waits
                // until no helper is inside. A helper that enters later finds null, or a later
                // operation, for which the same holds.
                #[allow(unsafe_code)]
                if let Some(operation) = unsafe { operation.as_ref() } {
                    operation.level.set();
                    operation.work();
                }
                self.inside.fetch_sub(1, SeqCst);
            }
        }
    }

    /// Calls `body` with each index below `count`, on all threads.
    fn run(&self, count: usize, body: &(dyn Fn(usize) + Sync)) {
        let operation = Operation {
            body,
            count,
            next: AtomicUsize::new(0),
            level: LevelOfThread::get(),
            panic: Mutex::new(None),
        };
        // SAFETY: only the lifetime changes, and the pointer is not used after this function
        // returns: `work` catches panics, and the loop below waits for all helpers.
        #[allow(unsafe_code)]
        let shared = unsafe {
            std::mem::transmute::<*const Operation<'_>, *mut Operation<'static>>(&operation)
        };
        self.operation.store(shared, SeqCst);
        self.number.fetch_add(1, SeqCst);
        ROLE.set(Role::Works);
        operation.work();
        ROLE.set(Role::Leads);
        self.operation.store(ptr::null_mut(), SeqCst);
        let mut tries = 0;
        while self.inside.load(SeqCst) > 0 {
            pause(&mut tries);
        }
        if let Some(panic) = lock(&operation.panic).take() {
            resume_unwind(panic);
        }
    }

    fn set_awake(&self, awake: bool) {
        self.active.store(awake, Relaxed);
        *lock(&self.awake) = awake;
        if awake {
            self.wake.notify_all();
        }
    }
}

/// Ends the computation, even if its function panics.
struct Leading<'a>(&'a Team, #[allow(dead_code)] MutexGuard<'a, ()>);

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        ROLE.set(Role::None);
        self.0.set_awake(false);
    }
}

/// Runs a computation with helpers that stay awake. Returns `body` unchanged if no helpers are
/// available: because it is part of another computation, because there is only one core, or because
/// another thread has the team. It must not wait for other threads of this program.
pub fn lead<R, F: FnOnce() -> R>(body: F) -> Result<R, F> {
    let threads = rayon::current_num_threads();
    if threads < 2 || ROLE.get() != Role::None {
        return Err(body);
    }
    let Some(team) = Team::of(threads) else { return Err(body) };
    let leader = match team.leader.try_lock() {
        Ok(leader) => leader,
        Err(TryLockError::Poisoned(leader)) => leader.into_inner(),
        Err(TryLockError::WouldBlock) => return Err(body),
    };
    let _leading = Leading(team, leader);
    ROLE.set(Role::Leads);
    team.set_awake(true);
    Ok(body())
}

/// Calls `body` with each index below `count` on the team's threads, if this thread leads them or
/// works for them; returns whether it did.
pub fn run(count: usize, body: &(dyn Fn(usize) + Sync)) -> bool {
    match ROLE.get() {
        Role::None => return false,
        Role::Works => (0..count).for_each(body),
        Role::Leads => match Team::of(rayon::current_num_threads()) {
            Some(team) => team.run(count, body),
            None => return false,
        },
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    /// Every task runs once, whichever thread leads, and an operation inside a task runs within
    /// that task.
    #[test]
    fn every_task_runs_once() {
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let all = || {
                        for count in (0..200).chain([5_000]) {
                            let sum = AtomicU64::new(0);
                            let times = AtomicU64::new(0);
                            let task = |i: usize| {
                                assert!(run(2, &|_| {
                                    times.fetch_add(1, Relaxed);
                                }));
                                sum.fetch_add(i as u64, Relaxed);
                            };
                            assert!(run(count, &task), "nobody leads");
                            let count = count as u64;
                            assert_eq!(sum.into_inner(), count * count.saturating_sub(1) / 2);
                            assert_eq!(times.into_inner(), 2 * count);
                        }
                    };
                    for _ in 0..20 {
                        if lead(all).is_err() {
                            thread::yield_now();
                        }
                    }
                });
            }
        });
    }

    #[test]
    fn a_panic_reaches_the_leader_and_the_team_goes_on() {
        for _ in 0..50 {
            let result = catch_unwind(|| {
                lead(|| run(40, &|i| assert!(i != 17, "the seventeenth"))).is_err()
            });
            let Err(panic) = result else { continue };
            let said = panic.downcast_ref::<&str>().copied().unwrap_or_default();
            assert_eq!(said, "the seventeenth");
            assert!(ROLE.get() == Role::None);
        }
    }

    #[test]
    fn without_a_leader_nothing_runs() {
        assert!(!run(3, &|_| unreachable!("nobody leads")));
    }
}
