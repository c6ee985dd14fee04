//! The page: all parts of a report, as the template's data.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, context};
use serde::Serialize;

use crate::compared::{self, Compared};
use crate::origin::Origin;
use crate::run::Run;
use crate::surface::{self, Surface};
use crate::tables::{self, Table};
use crate::timeline::{self, Timeline};
use crate::words::sentence;
use crate::{ReportError, warnings};

const TEMPLATE: &str = include_str!("report.html");
const TABLE: &str = include_str!("table.html");
const STYLE: &str = include_str!("report.css");
const SCRIPT: &str = include_str!("report.js");

/// The most bytes of all figures, so that a page stays below 5 MB.
const MOST_FIGURE_BYTES: usize = 1_400_000;

/// The data of the template.
#[derive(Debug, Serialize)]
pub struct Page {
    title: String,
    /// What is said of each run.
    pub runs: Vec<Said>,
    compared: Option<Compared>,
    figures: Vec<Figure>,
    not_drawn: Vec<(String, String)>,
    surfaces: Vec<Surface>,
    timelines: Vec<Timeline>,
    no_timeline: Vec<String>,
    tables: Vec<Table>,
    origins: Vec<Origin>,
}

/// What a page says first of a run.
#[derive(Debug, Serialize)]
pub struct Said {
    /// The run, as the user gave it.
    pub name: String,
    /// The verdict in sentences; empty where the run wrote none.
    pub verdicts: Vec<String>,
    /// What limits the verdict, in sentences.
    pub limits: Vec<String>,
    /// Lines to copy, after their purpose.
    pub to_copy: Vec<(String, String)>,
    /// The text at the end of the run; empty where it wrote none.
    pub summary: String,
    /// What makes its numbers less than they seem, in sentences.
    pub warnings: Vec<String>,
    /// Files that a report uses and that the run lacks.
    pub missing: Vec<String>,
}

/// A figure, with its words for readers who do not see it.
#[derive(Debug, Serialize)]
struct Figure {
    id: String,
    title: String,
    finding: String,
    caption: String,
    /// The elements in the `svg` element of the picture.
    marks: String,
    width: String,
    height: String,
}

impl Page {
    /// Puts the parts together.
    ///
    /// # Errors
    /// When rows cannot be drawn.
    pub fn of(runs: &[Run], mut begins: impl FnMut(&str)) -> Result<Page, ReportError> {
        let drawn = runs.iter().flat_map(|run| &run.files).filter(|file| file.is_drawn());
        let steps = runs.iter().flat_map(|run| run.steps.iter().cloned());
        let predicted = runs.iter().filter_map(|run| run.predicted.clone());
        let paths: Vec<_> =
            drawn.map(|file| file.path.clone()).chain(steps).chain(predicted).collect();
        let rows = crate::rows(&paths)?;
        let pictures = plots::pictures(&rows, |figure| begins(&format!("drawing {figure}")));
        let (figures, too_large) = figures(pictures.drawn);
        begins("tables");
        let surfaces = surface::of(runs);
        let tables = tables::of(runs);
        begins("timeline");
        let of_steps =
            |run: &&Run| run.files.iter().any(|file| file.column("kind").any(|it| it == "step"));
        let read: Vec<_> = runs.iter().filter(of_steps).map(timeline::of).collect();
        let (timelines, no_timeline) = read.into_iter().partition::<Vec<_>, _>(Result::is_ok);
        Ok(Page {
            title: title(runs),
            runs: runs.iter().map(Said::of).collect(),
            compared: compared::of(runs),
            figures,
            not_drawn: pictures
                .not_drawn
                .into_iter()
                .map(|(name, why)| (name.into(), why))
                .chain(too_large)
                .collect(),
            surfaces,
            timelines: timelines.into_iter().flatten().collect(),
            no_timeline: no_timeline
                .into_iter()
                .filter_map(Result::err)
                .map(|why| sentence(&why))
                .collect(),
            tables,
            origins: runs.iter().map(Origin::of).collect(),
        })
    }

