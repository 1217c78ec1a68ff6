//! A method's clipping and noise allocation for a timed step that uses no data.

use super::adaptive_clip::AdaptiveClipping;
use super::plan::{AllocationPlan, CentralPlan};
use super::{
    Adaclip, AllocationMethod, Anadp, DpSgd, PublishedAnadp, RapFt, ReleasedRelevanceMap,
    RelevanceMap,
};
use crate::model::Parameters;
use undertone_run::Clip;

impl CentralPlan {
    /// The allocation method with an arbitrary relevance map, whose values do not affect timing.
    pub(crate) fn rehearsed(&self, parameters: &Parameters) -> AllocationMethod {
        use AllocationMethod::{Proved, Published};
        let clip = &self.clip;
        match &self.allocation {
            AllocationPlan::Adaclip(section) => {
                Proved(Box::new(Adaclip::new(clip, section.clone(), parameters)))
            }
            AllocationPlan::Anadp(settings, _) => {
                Proved(Box::new(Anadp::new(clip, *settings, parameters)))
            }
            AllocationPlan::PublishedAnadp(settings) => {
                Published(Box::new(PublishedAnadp::new(clip, *settings, parameters)))
            }
            AllocationPlan::RapFt(rap_ft) => {
                let of = parameters.iter().map(|(_, parameter)| match parameter.trainable {
                    true => (0..parameter.len()).map(|i| (i as f32 * 0.618).fract()).collect(),
                    false => Vec::new(),
                });
                let map = ReleasedRelevanceMap::of_public(RelevanceMap { of: of.collect() });
                Proved(Box::new(RapFt::new(clip, &map, rap_ft.mask, parameters)))
            }
            AllocationPlan::DpSgd => match clip {
                Clip::Adaptive(adaptive) => {
                    Proved(Box::new(AdaptiveClipping::new(*adaptive, 1.0, parameters)))
                }
                _ => Proved(Box::new(DpSgd::new(clip, parameters))),
            },
        }
    }
}
