//! What mends a driver's library of another version than the host's module, inside a container: that depends on how it came
//! in.

use crate::facts::{Injection, Layer, LibraryCopy};
use crate::finding::{Finding, Fix};
use crate::rules::Ctx;
use crate::rules::stack::verified;

/// The fixes, the one that the evidence speaks for first.
pub(in crate::rules) fn fixes(
    ctx: &Ctx<'_>,
    finding: Finding,
    loaded: &str,
    copy: &LibraryCopy,
) -> Finding {
    let at = |summary: String| Fix::at(Layer::Container, summary);
    let in_kubernetes = matches!(ctx.engine(), "kubernetes" | "containerd" | "cri-o" | "gke");
    let restart = if in_kubernetes {
        "restart of the pod"
    } else {
        "restart of the container"
    };
    let Some(glue) = ctx.facts.container.glue.value() else {
        return finding.fix(verified(
            ctx,
            at(format!(
                "start the container anew so that it gets the host's {loaded} libraries"
            ))
            .cost(restart),
        ));
    };
    let mounted = glue.mounts.iter().any(|m| m.target == copy.real_path);
    let in_image = glue.in_image.iter().any(|file| file.path == copy.real_path);
    if in_image && ctx.is_system_container() {
        return finding.fix(verified(ctx, at(format!("in the container, install the user-space libraries of the host's very version, {loaded}, without a kernel module: the kernel is the host's"))
            .cost("root in the container, at each upgrade of the host's driver")));
    }
    if in_image {
        return finding.fix(verified(ctx, at(format!("build the image without {}: no mount is above it, so the image ships it, and a start anew brings it again", copy.real_path))
            .cost("rebuild of the image")));
    }
    let finding = if mounted {
        finding.evidence(
            "how it came in",
            glue.injection.words(),
            ctx.facts.container.glue.source(),
        )
    } else {
        finding
    };
    let anew = || {
        verified(
            ctx,
            at(format!(
                "start the container anew so that it gets the host's {loaded} libraries"
            ))
            .cost(restart),
        )
    };
    match glue.injection {
        _ if !mounted => finding.fix(verified(ctx, at(format!("start the container anew so that it gets the host's {loaded} libraries; if the image ships {}, take it out of the image", copy.path)).cost(restart))),
        // Who writes the specification there is the operator's toolkit or the device plugin; one by hand would be a second.
        Injection::Cdi if in_kubernetes => finding
            .fix(verified(ctx, at("on the node, have the CDI specification written anew: restart the toolkit's and the device plugin's pod of that node, then start this pod anew. A start anew alone brings the same files".to_owned())
                .cost("administrator of the cluster, restart of the pod")))
            .fix(at("where the specification was made by hand on the node, generate it again there".to_owned())
                .line("sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml")
                .cost("root on the node")
                .second("only where neither operator nor device plugin writes it")),
        Injection::Cdi => finding
            .fix(verified(ctx, at("on the host, write the CDI specification anew, in the file that has it (/etc/cdi or /var/run/cdi), then start the container again: until then a start anew brings the same files".to_owned())
                .line("sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml")
                .cost("root on the host, restart of the container"))),
        Injection::Legacy => finding
            .fix(anew())
            .fix(at("on the host, bring the loader's cache up to date, from which nvidia-container-cli takes the libraries".to_owned())
                .line("sudo ldconfig")
                .cost("root on the host")
                .second("only where a start anew brings the old ones again")),
        Injection::Folder | Injection::Apptainer | Injection::Csv | Injection::Wsl => finding.fix(anew()),
        Injection::None | Injection::ByHand | Injection::Unknown => {
            finding
                .fix(verified(ctx, at(format!("start the container anew so that it gets the host's {loaded} libraries; if they come from a CDI specification, generate that again on the host")).cost(restart)))
                .fix(
                    at("on the host, write the CDI specification anew, then start the container again".to_owned())
                        .line("sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml")
                        .cost("root on the host")
                        .second("only where the host gives GPUs by CDI"),
                )
        }
    }
}
