//! Variables that tell a framework to leave the GPU alone.

use crate::facts::Layer;
use crate::finding::{Finding, Fix, Severity};
use crate::matrix::CpuSetting;
use crate::rules::{Ctx, Outcome};

pub(super) fn framework_told_to_use_cpu(ctx: &Ctx<'_>) -> Outcome {
    // Without a GPU that could be used nobody misses it.
    if !ctx.gpu_usable() {
        return Outcome::Clean;
    }
    let found = ctx.matrix.cpu_settings().iter().filter_map(|row| {
        let value = ctx.env(&row.variable).filter(|value| row.applies(value))?;
        let frameworks = ctx.facts.consumer.frameworks.items();
        let framework = frameworks.iter().find(|d| d.name == row.distribution)?;
        let installed = ctx.facts.python.distributions.items();
        let is_for_gpu = row
            .with
            .as_ref()
            .is_none_or(|with| installed.iter().any(|d| d.name.starts_with(with)));
        let named = format!("{} {}", framework.name, framework.version);
        is_for_gpu.then(|| finding(row, value, &named))
    });
    Outcome::found(found.collect::<Vec<_>>())
}

fn finding(row: &CpuSetting, value: &str, framework: &str) -> Finding {
    Finding::new(
        "framework-told-to-use-cpu",
        Layer::Application,
        Severity::Warning,
        format!("{}={value} tells {framework} {}", row.variable, row.does),
    )
    .complaining(Layer::Framework)
    .component(row.variable.clone())
    .subject(row.variable.clone())
    .detail("The framework does what it is told, and says nothing of the GPU that it leaves alone.")
    .evidence(row.variable.clone(), format!("'{value}'"), "environment")
    .evidence(
        "framework",
        framework,
        "names of dist-info folders and conda records",
    )
    .source(row.source.clone())
    .fix(
        Fix::at(
            Layer::Application,
            "take the variable away for this program",
        )
        .line(format!("unset {}", row.variable))
        .verify("gpudoctor"),
    )
}
