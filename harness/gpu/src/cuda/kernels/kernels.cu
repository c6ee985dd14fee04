// What GPUs do to elements: pack, reduce, fill, check; and what keeps them busy.
//
// A kernel takes one structure, as `harness/gpu/src/cuda/work.rs` has it. Threads go over the elements in
// strides, so that a grid of any size does the whole work, and none waits for another: compiled for a
// processor (see processor.h) they run one after the other. Sixteen bytes are moved at a time where the
// addresses allow it. What comes out is, bit for bit, what kernel.rs, cast.rs and pattern.rs compute.

#ifdef __CUDACC__
#include "device.h"
#else
#include "processor.h"
#endif

struct Half {
    u16 bits;
};
struct Brain {
    u16 bits;
};

// What a type is computed in: float for the 16-bit types, else itself.
template <typename T>
struct Wide {
    typedef T Type;
};
template <>
struct Wide<Half> {
    typedef float Type;
};
template <>
struct Wide<Brain> {
    typedef float Type;
};

template <typename T>
INLINE T widen(T number) {
    return number;
}
INLINE float widen(Half number) { return widen_half(number.bits); }
INLINE float widen(Brain number) { return of_bits((u32)number.bits << 16); }

template <typename T>
INLINE void narrow(T wide, T& number) {
    number = wide;
}
INLINE void narrow(float wide, Half& number) { number.bits = narrow_half(wide); }
INLINE void narrow(float wide, Brain& number) {
    u32 bits = bits_of(wide), rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
    number.bits = wide == wide ? rounded : bits >> 16 | 0x40;
}

INLINE u32 wrapped(u8 number) { return number; }
INLINE u32 wrapped(int number) { return number; }
INLINE u64 wrapped(i64 number) { return number; }
INLINE float wrapped(float number) { return number; }
INLINE double wrapped(double number) { return number; }

enum { SUM, MIN, MAX, PRODUCT };

// The first stays where one of the two is NaN.
template <int COMBINE, typename W>
INLINE W pair(W mine, W other) {
    switch (COMBINE) {
        case MIN: return other < mine ? other : mine;
        case MAX: return other > mine ? other : mine;
        case PRODUCT: return (W)(wrapped(mine) * wrapped(other));
        default: return (W)(wrapped(mine) + wrapped(other));
    }
}

template <int COMBINE, typename T>
INLINE T combine(T mine, T other) {
    T sum;
    narrow(pair<COMBINE>(widen(mine), widen(other)), sum);
    return sum;
}

INLINE float scaled(float number, double factor) { return number * (float)factor; }
INLINE double scaled(double number, double factor) { return number * factor; }
INLINE u8 scaled(u8 number, double) { return number; }
INLINE int scaled(int number, double) { return number; }
INLINE i64 scaled(i64 number, double) { return number; }

template <typename T>
INLINE T scale(T number, double factor) {
    T product;
    narrow(scaled(widen(number), factor), product);
    return product;
}

// Sixteen bytes, in elements.
template <typename T>
union Line {
    uint4 bytes;
    T lanes[16 / sizeof(T)];
};

INLINE u64 thread() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }
INLINE u64 threads() { return (u64)gridDim.x * blockDim.x; }
INLINE bool is_aligned(const void* address) { return (u64)address % 16 == 0; }

// Elements before the first line that begins on sixteen bytes.
template <typename T>
INLINE u64 head(const T* address, u64 elements) {
    u64 before = (16 - (u64)address % 16) % 16 / sizeof(T);
    return before < elements ? before : elements;
}

// ---- reduce: several vectors, in their order, into one, which may be the first of them

struct Reduce {
    void* into;
    const void* from[9];
    u64 elements;
    u64 sources;
};

