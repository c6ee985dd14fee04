//! A drawing: a list of marks, written as SVG and PNG.
//!
//! Lengths are pixels of a page that is [`theme::WIDTH`] wide. The two backends of plotters define
//! the font size and the vertical position of text differently: an em is size / 1.24 in SVG and
//! size / 1.164 in bitmaps, and the offset to the baseline differs too. Text is therefore placed by
//! its baseline here and translated for each backend.

use std::cell::RefCell;
use std::collections::HashMap;
use std::error::Error;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::sync::Once;

use plotters::backend::{BitMapBackend, DrawingBackend, SVGBackend};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{
    Color, FontFamily, FontStyle, FontTransform, IntoFont, RGBColor, ShapeStyle, TextStyle,
    register_font,
};

use crate::view::View;
use crate::{PlotError, theme};

/// An error of a drawing backend.
pub(crate) type BackendError = Box<dyn Error + Send + Sync>;

/// A position on the page in pixels: x to the right, y downwards.
pub(crate) type Point = (f64, f64);

/// The marks of a page and its size in pixels.
#[derive(Debug, Clone, Default)]
pub(crate) struct Drawing {
    pub width: f64,
    pub height: f64,
    pub marks: Vec<Mark>,
    pub view: View,
    pub said: Said,
}

/// What a page says in words, for readers who do not see its marks, and beside figures in papers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Said {
    pub title: String,
    pub finding: String,
    /// The paragraphs of the caption.
    pub caption: Vec<String>,
}

impl Said {
    /// All of it, a paragraph each.
    pub fn paragraphs(&self) -> Vec<String> {
        let Said { title, finding, caption } = self;
        let first = [format!("{title}."), finding.clone()];
        first.into_iter().chain(caption.iter().cloned()).collect()
    }
}

/// A shape or text on the page. Later marks cover earlier ones.
#[derive(Debug, Clone)]
pub(crate) enum Mark {
    Line {
        points: Vec<Point>,
        color: RGBColor,
        width: f64,
    },
    Area {
        points: Vec<Point>,
        color: RGBColor,
    },
    /// An area that what is below it shows through.
    Veil {
        points: Vec<Point>,
        color: RGBColor,
    },
    Disc {
        center: Point,
        radius: f64,
        color: RGBColor,
    },
    Text(Text),
}

/// A line of text.
#[derive(Debug, Clone)]
pub(crate) struct Text {
    pub words: String,
    /// The left, middle or right end of the baseline.
    pub at: Point,
    pub align: Align,
    /// The height of an em in pixels.
    pub size: f64,
    pub bold: bool,
    pub color: RGBColor,
    /// Whether the text is rotated and reads upwards, as the title of a vertical axis does.
    pub upwards: bool,
}

/// Which point of the baseline is at a text's position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Middle,
    Right,
}

impl Text {
    /// Black text that starts at `at`. Set the other fields with struct update syntax.
    pub fn new(words: impl Into<String>, at: Point, size: f64) -> Text {
        Text {
            words: words.into(),
            at,
            align: Align::Left,
            size,
            bold: false,
            color: theme::INK,
            upwards: false,
        }
    }

    /// The same text centred on its position, horizontally and by the height of its capitals.
    pub fn centered(self) -> Text {
        let sink = CAPITALS / 2.0 * self.size;
        let (x, y) = self.at;
        let at = if self.upwards { (x + sink, y) } else { (x, y + sink) };
        Text { at, align: Align::Middle, ..self }
    }

    /// Left, top, right and bottom of the text, descenders included.
    fn extent(&self) -> [f64; 4] {
        let width = text_width(&self.words, self.size, self.bold);
        let before = match self.align {
            Align::Left => 0.0,
            Align::Middle => width / 2.0,
            Align::Right => width,
        };
        let (x, y) = self.at;
        let (above, below) = (CAPITALS * self.size, DESCENT * self.size);
        if self.upwards {
            [x - above, y + before - width, x + below, y + before]
        } else {
            [x - before, y - above, x - before + width, y + below]
        }
    }
}

