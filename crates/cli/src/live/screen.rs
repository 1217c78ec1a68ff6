//! The terminal of the live view.

use super::model::Live;
use super::view::draw;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::io;
use std::time::Duration;

/// The user's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// To leave the view.
    Leave,
    /// To end the program.
    Stop,
}

/// Shows a run until `next` returns `None` or the user requests something else, and then restores
/// the terminal.
pub fn show(mut next: impl FnMut() -> Option<Live>) -> io::Result<Option<Wish>> {
    let mut terminal = ratatui::try_init()?;
    let mut watch = || -> io::Result<Option<Wish>> {
        // Not every terminal has an alternate screen, so clear the main one.
        terminal.clear()?;
        while let Some(live) = next() {
            terminal.draw(|frame| draw(&live, frame))?;
            if event::poll(Duration::from_millis(100))?
                && let Event::Key(key) = event::read()?
                && let Some(wish) = wish(key)
            {
                return Ok(Some(wish));
            }
        }
        Ok(None)
    };
    let ended = watch();
    ratatui::restore();
    ended
}

fn wish(key: KeyEvent) -> Option<Wish> {
    let pressed = key.kind == KeyEventKind::Press;
    match key.code {
        // In raw mode this key does not interrupt the program.
        KeyCode::Char('c') if pressed && key.modifiers.contains(KeyModifiers::CONTROL) => {
            Some(Wish::Stop)
        }
        KeyCode::Char('q') | KeyCode::Esc if pressed => Some(Wish::Leave),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q_leaves_and_control_c_stops() {
        let key = |code, modifiers| wish(KeyEvent::new(code, modifiers));
        assert_eq!(key(KeyCode::Char('q'), KeyModifiers::NONE), Some(Wish::Leave));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Wish::Stop));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::NONE), None);
    }
}
