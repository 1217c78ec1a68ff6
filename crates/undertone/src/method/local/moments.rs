//! Means and covariances of embeddings, estimated from releases with known noise.
//!
//! A released row is z = x + n with n ~ N(0, diag(v)) and v known, so cov(x) = cov(z) − diag(v) in
//! expectation. After randomized response, a label is ỹ with P(ỹ = a | y = b) = T_ab = (p − q) [a =
//! b] + q. So, in expectation, the counts and the sums of rows by *randomized* label are T times
//! those by *true* label, and T⁻¹ = (I − q J)/(p − q) with the all-ones matrix J, since p + (k − 1)
//! q = 1.
//!
//! Everything here is computed from releases: it is post-processing, which costs no privacy.

use crate::model::RandomizedResponse;
use crate::tensor::{self, Host, Matrix, Result};
use nalgebra::{DMatrix, DVector, SymmetricEigen};

/// The known noise of rows and labels.
#[derive(Clone, Debug)]
pub struct Known {
    /// Variance of the noise in each column.
    pub variances: Vec<f64>,
    /// Probabilities of the labels' randomized response.
    pub labels: Option<RandomizedResponse>,
}

/// First and second moments of released rows.
#[derive(Clone, Debug)]
pub struct Moments {
    counts: Vec<f64>,
    sums: DMatrix<f64>,
    second: DMatrix<f64>,
}

/// Class means, corrected for randomized labels.
#[derive(Clone, Debug)]
pub struct ClassMeans {
    /// `[width, classes]`.
    pub means: DMatrix<f64>,
    /// Fraction of the rows in each class.
    pub shares: Vec<f64>,
    /// Whether each class has enough rows for a mean.
    pub seen: Vec<bool>,
}

impl Moments {
    /// Empty moments.
    pub fn new(width: usize, classes: usize) -> Self {
        Self {
            counts: vec![0.0; classes],
            sums: DMatrix::zeros(width, classes),
            second: DMatrix::zeros(width, width),
        }
    }

    /// Adds rows, each with its class.
    pub fn add(&mut self, rows: &Host, classes: &[u32]) -> Result<()> {
        let width = rows.columns();
        for (i, &class) in classes.iter().enumerate() {
            self.counts[class as usize] += 1.0;
            let mut sum = self.sums.column_mut(class as usize);
            rows.row(i).iter().enumerate().for_each(|(j, &x)| sum[j] += f64::from(x));
        }
        let matrix = Matrix::Host(rows.clone());
        let squares = tensor::product(1.0, matrix.transposed(), matrix.plain())?.to_vec()?;
        let squares = DMatrix::from_row_slice(width, width, &squares).map(f64::from);
        self.second += squares;
        Ok(())
    }

    /// Number of rows.
    pub fn rows(&self) -> f64 {
        self.counts.iter().sum()
    }

    /// Number of columns.
    pub fn width(&self) -> usize {
        self.sums.nrows()
    }

    pub fn mean(&self) -> DVector<f64> {
        self.sums.column_sum() / self.rows().max(1.0)
    }

    /// Estimated covariance of the noise-free rows; some of its eigenvalues may be negative.
    pub fn covariance(&self, known: &Known) -> DMatrix<f64> {
        let mean = self.mean();
        let mut covariance = &self.second / self.rows().max(1.0) - &mean * mean.transpose();
        for (j, variance) in known.variances.iter().enumerate() {
            covariance[(j, j)] -= variance;
        }
        (&covariance + covariance.transpose()) * 0.5
    }

    /// Error of an eigenvalue due to noise with finitely many rows: the spectral edge of a sample
    /// covariance.
    pub fn uncertainty(&self, known: &Known) -> f64 {
        let loudest = known.variances.iter().copied().fold(0.0, f64::max);
        2.0 * loudest * (self.width() as f64 / self.rows().max(1.0)).sqrt()
    }

    /// Means and fractions of the true classes.
    pub fn class_means(&self, known: &Known) -> ClassMeans {
        let classes = self.counts.len();
        let (mut counts, mut sums) = (self.counts.clone(), self.sums.clone());
        if let Some(RandomizedResponse { kept, other }) = known.labels {
            let scale = 1.0 / (kept - other).max(1e-9);
            let (all, total) = (self.rows(), self.sums.column_sum());
            for (class, count) in counts.iter_mut().enumerate() {
                *count = scale * (*count - other * all);
                let corrected = (self.sums.column(class) - &total * other) * scale;
                sums.set_column(class, &corrected);
            }
        }
        // A fraction that is tiny or negative by chance would make the class mean huge.
        let least = 0.01 * self.rows() / classes as f64;
        let seen: Vec<bool> = counts.iter().map(|&count| count >= least && count > 0.0).collect();
        for (class, count) in counts.iter_mut().enumerate() {
            *count = count.max(least);
            let mean = sums.column(class) / count.max(1e-12);
            sums.set_column(class, &mean);
        }
        let all: f64 = counts.iter().sum();
        ClassMeans {
            means: sums,
            shares: counts.iter().map(|n| n / all.max(1e-12)).collect(),
            seen,
        }
    }
}

/// Eigenvalues, largest first, and eigenvectors as columns.
pub fn eigen(symmetric: DMatrix<f64>) -> (Vec<f64>, DMatrix<f64>) {
    let decomposition = SymmetricEigen::new(symmetric);
    let mut order: Vec<usize> = (0..decomposition.eigenvalues.len()).collect();
    order.sort_by(|&a, &b| decomposition.eigenvalues[b].total_cmp(&decomposition.eigenvalues[a]));
    let values = order.iter().map(|&i| decomposition.eigenvalues[i]).collect();
    (values, decomposition.eigenvectors.select_columns(&order))
}