impl Drawing {
    /// The size of text that is small on a screen.
    pub fn small(&self) -> f64 {
        self.view.small()
    }

    pub fn line(&mut self, points: &[Point], color: RGBColor, width: f64) {
        self.marks.push(Mark::Line { points: points.to_vec(), color, width });
    }

    pub fn area(&mut self, points: &[Point], color: RGBColor) {
        self.marks.push(Mark::Area { points: points.to_vec(), color });
    }

    /// An area that does not hide what is below it.
    pub fn veil(&mut self, points: &[Point], color: RGBColor) {
        self.marks.push(Mark::Veil { points: points.to_vec(), color });
    }

    pub fn rectangle(&mut self, left: f64, top: f64, width: f64, height: f64, color: RGBColor) {
        self.area(&corners(left, top, width, height), color);
    }

    /// The border of a rectangle in black.
    pub fn outline(&mut self, left: f64, top: f64, width: f64, height: f64, stroke: f64) {
        self.outline_in(theme::INK, left, top, width, height, stroke);
    }

    /// The border of a rectangle.
    pub fn outline_in(
        &mut self,
        color: RGBColor,
        left: f64,
        top: f64,
        width: f64,
        height: f64,
        stroke: f64,
    ) {
        let [top_left, top_right, bottom_right, bottom_left] = corners(left, top, width, height);
        // Start in the middle of a side so that every corner is a joint.
        let start = (left + width / 2.0, top);
        let points = [start, top_right, bottom_right, bottom_left, top_left, start];
        self.line(&points, color, stroke);
    }

    pub fn disc(&mut self, center: Point, radius: f64, color: RGBColor) {
        self.marks.push(Mark::Disc { center, radius, color });
    }

    pub fn text(&mut self, text: Text) {
        self.marks.push(Mark::Text(text));
    }

    /// Writes the drawing as SVG or PDF if the extension of `file` says so, otherwise as PNG.
    ///
    /// # Errors
    ///
    /// [`PlotError::Write`] if the file cannot be written.
    pub fn write(&self, file: &Path) -> Result<(), PlotError> {
        let written = match file.extension().and_then(OsStr::to_str) {
            Some("svg") => self.svg().and_then(|svg| Ok(fs::write(file, svg)?)),
            #[cfg(feature = "pdf")]
            Some("pdf") => self.svg().and_then(|svg| Ok(fs::write(file, crate::pdf::of(&svg)?)?)),
            _ => self.write_png(file),
        };
        written.map_err(|source| PlotError::Write { file: file.to_path_buf(), source })
    }

    /// The drawing as SVG. On paper it has a size in inches, and a finer grid, as the backend rounds to whole pixels.
    pub fn svg(&self) -> Result<String, BackendError> {
        let times = if self.view.is_paper() { 8.0 } else { 1.0 };
        let (width, height) = (self.width.ceil(), self.height.ceil());
        let size = ((width * times) as u32, (height * times) as u32);
        let letters = Letters { size_per_em: 1.24, baseline_per_em: 0.76 };
        let mut text = String::new();
        self.copy_to(&mut SVGBackend::with_string(&mut text, size), times, &letters)?;
        // What every mark says, the whole picture says once.
        let family = format!(" font-family=\"{}\"", FAMILY.as_str());
        let mut text = text.replace(" opacity=\"1\"", "").replace(&family, "");
        text = text.replacen('>', &format!("{family}>"), 1);
        if let Some(inches) = self.view.inches() {
            let pixels = format!("width=\"{}\" height=\"{}\"", size.0, size.1);
            let high = inches * height / width;
            text =
                text.replacen(&pixels, &format!("width=\"{inches}in\" height=\"{high:.3}in\""), 1);
        }
        Ok(text)
    }

