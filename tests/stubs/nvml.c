/* A libnvidia-ml with two GPUs, the second of which has fallen off the bus. Newest names only. */
#include <stdio.h>
#include <string.h>

struct pci_info {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char bus_id[32];
};

static int gpu;

int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }

int nvmlSystemGetDriverVersion(char *text, unsigned length) {
    snprintf(text, length, "999.88.77");
    return 0;
}

int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    *version = 99080;
    return 0;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = 2;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    *device = &gpu;
    return index == 1 ? 15 : 0;
}

int nvmlDeviceGetName(void *device, char *text, unsigned length) {
    snprintf(text, length, "Stub GPU");
    return device == &gpu ? 0 : 2;
}

int nvmlDeviceGetUUID(void *device, char *text, unsigned length) {
    snprintf(text, length, "GPU-00000000-0000-4000-8000-000000000001");
    return device == &gpu ? 0 : 2;
}

int nvmlDeviceGetPciInfo_v3(void *device, struct pci_info *info) {
    memset(info, 0, sizeof *info);
    strcpy(info->bus_id, "00000000:C1:00.0");
    return device == &gpu ? 0 : 2;
}

int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) {
    *major = 9;
    *minor = 0;
    return device == &gpu ? 0 : 2;
}