template <int COMBINE, typename T>
INLINE void reduce(const Reduce& work) {
    const u64 lanes = 16 / sizeof(T);
    T* into = (T*)work.into;
    u64 before = head(into, work.elements), lines = (work.elements - before) / lanes;
    ONE_BY_ONE for (u64 source = 0; source < work.sources; ++source)
        if (!is_aligned((const T*)work.from[source] + before)) lines = 0;
    ONE_BY_ONE for (u64 at = thread(); at < lines; at += threads()) {
        Line<T> sum, next;
        sum.bytes = ((const uint4*)((const T*)work.from[0] + before))[at];
        ONE_BY_ONE for (u64 source = 1; source < work.sources; ++source) {
            next.bytes = ((const uint4*)((const T*)work.from[source] + before))[at];
            ALL_AT_ONCE for (u64 lane = 0; lane < lanes; ++lane)
                sum.lanes[lane] = combine<COMBINE>(sum.lanes[lane], next.lanes[lane]);
        }
        ((uint4*)(into + before))[at] = sum.bytes;
    }
    ONE_BY_ONE for (u64 left = thread(); left < work.elements - lines * lanes; left += threads()) {
        u64 at = left < before ? left : left + lines * lanes;
        T sum = ((const T*)work.from[0])[at];
        ONE_BY_ONE for (u64 source = 1; source < work.sources; ++source)
            sum = combine<COMBINE>(sum, ((const T*)work.from[source])[at]);
        into[at] = sum;
    }
}

#define REDUCE(name, T)                                                           \
    KERNEL reduce_sum_##name(WORK(Reduce) work) { reduce<SUM, T>(work); }         \
    KERNEL reduce_min_##name(WORK(Reduce) work) { reduce<MIN, T>(work); }         \
    KERNEL reduce_max_##name(WORK(Reduce) work) { reduce<MAX, T>(work); }         \
    KERNEL reduce_product_##name(WORK(Reduce) work) { reduce<PRODUCT, T>(work); }

REDUCE(f32, float)
REDUCE(f64, double)
REDUCE(f16, Half)
REDUCE(bf16, Brain)
REDUCE(i32, int)
REDUCE(i64, i64)
REDUCE(u8, u8)

// ---- pack: pieces of many tensors from one place to another, cast and multiplied, in one launch

struct Piece {
    const void* from;
    void* into;
    u64 elements;
};

struct Pack {
    const Piece* pieces;
    u64 count;
    double factor;
};

// Rounded to odd, so that rounding to 16 bits afterwards rounds once.
INLINE float to_odd(float number) { return number; }
INLINE float to_odd(double number) {
    float nearest = (float)number;
    u32 bits = bits_of(nearest);
    bool away = (nearest < 0 ? -(double)nearest : (double)nearest) > (number < 0 ? -number : number);
    return nearest == number ? nearest : of_bits((bits - away) | 1);
}

// The factor is applied in the narrower type, where a data plane works.
template <typename T>
INLINE void convert(T from, T& into, double factor) {
    into = scale(from, factor);
}
template <typename F, typename H>
INLINE void narrowed(F from, H& into, double factor) {
    narrow(to_odd(from), into);
    into = scale(into, factor);
}
INLINE void convert(float from, Half& into, double factor) { narrowed(from, into, factor); }
INLINE void convert(float from, Brain& into, double factor) { narrowed(from, into, factor); }
INLINE void convert(double from, Half& into, double factor) { narrowed(from, into, factor); }
INLINE void convert(double from, Brain& into, double factor) { narrowed(from, into, factor); }
INLINE void convert(Half from, float& into, double factor) { into = widen(scale(from, factor)); }
INLINE void convert(Brain from, float& into, double factor) { into = widen(scale(from, factor)); }
INLINE void convert(Half from, double& into, double factor) { into = widen(scale(from, factor)); }
INLINE void convert(Brain from, double& into, double factor) { into = widen(scale(from, factor)); }

