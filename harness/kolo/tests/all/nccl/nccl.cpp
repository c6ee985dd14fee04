// A library that poses as NVIDIA's NCCL, for tests of our side of it: processes are connected by sockets of
// this machine, and what is asked for is done by a thread as soon as a group ends, in the memory that
// the driver that poses as NVIDIA's gives out. The kernels that combine are those of kernels.cu.
//
// POSING_NCCL says what is wrong with it, in words with commas between them: old (version), shares (a version
// that lets ranks share GPUs), lost=R (a byte of what rank R receives), error=R (NCCL reports one later),
// absent=R (rank R never joins), duplicate (GPU), kill=R (rank R is killed in its 5th group), stop=R (it stops
// there), slow (everything takes a while), refuse=R (a send of rank R), stuck=R (the
// 5th group of rank R does not return).

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "kernels.cu"

enum { FINE = 0, SYSTEM = 2, INTERNAL = 3, ARGUMENT = 4, USAGE = 5, REMOTE = 6, BUSY = 7 };

struct Id {
    char text[128];
};
struct Config {
    size_t size;
    unsigned magic, version;
    int blocking, cga, least, most;
    const char* network;
    int share;
};
// Of a word with a number, the number; -1 without it.
static int told(const char* word) {
    std::string all = getenv("POSING_NCCL") ? getenv("POSING_NCCL") : "", name = word;
    for (size_t at = 0; at < all.size();) {
        size_t end = std::min(all.find(',', at), all.size());
        std::string one = all.substr(at, end - at);
        if (one == name) return 0;
        if (one.rfind(name + "=", 0) == 0) return atoi(one.c_str() + name.size() + 1);
        at = end + 1;
    }
    return -1;
}

struct Move {
    char* at;
    size_t left;
};
struct Comm {
    int rank = 0, ranks = 0, groups = 0;
    std::string name;
    std::vector<int> sockets;
    std::atomic<int> state{BUSY};
    std::atomic<bool> aborted{false};
    int splits = 0;
};
// What is in a group.
struct Call {
    Comm* comm;
    std::vector<std::deque<Move>> sends, receives;
    std::function<void()> then;
};
static thread_local int depth;
static thread_local std::vector<Call> calls;
static std::string complaint;

static void pause_a_while() { usleep(told("slow") >= 0 ? 20000 : 0); }

static std::atomic<int>* pending() {
    return (std::atomic<int>*)dlsym(dlopen("libcuda.so.1", RTLD_NOW), "posing_pending");
}
static int device() { return ((int (*)())dlsym(dlopen("libcuda.so.1", RTLD_NOW), "posing_device"))(); }

// Moves everything; false where a process is gone, or the communicator is aborted.
static bool move_all(Comm* comm, std::vector<std::deque<Move>>& sends, std::vector<std::deque<Move>>& receives) {
    for (;;) {
        std::vector<pollfd> waits;
        std::vector<int> peers;
        for (int peer = 0; peer < comm->ranks; ++peer) {
            for (auto* queue : {&sends[peer], &receives[peer]})
                while (!queue->empty() && !queue->front().left) queue->pop_front();
            short wants = (sends[peer].empty() ? 0 : POLLOUT) | (receives[peer].empty() ? 0 : POLLIN);
            if (!wants) continue;
            if (peer == comm->rank) {
                Move &from = sends[peer].front(), &into = receives[peer].front();
                memmove(into.at, from.at, into.left);
                into.left = from.left = 0;
                continue;
            }
            waits.push_back({comm->sockets[peer], wants, 0});
            peers.push_back(peer);
        }
        if (waits.empty()) {
            bool left = false;
            for (int peer = 0; peer < comm->ranks; ++peer) left |= !sends[peer].empty() || !receives[peer].empty();
            if (!left) return true;
            continue;
        }
        poll(waits.data(), waits.size(), 20);
        if (comm->aborted) return false;
        for (size_t at = 0; at < waits.size(); ++at) {
            int peer = peers[at];
            if (waits[at].revents & POLLOUT) {
                Move& next = sends[peer].front();
                ssize_t sent = send(waits[at].fd, next.at, next.left, MSG_DONTWAIT | MSG_NOSIGNAL);
                if (sent > 0) next.at += sent, next.left -= sent;
            }
            if (waits[at].revents & (POLLIN | POLLHUP | POLLERR)) {
                if (receives[peer].empty()) return false;
                Move& next = receives[peer].front();
                ssize_t got = recv(waits[at].fd, next.at, next.left, MSG_DONTWAIT);
                if (got == 0) return false;
                if (got > 0) next.at += got, next.left -= got;
            }
        }
    }
}