    /// The bitmap backend draws ragged slanted edges, so draw at twice the size and average the pixels.
    fn write_png(&self, file: &Path) -> Result<(), BackendError> {
        const TIMES: usize = 2;
        let (width, height) = (self.width.ceil() as usize, self.height.ceil() as usize);
        let mut large = vec![0; width * height * TIMES * TIMES * 3];
        let size = ((width * TIMES) as u32, (height * TIMES) as u32);
        let letters =
            Letters { size_per_em: ASCENT_TO_DESCENT, baseline_per_em: ASCENT_TO_DESCENT / 2.0 };
        self.copy_to(&mut BitMapBackend::with_buffer(&mut large, size), TIMES as f64, &letters)?;

        let sample = |x: usize, y: usize, channel: usize| {
            let mut sum = 0;
            for (dx, dy) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
                let pixel = (y * TIMES + dy) * width * TIMES + x * TIMES + dx;
                sum += u32::from(large[pixel * 3 + channel]);
            }
            (sum / 4) as u8
        };
        let small: Vec<u8> = (0..width * height * 3)
            .map(|index| sample(index / 3 % width, index / 3 / width, index % 3))
            .collect();
        let size = (width as u32, height as u32);
        let mut image = BitMapBackend::new(file, size);
        image.blit_bitmap((0, 0), size, &small)?;
        Ok(image.present()?)
    }

    fn copy_to<B: DrawingBackend<ErrorType: 'static>>(
        &self,
        backend: &mut B,
        times: f64,
        letters: &Letters,
    ) -> Result<(), BackendError> {
        register_fonts();
        let place = |(x, y): Point| ((x * times).round() as i32, (y * times).round() as i32);
        let stroke = |color: RGBColor, width: f64| ShapeStyle {
            color: color.to_rgba(),
            filled: false,
            stroke_width: (width * times).round().max(1.0) as u32,
        };
        let whole = place((self.width.ceil(), self.height.ceil()));
        let mut copy = || {
            backend.draw_rect((0, 0), whole, &theme::PAPER.filled(), true)?;
            for mark in &self.marks {
                match mark {
                    Mark::Line { points, color, width } => backend
                        .draw_path(points.iter().copied().map(place), &stroke(*color, *width))?,
                    Mark::Area { points, color } => {
                        let points: Vec<_> = points.iter().copied().map(place).collect();
                        backend.fill_polygon(points, &color.filled())?;
                    }
                    Mark::Veil { points, color } => {
                        let points: Vec<_> = points.iter().copied().map(place).collect();
                        backend.fill_polygon(points, &color.mix(VEIL).filled())?;
                    }
                    Mark::Disc { center, radius, color } => backend.draw_circle(
                        place(*center),
                        (radius * times).round() as u32,
                        &color.filled(),
                        true,
                    )?,
                    Mark::Text(text) => {
                        let (style, at) = letters.place(text, times);
                        backend.draw_text(&text.words, &style, place(at))?;
                    }
                }
            }
            backend.present()
        };
        Ok(copy()?)
    }
}

/// How much of its ground a veil covers.
const VEIL: f64 = 0.25;

/// How a backend converts a font size, and where it puts the baseline of text anchored at its top.
struct Letters {
    size_per_em: f64,
    baseline_per_em: f64,
}

impl Letters {
    fn place<'a>(&self, text: &'a Text, times: f64) -> (TextStyle<'a>, Point) {
        let align = match text.align {
            Align::Left => HPos::Left,
            Align::Middle => HPos::Center,
            Align::Right => HPos::Right,
        };
        let turn = if text.upwards { FontTransform::Rotate270 } else { FontTransform::None };
        let style = TextStyle::from(
            (FAMILY, text.size * times * self.size_per_em, weight(text.bold)).into_font(),
        )
        .transform(turn)
        .color(&text.color)
        .pos(Pos::new(align, VPos::Top));
        let rise = self.baseline_per_em * text.size;
        let (x, y) = text.at;
        (style, if text.upwards { (x - rise, y) } else { (x, y - rise) })
    }
}

