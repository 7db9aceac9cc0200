/* A libnvidia-ml with eight GPUs, each of which has something of its own: see `gpus` below. STUB in the environment says
 * what goes wrong, and in which tick it begins; a tick is one question for the first GPU's temperature. A driver that is
 * gone stays so for the next process: it leaves the file STUB_MARK. The functions are those that gpudoctor and nvidia-smi
 * call, by nvml.h of CUDA 12.2. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, TOO_SMALL = 7,
       NOT_LOADED = 9, LOST = 15, UNKNOWN = 999 };
#define GPUS 8

/* 0 healthy, 1 MIG on with two instances, 2 the one that STUB=lost takes away, 3 no power sensor, 4 memory shared with the CPU,
 * 5 no utilisation and no permission to read the temperature, 6 answers nothing but its name, 7 no MIG, no ECC. */
struct gpu {
    unsigned long long used, total;
    unsigned util, celsius, milliwatts, processes;
    int major, minor, mig;
};
static const struct gpu gpus[GPUS] = {
    {1342177279, 85520809984, 37, 41, 61255, 1, 9, 0, 0},
    {1073741824, 85520809984, 0, 33, 70004, 0, 9, 0, 1},
    {524288, 85520809984, 0, 30, 68999, 0, 9, 0, 0},
    {524287, 25757220864, 100, 83, 0, 12, 8, 9, 0},
    {0, 0, 5, 45, 4000, 0, 12, 1, 0},
    {2097151, 8589934592, 0, 0, 99995, 0, 7, 5, 0},
    {0, 0, 0, 0, 0, 0, 0, 0, 0},
    {1048576, 4294967296, 7, 52, 12345, 2, 6, 1, 0},
};

static int ready;
static unsigned tick;

static int broken(const char *how) {
    const char *stub = getenv("STUB");
    return stub && !strcmp(stub, how);
}

static unsigned of(void *device) { return (unsigned)((char *)device - (char *)0) - 1; }

static int marked(void) {
    const char *mark = getenv("STUB_MARK");
    return mark && access(mark, F_OK) == 0;
}

static int state(void *device) {
    if (!ready)
        return UNINITIALIZED;
    if (broken("gone-4") && marked())
        return NOT_LOADED;
    if (of(device) == 2 && (broken("lost") || (broken("lost-4") && tick >= 4)))
        return LOST;
    return of(device) == 6 ? UNKNOWN : OK;
}

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    if (broken("not-loaded") || (broken("gone-4") && marked()))
        return NOT_LOADED;
    ready = 1;
    return OK;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return ready ? (ready = 0, OK) : UNINITIALIZED; }

static int put(char *text, unsigned length, const char *what) {
    if (strlen(what) >= length)
        return TOO_SMALL;
    strcpy(text, what);
    return OK;
}
int nvmlSystemGetDriverVersion(char *text, unsigned length) { return put(text, length, "999.88.77"); }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { return *version = 12020, OK; }

int nvmlDeviceGetCount_v2(unsigned *count) {
    if (!ready)
        return UNINITIALIZED;
    if (broken("gone-4") && tick >= 3) {
        const char *mark = getenv("STUB_MARK");
        int file = mark ? open(mark, O_CREAT | O_WRONLY, 0600) : -1;
        if (file >= 0)
            close(file);
        return NOT_LOADED;
    }
    return *count = broken("none") ? 0 : GPUS, OK;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    if (!ready)
        return UNINITIALIZED;
    if (index >= GPUS)
        return INVALID;
    if (index == 2 && broken("lost-handle"))
        return LOST;
    *device = (char *)0 + index + 1;
    return OK;
}
int nvmlDeviceGetIndex(void *device, unsigned *index) { return *index = of(device), OK; }
int nvmlDeviceGetMinorNumber(void *device, unsigned *minor) { return *minor = of(device), OK; }
int nvmlDeviceGetName(void *device, char *text, unsigned length) {
    static const char *names[] = {"NVIDIA H100 80GB HBM3", "NVIDIA GeForce RTX 4090", "NVIDIA GB10", "Tesla T4"};
    static const int which[GPUS] = {0, 0, 0, 1, 2, 3, 3, 3};
    return put(text, length, names[which[of(device)]]);
}
int nvmlDeviceGetUUID(void *device, char *text, unsigned length) {
    char uuid[64];
    snprintf(uuid, sizeof uuid, "GPU-00000000-0000-4000-8000-%012u", of(device) + 1);
    return put(text, length, uuid);
}
struct pci {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char bus_id[32];
};
int nvmlDeviceGetPciInfo_v3(void *device, struct pci *info) {
    memset(info, 0, sizeof *info);
    info->bus = 0x41 + of(device);
    info->id = 0x233010de;
    snprintf(info->legacy, sizeof info->legacy, "0000:%02X:00.0", info->bus);
    snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", info->bus);
    return OK;
}
int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) {
    *major = gpus[of(device)].major;
    *minor = gpus[of(device)].minor;
    return *major ? OK : UNKNOWN;
}

