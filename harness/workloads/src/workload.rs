//! A model's gradients: their sizes, and when in a backward pass each becomes ready.

mod error;
pub mod from_timeline;
mod table;

use std::path::{Path, PathBuf};

use algorithms::control::{DataType, ReduceOp, Tensor};

use self::table::Table;
use results::inputs::{self, Origin, beside, fnv1a};

pub use self::error::{TableError, WorkloadError};

/// The folder of the models that have names, on disk and embedded.
const FOLDER: &str = "configs/workloads";

/// Gradients of one model.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Name of the model.
    pub name: String,
    /// Gradients in the order in which the model defines its parameters.
    pub gradients: Vec<Gradient>,
    /// Positions in `gradients` in the order in which they become ready.
    pub ready_order: Vec<usize>,
    /// True if the order was not measured: the reverse of the definition is assumed, with shares of the backward
    /// pass in proportion to each gradient's elements.
    pub ready_assumed: bool,
}

/// One gradient.
#[derive(Clone, Debug, PartialEq)]
pub struct Gradient {
    /// Name of the parameter.
    pub name: String,
    /// Dimensions; empty for a scalar.
    pub shape: Vec<u64>,
    /// Share of the backward pass, 0 to 1, after which it becomes ready; infinity if it never does, which files
    /// cannot express.
    pub ready_fraction: f64,
}

impl Gradient {
    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().product::<u64>() as usize
    }
}

impl Workload {
    /// Reads `NAME.csv` (`index,name,shape,elements`) and `NAME.ready.csv`
    /// (`ready,index,name,elements,bwd_flop_frac`) beside it. Without the second file gradients are
    /// assumed to become ready in reverse order. A `.json` file is a [timeline](from_timeline).
    ///
    /// # Errors
    /// The file, and the problem.
    pub fn read(path: &Path) -> Result<Workload, WorkloadError> {
        if path.extension().is_some_and(|extension| extension == "json") {
            let workload = from_timeline::read(path)?.workload;
            let unreadable = |cause| WorkloadError::Unreadable { path: path.into(), cause };
            inputs::note(path).map_err(unreadable)?;
            return Ok(workload);
        }
        let mut gradients: Vec<Gradient> = Vec::new();
        let (mut table, origin) = Table::open(path, &["index", "name", "shape", "elements"])?;
        while let Some(row) = table.next()? {
            let index: usize = row.number(0, "a number, counting from 0")?;
            if index != gradients.len() {
                let next = gradients.len();
                return Err(row.malformed(TableError::value("index", index, next.to_string())));
            }
            let shape = row.shape(2)?;
            let elements: u64 = row.number(3, "a number of elements")?;
            if shape.iter().product::<u64>() != elements {
                let expected = format!("the product of the shape {}", row.field(2));
                return Err(row.malformed(TableError::value("elements", elements, expected)));
            }
            let name = row.field(1).to_string();
            if gradients.iter().any(|gradient| gradient.name == name) {
                return Err(row.malformed(TableError::DefinedTwice { name }));
            }
            gradients.push(Gradient { name, shape, ready_fraction: f64::NAN });
        }
        if gradients.is_empty() {
            return Err(table.malformed(TableError::Empty));
        }
        let ready = path.with_extension("ready.csv");
        // A list on disk goes with ready times on disk.
        let ready_assumed = match origin {
            Origin::Disk => !ready.exists(),
            Origin::Embedded => inputs::embedded(&ready).is_none(),
        };
        let ready_order = if ready_assumed {
            assume_ready(&mut gradients)
        } else {
            read_ready(&ready, &mut gradients)?
        };
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Workload { name, gradients, ready_order, ready_assumed })
    }

    /// Number of elements of all gradients.
    pub fn elements(&self) -> usize {
        self.gradients.iter().map(Gradient::elements).sum()
    }

    /// What is assumed about when gradients become ready, as a sentence; none if it was measured.
    pub fn assumption(&self) -> Option<String> {
        self.ready_assumed.then(|| {
            format!(
                "{}: the times when its gradients become ready were not measured; the reverse of their \
                 definition order is assumed",
                self.name
            )
        })
    }

    /// A fingerprint of names, shapes and ready times: FNV-1a over their text.
    pub fn digest(&self) -> String {
        let text = format!("{:?} {:?}", self.gradients, self.ready_order);
        format!("{:016x}", fnv1a(text.as_bytes()))
    }

    /// The gradients as a control plane's tensors.
    pub fn tensors(&self, dtype: DataType, op: ReduceOp) -> Vec<Tensor> {
        let tensor = |gradient: &Gradient| Tensor::new(&gradient.name, dtype, op, &gradient.shape);
        self.gradients.iter().map(tensor).collect()
    }
}

/// The reverse of the definition, in proportion to elements.
fn assume_ready(gradients: &mut [Gradient]) -> Vec<usize> {
    let all: usize = gradients.iter().map(Gradient::elements).sum();
    let mut done = 0;
    for gradient in gradients.iter_mut().rev() {
        done += gradient.elements();
        gradient.ready_fraction = done as f64 / all.max(1) as f64;
    }
    (0..gradients.len()).rev().collect()
}