thread_local! {
    /// Widths of texts at the size [`LARGE`], normal and bold: a figure asks for those of its labels again and again.
    static WIDTHS: RefCell<[HashMap<String, f64>; 2]> = RefCell::default();
}

/// The size at which texts are measured, as plotters returns whole pixels.
const LARGE: f64 = 1000.0;
/// The most texts whose widths are kept.
const MOST_WIDTHS: usize = 50_000;

/// The width of a line of text in pixels.
pub(crate) fn text_width(words: &str, size: f64, bold: bool) -> f64 {
    WIDTHS.with_borrow_mut(|widths| {
        let widths = &mut widths[usize::from(bold)];
        let width = widths.get(words).copied().unwrap_or_else(|| {
            let width = measured_width(words, bold);
            if widths.len() >= MOST_WIDTHS {
                widths.clear();
            }
            widths.insert(words.to_string(), width);
            width
        });
        width * size / LARGE
    })
}

/// The width of a line of text at the size [`LARGE`].
fn measured_width(words: &str, bold: bool) -> f64 {
    register_fonts();
    let font = (FAMILY, LARGE * ASCENT_TO_DESCENT, weight(bold)).into_font();
    let (width, _) = font.box_size(words).expect("the font is registered");
    f64::from(width)
}

/// Breaks words into lines of at most `width` pixels. [`HARD_SPACE`] never breaks.
pub(crate) fn wrap(words: &str, size: f64, bold: bool, width: f64) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in words.split(' ') {
        let word = word.replace(HARD_SPACE, " ");
        let line = lines.last_mut().expect("there is a first line");
        let longer = if line.is_empty() { word.clone() } else { format!("{line} {word}") };
        if line.is_empty() || text_width(&longer, size, bold) <= width {
            *line = longer;
        } else {
            lines.push(word);
        }
    }
    lines
}

/// A space at which [`wrap`] does not break.
pub(crate) const HARD_SPACE: char = '\u{a0}';

/// The font's name, and the SVG's list of font families: Verdana has the same widths as DejaVu
/// Sans and replaces it where it is not installed.
const FAMILY: FontFamily<'static> = FontFamily::Name("DejaVu Sans, Verdana, sans-serif");
/// Metrics of DejaVu Sans in ems.
const ASCENT_TO_DESCENT: f64 = 2384.0 / 2048.0;
const CAPITALS: f64 = 0.73;
const DESCENT: f64 = 0.24;

/// DejaVu Sans, normal and bold.
pub(crate) const FONTS: [&[u8]; 2] =
    [include_bytes!("../fonts/DejaVuSans.ttf"), include_bytes!("../fonts/DejaVuSans-Bold.ttf")];

fn weight(bold: bool) -> FontStyle {
    if bold { FontStyle::Bold } else { FontStyle::Normal }
}

fn register_fonts() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for (style, bytes) in [FontStyle::Normal, FontStyle::Bold].into_iter().zip(FONTS) {
            let registered = register_font(FAMILY.as_str(), style, bytes);
            assert!(registered.is_ok(), "the font shipped in fonts/ is whole");
        }
    });
}

fn corners(left: f64, top: f64, width: f64, height: f64) -> [Point; 4] {
    [(left, top), (left + width, top), (left + width, top + height), (left, top + height)]
}

impl Drawing {
    /// Every text on the page.
    pub fn texts(&self) -> Vec<&Text> {
        let mut texts = Vec::new();
        for mark in &self.marks {
            if let Mark::Text(text) = mark {
                texts.push(text);
            }
        }
        texts
    }

