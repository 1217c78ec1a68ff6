//! Ranks on a GPU, with `UNDERTONE_TEST_DEVICE=cuda`: sums through NCCL, which a single rank can
//! request, and ranks that share one GPU and therefore sum through the host.

use super::methods::apart;
use super::{Workshop, in_ranks};
use crate::common::devices;
use undertone::collective::Ranks;
use undertone::tensor::Precision;
use undertone::tensor::{Device, Matrix};
use undertone_run::NcclUse;

/// The GPU to test, if any.
fn gpu() -> Option<Device> {
    devices().into_iter().find(|device| device.name() == "cuda")
}

/// A single rank whose sums use NCCL.
fn by_nccl(gpu: &Device) -> Ranks {
    let (ranks, note) = Ranks::alone().with_gpus(NcclUse::On, gpu).unwrap();
    assert!(note.unwrap().contains("NCCL"));
    ranks
}

fn numbers(rows: usize, columns: usize) -> Vec<f32> {
    (0..rows * columns).map(|i| (i % 1013) as f32 / 997.0 - 0.3).collect()
}

#[test]
fn nccl_gives_one_rank_what_it_put_in() {
    let Some(gpu) = gpu() else { return };
    let ranks = by_nccl(&gpu);
    let gpus = ranks.gpus().unwrap();
    // Single values, shapes that are multiples of nothing, an empty matrix, and a large one.
    let shapes = [(1, 1), (3, 7), (0, 5), (33, 96), (768, 3072), (2, 9001)];
    let on_gpu = |&(rows, columns): &(usize, usize)| {
        Matrix::from_vec(rows, columns, numbers(rows, columns)).to_device(&gpu).unwrap()
    };
    let own: Vec<Matrix> = shapes.iter().map(on_gpu).collect();
    let sums = gpus.all_reduce(&own).unwrap();
    for ((&(rows, columns), own), sum) in shapes.iter().zip(&own).zip(&sums) {
        let expected = numbers(rows, columns);
        let same = |actual: &Matrix, what: &str| {
            assert_eq!((actual.rows(), actual.columns()), (rows, columns), "{what}");
            assert!(actual.to_vec().unwrap() == expected, "{what} of {rows} × {columns}");
        };
        same(sum, "all-reduce");
        same(&gpus.reduce_scatter(own).unwrap(), "reduce-scatter");
        same(&gpus.all_gather(own).unwrap(), "all-gather");
        same(&gpus.broadcast(own).unwrap(), "broadcast");
    }
    assert!(gpus.all_reduce(&[]).unwrap().is_empty());
    // A view of columns is not dense.
    let wide = on_gpu(&(5, 64)).column_range(3..20).unwrap();
    let reduced = gpus.all_reduce(std::slice::from_ref(&wide)).unwrap().remove(0);
    assert_eq!(reduced.to_vec().unwrap(), wide.to_vec().unwrap());
}

#[test]
fn a_run_by_nccl_is_the_run_without() {
    let Some(gpu) = gpu() else { return };
    let workshop = Workshop::new();
    let privacy = "method = \"dp-sgd\"\nclip = 0.5\nepsilon = 8.0\ndelta = 1e-3\n";
    for (name, precision) in [("f32", Precision::F32), ("bf16", Precision::Bf16)] {
        let gpu = gpu.clone().with_precision(precision).unwrap();
        let mut plan = workshop.plan("tuning = \"full\"", privacy, "", "epochs = 3");
        let [without, with] = [NcclUse::Off, NcclUse::On].map(|nccl| {
            plan.compute.nccl = nccl;
            let out = format!("{name}-{nccl:?}");
            workshop.start_on(&plan, &workshop.path(&out), Ranks::alone(), &gpu).unwrap();
            (workshop.weights(&out), workshop.events(&out))
        });
        assert!(with == without, "{name}");
    }
}

/// Ranks that share a GPU report that their sums go through the host.
#[test]
fn ranks_on_one_gpu_are_the_run_of_one_process() {
    let Some(gpu) = gpu() else { return };
    let workshop = Workshop::new();
    let privacy = "method = \"dp-sgd\"\nclip = 0.5\nepsilon = 8.0\ndelta = 1e-3\n";
    let training = "epochs = 9\noptimizer = \"sgd\"";
    for (kind, tuning) in
        [("full", "tuning = \"full\""), ("lora", "tuning = { lora = { rank = 2 } }")]
    {
        let plan = workshop.plan(tuning, privacy, "", training);
        let single = format!("{kind}-1");
        workshop.start_on(&plan, &workshop.path(&single), Ranks::alone(), &gpu).unwrap();
        for ranks in [2, 4] {
            let name = format!("{kind}-{ranks}");
            let out = workshop.path(&name);
            let summaries = in_ranks(ranks, &out.with_extension("job"), |ranks| {
                let device = &gpu;
                workshop.start_on(&plan, &out, ranks, device).unwrap()
            });
            assert!(
                summaries.iter().all(|summary| summary.ledger_hash == summaries[0].ledger_hash)
            );
            assert_eq!(workshop.events(&single), workshop.events(&name), "{name}");
            let apart = apart(&workshop.weights(&single), &workshop.weights(&name));
            assert!(apart <= 1e-6, "{name}: {apart:.1e} away");
        }
    }
    let folder = workshop.path("job");
    let notes = in_ranks(3, &folder, |ranks| {
        let (ranks, note) = ranks.with_gpus(NcclUse::Auto, &gpu).unwrap();
        ranks.barrier().unwrap();
        ranks.leave();
        note.unwrap()
    });
    for note in notes {
        assert_eq!(note, "sums go through the host: ranks 0 and 1 share a GPU");
    }
}
