//! wip
pub mod baselines;
pub mod embed;
pub mod error;
pub mod features;
pub mod folds;
pub mod lbfgs;
pub mod logistic;
pub mod matrix;
pub mod route;
pub mod score;
pub mod task;
