//! The registry: from the name of a method to its allocator.

use super::{AdaclipPlan, AnadpPlan, Method as Name, ModeName, Plan};
use crate::mechanism::allocation::{
    Adaclip, AdaclipSettings, Anadp, Form, ImportanceSettings, Map, Method, PublishedAnadp,
    PublishedRapFt, RapFt, SeenMap, Uniform,
};
use crate::model::Parameters;
use crate::model::tuning::Tuning;

/// What a method needs to know before it begins.
#[derive(Clone, Debug)]
pub enum Given {
    /// Nothing.
    Nothing,
    /// A relevance map that may be known.
    Seen(SeenMap),
    /// A relevance map of private examples, for paper mode.
    Raw(Map),
}

impl Plan {
    /// Where the noise goes; none for training without privacy.
    pub fn method(&self, parameters: &Parameters, given: &Given) -> Option<Method> {
        let clip = &self.privacy.clip;
        let irrelevance = self.privacy.rap_ft.irrelevance;
        match (self.privacy.method, self.privacy.mode) {
            (Name::RapFt, _) => match given {
                Given::Seen(map) => {
                    Some(Method::Proved(Box::new(RapFt::new(clip, map, irrelevance, parameters))))
                }
                Given::Raw(map) if self.privacy.mode == ModeName::Paper => Some(Method::Published(
                    Box::new(PublishedRapFt::new(clip, map, irrelevance, parameters)),
                )),
                Given::Raw(_) | Given::Nothing => None,
            },
            (Name::None | Name::DpForward | Name::EwFt | Name::Mvg, _) => None,
            (Name::DpSgd, _) => Some(Method::Proved(Box::new(Uniform::new(clip, parameters)))),
            (Name::Adaclip, _) => {
                let AdaclipPlan { beta, exponent, range } = self.privacy.adaclip;
                let settings = AdaclipSettings { beta, exponent, range };
                Some(Method::Proved(Box::new(Adaclip::new(clip, settings, parameters))))
            }
            (Name::Anadp, ModeName::Proved) => {
                Some(Method::Proved(Box::new(Anadp::new(clip, self.importance(), parameters))))
            }
            (Name::Anadp, ModeName::Paper) => Some(Method::Published(Box::new(
                PublishedAnadp::new(clip, self.importance(), parameters),
            ))),
        }
    }

    /// What the method does that its ledger does not hold, in paper mode.
    pub fn unaccounted(&self) -> Option<&'static str> {
        match (self.privacy.method, self.privacy.mode) {
            (Name::Anadp, ModeName::Paper) => Some(
                "the noise was allocated in view of gradients without noise, which is a release \
                 that the ledger does not hold",
            ),
            (Name::RapFt, ModeName::Paper) => Some(
                "the mask was computed from private examples without noise, which is a release \
                 that the ledger does not hold",
            ),
            (Name::DpForward | Name::EwFt | Name::Mvg, ModeName::Paper)
                if self.forward().release != crate::mechanism::forward::Release::Fresh =>
            {
                Some(
                    "what is below the noise learnt from the records without noise, so that a \
                     record's releases differ under one noise: their difference shows, and the \
                     ledger does not hold that; sampling hides nothing either, since a record is \
                     seen on its own",
                )
            }
            (Name::DpForward | Name::EwFt | Name::Mvg, ModeName::Paper) => Some(
                "what is below the noise learnt from the records without noise, which is a release \
                 that the ledger does not hold; the paper's own count takes a record to be hidden \
                 among those of its batch, but it is sent, and seen, on its own",
            ),
            _ => None,
        }
    }

    /// The least that a step with this nominal noise multiplier can be worth in paper mode.
    pub fn least_worth(&self, nominal: f64) -> f64 {
        match self.privacy.method {
            // A weight is at most largest/mean, and the mean is at least the least.
            Name::Anadp => {
                let (least, largest) = self.importance().range;
                // The factored form multiplies three weights, each of which has the third root of
                // the range.
                nominal * f64::from(least / largest).sqrt() * 0.99
            }
            _ => nominal,
        }
    }

    fn importance(&self) -> ImportanceSettings {
        let AnadpPlan { beta1, beta2, alpha, quantiles, range, form } = self.privacy.anadp;
        // Forming every unit's gradient costs nothing where the parameters are few, and much where
        // all of them are trained.
        let usual = if self.model.tuning == Tuning::Full { Form::Factored } else { Form::Element };
        ImportanceSettings { beta1, beta2, alpha, quantiles, range, form: form.unwrap_or(usual) }
    }
}