struct memory {
    unsigned long long total, free, used;
};
struct memory2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};
int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory2 *memory) {
    const struct gpu *gpu = gpus + of(device);
    int code = state(device);
    if (of(device) == 1 && broken("hang-3") && tick == 3)
        for (;;)
            pause();
    if (code)
        return code;
    if (!gpu->total)
        return NOT_SUPPORTED;
    memory->total = gpu->total;
    memory->reserved = 471859200;
    memory->used = gpu->used;
    memory->free = gpu->total - gpu->used - memory->reserved;
    return OK;
}
int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory) {
    struct memory2 second;
    int code = nvmlDeviceGetMemoryInfo_v2(device, &second);
    if (!code)
        *memory = (struct memory){second.total, second.free, second.used + second.reserved};
    return code;
}
struct utilization {
    unsigned gpu, memory;
};
int nvmlDeviceGetUtilizationRates(void *device, struct utilization *rates) {
    const struct gpu *gpu = gpus + of(device);
    int code = state(device);
    if (code)
        return code;
    if (gpu->mig || of(device) == 5)
        return NOT_SUPPORTED;
    return *rates = (struct utilization){gpu->util, 12}, OK;
}
int nvmlDeviceGetTemperature(void *device, unsigned sensor, unsigned *celsius) {
    int code = state(device);
    if (of(device) == 0)
        tick++;
    if (code)
        return code;
    if (of(device) == 5)
        return NO_PERMISSION;
    return *celsius = gpus[of(device)].celsius, sensor ? INVALID : OK;
}
int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) {
    int code = state(device);
    if (code)
        return code;
    if (of(device) == 3)
        return NOT_SUPPORTED;
    return *milliwatts = gpus[of(device)].milliwatts, OK;
}
int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending) {
    int code = state(device);
    if (code)
        return code;
    if (of(device) > 2)
        return NOT_SUPPORTED;
    return *current = *pending = (unsigned)gpus[of(device)].mig, OK;
}
int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *count) { return *count = of(device) < 3 ? 7 : 0, OK; }
int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned index, void **mig) {
    *mig = (char *)0 + 100 + index;
    return gpus[of(device)].mig && index % 3 == 1 && index < 6 ? OK : NOT_FOUND;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, void *infos) {
    int code = state(device);
    (void)infos;
    if (code)
        return code;
    return *count = gpus[of(device)].processes, *count ? TOO_SMALL : OK;
}
int nvmlDeviceGetPersistenceMode(void *device, int *mode) { return *mode = 1, state(device); }
int nvmlDeviceGetComputeMode(void *device, int *mode) { return *mode = of(device) == 3 ? 3 : 0, state(device); }
int nvmlDeviceGetEccMode(void *device, int *current, int *pending) {
    *current = *pending = 1;
    return of(device) > 2 ? NOT_SUPPORTED : state(device);
}
int nvmlDeviceGetRemappedRows(void *device, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed) {
    *corrected = *uncorrected = *failed = 0;
    *pending = of(device) == 0;
    return of(device) > 2 ? NOT_SUPPORTED : state(device);
}
int nvmlDeviceGetRetiredPagesPendingStatus(void *device, int *pending) {
    *pending = 0;
    return of(device) == 5 ? state(device) : NOT_SUPPORTED;
}
int nvmlDeviceGetCurrPcieLinkWidth(void *device, unsigned *lanes) { return *lanes = 8, state(device); }
int nvmlDeviceGetMaxPcieLinkWidth(void *device, unsigned *lanes) { return *lanes = 16, state(device); }

const char *nvmlErrorString(int code) {
    switch (code) {
    case OK: return "Success";
    case UNINITIALIZED: return "Uninitialized";
    case INVALID: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case NO_PERMISSION: return "Insufficient Permissions";
    case NOT_FOUND: return "Not Found";
    case TOO_SMALL: return "Insufficient Size";
    case NOT_LOADED: return "Driver Not Loaded";
    case LOST: return "GPU is lost";
    default: return "Unknown Error";
    }
}

/* nvidia-smi asks for a table of functions that no header names, and does without each that is not supported. */
static int not_supported(void) { return NOT_SUPPORTED; }
static void *table[256];
int nvmlInternalGetExportTable(const void **out, const void *which) {
    (void)which;
    table[0] = (void *)sizeof table;
    for (unsigned i = 1; i < sizeof table / sizeof *table; i++)
        table[i] = (void *)not_supported;
    return *out = table, OK;
}
