//! Every allocation method, with small settings.

use super::*;

pub fn lora() -> Tuning {
    Tuning::Lora(LoraSettings { rank: 2, ..LoraSettings::default() })
}

pub fn some_map(parameters: &Parameters) -> RelevanceMap {
    let of = parameters.iter().map(|(id, p)| match p.trainable {
        true => (0..p.len()).map(|i| ((i * 37 + id.index() * 11) % 101) as f32).collect(),
        false => Vec::new(),
    });
    RelevanceMap { of: of.collect() }
}

/// Examples of a public file, with texts that differ from those of the batch.
pub fn public(count: u32) -> Dataset {
    let example = |i: u32| Example {
        tokens: (0..5 + i % 6).map(|t| (i * 17 + t * 13 + 3) % 50).collect(),
        target: Target::Class((i / 3) % 2),
        unit: i,
        ..Example::default()
    };
    let examples: Vec<Example> = (0..count).map(example).collect();
    let units = examples.len();
    let tally = undertone::data::Tally::default();
    Dataset { examples, labels: None, units, most_per_unit: 1, masking: None, skipped: 0, tally }
}

/// The weights of ANADP (without `adaclip`) or of AdaClip on public examples.
pub fn of_public(
    tuning: &Tuning,
    clip: &Clip,
    examples: &Dataset,
    adaclip: Option<&AdaclipSection>,
    seed: u64,
) -> FixedWeights {
    let (model, secret) = (model(tuning), Secret::from_seed(seed));
    let gradients = PublicGradients {
        model: &model,
        examples,
        clip,
        optimizer: Settings::default(),
        learning_rate: 1e-2,
        secret: &secret,
    };
    let settings = ImportanceSettings::usual(match tuning {
        Tuning::Full => ImportanceForm::Factored,
        _ => ImportanceForm::Element,
    });
    match adaclip {
        Some(section) => gradients.adaclip(section, &mut |_| {}).unwrap(),
        None => gradients.anadp(settings, &mut |_| {}).unwrap(),
    }
}

pub fn adaclip_by(form: ImportanceForm) -> AdaclipSection {
    AdaclipSection { form: Some(form), ..AdaclipSection::default() }
}

pub type Make = Box<dyn Fn(&Parameters) -> AllocationMethod>;

/// Every method by name, with a fine-tuning method, and whether its effective noise multiplier
/// equals the nominal one.
pub fn methods() -> Vec<(&'static str, Tuning, bool, Make)> {
    let clip = Clip::Flat(0.3);
    let element = ImportanceSettings::usual(ImportanceForm::Element);
    let factored = ImportanceSettings::usual(ImportanceForm::Factored);
    vec![
        (
            "uniform",
            Tuning::Full,
            true,
            Box::new(move |p| AllocationMethod::Proved(Box::new(DpSgd::new(&clip, p)))),
        ),
        (
            "per layer",
            Tuning::Full,
            true,
            Box::new(|p| AllocationMethod::Proved(Box::new(DpSgd::new(&Clip::PerLayer(0.3), p)))),
        ),
        (
            "anadp, elements",
            lora(),
            true,
            Box::new(move |p| AllocationMethod::Proved(Box::new(Anadp::new(&clip, element, p)))),
        ),
        (
            "anadp, factored",
            Tuning::Full,
            true,
            Box::new(move |p| {
                AllocationMethod::Proved(Box::new(Anadp::new(&Clip::Automatic, factored, p)))
            }),
        ),
        (
            "anadp, factored, per layer",
            Tuning::Full,
            true,
            Box::new(move |p| {
                AllocationMethod::Proved(Box::new(Anadp::new(&Clip::PerLayer(2.0), factored, p)))
            }),
        ),
        (
            "adaclip",
            lora(),
            true,
            Box::new(move |p| {
                AllocationMethod::Proved(Box::new(Adaclip::new(
                    &clip,
                    AdaclipSection::default(),
                    p,
                )))
            }),
        ),
        (
            "anadp, public, elements",
            lora(),
            true,
            Box::new(move |_| {
                let method = of_public(&lora(), &clip, &public(40), None, 1);
                AllocationMethod::Proved(Box::new(method))
            }),
        ),
        (
            "anadp, public, factored",
            Tuning::Full,
            true,
            Box::new(move |_| {
                let clip = Clip::PerLayer(2.0);
                let method = of_public(&Tuning::Full, &clip, &public(40), None, 1);
                AllocationMethod::Proved(Box::new(method))
            }),
        ),
        (
            "adaclip, public, elements",
            lora(),
            true,
            Box::new(move |_| {
                let section = adaclip_by(ImportanceForm::Element);
                let method = of_public(&lora(), &clip, &public(40), Some(&section), 1);
                AllocationMethod::Proved(Box::new(method))
            }),
        ),
        (
            "adaclip, public, factored",
            Tuning::Full,
            true,
            Box::new(move |_| {
                let section = adaclip_by(ImportanceForm::Factored);
                let clip = Clip::Automatic;
                let method = of_public(&Tuning::Full, &clip, &public(40), Some(&section), 1);
                AllocationMethod::Proved(Box::new(method))
            }),
        ),
        (
            "adaptive clipping",
            lora(),
            true,
            Box::new(move |p| {
                let method = AdaptiveClipping::new(AdaptiveClip::default(), 50.0, p);
                AllocationMethod::Proved(Box::new(method))
            }),
        ),
        (
            "anadp, published",
            Tuning::Adapter(AdapterSettings { size: 3, ..AdapterSettings::default() }),
            false,
            Box::new(move |p| {
                AllocationMethod::Published(Box::new(PublishedAnadp::new(&clip, element, p)))
            }),
        ),
        (
            "rap-ft",
            lora(),
            true,
            Box::new(move |p| {
                let map = ReleasedRelevanceMap::of_public(some_map(p));
                AllocationMethod::Proved(Box::new(RapFt::new(&clip, &map, 0.7, p)))
            }),
        ),
        (
            "rap-ft, published",
            Tuning::Bitfit,
            false,
            Box::new(move |p| {
                AllocationMethod::Published(Box::new(PublishedRapFt::new(
                    &clip,
                    &some_map(p),
                    0.7,
                    p,
                )))
            }),
        ),
    ]
}
