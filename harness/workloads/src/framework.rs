//! Horovod's optimizer: it accumulates the gradients of several backward passes, casts them to 16 bits, chooses
//! factors, and hands them over in groups.
//!
//! A step is one or more forward and backward passes and one optimizer. The first pass writes its gradients to the
//! accumulation buffers; each later pass adds its own. In the last pass they are cast and handed over as they
//! become ready. This is real work and makes the passes longer. The result is cast back, and optionally divided by the
//! number of passes. A framework does this on a thread or a stream of its own, while the background loop continues. So
//! does the engine with a framework's thread; without one, it is work of the loop's thread, which casts a result back as
//! soon as its message has ended.
//!
//! Horovod 0.28: `DistributedOptimizer` of PyTorch, gradient aggregation of TensorFlow.

use algorithms::control::{DataType, ReduceOp, Tensor, TensorId};
use serde::{Deserialize, Serialize};

use crate::groups::Groups;
use crate::workload::Workload;
use algorithms::control::Reduction;
use results::toml_file::{Invalid, within};

/// The options, under Horovod's names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Framework {
    /// Backward passes whose gradients a rank accumulates before they are communicated.
    pub backward_passes_per_step: usize,
    /// The result is divided by that number.
    pub average_aggregated_gradients: bool,
    /// Type to which wider floating-point gradients are cast before they are handed over.
    pub compression: Compression,
    /// A part f of the division by the world size is done before the sum: the gradients are multiplied
    /// by 1/f before and by f/size afterwards. Only for averages.
    pub gradient_predivide_factor: f64,
    /// The gradients are multiplied by it before they are reduced.
    pub prescale_factor: f64,
    /// The result is multiplied by it.
    pub postscale_factor: f64,
    /// Gradients that are handed over as a unit; grouped algorithms have groups without it, too.
    pub groups: Option<Groups>,
}

impl Default for Framework {
    fn default() -> Framework {
        Framework {
            backward_passes_per_step: 1,
            average_aggregated_gradients: false,
            compression: Compression::None,
            gradient_predivide_factor: 1.0,
            prescale_factor: 1.0,
            postscale_factor: 1.0,
            groups: None,
        }
    }
}

/// Type to which gradients are cast.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// They travel as they are.
    #[default]
    None,
    /// To f16.
    Fp16,
    /// To bf16, which Horovod does not offer.
    Bf16,
}

impl Compression {
    /// The one spelling of its name.
    pub fn name(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Fp16 => "fp16",
            Compression::Bf16 => "bf16",
        }
    }
}

/// More passes than this are taken for a mistake.
const MOST_PASSES: usize = 65536;

/// The key that errors name.
const PREDIVIDE: &str = "gradient_predivide_factor";

impl Framework {
    /// Refuses options that contradict themselves or the gradients' type and reduction.
    ///
    /// # Errors
    /// The key, the value found, the value expected.
    pub fn check(&self, dtype: DataType, op: ReduceOp) -> Result<(), Invalid> {
        self.check_keys(dtype, op).map_err(|problem| problem.below("framework."))
    }

    fn check_keys(&self, dtype: DataType, op: ReduceOp) -> Result<(), Invalid> {
        let passes = self.backward_passes_per_step;
        within("backward_passes_per_step", passes as f64, 1.0, MOST_PASSES as f64)?;
        if passes > 1 && !matches!(op, ReduceOp::Sum | ReduceOp::Average) {
            let expected = format!("1, since data.op is {}", op.name());
            return Err(Invalid::value("backward_passes_per_step", passes, expected)
                .with_advice("gradients of several passes are summed: use sum or average"));
        }
        if self.average_aggregated_gradients && dtype.is_integer() {
            let expected = format!("false, since the average of {} would be rounded", dtype.name());
            return Err(Invalid::value("average_aggregated_gradients", true, expected)
                .with_advice("leave it out, or use a floating-point type"));
        }
        for (key, factor) in [
            (PREDIVIDE, self.gradient_predivide_factor),
            ("prescale_factor", self.prescale_factor),
            ("postscale_factor", self.postscale_factor),
        ] {
            check_factor(factor, key, dtype, op)?;
        }
        match &self.groups {
            Some(groups) => groups.check().map_err(|cause| Invalid::because("groups", cause)),
            None => Ok(()),
        }
    }

    /// The type in which gradients are handed over and reduced.
    pub fn wire(&self, dtype: DataType) -> DataType {
        match self.compression {
            _ if dtype.is_integer() || dtype.size_bytes() <= 2 => dtype,
            Compression::None => dtype,
            Compression::Fp16 => DataType::F16,
            Compression::Bf16 => DataType::BF16,
        }
    }

    /// How gradients are reduced.
    pub fn reduction(&self, op: ReduceOp) -> Reduction {
        Reduction {
            op,
            prescale: self.prescale_factor / self.gradient_predivide_factor,
            postscale: self.postscale_factor * self.gradient_predivide_factor,
        }
    }

    /// The gradients as a control plane's tensors.
    pub fn tensors(&self, workload: &Workload, dtype: DataType, op: ReduceOp) -> Vec<Tensor> {
        let Reduction { prescale, postscale, .. } = self.reduction(op);
        let tensors = workload.tensors(self.wire(dtype), op).into_iter();
        tensors.map(|tensor| Tensor { prescale, postscale, ..tensor }).collect()
    }

