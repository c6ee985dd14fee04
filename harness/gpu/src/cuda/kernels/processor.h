// The same for a processor, on which tests run the kernels thread by thread: with `place` the caller says
// which one comes next.

#include <chrono>
#include <cstring>

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;

#define KERNEL extern "C" void
#define AT_ONCE(blocks)
// Where the caller has it.
#define WORK(Type) const Type&
#define ALL_AT_ONCE
#define SOME_AT_ONCE
#define ONE_BY_ONE
#define INLINE static inline

struct Index {
    u32 x;
};
static thread_local Index blockIdx, gridDim, threadIdx, blockDim;

extern "C" void place(u32 block, u32 blocks, u32 thread, u32 threads) {
    blockIdx.x = block, gridDim.x = blocks, threadIdx.x = thread, blockDim.x = threads;
}

struct alignas(8) uint2 {
    u32 x, y;
};
struct alignas(16) uint4 {
    u32 x, y, z, w;
};

INLINE u32 turned(u32 bits, u32 left) { return left % 32 ? bits << left % 32 | bits >> (32 - left % 32) : bits; }

INLINE u32 bits_of(float number) {
    u32 bits;
    memcpy(&bits, &number, sizeof bits);
    return bits;
}

INLINE float of_bits(u32 bits) {
    float number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

INLINE float widen_half(u16 bits) {
    u32 sign = (u32)(bits & 0x8000) << 16, rest = bits & 0x7FFF;
    if (rest >= 0x7C00) return of_bits(sign | 0x7F800000 | (rest & 0x3FF) << 13);
    // The exponent's bias is changed by a multiplication, which is right for subnormal numbers, too.
    return of_bits(sign | bits_of(of_bits(rest << 13) * of_bits((254 - 15) << 23)));
}

// To nearest, ties to even.
INLINE u16 narrow_half(float wide) {
    u32 bits = bits_of(wide), sign = bits >> 16 & 0x8000, rest = bits & 0x7FFFFFFF;
    if (rest > 0x7F800000) return sign | 0x7FFF;
    if (rest >= 0x477FF000) return sign | 0x7C00;
    // Subnormal: adding 0.5 leaves the bits that a half has at the end of the fraction, rounded.
    if (rest < 0x38800000) return sign | (bits_of(of_bits(rest) + 0.5f) - bits_of(0.5f));
    return sign | (rest - ((127 - 15) << 23) + 0xFFF + (rest >> 13 & 1)) >> 13;
}

INLINE u64 now_ns() { return std::chrono::steady_clock::now().time_since_epoch().count(); }
INLINE void rest() {}
INLINE void count(u64* counter, u64 more) { *counter += more; }
INLINE void lower(u64* least, u64 value) {
    if (value < *least) *least = value;
}
