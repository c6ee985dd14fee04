//! What stands around every figure: title, finding, legend above; caption below.

use crate::caption::Caption;
use crate::drawing::{Drawing, Point, Text, text_width, wrap};
use crate::theme;

/// A page that is filled from top to bottom.
pub(crate) struct Page {
    pub drawing: Drawing,
    /// The height used so far.
    pub y: f64,
}

/// A sign and what it means. The sign is drawn around a place, at most [`SIGN`] wide.
pub(crate) struct Entry<'a> {
    pub sign: Sign<'a>,
    pub label: String,
}

/// Draws a sign around a place.
pub(crate) type Sign<'a> = Box<dyn Fn(&mut Drawing, Point) + 'a>;

/// The width of a legend's sign.
pub(crate) const SIGN: f64 = 76.0;

impl Page {
    /// A page with a title, and under it the finding in a sentence.
    pub fn new(title: &str, finding: &str) -> Page {
        let drawing = Drawing { width: theme::WIDTH, ..Drawing::default() };
        let mut page = Page { drawing, y: theme::MARGIN };
        for line in page.wrapped(title, theme::TITLE, true) {
            page.y += theme::TITLE;
            let text = Text::new(line, (theme::MARGIN, page.y), theme::TITLE);
            page.drawing.text(Text { bold: true, ..text });
            page.y += 8.0;
        }
        page.y += 8.0;
        for line in page.wrapped(finding, theme::BODY, false) {
            page.y += theme::BODY;
            page.drawing.text(Text::new(line, (theme::MARGIN, page.y), theme::BODY));
            page.y += 10.0;
        }
        page.y += 6.0;
        page
    }

    /// Signs and labels in rows, each row filled before the next.
    pub fn legend(&mut self, entries: &[Entry]) {
        const HEIGHT: f64 = 48.0;
        let mut x = theme::MARGIN;
        self.y += HEIGHT / 2.0 + 4.0;
        for entry in entries {
            let width = SIGN + 14.0 + text_width(&entry.label, theme::TICK, false);
            if x > theme::MARGIN && x + width > theme::WIDTH - theme::MARGIN {
                x = theme::MARGIN;
                self.y += HEIGHT;
            }
            (entry.sign)(&mut self.drawing, (x + SIGN / 2.0, self.y));
            let baseline = self.y + 0.365 * theme::TICK;
            let at = (x + SIGN + 14.0, baseline);
            self.drawing.text(Text::new(&entry.label, at, theme::TICK));
            x += width + 46.0;
        }
        self.y += HEIGHT / 2.0 + 4.0;
    }

    /// Ends the page with its caption.
    pub fn finish(mut self, caption: &Caption) -> Drawing {
        self.y += 14.0;
        self.drawing.line(
            &[(theme::MARGIN, self.y), (theme::WIDTH - theme::MARGIN, self.y)],
            theme::GRID,
            2.0,
        );
        self.y += 10.0;
        // What no reader may miss stands first and bold and, when simulated, in colour.
        let color = if caption.simulated { theme::WARNING } else { theme::INK };
        for line in self.wrapped(&caption.origin, theme::BODY, true) {
            self.y += theme::BODY + 4.0;
            let text = Text::new(line, (theme::MARGIN, self.y), theme::BODY);
            self.drawing.text(Text { bold: true, color, ..text });
        }
        for paragraph in &caption.paragraphs {
            for line in self.wrapped(paragraph, theme::SMALL, false) {
                self.y += theme::SMALL + 10.0;
                let text = Text::new(line, (theme::MARGIN, self.y), theme::SMALL);
                self.drawing.text(Text { color: theme::SOFT, ..text });
            }
        }
        self.y += theme::MARGIN;
        self.drawing.height = self.y;
        self.drawing
    }

    fn wrapped(&self, words: &str, size: f64, bold: bool) -> Vec<String> {
        wrap(words, size, bold, theme::WIDTH - 2.0 * theme::MARGIN)
    }
}
