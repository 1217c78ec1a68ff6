//! Every operation by its definition, in plain loops and double precision: the reference for the
//! kernels of all backends.
#![allow(dead_code)]

pub mod activation;
pub mod attention;
pub mod loss;
pub mod norm;
pub mod rows;

use std::ops::{Index, IndexMut};
use undertone_tensor::Matrix;

/// Rows and columns of `f64`.
#[derive(Clone, Debug)]
pub struct Wide {
    pub rows: usize,
    pub columns: usize,
    pub values: Vec<f64>,
}

impl Wide {
    pub fn zeros(rows: usize, columns: usize) -> Self {
        Self { rows, columns, values: vec![0.0; rows * columns] }
    }

    /// The values of a matrix on any device.
    pub fn of(matrix: &Matrix) -> Self {
        let values = matrix.to_vec().unwrap().into_iter().map(f64::from).collect();
        Self { rows: matrix.rows(), columns: matrix.columns(), values }
    }

    /// Element (i, j) is `f(i, j)`.
    pub fn from_fn(rows: usize, columns: usize, f: impl Fn(usize, usize) -> f64) -> Self {
        let values = (0..rows * columns).map(|at| f(at / columns, at % columns)).collect();
        Self { rows, columns, values }
    }

    pub fn row(&self, row: usize) -> &[f64] {
        &self.values[row * self.columns..(row + 1) * self.columns]
    }

    /// The largest magnitude.
    pub fn largest(&self) -> f64 {
        self.values.iter().fold(0.0, |most, x| x.abs().max(most))
    }
}

impl Index<(usize, usize)> for Wide {
    type Output = f64;
    fn index(&self, (row, column): (usize, usize)) -> &f64 {
        &self.values[row * self.columns + column]
    }
}

impl IndexMut<(usize, usize)> for Wide {
    fn index_mut(&mut self, (row, column): (usize, usize)) -> &mut f64 {
        &mut self.values[row * self.columns + column]
    }
}
