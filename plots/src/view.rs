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

    /// How many panels are side by side.
    pub fn columns(self, panels: usize) -> usize {
        if panels == 1 || self.medium == Medium::SingleColumn { 1 } else { 2 }
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
