//! `cargo fuzz run message`, in the folder of the crate `algorithms`: no bytes make a control plane panic.

#![no_main]

use std::time::Duration;

use algorithms::control::{self, DataType, Effect, Event, ReduceOp, Settings, Tensor, Tensors};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for name in control::NAMES {
        for rank in 0..2 {
            let tensor = Tensor::new("layer0.weight", DataType::F32, ReduceOp::Average, &[5]);
            let tensors = Tensors::new(vec![tensor]).expect("one tensor");
            let settings = Settings::new(rank, 2);
            let mut plane = control::find(name, tensors.into(), &settings).expect("a known name");
            let mut out = Vec::new();
            plane.on(Event::Ready(&[0]), &mut out).expect("ready once");
            plane.on(Event::Cycle(Duration::ZERO), &mut out).expect("the first cycle");
            if let Some(Effect::Bitwise(_, words)) = out.first() {
                plane.on(Event::Combined(&words.clone()), &mut out).expect("one word");
            }
            let _ = plane.on(Event::Arrived { from: 1 - rank, message: bytes }, &mut out);
        }
    }
});
