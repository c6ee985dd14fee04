//! The page of a figure: title, finding and legend above it, caption below.

use crate::caption::Caption;
use crate::drawing::{Align, Drawing, Point, Said, Text, text_width, wrap};
use crate::theme;
use crate::view::View;

/// A page that is filled from top to bottom.
pub(crate) struct Page {
    pub drawing: Drawing,
    /// The height used so far, in pixels.
    pub y: f64,
    pub view: View,
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
                theme::marker(drawing, style, at, theme::radius(style), false);
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
    ///
    /// On paper both are in the text beside the figure.
    pub fn new(view: View, title: &str, finding: &str) -> Page {
        let said = Said { title: title.into(), finding: finding.into(), caption: Vec::new() };
        let drawing = Drawing { width: view.width(), view, said, ..Drawing::default() };
        let mut page = Page { drawing, y: theme::MARGIN, view };
        if view.is_paper() {
            page.y = 4.0;
            return page;
        }
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

    /// Adds a legend: entries from left to right, in as many rows as they need. A label that is wider than the page
    /// continues below.
    pub fn legend(&mut self, entries: &[Entry]) {
        const HEIGHT: f64 = 48.0;
        const LINE: f64 = 36.0;
        let right = self.view.width() - theme::MARGIN;
        let mut x = theme::MARGIN;
        self.y += HEIGHT / 2.0 + 4.0;
        let mut below = 0.0;
        for entry in entries {
            let room = right - theme::MARGIN - SIGN - 14.0;
            let lines = wrap(&entry.label, theme::TICK, false, room);
            let widths = lines.iter().map(|line| text_width(line, theme::TICK, false));
            let width = SIGN + 14.0 + widths.fold(0.0, f64::max);
            if x > theme::MARGIN && x + width > right {
                x = theme::MARGIN;
                self.y += HEIGHT + below;
                below = 0.0;
            }
            (entry.sign)(&mut self.drawing, (x + SIGN / 2.0, self.y));
            for (index, line) in lines.iter().enumerate() {
                let baseline = self.y + 0.365 * theme::TICK + LINE * index as f64;
                let at = (x + SIGN + 14.0, baseline);
                self.drawing.text(Text::new(line, at, theme::TICK));
            }
            below = f64::max(below, LINE * (lines.len() - 1) as f64);
            x += width + 46.0;
        }
        self.y += HEIGHT / 2.0 + 4.0 + below;
    }

    /// Ends the page with its caption.
    ///
    /// On paper the caption is in the text beside the figure, apart from what its values are.
    pub fn finish(mut self, caption: &Caption) -> Drawing {
        // Whether values were measured or simulated is in colour if simulated.
        let color = if caption.simulated { theme::WARNING } else { theme::INK };
        let said = &mut self.drawing.said.caption;
        said.push(format!("{}.", caption.origin));
        said.extend(caption.paragraphs.iter().cloned());
        if self.view.is_paper() {
            self.y += theme::TICK;
            let at = (self.view.width() - 4.0, self.y);
            let stamp = Text::new(caption.stamp(), at, theme::TICK);
            self.drawing.text(Text { align: Align::Right, color, ..stamp });
            self.drawing.height = self.y + 10.0;
            return self.drawing;
        }
        self.y += 14.0;
        self.drawing.line(
            &[(theme::MARGIN, self.y), (self.view.width() - theme::MARGIN, self.y)],
            theme::GRID,
            2.0,
        );
        self.y += 10.0;
        // What the values are comes first, in bold.
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
        wrap(words, size, bold, self.view.width() - 2.0 * theme::MARGIN)
    }
}
