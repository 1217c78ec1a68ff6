//! Stacks of linear layers with an activation, used as encoder and decoder.

use crate::factor::Receiver;
use crate::layer::linear::{self, Linear};
use crate::pass::Pass;
use undertone_tensor::{self as tensor, Activation, Matrix, Result};

/// Activations of a stack of linear layers, saved for its backward pass.
#[derive(Debug, Default)]
pub(super) struct Stack {
    layers: Vec<linear::Saved>,
    /// Input of each activation function.
    before: Vec<Matrix>,
}

/// Forward pass of a stack: the activation is applied between layers and, if `at_end`, after the
/// last one.
pub(super) fn stack_forward(
    layers: &[Linear],
    activation: Option<Activation>,
    at_end: bool,
    pass: &Pass,
    mut x: Matrix,
) -> Result<(Matrix, Stack)> {
    let mut stack = Stack::default();
    for (i, layer) in layers.iter().enumerate() {
        let (mut y, saved) = layer.forward(pass, &x)?;
        stack.layers.push(saved);
        if let Some(activation) = activation.filter(|_| at_end || i + 1 < layers.len()) {
            stack.before.push(y.clone());
            y = tensor::activate(activation, &y)?;
        }
        x = y;
    }
    Ok((x, stack))
}

pub(super) fn stack_backward(
    layers: &[Linear],
    activation: Option<Activation>,
    at_end: bool,
    pass: &Pass,
    stack: Stack,
    mut gradient: Matrix,
    receiver: &mut dyn Receiver,
) -> Result<Matrix> {
    let mut before = stack.before;
    for (i, (layer, saved)) in layers.iter().zip(stack.layers).enumerate().rev() {
        if let Some(activation) = activation.filter(|_| at_end || i + 1 < layers.len())
            && let Some(x) = before.pop()
        {
            gradient = tensor::activate_backward(activation, &x, &gradient)?;
        }
        gradient = layer.backward_alone(pass, saved, &gradient, receiver)?;
    }
    Ok(gradient)
}
