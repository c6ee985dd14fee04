//! SVG as PDF.

use svg2pdf::usvg::{self, Tree};
use svg2pdf::{ConversionOptions, PageOptions};

use crate::drawing::{BackendError, FONTS};

/// Pixels per inch where a length has no unit, as in browsers.
const DPI: f32 = 96.0;

/// An SVG as PDF of the same size, with the fonts of figures.
pub(crate) fn of(svg: &str) -> Result<Vec<u8>, BackendError> {
    let mut options = usvg::Options { dpi: DPI, ..usvg::Options::default() };
    for font in FONTS {
        options.fontdb_mut().load_font_data(font.to_vec());
    }
    let tree = Tree::from_str(svg, &options)?;
    let page = PageOptions { dpi: DPI };
    svg2pdf::to_pdf(&tree, ConversionOptions::default(), page)
        .map_err(|error| error.to_string().into())
}
