//! The native part of the `undertone` package for Python, called by the package's Python files.
//!
//! It calls the same libraries as the command line, never the program. Values are passed as
//! JSON-like Python objects, which `py_src/undertone` wraps in classes.

mod accountant;
mod arrow;
mod audit;
mod errors;
mod events;
mod folder;
mod model;
mod process;
mod rows;
mod synthesize;
mod train;
mod values;

use pyo3::prelude::*;

/// Limits the memory of chat templates, which are untrusted programs.
#[global_allocator]
static ALLOCATOR: undertone::BoundedAllocator = undertone::BoundedAllocator;

#[pymodule]
fn _undertone(module: &Bound<'_, PyModule>) -> PyResult<()> {
    // Nothing is printed unless Python code prints it.
    undertone_terminal::output::hush();
    undertone_cli::register::provide_databases();
    let py = module.py();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("UndertoneError", py.get_type::<errors::UndertoneError>())?;
    module.add("UserError", py.get_type::<errors::UserError>())?;
    module.add_class::<rows::Rows>()?;
    module.add_class::<model::TrainedModel>()?;
    for function in [
        wrap_pyfunction!(accountant::epsilon, module)?,
        wrap_pyfunction!(accountant::delta, module)?,
        wrap_pyfunction!(accountant::noise_multiplier, module)?,
        wrap_pyfunction!(accountant::trade_off, module)?,
        wrap_pyfunction!(rows::rows_as_json, module)?,
        wrap_pyfunction!(train::needed_columns, module)?,
        wrap_pyfunction!(train::train, module)?,
        wrap_pyfunction!(train::resume, module)?,
        wrap_pyfunction!(synthesize::synthesize, module)?,
        wrap_pyfunction!(folder::read_run, module)?,
        wrap_pyfunction!(folder::columns_of_run, module)?,
        wrap_pyfunction!(folder::write_report, module)?,
        wrap_pyfunction!(folder::html, module)?,
        wrap_pyfunction!(folder::write_demo, module)?,
        wrap_pyfunction!(audit::audit, module)?,
    ] {
        module.add_function(function)?;
    }
    Ok(())
}
