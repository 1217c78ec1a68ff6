//! Where the noise went, if it did not go everywhere alike.

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
    let mut section = Section::new(level, "Where the noise went").paragraph(
        "The method gives each parameter noise of its own size. That changes how well the model \
         learns, and not what is guaranteed: clipping is weighted in the same way.",
    );
    if run.no_guarantee().is_some() {
        section = Section::new(level, "Where the noise went")
            .paragraph("The method gives each parameter noise of its own size.");
    }
    if uneven {
        let says = "The deviation of the noise of each trained parameter at the end, relative to \
         the mean over all coordinates.";
        section = section.chart(heat_map("Noise by parameter", says, noise)?);
    }
    if !relevance.is_empty() {
        let says = "The mean relevance of each trained parameter's coordinates, brought to the \
         range from 0 to 1, that the noise was allocated by.";
        section = section.chart(heat_map("Relevance by parameter", says, relevance)?);
    }
    Ok(Some(section))
}
