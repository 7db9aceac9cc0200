//! The versions that a text names, and what the compatibility matrix says to them.

use super::Match;
use super::matcher::{first_group, regex};
use crate::catalogue::{Entry, Role};
use crate::matrix::Matrix;
use crate::version::Version;

/// Reads the versions that the entry knows how to find, and what follows from them.
pub(super) fn read(found: &mut Match, entry: Entry, text: &str, matrix: &Matrix) {
    let Some(error) = entry.error() else { return };
    for version in &error.versions {
        let regex = regex(&version.regex);
        let Some(number) = regex.as_ref().and_then(|regex| first_group(regex, text)) else {
            continue;
        };
        let value = written(version.name, number);
        found
            .versions
            .entry(version.name.key())
            .or_insert_with(|| value.clone());
        found.advice.extend(advice(version.name, &value, matrix));
    }
}

/// As people write it: `11040` is 11.4, `sm_120` is 12.0.
fn written(role: Role, text: &str) -> String {
    match role {
        Role::DriverCuda | Role::NeededCuda => match text.parse::<u32>() {
            Ok(level) if level >= 1000 => format!("{}.{}", level / 1000, level % 1000 / 10),
            _ => text.to_owned(),
        },
        Role::Capability => match text.parse::<u32>() {
            Ok(number) if number >= 10 => format!("{}.{}", number / 10, number % 10),
            _ => text.to_owned(),
        },
        _ => text.trim_end_matches('.').to_owned(),
    }
}

fn advice(role: Role, value: &str, matrix: &Matrix) -> Vec<String> {
    let Ok(version) = value.parse::<Version>() else {
        return Vec::new();
    };
    match role {
        Role::DriverCuda => {
            let mut said = Vec::new();
            let wanted = version.cuda_level();
            let branches: Vec<u32> = matrix
                .driver_branches()
                .iter()
                .filter(|row| row.level == wanted)
                .map(|row| row.branch)
                .collect();
            match (branches.first(), branches.last()) {
                (Some(one), Some(other)) if one == other => {
                    said.push(format!("the driver runs CUDA {value} at most: it is of branch {one}"));
                }
                (Some(one), Some(other)) => {
                    said.push(format!("the driver runs CUDA {value} at most: it is of branch {one} to {other}"));
                }
                _ => said.push(format!("the driver runs CUDA {value} at most")),
            }
            let needs: Vec<String> = matrix
                .families()
                .iter()
                .filter(|family| family.min_level > wanted)
                .map(|family| format!("CUDA {}.x needs driver {} or newer", family.major, family.min_driver))
                .collect();
            said.extend(needs);
            said
        }
        Role::NeededCuda | Role::BuiltCuda => matrix
            .minimum_driver(&version)
            .and_then(|minimum| minimum.version)
            .map(|driver| format!("CUDA {value} needs driver {driver} or newer"))
            .into_iter()
            .collect(),
        Role::Driver => matrix
            .cuda_level_of(&version)
            .map(|(level, _)| format!("driver {value} runs CUDA {}.{} at most", level / 1000, level % 1000 / 10))
            .into_iter()
            .collect(),
        Role::Capability => matrix
            .arch((version.major(), version.minor()))
            .map(|arch| {
                let name = arch.name.as_deref().unwrap_or("a GPU");
                let last = arch.last_toolkit.as_ref().map(|last| format!(" to {last}")).unwrap_or_default();
                format!("compute capability {value} is {name}: CUDA toolkits from {}{last} build for it", arch.first_toolkit)
            })
            .into_iter()
            .collect(),
        Role::NewestGcc => vec![format!("nvcc takes gcc {value} at the most here: `-ccbin g++-{value}`")],
        Role::KernelModule | Role::DriverLibrary | Role::NeededDriver | Role::NvccCuda | Role::Found | Role::Needed => {
            Vec::new()
        }
    }
}