    /// Texts that leave the page or run into one another, and on paper those that are too small, and a picture that is too
    /// high for a page.
    pub fn faults(&self) -> Vec<String> {
        let texts = self.texts();
        let mut faults = Vec::new();
        if let Some(most) = self.view.most_inches()
            && self.height.ceil() > self.view.most_height()
        {
            let high = self.view.in_inches(self.height);
            faults.push(format!("it would be {high:.1} inches high, and a page has {most}"));
        }
        let extents: Vec<[f64; 4]> = texts.iter().map(|text| text.extent()).collect();
        for (text, [left, top, right, bottom]) in texts.iter().zip(&extents) {
            let (left, top, right, bottom) = (*left, *top, *right, *bottom);
            if left < 0.0 || top < 0.0 || right > self.width || bottom > self.height {
                faults.push(format!("`{}` leaves the page", text.words));
            }
            if self.view.is_paper() && text.size < theme::TICK - 0.01 {
                faults.push(format!("`{}` would have less than 8 points", text.words));
            }
        }
        // By their tops, so that a text need only be compared with those that begin before it ends.
        let mut order: Vec<usize> = (0..texts.len()).collect();
        order.sort_by(|&a, &b| extents[a][1].total_cmp(&extents[b][1]));
        let mut pairs = Vec::new();
        for (place, &one) in order.iter().enumerate() {
            let [left, _, right, bottom] = extents[one];
            let next = order[place + 1..].iter().take_while(|&&other| extents[other][1] < bottom);
            for &other in next {
                let [l, _, r, _] = extents[other];
                if left < r && l < right {
                    pairs.push((one.max(other), one.min(other)));
                }
            }
        }
        pairs.sort_unstable();
        let collision = |(one, other): (usize, usize)| {
            format!("`{}` runs into `{}`", texts[one].words, texts[other].words)
        };
        faults.extend(pairs.into_iter().map(collision));
        faults
    }
}

#[cfg(test)]
impl Drawing {
    /// All texts, one per line.
    pub fn words(&self) -> String {
        self.texts().iter().map(|text| text.words.as_str()).collect::<Vec<_>>().join("\n")
    }

    /// All texts on one line, as a reader reads them.
    pub fn prose(&self) -> String {
        self.words().replace('\n', " ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(texts: &[Text]) -> Drawing {
        Drawing {
            width: 400.0,
            height: 100.0,
            marks: texts.iter().cloned().map(Mark::Text).collect(),
            ..Drawing::default()
        }
    }

    #[test]
    fn texts_that_collide_or_leave_the_page_are_found() {
        let at = |x, y| Text::new("ring", (x, y), 20.0);
        assert_eq!(page(&[at(10.0, 30.0), at(10.0, 60.0)]).faults(), Vec::<String>::new());
        assert_eq!(page(&[at(10.0, 30.0), at(20.0, 40.0)]).faults(), ["`ring` runs into `ring`"]);
        assert_eq!(page(&[at(380.0, 30.0)]).faults(), ["`ring` leaves the page"]);
        let upwards = Text { upwards: true, ..at(30.0, 20.0) };
        assert_eq!(page(&[upwards]).faults(), ["`ring` leaves the page"]);
    }

    #[test]
    fn a_wider_text_measures_wider() {
        let width = text_width("iiii", 20.0, false);
        assert!((15.0..30.0).contains(&width), "{width}");
        assert!(text_width("mmmm", 20.0, false) > 2.0 * width);
        assert!(text_width("iiii", 20.0, true) > width);
    }

    #[test]
    fn lines_break_between_words_and_lose_none() {
        let words = "median with exact 95 % interval";
        let lines = wrap(words, 20.0, false, 150.0);
        assert!(lines.len() > 1);
        assert!(lines.iter().all(|line| text_width(line, 20.0, false) <= 150.0));
        assert_eq!(lines.join(" "), words);
        assert_eq!(wrap("a b\u{a0}c", 20.0, false, 1.0), ["a", "b c"]);
    }
}
