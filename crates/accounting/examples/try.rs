use undertone_accounting::pld::*;
use undertone_accounting::*;
fn main() {
    let rows: Vec<(Vec<(f64,f64,u64)>, f64, f64)> = vec![
        (vec![(1.5,0.04,2250)],1e-5,6.768781),
        (vec![(1.5,0.04,2249)],1e-5,6.767045),
        (vec![(0.8,0.001,100)],1e-6,0.260339),
        (vec![(1.5,0.05,100)],1e-6,1.943739),
        (vec![(2.0,0.2,100)],1e-6,5.661789),
        (vec![(1.5,0.05,1000)],1e-6,6.199693),
        (vec![(0.8,0.001,20000)],1e-6,1.285927),
        (vec![(2.0,0.001,50000)],1e-6,0.481327),
        (vec![(1.1,256./60000.,14063)],1e-5,2.381692),
        (vec![(1.3,256./60000.,3516)],1e-5,0.864546),
        (vec![(0.7,256./60000.,10547)],1e-5,5.639684),
        (vec![(1.3,150./60000.,6000)],1e-5,0.640012),
        (vec![(1.0,100./100000.,30000)],1e-7,1.097683),
        (vec![(0.7,0.01,120)],1e-5,2.461240),
        (vec![(0.8,0.005,1000)],1e-6,2.004108),
        (vec![(0.6,32./67349.,2104),(0.5,32./67349.,2104),(0.42,32./67349.,2104)],1e-5,0.),
        (vec![(0.8,0.125,1000)],1e-5,0.),
        (vec![(1.,0.2,500)],1e-5,0.),
        (vec![(1.,0.01,1000)],1.13e-18,0.),
        (vec![(10.,0.2606,18800)],1e-5,0.),
        (vec![(1.,0.001,10_000_000)],1e-5,0.),
        (vec![(1.,1e-5,10_000_000)],1e-5,0.),
        (vec![(0.05,1e-7,1_000_000)],1e-5,0.),
        ((0..1000).map(|i| (0.8+i as f64*0.001,0.003,100)).collect(),1e-5,0.),
    ];
    for (phases, delta, expect) in rows {
        let mut c = Composition::new(Adjacency::AddRemove);
        for (s,q,n) in &phases { c.push(Event::PoissonGaussian{noise_multiplier:*s,sampling_rate:*q},*n); }
        let t = std::time::Instant::now();
        let r = Numerical::new(&c, delta).and_then(|n| n.epsilon(delta, Precision::default()));
        let e = t.elapsed();
        match r { Ok(b) => println!("{:?}x{} δ={delta:e} {:.6} {:.6} {:.6} gap {:.2e} want {expect} {} {e:?}", phases[0], phases.len(), b.lower,b.estimate,b.upper,b.gap(), if b.contains(expect){"ok"}else{"--"}), Err(x)=>println!("{:?} {x} {e:?}",phases[0]) }
    }
}
