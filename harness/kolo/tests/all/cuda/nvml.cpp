// A library that poses as NVML: two GPUs, joined by NVLinks or, POSING=switch, by a switch.
//
// POSING=hot: the GPUs are throttled when it is initialised for the second time. POSING=lost: the second GPU is
// lost. POSING=closed: nothing can be initialised. POSING=mute: what may be missing in a driver fails.

#include <cstdio>
#include <cstdlib>
#include <cstring>

static bool is(const char* what) {
    const char* posing = getenv("POSING");
    return posing && strcmp(posing, what) == 0;
}

enum { FINE = 0, INVALID = 2, UNSUPPORTED = 3, NOT_LOADED = 9, LOST = 15 };

struct PciInfo {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char bus_id[32];
};
struct Violation {
    unsigned long long reference, time;
};

static int opened;

// Handles are 1 and 2.
static int checked(long gpu) {
    if (!opened || gpu < 1 || gpu > 2) return INVALID;
    return is("mute") ? UNSUPPORTED : FINE;
}
static int give(long gpu, unsigned* into, unsigned value) {
    *into = value;
    return checked(gpu);
}
static void place(PciInfo* info, long at) {
    info->domain = 0, info->bus = 0x17 + at;
    snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", 0x17 + (int)at);
}

extern "C" {
int nvmlInit_v2() {
    ++opened;
    return is("closed") ? NOT_LOADED : FINE;
}
int nvmlShutdown() {
    --opened;
    // The library is unloaded in between.
    setenv("POSED", "once", 1);
    return FINE;
}
const char* nvmlErrorString(int error) { return error == LOST ? "GPU is lost" : error == NOT_LOADED ? "Driver Not Loaded" : "posed error"; }
int nvmlSystemGetDriverVersion(char* text, unsigned length) {
    strncpy(text, "999.1", length);
    return FINE;
}
int nvmlDeviceGetCount_v2(unsigned* count) {
    *count = 2;
    return FINE;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, long* gpu) {
    *gpu = index + 1;
    return is("lost") && index == 1 ? LOST : FINE;
}
int nvmlDeviceGetName(long, char* text, unsigned length) {
    strncpy(text, "a GPU that poses", length);
    return FINE;
}
int nvmlDeviceGetUUID(long gpu, char* text, unsigned length) {
    snprintf(text, length, "GPU-posed-%ld", gpu);
    return FINE;
}
int nvmlDeviceGetPciInfo_v3(long gpu, PciInfo* info) {
    place(info, gpu);
    return FINE;
}
int nvmlDeviceGetClockInfo(long gpu, int type, unsigned* mhz) { return give(gpu, mhz, type == 1 ? 345 : type == 2 ? 2619 : 0); }
int nvmlDeviceGetMaxClockInfo(long gpu, int type, unsigned* mhz) { return give(gpu, mhz, type == 1 ? 1980 : type == 2 ? 2620 : 0); }
int nvmlDeviceGetTemperature(long gpu, int, unsigned* degrees) { return give(gpu, degrees, 30 + gpu); }
int nvmlDeviceGetPowerUsage(long gpu, unsigned* mw) { return give(gpu, mw, 71500); }
int nvmlDeviceGetEnforcedPowerLimit(long gpu, unsigned* mw) { return give(gpu, mw, 700000); }
int nvmlDeviceGetCurrentClocksThrottleReasons(long gpu, unsigned long long* reasons) {
    *reasons = is("hot") && getenv("POSED") ? 0x44 : 0x1;
    return checked(gpu);
}
int nvmlDeviceGetViolationStatus(long gpu, int, Violation* violation) {
    violation->time = 5;
    return checked(gpu);
}
int nvmlDeviceGetPersistenceMode(long gpu, unsigned* on) { return give(gpu, on, 1); }
int nvmlDeviceGetEccMode(long gpu, unsigned* now, unsigned* pending) {
    *pending = 0;
    return give(gpu, now, 1);
}
int nvmlDeviceGetMigMode(long gpu, unsigned* now, unsigned* pending) {
    *pending = 1;
    return give(gpu, now, 0);
}
int nvmlDeviceGetComputeMode(long gpu, unsigned* mode) { return give(gpu, mode, 3); }
int nvmlDeviceGetCurrPcieLinkGeneration(long gpu, unsigned* value) { return give(gpu, value, 1); }
int nvmlDeviceGetMaxPcieLinkGeneration(long gpu, unsigned* value) { return give(gpu, value, 5); }
int nvmlDeviceGetCurrPcieLinkWidth(long gpu, unsigned* value) { return give(gpu, value, 8); }
int nvmlDeviceGetMaxPcieLinkWidth(long gpu, unsigned* value) { return give(gpu, value, 16); }
// Links 0 and 2 are up, 1 is down, others are not there.
int nvmlDeviceGetNvLinkState(long gpu, unsigned link, unsigned* up) {
    *up = link != 1;
    return link > 2 ? INVALID : checked(gpu);
}
int nvmlDeviceGetNvLinkVersion(long gpu, unsigned, unsigned* version) { return give(gpu, version, 5); }
int nvmlDeviceGetNvLinkRemoteDeviceType(long gpu, unsigned, unsigned* type) { return give(gpu, type, is("switch") ? 2 : 0); }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(long gpu, unsigned, PciInfo* info) {
    place(info, is("switch") ? 9 : 3 - gpu);
    return checked(gpu);
}
int nvmlDeviceGetTopologyCommonAncestor(long a, long b, int* level) {
    *level = 50;
    return a == b ? INVALID : FINE;
}
int nvmlDeviceGetCpuAffinity(long gpu, unsigned words, unsigned long* set) {
    for (unsigned at = 0; at < words; ++at) set[at] = at == 0 ? 0x10f : 0;
    return checked(gpu);
}
}
