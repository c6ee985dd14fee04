//! Figures in memory, for pages that embed them.

use crate::drawing::Said;
use crate::view::View;
use crate::{FIGURES, Rows, Sheet};

/// The pictures of some rows.
#[derive(Debug, Clone, Default)]
pub struct Pictures {
    /// In the order of the registry.
    pub drawn: Vec<Picture>,
    /// Figures, or combinations of conditions, without a picture: the figure and the reason, in a sentence.
    pub not_drawn: Vec<(&'static str, String)>,
}

/// A picture as SVG, and what it says in words.
#[derive(Debug, Clone)]
pub struct Picture {
    /// The figure's name, such as `surface`.
    pub figure: &'static str,
    /// The file name that [`draw`](crate::draw) gives it, without an extension: unique among the pictures of some rows.
    pub stem: String,
    /// Its title.
    pub title: String,
    /// Its finding in a sentence; empty if it has none.
    pub finding: String,
    /// Where its values come from, and their conditions: sentences.
    pub caption: String,
    /// The text of an SVG file. Nothing in it has an identifier, and it refers to nothing outside.
    pub svg: String,
}

/// Draws every figure that the rows have data for. `begins` hears the name of each figure before it is drawn.
pub fn pictures(rows: &Rows, mut begins: impl FnMut(&'static str)) -> Pictures {
    let mut pictures = Pictures::default();
    for figure in &FIGURES {
        begins(figure.name);
        for sheet in (figure.sheets)(rows, View::default()) {
            match sheet {
                Sheet::Drawn { suffix, drawing } => {
                    let svg = drawing
                        .svg()
                        .expect("memory can be written to, and the font is registered");
                    let Said { title, finding, caption } = drawing.said;
                    let (stem, caption) = (figure.stem(&suffix), caption.join(" "));
                    let figure = figure.name;
                    pictures.drawn.push(Picture { figure, stem, title, finding, caption, svg });
                }
                Sheet::Skipped { reason } => pictures.not_drawn.push((figure.name, reason)),
            }
        }
    }
    pictures
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{step, table};

    #[test]
    fn a_picture_has_its_words_and_the_svg_of_the_file() {
        let rows = Rows::of(&table(&[step("ring", "coordinator", 64.0, 5.0)]));
        let mut begun = Vec::new();
        let pictures = pictures(&rows, |figure| begun.push(figure));
        assert_eq!(begun.len(), FIGURES.len());
        let surface = &pictures.drawn[0];
        assert_eq!((surface.figure, surface.stem.as_str()), ("surface", "surface"));
        assert_eq!(surface.title, "Step time by fusion threshold and cycle time");
        assert!(surface.finding.starts_with("Fastest: "), "{}", surface.finding);
        assert!(surface.caption.starts_with("MEASURED"), "{}", surface.caption);
        let folder = std::env::temp_dir().join(format!("kolo-picture-{}", std::process::id()));
        crate::draw(&rows, &folder, crate::Options::default(), |_| {}).unwrap();
        assert_eq!(std::fs::read_to_string(folder.join("surface.svg")).unwrap(), surface.svg);
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(!surface.svg.contains(" id=") && !surface.svg.contains("href"));
        assert!(pictures.not_drawn.iter().any(|(figure, _)| *figure == "roofline"));
    }

    #[test]
    fn names_from_files_are_escaped() {
        let row = step("<script>alert(1)</script>", "coordinator", 64.0, 5.0);
        let pictures = pictures(&Rows::of(&table(&[row])), |_| {});
        assert!(pictures.drawn.iter().all(|picture| !picture.svg.contains("<script")));
    }
}
