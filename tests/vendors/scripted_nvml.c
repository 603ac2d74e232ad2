/* A driver's library for tests: NVML's functions that the probe calls, on devices with a scripted life.
 *
 * NVML_SCRIPT holds blank-separated words "DEVICE:WHAT@SAMPLE=VALUE": from its SAMPLE-th sample on (the calls of
 * nvmlDeviceGetUtilizationRates count them) a device has that value. WHAT: lost, ecc, heat, xid, nvlink, newer
 * (recoveries of links that have Blackwell's counters alone), down, pending, failed, mig, width, generation, idle,
 * replays, throttle, nopower; fabric, fabricstatus, fabrichealth: of its fabric state (0, there is none), status and
 * health mask. NVML_DEVICES is their number (8). Layouts of structures: nvml.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, TIMEOUT = 10, LOST = 15 };
enum { MOST = 16, LINKS = 18 };
typedef unsigned int uint;
typedef unsigned long long u64;
typedef struct { uint gpu, memory; } Utilization;
typedef struct { u64 total, free, used; } Memory;
typedef struct { uint version; unsigned long long total, reserved, free, used; } Memory2;
typedef struct { char legacy[16]; uint domain, bus, device, id, subsystem; char bus_id[32]; } Pci;
typedef struct { uint version; unsigned char cluster[16]; int status; uint clique, state, health; } Fabric;
typedef struct { void *device; u64 type, data; uint instance, compute; } Event;
typedef struct { uint field, scope; long long time, latency; int type, state; union { double real; uint small; u64 whole; } value; } Field;

static int samples[MOST], told[MOST];

static int count(void) { const char *text = getenv("NVML_DEVICES"); return text ? atoi(text) : 8; }
static int index_of(void *handle) { return (int)(size_t)handle - 1; }

/* The value of `what` for a device at its present sample; -1: the script says nothing of it. */
static long value(int device, const char *what) {
    char script[4096], name[32], *word, *rest;
    long found = -1;
    snprintf(script, sizeof script, "%s", getenv("NVML_SCRIPT") ? getenv("NVML_SCRIPT") : "");
    for (word = strtok_r(script, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        int of, from;
        long number;
        if (sscanf(word, "%d:%31[a-z]@%d=%ld", &of, name, &from, &number) == 4 && of == device && !strcmp(name, what) &&
            samples[device] >= from)
            found = number;
    }
    return found;
}
static long or_else(int device, const char *what, long otherwise) {
    long found = value(device, what);
    return found < 0 ? otherwise : found;
}
static int alive(void *handle) { return value(index_of(handle), "lost") > 0 ? LOST : OK; }
static int text(char *out, uint size, const char *said) { snprintf(out, size, "%s", said); return OK; }
#define ANSWER(out, said) do { int state = alive(handle); if (state) return state; *(out) = (said); return OK; } while (0)

int nvmlInitWithFlags(uint flags) { (void)flags; return OK; }
int nvmlShutdown(void) { return OK; }
int nvmlSystemGetDriverVersion(char *out, uint size) { return text(out, size, "580.95.05"); }
int nvmlSystemGetNVMLVersion(char *out, uint size) { return text(out, size, "13.580.95.05"); }
int nvmlSystemGetCudaDriverVersion_v2(int *out) { *out = 13000; return OK; }
int nvmlDeviceGetCount_v2(uint *out) { *out = (uint)count(); return OK; }
int nvmlDeviceGetHandleByIndex_v2(uint index, void **out) {
    *out = (void *)(size_t)(index + 1);
    return alive(*out);
}
int nvmlDeviceGetIndex(void *handle, uint *out) { *out = (uint)index_of(handle); return OK; }
int nvmlDeviceGetName(void *handle, char *out, uint size) { (void)handle; return text(out, size, "NVIDIA H200"); }
int nvmlDeviceGetUUID(void *handle, char *out, uint size) { snprintf(out, size, "GPU-%d", index_of(handle)); return OK; }
int nvmlDeviceGetVbiosVersion(void *handle, char *out, uint size) { (void)handle; return text(out, size, "96.00.CF.00.01"); }
int nvmlDeviceGetPciInfo_v3(void *handle, Pci *out) {
    memset(out, 0, sizeof *out);
    snprintf(out->bus_id, sizeof out->bus_id, "00000000:%02X:00.0", index_of(handle) + 0x1b);
    return OK;
}
int nvmlDeviceGetMemoryInfo(void *handle, Memory *out) {
    Memory all = {141ULL << 30, 133ULL << 30, 8ULL << 30};
    ANSWER(out, all);
}
int nvmlDeviceGetMemoryInfo_v2(void *handle, Memory2 *out) {
    Memory2 all = {out->version, 141ULL << 30, 1ULL << 30, 133ULL << 30, 7ULL << 30};
    ANSWER(out, all);
}
int nvmlDeviceGetEnforcedPowerLimit(void *handle, uint *out) { ANSWER(out, 700000u); }
int nvmlDeviceGetMaxClockInfo(void *handle, int clock, uint *out) { (void)clock; ANSWER(out, 1980u); }
int nvmlDeviceGetClockInfo(void *handle, int clock, uint *out) { (void)clock; ANSWER(out, 1755u); }
int nvmlDeviceGetUtilizationRates(void *handle, Utilization *out) {
    Utilization busy = {value(index_of(handle), "idle") > 0 ? 0 : 93, 41};
    samples[index_of(handle)]++;
    ANSWER(out, busy);
}
int nvmlDeviceGetTemperature(void *handle, int sensor, uint *out) {
    (void)sensor;
    ANSWER(out, (uint)or_else(index_of(handle), "heat", 61));
}
int nvmlDeviceGetTemperatureThreshold(void *handle, int which, uint *out) { (void)which; ANSWER(out, 92u); }
int nvmlDeviceGetPowerUsage(void *handle, uint *out) {
    if (value(index_of(handle), "nopower") > 0) return NOT_SUPPORTED;
    ANSWER(out, 512000u);
}
int nvmlDeviceGetTotalEnergyConsumption(void *handle, u64 *out) { ANSWER(out, 1000000ULL + 512000ULL * samples[index_of(handle)]); }
int nvmlDeviceGetCurrentClocksEventReasons(void *handle, u64 *out) { ANSWER(out, (u64)or_else(index_of(handle), "throttle", 0)); }
int nvmlDeviceGetTotalEccErrors(void *handle, int kind, int counter, u64 *out) {
    (void)counter;
    ANSWER(out, kind ? (u64)or_else(index_of(handle), "ecc", 0) : 3ULL);
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, uint *number, void *out) { (void)handle; (void)out; *number = 0; return OK; }
int nvmlDeviceGetRemappedRows(void *handle, uint *corrected, uint *uncorrected, uint *pending, uint *failed) {
    int device = index_of(handle);
    *corrected = *uncorrected = 0;
    *failed = (uint)or_else(device, "failed", 0);
    ANSWER(pending, (uint)or_else(device, "pending", 0));
}
int nvmlDeviceGetMigMode(void *handle, uint *now, uint *later) { *later = 0; ANSWER(now, (uint)or_else(index_of(handle), "mig", 0)); }
int nvmlDeviceGetCurrPcieLinkWidth(void *handle, uint *out) { ANSWER(out, (uint)or_else(index_of(handle), "width", 16)); }
int nvmlDeviceGetMaxPcieLinkWidth(void *handle, uint *out) { ANSWER(out, 16u); }
int nvmlDeviceGetCurrPcieLinkGeneration(void *handle, uint *out) { ANSWER(out, (uint)or_else(index_of(handle), "generation", 5)); }
int nvmlDeviceGetMaxPcieLinkGeneration(void *handle, uint *out) { ANSWER(out, 5u); }
int nvmlDeviceGetPcieReplayCounter(void *handle, uint *out) { ANSWER(out, (uint)or_else(index_of(handle), "replays", 5)); }
int nvmlDeviceGetNvLinkState(void *handle, uint link, uint *out) {
    if (link >= LINKS) return INVALID;
    ANSWER(out, link < (uint)or_else(index_of(handle), "down", 0) ? 0u : 1u);
}
int nvmlDeviceGetNvLinkErrorCounter(void *handle, uint link, int counter, u64 *out) {
    if (value(index_of(handle), "newer") >= 0) return NOT_SUPPORTED;
    ANSWER(out, link == LINKS - 1 && counter == 0 ? (u64)or_else(index_of(handle), "nvlink", 0) : 0ULL);
}
/* NVML_FI_DEV_NVLINK_COUNT_*: 213 counts recoveries of link 2 as an unsigned int, the others are unsigned long long. */
int nvmlDeviceGetFieldValues(void *handle, int number, Field *fields) {
    long newer = value(index_of(handle), "newer");
    for (int place = 0; place < number; place++) {
        Field *each = &fields[place];
        each->state = newer < 0 || each->field < 201 || each->field > 255 ? NOT_SUPPORTED : OK;
        each->type = each->field == 213 ? 1 : 3;
        memset(&each->value, each->field == 213 ? 0xff : 0, sizeof each->value);
        if (each->field == 213) each->value.small = each->scope == 2 ? (uint)newer : 0;
        if (each->field >= 235 || each->field == 215) each->value.whole = 1000; /* mended, and the sum of recoveries */
    }
    return alive(handle);
}
int nvmlDeviceGetGpuFabricInfoV(void *handle, Fabric *out) {
    int device = index_of(handle);
    if (out->version != (sizeof *out | 2u << 24)) return 25; /* NVML_ERROR_ARGUMENT_VERSION_MISMATCH */
    Fabric told = {out->version, {0}, (int)or_else(device, "fabricstatus", OK), 0, (uint)or_else(device, "fabric", 0),
                   (uint)or_else(device, "fabrichealth", 0)};
    ANSWER(out, told);
}
int nvmlEventSetCreate(void **out) { *out = (void *)1; return OK; }
int nvmlEventSetFree(void *events) { (void)events; return OK; }
int nvmlDeviceRegisterEvents(void *handle, u64 types, void *events) { (void)handle; (void)types; (void)events; return OK; }
int nvmlEventSetWait_v2(void *events, Event *out, uint timeout) {
    (void)events;
    (void)timeout;
    for (int device = 0; device < count(); device++) {
        long xid = value(device, "xid");
        if (xid > 0 && !told[device]) {
            told[device] = 1;
            memset(out, 0, sizeof *out);
            out->device = (void *)(size_t)(device + 1);
            out->type = 8;
            out->data = (u64)xid;
            return OK;
        }
    }
    return TIMEOUT;
}
