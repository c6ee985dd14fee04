//! Where a figure is read, which determines its width and what is on it.

/// Where a figure is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Medium {
    /// On a screen, with title, finding and caption.
    #[default]
    Screen,
    /// In one of two columns of a paper, 3.33 inches wide.
    SingleColumn,
    /// Across both columns of a paper, 7 inches wide.
    DoubleColumn,
}

/// What a caller wants of all figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct View {
    pub medium: Medium,
    /// Whether efficiency is relative to the same line rather than to the fastest one.
    pub own_base: bool,
}

/// Pixels per inch of paper: text of [`crate::theme::TICK`] pixels has 8 points.
const PER_INCH: f64 = crate::theme::TICK * 72.0 / 8.0;

impl View {
    /// The width of a page in pixels.
    pub fn width(self) -> f64 {
        self.inches().map_or(crate::theme::WIDTH, |inches| (inches * PER_INCH).round())
    }

    /// The width of a page of paper.
    pub fn inches(self) -> Option<f64> {
        match self.medium {
            Medium::Screen => None,
            Medium::SingleColumn => Some(3.33),
            Medium::DoubleColumn => Some(7.0),
        }
    }

    /// Whether title, finding and caption are in a text beside the figure.
    pub fn is_paper(self) -> bool {
        self.medium != Medium::Screen
    }

    /// How many panels are side by side: the usual number, and more if the page is too low for that.
    pub fn columns(self, panels: usize) -> &'static [usize] {
        match self.medium {
            _ if panels == 1 => &[1],
            Medium::Screen => &[2],
            Medium::SingleColumn => &[1],
            Medium::DoubleColumn => &[2, 3],
        }
    }

    /// The greatest height of a page of paper in inches: what a page has beside a caption.
    pub fn most_inches(self) -> Option<f64> {
        self.is_paper().then_some(9.0)
    }

    /// The same in pixels; without an end on a screen.
    pub fn most_height(self) -> f64 {
        self.most_inches().map_or(f64::INFINITY, |inches| inches * PER_INCH)
    }

    /// Inches of a number of pixels on paper.
    pub fn in_inches(self, pixels: f64) -> f64 {
        pixels / PER_INCH
    }

    /// The height of a frame that may have any, as a share of its height on a screen.
    pub fn height_share(self) -> f64 {
        match self.medium {
            Medium::Screen => 1.0,
            Medium::SingleColumn => 0.55,
            Medium::DoubleColumn => 0.7,
        }
    }

    /// The size of text that is small on a screen.
    pub fn small(self) -> f64 {
        if self.is_paper() { crate::theme::TICK } else { crate::theme::SMALL }
    }
}
