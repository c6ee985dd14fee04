// What the kernels need of a GPU.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;

#define KERNEL extern "C" __global__ void
// So few registers that so many blocks of 256 threads are on a multiprocessor at once.
#define AT_ONCE(blocks) __launch_bounds__(256, blocks)
// Read where it is: it is never copied.
#define WORK(Type) const __grid_constant__ Type
// How loops are unrolled.
#define ALL_AT_ONCE _Pragma("unroll")
#define SOME_AT_ONCE _Pragma("unroll 4")
#define ONE_BY_ONE _Pragma("unroll 1")
#define INLINE static __device__ __forceinline__

INLINE float widen_half(u16 bits) {
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(bits));
    return wide;
}

INLINE u16 narrow_half(float wide) {
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(wide));
    return bits;
}

INLINE u32 turned(u32 bits, u32 left) { return __funnelshift_l(bits, bits, left); }
INLINE u32 bits_of(float number) { return __float_as_uint(number); }
INLINE float of_bits(u32 bits) { return __uint_as_float(bits); }
INLINE u64 now_ns() {
    u64 time;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
    return time;
}
INLINE void rest() { __nanosleep(100); }
INLINE void count(u64* counter, u64 more) { atomicAdd(counter, more); }
INLINE void lower(u64* least, u64 value) { atomicMin(least, value); }
