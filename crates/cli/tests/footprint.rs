//! The memory that a dry run reports, compared with the peak of the run.

use crate::bench::*;
use serde_json::Value;

/// Small models need little beyond the program itself, so the limits are wide.
#[test]
fn a_dry_run_states_the_memory_of_the_run() {
    let bench = Bench::classifier();
    let short = ["--set", "training.epochs=1"];
    let average = ["--set", "training.average={ ema = 0.9 }"];
    let lora = ["--set", "model.tuning={ lora = { rank = 2 } }"];
    for (name, more) in [("full", &[][..]), ("lora", &lora), ("average", &average)] {
        let set = [&short[..], more].concat();
        let summary = bench.train(name, &set);
        let Some(peak) = summary["peak_memory_bytes"].as_f64() else { return };
        let mut command = bench.command("nowhere", &[]);
        command.args(&set).args(["--dry-run", "--json"]);
        let program = command.get_program().to_owned();
        let arguments: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
        // A dry run has no folder.
        let at = arguments.iter().position(|argument| argument == "--out").unwrap();
        let arguments = arguments[..at].iter().chain(&arguments[at + 2..]);
        let output = std::process::Command::new(program).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let said: Value = serde_json::from_slice(&output.stdout).unwrap();
        let stated = said["memory_bytes"].as_f64().unwrap();
        assert!((0.6..1.6).contains(&(stated / peak)), "{name}: {stated} beside {peak}");
    }
}
