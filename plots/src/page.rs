//! The page of a figure: title, finding and legend above it, caption below.

use crate::caption::Caption;
use crate::drawing::{Drawing, Point, Text, text_width, wrap};
use crate::theme;

/// A page that is filled from top to bottom.
pub(crate) struct Page {
    pub drawing: Drawing,
    /// The height used so far, in pixels.
    pub y: f64,
}

/// A legend entry: a sign, at most [`SIGN`] wide, and what it means.
pub(crate) struct Entry<'a> {
    pub sign: Sign<'a>,
    pub label: String,
}

/// Draws a sign around a point.
pub(crate) type Sign<'a> = Box<dyn Fn(&mut Drawing, Point) + 'a>;

/// The width of a legend's sign in pixels.
pub(crate) const SIGN: f64 = 76.0;

/// The ends of a line in a legend.
pub(crate) fn sign_ends((x, y): Point) -> [Point; 2] {
    [(x - SIGN / 2.0, y), (x + SIGN / 2.0, y)]
}

impl Entry<'static> {
    /// A solid line with the marker of a series.
    pub fn series(style: usize, label: &str) -> Entry<'static> {
        Entry {
            sign: Box::new(move |drawing, at| {
                drawing.line(&sign_ends(at), theme::series(style), 3.0);
                theme::marker(drawing, style, at, theme::MARKER, false);
            }),
            label: label.to_string(),
        }
    }

    /// A dashed black line.
    pub fn dashed(label: &str) -> Entry<'static> {
        Entry {
            sign: Box::new(|drawing, at| {
                let [from, to] = sign_ends(at);
                drawing.dashes(from, to, theme::INK, 3.0);
            }),
            label: label.to_string(),
        }
    }
}

impl Page {
    /// Starts a page with its title and, below it, the finding in a sentence.
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

    /// Adds a legend: entries from left to right, in as many rows as they need.
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
        // Whether values were measured or simulated comes first, in bold, and in colour if simulated.
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