static void lose(Comm* comm, const std::vector<std::deque<Move>>& receives) {
    if (told("lost") != comm->rank || comm->groups < 3) return;
    for (auto& queue : receives)
        for (auto& move : queue)
            if (move.left) {
                move.at[move.left - 1] ^= 0x41;
                return;
            }
}

// In a thread of its own, as NCCL does it for those who do not want to wait.
static void carry_out(Call call) {
    Comm* comm = call.comm;
    pause_a_while();
    ++comm->groups;
    if (comm->groups == 5 && told("kill") == comm->rank) raise(SIGKILL);
    if (comm->groups == 5 && told("stop") == comm->rank) raise(SIGSTOP);
    auto wanted = call.receives;
    if (move_all(comm, call.sends, call.receives)) {
        lose(comm, wanted);
        if (call.then) call.then();
    } else if (!comm->aborted) {
        // The kernel is on the stream, and never ends.
        ++*pending();
    }
    comm->state = comm->groups >= 4 && told("error") == comm->rank ? REMOTE : FINE;
}

static void tell_all(Comm* comm, void* own, void* all, size_t bytes, std::function<void()> then) {
    Call call{comm, {}, {}, then};
    call.sends.resize(comm->ranks), call.receives.resize(comm->ranks);
    for (int peer = 0; peer < comm->ranks; ++peer) {
        call.sends[peer].push_back({(char*)own, bytes});
        call.receives[peer].push_back({(char*)all + peer * bytes, bytes});
    }
    calls.push_back(call);
}

static int complain(int code, std::string text) {
    complaint = text;
    return code;
}

static int finish_group() {
    int ended = FINE;
    for (auto& call : calls) {
        if (call.comm->aborted || call.comm->state != FINE) ended = complain(USAGE, "a communicator that is not ready");
        while (told("stuck") == call.comm->rank && call.comm->groups == 4) sleep(1);
        if (ended == FINE) call.comm->state = BUSY, ended = BUSY, std::thread(carry_out, call).detach();
        else if (ended == BUSY) ended = complain(USAGE, "several at once");
    }
    calls.clear();
    return ended;
}

static int lone(std::function<void()> what) {
    if (depth) return complain(USAGE, "collectives are not grouped here");
    what();
    return finish_group();
}

static std::string path(const std::string& name, int rank) {
    const char* folder = getenv("POSING_FOLDER");
    return std::string(folder ? folder : "/tmp") + "/" + name + "-" + std::to_string(rank);
}

static sockaddr_un place_of(const std::string& name, int rank) {
    sockaddr_un place{};
    place.sun_family = AF_UNIX;
    snprintf(place.sun_path, sizeof place.sun_path, "%s", path(name, rank).c_str());
    return place;
}

// Connects all with all: with lower ranks, and accepts higher ones.
static bool connect_all(Comm* comm) {
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un own = place_of(comm->name, comm->rank);
    if (bind(listener, (sockaddr*)&own, sizeof own) || listen(listener, 64)) return false;
    comm->sockets.assign(comm->ranks, -1);
    for (int peer = 0; peer < comm->rank; ++peer) {
        int line = socket(AF_UNIX, SOCK_STREAM, 0);
        sockaddr_un place = place_of(comm->name, peer);
        while (connect(line, (sockaddr*)&place, sizeof place)) {
            if (comm->aborted) return false;
            usleep(1000);
        }
        if (write(line, &comm->rank, sizeof comm->rank) != sizeof comm->rank) return false;
        comm->sockets[peer] = line;
    }
    for (int left = comm->ranks - 1 - comm->rank; left > 0; --left) {
        pollfd wait{listener, POLLIN, 0};
        while (poll(&wait, 1, 20) == 0)
            if (comm->aborted) return false;
        int line = accept(listener, 0, 0), peer;
        if (read(line, &peer, sizeof peer) != sizeof peer) return false;
        comm->sockets[peer] = line;
    }
    close(listener);
    unlink(own.sun_path);
    return true;
}

static void join(Comm* comm, int device) {
    pause_a_while();
    while (told("absent") == comm->rank && !comm->aborted) usleep(1000);
    if (comm->aborted || !connect_all(comm)) {
        comm->state = SYSTEM;
        return;
    }
    std::vector<int> devices(comm->ranks);
    std::vector<std::deque<Move>> sends(comm->ranks), receives(comm->ranks);
    for (int peer = 0; peer < comm->ranks; ++peer) {
        sends[peer].push_back({(char*)&device, sizeof device});
        receives[peer].push_back({(char*)&devices[peer], sizeof device});
    }
    if (!move_all(comm, sends, receives)) {
        comm->state = SYSTEM;
        return;
    }
    bool may = getenv("NCCL_MULTI_RANK_GPU_ENABLE") && told("shares") >= 0;
    for (int peer = 0; peer < comm->ranks; ++peer)
        if (told("duplicate") >= 0 || (peer != comm->rank && devices[peer] == device && !may)) {
            complaint = "Duplicate GPU detected : rank " + std::to_string(comm->rank) + " and rank " + std::to_string(peer) +
                        " both on CUDA device 1000";
            comm->state = USAGE;
            return;
        }
    comm->state = FINE;
}

