//! Many processes reserve and settle at once and are killed at random points: never over the cap,
//! never a lost settlement. `tests/register/run` does it a thousand times.

use crate::*;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

const REGISTER: &str = "UNDERTONE_TEST_REGISTER";
const LOG: &str = "UNDERTONE_TEST_LOG";

/// Each reservation costs this much; about `FIT` of them fit under the cap.
const NOISE: f64 = 50.0;

/// A child process of the test below; on its own it does nothing. It logs every acknowledgment it
/// receives. Each line is written by a single call, so a kill does not tear it.
#[test]
fn spends_until_it_is_killed() {
    let (Ok(path), Ok(log)) = (std::env::var(REGISTER), std::env::var(LOG)) else { return };
    let register = Register::open(path.as_ref()).unwrap();
    let mut log = std::fs::OpenOptions::new().create(true).append(true).open(log).unwrap();
    for turn in 0.. {
        let wanted = reservation(cost(NOISE, 3));
        if register.reserve(&wanted).is_err() {
            log.write_all(b"refused -\n").unwrap();
            return;
        }
        log.write_all(format!("reserved {}\n", wanted.id).as_bytes()).unwrap();
        // Some runs release less than they planned, and some nothing.
        match turn % 4 {
            3 => {
                register.release(&wanted.id, "nothing was read").unwrap();
                log.write_all(format!("released {}\n", wanted.id).as_bytes()).unwrap();
            }
            more => {
                register.settle(&settlement(&wanted.id, cost(NOISE, 1 + more), 1 + more)).unwrap();
                log.write_all(format!("settled {}\n", wanted.id).as_bytes()).unwrap();
            }
        }
    }
}

fn child(folder: &Path, number: usize) -> Child {
    let path = folder.join("register.jsonl");
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kills::spends_until_it_is_killed", "--test-threads=1"])
        .env(REGISTER, path)
        .env(LOG, folder.join(format!("{number}.log")))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn kills_at_any_point_neither_overspend_nor_lose_a_settlement() {
    let wanted: usize = std::env::var("UNDERTONE_RESERVATIONS")
        .map_or(300, |count| count.parse().expect("UNDERTONE_RESERVATIONS is a number"));
    let folder = tempfile::tempdir().unwrap();
    // A settled reservation is for 1, 2 or 3 releases, and one in four is given back.
    let count = (wanted * 3 / 2) as u64;
    let spent = undertone_accounting::epsilon(
        &cost(NOISE, count).releases,
        DELTA,
        undertone_accounting::Accountant::Auto,
    );
    let register = register(folder.path(), spent.unwrap().epsilon.upper);
    let nanos = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().subsec_nanos();
    let mut random = u64::from(nanos()) | 1;
    let mut below = |most: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % most
    };
    let mut children: Vec<Child> = (0..8).map(|number| child(folder.path(), number)).collect();
    let (mut started, mut killed) = (children.len(), 0);
    while !logs(folder.path()).contains("refused") {
        std::thread::sleep(Duration::from_millis(below(30)));
        let victim = below(children.len() as u64) as usize;
        children[victim].kill().unwrap();
        children[victim].wait().unwrap();
        killed += 1;
        children[victim] = child(folder.path(), started);
        started += 1;
    }
    for child in &mut children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let verified = register.verify(&[]).expect("no reservation was ever over the cap");
    let account = verified.state.find("letters").unwrap();
    let total = account.epsilon_of(&account.committed()).unwrap().upper;
    assert!(total <= account.cap.epsilon, "{total}, over {}", account.cap);
    let mut acknowledged = 0;
    for line in logs(folder.path()).lines() {
        let (what, id) = line.split_once(' ').unwrap();
        if what == "refused" {
            continue;
        }
        acknowledged += 1;
        let (_, booking) = verified.state.booking(id).unwrap_or_else(|| panic!("{line} is lost"));
        match (what, &booking.status) {
            ("settled", Status::Settled(..)) | ("released", Status::Released(..)) => {}
            ("reserved", _) => {}
            (_, other) => panic!("{line}, but it is {other:?}"),
        }
    }
    assert!(killed > 3 && acknowledged > 20, "{killed} kills, {acknowledged} entries");
    println!("{} reservations, {killed} kills, ε = {total:.4}", account.bookings.len());
}

/// The acknowledgments that all children received.
fn logs(folder: &Path) -> String {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let logs = entries.filter(|path| path.extension().is_some_and(|ending| ending == "log"));
    logs.map(|path| std::fs::read_to_string(path).unwrap()).collect()
}
