//! Collectives over TCP.

use super::in_ranks;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use undertone::collective::Error;
use undertone::collective::tcp::{Rendezvous, Tcp};

/// A value whose sums must be rounded.
fn value(rank: usize, i: usize) -> f32 {
    ((rank * 7919 + i * 104_729) % 1009) as f32 / 997.0 - 0.5
}

#[test]
fn sums_are_added_in_the_order_of_the_ranks() {
    for ranks in [2, 3, 4] {
        // Fewer values than ranks, parts of unequal length, and more than a socket's buffer.
        for length in [0, 1, 3, 1_001, 3_000_000] {
            let folder = tempfile::tempdir().unwrap();
            let sums = in_ranks(ranks, folder.path(), |ranks| {
                let mut values: Vec<f32> = (0..length).map(|i| value(ranks.rank(), i)).collect();
                ranks.all_reduce(&mut values).unwrap();
                ranks.leave();
                values
            });
            let expected: Vec<f32> = (0..length)
                .map(|i| (1..ranks).fold(value(0, i), |sum, rank| sum + value(rank, i)))
                .collect();
            assert!(sums.iter().all(|sum| *sum == expected), "{ranks} ranks, {length} values");
        }
    }
}

/// Each rank gets the sum of its part, and gathered values are identical on all ranks.
#[test]
fn a_rank_gets_the_sum_of_its_part() {
    for ranks in [2, 3] {
        let folder = tempfile::tempdir().unwrap();
        in_ranks(ranks, folder.path(), |ranks| {
            for each in [0, 1, 500] {
                let length = each * ranks.size();
                let values: Vec<f32> = (0..length).map(|i| value(ranks.rank(), i)).collect();
                let sum = ranks.reduce_scatter(&values).unwrap();
                let expected: Vec<f32> = (0..length)
                    .map(|i| (1..ranks.size()).fold(value(0, i), |sum, r| sum + value(r, i)))
                    .collect();
                assert_eq!(sum, expected[ranks.rank() * each..(ranks.rank() + 1) * each]);
                assert_eq!(ranks.all_gather_f32(&sum).unwrap(), expected);
            }
            // Parts of unequal length are a caller error, detected before anything is sent.
            assert!(ranks.reduce_scatter(&vec![1.0; ranks.size() + 1]).is_err());
            let own = vec![7; ranks.rank()];
            let all = ranks.gather(&own).unwrap();
            let expected: Vec<Vec<u8>> = (0..ranks.size()).map(|rank| vec![7; rank]).collect();
            assert_eq!(all, if ranks.is_first() { expected } else { Vec::new() });
            ranks.leave();
        });
    }
}

#[test]
fn rank_0_is_heard_by_all_and_nobody_passes_a_barrier_alone() {
    let folder = tempfile::tempdir().unwrap();
    let came = AtomicUsize::new(0);
    in_ranks(4, folder.path(), |ranks| {
        let own = format!("of {}", ranks.rank()).into_bytes();
        assert_eq!(ranks.broadcast(own.clone()).unwrap(), b"of 0");
        let all = ranks.all_gather(&own).unwrap();
        assert_eq!(all, ["of 0", "of 1", "of 2", "of 3"].map(|text| text.as_bytes().to_vec()));
        let secret = [ranks.rank() as u8 + 5; 32];
        assert_eq!(ranks.share_secret(secret).unwrap(), [5; 32]);
        std::thread::sleep(Duration::from_millis(20 * ranks.rank() as u64));
        came.fetch_add(1, Ordering::SeqCst);
        ranks.barrier().unwrap();
        assert_eq!(came.load(Ordering::SeqCst), 4);
        ranks.barrier().unwrap();
        ranks.leave();
    });
}