    /// The file.
    pub fn html(&self) -> String {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.expect("the usual signs"));
        for (name, text) in [("report.html", TEMPLATE), ("table.html", TABLE)] {
            environment.add_template(name, text).expect("the template is tested");
        }
        let template = |name| environment.get_template(name).expect("it was added");
        let table = |table: &Table| {
            let html = template("table.html").render(context! { table => Serde(table) });
            html.expect("the template is tested")
        };
        let tables: Vec<String> = self.tables.iter().map(table).collect();
        let pairs = self.compared.iter().flat_map(|compared| &compared.pairs);
        let compared: Vec<String> = pairs
            .map(|pair| pair.times.as_ref().map_or(String::new(), |times| table(&times.cases)))
            .collect();
        let page = template("report.html").render(
            context! { page => Serde(self), tables, compared, style => STYLE, script => SCRIPT },
        );
        page.expect("the template is tested")
    }
}

/// The figures of a page, and those that it has no room for, with the reason.
fn figures(pictures: Vec<plots::Picture>) -> (Vec<Figure>, Vec<(String, String)>) {
    let (mut figures, mut too_large, mut bytes) = (Vec::new(), Vec::new(), 0);
    let titles: Vec<String> = pictures.iter().map(|picture| picture.title.clone()).collect();
    for mut picture in pictures {
        if titles.iter().filter(|title| **title == picture.title).count() > 1 {
            picture.title = apart(&picture);
        }
        if bytes + picture.svg.len() > MOST_FIGURE_BYTES {
            let size = picture.svg.len() as f64 / 1e6;
            let why = format!("its {size:.1} MB do not fit the page; `kolo plot` draws it");
            too_large.push((picture.stem, why));
            continue;
        }
        bytes += picture.svg.len();
        figures.push(Figure::of(picture));
    }
    (figures, too_large)
}

/// The title of one of several pictures of a figure, with the conditions in which they differ.
fn apart(picture: &plots::Picture) -> String {
    let conditions = picture.stem.strip_prefix(picture.figure).unwrap_or_default();
    let words: Vec<&str> = conditions.split('_').filter(|it| !it.is_empty()).collect();
    if words.is_empty() {
        return picture.title.clone();
    }
    format!("{}: {}", picture.title, words.join(", "))
}

/// The workloads of the runs, and their folders.
fn title(runs: &[Run]) -> String {
    let workloads: Vec<String> = runs.first().map(Run::workloads).into_iter().flatten().collect();
    let names: Vec<String> = runs.iter().map(|run| run.path.display().to_string()).collect();
    match workloads.as_slice() {
        [workload] => format!("{workload}: {}", names.join(", ")),
        _ => names.join(", "),
    }
}

impl Said {
    fn of(run: &Run) -> Said {
        let conclusion = run.conclusion.clone().unwrap_or_default();
        let to_copy = conclusion.to_copy.into_iter().map(|it| (it.purpose, it.lines.join("\n")));
        Said {
            name: run.path.display().to_string(),
            verdicts: conclusion.verdicts,
            limits: conclusion.limits.iter().map(|limit| sentence(limit)).collect(),
            to_copy: to_copy.collect(),
            summary: run.summary.clone().unwrap_or_default(),
            warnings: warnings::of(run),
            missing: run.missing.iter().map(ToString::to_string).collect(),
        }
    }
}

impl Figure {
    fn of(picture: plots::Picture) -> Figure {
        let (head, marks) = picture.svg.split_once('>').unwrap_or_default();
        let marks = marks.rsplit_once("</svg>").map_or(marks, |(marks, _)| marks);
        let size = |name: &str| -> String {
            let (_, rest) = head.split_once(&format!(" {name}=\"")).unwrap_or_default();
            rest.split('"').next().unwrap_or_default().into()
        };
        Figure {
            id: format!("figure-{}", picture.stem),
            title: picture.title,
            finding: picture.finding,
            caption: picture.caption,
            marks: marks.into(),
            width: size("width"),
            height: size("height"),
        }
    }
}
