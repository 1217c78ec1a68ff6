//! SVG canvas whose colors come from the page's style sheet.
//!
//! plotters writes fixed colors and whole pixels. So everything is drawn at four times its
//! displayed size, with a placeholder for each color, and the placeholders are replaced by CSS
//! variables.

use super::{Ink, SERIES};
use crate::error::{Error, Result};
use crate::html::escape;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Drawn size over displayed size.
const SCALE: f64 = 4.0;

/// plotters divides font sizes by this factor.
const FONT: f64 = 1.24;

/// A point on the canvas, in displayed pixels.
pub type Place = (f64, f64);

/// Drawing area, in displayed pixels.
pub struct Canvas<'a> {
    area: DrawingArea<SVGBackend<'a>, Shift>,
    hovers: Vec<(Place, f64, String)>,
    pub width: f64,
    pub height: f64,
    /// Font size, in pixels.
    pub font: f64,
}

/// Anchor of a text at its point.
#[derive(Clone, Copy)]
pub enum Anchor {
    /// Starts there.
    RightOf,
    /// Ends there.
    LeftOf,
    /// Centered there.
    Over,
    /// Centered below it.
    Below,
}

/// Draws and returns the SVG; `description` is its label for screen readers.
pub fn draw(
    (width, height): Place,
    font: f64,
    description: &str,
    paint: impl FnOnce(&mut Canvas) -> Result<()>,
) -> Result<String> {
    let mut text = String::new();
    let hovers = {
        let size = ((width * SCALE) as u32, (height * SCALE) as u32);
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        let mut canvas = Canvas { area, hovers: Vec::new(), width, height, font };
        paint(&mut canvas)?;
        canvas.area.present().map_err(|e| Error::Drawing(e.to_string()))?;
        canvas.hovers
    };
    let Some((_, inside)) = text.split_once('>') else {
        return Err(Error::Drawing("nothing was drawn".into()));
    };
    let inside = inside.trim_end().trim_end_matches("</svg>");
    let mut svg = format!(
        "<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">",
        width * SCALE,
        height * SCALE,
        escape(description)
    );
    svg.push_str(&recolored(inside));
    for ((x, y), radius, title) in hovers {
        svg.push_str(&format!(
            "<circle cx=\"{:.0}\" cy=\"{:.0}\" r=\"{:.0}\" \
             class=\"hover\"><title>{}</title></circle>\n",
            x * SCALE,
            y * SCALE,
            radius * SCALE,
            escape(&title)
        ));
    }
    svg.push_str("</svg>");
    Ok(svg)
}

/// Placeholder for a color; drawings use no other colors.
fn code(ink: Ink, dashed: bool) -> RGBColor {
    let number = match ink {
        Ink::Text => 1,
        Ink::Faint => 2,
        Ink::Paper => 3,
        Ink::Series(n) => 4 + n % SERIES,
    };
    RGBColor(number, u8::from(dashed), 0)
}

fn recolored(svg: &str) -> String {
    let mut svg = svg.to_owned();
    for (ink, dashed) in Ink::all().flat_map(|ink| [(ink, false), (ink, true)]) {
        let RGBColor(r, g, b) = code(ink, dashed);
        for property in ["fill", "stroke"] {
            let dash = if dashed { ";stroke-dasharray:22 18" } else { "" };
            svg = svg.replace(
                &format!("{property}=\"#{r:02X}{g:02X}{b:02X}\""),
                &format!("style=\"{property}:var({}){dash}\"", ink.variable()),
            );
        }
    }
    svg
}

fn at((x, y): Place) -> (i32, i32) {
    ((x * SCALE).round() as i32, (y * SCALE).round() as i32)
}

fn failed(e: impl std::fmt::Display) -> Error {
    Error::Drawing(e.to_string())
}

impl Canvas<'_> {
    /// A line through some points.
    pub fn line(
        &self,
        places: &[Place],
        ink: Ink,
        width: f64,
        opacity: f64,
        dashed: bool,
    ) -> Result<()> {
        let style =
            code(ink, dashed).mix(opacity).stroke_width((width * SCALE).round().max(1.0) as u32);
        let places: Vec<(i32, i32)> = places.iter().copied().map(at).collect();
        self.area.draw(&PathElement::new(places, style)).map_err(failed)
    }

    /// A filled circle, or a ring.
    pub fn disc(&self, place: Place, radius: f64, ink: Ink, filled: bool) -> Result<()> {
        let radius = (radius * SCALE).round() as i32;
        if !filled {
            // A ring is opaque inside.
            self.area
                .draw(&Circle::new(at(place), radius, code(Ink::Paper, false).filled()))
                .map_err(failed)?;
        }
        let style = if filled {
            code(ink, false).filled()
        } else {
            code(ink, false).stroke_width((1.8 * SCALE) as u32)
        };
        self.area.draw(&Circle::new(at(place), radius, style)).map_err(failed)
    }

    /// A filled rectangle.
    pub fn rectangle(&self, from: Place, to: Place, ink: Ink, opacity: f64) -> Result<()> {
        let style = code(ink, false).mix(opacity).filled();
        self.area.draw(&Rectangle::new([at(from), at(to)], style)).map_err(failed)
    }

    pub fn text(&self, text: &str, place: Place, anchor: Anchor, ink: Ink) -> Result<()> {
        let (horizontal, vertical) = match anchor {
            Anchor::RightOf => (HPos::Left, VPos::Center),
            Anchor::LeftOf => (HPos::Right, VPos::Center),
            Anchor::Over => (HPos::Center, VPos::Center),
            Anchor::Below => (HPos::Center, VPos::Top),
        };
        let (size, color) = ((self.font * FONT * SCALE).round() as i32, code(ink, false));
        let style = ("sans-serif", size, &color)
            .into_text_style(&self.area)
            .pos(Pos::new(horizontal, vertical));
        self.area.draw(&Text::new(text.to_owned(), at(place), style)).map_err(failed)
    }

    /// Tooltip of a circular area.
    pub fn hover(&mut self, place: Place, radius: f64, title: String) {
        self.hovers.push((place, radius, title));
    }

    /// Approximate width of a text, in pixels.
    pub fn width_of(&self, text: &str) -> f64 {
        0.58 * self.font * text.chars().count() as f64
    }
}
