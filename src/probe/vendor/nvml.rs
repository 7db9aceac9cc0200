//! What the child asks of libnvidia-ml: once for the check, or again and again for `gpudoctor gpus`.
//!
//! `nvmlInit` and the count touch no GPU; the handle of a GPU initialises it and would wake it if it sleeps (nvml.h). So a GPU
//! that is said to sleep is left out by its index.

#![expect(
    clippy::redundant_closure_for_method_calls,
    reason = "`call` is another method for each type of function: its path alone would be ambiguous"
)]

use super::child::{MOST_DEVICES, Made, Session, as_in_sysfs};
use super::protocol::Message;
use crate::facts::{DeviceAnswer, GpuSample, MigAnswer, ModeAnswer, Sensor};
use crate::ffi::dl::{self, Loaded, NvmlHandle};
use crate::ffi::nvml::{self, OfDevice};

/// MIG devices that are looked for on one GPU; today's boards have room for 7.
const MOST_INSTANCES: u32 = 64;

impl Session {
    /// The driver and its GPUs, once.
    pub(super) fn nvml(&mut self, library: &'static Loaded, init: bool) {
        if !init || !self.nvml_starts(library) {
            return;
        }
        self.get(
            library,
            &dl::NVML_SYSTEM_GET_CUDA_DRIVER_VERSION,
            Made::Once,
            |f| f.call(),
        );
        for index in 0..self.nvml_count(library) {
            let Some((mut said, device)) = self.device(library, index) else {
                break;
            };
            if let Some(device) = device {
                said.uuid = self.get(library, &dl::NVML_DEVICE_GET_UUID, Made::PerDevice, |f| {
                    f.call(device)
                });
                self.modes(library, device, &mut said);
            }
            self.say(&Message::Device(Box::new(said)));
        }
        self.get(library, &dl::NVML_SHUTDOWN, Made::Once, |f| (f.call(), ()));
    }

    /// The sensors of all GPUs, as often as the parent asks.
    pub(super) fn gpus(&mut self, library: &'static Loaded, init: bool) {
        if !init || !self.nvml_starts(library) {
            return;
        }
        while let Some(request) = self.hear_parent() {
            let count = self.nvml_count(library);
            // Which of the GPUs sleep is known by their place among those that the driver lists.
            let certain = request.asleep.is_empty() || request.listed == Some(count);
            for index in (0..count).filter(|index| certain && !request.asleep.contains(index)) {
                let Some(sample) = self.sample(library, index) else {
                    break;
                };
                self.say(&Message::Gpu(Box::new(sample)));
            }
            self.say(&Message::Tick { certain });
        }
    }

    /// Starts NVML and asks for the driver's version.
    fn nvml_starts(&mut self, library: &'static Loaded) -> bool {
        let started = self.get(library, &dl::NVML_INIT, Made::Once, |f| (f.call(), ()));
        if started.is_some() {
            self.get(
                library,
                &dl::NVML_SYSTEM_GET_DRIVER_VERSION,
                Made::Once,
                |f| f.call(),
            );
        }
        started.is_some()
    }

    fn nvml_count(&mut self, library: &'static Loaded) -> u32 {
        self.get(library, &dl::NVML_DEVICE_GET_COUNT, Made::Once, |f| {
            f.call()
        })
        .unwrap_or(0)
        .clamp(0, MOST_DEVICES)
        .unsigned_abs()
    }

    /// The GPU of an index, with its handle where NVML gives one; `None` where NVML has no handles to give.
    fn device(
        &mut self,
        library: &'static Loaded,
        index: u32,
    ) -> Option<(DeviceAnswer, Option<NvmlHandle>)> {
        let each = Made::PerDevice;
        let (code, device) = self.ask(library, &dl::NVML_DEVICE_GET_HANDLE, each, |f| {
            f.call(index)
        })?;
        let mut said = DeviceAnswer {
            index,
            code: code.into(),
            ..DeviceAnswer::default()
        };
        if code != 0 {
            return Some((said, None));
        }
        said.name = self.get(library, &dl::NVML_DEVICE_GET_NAME, each, |f| f.call(device));
        said.address = self
            .get(library, &dl::NVML_DEVICE_GET_PCI_INFO, each, |f| {
                f.call(device)
            })
            .map(|address| as_in_sysfs(&address));
        said.capability = self
            .get(library, &dl::NVML_DEVICE_GET_CAPABILITY, each, |f| {
                f.call(device)
            })
            .and_then(|(major, minor)| {
                Some((u32::try_from(major).ok()?, u32::try_from(minor).ok()?))
            });
        Some((said, Some(device)))
    }

