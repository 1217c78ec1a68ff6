//! Every file that looks like a test is included in a test binary.

use std::fs;
use std::path::Path;

#[test]
fn every_file_of_tests_is_in_its_program() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut count = 0;
    for entry in fs::read_dir(crates).unwrap() {
        let tests = entry.unwrap().path().join("tests");
        let Ok(program) = fs::read_to_string(tests.join("main.rs")) else {
            let files =
                fs::read_dir(&tests).into_iter().flatten().map(|entry| entry.unwrap().path());
            let left_out = files.filter(|path| path.extension().is_some_and(|e| e == "rs"));
            assert_eq!(left_out.count(), 0, "{} has no main.rs", tests.display());
            continue;
        };
        for entry in fs::read_dir(&tests).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap();
            if path.extension().is_some_and(|e| e == "rs") && name != "main" {
                let line = format!("mod {name};");
                assert!(
                    program.lines().any(|known| known == line),
                    "{} is not run",
                    path.display()
                );
                count += 1;
            }
        }
    }
    assert!(count > 30, "only {count} files were found");
}