static int make(Comm** out, Comm* comm, Config* config) {
    if (!config || config->magic != 0xcafebeef || config->size != 48 || config->version < 21800 || config->blocking != 0 ||
        config->share != INT_MIN || config->network) {
        return complain(ARGUMENT, "ncclConfig_t argument not initialized");
    }
    if (FILE* file = fopen(path("blocking", 0).c_str(), "a")) {
        const char* blocking = getenv("NCCL_COMM_BLOCKING");
        fprintf(file, "%s\n", blocking ? blocking : "unset");
        fclose(file);
    }
    *out = comm;
    std::thread(join, comm, device()).detach();
    return BUSY;
}

// What a communicator is held to: in its name, so that ranks that differ do not find each other, and told in a
// file.
static std::string tuning() {
    std::string all;
    for (const char* name : {"NCCL_ALGO", "NCCL_PROTO"}) all += getenv(name) ? std::string("-") + getenv(name) : "";
    if (FILE* file = fopen(path("joined", 0).c_str(), "a")) {
        fprintf(file, "%s\n", all.c_str());
        fclose(file);
    }
    return all;
}

static const size_t SIZES[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
static const char* TYPES[] = {"", "u8", "i32", "", "i64", "", "f16", "f32", "f64", "bf16"};
static const char* OPS[] = {"sum", "product", "max", "min"};

// Combines as many vectors as there are ranks, each as long as the result.
static void reduce_all(int ranks, char* vectors, void* into, size_t elements, int type, int op) {
    struct {
        void* into;
        const void* from[9];
        u64 elements, vectors;
    } work{};
    Dl_info self;
    dladdr((void*)reduce_all, &self);
    std::string name = std::string("reduce_") + OPS[op] + "_" + TYPES[type];
    auto kernel = (void (*)(const void*))dlsym(dlopen(self.dli_fname, RTLD_NOW), name.c_str());
    work.into = into, work.elements = elements, work.vectors = ranks;
    for (int rank = 0; rank < ranks; ++rank) work.from[rank] = vectors + rank * elements * SIZES[type];
    place(0, 1, 0, 1);
    if (elements) kernel(&work);
}

static bool is_wrong(int type, int op = 0) { return type < 1 || type > 9 || !*TYPES[type] || op < 0 || op > 3; }

extern "C" {
int ncclGetVersion(int* version) {
    *version = told("old") >= 0 ? 21703 : told("shares") >= 0 ? 23003 : 22706;
    return FINE;
}
const char* ncclGetErrorString(int code) {
    return code == SYSTEM ? "unhandled system error" : code == USAGE ? "invalid usage" : code == REMOTE ? "remote process exited or there was a network error" : "an error";
}
const char* ncclGetLastError(Comm*) { return complaint.c_str(); }
int ncclGetUniqueId(Id* id) {
    static int made;
    snprintf(id->text, sizeof id->text, "posing-%d-%d", getpid(), ++made);
    return FINE;
}
int ncclCommInitRankConfig(Comm** out, int ranks, Id id, int rank, Config* config) {
    if (rank < 0 || rank >= ranks || device() < 0) return complain(ARGUMENT, "a rank or a device that is none");
    Comm* comm = new Comm;
    comm->rank = rank, comm->ranks = ranks, comm->name = id.text + tuning();
    return make(out, comm, config);
}
int ncclCommSplit(Comm* parent, int color, int key, Comm** out, Config* config) {
    if (parent->state != FINE || depth) return complain(USAGE, "a communicator that is not ready");
    parent->state = BUSY;
    int split = ++parent->splits;
    int current = device();
    // As NCCL since 2.18: the handle is told once the parent is through with it.
    std::thread([=] {
        std::vector<int> own{color, key, parent->rank}, all(3 * parent->ranks);
        std::vector<std::deque<Move>> sends(parent->ranks), receives(parent->ranks);
        for (int peer = 0; peer < parent->ranks; ++peer) {
            sends[peer].push_back({(char*)own.data(), 12});
            receives[peer].push_back({(char*)&all[3 * peer], 12});
        }
        if (!move_all(parent, sends, receives)) {
            parent->state = SYSTEM;
            return;
        }
        std::map<std::pair<int, int>, int> members;
        for (int peer = 0; peer < parent->ranks; ++peer)
            if (all[3 * peer] == color) members[{all[3 * peer + 1], peer}] = 0;
        Comm* comm = new Comm;
        comm->ranks = members.size();
        for (auto& [member, at] : members) {
            if (member.second == parent->rank) break;
            ++comm->rank;
        }
        comm->name = parent->name + "." + std::to_string(split) + "." + std::to_string(color);
        *out = comm;
        std::thread(join, comm, current).detach();
        parent->state = FINE;
    }).detach();
    return config && config->magic == 0xcafebeef && config->blocking == 0 ? BUSY : complain(ARGUMENT, "ncclConfig_t");
}
int ncclCommGetAsyncError(Comm* comm, int* state) {
    *state = comm->state;
    return FINE;
}
int ncclCommAbort(Comm* comm) {
    comm->aborted = true;
    unlink(path(comm->name, comm->rank).c_str());
    return FINE;
}
int ncclCommFinalize(Comm* comm) { return comm->state == FINE ? FINE : complain(USAGE, "not ready"); }
int ncclCommDestroy(Comm* comm) {
    comm->aborted = true;
    for (int line : comm->sockets)
        if (line >= 0) close(line);
    return FINE;
}
int ncclGroupStart() {
    ++depth;
    return FINE;
}
int ncclGroupEnd() {
    if (!depth) return complain(USAGE, "not in a group");
    return --depth ? FINE : finish_group();
}
static Call& call_of(Comm* comm) {
    for (auto& call : calls)
        if (call.comm == comm) return call;
    calls.push_back({comm, {}, {}, nullptr});
    calls.back().sends.resize(comm->ranks), calls.back().receives.resize(comm->ranks);
    return calls.back();
}
int ncclSend(const void* from, size_t count, int type, int peer, Comm* comm, void* stream) {
    if (told("refuse") == comm->rank) return complain(ARGUMENT, "it does not like it");
    if (!depth || !stream || is_wrong(type) || peer < 0 || peer >= comm->ranks) return complain(ARGUMENT, "a send");
    call_of(comm).sends[peer].push_back({(char*)from, count * SIZES[type]});
    return FINE;
}
int ncclRecv(void* into, size_t count, int type, int peer, Comm* comm, void* stream) {
    if (!depth || !stream || is_wrong(type) || peer < 0 || peer >= comm->ranks) return complain(ARGUMENT, "a receive");
    call_of(comm).receives[peer].push_back({(char*)into, count * SIZES[type]});
    return FINE;
}
int ncclAllReduce(void* from, void* into, size_t count, int type, int op, Comm* comm, void* stream) {
    if (!stream || is_wrong(type, op)) return complain(ARGUMENT, "an allreduce");
    char* all = (char*)malloc(comm->ranks * count * SIZES[type] + 16);
    return lone([=] {
        tell_all(comm, from, all, count * SIZES[type], [=] { reduce_all(comm->ranks, all, into, count, type, op), free(all); });
    });
}
int ncclReduceScatter(void* from, void* into, size_t each, int type, int op, Comm* comm, void* stream) {
    if (!stream || is_wrong(type, op)) return complain(ARGUMENT, "a reduce-scatter");
    size_t bytes = each * SIZES[type];
    char* all = (char*)malloc(comm->ranks * bytes + 16);
    return lone([=] {
        tell_all(comm, from, all, bytes, [=] { reduce_all(comm->ranks, all, into, each, type, op), free(all); });
        for (int peer = 0; peer < comm->ranks; ++peer) calls.back().sends[peer].front().at = (char*)from + peer * bytes;
    });
}
int ncclAllGather(void* from, void* into, size_t each, int type, Comm* comm, void* stream) {
    if (!stream || is_wrong(type)) return complain(ARGUMENT, "an all-gather");
    return lone([=] { tell_all(comm, from, into, each * SIZES[type], nullptr); });
}
int ncclReduce(void* from, void* into, size_t count, int type, int op, int root, Comm* comm, void* stream) {
    if (!stream || is_wrong(type, op) || root < 0 || root >= comm->ranks) return complain(ARGUMENT, "a reduce");
    char* all = (char*)malloc(comm->ranks * count * SIZES[type] + 16);
    return lone([=] {
        tell_all(comm, from, all, count * SIZES[type], [=] {
            if (comm->rank == root) reduce_all(comm->ranks, all, into, count, type, op);
            free(all);
        });
    });
}
int ncclBroadcast(void* from, void* into, size_t count, int type, int root, Comm* comm, void* stream) {
    if (!stream || is_wrong(type) || root < 0 || root >= comm->ranks) return complain(ARGUMENT, "a broadcast");
    return lone([=] {
        Call& call = call_of(comm);
        for (int peer = 0; peer < comm->ranks; ++peer)
            if (comm->rank == root && peer != root) call.sends[peer].push_back({(char*)from, count * SIZES[type]});
        if (comm->rank != root) call.receives[root].push_back({(char*)into, count * SIZES[type]});
    });
}
}
