// A library that poses as NVIDIA's driver, for tests of our side of it: memory is the host's, kernels are
// those of kernels.cu run thread by thread, and everything is done as soon as it is asked for.
//
// POSING says what is wrong with it, in words with commas between them: none (no GPU), old (driver), volta
// (GPU), unlike (GPUs but the first are of another model), apart (GPUs do not reach each other), full (memory),
// broken (a kernel fails), wrong (a copy loses a byte), clock (events have real times). POSING_GPUS says how many
// GPUs there are, if not two. Graphs are in graphs.h.

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string>

#include "kernels.cu"

#include "graphs.h"

static bool is(const char* what) {
    const char* posing = getenv("POSING");
    return posing && ("," + std::string(posing) + ",").find("," + std::string(what) + ",") != std::string::npos;
}

enum { FINE = 0, INVALID = 1, MEMORY = 2, NO_DEVICE = 100, NO_CONTEXT = 201, NOT_FOUND = 500, NOT_READY = 600, LAUNCH = 719 };

static int devices() {
    const char* number = getenv("POSING_GPUS");
    return number ? atoi(number) : 2;
}
static thread_local long current;
static std::set<void*> allocated, mapped;
static std::map<long, double> happened;
static std::string ptx;
static long handles = 100;
static int last;

extern "C" {
// What a library that poses as NCCL has under way, which never ends where a process is gone.
std::atomic<int> posing_pending;
int posing_device() { return (int)current - 1; }

int cuInit(unsigned) { return is("none") ? NO_DEVICE : FINE; }
int cuDriverGetVersion(int* version) {
    *version = is("old") ? 11080 : 12020;
    return FINE;
}
int cuGetErrorName(int error, const char** name) {
    *name = error == LAUNCH ? "CUDA_ERROR_LAUNCH_FAILED" : error == MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_POSED";
    return FINE;
}
int cuGetErrorString(int, const char** text) {
    *text = "said by a library that poses as a driver";
    return FINE;
}
int cuDeviceGetCount(int* count) {
    *count = devices();
    return FINE;
}
int cuDeviceGet(int* device, int ordinal) {
    *device = ordinal;
    return ordinal < devices() ? FINE : INVALID;
}
int cuDeviceGetName(char* name, int length, int device) {
    strncpy(name, is("unlike") && device ? "another that poses" : "a processor that poses", length);
    return FINE;
}
int cuDeviceGetUuid(unsigned char* uuid, int device) {
    for (int at = 0; at < 16; ++at) uuid[at] = 16 * (device + 1) + at;
    return FINE;
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
    *value = attribute == 75 ? (is("volta") ? 7 : 9) : attribute == 16 ? 2 : 0;
    return FINE;
}
int cuDeviceGetPCIBusId(char* text, int length, int device) {
    snprintf(text, length, "0000:%02x:00.0", device + 1);
    return FINE;
}
int cuDeviceTotalMem_v2(size_t* bytes, int) {
    *bytes = 2000000000;
    return FINE;
}
int cuDeviceCanAccessPeer(int* can, int, int) {
    *can = !is("apart");
    return FINE;
}
int cuDevicePrimaryCtxRetain(long* context, int device) {
    *context = device + 1;
    return FINE;
}
int cuDevicePrimaryCtxRelease_v2(int) { return FINE; }
int cuCtxSetCurrent(long context) {
    current = context;
    return FINE;
}
int cuCtxEnablePeerAccess(long context, unsigned) { return context && current && context != current ? FINE : INVALID; }
int cuModuleLoadData(long* module, const char* text) {
    ptx = text;
    *module = ++handles;
    return current ? FINE : NO_CONTEXT;
}
int cuModuleUnload(long) { return FINE; }
int cuModuleGetFunction(void** function, long, const char* name) {
    Dl_info self;
    dladdr((void*)cuInit, &self);
    *function = dlsym(dlopen(self.dli_fname, RTLD_NOW), name);
    return *function && ptx.find(std::string(".entry ") + name + "(") != std::string::npos ? FINE : NOT_FOUND;
}
int cuMemGetInfo_v2(size_t* free, size_t* all) {
    *free = is("full") ? 3000000 : 1000000000, *all = 2000000000;
    return current ? FINE : NO_CONTEXT;
}
int cuMemAlloc_v2(void** address, size_t bytes) {
    *address = aligned_alloc(256, (bytes + 255) / 256 * 256);
    allocated.insert(*address);
    if (capture.origin) return spoil(CAPTURE_UNSUPPORTED);
    return current ? FINE : NO_CONTEXT;
}
int cuMemFree_v2(void* address) {
    if (!allocated.erase(address)) return INVALID;
    free(address);
    return FINE;
}
int cuMemcpyHtoD_v2(void* into, const void* from, size_t bytes) {
    memcpy(into, from, bytes);
    return current ? FINE : NO_CONTEXT;
}
int cuMemcpyDtoH_v2(void* into, const void* from, size_t bytes) {
    memcpy(into, from, bytes);
    return current ? FINE : NO_CONTEXT;
}
int cuMemcpyDtoDAsync_v2(void* into, const void* from, size_t bytes, long stream) {
    put(stream, [=] {
        memcpy(into, from, bytes);
        // Tables of pieces end with a zero, and survive it.
        if (is("wrong") && bytes) ((char*)into)[bytes - 1] = 0;
    });
    return stream ? FINE : INVALID;
}
int cuStreamCreate(long* stream, unsigned) {
    *stream = ++handles;
    return current ? FINE : NO_CONTEXT;
}
int cuCtxGetStreamPriorityRange(int* least, int* greatest) {
    *least = 0, *greatest = -5;
    return current ? FINE : NO_CONTEXT;
}
int cuStreamCreateWithPriority(long* stream, unsigned, int priority) {
    *stream = ++handles;
    return current && priority == -5 ? FINE : NO_CONTEXT;
}
int cuStreamDestroy_v2(long) { return FINE; }
int cuStreamWaitEvent(long stream, long event, unsigned) { return stream && event ? wait(stream, event) : INVALID; }
int cuStreamSynchronize(long stream) { return captures(stream) ? spoil(CAPTURE_UNSUPPORTED) : last; }
int cuEventCreate(long* event, unsigned) {
    *event = ++handles;
    return current ? FINE : NO_CONTEXT;
}
int cuEventDestroy_v2(long) { return FINE; }
int cuMemHostAlloc(void** address, size_t bytes, unsigned flags) {
    *address = aligned_alloc(256, (bytes + 255) / 256 * 256);
    mapped.insert(*address);
    return current && flags == 3 ? FINE : INVALID;
}
int cuMemFreeHost(void* address) {
    if (!mapped.erase(address)) return INVALID;
    free(address);
    return FINE;
}
int cuEventRecord(long event, long stream) {
    happened[event] = (double)now_ns();
    return stream && event ? record(stream, event) : INVALID;
}
int cuEventQuery(long event) { return !event ? INVALID : last ? last : posing_pending ? NOT_READY : FINE; }
int cuEventElapsedTime(float* ms, long from, long to) {
    *ms = is("clock") ? (float)((happened[to] - happened[from]) * 1e-6) : 0.001f;
    return from && to ? FINE : INVALID;
}
int cuLaunchKernel(void* kernel, unsigned blocks, unsigned y, unsigned z, unsigned threads, unsigned, unsigned, unsigned shared,
                   long stream, void** arguments, void** extra) {
    if (!current || !stream || y != 1 || z != 1 || shared || extra) return INVALID;
    if (is("broken")) last = LAUNCH;
    // Threads that let time pass do so together, and here one would after the other.
    if (kernel == (void*)busy) blocks = threads = 1;
    // The host gives every structure the room of the largest.
    std::array<unsigned long long, 12> words;
    memcpy(words.data(), arguments[0], sizeof words);
    put(stream, [=] {
        for (unsigned block = 0; block < blocks; ++block)
            for (unsigned thread = 0; thread < threads; ++thread) {
                place(block, blocks, thread, threads);
                ((void (*)(const void*))kernel)(words.data());
            }
    });
    return FINE;
}
}