// A block takes a piece after the other.
template <typename F, typename T>
INLINE void pack(const Pack& work) {
    const u64 lanes = 16 / (sizeof(F) < sizeof(T) ? sizeof(F) : sizeof(T));
    const u64 from_lines = lanes * sizeof(F) / 16, into_lines = lanes * sizeof(T) / 16;
    ONE_BY_ONE for (u64 piece = blockIdx.x; piece < work.count; piece += gridDim.x) {
        const F* from = (const F*)work.pieces[piece].from;
        T* into = (T*)work.pieces[piece].into;
        u64 elements = work.pieces[piece].elements, before = head(into, elements);
        u64 groups = is_aligned(from + before) ? (elements - before) / lanes : 0;
        ONE_BY_ONE for (u64 group = threadIdx.x; group < groups; group += blockDim.x) {
            Line<F> in[from_lines];
            Line<T> out[into_lines];
            ALL_AT_ONCE for (u64 line = 0; line < from_lines; ++line)
                in[line].bytes = ((const uint4*)(from + before))[group * from_lines + line];
            ALL_AT_ONCE for (u64 lane = 0; lane < lanes; ++lane)
                convert(in[lane * sizeof(F) / 16].lanes[lane % (16 / sizeof(F))],
                        out[lane * sizeof(T) / 16].lanes[lane % (16 / sizeof(T))], work.factor);
            ALL_AT_ONCE for (u64 line = 0; line < into_lines; ++line)
                ((uint4*)(into + before))[group * into_lines + line] = out[line].bytes;
        }
        ONE_BY_ONE for (u64 left = threadIdx.x; left < elements - groups * lanes; left += blockDim.x) {
            u64 at = left < before ? left : left + groups * lanes;
            convert(from[at], into[at], work.factor);
        }
    }
}

#define PACK(from, F, into, T) \
    KERNEL pack_##from##_##into(WORK(Pack) work) { pack<F, T>(work); }

PACK(f32, float, f32, float)
PACK(f64, double, f64, double)
PACK(f16, Half, f16, Half)
PACK(bf16, Brain, bf16, Brain)
PACK(i32, int, i32, int)
PACK(i64, i64, i64, i64)
PACK(u8, u8, u8, u8)
PACK(f32, float, f16, Half)
PACK(f32, float, bf16, Brain)
PACK(f64, double, f16, Half)
PACK(f64, double, bf16, Brain)
PACK(f16, Half, f32, float)
PACK(bf16, Brain, f32, float)
PACK(f16, Half, f64, double)
PACK(bf16, Brain, f64, double)

// ---- busy: time passes, and nothing else happens

struct Busy {
    // When it begins, on the device's clock; none for now.
    const u64* from;
    // Where to write when it is over.
    u64* into;
    u64 length_ns;
};

KERNEL busy(WORK(Busy) work) {
    u64 end = (work.from ? *work.from : now_ns()) + work.length_ns;
    while (now_ns() < end) continue;
    if (thread() == 0) *work.into = end;
}

// ---- fill and check: the data of pattern.rs

enum { NATURAL, CENTRED, ODD, POWER };

struct Pattern {
    u64 first;
    u64 elements;
    u64 seed;
    u32 ranks;
    u32 kind;
    u32 bits;
    u32 combine;
};

struct Fill {
    void* into;
    Pattern pattern;
    u64 rank;
};

// The same for all ranks. Blocks of 2048 elements share the upper half of their first index.
INLINE u32 mix(const Pattern& of, u64 offset) {
    u64 start = of.first + offset / 2048 * 2048;
    u32 high = (u32)(start >> 32) * 0x9E3779B9u ^ (u32)of.seed;
    u32 folded = (((u32)start + (u32)(offset % 2048)) ^ high) * 0x85EBCA6Bu;
    return (folded ^ folded >> 15) * 0x2C1B3C6Du ^ (u32)(of.seed >> 32);
}

INLINE void integer(int number, float& into) { into = (float)number; }
INLINE void integer(int number, double& into) { into = number; }
INLINE void integer(int number, u8& into) { into = (u8)number; }
INLINE void integer(int number, int& into) { into = number; }
INLINE void integer(int number, i64& into) { into = number; }

