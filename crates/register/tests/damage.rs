//! Every edit is detected.

use crate::*;
use std::fs;
use undertone_register::Error;

/// A register with one entry of each kind: its file and the file beside it.
fn filled(folder: &Path) -> (Register, std::path::PathBuf, std::path::PathBuf) {
    let register = register(folder, 8.0);
    let (first, second) = (reservation(cost(5.0, 2)), reservation(cost(6.0, 1)));
    register.reserve(&first).unwrap();
    register.reserve(&second).unwrap();
    register.settle(&settlement(&first.id, cost(5.0, 2), 2)).unwrap();
    register.release(&second.id, "nothing was read").unwrap();
    register.set_cap(&name("1"), Cap { epsilon: 9.0, delta: DELTA }, "the board").unwrap();
    register.close(&name("1"), "done").unwrap();
    (register, folder.join("register.jsonl"), folder.join("register.jsonl.head"))
}

fn damaged(register: &Register, what: &str) {
    let error = register.verify(&[]).map(|_| ()).expect_err(what);
    let sentence = error.to_string();
    assert!(matches!(error, Error::Refused(_)), "{what}: {sentence}");
    assert!(sentence.contains("register") && !sentence.contains('\n'), "{what}: {sentence}");
    // Nothing is written to a damaged register.
    let add = register.add(DataSet { other_people: true, ..data_set("9", 1.0) });
    assert!(add.is_err(), "{what}");
}

#[test]
fn an_edit_of_any_byte_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let (register, path, _) = filled(folder.path());
    register.verify(&[]).unwrap();
    let bytes = fs::read(&path).unwrap();
    for at in (0..bytes.len()).step_by(7).chain(bytes.len() - 90..bytes.len()) {
        let mut edited = bytes.clone();
        edited[at] = if edited[at] == b'1' { b'2' } else { b'1' };
        fs::write(&path, &edited).unwrap();
        damaged(&register, &format!("byte {at}"));
        assert_eq!(fs::read(&path).unwrap(), edited, "a damaged register stays as it is");
    }
    fs::write(&path, &bytes).unwrap();
    register.verify(&[]).unwrap();
}

#[test]
fn lines_that_are_missing_or_moved_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let (register, path, head) = filled(folder.path());
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    for missing in 0..lines.len() {
        let left: String =
            lines.iter().enumerate().filter(|(i, _)| *i != missing).map(|(_, l)| *l).collect();
        fs::write(&path, left).unwrap();
        damaged(&register, &format!("without line {missing}"));
    }
    let mut swapped = lines.clone();
    swapped.swap(2, 3);
    fs::write(&path, swapped.concat()).unwrap();
    damaged(&register, "swapped");
    fs::write(&path, text.repeat(2)).unwrap();
    damaged(&register, "twice");
    fs::write(&path, "").unwrap();
    damaged(&register, "empty");
    fs::write(&path, &text).unwrap();
    let kept = fs::read(&head).unwrap();
    fs::write(&head, "{}").unwrap();
    damaged(&register, "a damaged head");
    fs::remove_file(&head).unwrap();
    damaged(&register, "no head");
    fs::write(&head, kept).unwrap();
    register.verify(&[]).unwrap();
}

/// A rewrite of everything with new hashes is detected by a hash that was noted elsewhere.
#[test]
fn a_rewritten_register_lacks_the_hashes_that_were_noted() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("a"), folder.path().join("b"));
    fs::create_dir(&first).unwrap();
    fs::create_dir(&second).unwrap();
    let (register, ..) = filled(&first);
    let noted = register.verify(&[]).unwrap().hash;
    register.verify(std::slice::from_ref(&noted)).unwrap();
    let (other, ..) = filled(&second);
    let error = other.verify(&[noted]).unwrap_err().to_string();
    assert!(error.contains("no line with the hash"), "{error}");
}

/// A line that a crash cut off was never acknowledged: it is ignored, and then removed. A complete
/// line that the file beside the register does not yet include counts.
#[test]
fn a_crash_while_writing_leaves_the_line_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let register = register(folder.path(), 8.0);
    let path = folder.path().join("register.jsonl");
    let head = folder.path().join("register.jsonl.head");
    let (before, head_before) = (fs::read(&path).unwrap(), fs::read(&head).unwrap());
    let wanted = reservation(cost(5.0, 2));
    register.reserve(&wanted).unwrap();
    let after = fs::read(&path).unwrap();
    for cut in (before.len()..after.len()).step_by(13) {
        fs::write(&path, &after[..cut]).unwrap();
        fs::write(&head, &head_before).unwrap();
        assert!(register.state().unwrap().booking(&wanted.id).is_none(), "cut at {cut}");
        let hash = register.reserve(&wanted).unwrap();
        assert_eq!(register.verify(&[]).unwrap().hash, hash);
    }
    fs::write(&path, &after).unwrap();
    fs::write(&head, &head_before).unwrap();
    assert_eq!(status(&register, &wanted.id), Status::Open);
    register.reserve(&reservation(cost(5.0, 2))).unwrap();
    assert_eq!(register.verify(&[]).unwrap().lines, 4);
}

#[test]
fn what_is_no_register_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("none");
    let error = Register::open(&path).unwrap_err().to_string();
    assert!(error.contains("register init"), "{error}");
    assert!(Register::open(folder.path()).is_err());
    fs::write(&path, "text\n").unwrap();
    assert!(Register::open(&path).unwrap().state().is_err());
    let error = Register::create(&path).unwrap_err().to_string();
    assert!(error.contains("never overwritten"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"text\n");
}
