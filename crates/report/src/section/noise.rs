//! Noise allocation, if noise or relevance differ between parameters.

use crate::chart::heat_map;
use crate::document::Section;
use crate::error::Result;
use crate::folder::Run;

pub fn section(run: &Run, level: u8) -> Result<Option<Section>> {
    let (noise, relevance) = (&run.summary.noise_by_parameter, &run.summary.relevance_by_parameter);
    let uneven = noise.iter().any(|(_, number)| (number - 1.0).abs() > 1e-6);
    if !uneven && relevance.is_empty() {
        return Ok(None);
    }
    let mut section = Section::new(level, "Noise allocation").paragraph(
        "The method allocates noise of a different std to each parameter. This changes the \
         model's utility but not the guarantee: gradient clipping is weighted in the same way.",
    );
    if run.no_guarantee().is_some() {
        section = Section::new(level, "Noise allocation")
            .paragraph("The method allocates noise of a different std to each parameter.");
    }
    if uneven {
        let description = "Final noise std of each trainable parameter, relative to the mean over \
                           all coordinates.";
        section = section.chart(heat_map("Noise by parameter", description, noise)?);
    }
    if !relevance.is_empty() {
        let description = "Mean relevance of each trainable parameter's coordinates, scaled to [0, \
                           1]; the noise is allocated by it.";
        section = section.chart(heat_map("Relevance by parameter", description, relevance)?);
    }
    Ok(Some(section))
}
