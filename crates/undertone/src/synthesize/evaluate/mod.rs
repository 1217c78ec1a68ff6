//! Figures about synthetic rows, and who may see each of them.
//!
//! A figure is **public** if it is a function of the synthetic rows and of public files alone. A
//! figure that was computed from private rows, such as how often texts repeat them, has no noise
//! and is not covered by a ledger entry: it is **private**, and [`Evaluation::write`] writes it only
//! to the run folder's `private/`. The texts from which a figure is computed determine who may see it:
//! every function here takes [`Texts`], which know their audience.
//!
//! ```text
//! text.rs    lengths, vocabulary, duplicates, self-BLEU    replay.rs    texts copied from training
//! mauve.rs   MAUVE of two sets of embeddings               features.rs  embeddings of texts
//! personal.rs  personal data and planted secrets that are reproduced
//! ```

mod features;
mod mauve;
mod personal;
mod replay;
mod text;

pub use features::embeddings;
pub use mauve::{clusters, mauve, mauve_of_histograms};
pub use personal::{personal, planted};
pub use replay::replay;
pub use text::describe;

pub use undertone_run::{Audience, Evaluation, Figure};

/// Texts, and who may see what is computed from them.
#[derive(Clone, Debug)]
pub struct Texts {
    pub texts: Vec<String>,
    audience: Audience,
}

impl Texts {
    /// Synthetic texts of a private run, or texts of a file that was declared public.
    pub fn public(texts: Vec<String>) -> Self {
        Self { texts, audience: Audience::Public }
    }

    /// Private texts.
    pub fn private(texts: Vec<String>) -> Self {
        Self { texts, audience: Audience::Private }
    }

    /// Who may see what is computed from them.
    pub fn audience(&self) -> Audience {
        self.audience
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use undertone_run::RunPaths;

    /// No figure on private data is in a file that may be shared.
    #[test]
    fn private_figures_stay_private() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunPaths::new(folder.path());
        std::fs::create_dir_all(run.synthetic().folder()).unwrap();
        let texts = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
        let synthetic = Texts::public(texts(&["a b c d e f g h i", "the sun", "the sun"]));
        let training = Texts::private(texts(&["x a b c d e f g h y", "the moon"]));
        let mut figures = describe(&synthetic, "synthetic rows");
        figures.extend(describe(&training, "training rows"));
        figures.extend(replay(&synthetic, &training));
        assert!(figures.iter().any(|figure| figure.seen_by == Audience::Private));
        let assumptions = vec!["the test file is public".to_owned()];
        let evaluation = Evaluation { figures: figures.clone(), assumptions };
        evaluation.write(&run).unwrap();
        let text = std::fs::read_to_string(run.synthetic().evaluation()).unwrap();
        assert!(!text.contains("training") && !text.contains("private"), "{text}");
        assert!(text.contains("the test file is public"), "{text}");
        let (shared, private): (Vec<Figure>, Vec<Figure>) =
            (Evaluation::read(&run).unwrap().figures.into_iter())
                .partition(|figure| figure.seen_by == Audience::Public);
        assert!(shared.iter().all(|figure| figure.of == "synthetic rows"), "{shared:?}");
        assert!(private.iter().all(|figure| figure.of != "synthetic rows"), "{private:?}");
        assert_eq!(shared.len() + private.len(), figures.len());
        assert_eq!(Audience::Public.and(Audience::Private), Audience::Private);
    }
}
