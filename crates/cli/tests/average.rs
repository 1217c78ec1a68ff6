//! Averages of the weights over steps (`training.average`), and the filter over releases
//! (`training.filter_gain`).

use crate::bench::Bench;

/// With one step per epoch: the mean over two steps, and the moving average over two.
#[test]
fn the_saved_weights_are_the_average_over_steps() {
    let bench = Bench::classifier();
    let train = |out: &str, epochs: &str, more: &[&str]| {
        let plain = ["--set", "privacy.method=none", "--unset", "privacy.epsilon"];
        let rest = ["--unset", "privacy.delta", "--seed", "3", "--set", "training.batch=120"];
        let epochs = format!("training.epochs={epochs}");
        let all = [&plain[..], &rest, &["--set", &epochs], more].concat();
        bench.train(out, &all);
        bench.parameters(&format!("{out}/model/model.safetensors"))
    };
    let (first, second) = (train("first", "1", &[]), train("second", "2", &[]));
    let mean = train("mean", "2", &["--set", "training.average={ last = 1.0 }"]);
    let last = train("last", "2", &["--set", "training.average={ last = 0.5 }"]);
    let moving = train("moving", "2", &["--set", "training.average={ ema = 0.9 }"]);
    assert_eq!(last, second);
    assert_ne!(first, second);
    for (i, (a, b)) in first.iter().zip(&second).enumerate() {
        assert!((mean[i] - (a + b) / 2.0).abs() < 1e-6, "{} of {a} and {b}", mean[i]);
        // The decay of the second step is 2/11.
        let wanted = a + 9.0 / 11.0 * (b - a);
        assert!((moving[i] - wanted).abs() < 1e-6, "{} of {a} and {b}", moving[i]);
    }
}

#[test]
fn a_killed_run_resumes_with_its_average_and_filter() {
    let bench = Bench::classifier();
    let settings = ["--set", "training.epochs=8", "--set", "training.batch=6", "--seed", "5"];
    let average = ["--set", "training.average={ ema = 0.95 }"];
    let filter = ["--set", "training.filter_gain=0.6", "--set", "compute.checkpoint_every=7"];
    let settings = [&settings[..], &average, &filter].concat();
    bench.train("whole", &settings);
    if bench.kill_after("broken", &settings, 40) {
        bench.resume("broken");
    }
    bench.assert_same_runs("broken", "whole", "model/model.safetensors");
}

#[test]
fn averages_and_filters_without_effect_are_refused() {
    let bench = Bench::classifier();
    for gain in ["0", "1", "-0.5"] {
        bench.refused("run", &["--set", &format!("training.filter_gain={gain}")], "filter_gain");
    }
    let banded = ["--set", "training.filter_gain=0.5", "--set", "privacy.correlation.bands=4"];
    bench.refused("run", &banded, "training.filter_gain is for");
    let anadp = ["--set", "training.filter_gain=0.5", "--set", "privacy.method=anadp"];
    bench.refused("run", &anadp, "training.filter_gain is for");
    for (value, about) in [
        ("{ ema = 1.0 }", "training.average.ema"),
        ("{ last = 0.0 }", "training.average.last"),
        ("{ last = 1.5 }", "training.average.last"),
        ("median", "training.average"),
    ] {
        bench.refused("run", &["--set", &format!("training.average={value}")], about);
    }
}