// What a rank contributes.
template <typename T>
INLINE T value(const Pattern& of, u32 rank, u32 mixed) {
    u32 turn = rank * 5 % 32, turned = turn ? mixed << turn | mixed >> (32 - turn) : mixed;
    u32 own = turned ^ (rank + 1) * 0x9E3779B1u;
    int number = (int)(own >> (32 - of.bits));
    if (of.kind == CENTRED) number -= 1 << (of.bits - 1);
    if (of.kind == ODD) number = own >> 28 | 1;
    typename Wide<T>::Type wide;
    integer(number, wide);
    if (of.kind == POWER) {
        u32 turned_by = mixed % of.ranks + rank, place = turned_by - (turned_by < of.ranks ? 0 : of.ranks);
        u32 exponent = place < 14 ? (own >> 16) % 3 : 1;
        integer(own >> 31 ? -1 : 1, wide);
        if (exponent == 0) wide = wide / 2;
        if (exponent == 2) wide = wide * 2;
    }
    T result;
    narrow(wide, result);
    return result;
}

template <typename T>
INLINE void fill(const Fill& work) {
    const u64 lanes = 16 / sizeof(T);
    const Pattern& of = work.pattern;
    const u32 rank = (u32)work.rank;
    T* into = (T*)work.into;
    u64 before = head(into, of.elements), lines = (of.elements - before) / lanes;
    ONE_BY_ONE for (u64 line = thread(); line < lines; line += threads()) {
        Line<T> out;
        ALL_AT_ONCE for (u64 lane = 0; lane < lanes; ++lane)
            out.lanes[lane] = value<T>(of, rank, mix(of, before + line * lanes + lane));
        ((uint4*)(into + before))[line] = out.bytes;
    }
    ONE_BY_ONE for (u64 left = thread(); left < of.elements - lines * lanes; left += threads()) {
        u64 at = left < before ? left : left + lines * lanes;
        into[at] = value<T>(of, rank, mix(of, at));
    }
}

struct Check {
    const void* got;
    // How many are wrong, and the offset of the first one.
    u64* wrong;
    Pattern pattern;
    double factor;
};

template <typename T>
INLINE T either(u32 how, T mine, T other) {
    switch (how) {
        case MIN: return combine<MIN>(mine, other);
        case MAX: return combine<MAX>(mine, other);
        case PRODUCT: return combine<PRODUCT>(mine, other);
        default: return combine<SUM>(mine, other);
    }
}

template <typename T>
INLINE void judge(const Check& work, u64 at, T got) {
    const Pattern& of = work.pattern;
    u32 mixed = mix(of, at);
    T want = value<T>(of, 0, mixed);
    ONE_BY_ONE for (u32 rank = 1; rank < of.ranks; ++rank)
        want = either(of.combine, want, value<T>(of, rank, mixed));
    if (work.factor != 1) want = scale(want, work.factor);
    // A NaN is not equal to anything.
    if (!(widen(got) == widen(want))) {
        count(work.wrong);
        lower(work.wrong + 1, at);
    }
}

template <typename T>
INLINE void check(const Check& work) {
    const u64 lanes = 16 / sizeof(T);
    const T* got = (const T*)work.got;
    u64 elements = work.pattern.elements;
    u64 before = head(got, elements), lines = (elements - before) / lanes;
    ONE_BY_ONE for (u64 line = thread(); line < lines; line += threads()) {
        Line<T> in;
        in.bytes = ((const uint4*)(got + before))[line];
        ALL_AT_ONCE for (u64 lane = 0; lane < lanes; ++lane)
            judge(work, before + line * lanes + lane, in.lanes[lane]);
    }
    ONE_BY_ONE for (u64 left = thread(); left < elements - lines * lanes; left += threads()) {
        u64 at = left < before ? left : left + lines * lanes;
        judge(work, at, got[at]);
    }
}

#define PATTERN(name, T)                                     \
    KERNEL fill_##name(WORK(Fill) work) { fill<T>(work); }   \
    KERNEL check_##name(WORK(Check) work) { check<T>(work); }

PATTERN(f32, float)
PATTERN(f64, double)
PATTERN(f16, Half)
PATTERN(bf16, Brain)
PATTERN(i32, int)
PATTERN(i64, i64)
PATTERN(u8, u8)
