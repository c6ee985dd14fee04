//! The messages of a control plane.

use std::time::Duration;

use algorithms::control::{ControlPlane, Effect, Event, TensorId};

/// The messages of one step on a rank that is alone.
pub fn step(plane: &mut dyn ControlPlane, ready: &[TensorId]) -> Vec<Vec<TensorId>> {
    let mut effects = Vec::new();
    // One at a time, as the backward pass computes them.
    for &id in ready {
        plane.on(Event::Ready(&[id]), &mut effects).unwrap();
        plane.on(Event::Cycle(Duration::ZERO), &mut effects).unwrap();
    }
    let messages = effects.into_iter().filter_map(|effect| match effect {
        Effect::Execute(response) => Some(response.tensors.to_vec()),
        _ => None,
    });
    messages.collect()
}
