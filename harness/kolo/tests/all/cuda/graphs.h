// Graphs of the driver that poses: calls on streams that are captured are kept, and done when the graph is
// launched, in the order in which they came.

#include <functional>
#include <map>
#include <vector>

enum { CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901, CAPTURE_UNJOINED = 904, CAPTURE_ISOLATION = 905, CAPTURED_EVENT = 907 };

using Calls = std::vector<std::function<void()>>;
// So many calls of each stream.
using Known = std::map<long, int>;

struct Capture {
    long origin = 0;
    bool spoiled = false;
    Calls calls;
    std::map<long, Known> streams;
    std::map<long, Known> events;
};

static Capture capture;
static std::map<long, Calls> graphs;

static bool captures(long stream) { return capture.origin && capture.streams.count(stream); }

// Spoils what is captured.
static int spoil(int error) {
    if (capture.origin) capture.spoiled = true;
    return error;
}

// Does it, or keeps it.
static void put(long stream, std::function<void()> call) {
    if (!captures(stream)) return call();
    ++capture.streams[stream][stream];
    capture.calls.push_back(call);
}

static int record(long stream, long event) {
    if (captures(stream)) capture.events[event] = capture.streams[stream];
    else capture.events.erase(event);
    return 0;
}

static int wait(long stream, long event) {
    bool captured = capture.events.count(event);
    if (!capture.origin) return captured ? CAPTURED_EVENT : 0;
    if (!captured) return captures(stream) ? spoil(CAPTURE_ISOLATION) : 0;
    Known& knows = capture.streams[stream];
    for (auto& known : capture.events[event]) {
        int& mine = knows[known.first];
        mine = mine < known.second ? known.second : mine;
    }
    return 0;
}

extern "C" {
int cuStreamBeginCapture_v2(long stream, int mode) {
    // Of the mode of a thread alone.
    if (capture.origin || mode != 1) return 1;
    capture = Capture();
    capture.origin = stream;
    capture.streams[stream];
    return 0;
}
int cuStreamEndCapture(long stream, long* graph) {
    *graph = 0;
    if (capture.origin != stream) return 1;
    Capture ended = capture;
    capture.origin = 0;
    if (ended.spoiled) return CAPTURE_INVALIDATED;
    for (auto& each : ended.streams)
        if (ended.streams[stream][each.first] < each.second[each.first]) return CAPTURE_UNJOINED;
    static long numbered = 1000;
    *graph = ++numbered;
    graphs[*graph] = ended.calls;
    return 0;
}
int cuGraphGetNodes(long graph, void* nodes, size_t* count) {
    *count = graphs[graph].size();
    return nodes ? 1 : 0;
}
int cuGraphInstantiateWithFlags(long* ready, long graph, unsigned long long flags) {
    *ready = graph + 1000000;
    graphs[*ready] = graphs[graph];
    return flags ? 1 : 0;
}
int cuGraphLaunch(long ready, long stream) {
    if (!graphs.count(ready) || ready < 1000000 || captures(stream)) return 1;
    for (auto& call : graphs[ready]) call();
    return 0;
}
int cuGraphDestroy(long graph) {
    graphs[graph].clear();
    return 0;
}
int cuGraphExecDestroy(long ready) { return graphs.erase(ready) ? 0 : 1; }
}
