//! The files of a pack's heads: tensors, config, catalog, as zen-router's tools and a router read them.

use super::error::FitError;
use super::logistic::Head;
use super::route::Entry;
use safetensors::tensor::{Dtype, TensorView};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use zen_edge_core::catalog::Task;
use zen_edge_core::heads::TENSORS;
use zen_edge_core::pack::files;

/// The six tensors as a safetensors file.
///
/// # Errors
/// [`FitError::Diverged`] for a value that is no number.
pub fn heads(task: &Head, route: &Head, feature: &Head) -> Result<Vec<u8>, FitError> {
    let mut data = Vec::with_capacity(6);
    for (name, head) in [("task", task), ("route", route), ("feature", feature)] {
        if !head.is_finite() {
            return Err(FitError::Diverged { head: name });
        }
        let bytes = |values: &[f32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
        data.push((vec![head.rows(), head.cols], bytes(&head.weight)));
        data.push((vec![head.rows()], bytes(&head.bias)));
    }
    let views = TENSORS.iter().zip(&data).map(|(name, (shape, bytes))| {
        TensorView::new(Dtype::F32, shape.clone(), bytes).map(|view| (*name, view))
    });
    let views = views.collect::<Result<Vec<_>, _>>().map_err(FitError::Serialize)?;
    safetensors::serialize(views, None).map_err(FitError::Serialize)
}

/// A catalog of models of which only outcomes are known. A model lists the tasks in which its mean quality is within .05 of
/// the best, or else its best one.
pub fn catalog(ids: &[String], price: &[f64], entries: &[Entry]) -> Result<String, FitError> {
    let mut sums: BTreeMap<Task, Vec<(f64, usize)>> = BTreeMap::new();
    for entry in entries {
        let Some(task) = entry.task else { continue };
        let of = sums.entry(task).or_insert_with(|| vec![(0.0, 0); ids.len()]);
        for seen in &entry.seen {
            of[seen.model].0 += seen.quality;
            of[seen.model].1 += 1;
        }
    }
    let mean = |(sum, n): (f64, usize)| (n > 0).then(|| sum / n as f64);
    let mut text = String::from(
        "# Models of the rows that the route head was fitted on. The costs are USD for 1,000 tokens of prompt, answers\n\
         # included, by the rows; providers, contexts and local models are not known: fill them in.\nmodels:\n",
    );
    for (model, id) in ids.iter().enumerate() {
        let mut good: Vec<Task> = Vec::new();
        let mut nearest: Option<(f64, Task)> = None;
        for (task, of) in &sums {
            let Some(own) = mean(of[model]) else { continue };
            let best = of.iter().filter_map(|one| mean(*one)).fold(f64::NEG_INFINITY, f64::max);
            if own >= best - 0.05 {
                good.push(*task);
            }
            if nearest.is_none_or(|(gap, _)| own - best > gap) {
                nearest = Some((own - best, *task));
            }
        }
        if good.is_empty() {
            good.push(nearest.map_or(Task::General, |(_, task)| task));
        }
        if good.contains(&Task::General) && !good.contains(&Task::CheapChat) {
            good.push(Task::CheapChat);
        }
        let names: Vec<&str> = good.iter().map(|task| task.name()).collect();
        // A JSON string is a YAML string.
        let id = serde_json::to_string(id)?;
        text.push_str(&format!(
            "  - {{id: {id}, backend: cloud, provider: unknown, tasks: [{}], cost_per_1k: {:.6}}}\n",
            names.join(", "),
            price[model]
        ));
    }
    Ok(text)
}

/// Writes a file whole or not at all.
///
/// # Errors
/// [`FitError::Write`].
pub fn write(folder: &Path, name: &str, bytes: &[u8]) -> Result<(), FitError> {
    let file = folder.join(name);
    let io = |source| FitError::Write { file: file.clone(), source };
    let mut part = tempfile::NamedTempFile::new_in(folder).map_err(io)?;
    part.write_all(bytes).map_err(io)?;
    // A temporary file is its owner's alone; this one is to be read as any other.
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        part.as_file().set_permissions(std::fs::Permissions::from_mode(0o644)).map_err(io)?;
    }
    part.persist(&file).map(|_| ()).map_err(|error| io(error.error))
}

/// The files that a fit writes, in the order in which it does: the config binds the heads, so it comes last.
pub const WRITTEN: [&str; 5] = [files::HEADS, files::CATALOG[0], "report.json", "report.html", files::CONFIG];
