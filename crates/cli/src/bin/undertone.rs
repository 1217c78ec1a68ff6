//! The `undertone` program.

/// Limits the memory of chat templates, which are untrusted programs.
#[global_allocator]
static ALLOCATOR: undertone::BoundedAllocator = undertone::BoundedAllocator;

fn main() -> std::process::ExitCode {
    undertone_cli::run()
}