    /// The gradients of each group, if there are groups: as configured, or as many as a grouped algorithm has.
    ///
    /// # Errors
    /// As [`Groups::of`], with the key.
    pub fn groups(
        &self,
        workload: &Workload,
        by_algorithm: Option<usize>,
    ) -> Result<Vec<Vec<TensorId>>, Invalid> {
        match self.groups.clone().or(by_algorithm.map(Groups::Even)) {
            Some(groups) => {
                groups.of(workload).map_err(|cause| Invalid::because("framework.groups", cause))
            }
            None => Ok(Vec::new()),
        }
    }
}

fn check_factor(factor: f64, key: &str, dtype: DataType, op: ReduceOp) -> Result<(), Invalid> {
    if !(factor.is_normal() && factor > 0.0) {
        return Err(Invalid::value(key, factor, "a number above 0"));
    }
    let averages = key == PREDIVIDE;
    let fits = op == ReduceOp::Average || (op == ReduceOp::Sum && !averages);
    if factor == 1.0 || (fits && !dtype.is_integer()) {
        Ok(())
    } else {
        let expected = format!("1 for the {} of {}", op.name(), dtype.name());
        let ops = if averages { "the average" } else { "the sum or average" };
        Err(Invalid::value(key, factor, expected)
            .with_advice(format!("other factors need {ops} of a floating-point type")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_checked() {
        let check = |text: &str, dtype, op| -> Result<(), String> {
            let framework: Framework =
                toml::from_str(text).map_err(|error| error.message().to_string())?;
            framework.check(dtype, op).map_err(|problem| problem.to_string())
        };
        use DataType::{F32, I32};
        use ReduceOp::{Average, Max, Sum};
        for (text, dtype, op) in [
            ("", I32, Max),
            ("compression = \"fp16\"\nbackward_passes_per_step = 3", I32, Sum),
            ("gradient_predivide_factor = 2\naverage_aggregated_gradients = true", F32, Average),
            ("prescale_factor = 0.5\npostscale_factor = 3.0\ngroups = \"layers\"", F32, Sum),
            ("compression = \"none\"\ngroups = [[\"a\", \"b\"], [\"c\"]]", F32, Max),
        ] {
            assert_eq!(check(text, dtype, op), Ok(()), "{text}");
        }
        for (text, dtype, op, expected) in [
            (
                "backward_passes_per_step = 0",
                F32,
                Sum,
                "framework.backward_passes_per_step is 0, expected 1 to 65536",
            ),
            (
                "backward_passes_per_step = -1",
                F32,
                Sum,
                "invalid value: integer `-1`, expected usize",
            ),
            (
                "backward_passes_per_step = 2",
                F32,
                Max,
                "framework.backward_passes_per_step is 2, expected 1, since data.op is max; gradients of",
            ),
            (
                "average_aggregated_gradients = true",
                I32,
                Sum,
                "framework.average_aggregated_gradients is true, expected false, since the average of i32",
            ),
            (
                "compression = \"fp8\"",
                F32,
                Sum,
                "unknown variant `fp8`, expected one of `none`, `fp16`, `bf16`",
            ),
            (
                "gradient_predivide_factor = 0",
                F32,
                Average,
                "framework.gradient_predivide_factor is 0, expected a number above 0",
            ),
            (
                "gradient_predivide_factor = nan",
                F32,
                Average,
                "framework.gradient_predivide_factor is NaN, expected a number above 0",
            ),
            (
                "prescale_factor = -2",
                F32,
                Sum,
                "framework.prescale_factor is -2, expected a number",
            ),
            ("postscale_factor = inf", F32, Sum, "framework.postscale_factor is inf, expected"),
            (
                "gradient_predivide_factor = 2",
                F32,
                Sum,
                "framework.gradient_predivide_factor is 2, expected 1 for the sum of f32; other \
                 factors need the average of a floating-point type",
            ),
            (
                "prescale_factor = 2",
                I32,
                Sum,
                "framework.prescale_factor is 2, expected 1 for the sum of i32; other factors need the sum",
            ),
            ("groups = 0", F32, Sum, "framework.groups: found 0 groups, expected at least 1"),
            (
                "groups = 1.5",
                F32,
                Sum,
                "\"layers\", a number of groups, or a list of lists of names",
            ),
            (
                "groups = \"rows\"",
                F32,
                Sum,
                "framework.groups: \"rows\" is unknown, expected \"layers\", a number of groups",
            ),
            (
                "groups = [[\"a\"], [\"a\"]]",
                F32,
                Sum,
                "framework.groups: gradient \"a\" is listed twice",
            ),
            (
                "passes = 2",
                F32,
                Sum,
                "unknown field `passes`, expected one of `backward_passes_per_",
            ),
        ] {
            let error = check(text, dtype, op).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn only_wide_floating_point_gradients_are_cast() {
        let framework = |compression| Framework { compression, ..Framework::default() };
        use DataType::{BF16, F16, F32, F64, I32, I64, U8};
        for (compression, expected) in [
            (Compression::None, [F32, F64, F16, BF16, I32, I64, U8]),
            (Compression::Fp16, [F16, F16, F16, BF16, I32, I64, U8]),
            (Compression::Bf16, [BF16, BF16, F16, BF16, I32, I64, U8]),
        ] {
            let wires = DataType::ALL.map(|dtype| framework(compression).wire(dtype));
            assert_eq!(wires, expected, "{compression:?}");
        }
    }

    #[test]
    fn a_predivided_average_divides_before_and_after() {
        let framework = Framework { gradient_predivide_factor: 4.0, ..Framework::default() };
        let reduction = framework.reduction(ReduceOp::Average);
        assert_eq!((reduction.prescale, reduction.factor_after(8)), (0.25, 0.5));
    }
}
