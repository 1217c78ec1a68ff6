use undertone_accounting::pld::*;
use undertone_accounting::*;
use rand_chacha::rand_core::{Rng,SeedableRng};
fn main() {
    let n: usize = std::env::args().nth(1).map(|s| s.parse().unwrap()).unwrap_or(1000);
    let seed: u64 = std::env::args().nth(2).map(|s| s.parse().unwrap()).unwrap_or(1);
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
    let mut u = move || (rng.next_u64() >> 11) as f64 / (1u64<<53) as f64;
    let mut slow = 0.0f64; let mut bad=0; let mut errs = std::collections::BTreeMap::<String,usize>::new(); let mut wide=0; let mut answered=0;
    for i in 0..n {
        let parts = match (u()*4.0) as u32 { 0|1 => 1, 2 => 1 + (u()*5.0) as usize, _ => (1000f64).powf(u()) as usize };
        let adj = if u()<0.5 {Adjacency::AddRemove} else {Adjacency::ReplaceOne};
        let mut c = Composition::new(adj);
        let total = 1e7f64.powf(u());
        for _ in 0..parts {
            let kind = u();
            let sigma = 0.05*(2e4f64).powf(u());
            let q = 1e-7f64.powf(u());
            let steps = (total/parts as f64).max(1.0) as u64;
            if kind<0.85 { c.push(Event::PoissonGaussian{noise_multiplier:sigma,sampling_rate:q},steps) }
            else if kind<0.93 { c.push(Event::Gaussian{noise_multiplier:sigma*3.0,sensitivity:1.0},1+(u()*5.0) as u64) }
            else { c.push(Event::RandomisedResponse{epsilon:0.01*1000f64.powf(u()),categories:2+(u()*20.0) as u64},1+(u()*3.0) as u64) }
        }
        let delta = 0.5*(2e-18f64).powf(u());
        if let Some(only) = std::env::args().nth(3) { if only.parse::<usize>().unwrap() != i { continue } }
        let t = std::time::Instant::now();
        let r = std::panic::catch_unwind(|| Numerical::new(&c, delta).and_then(|n| n.epsilon(delta, Precision::default())));
        let e = t.elapsed().as_secs_f64();
        slow = slow.max(e);
        let show = |what:&str| println!("{what} #{i} {e:.2}s adj {adj} δ={delta:e} parts {} steps {} first {:?}", c.parts().len(), c.releases(), c.parts()[0]);
        if e > 2.0 { show("SLOW"); }
        match r {
            Err(_) => { show("PANIC"); bad+=1; }
            Ok(Ok(b)) => { answered+=1;
                if !(b.lower <= b.estimate && b.estimate <= b.upper) || !b.upper.is_finite() { show(&format!("BAD {b:?}")); bad+=1; }
                if c.releases() <= 100_000 && b.gap() > 1e-3*b.upper.max(1.0) { show(&format!("WIDE {:.4} {:.4} {:.2e}", b.lower,b.upper,b.gap())); wide+=1; }
            }
            Ok(Err(x)) => { *errs.entry(format!("{x}").chars().take(40).collect()).or_default()+=1; }
        }
    }
    println!("answered {answered} bad {bad} wide {wide} slowest {slow:.2} {errs:?}");
}