#[test]
fn all_name_the_rank_that_is_lost() {
    for says_why in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let begun = Instant::now();
        let messages = in_ranks(3, folder.path(), |ranks| {
            if ranks.rank() == 2 {
                if says_why {
                    ranks.abort(&Error::System("the disk is full".into()));
                }
                return String::new();
            }
            let error = ranks.barrier().unwrap_err();
            ranks.abort(&error);
            error.to_string()
        });
        for message in &messages[..2] {
            let why = if says_why { "has stopped: the disk is full" } else { "ended" };
            assert!(message.contains("rank 2 on ") && message.contains(why), "{message}");
        }
        assert!(begun.elapsed() < Duration::from_secs(30));
    }
}

#[test]
fn ranks_that_do_not_go_together_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let join = |rank, ranks, patience| {
        let folder = folder.path().to_owned();
        let patience = Duration::from_secs(patience);
        Tcp::join(&Rendezvous { folder, rank, ranks, address: None, patience })
            .unwrap_err()
            .to_string()
    };
    let join = &join;
    // A different number of ranks, and the same rank twice.
    for (other, about) in [((1, 3), "was started for 3 ranks, but rank 0 for 2"), ((0, 2), "")] {
        std::thread::scope(|scope| {
            let first = scope.spawn(move || join(0, 2, 2));
            if other.0 > 0 {
                let message = join(other.0, other.1, 20);
                assert!(message.contains(about), "{message}");
            }
            let message = first.join().unwrap();
            assert!(message.contains(about), "{message}");
            assert!(other.0 > 0 || message.contains("rank 1 did not join"), "{message}");
        });
    }
    assert!(join(1, 2, 0).contains("rank 0 did not join"));
    assert!(join(2, 2, 0).contains("numbered from 0"));
    assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none());
}

/// Foreign connections that send nothing, and one that sends something invalid, do not delay the
/// ranks: rank 0 has less time than it grants each of them.
#[test]
fn silent_strangers_do_not_delay_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let join = |rank| {
        let (folder, patience) = (folder.path().to_owned(), Duration::from_secs(4));
        Tcp::join(&Rendezvous { folder, rank, ranks: 2, address: None, patience })
    };
    let join = &join;
    std::thread::scope(|scope| {
        let first = scope.spawn(move || join(0));
        let port = loop {
            let text = std::fs::read_to_string(folder.path().join("rendezvous.json"));
            let meeting = text.ok().and_then(|text| serde_json::from_str(&text).ok());
            match meeting.and_then(|meeting: serde_json::Value| meeting["port"].as_u64()) {
                Some(port) => break port as u16,
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        let call = || std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        let mut strangers: Vec<_> = (0..5).map(|_| call()).collect();
        std::io::Write::write_all(&mut strangers[0], b"GET / HTTP/1.1").unwrap();
        let second = join(1).unwrap();
        let first = first.join().unwrap().unwrap();
        drop((first, second, strangers));
    });
}

/// Anyone who can write to the folder could replace the file with the job's key.
#[cfg(unix)]
#[test]
fn a_folder_that_others_can_write_to_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    for mode in [0o777, 0o1777, 0o775] {
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        for rank in [0, 1] {
            let (folder, patience) = (folder.path().to_owned(), Duration::from_secs(1));
            let rendezvous = Rendezvous { folder, rank, ranks: 2, address: None, patience };
            let message = Tcp::join(&rendezvous).unwrap_err().to_string();
            assert!(message.contains("other users can write to"), "{mode:o}: {message}");
        }
    }
    assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none());
}

/// A key that others can read is not used.
#[cfg(unix)]
#[test]
fn a_key_that_others_can_read_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rendezvous.json");
    std::fs::write(&file, r#"{"key":"00","host":"a","addresses":[],"port":1}"#).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let (folder, patience) = (folder.path().to_owned(), Duration::from_secs(1));
    let follower = Rendezvous { folder, rank: 1, ranks: 2, address: None, patience };
    let message = Tcp::join(&follower).unwrap_err().to_string();
    assert!(message.contains("is readable by others"), "{message}");
}