    fn sample(&mut self, library: &'static Loaded, index: u32) -> Option<GpuSample> {
        self.about = Some(index);
        let (said, device) = self.device(library, index)?;
        let mut sample = GpuSample {
            device: said,
            ..GpuSample::default()
        };
        if let Some(device) = device {
            self.sensors(library, device, &mut sample);
            self.modes(library, device, &mut sample.device);
        } else {
            let refused = Sensor::Refuses(sample.device.code);
            sample.memory_used_bytes = refused;
            sample.memory_total_bytes = refused;
            sample.utilization_percent = refused;
            sample.temperature_celsius = refused;
            sample.power_milliwatts = refused;
        }
        self.about = None;
        Some(sample)
    }

    fn sensors(&mut self, library: &'static Loaded, device: NvmlHandle, sample: &mut GpuSample) {
        let memory = if library.find(&nvml::MEMORY_2).is_ok() {
            self.sense(library, &nvml::MEMORY_2, |f| f.call(device))
        } else {
            self.sense(library, &nvml::MEMORY, |f| f.call(device))
        };
        sample.memory_used_bytes = sensor(memory.map(|(used, _)| used));
        sample.memory_total_bytes = sensor(memory.map(|(_, total)| total));
        sample.utilization_percent =
            sensor(self.sense(library, &nvml::UTILIZATION, |f| f.call(device)));
        sample.temperature_celsius =
            sensor(self.sense(library, &nvml::TEMPERATURE, |f| f.call(device)));
        sample.power_milliwatts = sensor(self.sense(library, &nvml::POWER, |f| f.call(device)));
    }

    /// What changes seldom. That a board has none of these is no answer worth keeping.
    fn modes(&mut self, library: &'static Loaded, device: NvmlHandle, said: &mut DeviceAnswer) {
        let mut number =
            |symbol: &dl::Symbol<OfDevice>| self.sense(library, symbol, |f| f.call(device)).ok();
        said.persistence = number(&nvml::PERSISTENCE).map(|mode| mode == 1);
        said.compute_mode = number(&nvml::COMPUTE_MODE);
        said.retired_pages_pending = number(&nvml::RETIRED_PAGES_PENDING).map(|is| is == 1);
        said.link_width = number(&nvml::LINK_WIDTH);
        said.link_width_max = number(&nvml::LINK_WIDTH_MAX);
        said.processes = self
            .sense(library, &nvml::COMPUTE_PROCESSES, |f| f.call(device))
            .ok();
        if let Ok((on, pending)) = self.sense(library, &nvml::ECC_MODE, |f| f.call(device)) {
            said.ecc = Some(ModeAnswer {
                on: on == 1,
                pending: pending == 1,
            });
        }
        if let Ok((pending, failed)) = self.sense(library, &nvml::REMAPPED_ROWS, |f| f.call(device))
        {
            said.row_remap_pending = Some(pending);
            said.row_remap_failed = Some(failed);
        }
        if let Ok((on, pending)) = self.sense(library, &nvml::MIG_MODE, |f| f.call(device)) {
            said.mig = Some(MigAnswer {
                on: on == 1,
                pending: pending == 1,
                instances: if on == 1 {
                    self.instances(library, device)
                } else {
                    None
                },
            });
        }
    }

    /// How many MIG devices there are.
    fn instances(&mut self, library: &'static Loaded, device: NvmlHandle) -> Option<u32> {
        let most = self
            .sense(library, &nvml::MIG_MOST, |f| f.call(device))
            .ok()?;
        library.find(&nvml::MIG_DEVICE).ok()?;
        let mut instances = 0;
        for index in 0..most.min(MOST_INSTANCES) {
            let found = self.sense(library, &nvml::MIG_DEVICE, |f| f.call(device, index));
            instances += u32::from(found.is_ok());
        }
        Some(instances)
    }
}

fn sensor<T: Into<u64>>(answer: Result<T, i32>) -> Sensor {
    match answer {
        Ok(number) => Sensor::Reads(number.into()),
        Err(code) => Sensor::Refuses(code.into()),
    }
}