/// Reads when each gradient becomes ready; returns their order.
fn read_ready(path: &Path, gradients: &mut [Gradient]) -> Result<Vec<usize>, WorkloadError> {
    let columns = ["ready", "index", "name", "elements", "bwd_flop_frac"];
    let (mut table, _) = Table::open(path, &columns)?;
    let mut order = Vec::new();
    let mut before = 0.0;
    while let Some(row) = table.next()? {
        let index: usize = row.number(1, "the index of a gradient")?;
        let fraction: f64 = row.number(4, "a fraction between 0 and 1")?;
        let count = gradients.len();
        let Some(gradient) = gradients.get_mut(index) else {
            let expected = format!("less than {count}, the number of gradients");
            return Err(row.malformed(TableError::value("index", index, expected)));
        };
        if gradient.name != row.field(2) {
            let (expected, found) = (gradient.name.clone(), row.field(2).to_string());
            return Err(row.malformed(TableError::Name { index, expected, found }));
        }
        if !(before..=1.0).contains(&fraction) {
            let expected = format!("{before} to 1");
            return Err(row.malformed(TableError::value("bwd_flop_frac", fraction, expected)));
        }
        if !gradient.ready_fraction.is_nan() {
            let name = gradient.name.clone();
            return Err(row.malformed(TableError::ReadyTwice { name }));
        }
        gradient.ready_fraction = fraction;
        before = fraction;
        order.push(index);
    }
    match gradients.iter().find(|gradient| gradient.ready_fraction.is_nan()) {
        Some(missing) => {
            Err(table.malformed(TableError::NeverReady { name: missing.name.clone() }))
        }
        None => Ok(order),
    }
}

/// The file of a workload that the configuration at `path` names.
pub fn workload_path(workload: &str, path: &Path) -> PathBuf {
    if workload.ends_with(".csv") || workload.ends_with(".json") {
        path.parent().unwrap_or(Path::new("")).join(workload)
    } else {
        beside(&format!("workloads/{workload}.csv"), path)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const SHAPES: &str = "index,name,shape,elements\n0,conv.weight,2x3,6\n1,conv.bias,2,2\n";
    const READY: &str = "ready,index,name,elements,bwd_flop_frac\n\
                         0,1,conv.bias,2,0.25\n1,0,conv.weight,6,1.0\n";

    fn read(shapes: &str, ready: &str) -> Result<Workload, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tiny.csv");
        fs::write(&path, shapes).unwrap();
        fs::write(folder.path().join("tiny.ready.csv"), ready).unwrap();
        Workload::read(&path).map_err(|error| {
            error.to_string().replace(&format!("{}/", folder.path().display()), "")
        })
    }

    #[test]
    fn a_workload_is_read() {
        let workload = read(SHAPES, READY).unwrap();
        assert_eq!((workload.name.as_str(), workload.elements()), ("tiny", 8));
        assert_eq!(workload.ready_order, [1, 0]);
        assert_eq!(workload.gradients[0].shape, [2, 3]);
        assert_eq!(workload.gradients[1].ready_fraction, 0.25);
    }

    #[test]
    fn malformed_rows_are_refused_with_file_and_line() {
        for (shapes, ready, expected) in [
            (
                SHAPES.replace("2x3,6", "2x3,7"),
                READY.to_string(),
                "tiny.csv:2: elements is 7, expected the product of the shape 2x3",
            ),
            (
                SHAPES.replace("2x3", "2*3"),
                READY.to_string(),
                "tiny.csv:2: shape is \"2*3\", expected dimensions such as 64x3x7x7",
            ),
            (
                SHAPES.replace("conv.bias", "conv.weight"),
                READY.to_string(),
                "tiny.csv:3: gradient \"conv.weight\" is defined twice; give each gradient a name of its \
                 own",
            ),
            (
                SHAPES.replace("1,conv", "5,conv"),
                READY.to_string(),
                "tiny.csv:3: index is 5, expected 1",
            ),
            (
                SHAPES.replace("2,2", "2"),
                READY.to_string(),
                "tiny.csv:3: 3 fields, expected 4 as in the first line",
            ),
            (
                "index,name\n0,a\n".to_string(),
                READY.to_string(),
                "tiny.csv:1: column \"shape\" is missing; found index,name",
            ),
            (
                "index,name,shape,elements\n".to_string(),
                READY.to_string(),
                "tiny.csv:1: no gradients; expected one line for each",
            ),
            (
                SHAPES.to_string(),
                READY.replace("0.25", "soon"),
                "tiny.ready.csv:2: bwd_flop_frac is \"soon\", expected a fraction between 0 and 1",
            ),
            (
                SHAPES.to_string(),
                READY.replace("1.0", "0.2"),
                "tiny.ready.csv:3: bwd_flop_frac is 0.2, expected 0.25 to 1",
            ),
            (
                SHAPES.to_string(),
                READY.replace("1,0,conv.weight,6,1.0\n", ""),
                "tiny.ready.csv:2: gradient \"conv.weight\" never becomes ready; add a line for it",
            ),
            (
                SHAPES.to_string(),
                READY.replace("0,conv.weight", "1,conv.weight"),
                "tiny.ready.csv:3: gradient 1 is \"conv.bias\", found \"conv.weight\"",
            ),
        ] {
            assert_eq!(read(&shapes, &ready).unwrap_err(), expected);
        }
    }

    #[test]
    fn without_ready_times_the_reverse_order_is_assumed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tiny.csv");
        fs::write(&path, SHAPES).unwrap();
        let workload = Workload::read(&path).unwrap();
        assert!(workload.ready_assumed);
        assert_eq!(workload.ready_order, [1, 0]);
        let fractions: Vec<_> = workload.gradients.iter().map(|g| g.ready_fraction).collect();
        assert_eq!(fractions, [1.0, 0.25]);
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = Workload::read(Path::new("no/such.csv")).unwrap_err().to_string();
        assert!(error.starts_with("no/such.csv: No such file"), "{error}");
    }
}
